"""OpenRLHF: one status dict a step, after ``Global step N:``."""

from __future__ import annotations

import re

from supervisor.dialects.line import Line
from supervisor.dialects.numbers import pairs
from supervisor.dialects.skyrl import broken_names
from supervisor.model.readings import Reading, ReadingKind

NAME = "openrlhf"
MARKS = (b"Global step ",)
_LINE = re.compile(r"Global step (\d+)(?: \[\w+\])?: (\{.*)$")


def read(line: Line) -> list[Reading]:
    found = _LINE.search(line.text)
    if found is None:
        return []
    metrics = pairs(found[2])
    if not metrics:
        return []
    return [
        line.reading(
            ReadingKind.STEP,
            NAME,
            label="train",
            detail=broken_names(found[2], metrics),
            step=int(found[1]),
            metrics=metrics,
        )
    ]
