"""Levanter and other JAX trainers of that house: ``Training: step 12`` and metrics as ``loss=… step=…``."""

from __future__ import annotations

import re

from supervisor.dialects.line import Line
from supervisor.dialects.numbers import NUMBER
from supervisor.model.readings import Reading, ReadingKind

NAME = "levanter"
MARKS = (b"Training: step ", b" step=")
_STEP = re.compile(r"Training: step (\d+)(?:/(\d+))?")
_METRICS = re.compile(r"\bstep=(\d+)\b")
_PAIR = re.compile(r"(?:^|\s)([A-Za-z_][\w/.-]*)=(" + NUMBER + r")(?![\w.:])")


def read(line: Line) -> list[Reading]:
    if (found := _STEP.search(line.body)) is not None:
        total = int(found[2]) if found[2] else None
        return [line.reading(ReadingKind.STEP, NAME, label="train", step=int(found[1][:18]), total=total)]
    if "metrics" in line.text and (found := _METRICS.search(line.body)) is not None:
        metrics = {name: float(value) for name, value in _PAIR.findall(line.body) if name != "step"}
        if metrics:
            return [line.reading(ReadingKind.STEP, NAME, label="train", step=int(found[1][:18]), metrics=metrics)]
    return []
