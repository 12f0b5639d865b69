"""What do the trials themselves say, where they lie? Sandboxes never built, a tunnel that carries nothing, traces left behind,
a place that cannot be read (PROBE-11, EVAL-2, DATAGEN-3, FIND-4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from supervisor.detectors import quoting
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Quote, Severity
from supervisor.model.job import Outcome
from supervisor.model.readings import TrialFigures
from supervisor.model.trials import NO_TIME, Recent, TrialCounts

NEVER_BUILT = "AddTestsDirError"
NEARLY_ALL = 0.95
LEFT = (
    Outcome.TIMED_OUT,
    Outcome.FAILED,
    Outcome.OUT_OF_MEMORY,
    Outcome.NODE_FAILED,
    Outcome.PREEMPTED,
)
"""Ends after which nobody uploads what was made."""


@dataclass(frozen=True, slots=True)
class Tallied:
    """Figures of trials, with the quotes that show them: of the store where they were read, else of the log."""

    figures: TrialFigures
    facts: Facts
    from_store: bool

    def worst(self, *groups: str) -> tuple[str, tuple[Quote, ...]]:
        """The exception of these groups that was met most often, and the line that shows it; empty where there is none."""
        if not self.from_store:
            run, name = self.facts.followed, self.figures.worst(*groups)
            return name, quoting.spoken(run, self.figures.said.get(name)) if run is not None else ()
        met = [name for name, group in self.figures.groups.items() if group in groups]
        quoted = [name for name in met if quoting.counted(self.facts, name)]
        name = max(quoted, key=lambda each: self.figures.exceptions.get(each, 0), default="")
        return name, quoting.counted(self.facts, name)


def counts(facts: Facts) -> TrialCounts | None:
    return facts.trials.counts if facts.trials is not None else None


def newest(facts: Facts) -> tuple[Recent, ...]:
    """The newest trials that ended in this attempt, oldest first."""
    return facts.trials.newest(facts.observation.started_at) if facts.trials is not None else ()


def tallied(facts: Facts) -> Tallied | None:
    """The store's figures where they are whole and of this look, and a trial ended in this attempt; else the log's; None where
    neither tells."""
    read = counts(facts)
    if facts.trials is not None and read is not None and facts.trials.fresh and read.figures.exact and newest(facts):
        return Tallied(read.figures, facts, from_store=True)
    return Tallied(facts.followed.summary.trials, facts, from_store=False) if facts.followed is not None else None


def moving(facts: Facts, now: datetime) -> bool:
    """Whether trials ended within what its cadence allows, whatever a counter in its log shows."""
    ended = facts.trials.last_end_at if facts.trials is not None else None
    return ended is not None and now - ended <= facts.silence_allowed


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    if facts.trials is None:
        return
    if facts.held.life.phase.live:
        yield from _unread(facts, now)
        findings = [*_never_built(facts), *_nothing_through(facts)]
        for finding in findings:
            if facts.held.bucket == "eval" and quoting.exempt(facts):
                text = f"{finding.text}; calibration, exempt from actions"
                yield Finding(finding.rule, Severity.NOTE, text, finding.quotes, finding.key)
            else:
                yield finding
    yield from _stranded(facts)


def never_built(facts: Facts) -> bool:
    """Whether the newest trials all end without a sandbox."""
    recent, least = newest(facts), facts.limits.health.trials_to_judge
    return len(recent) >= least and all(each.exception == NEVER_BUILT for each in recent)


def _never_built(facts: Facts) -> Iterable[Finding]:
    quotes = quoting.counted(facts, NEVER_BUILT)
    if never_built(facts) and quotes:
        text = (
            f"all of its newest trials end in {NEVER_BUILT}: the sandbox was never built (image or dependency drift);"
            " on a data set known to be good it is not the data"
        )
        yield Finding("PROBE-11", Severity.FAULT, text, quotes, key="PROBE-11")


def _nothing_through(facts: Facts) -> Iterable[Finding]:
    """Trials that end as soon as they begin, unsolved and without a token: their requests reach no model."""
    recent, least = newest(facts), facts.limits.health.trials_to_judge
    if len(recent) < least or facts.held.bucket not in ("eval", "datagen") or never_built(facts):
        return
    instant = sum(each.instant for each in recent)
    if instant >= NEARLY_ALL * len(recent) and (quotes := quoting.counted(facts, "instant")):
        rule = "EVAL-2" if facts.held.bucket == "eval" else "DATAGEN-2"
        text = "its newest trials end as soon as they begin, without a token: the tunnel to the model carries nothing"
        yield Finding(rule, Severity.FAULT, text, quotes, key=f"{rule}/tokens")


def _stranded(facts: Facts) -> Iterable[Finding]:
    """DATAGEN-3: it ended before its end, and what it made lies where it made it."""
    read, where = counts(facts), facts.trials.where if facts.trials is not None else ""
    if facts.held.bucket != "datagen" or facts.held.life.outcome not in LEFT or read is None or "://" in where:
        return
    ended = read.figures.done or len(read.recent)
    if ended:
        quotes = quoting.counted(facts, "done") or quoting.counted(facts, "ended")
        text = (
            f"it ended before its end, and its traces lie in {where}: upload them before anything is cleaned up there"
        )
        yield Finding("DATAGEN-3", Severity.WATCH, text, quotes, key="DATAGEN-3/stranded")


def _unread(facts: Facts, now: datetime) -> Iterable[Finding]:
    """What cannot be read is said, not taken for nothing. A folder may not be there before the first trial begins."""
    trials = facts.trials
    if trials is None or trials.unread is None:
        return
    began = facts.observation.started_at
    early = began is None or now - began <= facts.limits.bring_up_limit
    if (trials.unread.not_there and (early or not trials.place.sure)) or trials.unread.reason == NO_TIME:
        return
    named = trials.place.found_in == "trial_stores"
    text = f"its trials in {trials.where} ({trials.place.found_in}) were not read: {trials.unread.reason}"
    quotes = (Quote(trials.unread.asked, None, trials.unread.output or trials.unread.reason),)
    yield Finding("FIND-4", Severity.WATCH if named else Severity.NOTE, text, quotes, key="FIND-4/trials")
