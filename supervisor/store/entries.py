"""What the store gives back that has no noun in the model yet: plain records, times UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from supervisor.model.job import JobKey
from supervisor.model.lifecycle import Transition
from supervisor.model.probe import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A stored transition: ``number`` counts from 1 in the job's life."""

    job_row: int
    number: int
    tick: int
    transition: Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a job looked over a stretch of time. ``until`` is None for how it looks now; ``tick`` first saw it so."""

    since: datetime
    until: datetime | None
    tick: int
    attempt: int
    phase: str
    outcome: str | None
    state: str
    scheduler_state: str
    scheduler_reason: str | None
    node_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """One stored poll."""

    cluster: str
    at: datetime
    tick: int
    good: bool
    listed: int
    changed: int
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Something asked of the daemon by a person through the database."""

    id: int
    kind: str
    asked_by: str
    asked_at: datetime
    payload: Mapping[str, object]
    answered_at: datetime | None
    result: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One standing or closed alert (SAY-5). ``said`` counts how often people were told."""

    id: int
    subject: str
    """``cluster/id``, a cluster's name, or ``monitor``."""
    key: str
    severity: str
    text: str
    opened_at: datetime
    last_said_at: datetime | None
    last_said_text: str | None
    times_said: int
    closed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who polls a cluster, and until when nobody else may."""

    cluster: str
    owner: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Measurement:
    """One value that a job's own output gave. ``value`` may be NaN or infinite: those are news, not gaps."""

    metric: str
    at: datetime
    value: float
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisEntry:
    """A stored diagnosis of one attempt; ``document`` as in the contract."""

    job_row: int
    attempt: int
    at: datetime
    fingerprint: str | None
    category: str
    document: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """The same failure, by fingerprint, over the jobs it struck (CHAIN-5). ``jobs`` are ``cluster/id``, newest first."""

    fingerprint: str
    category: str
    times: int
    first_at: datetime
    last_at: datetime
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFound:
    """A candidate for a JOB argument."""

    row: int
    cluster: str
    id: str
    name: str
    phase: str
    submitted_at: datetime | None
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """How long what may go is kept. Transitions, attempts, decisions and diagnoses stay for ever (house, idea 6)."""

    measurements_whole: timedelta = timedelta(days=2)
    """Every value; older ones are thinned to the last of each hour."""
    measurements_hourly: timedelta = timedelta(days=30)
    """Older ones are thinned to the last of each day."""
    ticks_whole: timedelta = timedelta(days=2)
    """Reports and documents of every tick; of older ones only the last of each day keeps them."""
    ticks_daily: timedelta = timedelta(days=365)
    """Older reports go; the tick's own row stays."""
    polls: timedelta = timedelta(days=30)
    changes: timedelta = timedelta(days=90)
    heartbeats: timedelta = timedelta(days=7)
    requests: timedelta = timedelta(days=30)
    """Answered ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """Rows that one prune took away or emptied, by what they were."""

    measurements: int
    polls: int
    changes: int
    tick_reports: int
    heartbeats: int
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictEntry:
    """A stored verdict, whole."""

    id: int
    job_row: int
    job: JobKey
    """Of the attempt that was judged."""
    name: str
    bucket: str
    verdict: Verdict
    stored_at: datetime
    silence_key: str
    no_proposal: str | None
    """Why a KILL was not proposed; None where it was, and for other rulings."""
    proposal: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """A verdict, and what then became of its job. What is of the attempt is of the one that was judged."""

    verdict: int
    job: JobKey
    name: str
    bucket: str
    attempt: int
    taken_at: datetime
    ruling: str
    confidence: str
    cause: str
    judge: str
    proposal: int | None
    proposal_state: str | None
    mode: str | None
    stage: str | None
    """How far an approved kill has come."""
    finished_at: datetime | None
    """When that was over."""
    phase: str
    outcome: str | None
    attempt_now: int
    attempt_state: str | None
    """The scheduler's word for the attempt, as last seen."""
    attempt_ended_at: datetime | None
    step_then: int | None
    step_now: int | None
    progress_then: datetime | None
    progress_at: datetime | None
    suspect_at: datetime | None
    """When the job last became suspect before the verdict."""
