"""Numbers that rules use. Values come from ``data/limits.toml`` and the config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Thresholds of what a run's own numbers may be, for one bucket; names, units and reasons as in ``data/limits.toml``.

    Durations are seconds; shares are from 0 to 1.
    """

    trend_points: int
    streak_points: int
    recovery_points: int
    grad_norm_high: float
    grad_norm_times: float
    grad_norm_floor: float
    grad_explosion_times: float
    grad_explosion_floor: float
    entropy_off: float
    log_ratio_times: float
    log_ratio_floor: float
    log_ratio_max_bound: float
    pass_rate_low: float
    pass_rate_trials: int
    tis_ratio_low: float
    tis_ratio_high: float
    tis_capped_high: float
    clip_ratio_high: float
    log_ratio_high: float
    dead_engine_turns: float
    dead_engine_trials: int
    trials_to_judge: int
    refusals: int
    zombie_s: float
    engine_idle_s: float
    restart_loss_steps: int
    stale_checkpoint_intervals: float
    repeats: int
    interval_spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gating:
    """Thresholds of the deep probe's gates, for one bucket; names, units and reasons as in ``data/limits.toml``."""

    hang_multiple: float
    idle_share: float
    doomed_repeats: int
    gpu_idle_percent: float
    gpu_busy_percent: float
    kv_idle_percent: float
    oversubscribed_times: float
    coordinator_busy_percent: float
    bring_up_trials_s: float
    lifecycle_share_high: float
    setup_tail_s: float


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
    health: Health
    gating: Gating
    exempt: tuple[str, ...] = ()
    """Parts of job names whose findings are observations, not calls to act (RL-3, EVAL-4)."""


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
