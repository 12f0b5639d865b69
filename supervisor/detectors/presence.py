"""Is it neither listed nor known to have ended? (POLL-4)"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from supervisor.model.facts import Facts, Seen
from supervisor.model.findings import Finding, Severity


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """Said, so that nobody takes the held phase for a fresh observation; it moves nothing."""
    life = facts.held.life
    if not life.phase.live:
        return
    if facts.seen is Seen.DOUBTFUL:
        yield Finding(
            "POLL-4", Severity.NOTE, "not listed, and accounting could not be asked how it ended", key="POLL-4"
        )
    elif life.absences:
        times = f"{life.absences} good reading{'s' if life.absences > 1 else ''}"
        yield Finding("POLL-4", Severity.WATCH, f"not listed in {times}, and no end of it is found", key="POLL-4")
