"""slime: ``step 20: {…}`` of the trainer and ``rollout 20: {…}`` of the generator, dicts on one line."""

from __future__ import annotations

import re

from supervisor.dialects.line import Line
from supervisor.dialects.numbers import pairs
from supervisor.dialects.vocabulary import canonical
from supervisor.model.readings import Reading, ReadingKind

NAME = "slime"
MARKS = (b"'rollout/", b"'train/")
_LINE = re.compile(r"\b(step|rollout|perf|eval) (\d+): (\{.*)$")


def read(line: Line) -> list[Reading]:
    found = _LINE.search(line.text)
    if found is None:
        return []
    metrics = pairs(found[3])
    if not any(canonical(name) for name in metrics):
        return []
    trained = found[1] == "step"
    return [
        line.reading(
            ReadingKind.STEP if trained else ReadingKind.METRIC,
            NAME,
            label="train" if trained else found[1],
            step=int(found[2]),
            metrics=metrics,
        )
    ]
