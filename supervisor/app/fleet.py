"""The clusters as the daemon holds them: one station each, with what is remembered of it between ticks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from supervisor.model.polling import Reading, Unreached
from supervisor.model.records import ClusterState, ClusterStatus
from supervisor.rules.memory import Memory
from supervisor.rules.probing import Agenda

if TYPE_CHECKING:
    from supervisor.app.settings import ClusterSection
    from supervisor.model.ports import Cluster

REMEMBERED = timedelta(days=3)
"""How long an ended job stays in memory: late successors and late accounting still find it."""


@dataclass(slots=True)
class Station:
    """One cluster: its backend, and what the last stored reading left. All of it can be loaded from the store again."""

    name: str
    section: ClusterSection
    cluster: Cluster | None
    """None where it could not be built from its settings; ``broken`` says why."""
    broken: str | None = None
    memory: Memory = field(default_factory=Memory)
    lines: Mapping[str, Hashable] = field(default_factory=dict)
    status: ClusterStatus | None = None
    loaded: bool = False
    look_soon: set[str] = field(default_factory=set)
    agenda: Agenda = field(default_factory=Agenda)

    @property
    def kind(self) -> str:
        return self.section.kind

    def forget(self) -> None:
        """Another daemon may have written meanwhile: load again before the next reading."""
        self.memory, self.agenda, self.lines, self.loaded = Memory(), Agenda(), {}, False

    def skipped(self, now: datetime) -> bool:
        """POLL-9."""
        until = self.section.skip_until
        return until is not None and now.date() < until


def status_after(station: Station, reading: Reading, now: datetime, live: int) -> ClusterStatus:
    """The cluster's own row after a reading: what is not known now is kept from before, with its age (POLL-1)."""
    before = station.status or ClusterStatus(name=station.name, kind=station.kind, state=ClusterState.UNKNOWN)
    if isinstance(reading, Unreached):
        return ClusterStatus(
            name=station.name,
            kind=station.kind,
            state=ClusterState.UNKNOWN,
            polled_at=now,
            last_good_at=before.last_good_at,
            ended_since=before.ended_since,
            reason=reading.reason,
            hint=reading.hint,
            failed_polls=before.failed_polls + 1,
            jobs_live=before.jobs_live,
            headroom=before.headroom,
            clock_offset_s=before.clock_offset_s,
            version=before.version,
            source=before.source,
            took_s=None,
        )
    return ClusterStatus(
        name=station.name,
        kind=station.kind,
        state=ClusterState.OK,
        polled_at=now,
        last_good_at=reading.at,
        ended_since=reading.at if reading.ends_read else before.ended_since,
        reason="; ".join(reading.problems) or None,
        failed_polls=0,
        jobs_live=live,
        headroom=reading.headroom or before.headroom,
        clock_offset_s=reading.clock_offset.total_seconds(),
        version=reading.version or before.version,
        source=reading.source,
        took_s=round(reading.took.total_seconds(), 3),
    )


def skipped_status(station: Station, now: datetime) -> ClusterStatus:
    before = station.status or ClusterStatus(name=station.name, kind=station.kind, state=ClusterState.SKIPPED)
    until, why = station.section.skip_until, station.section.skip_reason
    return ClusterStatus(
        name=station.name,
        kind=station.kind,
        state=ClusterState.SKIPPED,
        polled_at=before.polled_at,
        last_good_at=before.last_good_at,
        ended_since=before.ended_since,
        reason=f"skipped until {until}" + (f": {why}" if why else ""),
        jobs_live=before.jobs_live,
        headroom=before.headroom,
        version=before.version,
        source=before.source,
    )
