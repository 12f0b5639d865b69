"""Harbor in the log: its progress line and what it says of single trials. Truth about trials stands in their
``result.json`` (see ``trials``); a log that Ray folded, or that begins in its middle, counts too few."""

from __future__ import annotations

import re

from supervisor.dialects.line import Line
from supervisor.dialects.numbers import NUMBER, seconds_of
from supervisor.model.readings import Reading, ReadingKind

NAME = "harbor"
MARKS = (
    b" Mean: ",
    b"rial ",
    b"running agent...",
    b"starting environment...",
    b"running verifier...",
    b"canceling trial",
    "━".encode(),
)

_CLOCK = r"(?:\d+ days?, )?(?:\d+:\d\d:\d\d|-:--:--)"
_PROGRESS = re.compile(
    r"(?:^|[\s⠀-⣿])(\d+)/(\d+) (?:Running trials\.\.\.|([A-Z][\w @/.-]{0,40}?): ("
    + NUMBER
    + r"))\s*(?:(━|╸|╺| )*\s*("
    + _CLOCK
    + r"))?"
)
_PHASE = re.compile(r"(\S{1,160}): (starting environment|running agent|running verifier|canceling trial)")
_SCORED = re.compile(
    r"(?:(\S{1,160}) \| )?Trial (completed|failed(?: \((\w{1,80})\))?)(?:.{0,200}?\breward=(" + NUMBER + r"))?"
)
_NAMED = re.compile(
    r"Trial (\S{1,160}?):? (started|completed|failed(?: with exception)?)(?: \(?(\w{1,80}(?:Error|Exception|Timeout))\b\)?)?"
)
_PASSED_ON = re.compile(r"trial (\S{1,120}) passthrough (\w+), verifier reward=(" + NUMBER + r")")
_PHASES = {
    "starting environment": "environment",
    "running agent": "agent",
    "running verifier": "verifier",
    "canceling trial": "cancelling",
}


def read(line: Line) -> list[Reading]:
    text = line.text
    progress = _progress(line)
    if progress is not None:
        return [progress]
    if (found := _PHASE.search(text)) is not None and "__" in found[1]:
        return [line.reading(ReadingKind.TRIAL, NAME, label=found[1], detail=_PHASES[found[2]])]
    if (found := _PASSED_ON.search(text)) is not None:
        return [
            line.reading(
                ReadingKind.TRIAL,
                NAME,
                label=found[1],
                detail=f"completed {found[2]}",
                metrics={"reward": float(found[3])},
            )
        ]
    if (found := _NAMED.search(text)) is not None and "__" in found[1]:
        event = "failed" if found[2].startswith("failed") else found[2]
        return [line.reading(ReadingKind.TRIAL, NAME, label=found[1], detail=f"{event} {found[3] or ''}".strip())]
    if (found := _SCORED.search(text)) is not None:
        scored = found[4] is not None
        event = "completed" if scored or found[2] == "completed" else "failed"
        return [
            line.reading(
                ReadingKind.TRIAL,
                NAME,
                label=found[1] or "",
                detail=f"{event} {found[3] or ''}".strip(),
                metrics={"reward": float(found[4])} if scored else {},
            )
        ]
    return []


def _progress(line: Line) -> Reading | None:
    """The last frame of the overall bar on this line: a redrawn display leaves several."""
    best: Reading | None = None
    for found in _PROGRESS.finditer(line.text):
        title = found[3]
        if title not in (None, "Mean") and found[6] is None:
            continue
        metrics = {title: float(found[4])} if title else {}
        best = line.reading(
            ReadingKind.TRIAL,
            NAME,
            label="progress",
            detail="progress",
            step=int(found[1][:18]),
            total=int(found[2][:18]),
            metrics=metrics,
            elapsed_s=seconds_of(found[6]) if found[6] else None,
        )
    return best
