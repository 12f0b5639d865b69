"""torchtitan: ``step:  1  loss: 12.2  grad_norm: …  tps: 7,034  mfu: 41.19%``, each field in its own colour."""

from __future__ import annotations

import re

from supervisor.dialects.line import Line
from supervisor.dialects.numbers import number
from supervisor.model.readings import Reading, ReadingKind

NAME = "torchtitan"
MARKS = (b"tps: ", b"wps: ", b"mfu: ", b"total steps ", b"Training starts at step")
_STEP = re.compile(r"\bstep: *(\d+) +loss: ")
_FIELD = re.compile(r"([A-Za-z_]\w*): *([-+]?[\d,]*\.?\d+(?:[eE][-+]?\d+)?|nan|inf|-inf|NaN|N/A)")
_STARTS = re.compile(r"Training starts at step (\d+)")
_TOTAL = re.compile(r"total steps (\d+)")


def read(line: Line) -> list[Reading]:
    text = line.text
    if (found := _STEP.search(text)) is not None:
        metrics = {}
        for name, printed in _FIELD.findall(text[found.start() : found.start() + 2000]):
            value = number(printed)
            if value is not None and name != "step":
                metrics[name] = value
        evaluated = text[: found.start()].rstrip().endswith("validate")
        return [
            line.reading(
                ReadingKind.METRIC if evaluated else ReadingKind.STEP,
                NAME,
                label="eval" if evaluated else "train",
                step=int(found[1]),
                metrics={"eval_loss": metrics["loss"]} if evaluated and "loss" in metrics else metrics,
            )
        ]
    readings: list[Reading] = []
    if (found := _TOTAL.search(text)) is not None:
        readings.append(line.reading(ReadingKind.BANNER, NAME, label="total_steps", total=int(found[1])))
    if (found := _STARTS.search(text)) is not None:
        first = int(found[1])
        label = "resume" if first > 1 else "starts"
        readings.append(line.reading(ReadingKind.BANNER, NAME, label=label, step=first - 1 if first > 1 else None))
    return readings
