"""What a job is, and what one good reading says of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class JobState(StrEnum):
    """The scheduler's word in one vocabulary for all backends. The scheduler's own spelling is kept beside it."""

    PENDING = "pending"
    """Queued, gated, held, or waiting to be requeued."""
    STARTING = "starting"
    """Resources are allocated; prolog, image pull or node boot goes on."""
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETING = "completing"
    """The program has ended, the scheduler still cleans up; how it ended is not known yet."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAILED = "node_failed"
    PREEMPTED = "preempted"
    REQUEUED = "requeued"
    """This attempt ended and the scheduler will run, or runs, another under the same id."""
    UNKNOWN = "unknown"
    """A word that this version does not know. It moves nothing."""

    @property
    def ended(self) -> bool:
        """Whether this state is the end of an attempt."""
        return self in ENDED_STATES

    @property
    def live(self) -> bool:
        return self in LIVE_STATES


LIVE_STATES = frozenset(
    {JobState.PENDING, JobState.STARTING, JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING}
)
ENDED_STATES = frozenset(
    {
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.TIMED_OUT,
        JobState.OUT_OF_MEMORY,
        JobState.NODE_FAILED,
        JobState.PREEMPTED,
        JobState.REQUEUED,
    }
)


class Outcome(StrEnum):
    """How a job's life ended, in the words of the contract."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    HANDED_ON = "handed_on"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAILED = "node_failed"
    PREEMPTED = "preempted"
    VANISHED = "vanished"

    @property
    def ended_well(self) -> bool:
        return self in (Outcome.COMPLETED, Outcome.HANDED_ON)


@dataclass(frozen=True, slots=True, order=True)
class JobRef:
    """A job's name for people: ``cluster/id``. Ids are reused; see :class:`JobKey`."""

    cluster: str
    id: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.id}"


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """What tells a job from every other, also from one that bears the same id later (POLL-11).

    ``incarnation`` is opaque and never changes within one attempt: the submit time as the scheduler gave it (Slurm, iris),
    the UID (Kubernetes), the launch record's own id (host).
    """

    cluster: str
    id: str
    incarnation: str

    @property
    def ref(self) -> JobRef:
        return JobRef(self.cluster, self.id)


@dataclass(frozen=True, slots=True)
class Dependency:
    """One edge of a restart chain, as the scheduler last showed it (CHAIN-1)."""

    kind: str
    """``afterany``, ``afterok``, ``afternotok``, ``after``, ``singleton`` …"""
    on: str
    """Id of the job waited for, on the same cluster; empty for ``singleton``."""


@dataclass(frozen=True, slots=True)
class Burn:
    """Restarts used up and allowed; None where the scheduler does not say."""

    burned: int
    allowed: int | None = None


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """How many tasks, pods or ranks of a gang are in which state (POLL-5)."""

    total: int
    running: int = 0
    pending: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What a backend knows of a job beyond its line in the queue; asked once per attempt.

    Paths are the scheduler's own (FIND-1), patterns resolved; empty where the scheduler gives none.
    """

    log_path: str | None = None
    err_path: str | None = None
    """None where standard error goes into ``log_path``."""
    workdir: str | None = None
    command: str | None = None
    restarts: int | None = None
    depends_on: tuple[Dependency, ...] = ()


NO_DETAILS = Details()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a good reading says of one attempt of one job. Times are UTC, corrected by the cluster's own clock offset."""

    key: JobKey
    name: str
    user: str | None
    state: JobState
    scheduler_state: str
    """The scheduler's own word, for people."""
    reason: str | None = None
    """Why it waits or how it ended, in the scheduler's words."""
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    time_limit: timedelta | None = None
    account: str | None = None
    partition: str | None = None
    group: str | None = None
    """What its siblings share: array id, heterogeneous job's id, job set (POLL-11)."""
    group_size: int = 1
    """Tasks that this one record stands for: a pending array is one record. 0 once each is a job of its own: not listed then."""
    nodes: tuple[str, ...] = ()
    node_count: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    attempt: int | None = None
    """Number of this attempt, from 1; None where the backend cannot tell."""
    renews: bool = False
    """A later attempt to which the scheduler gave a new incarnation (Slurm: a new submit time on requeue). Elsewhere another
    incarnation under the same id is another job (POLL-11)."""
    burn: Burn | None = None
    preemptions: Burn | None = None
    """Preemptions used up and allowed, where they have a budget of their own beside that of failures."""
    tasks: TaskCounts | None = None
    depends_on: tuple[Dependency, ...] = ()
    details: Details | None = None
    """None where nothing new was learnt; what was known before stays."""
    final: bool = True
    """For an ended attempt: False where another attempt of the same job follows (requeue, retry)."""

    @property
    def ref(self) -> JobRef:
        return self.key.ref
