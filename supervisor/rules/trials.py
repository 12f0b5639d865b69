"""Log and trial store tell the same numbers: which of them wins. The one place that decides it.

Read at this look, with every result counted (or the harness's own count over the whole run beside them): the store. Else the
log for what it tells, and the store, as of its last good look, for what the log does not. A store that was never read tells
nothing: what is not known is absent, never 0 (BUCKET-3, EVAL-4).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from supervisor.model.facts import LogFacts, RunFacts
from supervisor.model.readings import RunSummary
from supervisor.model.trials import TrialCounts, TrialFacts
from supervisor.rules.output import GAPS_KEPT, cadence

COUNTS_TRIALS = ("eval", "datagen")
"""Kinds of work whose progress is their trials; for a trainer they are evidence, and no progress (LIVE-4)."""

TOLD = {
    "eval": ("trials", "pass_rate", "mean", "top_exception"),
    "datagen": ("trials", "mean", "avg_turns", "exc_rate"),
}
"""The contract's keys that a store tells, by bucket."""


def with_trials(run: RunFacts, trials: TrialFacts, bucket: str, told: RunSummary | None) -> RunFacts:
    """``run`` with what the store says of it. ``told``: what its log says, where there is one."""
    unread = trials.unread.reason if trials.unread is not None else None
    run = replace(run, trials_at=trials.where, trials_unread=unread)
    counts = trials.counts
    if counts is None or bucket not in COUNTS_TRIALS:
        return run
    store = _metrics(counts, bucket)
    wins = trials.fresh and counts.figures.exact
    others = {key: value for key, value in run.metrics.items() if key not in TOLD[bucket]}
    log = dict(run.metrics) if told is not None else {}
    metrics = {**others, **store} if wins else {**run.metrics, **store, **log}
    run = replace(run, metrics=metrics)
    done, planned, rate = counts.figures.done, counts.figures.planned, counts.rate_per_s
    if not rate or not (wins or run.rate_per_s is None):
        return run
    left = None if done is None or planned is None else max(0, planned - done)
    return replace(run, rate_per_s=rate, eta_s=None if left is None else left / rate)


def moved_on(
    log: LogFacts,
    trials: TrialFacts,
    bucket: str,
    told: RunSummary | None,
    started_at: datetime | None,
    now: datetime,
    points: int,
) -> LogFacts:
    """``log`` with the trials that ended: each is progress, whether or not a log tells of it (LIVE-2, EVAL-2)."""
    counts = trials.counts
    if counts is None or bucket not in COUNTS_TRIALS:
        return log
    done, planned = counts.figures.done, counts.figures.planned
    if done is not None:
        step = done if trials.fresh else max(done, log.step or 0)
        total = planned if planned is not None else log.total
        log = replace(log, step=step, total=total if total is None or total >= step else None)
    ended = trials.last_end_at
    if ended is None or (started_at is not None and ended < started_at - timedelta(seconds=1)):
        return log  # what an earlier attempt left is no progress of this one
    ended = min(ended, now)
    by_log = log.progress_at if log.speaks_steps else None
    log = replace(log, speaks_steps=True, progress_at=ended if by_log is None else max(by_log, ended))
    if told is None or not told.step_gaps_s:
        ends = [each.changed_s for each in counts.recent]
        gaps = tuple(float(after - before) for before, after in pairwise(ends))[-GAPS_KEPT:]
        log = replace(log, gaps=gaps, cadence=cadence(gaps, points))
    return log


def _metrics(counts: TrialCounts, bucket: str) -> dict[str, float | str]:
    """Under the contract's keys; what was not counted is absent."""
    figures = counts.figures
    shown: dict[str, float | str] = {}
    if figures.done is not None:
        shown["trials"] = float(figures.done)
    if figures.mean is not None:
        shown["mean"] = figures.mean
    if bucket == "eval":
        if figures.scored:
            shown["pass_rate"] = figures.passed / figures.scored
        if figures.exceptions:
            shown["top_exception"] = max(figures.exceptions, key=lambda name: figures.exceptions[name])
        return shown
    if counts.avg_turns is not None:
        shown["avg_turns"] = counts.avg_turns
    if figures.done:
        shown["exc_rate"] = sum(figures.exceptions.values()) / figures.done
    return shown
