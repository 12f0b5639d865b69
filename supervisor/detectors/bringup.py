"""Has it been allocated for longer than bring-up may take, without a first sign of progress? (LIVE-6)"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from supervisor.detectors import quoting
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Severity
from supervisor.model.lifecycle import Phase


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """Patient up to the limit; what comes after is for a person to look at."""
    began = facts.observation.started_at
    doubted = facts.held.life.phase in (Phase.SUSPECT, Phase.WEDGED)
    if doubted and facts.log.progress_at is None and began is not None:
        limit = facts.limits.bring_up_limit.total_seconds() / 60
        text = f"no first progress since its start {began:%Y-%m-%d %H:%MZ}; limit {limit:.0f} min"
        run = facts.followed
        last = quoting.place(run, run.summary.last_bring_up) if run is not None else ()
        yield Finding("LIVE-6", Severity.WATCH, text, (*quoting.scheduler(facts), *last))
