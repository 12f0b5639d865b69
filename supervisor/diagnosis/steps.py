"""Progress near the edges of a stretch of log: the first and the last line of each kind.

Progress lines can make up half of a log, so they are not reported one by one: the main scan only tells which kinds a
chunk holds, and this looks for their first and last line in windows that grow from the edges.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from supervisor.diagnosis.catalogue import Signature
from supervisor.diagnosis.engines import Engine
from supervisor.diagnosis.examples import match
from supervisor.diagnosis.lines import take_apart
from supervisor.model.diagnosis import Mark

_WINDOWS = (32 << 10, 256 << 10, 1 << 20, 1 << 40)
_SHALLOW = 2
"""Windows looked at where an exact answer is not needed."""
_TRIES = 30
"""Places of one kind and window that may fail the second look."""


class Steps:
    """Progress entries with engines compiled for them alone, in their order.

    `engine` reports every match, `once` each kind at most once: a cheap look whether a long stretch holds it at all.
    """

    def __init__(self, entries: list[Signature], engine: Engine, once: Engine) -> None:
        self.entries, self._engine, self._once = entries, engine, once
        self._verifiers: dict[int, re.Pattern[bytes]] = {}

    def edge(
        self,
        buffer: bytearray,
        low: int,
        high: int,
        wanted: Iterable[int],
        part: Callable[[int], tuple[int, int]],
        *,
        forward: bool,
        deep: bool,
    ) -> list[tuple[int, Mark]]:
        """(start of line, mark) of the wanted kinds next to an edge. `part`: span of the line around a position."""
        missing = set(wanted)
        found: list[tuple[int, Mark]] = []
        for start, stop in _windows(buffer, low, high, forward=forward, deep=deep):
            if not missing:
                break
            if stop - start > _WINDOWS[0] and missing.isdisjoint(self.kinds(buffer, start, stop)):
                continue
            places: dict[int, list[int]] = {}

            def note(number: int, position: int, places: dict[int, list[int]] = places) -> None:
                if number in missing:
                    places.setdefault(number, []).append(position)

            self._engine.scan(buffer, start, stop, note)
            for number, positions in places.items():
                for position in positions[:_TRIES] if forward else positions[: -_TRIES - 1 : -1]:
                    mark = self._mark(buffer, number, *part(position))
                    if mark is not None:
                        found.append((buffer.rfind(b"\n", 0, position) + 1, mark))
                        missing.discard(number)
                        break
                else:
                    if len(positions) >= _TRIES:
                        missing.discard(number)
        return found

    def kinds(self, buffer: bytearray, start: int, stop: int) -> set[int]:
        """Kinds that a stretch holds, as far as an engine can tell."""
        kinds: set[int] = set()
        self._once.scan(buffer, start, stop, lambda number, _position: kinds.add(number))
        return kinds

    def _mark(self, buffer: bytearray, number: int, start: int, stop: int) -> Mark | None:
        entry = self.entries[number]
        verifier = self._verifiers.get(number)
        if verifier is None:
            verifier = self._verifiers[number] = entry.pattern.verifier()
        line = take_apart(bytes(buffer[start:stop]))
        matched = match(entry, verifier, line)
        if matched is None:
            return None
        captured = matched.groupdict()
        step = _float(captured.get("step"))
        return Mark(
            code=entry.code,
            line=0,
            offset=0,
            stream=line.stream,
            step=None if step is None else int(step),
            total=None if (total := _float(captured.get("total"))) is None else int(total),
            position=step if step is not None else _float(captured.get("position")),
            text=line.text[:400],
        )


def _windows(buffer: bytearray, low: int, high: int, *, forward: bool, deep: bool) -> Iterator[tuple[int, int]]:
    """Stretches of whole lines from one edge inwards, each longer than the one before."""
    sizes = _WINDOWS if deep else _WINDOWS[:_SHALLOW]
    for size in sizes:
        if low >= high:
            return
        if forward:
            stop = high if high - low <= size else buffer.find(b"\n", low + size, high) + 1 or high
            yield low, stop
            low = stop
        else:
            start = low if high - low <= size else buffer.rfind(b"\n", low, high - size) + 1 or low
            yield start, high
            high = start


def _float(text: bytes | None) -> float | None:
    try:
        return float((text or b"").replace(b",", b""))
    except ValueError:
        return None
