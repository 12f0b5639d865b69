"""Trials of agents: where a job leaves them, what was read there, and what they add up to.

*Not seen is a value*: a place that could not be read is ``TrialsUnread`` with its reason, never a count of 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from supervisor.model.findings import Quote
from supervisor.model.readings import TrialFigures

RESULT = "result.json"
"""What a trial that ended leaves in its folder; a job of many trials leaves one of its own beside those folders."""
NO_TIME = "no time was left for it in this look"
"""Reason of a place that other places left no time for: it is asked for first the next time."""
NONE_ENDED = "no trial has ended"
"""Reason of a sample without files: the place was read, and trials may have begun there."""
NOT_THERE = "not there"
"""Reason of a place that was looked at and holds nothing (yet): no failure, and no count either."""
CURSOR = "trials of "
"""Begins the path of a log cursor that keeps counts of trials instead of an offset into a log."""


@dataclass(frozen=True, slots=True)
class TrialPlace:
    """Where one job's trials lie: a folder on its cluster's file system, or a prefix in an object store."""

    where: str
    """Absolute path (``~/`` allowed) or ``s3://bucket/prefix``; no slash at its end."""
    found_in: str
    """What said so, for people: ``trial_stores``, ``--jobs-dir in its command``, ``trials_dir in its log``."""
    of_jobs: bool = False
    """It holds folders of jobs, and which of them is this one's is not told: one level lies between it and the trials."""
    sure: bool = True
    """Said by somebody; False for a place that is only likely, whose absence means nothing."""

    @property
    def in_object_store(self) -> bool:
        return "://" in self.where


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsWanted:
    """What to read of one job's trials. All numbers are bounds."""

    job_id: str
    place: TrialPlace
    since_s: int = 0
    """Folders (objects) changed before this were counted already; seconds since 1970 by the clock of the place."""
    known: frozenset[str] = frozenset()
    """Trials changed since then that were counted already."""
    started_s: int = 0
    """When this attempt of the job began, by the clock of the place; 0: not known."""
    results: int = 500
    result_bytes: int = 2**20
    """A larger result is told and not read."""
    total_bytes: int = 8 * 2**20
    entries: int = 20_000
    """Entries of a folder, or objects, that are looked at in one go."""
    newest: bool = False
    """Newest first, for a sample; else oldest first, so that whatever is left out is read next time."""
    after: str = ""
    """Object stores: the key after which an unfinished listing goes on (``TrialsSeen.after``)."""


@dataclass(frozen=True, slots=True)
class TrialFile:
    """One result. ``data`` None: it is there and was not read, for ``reason``."""

    name: str
    """The trial's folder."""
    path: str
    """Where it lies, whole, for quotes."""
    changed_s: int
    """Seconds since 1970, by the clock of the place: when its folder (object) last changed."""
    size: int
    data: bytes | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsSeen:
    """A whole and good look at one job's trials, within the bounds that were set."""

    where: str
    """The folder or prefix itself, where the place left it open."""
    begun: int | None
    """Folders of trials; in an object store, those that this part of its listing met first."""
    results: tuple[TrialFile, ...]
    """Results not counted before, in the order asked for."""
    left: int = 0
    """Further results that the bounds left out (at least so many)."""
    job: TrialFile | None = None
    """The job's own result, where there is one."""
    too_many: bool = False
    """More entries than may be looked at: nothing was read but the job's own result."""
    after: str = ""
    """Object stores: where the listing goes on next time; empty once it reached its end."""


@dataclass(frozen=True, slots=True)
class TrialsUnread:
    """Nothing is known of the trials now."""

    reason: str
    asked: str
    """What was run or asked, word for word."""
    output: str = ""
    """What came back, word for word, cut to a bounded length."""

    @property
    def not_there(self) -> bool:
        return self.reason.startswith(NOT_THERE)


TrialRead = TrialsSeen | TrialsUnread


@runtime_checkable
class TrialReader(Protocol):
    """A backend whose jobs' files can be read from where the daemon asks: Slurm's login nodes, a host."""

    async def read_trials(self, wanted: Sequence[TrialsWanted], now: datetime) -> Mapping[str, TrialRead]:
        """By job id; each wanted one has an answer. One round trip for all (POLL-6); raises nothing that is expected."""
        ...


@dataclass(frozen=True, slots=True)
class Recent:
    """One of the newest trials that ended."""

    name: str
    changed_s: int
    passed: bool | None
    """Scored above 0; None where it has no reward that counts."""
    turns: int | None
    instant: bool
    """Ended at once, unsolved and without a token (EVAL-2)."""
    exception: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCounts:
    """Trials counted over the whole run."""

    figures: TrialFigures
    """``exact`` is False where some results were not counted (yet): then its shares are those of what was."""
    begun: int | None
    avg_turns: float | None = None
    """Over trials that say how many they took (DATAGEN-1)."""
    turns_of: int = 0
    """How many said so."""
    null_tokens: int = 0
    """Ended without a token, by an agent that asks a model."""
    unread: int = 0
    """Results that are there and could not be read or understood: counted as ended, and as nothing else."""
    left: int = 0
    """Results that wait to be counted."""
    recent: tuple[Recent, ...] = ()
    """Newest that ended, oldest first; bounded."""
    job_ended: bool = False
    """The job's own result file says that it ended in order."""
    last_end_s: int | None = None
    """When the newest one ended, by the clock of the place."""
    rate_per_s: float | None = None
    """Ends per second over the newest ones; None on too few."""
    quotes: Mapping[str, Quote] = field(default_factory=dict)
    """By exception, and under ``instant``, ``turns``, ``ended`` and ``done`` (the job's own): the newest line that shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFacts:
    """What is known of one job's trials now."""

    place: TrialPlace
    where: str
    """As read; the place's own word where it never was."""
    counts: TrialCounts | None = None
    """As of ``read_at``; None where it was never read."""
    read_at: datetime | None = None
    """Our clock, UTC: the last good look."""
    last_end_at: datetime | None = None
    """When the newest trial ended, UTC, by our clock."""
    unread: TrialsUnread | None = None
    """Why the latest look told nothing; None if it did."""
    clock_offset: timedelta = timedelta(0)
    """Clock of the place minus ours."""

    @property
    def fresh(self) -> bool:
        """Whether ``counts`` is of the latest look."""
        return self.counts is not None and self.unread is None

    def newest(self, since: datetime | None) -> tuple[Recent, ...]:
        """The newest that ended since then (the attempt's start): what an earlier attempt left says nothing of this one."""
        recent = self.counts.recent if self.counts is not None else ()
        if since is None:
            return recent
        began = (since + self.clock_offset - timedelta(seconds=1)).timestamp()
        return tuple(each for each in recent if each.changed_s >= began)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSample:
    """The newest results of one job, for an evidence folder: files, or why there are none."""

    place: TrialPlace | None
    where: str = ""
    files: tuple[tuple[str, bytes], ...] = ()
    """(path below the place, content), newest first."""
    begun: int | None = None
    missing: TrialsUnread | None = None
    """Why there are no files: what was asked, and what came back."""
    left_out: int = 0
    """Newest results that were there and not taken, since they are larger than allowed."""
