"""iris jobs: its log prefix is taken off in ``line``; here the pipeline workers' own counter of shards."""

from __future__ import annotations

import re

from supervisor.dialects.line import Line
from supervisor.model.readings import Reading, ReadingKind

NAME = "iris"
MARKS = (b" complete, ",)
_STAGE = re.compile(r"\[(stage[^\]]{0,80})\] (\d+)/(\d+) complete, (\d+) in-flight")


def read(line: Line) -> list[Reading]:
    found = _STAGE.search(line.text)
    if found is None:
        return []
    metrics = {"in_flight": float(found[4])}
    return [
        line.reading(
            ReadingKind.BAR,
            NAME,
            label=found[1],
            detail="stage",
            step=int(found[2]),
            total=int(found[3]),
            metrics=metrics,
        )
    ]
