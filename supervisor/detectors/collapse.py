"""Does a policy collapse? Two of four signals on one step, against the run's own last steps (RL-2 to RL-5).

``rollout_train_prob_diff_mean`` is no signal at any size (RL-5), nor is a small gradient norm or log ratio (RL-4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median

from supervisor.detectors import quoting
from supervisor.model.facts import Facts, Followed
from supervisor.model.findings import Finding, Quote, Severity
from supervisor.model.readings import Point, RunSummary
from supervisor.model.rulebook import Health

KEYS = ("grad_norm", "entropy", "tis_log_ratio", "log_ratio_max")
ADVICE = "recommended: cancel and salvage; nothing is done without approval"
OBSERVED = "ablation observation, not actionable"


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal at one step."""

    key: str
    text: str
    point: Point | None


@dataclass(frozen=True, slots=True)
class Row:
    """The values of one step."""

    step: int
    points: dict[str, Point] = field(default_factory=dict)


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """A collapse that has not recovered, anchored at the step where it began; else one signal that stands, as a note."""
    run = facts.followed
    if facts.held.bucket != "rl" or run is None:
        return
    health = facts.limits.health
    rows = table(run.summary)
    onset, signals = standing(rows, health, _pass_rate(run.summary, health))
    observed = quoting.exempt(facts)
    if onset is not None:
        text = f"collapse since step {onset.step}: {'; '.join(signal.text for signal in signals)}"
        severity = Severity.NOTE if observed else Severity.FAULT
        quotes = _quotes(run, signals)
        if quotes:
            yield Finding("RL-2", severity, f"{text}; {OBSERVED if observed else ADVICE}", quotes, key="RL-2/collapse")
        return
    alone = _alone(rows, health)
    if alone is not None and (quotes := _quotes(run, [alone])):
        said = f"one collapse signal of four at step {rows[-1].step}: {alone.text}"
        yield Finding("RL-2", Severity.NOTE, f"{said}; {OBSERVED}" if observed else said, quotes, key="RL-2/signal")


def table(summary: RunSummary) -> list[Row]:
    """Steps with their values, oldest first."""
    rows: dict[int, Row] = {}
    for key in KEYS:
        for point in summary.series.get(key, ()):
            if point.step is not None:
                rows.setdefault(point.step, Row(point.step)).points[key] = point
    return [rows[step] for step in sorted(rows)]


class Before:
    """The run as it was before a row: what later rows are held against."""

    def __init__(self, rows: Sequence[Row], at: int, health: Health) -> None:
        self.health = health
        self.streak = health.streak_points
        self.grads = self._window(rows[: max(0, at - self.streak + 1)], "grad_norm")
        self.entropy = self._window(rows[:at], "entropy")
        self.ratio = self._window(rows[:at], "tis_log_ratio")
        self.largest = self._window(rows[:at], "log_ratio_max")
        self.at = at

    def _window(self, rows: Sequence[Row], key: str) -> list[Point]:
        """The newest values, or none where they are too few to judge by (RL-13)."""
        least, found = self.health.trend_points, list[Point]()
        for row in reversed(rows):
            point = row.points.get(key)
            if point is not None and math.isfinite(point.value):
                found.append(point)
                if len(found) == least:
                    return found[::-1]
        return []

    def signals(self, rows: Sequence[Row], at: int) -> list[Signal]:
        found = [self._grad(rows, at), self._entropy(rows[at], at), self._ratio(rows[at])]
        return [signal for signal in found if signal is not None]

    def _grad(self, rows: Sequence[Row], at: int) -> Signal | None:
        """High for several steps in a row. Above 1 counts only for a run that was below it before."""
        health, usual = self.health, _middle(self.grads)
        points = [row.points.get("grad_norm") for row in rows[max(0, at - self.streak + 1) : at + 1]]
        if usual is None or len(points) < self.streak or not all(points):
            return None
        above = (
            all(_above(point, health.grad_norm_high) for point in points if point) and usual <= health.grad_norm_high
        )
        bar = max(health.grad_norm_times * usual, health.grad_norm_floor)
        doubled = all(_above(point, bar) for point in points if point)
        point = points[-1]
        if point is None or not (above or doubled):
            return None
        limit = f"> {health.grad_norm_high:g}" if above else f"> {health.grad_norm_times:g}× its usual {usual:.3g}"
        return Signal("grad_norm", f"grad norm {point.value:.3g} ({limit} for {self.streak} steps)", point)

    def _entropy(self, row: Row, at: int) -> Signal | None:
        """Off the line through its last steps and off their median: a steady fall is no signal, nor is its levelling off."""
        point, usual = row.points.get("entropy"), _middle(self.entropy)
        if point is None or not usual:
            return None
        off = self.health.entropy_off * abs(usual)
        expected = _line(self.entropy, row.step) if at == self.at else usual
        if math.isfinite(point.value) and (abs(point.value - expected) <= off or abs(point.value - usual) <= off):
            return None
        return Signal("entropy", f"entropy {point.value:.3g}, {_off(point.value, usual)} its usual {usual:.3g}", point)

    def _ratio(self, row: Row) -> Signal | None:
        point, usual = row.points.get("tis_log_ratio"), _middle(self.ratio)
        if point is None or usual is None:
            return None
        health = self.health
        if not _above(point, max(health.log_ratio_times * usual, health.log_ratio_floor)):
            return None
        largest, before = row.points.get("log_ratio_max"), _middle(self.largest)
        bound = max(health.log_ratio_max_bound, health.log_ratio_times * (before or 0.0))
        if largest is not None and _above(largest, bound):
            return None  # one token far off lifts the mean too
        text = f"mean |log ratio| {point.value:.3g} (> {health.log_ratio_times:g}× its usual {usual:.3g})"
        return Signal("tis_log_ratio", text, point)


def standing(rows: Sequence[Row], health: Health, now: Signal | None = None) -> tuple[Row | None, list[Signal]]:
    """The collapse that the newest rows are still in: its first row and signals. ``now``: a signal of the newest row alone.

    From its onset on, rows are held against the run as it was before: a collapse that lasts does not become the usual.
    """
    frozen: Before | None = None
    onset, signals, calm = 0, list[Signal](), 0
    for at in range(len(rows)):
        before = frozen or Before(rows, at, health)
        found = before.signals(rows, at)
        if now is not None and at == len(rows) - 1:
            found.append(now)
        if frozen is None and len(found) >= 2:
            frozen, onset, signals, calm = before, at, found, 0
        elif frozen is not None:
            if at - onset < health.streak_points:  # a high gradient norm takes some steps to be one
                known = {signal.key for signal in signals}
                signals = [*signals, *(signal for signal in found if signal.key not in known)]
            calm = calm + 1 if len(found) < 2 else 0
            if calm >= health.recovery_points:
                frozen = None
    return (rows[onset], _fresh(signals, rows)) if frozen is not None else (None, [])


def _fresh(signals: list[Signal], rows: Sequence[Row]) -> list[Signal]:
    """The onset's signals; where the text of its line is kept no more, with the newest line that shows the metric."""
    newest: dict[str, Point] = {}
    for row in rows:
        newest.update(row.points)
    return [
        Signal(each.key, each.text, each.point if each.point and each.point.said else newest.get(each.key))
        for each in signals
    ]


def _alone(rows: Sequence[Row], health: Health) -> Signal | None:
    """One signal on the two newest steps: less than a collapse, and worth a look."""
    if len(rows) < 2:
        return None
    before = Before(rows, len(rows) - 2, health)
    first, second = before.signals(rows, len(rows) - 2), before.signals(rows, len(rows) - 1)
    known = {signal.key for signal in first}
    finite = [signal for signal in second if signal.point is not None and math.isfinite(signal.point.value)]
    return next((signal for signal in finite if signal.key in known), None)  # what is no number is ``gradients``'s


def _pass_rate(summary: RunSummary, health: Health) -> Signal | None:
    """Few of the newest trials passed, where more did before; only from a log that tells of each trial."""
    trials = summary.trials
    recent, passed = trials.recent_scored, trials.recent_passed
    if not trials.exact or recent < health.pass_rate_trials or passed >= health.pass_rate_low * recent:
        return None
    earlier, earlier_passed = trials.scored - recent, trials.passed - passed
    if earlier < health.pass_rate_trials or earlier_passed < health.pass_rate_low * earlier:
        return None
    mark = summary.last_trial
    point = Point(None, passed / recent, None, (mark.said,), mark.said.offset, mark.said.line) if mark else None
    return Signal("trials", f"{passed} of the newest {recent} trials passed", point)


def _quotes(run: Followed, signals: Iterable[Signal]) -> tuple[Quote, ...]:
    found: list[Quote] = []
    for signal in signals:
        if signal.key == "trials":
            found += quoting.spoken(run, signal.point.said[0] if signal.point else None)
        else:
            found += quoting.value(run, signal.key, signal.point)
    return quoting.distinct(found)


def _above(point: Point, bar: float) -> bool:
    """NaN is above every bar: what is no number has left all bounds."""
    return not point.value <= bar


def _middle(points: Sequence[Point]) -> float | None:
    return median(point.value for point in points) if points else None


def _line(points: Sequence[Point], step: int) -> float:
    """The least-squares line through the points, at ``step``."""
    xs, ys = [float(point.step or 0) for point in points], [point.value for point in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)  # as floats: the largest of them add up to infinity, and raise nothing
    spread = sum((each - x) ** 2 for each in xs)
    slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread if spread else 0.0
    return y + slope * (step - x)


def _off(now: float, usual: float) -> str:
    if not math.isfinite(now):
        return "against"
    return f"{abs(now - usual) / abs(usual):.0%} {'above' if now > usual else 'below'}"
