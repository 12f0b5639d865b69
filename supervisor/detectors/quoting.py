"""Quotes from a followed log. Text of an earlier file is not kept, so what has no text is no quote (PROBE-4)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from supervisor.model.facts import Facts, Followed, PastEnd
from supervisor.model.findings import Quote
from supervisor.model.readings import Mark, Point, RunSummary, Spoken


def spoken(run: Followed, said: Spoken | None) -> tuple[Quote, ...]:
    """One quote, or none where its text is not kept."""
    return (Quote(run.file, said.line, said.text),) if said is not None and said.text else ()


def place(run: Followed, mark: Mark | None) -> tuple[Quote, ...]:
    return spoken(run, mark.said if mark is not None else None)


def scheduler(facts: Facts) -> tuple[Quote, ...]:
    """The scheduler's own words of it, as last read."""
    seen = facts.observation
    words = " ".join(filter(None, (seen.scheduler_state, seen.reason if seen.reason != "None" else None)))
    return (Quote(facts.evidence_source, None, words),)


def ended(end: PastEnd) -> Quote:
    """The scheduler's own words of how an attempt ended."""
    how = f" signal {end.signal}" if end.signal else f" exit {end.exit_code}" if end.exit_code is not None else ""
    return Quote("accounting", None, f"{end.words}{how}")


def value(run: Followed, key: str, *points: Point | None) -> tuple[Quote, ...]:
    """The part of a line that shows the metric, of the first point whose text is still kept."""
    for point in points:
        if point is not None and (found := spoken(run, run.excerpt(point.said, key))):
            return found
    return ()


def counted(facts: Facts, what: str) -> tuple[Quote, ...]:
    """The line of a trial's (or the job's) result file that shows it, where trials were read from where they lie."""
    counts = facts.trials.counts if facts.trials is not None else None
    found = counts.quotes.get(what) if counts is not None else None
    return (found,) if found is not None else ()


def distinct(quotes: Iterable[Quote]) -> tuple[Quote, ...]:
    return tuple(dict.fromkeys(quotes))


def exempt(facts: Facts) -> bool:
    """Whether its name makes findings observations (RL-3, EVAL-4)."""
    name = facts.observation.name.lower()
    return any(part.lower().rstrip("*") in name for part in facts.limits.exempt if part.strip("*"))


def finite(points: Iterable[Point]) -> list[float]:
    return [point.value for point in points if math.isfinite(point.value)]


def recent(summary: RunSummary, mark: Mark | None, points: int) -> bool:
    """Whether it was said within the newest ``points`` steps that bear metrics."""
    if mark is None:
        return False
    longest = max(summary.series.values(), key=len, default=())
    if len(longest) < points:
        return True
    return mark.said.offset >= longest[-points].offset
