"""Kills that wait for a person: a proposal, the decision on it, and how far carrying it out has come (KILL-1 to KILL-6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from supervisor.model.job import JobKey


class ProposalState(StrEnum):
    OPEN = "open"
    APPROVED = "approved"
    """A decision stands on it; ``Decision.stage`` tells how far that has come."""
    DENIED = "denied"
    WITHDRAWN = "withdrawn"
    """Its facts are no longer so: the job progressed, ended, or was judged anew."""
    EXPIRED = "expired"
    DONE = "done"
    """Its approval was used up, whatever came of it."""


class Stage(StrEnum):
    """How far an approved cancel has come. It only ever moves forward."""

    APPROVED = "approved"
    INTENDED = "intended"
    """Written down before it is sent. Found so after a crash: it may have been sent, so it is looked up, never sent (KILL-3)."""
    SENT = "sent"
    """The receipt is written down; what it says may be that nothing is known (KILL-6)."""
    CONFIRMED = "confirmed"
    """The scheduler says it ended, and nothing of it remains."""
    RECORDED = "recorded"
    """``mode = "record"``: all checks passed, and nothing was sent."""
    UNCONFIRMED = "unconfirmed"
    """The job lives on, or cannot be asked about, after the time for confirming: a person must look."""
    ENDED_ITSELF = "ended_itself"
    """It had ended by itself before anything was sent."""
    VOID = "void"
    """Nothing was sent, and ``why`` says why (KILL-2)."""

    @property
    def over(self) -> bool:
        return self not in (Stage.APPROVED, Stage.INTENDED, Stage.SENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A KILL verdict that waits for a person."""

    id: int
    job: JobKey
    job_row: int
    name: str
    bucket: str
    attempt: int
    verdict: int
    digest: str
    cause: str
    confidence: str
    silence_key: str
    """What its facts are; a denial silences equal ones."""
    state: ProposalState
    made_at: datetime
    expires_at: datetime
    settled_at: datetime | None = None
    settled_by: str | None = None
    why: str | None = None
    """Of a denial, a withdrawal, an expiry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One approval: who, why, until when, and what became of it. One use (KILL-1)."""

    id: int
    proposal: int
    job: JobKey
    job_row: int
    attempt: int
    verdict: int
    digest: str
    approved_by: str
    """``user@host``, or ``standing rule NAME``."""
    role: str | None
    """The database role, where the database has roles."""
    reason: str
    approved_at: datetime
    expires_at: datetime
    mode: str
    """``ask`` or ``record``, as it was in force when it was intended; before that, when it was approved."""
    stage: Stage
    intended_at: datetime | None = None
    sent_at: datetime | None = None
    accepted: bool | None = None
    """The receipt: None where it is not known whether the cancel was taken."""
    output: str | None = None
    finished_at: datetime | None = None
    why: str | None = None
    """Why it is void or unconfirmed, or what confirmed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """How many cancels may be begun, over all clusters."""

    per_tick: int
    tick: timedelta
    """Within any stretch of this length."""
    per_day: int
    """Within any 24 hours."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an approved cancel is not sent. ``for_good`` False: nothing is known against it, and later it may be."""

    why: str
    for_good: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingRule:
    """Kills that a person approved beforehand, in the config (KILL-1)."""

    name: str
    bucket: str
    pattern: str
    """Of the job's name."""
    cause: str
    cluster: str | None = None
    min_confidence: str = "high"
    per_day: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What the config says is never killed, whatever anybody approves (KILL-5)."""

    no_kill: tuple[str, ...] = ()
    """Patterns of job names."""
    no_kill_clusters: frozenset[str] = frozenset()
    own: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By cluster: users whose jobs are ours. A cluster that is not named has no users to tell apart."""
