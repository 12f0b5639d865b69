"""What one poll of one cluster is asked, and what it returns: a good reading or none (POLL-1)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from supervisor.model.job import JobKey, Observation
from supervisor.model.logs import LogStat


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What is remembered of a cluster, handed to its poll. The backend keeps none of it."""

    lines: Mapping[str, Hashable] = field(default_factory=dict)
    """Fingerprint of each job in the last good reading that was stored, by id; an equal one need not be parsed again."""
    live: Mapping[str, JobKey] = field(default_factory=dict)
    """Jobs held as live, by id: those whose end must be looked up when they are not listed (POLL-3, POLL-4)."""
    detailed: Set[JobKey] = frozenset()
    """Attempts whose details are known already."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """Log path of each running job whose path is known, by job id."""
    bookmarks: Mapping[str, str] = field(default_factory=dict)
    """Latest bookmark of each such log, by job id, where the backend gave one (``LogText.bookmark``)."""
    ended_since: datetime | None = None
    """End of the last good look at accounting; None on the first (POLL-7)."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """Quota of the place where jobs write; None where it was not asked or not understood (CLEAN-4)."""

    inodes_used: int | None = None
    inodes_soft: int | None = None
    bytes_used: int | None = None
    bytes_soft: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """A good reading of the whole cluster. Jobs that ``lines`` does not name were positively not listed."""

    cluster: str
    at: datetime
    """Our clock, UTC, when the answer was whole."""
    lines: Mapping[str, Hashable]
    changed: Sequence[Observation] = ()
    """Listed jobs whose fingerprint is new."""
    ended: Sequence[Observation] = ()
    """Ended attempts from accounting or the lifecycle record, since ``Watch.ended_since`` or asked for by id."""
    ends_read: bool = True
    """Whether the source of ``ended`` answered. If not, a job that is gone stays where it is, and nothing counts as absent."""
    gone: Set[str] = frozenset()
    """Ids of live jobs that are not listed and that were asked for by themselves: positively not there (POLL-5)."""
    logs: Mapping[str, LogStat] = field(default_factory=dict)
    """By job id."""
    headroom: Headroom | None = None
    clock_offset: timedelta = timedelta(0)
    """Cluster's clock minus ours."""
    version: str | None = None
    problems: tuple[str, ...] = ()
    """Parts that failed without spoiling the reading, as sentences."""
    took: timedelta = timedelta(0)
    source: str = ""
    """Which login node or endpoint answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreached:
    """No reading. It changes no job (POLL-1)."""

    cluster: str
    at: datetime
    reason: str
    hint: str | None = None
    """What a person can do, where a person can."""
    needs_person: bool = False


Reading = Polled | Unreached


@dataclass(frozen=True, slots=True)
class Check:
    """One line of ``supervisorctl check``."""

    what: str
    result: str
    """ok, warn or fail"""
    text: str
    hint: str | None = None
