"""Megatron-LM and its forks: ``iteration 100/ 500000 | lm loss: … | grad norm: … |``, and kin that count iterations."""

from __future__ import annotations

import re

from supervisor.dialects.line import Line
from supervisor.dialects.numbers import NUMBER
from supervisor.model.readings import Reading, ReadingKind

NAME = "megatron"
MARKS = (b"iteration ", b"iteration:")
_LINE = re.compile(r"\biteration:? *(\d+) */ *(\d+)(.*)$")
_FIELD = re.compile(r"(?:^|\|) *([A-Za-z_][\w ()/%.-]*?):? +(" + NUMBER + r")(?= *(?:\||$|s\b|ms\b))")
_PROSE = re.compile(r"(mean reward|loss|reward) +(" + NUMBER + r")")
_VALIDATION = re.compile(r"validation loss at iteration (\d+)")
_SAVED = re.compile(r"successfully saved checkpoint (?:from|at) iteration +(\d+)")
_SAVING = re.compile(r"^\W*saving checkpoint at iteration +(\d+)")
_OF_A_STEP = re.compile(r"step_(\d{1,12})/")
"""In a path: a trainer above counts steps, and the iterations here are another's."""
_LOADED = re.compile(r"(?:loaded checkpoint|resuming) .*?iteration +(\d+)")


def read(line: Line) -> list[Reading]:
    text = line.text
    if (found := _VALIDATION.search(text)) is not None:
        metrics = {name: float(value) for name, value in _FIELD.findall(text[found.end() :])}
        return [line.reading(ReadingKind.METRIC, NAME, label="eval", step=int(found[1]), metrics=metrics)]
    if (found := _LINE.search(text)) is not None:
        metrics = {name.strip(): float(value.replace("_", "")) for name, value in _FIELD.findall(found[3])}
        house = NAME if found[3].lstrip(" %0123456789").startswith("|") else "plain"
        if not metrics:
            metrics = {name: float(value) for name, value in _PROSE.findall(found[3])}
        return [
            line.reading(
                ReadingKind.STEP, house, label="train", step=int(found[1]), total=int(found[2]), metrics=metrics
            )
        ]
    if (found := _SAVED.search(text)) is not None or (found := _SAVING.search(text)) is not None:
        label = "saving" if found.re is _SAVING else "checkpoint"
        above = _OF_A_STEP.search(text)
        return [line.reading(ReadingKind.BANNER, NAME, label=label, step=int(above[1] if above else found[1]) or None)]
    if (found := _LOADED.search(text)) is not None:
        return [line.reading(ReadingKind.BANNER, NAME, label="resume", step=int(found[1]))]
    return []
