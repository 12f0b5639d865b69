"""Is it silent for longer than its own cadence allows, or is its log not readable? (LIVE-1, LIVE-2, FIND-2, FIND-4)"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from supervisor.detectors import quoting
from supervisor.detectors.stall import goes_on
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Quote, Severity
from supervisor.model.job import JobState
from supervisor.model.lifecycle import Phase
from supervisor.model.logs import LogState


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """One finding at most: an unreadable log is not a silent one, and a log that goes on without progress is ``stall``'s.

    A job that turned out to hang is no less silent than before: it stays flagged.
    """
    life, stat = facts.held.life, facts.log.stat
    if not life.phase.live or facts.observation.state is not JobState.RUNNING:
        return
    if stat is not None and stat.state is LogState.UNREAD:
        said = (Quote(stat.path, None, stat.reason),) if stat.reason else ()
        yield Finding("FIND-4", Severity.NOTE, f"log unread: {stat.reason or stat.path}", said)
    elif stat is not None and stat.state is LogState.ABSENT:
        text = f"no log where the scheduler says: {stat.path}"
        yield Finding("FIND-2", Severity.WATCH, text, quoting.scheduler(facts))
    elif life.phase in (Phase.SUSPECT, Phase.WEDGED) and facts.log.progress_at is not None and not goes_on(facts):
        since = f"{facts.log.progress_at:%Y-%m-%d %H:%M:%SZ}"
        cadence = facts.log.cadence
        usual = f"; its usual gap is {cadence.total_seconds():.0f} s" if cadence else ""
        run = facts.followed
        last = quoting.place(run, run.summary.last_progress) if run is not None else ()
        yield Finding("LIVE-2", Severity.WATCH, f"silent since {since}{usual}", last or quoting.scheduler(facts))
