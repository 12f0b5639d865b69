"""Are the inference engines subscribed? Running and waiting requests, cache, throughput, as their own lines say (PROBE-8).

An idle engine prints nothing, and Ray folds the lines of many engines into one: such a line is quoted, never averaged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from supervisor.gates import said
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, Role
from supervisor.model.readings import RunSummary

READ_LINES = 20_000
"""Newest lines of each log that are searched."""
SERIES = 12
"""Newest lines of an engine over which a state must hold."""
LASTING = 3
"""Lines in a row, at least, before a state is one and no moment."""
FEW = 8
"""Running requests that are few, where no serving cap is told; a tenth of it where one is."""
FLAT = 0.2
"""Spread of the throughput, over its largest, up to which it is flat."""

_SUMMARY = re.compile(r"vLLM Stats \(step (\d+)\):")
_PAIR = re.compile(r"\b(running|waiting|kv_cache|gen_tp)\(peak/med\)=([\d.]+)/([\d.]+)")
_STATS = re.compile(r"Running: (\d+) reqs.{0,80}?(?:Waiting|Pending): (\d+) reqs")
_KV = re.compile(r"(?<!CPU )KV cache usage: ([\d.]+)%")
_GENERATED = re.compile(r"generation throughput: ([\d.]+) tokens/s")
_SGLANG = re.compile(r"#running-req: (\d+),.*?token usage: ([\d.]+),.*?#queue-req: (\d+)")
_SGLANG_TP = re.compile(r"gen throughput \(token/s\): ([\d.]+)")
_SPEAKER = re.compile(r"\((\w{1,80}) pid=(\d{1,10})|Engine (\d{1,6}):")
_CAPACITY = re.compile(
    r"max_num_seqs['\"]?\s*[=:]\s*(\d{1,7})|max_running_requests['\"]?\s*[=:]\s*(\d{1,7})|--max-num-seqs[ =](\d{1,7})"
)
_ENGINES = re.compile(r"num_inference_engines['\"]?\s*[=:]\s*(\d{1,6})|\bengines=(\d{1,6})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one line of an engine says. ``generated``: tokens a second."""

    running: float
    waiting: float
    kv_percent: float | None
    generated: float | None
    who: str
    """The engine, as the line names it; empty where it does not."""
    quote: Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The newest lines, and what they add up to."""

    lines: tuple[Line, ...]
    """Newest last; of a log that Ray folded they are of engines chosen by chance."""
    whole: bool
    """They are one process's summaries over all engines."""
    folded: bool
    capacity: int | None
    """Requests that all engines serve at once, where the settings in the log tell it."""
    capacity_quote: Quote | None
    silent_s: float | None
    """How long its newest line lies before the log's newest that bears a time. An engine at rest says nothing, so its last line
    shows the time before; None where no times are told."""

    @property
    def newest(self) -> Line:
        return self.lines[-1]

    @property
    def running(self) -> float:
        return self.newest.running

    @property
    def waiting(self) -> float:
        return self.newest.waiting

    @property
    def lasting(self) -> Sequence[Line]:
        """The lines over which a state must hold; a summary is over a whole step already. Empty where they are too few."""
        if self.whole:
            return self.lines[-1:]
        return self.lines[-LASTING:] if len(self.lines) >= LASTING else ()

    def starved(self, kv_percent: float, silent_s: float) -> bool | None:
        """Little runs, nothing waits and the cache is near empty, not for a moment; or it has been silent for so long.

        None where its lines are too few."""
        if self.silent_s is not None and self.silent_s >= silent_s:
            return True
        if not self.lasting:
            return None
        few = self.capacity / 10 if self.capacity else FEW
        return all(
            line.waiting < 1 and line.running <= few and line.kv_percent is not None and line.kv_percent <= kv_percent
            for line in self.lasting
        )

    def oversubscribed(self, times: float) -> bool:
        lines = self.lasting or self.lines[-1:]
        return all(line.waiting >= times * max(line.running, 1.0) for line in lines)

    @property
    def flat(self) -> bool | None:
        """Whether throughput does not grow; None where it is not told often enough, or of engines chosen by chance."""
        values = [line.generated for line in self.lines if line.generated is not None]
        if self.folded or len(values) < LASTING + 2 or max(values) <= 0:
            return None
        return (max(values) - min(values)) / max(values) <= FLAT

    @property
    def words(self) -> str:
        line = self.newest
        kind = (
            "over all engines, the median of a step"
            if self.whole
            else "one engine"
            if self.folded or not line.who
            else line.who
        )
        kv = f", cache {line.kv_percent:g} %" if line.kv_percent is not None else ""
        most = f", serving cap {self.capacity}" if self.capacity is not None else ", the serving cap is not told"
        speed = f", {line.generated:g} tokens/s" if line.generated is not None else ""
        silent = self.silent_s or 0.0
        since = f", and nothing since for {said.span(silent)}" if silent >= 120 else ""
        return f"running {line.running:g}, waiting {line.waiting:g}{kv}{speed}{most}{since} ({kind})"

    @property
    def facts(self) -> Mapping[str, float | int | str | None]:
        line = self.newest
        return {
            "running": line.running,
            "waiting": line.waiting,
            "kv_percent": line.kv_percent,
            "generated_tps": line.generated,
            "capacity": self.capacity,
        }


def of(case: Case) -> Subscription | None:
    """From the log of the job, else from workers' own logs; None where no engine says how many requests it runs."""
    for role in (Role.LOG, Role.SESSION_LOG):
        found = _read(case, role)
        if found is not None:
            return found
    return None


def _read(case: Case, role: Role) -> Subscription | None:
    summaries: list[Line] = []
    stats: list[Line] = []
    seqs: tuple[int, Quote] | None = None
    engines: int | None = None
    silences: list[float] = []
    folded = False
    for exhibit in case.read(role):
        file = exhibit.file or ""
        lines = case.lines(file)
        run = case.runs.get(file)
        folded = folded or (run is not None and run.engine.aggregated)
        if run is not None and (silence := _silence(run)) is not None:
            silences.append(silence)
        for number in range(max(0, len(lines) - READ_LINES), len(lines)):
            text = lines[number][:4096]
            if "peak/med" in text and _SUMMARY.search(text) and (line := _summary(text, file, number + 1)) is not None:
                summaries.append(line)
            elif "unning" in text and (line := _stats(text, file, number + 1)) is not None:
                stats.append(line)
        seqs = seqs or _first(_CAPACITY, lines, file)
        found = _first(_ENGINES, lines, file)
        engines = engines or (found[0] if found is not None else None)
    told = summaries or stats
    if not told:
        return None
    capacity = None
    if seqs is not None and (engines is not None or not summaries):
        capacity = seqs[0] * (engines or 1) if summaries else seqs[0]
    return Subscription(
        lines=tuple(_one_speaker(told, folded)[-SERIES:]),
        whole=bool(summaries),
        folded=folded,
        capacity=capacity,
        capacity_quote=seqs[1] if seqs is not None else None,
        silent_s=min(silences, default=None),
    )


def _silence(run: RunSummary) -> float | None:
    spoke = run.last_engine.clock_s if run.last_engine is not None else None
    marks = [run.last_progress, run.last_heartbeat, run.last_trial, *(counter.latest for counter in run.counters)]
    clocks = [mark.clock_s for mark in marks if mark is not None and mark.clock_s is not None]
    return max(0.0, max(clocks) - spoke) if spoke is not None and clocks else None


def _one_speaker(lines: list[Line], folded: bool) -> list[Line]:
    """The lines of the engine that spoke last: a series over several would compare different engines."""
    if folded:
        return lines
    return [line for line in lines if line.who == lines[-1].who]


def _summary(text: str, file: str, number: int) -> Line | None:
    values = {
        name: float(middle) for name, _, middle in _PAIR.findall(text) if middle.count(".") <= 1 and middle != "."
    }
    if "running" not in values or "waiting" not in values:
        return None
    start = text.find("vLLM Stats")
    return Line(
        running=values["running"],
        waiting=values["waiting"],
        kv_percent=values.get("kv_cache"),
        generated=values.get("gen_tp"),
        who="",
        quote=Quote(file, number, text[start : start + said.MOST]),
    )


def _stats(text: str, file: str, number: int) -> Line | None:
    found = _STATS.search(text)
    sglang = _SGLANG.search(text) if found is None and "#running-req" in text else None
    if found is None and sglang is None:
        return None
    speaker = _SPEAKER.search(text)
    who = next((part for part in speaker.groups()[::-1] if part), "") if speaker is not None else ""
    speed = _GENERATED.search(text) or _SGLANG_TP.search(text)
    kv = _KV.search(text)
    if found is not None:
        running, waiting = float(found[1]), float(found[2])
        used = _float(kv[1]) if kv is not None else None
    else:
        assert sglang is not None
        running, waiting = float(sglang[1]), float(sglang[3])
        share = _float(sglang[2])
        used = share * 100 if share is not None else None
    start = max(0, (found or sglang).start() - 200) if (found or sglang) else 0  # type: ignore[union-attr]
    return Line(
        running=running,
        waiting=waiting,
        kv_percent=used,
        generated=_float(speed[1]) if speed is not None else None,
        who=who,
        quote=Quote(file, number, text[start : start + said.MOST]),
    )


def _float(text: str) -> float | None:
    return float(text) if text.count(".") <= 1 and text.strip(".") else None


def _first(pattern: re.Pattern[str], lines: Sequence[str], file: str) -> tuple[int, Quote] | None:
    """Settings are printed at the start; of a long log its first and newest lines are searched."""
    ends = (
        range(len(lines))
        if len(lines) <= 2 * READ_LINES
        else (*range(READ_LINES), *range(len(lines) - 2000, len(lines)))
    )
    for number in ends:
        text = lines[number]
        if "seqs" not in text and "engines" not in text and "requests" not in text:
            continue
        found = pattern.search(text[:65536])
        if found is not None:
            value = next(part for part in found.groups() if part)
            at = max(0, found.start() - 24)
            return int(value), Quote(file, number + 1, text[at : at + said.MOST])
    return None
