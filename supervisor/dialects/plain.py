"""Lines of no known trainer that name a step and a metric, or a step and its total; and totals said once.

Careful on purpose: a step alone in running text is no progress.
"""

from __future__ import annotations

import re

from supervisor.dialects.line import Line
from supervisor.dialects.numbers import NUMBER, pairs, whole
from supervisor.dialects.vocabulary import canonical, vocabulary
from supervisor.model.readings import Reading, ReadingKind

NAME = "plain"
MARKS = (
    b"step",
    b"Step",
    b"Global batch",
    b"Training finished",
    b"training finished",
    b"raining completed",
    b"avg_turns",
    b"average_turns",
    b"mean_turns",
)
_STEP = re.compile(
    r"(?:^|[\s|,(\[{])['\"]?(?:global[_ ]|train[_ ])?[Ss]tep['\"]?\s*[ =:#]\s*(\d+)(?:\s*(?:/|of)\s*([\d,]+))?(?![\w.]*\.\w)"
)
_PAIR = re.compile(r"(?:^|[\s|,(\[;])([A-Za-z_][\w/.@-]{0,60})\s*[=: ]\s*(" + NUMBER + r")(?![\w:-])")
_TOTAL = re.compile(r"\b[Tt]otal[ _](?:(training|optimi[sz]ation|train|optimizer)[ _])?steps?\s*[=:]\s*([\d,]+)")
_RESUMED = re.compile(r"\b[Rr]esum(?:ing|ed)\b.{0,60}?\b(?:opt_|global_?)?step[-_ :=]*(\d+)")
_FINISHED = re.compile(r"^\W*[Tt]raining (?:has )?(?:finished|completed)\b")
LONGEST = 4000
"""Characters of a line that are searched: prose of unknown origin is not read further."""


def read(line: Line) -> list[Reading]:
    text = line.body[:LONGEST]
    if (found := _TOTAL.search(text)) is not None:
        detail = "" if found[1] else "hearsay"
        return [line.reading(ReadingKind.BANNER, NAME, label="total_steps", detail=detail, total=whole(found[2]))]
    if (found := _RESUMED.search(text)) is not None:
        return [line.reading(ReadingKind.BANNER, NAME, label="resume", step=int(found[1]))]
    if _FINISHED.search(text) is not None:
        return [line.reading(ReadingKind.BANNER, NAME, label="finished", detail="training finished")]
    step = _STEP.search(text)
    if step is None:
        return _tally(line, text)
    metrics = pairs(text) if '": ' in text or "': " in text else {}
    if not metrics:
        metrics = {name: float(value.replace("_", "")) for name, value in _PAIR.findall(text)}
    known = {key for name in metrics if (key := _key(name)) in vocabulary().plain}
    total = whole(step[2]) if step[2] else None
    if not known and (total is None or step.start() > 2):
        return []
    shown = {name: value for name, value in metrics.items() if name.lower() not in ("step", "global_step")}
    return [line.reading(ReadingKind.STEP, NAME, label="train", step=int(step[1][:18]), total=total, metrics=shown)]


def _tally(line: Line, text: str) -> list[Reading]:
    """What a driver of trace generation says of all its trials (DATAGEN-1): a line that gives the turns by name."""
    if "turns" not in text:
        return []
    metrics = pairs(text) if '": ' in text or "': " in text else {}
    if not metrics:
        metrics = {name: float(value.replace("_", "")) for name, value in _PAIR.findall(text)}
    if not any(_key(name) == "avg_turns" for name in metrics):
        return []
    return [line.reading(ReadingKind.METRIC, NAME, label="tally", metrics=metrics)]


def _key(name: str) -> str | None:
    found = canonical(name)
    return None if found is None else found[0]
