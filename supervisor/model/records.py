"""What is written down: nouns between the shell and the store. Each is written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from supervisor.model.facts import Held
from supervisor.model.job import JobKey, Observation
from supervisor.model.lifecycle import Transition
from supervisor.model.polling import Headroom


class ClusterState(StrEnum):
    """Words of the contract for ``clusters[].state``."""

    OK = "ok"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """One cluster as of its latest poll."""

    name: str
    kind: str
    state: ClusterState
    polled_at: datetime | None = None
    last_good_at: datetime | None = None
    ended_since: datetime | None = None
    """End of the last good look at accounting (POLL-7)."""
    reason: str | None = None
    """Why it is not ok, or what of it failed though it is."""
    hint: str | None = None
    failed_polls: int = 0
    """In a row; 0 after a good one (LIVE-8)."""
    jobs_live: int = 0
    headroom: Headroom | None = None
    clock_offset_s: float = 0.0
    version: str | None = None
    source: str = ""
    took_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt of one job, as last known; kept for ever."""

    job: JobKey
    """Key of the job as held now: that of a ``changed`` job in the same PollRecord."""
    number: int
    observation: Observation


@dataclass(frozen=True, slots=True)
class ErrandWanted:
    """Something to be done after this transaction, once: a note, a diagnosis, a probe, a clean-up step.

    ``dedupe`` makes wanting it twice the same as once, for ever.
    """

    kind: str
    job: JobKey | None
    payload: Mapping[str, object]
    dedupe: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRecord:
    """All that one poll of one cluster changes: one transaction (house, idea 4)."""

    tick: int
    status: ClusterStatus
    changed: Sequence[Held] = ()
    """Jobs to insert (``row`` None) or update."""
    transitions: Sequence[Transition] = ()
    attempts: Sequence[AttemptRecord] = ()
    errands: Sequence[ErrandWanted] = ()
    listed: int = 0
    at: datetime
    good: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """A claimed piece of work."""

    id: int
    kind: str
    cluster: str | None
    job_row: int | None
    payload: Mapping[str, object]
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCursor:
    """How far one log of one job has been read, and what of it is kept under the state directory (FIND-3)."""

    job_row: int
    path: str
    device: int
    inode: int
    offset: int
    """Bytes of the file read so far."""
    lines: int | None
    """Newlines before ``offset``; None where some could not be counted."""
    head: str
    """Hash of its first bytes, so that a replaced file is noticed."""
    kept: str
    """File name under the log folder that holds what was read."""
    kept_from: int
    """Offset in the log at which the kept text begins."""
    kept_from_line: int | None
    state: Mapping[str, object] = field(default_factory=dict)
    """Follower's state of its dialects, plain JSON."""
    bookmark: str | None = None
    """The backend's own word for how far it read (``LogText.bookmark``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """No action is carried out under a hold; looking goes on (KILL-5). ``target`` is empty for all."""

    id: int
    scope: str
    """``all``, ``cluster`` or ``job``."""
    target: str
    reason: str
    by: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRecord:
    """One tick, for ``report``."""

    number: int
    started_at: datetime
    finished_at: datetime | None
    took_s: float | None
    report: str | None
    document: str | None
    """Machine-readable twin of the report, JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The daemon's own sign of life (LIVE-8)."""

    daemon: str
    """``host:pid:start``"""
    host: str
    pid: int
    version: str
    started_at: datetime
    beat_at: datetime
    interval_s: float
    next_tick_at: datetime | None
    trouble: str | None = None
    """What the daemon says is wrong with itself."""
