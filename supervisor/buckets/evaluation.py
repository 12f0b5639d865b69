"""Evaluation of models on benchmarks (EVAL-1)."""

from __future__ import annotations

from supervisor.model.kinds import Kind, Shown

KIND = Kind(
    name="eval",
    title="Eval",
    prefixes=("eval-", "eval__", "eval_", "dcagent2/"),
    words=("eval", "evals"),
    commands=(
        "lm_eval",
        "lm-eval",
        "lighteval",
        "inspect eval",
        "evalplus",
        "eval_harbor",
        "run_eval",
        "eval.py",
        "evaluate",
    ),
    needs_step=False,
    columns=(
        Shown(title="Trials", cell="steps", key="trials"),
        Shown(title="pass-rate", cell="metric", key="pass_rate"),
        Shown(title="Mean", cell="metric", key="mean"),
        Shown(title="top exc", cell="word", key="top_exception"),
        Shown(title="Infra", cell="infra", drop=2),
    ),
    trend="mean",
    exempt=("DCAgent2/",),
    cadence="a trial ends every few minutes; the last ones of a hard set take up to their time limit",
    ladder="eval",
)
