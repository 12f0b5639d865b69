"""Numbers that rules use, and what tells one kind of job from another. Values come from ``data/limits.toml`` and the config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Thresholds in force for one bucket. Each has its reason in ``data/limits.toml``."""

    silence_floor: timedelta
    silence_multiple: float
    bring_up_limit: timedelta
    pending_notice: timedelta
    absences_to_call_gone: int
    suspect_look: timedelta
    cadence_points: int
    """Observed gaps needed before a job's own cadence counts (LIVE-2)."""
    timeout_slack: timedelta
    """How long a timed-out job's successor may take to show itself before the chain counts as broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of work: all that is particular to it, in one value (``buckets/<name>.py``)."""

    name: str
    title: str
    prefixes: tuple[str, ...] = ()
    """Job names that begin so belong to it (BUCKET-1)."""
    needs_step: bool = False
    """Whether its dialects count steps, so that bare output is not yet progress (LIVE-3, LIVE-6)."""
    columns: tuple[str, ...] = ()
    """Its own columns, by metric key, between the job's name and the trend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """What is in force: limits per bucket, and name patterns."""

    limits: Limits
    """For every bucket without its own."""
    per_bucket: Mapping[str, Limits] = field(default_factory=dict)
    prefixes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By bucket, in order: first match wins."""

    def limits_of(self, bucket: str) -> Limits:
        return self.per_bucket.get(bucket, self.limits)
