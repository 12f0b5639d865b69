"""Short ways to a summary, for the tests of this room."""

from __future__ import annotations

from datetime import datetime

from supervisor.dialects import follow, summarise
from supervisor.model.readings import Reading, RunSummary


def summary_of(log: str, bucket: str | None = None, seen_at: datetime | None = None) -> RunSummary:
    state, _ = follow(None, log.encode(), 0, seen_at=seen_at)
    return summarise(state, bucket)


def readings_of(log: str) -> tuple[Reading, ...]:
    return follow(None, log.encode(), 0)[1]
