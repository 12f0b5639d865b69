"""Does output go on without progress? Counters that stand still, heartbeats, engines of a dead trainer (LIVE-3, LIVE-4)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from supervisor.detectors import quoting, trials
from supervisor.model.facts import Facts, Followed
from supervisor.model.findings import Finding, Quote, Severity
from supervisor.model.job import JobState
from supervisor.model.lifecycle import Phase
from supervisor.model.readings import Counter, RunSummary

COUNTED = frozenset({"train", "epoch", "buffer", "trials", "eval"})
"""Roles of bars that count the work itself; loading and data bars do not."""
RULES = {"eval": "EVAL-2", "datagen": "DATAGEN-3"}
"""Kinds of work whose own rule says the same of their trials."""
APART = timedelta(seconds=60)
"""Output this much newer than the progress is output without progress."""


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """One finding at most. Says what is silent; silence of the whole log is ``silence``'s."""
    life, run = facts.held.life, facts.followed
    if run is None or not life.phase.live or facts.observation.state is not JobState.RUNNING:
        return
    if facts.held.bucket in RULES and _all_done(facts):
        return  # nothing is left to progress: a zombie, or a run that wraps up
    counter = None if trials.moving(facts, now) else standing_still(facts, run.summary)
    doubted = life.phase in (Phase.SUSPECT, Phase.WEDGED)
    if doubted and goes_on(facts):
        yield from _without_progress(facts, run, counter)
    elif not doubted and counter is not None:
        yield _frozen(facts, run, counter)


def _all_done(facts: Facts) -> bool:
    done, total = facts.log.step, facts.log.total
    return done is not None and total is not None and done >= total


def goes_on(facts: Facts) -> bool:
    """Output came after the last progress, by a dialect's judgement of what progress is."""
    output, progress = facts.log.last_output_at, facts.log.progress_at
    return facts.log.speaks_steps and output is not None and progress is not None and output - progress > APART


def standing_still(facts: Facts, summary: RunSummary) -> Counter | None:
    """A counter that, by its own clock, has shown the same N for longer than the job may be silent, with work left.

    Where something else has moved since N was first shown, such as an evaluation between two steps, it did not stand still.
    """
    allowed = facts.silence_allowed.total_seconds()
    last = summary.last_progress.said.offset if summary.last_progress is not None else -1
    for counter in summary.counters:
        left = counter.total is None or counter.done < counter.total
        alone = counter.latest.said.text and counter.since.said.offset >= last
        if counter.role in COUNTED and left and alone and counter.frames > 1 and counter.frozen_s > allowed:
            return counter
    return None


def _without_progress(facts: Facts, run: Followed, counter: Counter | None) -> Iterable[Finding]:
    summary, last = run.summary, run.summary.last_progress
    since = f"{facts.log.progress_at:%Y-%m-%d %H:%M:%SZ}"
    before = quoting.place(run, last)
    place = last.said.offset if last is not None else -1
    engine, beat = summary.last_engine, summary.last_heartbeat
    if engine is not None and engine.said.offset > place and (found := quoting.place(run, engine)):
        text = f"engines go on printing, {_who(facts)} has made no progress since {since}"
        yield _finding(facts, "LIVE-4", text, (*found, *before))
    elif counter is not None:
        yield _frozen(facts, run, counter)
    else:
        found = quoting.place(run, beat) if beat is not None and beat.said.offset > place else ()
        if found or before:
            yield _finding(facts, "LIVE-3", f"output goes on without progress since {since}", (*found, *before))


def _frozen(facts: Facts, run: Followed, counter: Counter) -> Finding:
    of = f"/{counter.total}" if counter.total is not None else ""
    minutes = facts.silence_allowed.total_seconds() / 60
    text = f"its counter stands at {counter.done}{of} beyond the {minutes:.0f} min that its cadence allows, while lines arrive"
    quotes: tuple[Quote, ...] = quoting.place(run, counter.since) + quoting.place(run, counter.latest)
    return _finding(facts, "LIVE-3", text, quotes)


def _finding(facts: Facts, rule: str, text: str, quotes: Iterable[Quote]) -> Finding:
    own = RULES.get(facts.held.bucket)
    return Finding(own or rule, Severity.WATCH, text, quoting.distinct(quotes), key=f"stall/{own or rule}")


def _who(facts: Facts) -> str:
    return {"eval": "the evaluation", "datagen": "the run"}.get(facts.held.bucket, "the trainer")
