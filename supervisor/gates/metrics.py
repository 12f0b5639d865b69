"""Metrics of a run, with the part of a line that shows each: a quote that does not show the value proves nothing (PROBE-2)."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Any

from supervisor.gates import said
from supervisor.model.findings import Quote
from supervisor.model.probe import Case
from supervisor.model.readings import Point, RunSummary

BEFORE = 24
"""Characters kept before a metric's name in a long line."""


@cache
def _table() -> list[dict[str, Any]]:
    return list(tomllib.loads(resources.files("supervisor.data").joinpath("metrics.toml").read_text("utf-8"))["metric"])


@cache
def _names(key: str) -> tuple[re.Pattern[str], ...]:
    """The names under which ``data/metrics.toml`` knows a key, most telling first; each as a whole word."""
    for metric in _table():
        if metric["key"] == key:
            names = [re.escape(name) for name in metric.get("names", ())] + list(metric.get("patterns", ()))
            return tuple(re.compile(rf"(?<![\w/])(?:{name})(?![\w/])", re.I) for name in names)
    return ()


def shows(text: str, key: str) -> int:
    """Where a text names a metric, by any of its names; -1 where it does not."""
    return next((found.start() for name in _names(key) if (found := name.search(text)) is not None), -1)


def quote(case: Case, file: str, key: str, *points: Point | None) -> tuple[Quote, ...]:
    """One quote, of the first point whose line stands in the file and names the metric; none where there is no such point."""
    lines = case.lines(file)
    for point in points:
        for line, text in _places(point, lines):
            at = shows(text, key)
            kept = text[max(0, at - BEFORE) :].split("\n", 1)[0][: said.MOST]
            if at >= 0 and 1 <= line <= len(lines) and kept in lines[line - 1]:
                return (Quote(file, line, kept),)
    return ()


def _places(point: Point | None, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Where a point was read: the parts that were kept of it; of an older one, the line that it began on."""
    for spoken in point.said if point is not None else ():
        if spoken.line is not None:
            yield spoken.line, spoken.text
    if point is not None and not point.said and point.line is not None and 1 <= point.line <= len(lines):
        yield point.line, lines[point.line - 1]


def newest(run: RunSummary, key: str, count: int) -> tuple[Point, ...]:
    """The last points of a metric, oldest first."""
    return run.series.get(key, ())[-count:]


def finite(points: Iterable[Point]) -> list[float]:
    return [point.value for point in points if math.isfinite(point.value)]


def best(case: Case, keys: Sequence[str]) -> tuple[str, RunSummary] | None:
    """The log that shows most of these metrics, and its run: of several logs of one job one process speaks."""
    runs = [(file, run) for file, run in case.runs.items() if any(run.series.get(key) for key in keys)]
    if not runs:
        return None
    return max(runs, key=lambda pair: max(len(pair[1].series.get(key, ())) for key in keys))


def fact(value: float) -> float | str:
    """A number as facts keep it: what is none, in words."""
    return value if math.isfinite(value) else str(value)
