"""Did it end other than well? (FAIL-1, POLL-4)"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Quote, Severity
from supervisor.model.job import Outcome

_WORDS = {
    Outcome.FAILED: ("FAIL-1", Severity.FAULT, "failed"),
    Outcome.OUT_OF_MEMORY: ("FAIL-1", Severity.FAULT, "killed for want of memory"),
    Outcome.NODE_FAILED: ("FAIL-1", Severity.FAULT, "its node failed"),
    Outcome.PREEMPTED: ("FAIL-1", Severity.WATCH, "preempted and not requeued"),
    Outcome.CANCELLED: ("FAIL-1", Severity.NOTE, "cancelled"),
    Outcome.VANISHED: ("POLL-4", Severity.WATCH, "gone: neither listed nor found ended"),
}


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """Says how it ended in the scheduler's own words; why is the diagnosis's matter."""
    outcome = facts.held.life.outcome
    if outcome not in _WORDS:
        return
    rule, severity, words = _WORDS[outcome]
    seen = facts.observation
    how = [f"exit code {seen.exit_code}"] if seen.exit_code else []
    how += [f"signal {seen.signal}"] if seen.signal else []
    how += [seen.reason] if seen.reason and seen.reason != "None" else []
    text = f"{words} ({', '.join(how)})" if how else words
    quotes = (Quote(facts.evidence_source, None, seen.scheduler_state),) if outcome is not Outcome.VANISHED else ()
    yield Finding(rule, severity, text, quotes)
