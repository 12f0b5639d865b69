"""What programs print in these stories, in their own forms; numbers are the stories'."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from random import Random

BEGAN = datetime(2026, 7, 1, 6, 0)
ENTRY = "\x1b[36m(skyrl_entrypoint pid=4100)\x1b[0m "


def rl_step(step: int, values: Mapping[str, float], at: datetime, total: int = 80) -> str:
    """One step of a SkyRL run with its JSON mirror: a bar's frame, then the line of metrics."""
    metrics = json.dumps({**values, "trainer/global_step": step}, sort_keys=True)
    bar = (
        f"Training Step Progress: {100 * step // total:3d}%|###       | {step}/{total} [1:00:00<3:00:00, 420.00s/it]\n"
    )
    return (
        f"{ENTRY}\x1b[32m{at:%Y-%m-%d %H:%M:%S}.120\x1b[0m | \x1b[1mINFO    \x1b[0m | skyrl_train.trainer:_log_metrics_stdout:1965 - "
        f"\x1b[1mWANDB_MIRROR kind=train step={step} metrics={metrics}\x1b[0m\n{bar}"
    )


def healthy(
    step: int, chance: Random, *, reward: float = 0.45, scale: float = 0.02, samples: int = 64, shaped: bool = False
) -> dict[str, float]:
    """A step's metrics as of a run in good health; ``scale`` is that of its gradient norm."""
    passed = round(samples * (reward + chance.uniform(-0.06, 0.06)))
    return {
        "reward/avg_raw_reward": (passed + (chance.uniform(0.1, 0.9) if shaped else 0)) / samples,
        "reward/avg_pass_at_8": min(1.0, reward + 0.2),
        "policy/policy_loss": chance.uniform(-0.1, 0.02),
        "policy/policy_entropy": 0.42 + chance.uniform(-0.03, 0.03) - 0.001 * step,
        "policy/raw_grad_norm": scale * chance.uniform(0.6, 1.7),
        "policy/ppo_clip_ratio": 0.0004,
        "policy/tis/imp_ratio_mean": chance.uniform(0.97, 1.04),
        "policy/tis/imp_ratio_capped_fraction": 0.0,
        "policy/tis/log_ratio_abs_mean": chance.uniform(0.008, 0.014),
        "policy/log_ratio_abs_max": chance.uniform(0.2, 0.4),
        "policy/rollout_train_prob_diff_mean": chance.choice([3.1e6, 5.2e8, 0.4]),
        "loss/avg_raw_advantages_abs": 0.3,
        "async/effective_batch_samples": samples,
    }


def rl_run(
    steps: Iterable[int],
    changes: Mapping[int, Mapping[str, float]] | None = None,
    *,
    seed: int = 7,
    began: datetime = BEGAN,
    **kind: object,
) -> str:
    """Steps seven minutes apart; ``changes``: values that differ from a healthy run's, by step."""
    chance = Random(seed)
    said = []
    for number, step in enumerate(steps):
        values = healthy(step, chance, **kind) | dict((changes or {}).get(step, {}))  # type: ignore[arg-type]
        said.append(rl_step(step, values, began + timedelta(minutes=7 * number)))
    return "".join(said)


BROKEN = {
    "policy/raw_grad_norm": 3.4,
    "policy/policy_entropy": 0.11,
    "policy/tis/log_ratio_abs_mean": 0.09,
    "reward/avg_raw_reward": 0.0625,
}
"""A step of a policy that falls apart."""


def engine(at: datetime, running: int = 60, waiting: int = 4) -> str:
    return (
        f"(AsyncVLLMInferenceEngine pid=287) INFO {at:%m-%d %H:%M:%S} [loggers.py:248] Engine 000: Avg prompt throughput: 310.5 tokens/s, "
        f"Avg generation throughput: 1822.0 tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: 41.0%, "
        "Prefix cache hit rate: 12.0%\n"
    )


def sft_banner(total: int, examples: int = 7328) -> str:
    return (
        "***** Running training *****\n"
        f"  Num examples = {examples:,}\n  Num Epochs = 2\n  Instantaneous batch size per device = 1\n"
        "  Total train batch size (w. parallel, distributed & accumulation) = 16\n  Gradient Accumulation steps = 2\n"
        f"  Total optimization steps = {total:,}\n  Number of trainable parameters = 494,032,768\n"
    )


def sft_run(
    first: int,
    last: int,
    total: int,
    *,
    loss: float = 1.4,
    grad: float = 0.84,
    s_per_step: int = 24,
    changes: Mapping[int, str] | None = None,
) -> str:
    """Bars and printed dicts of the Trainer, one a step. ``changes``: the dict of a step, where it is another one."""
    said = [sft_banner(total)]
    for step in range(first, last + 1):
        took, left = (step - first + 1) * s_per_step, (total - step) * s_per_step
        dict_ = f"{{'loss': {loss - 0.3 * step / total + 0.01 * (step % 3):.4f}, 'grad_norm': {grad + 0.02 * (step % 5):.4f}, 'learning_rate': 1e-05, 'epoch': {2 * step / total:.2f}}}"
        bar = f"\r{100 * step // total:3d}%|██▍       | {step}/{total} [{_clock(took)}<{_clock(left)}, {s_per_step}.00s/it]"
        said += [bar, "\r" + " " * 40 + "\r", (changes or {}).get(step, dict_) + "\n", bar]
    return "".join(said) + "\n"


def tally(chunks: int, of: int, done: int, turns: float, mean: float, exc: float) -> str:
    """What a driver of trace generation sums up."""
    return (
        f"[driver] chunks_done={chunks} chunks_total={of} trials={done} avg_turns={turns} mean={mean} exc_rate={exc}\n"
    )


def trials(done: Iterable[int], planned: int, mean: float | None = 0.53) -> str:
    """Harbor's overall bar, redrawn."""
    word = f"Mean: {mean:.3f}" if mean is not None else "Running trials..."
    return "".join(f"  {count}/{planned} {word} ━━━━━━━━━╸━━━━━━━━━━ {_clock(60 * count)} 0:13:22\n" for count in done)


def trial(name: str, *, reward: float | None = None, failed: str = "") -> str:
    if reward is not None:
        return f"{name} | Trial completed reward={reward}\n"
    return f"{name} | Trial failed ({failed})\n"


def _clock(seconds: int) -> str:
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
