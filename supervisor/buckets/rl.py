"""Reinforcement learning (RL-1)."""

from __future__ import annotations

from supervisor.model.rulebook import Kind

KIND = Kind(
    name="rl",
    title="RL",
    prefixes=("rl__", "rl-", "rl_"),
    needs_step=True,
    columns=("reward", "policy_loss", "grad_norm", "entropy", "tis_log_ratio"),
)
