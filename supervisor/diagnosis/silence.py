"""How a file ends: its last line of real work, and whether only heartbeats follow it."""

from __future__ import annotations

import re

from supervisor.diagnosis.catalogue import Catalogue, Signature
from supervisor.diagnosis.clocks import clock
from supervisor.diagnosis.examples import match
from supervisor.diagnosis.lines import Line, take_apart
from supervisor.model.diagnosis import Silence

REACH = 1 << 20
MOST_LINES = 6000


class Tail:
    """The entries that tell heartbeats and noise from work, with a quick test by their literals."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.entries: list[tuple[Signature, re.Pattern[bytes] | None]] = [
            (entry, None) for entry in catalogue.signatures if entry.role in ("heartbeat", "noise", "teardown")
        ]

    def quiet(self, line: Line) -> float | None:
        """None for a line that shows work; else the seconds of waiting that it tells of by itself (`seconds`)."""
        if not line.message.strip():
            return 0.0
        for number, (entry, verifier) in enumerate(self.entries):
            pattern = entry.pattern
            if not pattern.may_match(line.text):
                continue
            compiled = verifier or pattern.verifier()
            self.entries[number] = (entry, compiled)
            if (found := match(entry, compiled, line)) is not None:
                told = found.groupdict().get("seconds")
                return float(told) if told else 0.0
        return None


def judge_tail(tail: Tail, buffer: bytearray, have: int, base: int, lines: int) -> Silence | None:
    """Read the end of a file upwards to its last line of work. None where the reach holds none."""
    at = have if not have or buffer[have - 1] != 0x0A else have - 1
    number, beats, told = lines, 0, 0.0
    last_clock: float | None = None
    floor = max(0, have - REACH)
    for _ in range(MOST_LINES):
        if at <= floor:
            return None
        end = at
        at = buffer.rfind(b"\n", floor, end) + 1 or floor
        raw = bytes(buffer[at : min(end, at + 4096)]).rstrip(b"\r")
        line = take_apart(raw[raw.rfind(b"\r") + 1 :])
        time = clock(raw)
        waits = tail.quiet(line)
        if waits is None:
            own = time
            for _ in range(60):
                if own is not None or at <= 0:
                    break
                upper_end = at - 1
                upper = buffer.rfind(b"\n", 0, upper_end) + 1
                own = clock(bytes(buffer[upper : min(upper_end, upper + 400)]))
                at = upper if own is None else at
            seconds = last_clock - own if last_clock is not None and own is not None else None
            if told:
                seconds = max(told, seconds or 0.0)
            return Silence(number, base + _line_start(buffer, end), raw, line.stream, beats, seconds)
        told += waits
        if line.message.strip():
            beats += 1
            if last_clock is None:
                last_clock = time
        number -= 1
        at -= 1
    return None


def _line_start(buffer: bytearray, end: int) -> int:
    return buffer.rfind(b"\n", 0, end) + 1
