"""Are gradients and losses numbers, and of a size? A skipped optimiser step is silent, and steps go on (RL-14, SFT-4)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from statistics import median

from supervisor.detectors import quoting
from supervisor.model.facts import Facts, Followed
from supervisor.model.findings import Finding, Severity
from supervisor.model.readings import Point

LOSSES = {"rl": ("policy_loss", "final_loss", "loss"), "sft": ("loss",), "other": ("loss",)}
WORDS = {"policy_loss": "policy loss", "final_loss": "final loss", "grad_norm": "grad norm", "loss": "loss"}


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """Also of exempt runs: an ablation that is not finite is a failure like any other (RL-3)."""
    run, bucket = facts.followed, facts.held.bucket
    if run is None or bucket not in LOSSES:
        return
    rule = "RL-14" if bucket == "rl" else "SFT-4"
    hidden = run.summary.hidden_nan > 0
    for key in (*LOSSES[bucket], "grad_norm"):
        found = _not_finite(facts, run, rule, key, hidden and key == "grad_norm")
        if found is not None:
            yield found
            break
    yield from _skipped(facts, run, rule)
    if bucket == "sft":
        yield from _explosion(facts, run)


def _not_finite(facts: Facts, run: Followed, rule: str, key: str, hidden: bool) -> Finding | None:
    """A fault while the newest values are none; a note for a while after they are again."""
    health = facts.limits.health
    points = run.summary.series.get(key, ())
    if not points:
        return None
    bad = [point for point in points[-health.trend_points :] if not math.isfinite(point.value)]
    if not bad:
        return None
    row = _tail(points)
    word, name = _word(bad[-1].value), WORDS[key]
    quotes = quoting.value(run, key, *([row[0]] if row else []), *reversed(bad))
    if not quotes:
        return None
    if not row:
        text = f"{name} was {word} at {_step(bad[-1])}, and is a number again"
        return Finding(rule, Severity.NOTE, text, quotes, key=f"{rule}/finite")
    streak = len(row) >= health.streak_points or key != "grad_norm"
    if key == "grad_norm" and _scaling(run, points, row, facts):
        text = f"{name} is {word} at {_step(row[-1])}, as it is now and then while a half-precision loss scale is found"
        return Finding(rule, Severity.NOTE, text, quotes, key=f"{rule}/finite")
    more = "; the loss is printed as 0.0 meanwhile" if hidden else ""
    silent = "; the optimiser takes no step while it is" if key == "grad_norm" else ""
    text = f"{name} is {word} since {_step(row[0])}{silent}{more}"
    return Finding(rule, Severity.FAULT if streak else Severity.WATCH, text, quotes, key=f"{rule}/finite")


def _scaling(run: Followed, points: tuple[Point, ...], row: list[Point], facts: Facts) -> bool:
    """A loss scale that is too large makes gradients infinite: in the first steps often, later once at a time. Losses stay
    numbers meanwhile."""
    if run.summary.hidden_nan:
        return False
    losses = [point for key in LOSSES[facts.held.bucket] for point in run.summary.series.get(key, ())[-len(row) :]]
    if not losses or not all(math.isfinite(point.value) and point.value for point in losses):
        return False
    early = (
        len(points) <= facts.limits.health.trend_points and (points[0].step or 0) <= facts.limits.health.trend_points
    )
    return early or (len(row) == 1 and math.isinf(row[0].value))


def _skipped(facts: Facts, run: Followed, rule: str) -> Iterable[Finding]:
    """Counted from the guard's own line; the number is told in rough steps, so that each new one is no new alert."""
    summary = run.summary
    quotes = quoting.place(run, summary.last_skip)
    if not summary.skipped_steps or not quotes:
        return
    lately = quoting.recent(summary, summary.last_skip, facts.limits.health.trend_points)
    rough = next((bar for bar in (1000, 300, 100, 30, 10, 3) if summary.skipped_steps >= bar), 1)
    times = "once" if rough == 1 and summary.skipped_steps == 1 else f"{rough} times or more" if rough > 1 else "twice"
    text = f"the optimiser skipped its step {times}: the gradient was not finite, and steps went on counting"
    yield Finding(rule, Severity.WATCH if lately else Severity.NOTE, text, quotes, key=f"{rule}/skipped")


def _explosion(facts: Facts, run: Followed) -> Iterable[Finding]:
    """Held against the steps before it began, so that one that lasts does not become the usual."""
    health, points = facts.limits.health, run.summary.series.get("grad_norm", ())
    onset, usual, high, calm = 0, 0.0, 0, 0
    for at, point in enumerate(points):
        if calm >= health.recovery_points or high < health.streak_points:
            before = quoting.finite(points[: at - high])[-health.trend_points :]
            usual = median(before) if len(before) >= health.trend_points else math.inf
        if math.isfinite(point.value) and point.value <= max(
            health.grad_explosion_floor, health.grad_explosion_times * usual
        ):
            calm += 1
            high = high if high >= health.streak_points and calm < health.recovery_points else 0
            continue
        onset = at if high == 0 else onset
        high, calm = high + 1, 0
    if high >= health.streak_points and math.isfinite(usual):
        first = points[onset]
        text = f"grad norm explodes at {_step(first)}: {first.value:.3g} where {usual:.3g} is usual"
        quotes = quoting.value(run, "grad_norm", first, *reversed(points[onset:]))
        if quotes and math.isfinite(first.value):
            yield Finding("SFT-4", Severity.WATCH, text, quotes, key="SFT-4/explosion")


def _tail(points: tuple[Point, ...]) -> list[Point]:
    """The values at the end that are no finite numbers, oldest first."""
    row: list[Point] = []
    for point in reversed(points):
        if math.isfinite(point.value):
            break
        row.append(point)
    return row[::-1]


def _step(point: Point) -> str:
    return f"step {point.step}" if point.step is not None else "an unnamed step"


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinite"
