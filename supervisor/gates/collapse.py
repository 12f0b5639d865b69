"""Does a policy collapse, and has it recovered since? Two signals on the same steps, against the run before them (RL-2, RL-13).

From its onset on, later steps are held against the run before it: a collapse that lasts does not become the usual.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from supervisor.model.readings import Point, RunSummary
from supervisor.model.rulebook import Health

KEYS = ("grad_norm", "entropy", "tis_log_ratio", "log_ratio_max", "reward")
LOST = 0.1
"""Share of its earlier reward at or below which a run has lost what it had learnt."""

Row = Mapping[str, Point]
"""The values of one step."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One signal: a metric, what it does, and the step that shows it."""

    key: str
    words: str
    point: Point


@dataclass(frozen=True, slots=True)
class Course:
    """Where the run stands: in a collapse that it has not recovered from, or beside one."""

    standing: bool
    signs: tuple[Sign, ...]
    """Of the newest step with two where it stands in one; else those of the newest step, one at most."""


def course(run: RunSummary, health: Health) -> Course:
    rows = _rows(run)
    frozen: int | None = None
    signs: list[Sign] = []
    newest: list[Sign] = []
    calm = 0
    for at in range(len(rows)):
        before = frozen if frozen is not None else at - health.streak_points + 1
        newest = _signs(rows, at, before, health)
        if len(newest) >= 2:
            frozen = before if frozen is None else frozen
            signs, calm = newest, 0
        elif frozen is not None:
            calm += 1
            if calm >= health.recovery_points:
                frozen = None
    return Course(True, tuple(signs)) if frozen is not None else Course(False, tuple(newest[:1]))


def _rows(run: RunSummary) -> list[Row]:
    found: dict[int, dict[str, Point]] = {}
    for key in KEYS:
        for point in run.series.get(key, ()):
            if point.step is not None:
                found.setdefault(point.step, {})[key] = point
    return [found[step] for step in sorted(found)]


def _signs(rows: Sequence[Row], at: int, before: int, health: Health) -> list[Sign]:
    """Of the steps up to ``at``, held against those before ``before``. What is no number is told elsewhere."""
    tests = (_grad_norm, _entropy, _log_ratio, _reward)
    return [sign for test in tests if (sign := test(rows, at, before, health)) is not None]


def _now(rows: Sequence[Row], at: int, key: str, count: int) -> list[Point]:
    """The values of the last steps in a row; none where one lacks it or is no number."""
    points = [row.get(key) for row in rows[max(0, at - count + 1) : at + 1]]
    known = [point for point in points if point is not None and math.isfinite(point.value)]
    return known if len(known) == count else []


def _before(rows: Sequence[Row], before: int, key: str, count: int) -> list[Point]:
    """The newest values of earlier steps, oldest first; none where they are too few to judge by (RL-13)."""
    found: list[Point] = []
    for row in reversed(rows[: max(0, before)]):
        point = row.get(key)
        if point is not None and math.isfinite(point.value):
            found.append(point)
            if len(found) == count:
                return found[::-1]
    return []


def _grad_norm(rows: Sequence[Row], at: int, before: int, health: Health) -> Sign | None:
    """Above 1 counts only for a run that was below it; a multiple only above the regime of small norms (RL-4)."""
    now = _now(rows, at, "grad_norm", health.streak_points)
    earlier = _before(rows, before, "grad_norm", health.trend_points)
    if not now or not earlier:
        return None
    usual = median(point.value for point in earlier)
    above = usual <= health.grad_norm_high and all(point.value > health.grad_norm_high for point in now)
    bar = max(health.grad_norm_times * usual, health.grad_norm_floor)
    if not above and any(point.value <= bar for point in now):
        return None
    return Sign("grad_norm", f"grad norm {now[-1].value:.3g} for {len(now)} steps, usually {usual:.3g}", now[-1])


def _entropy(rows: Sequence[Row], at: int, before: int, health: Health) -> Sign | None:
    """Off its median and off the line through its last steps: a steady fall is no signal, nor is its levelling off."""
    now = _now(rows, at, "entropy", health.streak_points)
    earlier = _before(rows, before, "entropy", health.trend_points)
    usual = median(point.value for point in earlier) if earlier else 0.0
    if not now or not usual:
        return None
    off = health.entropy_off * abs(usual)
    near = at - before < health.trend_points  # far beyond its steps a line says nothing
    for point in now:
        expected = _line(earlier, point.step or 0) if near else usual
        if abs(point.value - usual) <= off or abs(point.value - expected) <= off:
            return None
    return Sign("entropy", f"entropy {now[-1].value:.3g}, usually {usual:.3g}", now[-1])


def _log_ratio(rows: Sequence[Row], at: int, before: int, health: Health) -> Sign | None:
    """While its largest stays bounded: one token far off lifts the mean too."""
    now = _now(rows, at, "tis_log_ratio", health.streak_points)
    earlier = _before(rows, before, "tis_log_ratio", health.trend_points)
    if not now or not earlier:
        return None
    usual = median(point.value for point in earlier)
    largest = [row["log_ratio_max"].value for row in rows[at - len(now) + 1 : at + 1] if "log_ratio_max" in row]
    ever = _before(rows, before, "log_ratio_max", health.trend_points)
    bound = max(
        health.log_ratio_max_bound, health.log_ratio_times * median(point.value for point in ever) if ever else 0.0
    )
    if any(not value <= bound for value in largest):
        return None
    bar = max(health.log_ratio_times * usual, health.log_ratio_floor)
    if any(point.value <= bar for point in now):
        return None
    return Sign("tis_log_ratio", f"mean |log ratio| {now[-1].value:.3g}, usually {usual:.3g}", now[-1])


def _reward(rows: Sequence[Row], at: int, before: int, health: Health) -> Sign | None:
    """One that was there and is gone; a low or flat one is no signal."""
    now = _now(rows, at, "reward", health.recovery_points)
    earlier = _before(rows, min(before, at - health.recovery_points + 1), "reward", health.trend_points)
    if not now or not earlier:
        return None
    usual = median(point.value for point in earlier)
    if usual <= 0 or any(point.value > LOST * usual for point in now):
        return None
    return Sign("reward", f"reward {now[-1].value:.3g} for {len(now)} steps, usually {usual:.3g}", now[-1])


def _line(points: Sequence[Point], step: int) -> float:
    """The least-squares line through the points, at ``step``."""
    xs, ys = [float(point.step or 0) for point in points], [point.value for point in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)  # as floats: the largest of them add up to infinity, and raise nothing
    spread = sum((each - x) ** 2 for each in xs)
    slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread if spread else 0.0
    return y + slope * (step - x)
