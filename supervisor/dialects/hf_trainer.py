"""transformers' Trainer: the dict printed at each logging step (floats in version 4, strings in 5) and its banner.

The dict names no step: the follower takes it from the bar, or from the epoch where the bar has run ahead of buffered output.
``logging_nan_inf_filter`` hides a NaN loss behind the running average or 0.0; the gradient's NaN is the honest sign.
"""

from __future__ import annotations

import math
import re

from supervisor.dialects.line import Line
from supervisor.dialects.numbers import pairs, whole
from supervisor.dialects.skyrl import broken_names
from supervisor.model.readings import Reading, ReadingKind

NAME = "hf_trainer"
MARKS = (
    b"'loss'",
    b"'eval_loss'",
    b"'train_runtime'",
    b"'grad_norm'",
    b"Num examples",
    b"Num Epochs",
    b"Num update steps per epoch",
    b"otal train batch size",
    b"Total batch size (",
    b"optimization steps",
    b"Total steps = ",
    b"Running training",
    b"Saving model checkpoint",
    b"Training completed.",
    b"Continuing training from global step",
    b'"loss"',
)

_TOTAL = re.compile(r"Total optimization steps ?[=:] ?([\d,]+)|Total steps = ([\d,]+)")
_EPOCHS = re.compile(r"Num Epochs ?= ?([\d,]+)")
_PER_EPOCH = re.compile(r"Num update steps per epoch ?= ?([\d,]+)")
_BATCH = re.compile(r"Total train batch size[^=]*= ?([\d,]+)|Total batch size \([^)]*\) = ([\d,]+)")
_EXAMPLES = re.compile(r"Num examples ?= ?([\d,]+)")
_SAVED = re.compile(r"Saving model checkpoint to (?:\S*/)?checkpoint-(\d+)/?(?=\s|$)")
_CONTINUES = re.compile(r"Continuing training from global step (\d+)")
_DICT = re.compile(r"\{ ?['\"][\w/ .@-]+['\"]: ?[^{}]*\}")
_COUNTED = re.compile(r"'global_step/max_steps': ?'(\d+)/(\d+)'")
"""ms-swift says the step in the dict."""
_QUOTED_EPOCH = re.compile(r"'epoch': ?'")
EPOCH_ERROR = "epoch_error"
"""By how much the printed epoch may be off: version 4 rounds to two decimals, version 5 to four significant digits."""


def printed_dict(line: Line) -> str | None:
    """The flat dict that a line prints, if it does."""
    found = _DICT.search(line.text)
    return None if found is None else found[0]


def read(line: Line) -> list[Reading]:
    text = line.text
    printed = printed_dict(line) if "{" in text else None
    if printed is not None:
        return trainer_dict(line, printed, NAME)
    readings: list[Reading] = []
    if (found := _EXAMPLES.search(text)) is not None:
        readings.append(line.reading(ReadingKind.BANNER, NAME, label="num_examples", total=whole(found[1])))
    if (found := _EPOCHS.search(text)) is not None:
        readings.append(line.reading(ReadingKind.BANNER, NAME, label="num_epochs", total=whole(found[1])))
    if (found := _PER_EPOCH.search(text)) is not None:
        readings.append(line.reading(ReadingKind.BANNER, NAME, label="steps_per_epoch", total=whole(found[1])))
    if (found := _TOTAL.search(text)) is not None:
        readings.append(line.reading(ReadingKind.BANNER, NAME, label="total_steps", total=whole(found[1] or found[2])))
    if (found := _BATCH.search(text)) is not None:
        readings.append(line.reading(ReadingKind.BANNER, NAME, label="batch_size", total=whole(found[1] or found[2])))
    if readings:
        return readings
    if "***** Running training" in text:
        return [line.reading(ReadingKind.BANNER, NAME, label="starts")]
    if (found := _SAVED.search(text)) is not None:
        return [line.reading(ReadingKind.BANNER, NAME, label="checkpoint", step=int(found[1]))]
    if (found := _CONTINUES.search(text)) is not None:
        return [line.reading(ReadingKind.BANNER, NAME, label="resume", step=int(found[1]))]
    if "Training completed." in text:
        return [line.reading(ReadingKind.BANNER, NAME, label="finished", detail="training completed")]
    return []


def trainer_dict(line: Line, printed: str, dialect: str) -> list[Reading]:
    """The reading of a dict that a Trainer printed; empty where it is some other dict."""
    metrics = pairs(printed)
    broken = broken_names(printed, metrics)
    if "train_runtime" in metrics and "loss" not in metrics:  # with tokens counted, each step's dict has the time too
        ran = _steps_run(metrics)
        return [
            line.reading(
                ReadingKind.BANNER, dialect, label="finished", detail="train_runtime", step=ran, metrics=metrics
            )
        ]
    evaluated = any(name.startswith("eval_") for name in metrics)
    if not evaluated and "loss" not in metrics and not ("grad_norm" in metrics and "learning_rate" in metrics):
        return []
    if evaluated and "loss" not in metrics:
        return [line.reading(ReadingKind.METRIC, dialect, label="eval", detail=broken, metrics=metrics)]
    if metrics.get("loss") == 0.0 and math.isnan(metrics.get("grad_norm", 0.0)):
        metrics["hidden_nan"] = 1.0
    if "epoch" in metrics:
        metrics[EPOCH_ERROR] = _half_a_digit(metrics["epoch"], quoted=_QUOTED_EPOCH.search(printed) is not None)
    step = metrics.get("step", metrics.get("global_step"))
    counted = _COUNTED.search(printed)
    if counted is not None:
        step = float(counted[1][:18])
    exact = step is not None and step >= 0 and step.is_integer()
    return [
        line.reading(
            ReadingKind.STEP if exact else ReadingKind.METRIC,
            dialect,
            label="train",
            detail=broken,
            step=int(step) if exact and step is not None else None,
            total=int(counted[2][:18]) if counted is not None else None,
            metrics=metrics,
        )
    ]


def _steps_run(metrics: dict[str, float]) -> int | None:
    """Steps of the whole run, from its time and its rate, where their digits suffice to be sure."""
    took, rate = metrics["train_runtime"], metrics.get("train_steps_per_second", 0.0)
    if not (0 < took < 1e9 and 0 < rate < 1e6):
        return None
    steps = took * rate
    off = 0.0005 * max(took, steps) if took >= 1 else 0.0005 * took + 0.0005 * steps / took
    return round(steps) if off < 0.5 and steps >= 1 else None


def _half_a_digit(epoch: float, *, quoted: bool) -> float:
    if not quoted or not math.isfinite(epoch) or epoch <= 0:
        return 0.005
    return float(0.5 * 10.0 ** (math.floor(math.log10(epoch)) - 3))
