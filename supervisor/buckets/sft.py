"""Supervised fine-tuning (SFT-1)."""

from __future__ import annotations

from supervisor.model.kinds import Kind, Shown

KIND = Kind(
    name="sft",
    title="SFT",
    prefixes=("sft__", "sft-", "sft_"),
    words=("finetune", "midtrain"),
    commands=(
        "llamafactory-cli train",
        "llamafactory",
        "run_sft",
        "sft.py",
        "trl sft",
        "axolotl",
        "torchtune",
        "torchtitan",
        "train_lm",
        "pretrain_gpt",
        "sft_train",
        "train_sft",
    ),
    needs_step=True,
    columns=(
        Shown(title="Step", cell="steps"),
        Shown(title="Loss", cell="metric", key="loss"),
        Shown(title="Grad Norm", cell="metric", key="grad_norm"),
        Shown(title="LR", cell="metric", key="learning_rate", drop=10),
    ),
    trend="loss",
    good="down",
    grid=True,
    cadence="a line every few steps, seconds to minutes apart; minutes of silence at a save or an evaluation",
    ladder="sft, or sft hub-only",
)
