"""Metrics of a run, with the part of a line that shows each: a quote that does not show the value proves nothing (PROBE-2)."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources

from supervisor.gates import said
from supervisor.model.findings import Quote
from supervisor.model.probe import Case
from supervisor.model.readings import Point, RunSummary, Spoken

BEFORE = 24
"""Characters kept before a metric's name in a long line."""


@cache
def _names(key: str) -> tuple[re.Pattern[str], ...]:
    """The names under which ``data/metrics.toml`` knows a key, most telling first; each as a whole word."""
    text = resources.files("supervisor.data").joinpath("metrics.toml").read_text("utf-8")
    for metric in tomllib.loads(text)["metric"]:
        if metric["key"] == key:
            names = [re.escape(name) for name in metric.get("names", ())] + list(metric.get("patterns", ()))
            return tuple(re.compile(rf"(?<![\w/])(?:{name})(?![\w/])", re.I) for name in names)
    return ()


def shows(text: str, key: str) -> int:
    """Where a text names a metric, by any of its names; -1 where it does not."""
    return next((found.start() for name in _names(key) if (found := name.search(text)) is not None), -1)


def quote(case: Case, file: str, key: str, *points: Point | None) -> tuple[Quote, ...]:
    """One quote, of the first point whose text is kept and stands in the file; none where there is no such point."""
    for point in points:
        for spoken in _said(point):
            at = shows(spoken.text, key)
            if at >= 0 and (found := _cut(case, file, spoken, spoken.text[max(0, at - BEFORE) :])):
                return found
    return ()


def _said(point: Point | None) -> Iterable[Spoken]:
    return point.said if point is not None else ()


def _cut(case: Case, file: str, spoken: Spoken, around: str) -> tuple[Quote, ...]:
    lines = case.lines(file)
    if spoken.line is None or not 1 <= spoken.line <= len(lines):
        return ()
    line, text = lines[spoken.line - 1], around.split("\n", 1)[0][: said.MOST]
    return (Quote(file, spoken.line, text),) if text.strip() and text in line else ()


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
