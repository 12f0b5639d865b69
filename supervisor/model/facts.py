"""All that is known of one job at one moment: what the pure rules see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from supervisor.model.findings import Finding, Flag
from supervisor.model.job import NO_DETAILS, Dependency, Details, JobKey, JobRef, JobState, Observation, Outcome
from supervisor.model.lifecycle import Lifecycle
from supervisor.model.logs import LogStat
from supervisor.model.readings import RunSummary, Spoken
from supervisor.model.rulebook import Limits
from supervisor.model.trials import TrialFacts


class Seen(StrEnum):
    """What the latest poll of its cluster says of the job's presence."""

    UNREACHED = "unreached"
    """No reading: nothing is said."""
    LISTED = "listed"
    ABSENT = "absent"
    """A good reading, in which ends were looked up too, does not list it."""
    DOUBTFUL = "doubtful"
    """Not listed, but its end could not be looked up: counts as nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What is known of the job's own output (LIVE-1)."""

    stat: LogStat | None = None
    last_output_at: datetime | None = None
    """UTC; survives readings in which the log was unread."""
    cadence: timedelta | None = None
    """95th percentile of its observed gaps; None on too few points (LIVE-2)."""
    gaps: tuple[float, ...] = ()
    """Observed gaps between signs of progress, seconds, newest last; bounded."""
    step: int | None = None
    total: int | None = None
    progress_at: datetime | None = None
    """When progress was last seen: a step where its dialect counts steps, else output."""
    speaks_steps: bool = False
    """A dialect recognised its output, so that bare output is no progress (LIVE-3, LIVE-6)."""


NO_LOG = LogFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What the job's own output says of its work, as it is stored and shown. Keys are the contract's (``status --json``)."""

    metrics: Mapping[str, float | str] = field(default_factory=dict)
    """Latest values; NaN and infinities as the contract's words. A metric that was not emitted is absent, never 0 (BUCKET-3)."""
    rate_per_s: float | None = None
    """Steps per second over the trailing window (SFT-2)."""
    eta_s: float | None = None
    series: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Newest points of the metrics that a trend is drawn from, oldest first; bounded; None for what is no finite number."""
    flavor: str | None = None
    """``agentic``, ``standard`` … where the output tells it."""
    regime: str | None = None
    """``shaped`` or ``unshaped`` reward, where the numbers tell it (RL-7)."""
    checkpoint_step: int | None = None
    """As announced in the log, which is not yet a durable one (RL-8)."""
    answered: int | None = None
    """Requests that an inference engine answered well, as its access lines tell (EVAL-4)."""
    not_understood: Mapping[str, int] = field(default_factory=dict)
    """What its log bore and could not be read, by kind, as in ``Unread``; what is 0 is absent."""
    infra: Mapping[str, str] = field(default_factory=dict)
    """What the work stands on, as in ``RunSummary.infra`` (EVAL-1)."""
    trials_at: str | None = None
    """Where its trials lie; None where nothing tells."""
    trials_unread: str | None = None
    """Why they could not be read at the latest look: its figures of trials are then those of its log, or older."""


NO_RUN = RunFacts()


Excerpt = Callable[[tuple[Spoken, ...], str], Spoken | None]
"""Of quoted lines, the part that shows a metric, as it stands in the file; None where none does."""


def _first(said: tuple[Spoken, ...], _key: str) -> Spoken | None:
    return said[0] if said else None


@dataclass(frozen=True, slots=True)
class Followed:
    """What all the log text read so far says of one job's run, handed to the step beside the log's size and time."""

    file: str
    """The log that it was read from, for quotes."""
    summary: RunSummary
    excerpt: Excerpt = _first


@dataclass(frozen=True, slots=True, kw_only=True)
class PastEnd:
    """How an earlier attempt of the same job ended, as far as it was told."""

    attempt: int
    state: JobState
    words: str
    """The scheduler's own word."""
    exit_code: int | None = None
    signal: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    step: int | None = None
    """The last step that its log told."""


PAST_ENDS_KEPT = 8
"""Newest ends of earlier attempts that are remembered beside the job; the store keeps all attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What is remembered of one job from tick to tick: the state of record, one row of the store."""

    key: JobKey
    life: Lifecycle
    bucket: str
    observation: Observation
    """Latest of the current attempt, listed or ended."""
    details: Details = NO_DETAILS
    log: LogFacts = NO_LOG
    run: RunFacts = NO_RUN
    flags: tuple[Flag, ...] = ()
    depends_on: tuple[Dependency, ...] = ()
    """As when last visible: schedulers forget a dependency once it is satisfied (CHAIN-1)."""
    predecessor: str | None = None
    successor: str | None = None
    first_seen_at: datetime | None = None
    past: tuple[PastEnd, ...] = ()
    """Ends of its earlier attempts, oldest first (CHAIN-5)."""
    row: int | None = None
    """The store's own number for this job; None until it is stored."""
    version: int = 0
    """How often the store has written it. A writer that holds an older one is refused, so no step is lost or doubled."""
    look_at: datetime | None = None
    """When time alone could change its sign: it is examined again by then even if nothing else changed."""

    @property
    def ref(self) -> JobRef:
        return self.key.ref

    def having(self, **changes: object) -> Held:
        """A copy with changes."""
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One job, now: the remembered, the seen, and its surroundings."""

    held: Held
    seen: Seen
    limits: Limits
    observation: Observation
    """Latest of the current attempt: listed now, or ended, or else the remembered one."""
    new_attempt: bool = False
    """The observation is of a later attempt of the same job than the one held."""
    log: LogFacts = NO_LOG
    run: RunFacts = NO_RUN
    followed: Followed | None = None
    trials: TrialFacts | None = None
    """Its trials as read from where they lie; None where no place is known or none is read."""
    successor: str | None = None
    """Id of the job that depends on this one, seen now or remembered."""
    successor_live: bool = False
    """It runs or waits, or ran after this one ended."""
    absences: int = 0
    """Good readings in a row, this one included, that did not list it."""
    evidence_source: str = "queue"
    """Where ``observation`` was read: ``queue``, ``accounting``, ``record``."""
    hung: Finding | None = None
    """A hard finding that it hangs, from a detector or a probe (LIVE-5)."""
    cleared: str | None = None
    """Which newer verdict of this attempt, with all its evidence, does not say that it hangs."""

    @property
    def silence_allowed(self) -> timedelta:
        """How long it may be without progress: the larger of the floor and a multiple of its own cadence (LIVE-2).

        While too few gaps are known to name a cadence, twice the longest of them: steps of an hour are slow from the first on.
        """
        limits, cadence = self.limits, self.log.cadence
        if cadence is not None:
            return max(limits.silence_floor, cadence * limits.silence_multiple)
        return max(limits.silence_floor, 2 * timedelta(seconds=max(self.log.gaps, default=0.0)))


ENDED_AS = {
    "completed": Outcome.COMPLETED,
    "failed": Outcome.FAILED,
    "cancelled": Outcome.CANCELLED,
    "timed_out": Outcome.TIMED_OUT,
    "handed_on": Outcome.HANDED_ON,
    "out_of_memory": Outcome.OUT_OF_MEMORY,
    "node_failed": Outcome.NODE_FAILED,
    "preempted": Outcome.PREEMPTED,
    "vanished": Outcome.VANISHED,
}
"""Sign (by its word) to outcome: the two vocabularies agree wherever a sign ends a life."""
