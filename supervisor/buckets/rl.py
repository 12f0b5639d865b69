"""Reinforcement learning (RL-1)."""

from __future__ import annotations

from supervisor.model.kinds import Kind, Shown

KIND = Kind(
    name="rl",
    title="RL",
    prefixes=("rl__", "rl-", "rl_"),
    words=("grpo", "rloo", "rlvr"),
    commands=(
        "skyrl_train",
        "skyrl_entrypoint",
        "skyrl.train",
        "verl.trainer",
        "main_ppo",
        "openrlhf.cli.train_ppo",
        "grpo",
        "nemo_rl",
        "rl_train",
        "train_rl",
    ),
    needs_step=True,
    columns=(
        Shown(title="Step", cell="steps"),
        Shown(title="Reward", cell="metric", key="reward"),
        Shown(title="Policy Loss", cell="metric", key="policy_loss"),
        Shown(title="Grad Norm", cell="metric", key="grad_norm"),
        Shown(title="Entropy", cell="metric", key="entropy"),
        Shown(title="TIS |log r|", cell="metric", key="tis_log_ratio"),
        Shown(title="pass@N", cell="metric", key="pass_at_n", drop=10),
    ),
    trend="reward",
    good="up",
    exempt=("zclip", "z_clip", "staleclip", "stale_clip", "maxgn09_hint", "shaped_entropy"),
    regimes=True,
    cadence="a step every few minutes to tens of minutes: rollouts first, then training, then a weight sync",
    ladder="rl-agentic or rl-standard, by flavor",
)
