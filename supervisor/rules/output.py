"""What a look at a job's log says of its liveness (LIVE-1 to LIVE-3). Pure; times in UTC."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from datetime import datetime, timedelta

from supervisor.model.facts import LogFacts, RunFacts
from supervisor.model.logs import LogStat, LogState
from supervisor.model.readings import RunSummary, Unread
from supervisor.rules.shaping import regime

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


def heard(known: LogFacts, summary: RunSummary, started_at: datetime | None, points: int) -> LogFacts:
    """``known`` after what the log's text says. Once a dialect recognises the output, only its progress counts (LIVE-3, LIVE-4):
    engines, heartbeats and loading bars do not, and until this attempt's first step there is none (LIVE-6).
    """
    progress = summary.last_progress
    if progress is None and (summary.last_engine or summary.last_heartbeat or summary.last_bring_up) is None:
        return known
    at = progress.seen_at if progress is not None else None
    if at is not None and started_at is not None and at < started_at - timedelta(seconds=1):
        at = None  # what an earlier attempt did is no progress of this one
    gaps = tuple(round(gap, 1) for gap in summary.step_gaps_s[-GAPS_KEPT:])
    return replace(
        known,
        step=summary.progress.step,
        total=summary.progress.total,
        speaks_steps=True,
        progress_at=at,
        gaps=gaps,
        cadence=cadence(gaps, points),
    )


SHOWN_POINTS = 24
"""Points of a series that are kept beside the job for its trend."""


def run_facts(summary: RunSummary) -> RunFacts:
    """What is stored and shown of a run."""
    series = {
        key: tuple(point.value if math.isfinite(point.value) else None for point in found[-SHOWN_POINTS:])
        for key, found in summary.series.items()
        if key in summary.metrics
    }
    return RunFacts(
        metrics={key: _wired(value) for key, value in summary.metrics.items()},
        rate_per_s=summary.progress.rate_per_s,
        eta_s=summary.progress.eta_s,
        series=series,
        flavor=summary.flavor,
        regime=regime(summary),
        checkpoint_step=summary.checkpoint_step,
        answered=summary.engine.answered or None,
        not_understood={each.name: count for each in fields(Unread) if (count := getattr(summary.unread, each.name))},
        infra=dict(summary.infra),
    )


def _wired(value: float | str) -> float | str:
    """JSON has no word for NaN and infinities; the contract has."""
    if isinstance(value, str) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def cadence(gaps: tuple[float, ...], points: int) -> timedelta | None:
    """95th percentile of the gaps (nearest rank); None on fewer than ``points`` of them."""
    if len(gaps) < points:
        return None
    ranked = sorted(gaps)
    return timedelta(seconds=ranked[min(len(ranked) - 1, (len(ranked) * 95) // 100)])


def _progressed(facts: LogFacts, at: datetime, gap: float, points: int) -> LogFacts:
    gaps = (*facts.gaps, round(gap, 1))[-GAPS_KEPT:]
    return replace(facts, progress_at=at, gaps=gaps, cadence=cadence(gaps, points))
