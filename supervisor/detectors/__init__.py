"""The eyes: one question each, facts in, findings out. Add one by a file of its own and its name here."""

from __future__ import annotations

from datetime import datetime

from supervisor.detectors import bringup, chain, ending, pending, presence, silence
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding

DETECTORS = (silence.look, bringup.look, pending.look, chain.look, ending.look, presence.look)


def examine(facts: Facts, now: datetime) -> tuple[Finding, ...]:
    """All that the eyes see of one job now. ``facts.held.life`` is the life after this reading's step."""
    return tuple(finding for look in DETECTORS for finding in look(facts, now))
