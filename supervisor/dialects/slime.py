"""slime: ``step 20: {…}`` of the trainer, ``rollout 20: {…}`` of the generator, dicts on one line; and its timers."""

from __future__ import annotations

import re

from supervisor.dialects.line import Line
from supervisor.dialects.numbers import pairs
from supervisor.dialects.vocabulary import canonical
from supervisor.model.readings import Reading, ReadingKind

NAME = "slime"
MARKS = (b"'rollout/", b"'train/", b"'passrate/", b"Timer ")
_LINE = re.compile(r"\b(step|rollout|perf|eval|passrate) (\d+): (\{.*)$")
_TIMER = re.compile(r"\bTimer (\w{1,80}) (start|end)(?:ed)?\b(?: \(elapsed: ([\d.]+)s\))?")
_TRIES = re.compile(r"passrate/pass@(\d{1,6})")


def read(line: Line) -> list[Reading]:
    found = _LINE.search(line.text)
    if found is None:
        return _timer(line)
    metrics = _most_tries(pairs(found[3]))
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


def _most_tries(metrics: dict[str, float]) -> dict[str, float]:
    """Of the pass rates for several numbers of tries, the one of most tries."""
    tries = {int(found[1]): name for name in metrics if (found := _TRIES.fullmatch(name)) is not None}
    return {name: value for name, value in metrics.items() if name not in tries.values() or name == tries[max(tries)]}


def _timer(line: Line) -> list[Reading]:
    found = _TIMER.search(line.text)
    if found is None:
        return []
    detail, took = "started" if found[2] == "start" else "finished", float(found[3]) if found[3] else None
    return [line.reading(ReadingKind.TIMER, NAME, label=found[1], detail=detail, elapsed_s=took)]
