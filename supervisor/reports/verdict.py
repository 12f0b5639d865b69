"""A probe's verdict: its fixed printed form, the dated record, the contract's document (PROBE-13, SAY-3).

Names, quotes and outputs are data of others: nothing in them reaches a terminal or a page with effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from supervisor.model.findings import Quote
from supervisor.model.probe import GateScore, Restarts, Ruling, Score, Verdict
from supervisor.reports.table import Column, box
from supervisor.reports.text import moment, plain, span

WORDS = {Score.PASS: "PASS", Score.FAIL: "FAIL", Score.ERROR: "ERROR", Score.NOT_APPLICABLE: "NOT APPLICABLE"}
TONES = {Ruling.KILL: "fault", Ruling.ERROR: "watch", Ruling.NO_KILL: None}
QUOTED = 200
"""Columns of a quote in the printed form; the record and the document have all of it."""
_NO_OUTPUT = "it put out nothing"


# -- the fixed form ----------------------------------------------------------------------------------------------------


def form(verdict: Verdict, number: int | None = None) -> str:
    """Head line, VERDICT, evidence read, restarts, gates, reasoning, next steps: always all of them, in this order."""
    lines = [_head(verdict, number), ""]
    lines.append(f"VERDICT: {verdict.ruling.value:<24} confidence: {plain(verdict.confidence)}")
    if verdict.ruling is Ruling.KILL:
        lines.append(f"Cause: {plain(verdict.cause)}")
    lines += ["", f"Evidence read (in {plain(verdict.evidence)}):", *_evidence(verdict)]
    lines += ["", f"Restarts: {plain(verdict.restarts.words)}"]
    lines += [f"    {_place(quote)}: {_quote(quote)}" for quote in verdict.restarts.quotes[:3]]
    lines.append("")
    for score in verdict.gates:
        lines += _gate(score)
    lines += ["", f"REASONING: {plain(verdict.reasoning)}", "", "NEXT STEPS:"]
    lines += [f"  - {plain(step)}" for step in verdict.next_steps]
    lines += [f"  Flips it: {plain(verdict.flip_signal)}", ""]
    lines.append(f"Judged by: {plain(verdict.judge)}. Nothing was done: a verdict only recommends.")
    lines.append(f"Digest: {verdict.digest}")
    return "\n".join(lines) + "\n"


def _head(verdict: Verdict, number: int | None) -> str:
    which = f"PROBE {number}" if number is not None else "PROBE"
    return (
        f"{which}: {plain(str(verdict.job.ref))} {plain(verdict.name)}, attempt {verdict.attempt}, "
        f"taken {moment(verdict.taken_at)}"
    )


def _evidence(verdict: Verdict) -> list[str]:
    """What was quoted, by gate; a gate without a quote is named as blank, and never passed for that reason."""
    lines = []
    for score in verdict.gates:
        lines += [f"  {score.gate}  {_place(quote)}: {_quote(quote)}" for quote in score.quotes]
        if not score.quotes and score.result is not Score.NOT_APPLICABLE:
            lines.append(f"  {score.gate}  nothing")
    return lines or ["  nothing"]


def _gate(score: GateScore) -> list[str]:
    title = f"Gate {score.gate} ({plain(score.name)}):"
    sure = f", {plain(score.confidence)} confidence" if score.result is Score.FAIL else ""
    hard = " (hard)" if score.hard else ""
    lines = [f"{title:<22} {WORDS[score.result]}{hard}{sure} — {plain(score.reason)}"]
    if score.missing is not None:
        lines.append(f"    command: {plain(score.missing.command)}")
        lines.append(f"    output:  {plain(score.missing.output.strip() or _NO_OUTPUT)}")
    if score.cause:
        lines.append(f"    cause:   {plain(score.cause)}")
    if score.fix:
        lines.append(f"    fix:     {plain(score.fix)}")
    return lines + _duty_cycle(score)


SHARES = {
    "llm": "the model",
    "tools": "tools",
    "agent": "the agent, both",
    "setup": "sandbox set-up",
    "teardown": "teardown",
    "lifecycle": "sandbox, both",
    "verifier": "the verifier",
}
"""What a trial's time goes to, by the names of its measured shares (PROBE-12)."""


def _duty_cycle(score: GateScore) -> list[str]:
    """Where trials told their timings: numbers, and no word without them."""
    facts = score.facts
    rows = [(words, f"{name}_share") for name, words in SHARES.items() if facts.get(f"{name}_share") is not None]
    if not rows:
        return []
    lines = [f"    time of {facts.get('duty_trials')} trials: median, 10th and 90th percentile, most"]
    for words, key in rows:
        told = [facts.get(key + end) for end in ("", "_p10", "_p90", "_most")]
        numbers = "  ".join(f"{100 * value:5.1f} %" for value in told if isinstance(value, (int, float)))
        lines.append(f"      {words:<16} {numbers}")
    lines.append(f"      release races: {facts.get('release_races')}")
    return lines


def _place(quote: Quote) -> str:
    return plain(quote.file) + (f":{quote.line}" if quote.line is not None else "")


def _quote(quote: Quote) -> str:
    text = plain(quote.text.strip())
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 1]}…"


# -- short forms -------------------------------------------------------------------------------------------------------


def brief(verdict: Verdict, number: int | None = None) -> list[str]:
    """Two to six lines: the ruling, what decides it, and its first quotes."""
    which = f"probe {number}: " if number is not None else ""
    cause = f", {plain(verdict.cause)}" if verdict.ruling is Ruling.KILL else ""
    lines = [
        f"{which}{verdict.ruling.value}{cause} ({plain(verdict.confidence)} confidence), {moment(verdict.taken_at)}"
    ]
    telling = _telling(verdict)
    repeats = verdict.restarts.same_failure and (telling is None or not telling.hard)
    if repeats and verdict.ruling is Ruling.KILL:
        lines.append(f"  restarts: {plain(verdict.restarts.words)}")
        return lines + [f"  {_place(quote)}: {_quote(quote)}" for quote in verdict.restarts.quotes[:4]]
    if telling is None:
        return [*lines, f"  {plain(verdict.reasoning)}"]
    lines.append(
        f"  gate {telling.gate} ({plain(telling.name)}) {WORDS[telling.result].lower()}: {plain(telling.reason)}"
    )
    if telling.missing is not None:
        output = plain(telling.missing.output.strip() or _NO_OUTPUT)
        lines.append(f"  {plain(telling.missing.command)}: {output[:QUOTED]}")
    return lines + [f"  {_place(quote)}: {_quote(quote)}" for quote in telling.quotes[: 6 - len(lines)]]


def _telling(verdict: Verdict) -> GateScore | None:
    """The gate that decides: the hard one, the one in error, the one that failed, else the first that passed."""
    wanted = (
        lambda score: verdict.ruling is Ruling.KILL and score.hard,
        lambda score: score.result is Score.ERROR,
        lambda score: score.result is Score.FAIL,
        lambda score: score.result is Score.PASS,
    )
    return next((score for wants in wanted for score in verdict.gates if wants(score)), None)


COLUMNS = (
    Column("Id", right=True, least=2, most=8),
    Column("Job", least=8, most=28),
    Column("Name", least=12, most=40, drop=2),
    Column("Try", right=True, least=3, most=4, drop=3),
    Column("Verdict", least=7, most=8),
    Column("Sure", least=4, most=6, drop=4),
    Column("Gates", least=8, most=30, drop=1),
    Column("Cause", least=6, most=60),
    Column("Taken", right=True, least=6, most=16),
)
"""In a narrow terminal the confidence goes first, then the attempt, the name and the gates."""


def listing(entries: Iterable[Any], now: datetime, wide: int | None = None) -> str:
    """A table of verdicts. ``entries``: rows with ``id``, ``job``, ``name``, ``verdict`` and ``stored_at``."""
    rows, tones = [], []
    for entry in entries:
        verdict: Verdict = entry.verdict
        telling = _telling(verdict)
        cause = verdict.cause or (telling.reason if telling is not None and verdict.ruling is Ruling.ERROR else "—")
        rows.append(
            (
                str(entry.id),
                str(verdict.job.ref),
                verdict.name,
                str(verdict.attempt),
                verdict.ruling.value,
                verdict.confidence,
                _letters(verdict.gates),
                cause,
                f"{span((now - verdict.taken_at).total_seconds())} ago",
            )
        )
        tones.append(TONES[verdict.ruling])
    return box(COLUMNS, rows, wide, tones if any(tones) and wide is not None else ())


def _letters(scores: Sequence[GateScore]) -> str:
    words = {Score.PASS: "pass", Score.FAIL: "fail", Score.ERROR: "error", Score.NOT_APPLICABLE: "n/a"}
    return " ".join(f"{score.gate} {words[score.result]}" for score in scores)


# -- the dated record --------------------------------------------------------------------------------------------------


def markdown(verdict: Verdict, number: int | None = None) -> str:
    """The same for the dated log. Text of others stands in indented blocks, which nothing in it can end."""
    which = f" (probe {number})" if number is not None else ""
    lines = [f"# {_inline(str(verdict.job.ref))} {_inline(verdict.name)}: {verdict.ruling.value}{which}", ""]
    facts = [
        ("verdict", f"**{verdict.ruling.value}**, {plain(verdict.confidence)} confidence"),
        ("cause", _inline(verdict.cause) if verdict.cause else None),
        ("attempt", str(verdict.attempt)),
        ("taken", moment(verdict.taken_at)),
        ("judged by", _inline(verdict.judge)),
        ("restarts", _inline(verdict.restarts.words)),
        ("evidence", f"`{_inline(verdict.evidence)}`"),
        ("digest", f"`{verdict.digest}`"),
    ]
    lines += [f"- {name}: {value}" for name, value in facts if value]
    lines += ["", "## Reasoning", "", _inline(verdict.reasoning), "", "## Next steps", ""]
    lines += [f"- {_inline(step)}" for step in verdict.next_steps]
    lines += [f"- flips it: {_inline(verdict.flip_signal)}", "", "## Gates", ""]
    for score in verdict.gates:
        lines += _record_of(score)
    if verdict.restarts.quotes:
        lines += ["### Earlier ends", "", *_block(verdict.restarts.quotes), ""]
    lines.append("Nothing was done: a verdict only recommends.")
    return "\n".join(lines) + "\n"


def _record_of(score: GateScore) -> list[str]:
    mark = "⚠ " if score.result is Score.ERROR else ""
    hard = ", hard" if score.hard else ""
    lines = [
        f"### {mark}{score.gate} {_inline(score.name)}: {WORDS[score.result].lower()}{hard}",
        "",
        _inline(score.reason),
        "",
    ]
    if score.cause:
        lines += [f"Cause: {_inline(score.cause)}. {_inline(score.fix)}", ""]
    if score.missing is not None:
        lines += [f"    $ {plain(score.missing.command)}"]
        lines += [f"    {plain(line)}" for line in (score.missing.output.splitlines() or [_NO_OUTPUT])[:20]]
        lines.append("")
    if score.quotes:
        lines += [*_block(score.quotes), ""]
    return lines


def _block(quotes: Iterable[Quote]) -> list[str]:
    lines = []
    for quote in quotes:
        lines += [f"    {_place(quote)}", f"        {plain(quote.text)}"]
    return lines


_EFFECTS = str.maketrans({"`": "'", "<": "‹", ">": "›", "|": "¦", "[": "(", "]": ")", "*": "·", "#": "♯"})


def _inline(text: str) -> str:
    """Words of others inside a sentence: nothing in them is Markdown or HTML."""
    return plain(text).translate(_EFFECTS)


# -- the document ------------------------------------------------------------------------------------------------------


def document(verdict: Verdict, number: int | None = None) -> dict[str, Any]:
    """``verdict ID --json`` as the contract has it."""
    return {
        "schema_version": 1,
        "id": number,
        "job": str(verdict.job.ref),
        "name": verdict.name,
        "attempt": verdict.attempt,
        "taken_at": f"{verdict.taken_at:%Y-%m-%dT%H:%M:%SZ}",
        "ruling": verdict.ruling.value,
        "confidence": verdict.confidence,
        "digest": verdict.digest,
        "cause": verdict.cause or None,
        "gates": [_gate_document(score) for score in verdict.gates],
        "restarts": _restarts_document(verdict.restarts),
        "reasoning": verdict.reasoning,
        "next_steps": list(verdict.next_steps),
        "flip_signal": verdict.flip_signal,
        "evidence": verdict.evidence,
        "judge": verdict.judge,
    }


def _gate_document(score: GateScore) -> dict[str, Any]:
    return {
        "gate": score.gate,
        "name": score.name,
        "result": score.result.value,
        "reason": score.reason,
        "quotes": [_quote_document(quote) for quote in score.quotes],
        "missing": None
        if score.missing is None
        else {"command": score.missing.command, "output": score.missing.output},
        "hard": score.hard,
        "cause": score.cause or None,
        "fix": score.fix or None,
        "confidence": score.confidence,
        "facts": dict(score.facts),
    }


def _restarts_document(restarts: Restarts) -> dict[str, Any]:
    return {
        "burned": restarts.burned,
        "allowed": restarts.allowed,
        "same_failure": restarts.same_failure,
        "quotes": [_quote_document(quote) for quote in restarts.quotes],
    }


def _quote_document(quote: Quote) -> dict[str, Any]:
    return {"file": quote.file, "line": quote.line, "text": quote.text}
