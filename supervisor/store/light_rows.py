"""Rows of the light path: plain named tuples, made without ``typing``, whose import costs more than the whole reading."""

from __future__ import annotations

from collections import namedtuple
from datetime import datetime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class _Fields(type):
        """Stands in for ``typing.NamedTuple``."""

        def __new__(cls, name, bases, body):
            return namedtuple(name, body["__annotations__"]) if bases else super().__new__(cls, name, bases, body)

    class NamedTuple(metaclass=_Fields):
        pass


class JobRow(NamedTuple):
    """One job as ``status`` shows it. JSON texts are None where there is nothing to say; times UTC."""

    row: int
    cluster: str
    id: str
    name: str
    bucket: str
    user: str | None
    attempt: int
    phase: str
    since: datetime
    state: str
    scheduler_state: str
    scheduler_reason: str | None
    outcome: str | None
    exit_code: int | None
    signal: int | None
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    time_limit_s: float | None
    account: str | None
    partition: str | None
    group: str | None
    group_size: int
    nodes: str | None  # JSON list of names
    node_count: int | None
    log_state: str
    log_path: str | None
    log_reason: str | None
    last_output_at: datetime | None
    cadence_s: float | None
    step: int | None
    total: int | None
    progress_at: datetime | None
    metrics: str | None  # JSON object: metrics, rate_per_s, eta_s, series, flavor
    flags: str | None  # JSON list, each as in the contract
    worst: str | None  # severity of the worst flag
    predecessor: str | None
    successor: str | None
    diagnosis: str | None  # JSON object
    first_seen_at: datetime | None
    closed_at: datetime | None  # when it was first held as ended


class ClusterRow(NamedTuple):
    """One cluster as of its latest poll."""

    name: str
    kind: str
    state: str
    polled_at: datetime | None
    last_good_at: datetime | None
    reason: str | None
    hint: str | None
    failed_polls: int
    jobs_live: int
    inodes_used: int | None
    inodes_soft: int | None
    bytes_used: int | None
    bytes_soft: int | None
    clock_offset_s: float
    version: str | None
    source: str
    took_s: float | None


class HeartbeatRow(NamedTuple):
    """A daemon's newest sign of life."""

    daemon: str
    host: str
    pid: int
    version: str
    started_at: datetime
    beat_at: datetime
    interval_s: float
    next_tick_at: datetime | None
    trouble: str | None


class TickRow(NamedTuple):
    """A tick, without its report."""

    number: int
    daemon: str
    started_at: datetime
    finished_at: datetime | None
    took_s: float | None


class Summary(NamedTuple):
    """The monitor's own state. Newest heartbeat first; ``last_tick`` is the newest that came to its end."""

    heartbeats: list[HeartbeatRow]
    last_tick: TickRow | None
    running_tick: TickRow | None  # newer than the last one, and not finished (or its daemon died in it)
    clusters: list[ClusterRow]


class CountRow(NamedTuple):
    """How many jobs of a bucket are in a phase, by the severity of their worst flag."""

    bucket: str
    phase: str
    worst: str | None
    jobs: int


class StepRow(NamedTuple):
    """One step of a job's life; ``body`` is the whole of it with its evidence, JSON."""

    number: int
    at: datetime
    tick: int
    before: str
    after: str
    attempt: int
    outcome: str | None
    sign: str
    reason: str
    body: str


class AttemptRow(NamedTuple):
    """One attempt; ``body`` is a JSON object in which ``observation`` is what was last seen of it."""

    number: int
    state: str
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None
    signal: int | None
    body: str


class HoldRow(NamedTuple):
    """A hold that stands."""

    id: int
    scope: str
    target: str
    reason: str
    by: str
    since: datetime


class AlertRow(NamedTuple):
    """An alert that stands (SAY-5)."""

    id: int
    subject: str
    key: str
    severity: str
    text: str
    opened_at: datetime
    last_said_at: datetime | None
    times_said: int


class VerdictRow(NamedTuple):
    """The newest verdict of a job, in short."""

    job: int  # the job's row number
    id: int
    attempt: int
    taken_at: datetime
    ruling: str
    confidence: str
    cause: str
    passed: bool
    wedged: bool
    judge: str
    evidence: str  # the folder
    digest: str
    reason: str


class WaitingRow(NamedTuple):
    """What waits for a person, or is approved and not carried out yet, or was sent without a sign of its effect."""

    id: int
    kind: str
    job: str  # cluster/id
    name: str
    verdict: int
    cause: str
    confidence: str
    state: str  # open, approved, unconfirmed
    expires_at: datetime
