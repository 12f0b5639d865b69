"""Do checkpoints keep up with the steps? What a death would cost grows with each step that none follows (RL-8, HERO-4)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise

from supervisor.detectors import quoting
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Severity

LEAST = 3
"""Checkpoints that must have been announced before its own interval is known."""


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """Held against the largest of the run's own intervals: a run that never saves, or has not yet, says nothing here."""
    run = facts.followed
    if run is None or not facts.held.life.phase.live or facts.held.bucket in ("eval", "datagen"):
        return
    summary, saved = run.summary, run.summary.checkpoints
    step, last = summary.progress.step, summary.last_step
    if step is None or last is None or len(saved) < LEAST or summary.finished is not None:
        return
    interval = max(after - before for before, after in pairwise(saved))
    behind = step - saved[-1]
    if behind <= facts.limits.health.stale_checkpoint_intervals * interval:
        return
    quotes = quoting.distinct((*quoting.place(run, summary.last_checkpoint), *quoting.place(run, last)))
    if quotes:
        rule = "RL-8" if facts.held.bucket == "rl" else "HERO-4"
        text = (
            f"no checkpoint since step {saved[-1]}, though one followed at most {interval} steps after another: "
            "a death now costs all steps since"
        )
        yield Finding(rule, Severity.WATCH, text, quotes, key="checkpoints/stale")
