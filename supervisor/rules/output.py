"""What a look at a job's log says of its liveness (LIVE-1 to LIVE-3). Pure; times in UTC."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from supervisor.model.facts import LogFacts
from supervisor.model.logs import LogStat, LogState

GAPS_KEPT = 64
"""Newest gaps that a cadence is drawn from; older ones belong to another stage of the run."""


def looked_at(known: LogFacts, stat: LogStat, started_at: datetime | None, now: datetime, points: int) -> LogFacts:
    """``known`` after one more look at the log's size and time.

    An unread log changes nothing but its own state: it is not silent (FIND-4). Output from before this attempt's start, in a
    log that several attempts share, is not this attempt's progress. Each look that finds new output gives one gap: the age
    of that output. Over many looks at random moments its 95th percentile is that of the true gaps, whatever the poll's interval.
    """
    if stat.state is not LogState.READ or stat.modified_at is None:
        return replace(known, stat=stat)
    output = min(stat.modified_at, now)
    mine = stat.size > 0 and (started_at is None or output >= started_at - timedelta(seconds=1))
    if not mine:
        return replace(known, stat=stat)
    moved = known.last_output_at is None or output > known.last_output_at
    if not moved:
        return replace(known, stat=stat)
    fresh = replace(known, stat=stat, last_output_at=output)
    return fresh if known.speaks_steps else _progressed(fresh, output, (now - output).total_seconds(), points)


def stepped(
    known: LogFacts, step: int, total: int | None, at: datetime, gaps: tuple[float, ...], points: int
) -> LogFacts:
    """``known`` after its dialect counted a step: from now on only steps are progress, output alone is not (LIVE-3).

    ``gaps``: seconds between steps, as the log's own clock or the looks at it tell them, oldest first.
    """
    facts = replace(known, step=step, total=total if total is not None else known.total, speaks_steps=True)
    kept = (known.gaps if known.speaks_steps else ())[-GAPS_KEPT:] + gaps
    return replace(facts, progress_at=at, gaps=kept[-GAPS_KEPT:], cadence=cadence(kept[-GAPS_KEPT:], points))


def cadence(gaps: tuple[float, ...], points: int) -> timedelta | None:
    """95th percentile of the gaps (nearest rank); None on fewer than ``points`` of them."""
    if len(gaps) < points:
        return None
    ranked = sorted(gaps)
    return timedelta(seconds=ranked[min(len(ranked) - 1, (len(ranked) * 95) // 100)])


def _progressed(facts: LogFacts, at: datetime, gap: float, points: int) -> LogFacts:
    gaps = (*facts.gaps, round(gap, 1))[-GAPS_KEPT:]
    return replace(facts, progress_at=at, gaps=gaps, cadence=cadence(gaps, points))
