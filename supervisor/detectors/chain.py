"""Did its time run out, and does somebody go on? Is a link left over past the end? (CHAIN-1, CHAIN-3, CHAIN-4)"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from supervisor.detectors import quoting
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Quote, Severity
from supervisor.model.job import Outcome


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """A normal restart is said with its successor's name; a broken chain is a fault."""
    outcome = facts.held.life.outcome
    if outcome is Outcome.HANDED_ON:
        text = f"time limit; goes on as {facts.successor}"
        yield Finding("CHAIN-1", Severity.NOTE, text, quoting.scheduler(facts), key="CHAIN")
    elif outcome is Outcome.TIMED_OUT:
        words = Quote(facts.evidence_source, None, facts.observation.scheduler_state)
        lost = "; traces may be stranded on disk" if facts.held.bucket == "datagen" else ""
        text = f"time limit reached and no successor runs or waits{lost}"
        yield Finding("CHAIN-4", Severity.FAULT, text, (words,), key="CHAIN")
    elif outcome is Outcome.COMPLETED and facts.successor is not None and facts.successor_live:
        yield from _left_over(facts)
    elif outcome is Outcome.COMPLETED:
        yield from _short(facts)


def _left_over(facts: Facts) -> Iterable[Finding]:
    """CHAIN-3: done at its final step, by its own word or its counter, while the next link still waits or runs."""
    run = facts.followed
    if run is None:
        return
    summary, step, total = run.summary, run.summary.progress.step, run.summary.progress.total
    if step is None or total is None or step < total:
        return
    quotes = quoting.place(run, summary.finished) or quoting.place(run, summary.last_step)
    if quotes:
        text = f"done at its final step {total}, and its successor {facts.successor} is left over; recommended: cancel that one"
        yield Finding("CHAIN-3", Severity.WATCH, text, quotes, key="CHAIN")


def _short(facts: Facts) -> Iterable[Finding]:
    """CHAIN-3, FAIL-3: exit status 0 is not the end of the work where the log stops before the final step and never says so."""
    run = facts.followed
    if run is None:
        return
    summary, step, total = run.summary, run.summary.progress.step, run.summary.progress.total
    if step is None or total is None or step >= total or summary.finished is not None:
        return
    quotes = quoting.place(run, summary.last_step)
    if quotes:
        text = f"ended with exit status 0 at step {step} of {total}; its log does not say that the work was done"
        yield Finding("CHAIN-3", Severity.WATCH, text, quotes, key="CHAIN")
