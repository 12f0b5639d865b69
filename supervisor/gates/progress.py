"""How long the job has been without progress, by its own log as captured and by what was known before (LIVE-2 to LIVE-4).

Ages are by our clock: when the supervisor saw the progress. What lines bear is a wall clock of an unknown zone, and each program in
one log may have its own, so no age is taken from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from supervisor.gates import said
from supervisor.model.findings import Quote
from supervisor.model.logs import LogState
from supervisor.model.probe import Case, Exhibit, Role
from supervisor.model.readings import Counter, Mark, RunSummary

COUNTED = frozenset({"train", "epoch", "buffer", "trials", "eval"})
"""Roles of bars that count the work itself."""
OF_TRIALS = ("datagen", "eval")
"""Kinds of work whose progress is counted in trials, from where they lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One log of the folder, and what the dialects read in it."""

    exhibit: Exhibit
    file: str
    run: RunSummary | None
    lines: Sequence[str]

    @property
    def newest(self) -> Mark | None:
        return self.run.last_progress if self.run is not None else None

    @property
    def line(self) -> int:
        """Of its newest progress; 0 where it holds none."""
        return (self.newest.said.line or 0) if self.newest is not None else 0

    @property
    def speaks(self) -> bool:
        """A dialect understood some of it, so that bare output is no progress."""
        run = self.run
        return run is not None and any((run.last_progress, run.last_engine, run.last_heartbeat, run.last_bring_up))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Where the work stands."""

    log: Log
    age: timedelta | None
    """Since its newest progress, or since its start where it has made none; None where neither is known."""
    quotes: tuple[Quote, ...]
    """The newest progress; where there is none, the newest output."""
    words: str
    """What is that old: ``its newest progress (step 120 of 800)``, ``no step yet``."""
    step: int | None = None
    total: int | None = None
    moved: bool = False
    """It progressed since the last look, so ``age`` is only what a counter that stands says by its own clock."""
    bring_up: bool = False
    """No progress of this attempt yet."""
    unsure: str = ""
    """Why ``age`` may be too great."""


def logs(case: Case) -> tuple[Log, ...]:
    return tuple(
        Log(exhibit=each, file=each.file, run=case.runs.get(each.file), lines=case.lines(each.file))
        for each in case.read(Role.LOG)
        if each.file is not None
    )


def stand(case: Case, found: Sequence[Log]) -> Stand:
    """``found``: at least one log. The one that progressed furthest speaks for the job, not the newest line of any."""
    moved = [log for log in found if _moved(case, log)]
    log = max(moved or found, key=_weight)
    run, known, speaks = log.run, case.subject.log, _speaks(case, log)
    step, total = (run.progress.step, run.progress.total) if run is not None else (None, None)
    quotes = said.mark(case, log.file, log.newest) or said.last_line(case, log.file)
    here = Stand(log=log, age=None, quotes=quotes, words=_words(log, step, total, speaks), step=step, total=total)
    stands = timedelta(seconds=_standing(run)) if speaks and run is not None else timedelta(0)
    if moved:
        return replace(here, age=stands, moved=True)
    since = known.progress_at or (None if speaks else known.last_output_at)
    if since is not None:
        # Progress is first seen when it is read, which may be long after it was written: no later than the newest output.
        # Trials that end are progress that no log need tell.
        written = since if case.subject.bucket in OF_TRIALS else min(since, known.last_output_at or since)
        return replace(here, age=max(case.at - written, stands), unsure=_unsure(case, log))
    if log.newest is not None or (not speaks and any(line.strip() for line in log.lines)):
        return here
    started = case.subject.seen.started_at
    nothing = "no step yet" if speaks else "no output yet"
    return replace(here, age=case.at - started if started is not None else None, words=nothing, bring_up=True)


def _speaks(case: Case, log: Log) -> bool:
    return case.subject.log.speaks_steps or log.speaks


def _weight(log: Log) -> tuple[bool, bool, int, int]:
    step = log.run.progress.step if log.run is not None else None
    return (log.newest is not None, log.speaks, -1 if step is None else step, len(log.lines))


def _words(log: Log, step: int | None, total: int | None, speaks: bool) -> str:
    if log.newest is None:
        return "its newest progress, older than what was read of its log," if speaks else "its newest output"
    if step is None:
        return "its newest progress"
    of = f" of {total}" if total is not None else ""
    return f"its newest progress (step {step}{of})"


def _moved(case: Case, log: Log) -> bool:
    """Whether this log shows progress that came after the last look at it."""
    if _further(case, log) and log.exhibit.cut == 0:
        return True
    stat = case.subject.log.stat
    if stat is None or stat.state is not LogState.READ or stat.path != log.exhibit.source:
        return False
    if _speaks(case, log):
        return log.newest is not None and log.exhibit.cut + log.newest.said.offset >= stat.size
    return log.exhibit.cut + log.exhibit.bytes > stat.size


def _further(case: Case, log: Log) -> bool:
    """A later step than was known. Datagen and eval count trials, in their store too."""
    step = log.run.progress.step if log.run is not None else None
    known = case.subject.log.step
    return case.subject.bucket not in OF_TRIALS and step is not None and known is not None and step > known


def _unsure(case: Case, log: Log) -> str:
    """Why the age of its progress may be too great."""
    stat = case.subject.log.stat
    if stat is None or stat.state is not LogState.READ:
        return "its log was not read at the last look, so how long it stands is not known"
    if _further(case, log):  # of a log without its beginning, what a bar counts may be mistaken
        return "the end of its log shows a later step than was known"
    return ""


def _standing(run: RunSummary) -> float:
    """Seconds for which its newest progress, a counter, stands by the counter's own clock; 0 where it is none.

    Clocks of different programs in one log are not compared: they may be of different zones.
    """
    newest = run.last_progress
    told = [
        counter.frozen_s
        for counter in run.counters
        if newest is not None and counter.role in COUNTED and counter.since.said.offset >= newest.said.offset
    ]
    return max((each for each in told if math.isfinite(each)), default=0.0)


def after(place: Mark | None, log: Log) -> bool:
    """Whether a mark stands below the newest progress of its log."""
    return place is not None and (log.newest is None or place.said.offset > log.newest.said.offset)


def at_or_after(place: Mark, log: Log) -> bool:
    return log.newest is None or place.said.offset >= log.newest.said.offset


LAST_LINES = 200


def recent(place: Mark | None, log: Log, case: Case) -> bool:
    """Whether it stands among the last lines of a log that is still written to."""
    if place is None or place.said.line is None or place.said.line <= len(log.lines) - LAST_LINES:
        return False
    written = case.subject.log.last_output_at
    return written is not None and case.at - written <= case.subject.silence_allowed


def noise(case: Case, log: Log) -> tuple[str, tuple[Quote, ...]]:
    """What goes on without progress: engines, heartbeats, a counter that stands still (LIVE-3, LIVE-4)."""
    run = log.run
    if run is None:
        return "", ()
    counter = standing_still(run)
    if counter is not None:
        of = f"/{counter.total}" if counter.total is not None else ""
        quotes = said.mark(case, log.file, counter.since) + said.mark(case, log.file, counter.latest)
        return f"its counter stands at {counter.done}{of}", quotes
    for words, place in (("engines go on printing", run.last_engine), ("heartbeats go on", run.last_heartbeat)):
        if after(place, log) and (quotes := said.mark(case, log.file, place)):
            return words, quotes
    return "", ()


def standing_still(run: RunSummary) -> Counter | None:
    for counter in run.counters:
        left = counter.total is None or counter.done < counter.total
        if counter.role in COUNTED and left and counter.frames > 1 and counter.frozen_s > 0:
            return counter
    return None
