"""What an engine reports of one chunk, collected with a cap a pattern, and the part of a line that speaks."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from supervisor.diagnosis.catalogue import Signature
from supervisor.diagnosis.lines import Line
from supervisor.model.diagnosis import Traceback

KEEP_FIRST = 24
KEEP_LAST = 24
"""Hits kept of each pattern: so many of the first and of the last, in a chunk and in a file."""
SHOWN = 4096
"""Bytes of a long line that are looked at and kept, around the match."""
_WORTH = {"cause": 3, "echo": 2, "teardown": 1, "finish": 1}


class Found:
    """Collects what an engine reports of one chunk, with a cap a pattern."""

    def __init__(self, buffer: bytearray, high: int, patterns: int) -> None:
        self.buffer, self.high = buffer, high
        self.line_end = [-1] * patterns
        self.count = [0] * patterns
        self.first: dict[int, list[int]] = {}
        self.last: dict[int, deque[int]] = {}
        self.end_of_line = -1

    def __call__(self, number: int, position: int) -> None:
        """Note a match that holds a byte position. Positions come in order."""
        if position > self.end_of_line:
            end = self.buffer.find(b"\n", position, self.high)
            self.end_of_line = end if end >= 0 else self.high
        if self.line_end[number] == self.end_of_line:
            return
        self.line_end[number] = self.end_of_line
        count = self.count[number] = self.count[number] + 1
        if count > KEEP_FIRST:
            self.last[number].append(position)
        elif count == 1:
            self.first[number] = [position]
            self.last[number] = deque(maxlen=KEEP_LAST)
        else:
            self.first[number].append(position)

    def for_hyperscan(self, start: int) -> Callable[[int, int, int, int, object], None]:
        """The same as hyperscan's own callback, for a scan that begins at `start`: a storm calls it millions of times."""
        note, line_end, offset = self.__call__, self.line_end, start - 1

        def on_match(number: int, _from: int, stop: int, _flags: int, _context: object) -> None:
            if line_end[number] < offset + stop or offset + stop > self.end_of_line:
                note(number, offset + stop)

        return on_match

    def kept(self, without: frozenset[int]) -> list[tuple[int, int]]:
        """(pattern, position) of the kept lines, without the patterns that only tell that something is there."""
        pairs = [(number, position) for number, places in self.first.items() for position in places]
        pairs += [(number, position) for number, places in self.last.items() for position in places]
        return [pair for pair in pairs if pair[0] not in without]

    def once(self, once: frozenset[int]) -> list[int]:
        """Those of `once` that are there."""
        return [number for number in self.first if number in once]

    def extremes(self) -> dict[int, tuple[int, int, int]]:
        """pattern -> (lines hit, first position, last position)."""
        return {
            number: (self.count[number], places[0], self.last[number][-1] if self.last[number] else places[-1])
            for number, places in self.first.items()
        }


def part(buffer: bytearray, start: int, end: int, position: int) -> tuple[int, int]:
    """The redraw of a bar, or the part of a long line, that holds a position."""
    start = max(start, buffer.rfind(b"\r", start, min(position, end)) + 1)
    stop = buffer.find(b"\r", max(position, start), end)
    if stop >= 0 and stop > start:
        end = stop
    if end - start > SHOWN:
        start = max(start, position - SHOWN // 2)
        end = min(end, start + SHOWN)
    return start, end


def captures(matched: re.Match[bytes]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, value.decode("utf-8", "replace")) for name, value in matched.groupdict().items() if value is not None
    )


@dataclass(frozen=True, slots=True)
class Speaker:
    """An entry that matches a line."""

    preference: tuple[int, int]
    entry: Signature
    captured: tuple[tuple[str, str], ...]
    at: int


@dataclass(frozen=True, slots=True)
class Words:
    """What one redraw of a line says."""

    raw: bytes
    line: Line
    speakers: list[Speaker]
    traceback: Traceback | None
    header_at: int | None

    @property
    def worth(self) -> int:
        """A fault goes before what a bar or a harmless line beside it says."""
        worths = [_WORTH.get(speaker.entry.role, 0) for speaker in self.speakers[:1]]
        return max(worths, default=_WORTH["cause"])
