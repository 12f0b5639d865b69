"""What is heard beside steps and metrics: engines, timers, single trials, and things said once."""

from __future__ import annotations

from dataclasses import dataclass, field

from supervisor.dialects.numbers import wire
from supervisor.dialects.steps import Json, mark_of
from supervisor.model.readings import Reading, ReadingKind

KEPT_ENGINES = 64
KEPT_TIMERS = 64
KEPT_TRIALS = 2000
"""Trials whose last event is remembered, so that a retry replaces its failure."""
KEPT_EXCEPTIONS = 64
KEPT_MEANS = 48
KEPT_FAILURES = 16
KEPT_CHECKPOINTS = 8
RECENT_TRIALS = 100
"""Newest scored trials of which a pass rate is told (RL-2)."""


@dataclass(slots=True)
class Engines:
    """Inference engines (LIVE-4). All fields are plain JSON."""

    latest: dict[str, object] = field(default_factory=dict)
    engines: dict[str, Json] = field(default_factory=dict)
    summary: dict[str, object] = field(default_factory=dict)
    aggregated: bool = False
    answered: int = 0
    refused_auth: int = 0
    failed: int = 0
    last_answered: list[object] | None = None
    last_refused: list[object] | None = None
    last_failed: list[object] | None = None
    answered_seen: float | None = None
    """When the newest answer was read, seconds since 1970."""

    def take(self, reading: Reading) -> None:
        values: dict[str, object] = {name: wire(value) for name, value in list(reading.metrics.items())[:40]}
        if reading.label == "summary":
            self.summary = {**values, "step": reading.step}
            return
        self.latest = values
        if reading.aggregated:
            self.aggregated = True
            self.engines.clear()
        elif not self.aggregated:
            self.engines.pop(reading.label, None)
            self.engines[reading.label] = values
            while len(self.engines) > KEPT_ENGINES:
                self.engines.pop(next(iter(self.engines)))


@dataclass(slots=True)
class Timers:
    """Named spans of the trainer: when each began, how long it last took. All fields are plain JSON."""

    spans: dict[str, Json] = field(default_factory=dict)

    def take(self, reading: Reading, seen: float | None) -> None:
        name = reading.label
        held = self.spans.pop(name, None) or {"took": None, "ended": 0, "open": None}
        if reading.detail == "started":
            entry: Json = {**held, "open": mark_of(reading, seen)}
        else:
            ended = held["ended"]
            took = wire(reading.elapsed_s) if reading.elapsed_s is not None else None
            entry = {"took": took, "ended": ended + 1 if isinstance(ended, int) else 1, "open": None}
        self.spans[name] = entry
        while len(self.spans) > KEPT_TIMERS:
            self.spans.pop(next(iter(self.spans)))


@dataclass(slots=True)
class TrialCounts:
    """Trials as the log tells them; latest event of each counts. All fields are plain JSON."""

    events: dict[str, str] = field(default_factory=dict)
    """By trial: its last event, and its exception or outcome behind a space."""
    done: int = 0
    passed: int = 0
    scored: int = 0
    exceptions: dict[str, int] = field(default_factory=dict)
    said: dict[str, list[object]] = field(default_factory=dict)
    """By exception: offset, line and text of the newest line that named it."""
    mean: object = None
    means: list[list[object]] = field(default_factory=list)
    """The overall mean as it went: [trials done, mean, clock, offset, line, text], oldest first."""
    shown: int | None = None
    planned: int | None = None
    exact: bool = True

    def take(self, reading: Reading) -> bool:
        """True if trials moved on."""
        if reading.detail == "progress":
            return self._shown(reading)
        if reading.aggregated:
            self.exact = False
        event, _, exception = reading.detail.partition(" ")
        if not reading.label:
            if event in ("completed", "failed"):
                self._count(event, exception, reading, +1)
                return True
            return False
        before = self.events.pop(reading.label, "")
        outcome = exception
        reward = reading.metrics.get("reward")
        if reward is not None:
            outcome = f"{exception}={'1' if reward > 0 else '0'}"
        now = f"{event} {outcome}".strip()
        if before.startswith(("completed", "failed")):
            if event not in ("completed", "failed") and event not in {"started", "environment"}:
                now = before
            elif before != now:
                self._undo(before)
        self.events[reading.label] = now
        while len(self.events) > KEPT_TRIALS:
            self.events.pop(next(iter(self.events)))
        if event in ("completed", "failed") and before != now:
            self._count(event, exception, reading, +1)
        return before != now

    def _shown(self, reading: Reading) -> bool:
        moved = reading.step != self.shown
        if "Mean" in reading.metrics:
            self.mean = wire(reading.metrics["Mean"])
            spoken = reading.said[0]
            if moved:
                self.means.append(
                    [reading.step, self.mean, reading.clock_s, spoken.offset, spoken.line, spoken.text[:200]]
                )
                del self.means[:-KEPT_MEANS]
        self.shown, self.planned = reading.step, reading.total
        return moved

    def _count(self, event: str, exception: str, reading: Reading, by: int) -> None:
        self.done += by
        reward = reading.metrics.get("reward")
        if reward is not None:
            self.scored += by
            self.passed += by if reward > 0 else 0
        if exception and (exception in self.exceptions or len(self.exceptions) < KEPT_EXCEPTIONS):
            self.exceptions[exception] = self.exceptions.get(exception, 0) + by
            spoken = reading.said[0]
            self.said[exception] = [spoken.offset, spoken.line, spoken.text[:400]]

    def _undo(self, before: str) -> None:
        """A retry or a better-informed line replaces what was counted for this trial."""
        self.done -= 1
        _, _, outcome = before.partition(" ")
        exception, scored, passed = outcome.partition("=")
        if scored:
            self.scored -= 1
            self.passed -= 1 if passed == "1" else 0
        if self.exceptions.get(exception):
            self.exceptions[exception] -= 1

    def recent(self) -> tuple[int, int]:
        """(passed, scored) of the newest named trials that a line gave a score."""
        outcomes = [event[-1] for event in reversed(self.events.values()) if event[-2:] in ("=0", "=1")][:RECENT_TRIALS]
        return outcomes.count("1"), len(outcomes)

    def running(self) -> int:
        """Begun and not ended, as far as lines told; a display redrawn in place does not tell of ends."""
        begun = sum(not event.startswith(("completed", "failed")) for event in self.events.values())
        return begun if self.shown is None or self.planned is None else min(begun, max(0, self.planned - self.shown))


@dataclass(slots=True)
class Announced:
    """Said once, or rarely. All fields are plain JSON."""

    finished: Json | None = None
    finish_word: str = ""
    checkpoint_step: int | None = None
    checkpoint: Json | None = None
    checkpoints: list[int] = field(default_factory=list)
    """Steps of the newest announced ones, oldest first; begun anew where the run went back behind them."""
    skips: int = 0
    skip: Json | None = None
    hidden_nan: int = 0
    all_failed: int = 0
    all_failed_at: Json | None = None
    failures: list[Json] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    """Where its trials go, by what that folder holds (``trials``, ``jobs``), as printed last."""
    infra: dict[str, str] = field(default_factory=dict)
    """The newest word of the tunnel and of the engine's address."""

    def take(self, reading: Reading, seen: float | None) -> None:
        assert reading.kind is ReadingKind.BANNER
        label, mark = reading.label, mark_of(reading, seen)
        if label == "finished":
            self.finished, self.finish_word = mark, reading.detail
        elif label == "checkpoint":
            self.checkpoint = mark
            if reading.step is not None:
                self.checkpoint_step = max(reading.step, self.checkpoint_step or 0)
                self.checkpoints = [step for step in self.checkpoints if step < reading.step][-KEPT_CHECKPOINTS + 1 :]
                self.checkpoints.append(reading.step)
        elif label == "nonfinite_grad":
            if (not reading.repeated and reading.rank in (None, 0)) or self.skip is None:
                self.skips += 1
            self.skip = mark
        elif label in ("all_failed", "all_stale"):
            self.all_failed += 1
            self.all_failed_at = mark
        elif label == "rank_failed":
            self.failures.append(mark)
            del self.failures[KEPT_FAILURES:]
        elif reading.dialect == "infra":
            self.infra[label] = reading.detail
        elif label in ("trials", "jobs") and reading.dialect == "places":
            self.places[label] = reading.detail

    def moved_on(self) -> None:
        """Training goes on after an end was announced: that end is over."""
        self.finished, self.finish_word = None, ""
