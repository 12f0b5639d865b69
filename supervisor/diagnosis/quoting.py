"""Telling a program's own errors from errors that it prints as data: rollouts, test output, code blocks, JSON strings."""

from __future__ import annotations

import re

from supervisor.diagnosis.lines import Line, take_apart
from supervisor.model.diagnosis import Traceback

_BARRED = re.compile(rb"\s*(?:\|(?: |$)|> (?!File)|E {3,}\S|\xe2\x94\x82 )")
_TEST_PLACE = re.compile(rb"[\w./-]+\.py:\d+: [A-Za-z_][\w.]*\s*")
"""How pytest says where an assertion failed."""
_FENCE = re.compile(rb"\s*(?:```|~~~)")
_STRUCTURED = re.compile(rb'"(?:level|levelname|severity|lvl)"\s*:\s*"(?:error|critical|fatal|err)"', re.I)
SET_OFF = "it is set off as quoted text"
_FENCE_REACH = 120
"""Lines above and below a hit in which a code block must open and close."""


def why_quoted(
    buffer: bytearray, at: int, end: int, high: int, line: Line, match_at: int, traceback: Traceback | None
) -> str | None:
    """A reason to take the line `buffer[at:end]` for data, or None. `match_at`: where in `line.text` it matches."""
    set_off = _BARRED.match(line.message) or _TEST_PLACE.fullmatch(line.text)
    if set_off and not (traceback is not None and traceback.has_header):
        return SET_OFF
    before = line.text[line.start : match_at]
    if b"\\n" in before and not _STRUCTURED.search(line.text):
        return "it stands inside a string that the program printed"
    if _is_fenced(buffer, at, end, high, line):
        return "it stands in a code block"
    return None


def _is_fenced(buffer: bytearray, at: int, end: int, high: int, line: Line) -> bool:
    """Between two fences, counted only where a block opens above and closes below."""
    if buffer.rfind(b"```", max(0, at - 16000), at) < 0 or buffer.find(b"```", end, min(high, end + 16000)) < 0:
        return False
    above = 0
    for _ in range(_FENCE_REACH):
        if at <= 0:
            break
        stop = at - 1
        at = buffer.rfind(b"\n", 0, stop) + 1
        upper = take_apart(bytes(buffer[at : min(stop, at + 600)]))
        if upper.stream == line.stream and _FENCE.match(upper.message):
            above += 1
    if above % 2 == 0:
        return False
    at = end + 1
    for _ in range(_FENCE_REACH):
        stop = buffer.find(b"\n", at, high)
        if stop < 0:
            return False
        lower = take_apart(bytes(buffer[at : min(stop, at + 600)]))
        if lower.stream == line.stream and _FENCE.match(lower.message):
            return True
        at = stop + 1
    return False
