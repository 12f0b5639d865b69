"""Progress bars: tqdm frames (split at carriage returns before they get here), their whole-line forms, tqdm-loggable.

A bar's description tells what it counts (``metrics.toml``, ``[[bar]]``). One without description is the trainer's only
if its total agrees with the trainer's, which the follower judges.
"""

from __future__ import annotations

import re

from supervisor.dialects.line import Line
from supervisor.dialects.numbers import NUMBER, seconds_of, whole
from supervisor.dialects.vocabulary import bar_role, by_key
from supervisor.model.readings import Reading, ReadingKind

NAME = "tqdm"
MARKS = (b"%|", b"% Completed |", b"%) [", b"Progress on:")

_COUNT = r"\d+(?:\.\d+)?[kKMGTP]?"
_BAR = re.compile(
    r"(\d{1,3})%(?:\|[^|\n]*\|| Completed \|) *(" + _COUNT + r")/(" + _COUNT + r")([^\[\]\n]{0,24})"
    r"\[(?:((?:\d+ days?, )?[\d:.]+)<([^,\]\n]*)(?:, *([^,\]\n]*))?(?:, *([^\]\n]*))?(\]|$)|[^<\]\n]{0,16}$)"
)
"""A frame cut off at a terminal's width has no end, and its last words may be half ones."""
_WHOLE_LINE = re.compile(r"^(.{0,80}?):? +(\d+)/(\d+) \((\d+)%\) \[(\d+)s\](.*)$")
_LOGGABLE = re.compile(
    r"Progress on:(.*?) ("
    + _COUNT
    + r")(\w*?)/("
    + _COUNT
    + r")(\w*?) rate:(\S+).*?elapsed:([\d:]+)(?:.*?postfix:(.*))?$"
)
_PART = re.compile(r"(?:\[|\bepoch:? )(\d{1,6}) ?(?:/|of) ?(\d{1,6})(?:\]|\b)", re.I)
"""``Episode [2/3]``, ``Epoch 2/3``: the bar counts one part of several of the same length."""
_TORCHTUNE = re.compile(r"^(\d{1,6})\|(?:(\d{1,12})\|)?Loss: (" + NUMBER + r")$")
"""Epoch, step of the whole run (in newer versions), and loss, in the bar's description."""
_TRAINING = ("loss", "policy_loss", "reward", "grad_norm")
"""What only a trainer shows behind its bar."""
UP = "\x1b[A"
"""Ends the frame of a bar that is drawn below another."""
_RATE_UNIT = re.compile(r"(?:[\d.?]+[kKMGTP]?) ?([A-Za-z ]+)/s|s/ ?([A-Za-z ]+)")
_POSTFIX = re.compile(r"([A-Za-z_][\w./ -]{0,40}?) ?[=:] ?(" + NUMBER + r")(?![\w.])")
DATA_UNITS = frozenset({"examples", "B", "iB", "prompts", "tok", "tokens", "files", "rows", "ba", "w"})


def read(line: Line) -> list[Reading]:
    """All bars of one frame; several stand in one where cursor moves put them there."""
    text = line.body
    found: list[Reading] = []
    at = 0
    for bar in _BAR.finditer(text):
        description = text[at : bar.start()].strip().rstrip(":").strip()[-80:]
        at = bar.end()
        metrics = _postfix(bar[8]) if bar[9] else {}
        if (tuned := _TORCHTUNE.match(description)) is not None:
            if tuned[2]:
                found.append(_torchtune(line, tuned, bar[3]))
                continue
            metrics = {"loss": float(tuned[3])}
        role = "data" if _unit(bar[4], bar[7]) in DATA_UNITS else bar_role(description)
        if role == "other" and not by_key(metrics).keys().isdisjoint(_TRAINING):
            role = "train"
        found.append(
            _bar(
                line,
                description,
                role,
                bar[2],
                bar[3],
                seconds_of(bar[5]) if bar[5] else None,
                metrics,
                fresh="?" in (bar[7] or ""),
            )
        )
    if found:
        return found
    if (whole_line := _WHOLE_LINE.match(text)) is not None:
        return [
            _bar(
                line,
                whole_line[1].strip(),
                bar_role(whole_line[1].strip()),
                whole_line[2],
                whole_line[3],
                float(whole_line[5]),
                _postfix(whole_line[6]),
            )
        ]
    if (logged := _LOGGABLE.search(text[:600])) is not None:
        return [
            _bar(line, logged[1], bar_role(logged[1]), logged[2], logged[4], seconds_of(logged[7]), _postfix(logged[8]))
        ]
    return []


def _bar(
    line: Line,
    description: str,
    role: str,
    done: str,
    total: str,
    elapsed_s: float | None,
    metrics: dict[str, float],
    *,
    fresh: bool = False,
) -> Reading:
    step, steps = whole(done), whole(total)
    words = [role, *(["fresh"] if fresh else ()), *(["nested"] if UP in line.raw else ())]
    if role in ("train", "epoch") and step is not None and steps is not None:
        part = _PART.search(description)
        if part is not None and 1 <= int(part[1]) <= int(part[2]):
            step, steps = (int(part[1]) - 1) * steps + step, int(part[2]) * steps
            words.append("part")
    return line.reading(
        ReadingKind.BAR,
        NAME,
        label=description,
        detail=" ".join(words),
        step=step,
        total=steps,
        metrics=metrics,
        elapsed_s=elapsed_s,
    )


def _torchtune(line: Line, tuned: re.Match[str], total: str) -> Reading:
    """The bar itself begins anew in each epoch: its total is the run's in the first one at most."""
    first = tuned[1] == "1"
    return line.reading(
        ReadingKind.STEP,
        NAME,
        label="train",
        step=int(tuned[2]),
        total=whole(total) if first else None,
        metrics={"loss": float(tuned[3])},
    )


def _unit(after_total: str, rate: str | None) -> str:
    if rate and (found := _RATE_UNIT.search(rate)) is not None:
        return (found[1] or found[2]).strip()
    return after_total.strip()


def _postfix(text: str | None) -> dict[str, float]:
    if not text:
        return {}
    return {name.strip(" |,"): float(value.replace("_", "")) for name, value in _POSTFIX.findall(text)}
