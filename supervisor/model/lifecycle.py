"""A job's life: phases, signs, and what a step of it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from supervisor.model.findings import Quote
from supervisor.model.job import JobKey, Outcome


class Phase(StrEnum):
    """Where the supervisor holds a job in its life."""

    BRING_UP = "bring_up"
    RUNNING = "running"
    SUSPECT = "suspect"
    WEDGED = "wedged"
    TERMINAL = "terminal"
    CLEANUP = "cleanup"
    DONE = "done"

    @property
    def live(self) -> bool:
        """Whether the scheduler is still expected to know the job as not ended."""
        return self in LIVE_PHASES


LIVE_PHASES = frozenset({Phase.BRING_UP, Phase.RUNNING, Phase.SUSPECT, Phase.WEDGED})


class Sign(StrEnum):
    """All that is known of a job now, in one word. The order in which they are tested is in ``rules.signs``."""

    UNSEEN = "unseen"
    """Its cluster gave no reading (POLL-1)."""
    MISSING = "missing"
    """A good reading does not list it, and nothing says how it ended (POLL-4)."""
    VANISHED = "vanished"
    """Missing for more good readings than the rule allows."""
    RESTARTED = "restarted"
    """A new attempt under the same id (requeue, preemption, retry)."""
    SEEN_AGAIN = "seen_again"
    """It was held as vanished, and is listed as living: it was never gone."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    HANDED_ON = "handed_on"
    """Its time ran out and its successor runs or waits (CHAIN-1)."""
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAILED = "node_failed"
    PREEMPTED = "preempted"
    UNCLEAR = "unclear"
    """The scheduler uses a word that this version does not know, or the job is between two states."""
    WAITING = "waiting"
    """Queued, gated or held: nothing of it runs."""
    HUNG = "hung"
    """A hard finding or a probe says that it hangs (LIVE-5)."""
    CLEARED = "cleared"
    """It was held as hung, and a newer probe of the same attempt, with all its evidence, does not say so."""
    SILENT = "silent"
    """Its log is fresh, known, and silent for longer than its own cadence allows (LIVE-2)."""
    STUCK_LOADING = "stuck_loading"
    """Allocated for longer than the bring-up limit without a first sign of progress (LIVE-6)."""
    LOADING = "loading"
    """Allocated; no progress yet, within the limit."""
    PROGRESSING = "progressing"
    QUIET = "quiet"
    """It runs, and whether it progresses is not known: log unread, absent, or silent within its cadence (FIND-4)."""
    LADDER_STARTED = "ladder_started"
    """The first clean-up step of its kind was queued."""
    LADDER_CLIMBED = "ladder_climbed"
    """Every clean-up step is done, or there is none to do."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a sign was read: where it was seen, and the words that say so, as they were read."""

    source: str
    """``queue``, ``accounting``, ``record``, ``log``, ``clock``, ``absence``, ``probe`` …"""
    text: str
    quotes: tuple[Quote, ...] = ()


@dataclass(frozen=True, slots=True)
class SignRead:
    """A sign with its reason and evidence: no claim without its quote."""

    sign: Sign
    reason: str
    evidence: tuple[Evidence, ...] = ()


class Effect(StrEnum):
    """What a step asks for. There is no word for kill."""

    WANT_PROBE = "want_probe"
    WANT_CLEANUP = "want_cleanup"
    WANT_NOTE = "want_note"
    """A dated record of how it ended (SAY-3)."""
    WANT_LOOK = "want_look"
    """A closer look between ticks."""
    WANT_DIAGNOSIS = "want_diagnosis"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """Where a job stands. Only ``rules.advance`` makes a new one from an old one."""

    phase: Phase
    since: datetime
    attempt: int = 1
    outcome: Outcome | None = None
    absences: int = 0
    """Good readings in a row that did not list it while nothing said how it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One step. ``before == after`` with ``moved`` False is the usual one: nothing changed."""

    job: JobKey
    before: Lifecycle
    after: Lifecycle
    read: SignRead
    at: datetime
    effects: frozenset[Effect] = field(default_factory=frozenset)

    @property
    def moved(self) -> bool:
        return self.before.phase is not self.after.phase or self.before.attempt != self.after.attempt
