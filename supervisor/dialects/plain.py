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
    b"| loss",
    b"Iter ",
    b"Iter(train)",
    b"it [",
)
_COUNT = r"\d{1,3}(?:,\d{3})+|\d+"
_STEP = re.compile(
    r"(?:^|[\s|,(\[{])['\"]?((?:global|train)[_ ])?steps?['\"]?\s*[ =:#]\s*\[?("
    + _COUNT
    + r")(?:\s*(?:/|of)\s*([\d,]+))?(?![\w.]*\.\w)",
    re.I,
)
_OTHERS = re.compile(
    r"\b(?:micro|mini|inner|sub|local|env(?:ironment)?|eval(?:uation)?|val(?:idation)?|test|warm-?up|denoising)"
    r"[-_ ]?(?:steps?|batch(?:es)?|iter(?:ation)?s?)\b\s*[=:#]?\s*\[?\d",
    re.I,
)
"""A count of something else than the optimiser's steps: the line is none of the trainer's metrics either."""
_COUNTED = re.compile(
    r"^(?:iter (\d+):|\[(?:epoch=\d+\]\[)?batch=(\d+)/(\d+)\]:)|\bnum_updates=(\d+)\b|\bIter\(train\) +\[ *(\d+)/(\d+)\]",
    re.I,
)
"""Other words for the step: nanoGPT's and MLX's, Composer's, fairseq's, MMEngine's."""
_PAIR = re.compile(
    r"(?:^|[\s|,(\[;])((?:[A-Za-z]{1,20} )?[A-Za-z_][\w/.@-]{0,60})\s*[=: ]\s*(" + NUMBER + r")(?![\w:-])"
)
_CELL = re.compile(r"^\s*([A-Za-z][\w ./-]{0,60}?)\s*(?:[=:]\s*|\s)(" + NUMBER + r")(?!\w)")
"""A field between bars, whose name may have spaces: ``Grad. Norm: 0.05``."""
_QUALIFIED = {
    **dict.fromkeys(("val", "valid", "validation", "eval", "test"), "eval_loss"),
    **dict.fromkeys(("actor", "policy", "pg"), "policy_loss"),
    **dict.fromkeys(
        ("critic", "value", "vf", "kl", "aux", "auxiliary", "router", "balance", "unsupervised", "ref"), ""
    ),
}
"""What a loss is with such a word before it; empty: one of those that are no metric of ours."""
_PART = re.compile(r"\bepoch:?\s*\[?(\d{1,6})\s*(?:/|of)\s*(\d{1,6})\b", re.I)
"""``Epoch 2/3, step 10/100``: the steps are counted anew in each of several parts."""
_ENDLESS = re.compile(r"(?:^|\s)(\d+)it \[\d[\d:]+, ")
"""A progress bar without a total; the trainer's if a metric of its stands behind it."""
_EPOCH = re.compile(r"\bepoch\s*[=:#]?\s*\[?(\d{1,6})(?:\s*/\s*\d+)?\b", re.I)
_BELOW = re.compile(r"^\s+(?:Train (?=loss)|(?=train/|optim/))")
"""A line of the list that follows the line which names the step (Composer, OLMo)."""
_TOTAL = re.compile(r"\b[Tt]otal[ _](?:(training|optimi[sz]ation|train|optimizer)[ _])?steps?\s*[=:]\s*([\d,]+)")
_RESUMED = re.compile(r"\b[Rr]esum(?:ing|ed)\b.{0,60}?\b(?:opt_|global_?)?step[-_ :=]*(\d+)")
_SAVED = re.compile(
    r"^\W*(?:[Ss]aved (?:model )?checkpoint\b.{0,200}?|[Cc]heckpoint (?:for|at) )\bstep[-_ =]?(\d+)(?:[^/]*saved|\W*$|\b(?! of))"
)
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
    if (found := _SAVED.search(text)) is not None:
        return [line.reading(ReadingKind.BANNER, NAME, label="checkpoint", step=int(found[1][:18]))]
    if (found := _SAVING.search(text)) is not None:
        return [line.reading(ReadingKind.BANNER, NAME, label="saving", step=int(found[1][:18]))]
    if _FINISHED.search(text) is not None:
        return [line.reading(ReadingKind.BANNER, NAME, label="finished", detail="training finished")]
    if _OTHERS.search(text) is not None:
        return []
    metrics = _metrics(text)
    known = {key for name in metrics if (key := _key(name)) in vocabulary().plain}
    step, total, sure = _step(text)
    if step is None and known and (endless := _ENDLESS.search(text)) is not None:
        step = whole(endless[1])
    if step is None:
        return _without_step(line, text, metrics, known)
    if not known and not sure:
        return []
    shown = {name: value for name, value in metrics.items() if name.lower() not in ("step", "global_step")}
    return [line.reading(ReadingKind.STEP, NAME, label="train", step=step, total=total, metrics=shown)]


def _step(text: str) -> tuple[int | None, int | None, bool]:
    """(step, total, whether it is one even without a metric beside it); of several steps the run's own."""
    if (other := _COUNTED.search(text)) is not None:
        total = other[3] or other[6]
        return whole(other[1] or other[2] or other[4] or other[5]), whole(total) if total else None, bool(total)
    steps = list(_STEP.finditer(text))
    if not steps:
        return None, None, False
    found = next((each for each in steps if each[1]), steps[0])
    step, total = whole(found[2]), whole(found[3]) if found[3] else None
    if step is not None and total and not found[1] and (part := _PART.search(text[: found.start() + 1])) is not None:
        at, of = int(part[1]), int(part[2])
        if 1 <= at <= of:
            return (at - 1) * total + step, of * total, True
    stands_out = found.start() <= 2 or bool(found[1]) or text[found.start()] == "["
    return step, total, total is not None and stands_out


def _metrics(text: str) -> dict[str, float]:
    """What the line gives by name; the first value counts."""
    metrics = pairs(text) if '": ' in text or "': " in text else {}
    if metrics:
        return metrics
    for field in text.split("|") if text.count("|") >= 2 else (text,):
        cell = _CELL.match(field) if field is not text and "," not in field else None
        for name, value in _PAIR.findall(field) if cell is None else [cell.groups()]:
            if (known := _named(name)) and known not in metrics:
                metrics[known] = float(value.replace("_", ""))
    return metrics


def _named(name: str) -> str:
    """The name without a word before it that says nothing; empty for a loss of another kind."""
    if canonical(name) is not None:
        return name
    before, _, last = name.lower().rpartition(" ")
    if before == "loss" and last in ("train", "training"):
        return before
    if last == "loss" and (word := before.rpartition(" ")[2]) in _QUALIFIED:
        return _QUALIFIED[word]
    return name.rpartition(" ")[2]


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
    if "loss" in known and text.count("|") >= 2:
        return [line.reading(ReadingKind.METRIC, NAME, label="train", metrics=metrics)]
    return []


def _key(name: str) -> str | None:
    found = canonical(name)
    return None if found is None else found[0]
