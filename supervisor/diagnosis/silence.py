"""How a file ends: its last line of real work, and whether only heartbeats follow it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from supervisor.diagnosis.catalogue import Catalogue, Signature
from supervisor.diagnosis.clocks import clock
from supervisor.diagnosis.examples import match
from supervisor.diagnosis.lines import Line, take_apart
from supervisor.model.diagnosis import Silence, Stage

REACH = 1 << 20
MOST_LINES = 6000
NEAR = 64 << 10
"""Bytes from the end in which a stage is looked for where no silence calls for more."""
FEW_BEATS = 3
_UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


def _told(captured: Mapping[str, bytes | None]) -> float:
    """Seconds that a line says have passed, from its captures `hours`, `minutes` and `seconds`."""
    return sum(float(captured.get(unit) or 0) * size for unit, size in _UNITS)


def is_stage(entry: Signature) -> bool:
    """True for entries that tell when a stage of work began or ended."""
    return "began" in entry.pattern.groups or "ended" in entry.pattern.groups


class Tail:
    """The entries that tell heartbeats and noise from work, with a quick test by their literals."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.entries: list[tuple[Signature, re.Pattern[bytes] | None]] = [
            (entry, None)
            for entry in catalogue.signatures
            if entry.role in ("heartbeat", "noise", "teardown") or entry.category == "cancelled"
        ]
        self.stages = [(entry, entry.pattern.verifier()) for entry in catalogue.signatures if is_stage(entry)]

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
                return _told(found.groupdict())
        return None

    def stage(self, line: Line) -> tuple[str, bool] | None:
        """(name, whether it began) of a stage that a line tells of."""
        for entry, verifier in self.stages:
            if entry.pattern.may_match(line.text) and (found := match(entry, verifier, line)) is not None:
                captured = found.groupdict()
                name = captured.get("began") or captured.get("ended") or b""
                return name.decode("utf-8", "replace"), captured.get("began") is not None
        return None


def judge_tail(tail: Tail, buffer: bytearray, have: int, base: int, lines: int) -> Silence | None:
    """Read the end of a file upwards to its last line of work. None where the reach holds none."""
    last_clock: float | None = None
    beats, told = 0, 0.0
    for number, at, raw in _upwards(buffer, have, lines):
        line = take_apart(raw[raw.rfind(b"\r") + 1 :])
        waits = tail.quiet(line)
        if waits is None:
            own = clock(raw) or _clock_above(buffer, at)
            seconds = last_clock - own if last_clock is not None and own is not None else None
            if told:
                seconds = max(told, seconds or 0.0)
            stage = _stage(tail, buffer, have, base, lines, REACH if beats >= FEW_BEATS else NEAR)
            return Silence(number, base + at, raw, line.stream, beats, seconds, clock=own, stage=stage, told=told)
        told += waits
        if line.message.strip():
            beats += 1
            if last_clock is None:
                last_clock = clock(raw)
    return None


def _upwards(buffer: bytearray, have: int, lines: int) -> Iterator[tuple[int, int, bytes]]:
    """(line number, start, bytes) of the last lines, the last one first."""
    end = have - 1 if have and buffer[have - 1] == 0x0A else have
    floor = max(0, have - REACH)
    for number in range(lines, max(0, lines - MOST_LINES), -1):
        if end < floor or end < 0:
            return
        at = buffer.rfind(b"\n", floor, end) + 1 or floor
        yield number, at, bytes(buffer[at : min(end, at + 4096)]).rstrip(b"\r")
        end = at - 1


def _clock_above(buffer: bytearray, at: int) -> float | None:
    for _ in range(60):
        if at <= 0:
            return None
        end = at - 1
        at = buffer.rfind(b"\n", 0, end) + 1
        if (time := clock(bytes(buffer[at : min(end, at + 400)]))) is not None:
            return time
    return None


def _stage(tail: Tail, buffer: bytearray, have: int, base: int, lines: int, reach: int) -> Stage | None:
    """The last stage that began and, as far as the end of the file tells, did not end."""
    end = bytes(memoryview(buffer)[max(0, have - reach) : have])
    if not any(entry.pattern.may_match(end) for entry, _ in tail.stages):
        return None
    ended: set[str] = set()
    for number, at, raw in _upwards(buffer, have, lines):
        if at < have - reach:
            break
        if not any(entry.pattern.may_match(raw) for entry, _ in tail.stages):
            continue
        line = take_apart(raw[raw.rfind(b"\r") + 1 :])
        found = tail.stage(line)
        if found is None:
            continue
        name, began = found
        if not began:
            ended.add(name)
        elif name not in ended:
            return Stage(name, number, base + at, raw, line.stream, clock(raw))
        else:
            ended.discard(name)
    return None
