"""Does it wait for long, or for something that can never come? (LIVE-7)"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from supervisor.detectors import quoting
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Severity
from supervisor.model.job import JobState

HOPELESS = {
    "DependencyNeverSatisfied": "its dependency can never be satisfied",
    "PartitionTimeLimit": "it asks for more time than its partition allows",
    "PartitionConfig": "it asks for what its partition does not have",
    "BadConstraints": "no node has the features it asks for",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its QOS is not valid",
    "AccountNotAllowed": "its account may not use this partition",
    "QOSNotAllowed": "its QOS may not use this partition",
    "JobHoldMaxRequeue": "it was requeued too often and is held",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "it is held by its user",
    "Unschedulable": "no node can take it as it is",
}
"""Reasons that do not go away by waiting, in plain words."""


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """Told to the owner; nothing is changed."""
    seen = facts.observation
    if seen.state is not JobState.PENDING or not facts.held.life.phase.live:
        return
    reason = seen.reason or ""
    word = reason.split(",")[0].split("(")[0].strip()
    if word in HOPELESS:
        text = f"will not start by itself: {HOPELESS[word]} ({reason})"
        yield Finding("LIVE-7", Severity.WATCH, text, quoting.scheduler(facts))
    elif seen.submitted_at is not None and now - seen.submitted_at >= facts.limits.pending_notice:
        why = f" ({reason})" if reason else ""
        text = f"pending since {seen.submitted_at:%Y-%m-%d %H:%MZ}{why}"
        yield Finding("LIVE-7", Severity.NOTE, text, quoting.scheduler(facts))
