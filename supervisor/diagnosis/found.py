"""What an engine reports of one chunk, collected with a cap a pattern, and the part of a line that speaks."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from supervisor.diagnosis.catalogue import Signature
from supervisor.diagnosis.lines import Line
from supervisor.model.diagnosis import Traceback

KEEP_FIRST = 24
KEEP_LAST = 24
"""Hits kept of each pattern: so many of the first and of the last, in a chunk and in a file."""
FEW_FIRST, FEW_LAST = 2, 12
"""The same of a chunk once the file's first hits are kept."""
SHOWN = 4096
"""Bytes of a long line that are looked at and kept, around the match."""
_WORTH = {"cause": 3, "echo": 2, "teardown": 1, "finish": 1}


class Found:
    """Collects what an engine reports of one chunk: of each pattern one position a line.

    A storm of errors reports millions of matches, so nothing is done for a match but what must be done then.
    """

    def __init__(self, buffer: bytearray, high: int, patterns: int) -> None:
        self.places: dict[int, array[int]] = {}
        """pattern -> a position in each line that it was found in, in order."""
        self._buffer, self._high = buffer, high
        self._line_end = [-1] * patterns
        self._note = self.noting(0)

    def noting(self, offset: int) -> Callable[..., None]:
        """hyperscan's own callback for a scan that begins one byte behind `offset`: one call a match, no more."""
        line_end, places, find, high = self._line_end, self.places, self._buffer.find, self._high
        add: dict[int, Callable[[int], None]] = {}
        end_of_line = -1

        def note(number: int, _from: int, stop: int, _flags: int, _context: object) -> None:
            nonlocal end_of_line
            stop += offset
            if stop > end_of_line:
                end_of_line = find(b"\n", stop, high)
                if end_of_line < 0:
                    end_of_line = high
            if line_end[number] != end_of_line:
                line_end[number] = end_of_line
                try:
                    add[number](stop)
                except KeyError:
                    add[number] = places.setdefault(number, array("q")).append
                    add[number](stop)

        return note

    def __call__(self, number: int, position: int) -> None:
        """Note a match that holds a byte position. Positions come in order."""
        self._note(number, 0, position, 0, None)

    def kept(self, without: frozenset[int], full: Callable[[int], bool]) -> list[tuple[int, int]]:
        """(pattern, position) of the first and last lines, without the patterns that only tell that something is there.

        Of patterns that are `full`, whose first hits were kept in earlier chunks, fewer do.
        """
        pairs: list[tuple[int, int]] = []
        for number, places in self.places.items():
            if number not in without:
                first, most = (FEW_FIRST, FEW_LAST) if full(number) else (KEEP_FIRST, KEEP_LAST)
                last = places[max(first, len(places) - most) :]
                pairs += [(number, position) for position in (*places[:first], *last)]
        return pairs

    def once(self, once: frozenset[int]) -> list[int]:
        """Those of `once` that are there."""
        return [number for number in self.places if number in once]

    def extremes(self) -> dict[int, tuple[int, int, int]]:
        """pattern -> (lines hit, first position, last position)."""
        return {number: (len(places), places[0], places[-1]) for number, places in self.places.items()}


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
