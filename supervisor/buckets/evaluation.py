"""Evaluation of models on benchmarks (EVAL-1)."""

from __future__ import annotations

from supervisor.model.rulebook import Kind

KIND = Kind(
    name="eval",
    title="Eval",
    prefixes=("eval-", "eval__", "eval_"),
    needs_step=False,
    columns=("trials", "pass_rate", "top_exception"),
)
