"""A trend in words, with a sparkline (RL-1). Pure; light enough for a cold start."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

BARS = "▁▂▃▄▅▆▇█"
LEAST = 10
"""Points from which a direction is named (RL-13); below it the line is drawn and nothing is said of it."""
SHOWN = 12
"""Bars drawn; where there are more points, each bar is the mean of some."""


def sparkline(points: Sequence[float | None]) -> str:
    """All points, oldest first; ``×`` for what is no finite number."""
    drawn = _fewer(points)
    known = [point for point in drawn if point is not None]
    if not known:
        return "×" * len(drawn)
    low, high = min(known), max(known)
    span = high - low
    if not span:
        return "".join("×" if point is None else BARS[3] for point in drawn)
    return "".join("×" if point is None else BARS[min(7, int((point - low) / span * 8))] for point in drawn)


def _fewer(points: Sequence[float | None]) -> list[float | None]:
    """At most SHOWN values: means of neighbours. One that is no number makes its bar none."""
    if len(points) <= SHOWN:
        return list(points)
    edges = [len(points) * at // SHOWN for at in range(SHOWN + 1)]
    drawn: list[float | None] = []
    for start, stop in pairwise(edges):
        known = [point for point in points[start:stop] if point is not None]
        drawn.append(sum(known) / len(known) if len(known) == stop - start else None)
    return drawn


def direction(points: Sequence[float | None], good: str, steady: float) -> str:
    """``rising``, ``falling`` or ``steady``; with what it means where the kind of work has a good direction.

    Steady is what moves by less than its own scatter, or than ``steady`` of its level: flat is not dying. On fewer than
    ten points nothing is called.
    """
    known = [point for point in points if point is not None]
    if not known:
        return ""
    if points[-1] is None:
        return "no number"
    if len(known) < LEAST:
        return f"{len(known)} point{'s' if len(known) > 1 else ''} so far"
    n = len(known)
    middle, level = (n - 1) / 2, sum(known) / n
    slope = sum((at - middle) * (value - level) for at, value in enumerate(known)) / sum(
        (at - middle) ** 2 for at in range(n)
    )
    moved = slope * (n - 1)
    scatter = (sum((value - level - slope * (at - middle)) ** 2 for at, value in enumerate(known)) / n) ** 0.5
    size = sum(abs(value) for value in known) / n
    if abs(moved) <= max(steady * size, scatter):
        return "steady"
    up = moved > 0
    word = "rising" if up else "falling"
    return f"{word}, as it should" if good == ("up" if up else "down") else word
