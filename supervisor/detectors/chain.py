"""Did its time run out, and does somebody go on? (CHAIN-1, CHAIN-4)"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Quote, Severity
from supervisor.model.job import Outcome


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """A normal restart is said with its successor's name; a broken chain is a fault."""
    outcome = facts.held.life.outcome
    if outcome is Outcome.HANDED_ON:
        yield Finding("CHAIN-1", Severity.NOTE, f"time limit; goes on as {facts.successor}", key="CHAIN")
    elif outcome is Outcome.TIMED_OUT:
        words = Quote(facts.evidence_source, None, facts.observation.scheduler_state)
        lost = "; traces may be stranded on disk" if facts.held.bucket == "datagen" else ""
        text = f"time limit reached and no successor runs or waits{lost}"
        yield Finding("CHAIN-4", Severity.FAULT, text, (words,), key="CHAIN")
