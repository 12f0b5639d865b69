"""Supervised fine-tuning (SFT-1)."""

from __future__ import annotations

from supervisor.model.rulebook import Kind

KIND = Kind(name="sft", title="SFT", prefixes=("sft__", "sft-", "sft_"), needs_step=True, columns=("loss", "grad_norm"))
