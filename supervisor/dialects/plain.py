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
    b"iter ",
    b"num_updates=",
    b"mean_reward=",
    b"avg_reward=",
    b"Epoch",
    b"Train loss/train/total:",
    b"train/CrossEntropyLoss=",
    b"optim/total_grad_norm=",
    b"[batch=",
)
_STEP = re.compile(
    r"(?:^|[\s|,(\[{])['\"]?((?:global|train)[_ ])?step['\"]?\s*[ =:#]\s*\[?(\d+)(?:\s*(?:/|of)\s*([\d,]+))?(?![\w.]*\.\w)",
    re.I,
)
_COUNTED = re.compile(r"^(?:iter (\d+):|\[(?:epoch=\d+\]\[)?batch=(\d+)/(\d+)\]:)|\bnum_updates=(\d+)\b")
"""Other words for the step: nanoGPT's, Composer's, fairseq's."""
_PAIR = re.compile(
    r"(?:^|[\s|,(\[;])((?:(?:train|val(?:id(?:ation)?)?|eval|test) )?[A-Za-z_][\w/.@-]{0,60})\s*[=: ]\s*("
    + NUMBER
    + r")(?![\w:-])"
)
_CELL = re.compile(r"^\s*([A-Za-z][\w ./-]{0,60}?)\s*[=:]\s*(" + NUMBER + r")(?!\w)")
"""A field between bars, whose name may have spaces: ``Grad. Norm: 0.05``."""
_HELD_OUT = re.compile(r"^(?:val(?:id(?:ation)?)?|eval|test) (loss)$", re.I)
_PART = re.compile(r"\bepoch:?\s*\[?(\d{1,6})\s*(?:/|of)\s*(\d{1,6})\b", re.I)
"""``Epoch 2/3, step 10/100``: the steps are counted anew in each of several parts."""
_EPOCH = re.compile(r"\bepoch\s*[=:#]?\s*\[?(\d{1,6})(?:\s*/\s*\d+)?\b", re.I)
_BELOW = re.compile(r"^\s+(?:Train (?=loss)|(?=train/|optim/))")
"""A line of the list that follows the line which names the step (Composer, OLMo)."""
_TOTAL = re.compile(r"\b[Tt]otal[ _](?:(training|optimi[sz]ation|train|optimizer)[ _])?steps?\s*[=:]\s*([\d,]+)")
_RESUMED = re.compile(r"\b[Rr]esum(?:ing|ed)\b.{0,60}?\b(?:opt_|global_?)?step[-_ :=]*(\d+)")
_SAVING = re.compile(r"^\W*[Ss]aving (?:model )?checkpoint (?:for|at) (?:global[ _])?step (\d+)")
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
    if (found := _SAVING.search(text)) is not None:
        return [line.reading(ReadingKind.BANNER, NAME, label="saving", step=int(found[1][:18]))]
    if _FINISHED.search(text) is not None:
        return [line.reading(ReadingKind.BANNER, NAME, label="finished", detail="training finished")]
    metrics = _metrics(text)
    known = {key for name in metrics if (key := _key(name)) in vocabulary().plain}
    step, total, sure = _step(text)
    if step is None:
        return _without_step(line, text, metrics, known)
    if not known and not sure:
        return []
    shown = {name: value for name, value in metrics.items() if name.lower() not in ("step", "global_step")}
    return [line.reading(ReadingKind.STEP, NAME, label="train", step=step, total=total, metrics=shown)]


def _step(text: str) -> tuple[int | None, int | None, bool]:
    """(step, total, whether it is one even without a metric beside it); of several steps the run's own."""
    if (other := _COUNTED.search(text)) is not None:
        return int((other[1] or other[2] or other[4])[:18]), whole(other[3]) if other[3] else None, bool(other[3])
    steps = list(_STEP.finditer(text))
    if not steps:
        return None, None, False
    step = next((each for each in steps if each[1]), steps[0])
    total = whole(step[3]) if step[3] else None
    if steps[0][3] and (part := _PART.search(text[: steps[0].start() + 1])) is not None and not step[1] and total:
        at, of = int(part[1]), int(part[2])
        if 1 <= at <= of:
            return (at - 1) * total + int(step[2][:18]), of * total, True
    stands_out = step.start() <= 2 or bool(step[1]) or text[step.start()] == "["
    return int(step[2][:18]), total, total is not None and stands_out


def _metrics(text: str) -> dict[str, float]:
    metrics = pairs(text) if '": ' in text or "': " in text else {}
    if metrics:
        return metrics
    for name, value in _PAIR.findall(text):
        held_out = _HELD_OUT.match(name)
        metrics[f"eval_{held_out[1].lower()}" if held_out is not None else name.rpartition(" ")[2]] = float(
            value.replace("_", "")
        )
    if text.count("|") >= 2:
        for field in text.split("|"):
            if (cell := _CELL.match(field)) is not None and " " in cell[1]:
                metrics.setdefault(cell[1], float(cell[2].replace("_", "")))
    return metrics


def _without_step(line: Line, text: str, metrics: dict[str, float], known: set[str]) -> list[Reading]:
    """What a driver of trace generation says of all its trials (DATAGEN-1), a list below its step, an epoch's line."""
    keys = {_key(name) for name in metrics}
    below = _BELOW.match(text) is not None
    if below:
        metrics = {name.removeprefix("Train "): value for name, value in metrics.items()}
    if "avg_turns" in keys or (below and keys & {"loss", "grad_norm"}):
        return [line.reading(ReadingKind.METRIC, NAME, label="tally", metrics=metrics)]
    if "reward" in keys and any(name.lower() in ("mean_reward", "avg_reward") for name in metrics):
        return [line.reading(ReadingKind.METRIC, NAME, label="aside", metrics=metrics)]
    if known & {"loss", "eval_loss"} and (epoch := _EPOCH.search(text)) is not None:
        metrics = {**metrics, "epoch": float(epoch[1])}
        return [line.reading(ReadingKind.METRIC, NAME, label="train", metrics=metrics)]
    return []


def _key(name: str) -> str | None:
    found = canonical(name)
    return None if found is None else found[0]
