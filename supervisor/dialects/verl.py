"""verl's console logger: ``step:12 - actor/pg_loss:0.01 - critic/score/mean:0.4 - …`` on one line."""

from __future__ import annotations

import re

from supervisor.dialects.line import Line
from supervisor.dialects.numbers import NUMBER
from supervisor.model.readings import Reading, ReadingKind

NAME = "verl"
MARKS = (b"step:", b"Saved model to ")
_LINE = re.compile(r"(?:^|\s)step:(\d+) - (.*)$")
_VALUE = re.compile(r"(?:np\.\w+\()?(" + NUMBER + r")\)?")
_SAVED = re.compile(r"Saved model to \S*?global_step_(\d{1,12})/")
_SCALED = re.compile(r"(.+)\((1e-?\d{1,2})\)$")
"""``train/lr(1e-3)`` is given in units of its own."""
_TUNED = "train/"
"""The group of its supervised trainer."""
_TRAINED = ("actor/", "critic/", "timing_s/", "training/", "perf/", "global_seqlen/", "response_length/")


def read(line: Line) -> list[Reading]:
    found = _LINE.search(line.text)
    if found is None:
        saved = _SAVED.search(line.text)
        return [] if saved is None else [line.reading(ReadingKind.BANNER, NAME, label="checkpoint", step=int(saved[1]))]
    metrics: dict[str, float] = {}
    for field in found[2].split(" - "):
        name, _, printed = field.strip().rpartition(":")
        value = _VALUE.fullmatch(printed)
        if name and value is not None:
            scaled = _SCALED.match(name)
            unit = float(scaled[2]) if scaled is not None else 1.0
            metrics[scaled[1] if scaled is not None else name] = float(value[1].replace("_", "")) * unit
    if not metrics:
        return []
    tuned = any(name.startswith(_TUNED) for name in metrics)
    trained = tuned or any(name.startswith(_TRAINED) for name in metrics)
    return [
        line.reading(
            ReadingKind.STEP if trained else ReadingKind.METRIC,
            f"{NAME}-sft" if tuned else NAME,
            label="train" if trained else "eval",
            step=int(found[1]),
            metrics=metrics,
        )
    ]
