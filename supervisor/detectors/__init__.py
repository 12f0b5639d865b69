"""The eyes: one question each, facts in, findings out. Add one by a file of its own and its name here."""

from __future__ import annotations

from datetime import datetime

from supervisor.detectors import (
    bands,
    batches,
    bringup,
    chain,
    checkpoints,
    collapse,
    ending,
    engines,
    evals,
    gradients,
    pending,
    presence,
    repeats,
    restarts,
    silence,
    stall,
    trials,
)
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding

DETECTORS = (
    silence.look,
    stall.look,
    bringup.look,
    pending.look,
    collapse.look,
    gradients.look,
    batches.look,
    engines.look,
    evals.look,
    trials.look,
    restarts.look,
    repeats.look,
    checkpoints.look,
    chain.look,
    ending.look,
    presence.look,
    bands.look,
)
"""In the order in which a row shows what they find."""


def examine(facts: Facts, now: datetime) -> tuple[Finding, ...]:
    """All that the eyes see of one job now. ``facts.held.life`` is the life after this reading's step."""
    return tuple(finding for look in DETECTORS for finding in look(facts, now))
