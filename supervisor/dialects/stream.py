"""From bytes to readings, piece by piece: half lines wait for their end, and no piece's border changes what is read.

Most lines say nothing to us. They are passed over by searching the bytes for the dialects' marks; only a line (or a
frame between carriage returns) that bears one is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

import re2

from supervisor.dialects import skyrl, vllm
from supervisor.dialects.line import Line, unwrap
from supervisor.dialects.malformed import Malformed
from supervisor.dialects.roster import LONG, SIEVE, readers_of
from supervisor.dialects.run import Run, State
from supervisor.model.readings import Reading

LONGEST = 256 << 10
"""Bytes of one line; a longer one is left out and counted."""
SHORT = 8192
"""Characters of a line shown to dialects whose lines are short."""
LONGEST_BLOCK = 64 << 10
MOST_BLOCK_LINES = 1000
MOST_STRAYS = 40
"""Lines of other content that may stand between a printed dict's lines before it counts as never ended."""
MOST_BLOCKS = 32
_CONTINUES = re.compile(r"""^\s*(?:['"][^'"]{1,160}['"]\s*:|[}\])],?\s*$|[\w.+-]+[,}]\s*$)""")
_BINARY = re2.compile(rb"[^\n]*\x00[^\n]*")
"""A line that is no text: binary, or in an encoding of two bytes a letter."""
Frame = tuple[int, int]


def follow(
    state: State | None,
    chunk: bytes,
    offset: int,
    *,
    seen_at: datetime | None = None,
    lines_skipped: int | None = None,
) -> tuple[dict[str, object], tuple[Reading, ...]]:
    """Takes in the next piece of a log. The state is plain JSON and is not changed in place.

    ``offset`` is the chunk's place in the file. Bytes already taken in are passed over; where some are missing, the gap
    is counted, the broken line at its end is left out, and line numbers are unknown from there unless ``lines_skipped``
    (newlines in the gap) says how many there were. ``seen_at`` (UTC, aware) is when the bytes were read.
    A log that shrank or was replaced is the caller's to notice: ``next_attempt`` goes on with the run in a new file.
    """
    run = Run.load(state)
    seen = None if seen_at is None else seen_at.timestamp()
    if not state and offset:
        run.began = run.offset = offset
        run.skipping = "gap"
        run.lines = lines_skipped
    elif offset > run.offset:
        _gap(run, offset, lines_skipped)
    chunk = chunk[run.offset - offset :]
    readings = tuple(_take(run, chunk, seen)) if chunk else ()
    return run.dump(), readings


def peek(state: State, *, ended: bool = False) -> Run:
    """The run with its unfinished last line read too, if the log has ``ended`` or that line shows its own end.

    A bar's frame and a printed dict do: a job that died in mid-line has shown its last step there. Any other line might
    still grow, and half a number is a wrong one.
    """
    run = Run.load(state)
    if run.pending and not run.skipping and (ended or _shows_its_end(run.pending)):
        for _ in _take(run, b"\n", run.seen):
            pass
        run.offset -= 1
    return run


def _shows_its_end(pending: bytes) -> bool:
    raw = pending.rstrip()
    return raw.endswith((b"]", b"}", b"\x1b[0m")) or (b"%|" in raw and b"]" in raw[raw.rfind(b"%|") :])


def _gap(run: Run, offset: int, lines_skipped: int | None) -> None:
    run.count("gaps")
    run.lines = None if run.lines is None or lines_skipped is None else run.lines + lines_skipped
    run.count("unclosed", len(run.blocks))
    run.blocks, run.headers = {}, {}
    run.pending, run.skipping, run.offset = b"", "gap", offset


def _take(run: Run, chunk: bytes, seen: float | None) -> Iterator[Reading]:
    """Readings of a chunk that follows what was taken in, merged into the run as they come."""
    buffer = run.pending + chunk
    base = run.offset - len(run.pending)
    early = base + len(run.pending) if run.pending and _shows_its_end(run.pending) else base
    seen_early, run.seen = run.seen, seen if seen is not None else run.seen
    run.offset += len(chunk)
    end = max(buffer.rfind(b"\n"), buffer.rfind(b"\r")) + 1
    run.pending = buffer[end:]
    if run.skipping:
        end, base, buffer = _skip(run, buffer, end, base)
    if len(run.pending) > LONGEST and not run.skipping:
        run.skipping = "oversized"
        run.count("oversized")
    if run.skipping:
        run.pending = b""
    if end <= 0:
        return
    whole = buffer[:end]
    frames = whole.replace(b"\r", b"\n") if b"\r" in whole else whole
    frames = _without_oversized(run, frames)
    _count_access(run, frames, whole, base)
    if b"\0" in frames:
        run.count("undecodable", sum(1 for _ in _BINARY.finditer(frames)))
    at, newlines = 0, 0
    position = 0
    candidates = _candidates(frames)
    upcoming = next(candidates, None)
    while True:
        if run.blocks and position < end:
            frame: Frame | None = (position, frames.find(b"\n", position))
        else:
            frame = upcoming
        if frame is None:
            break
        start, stop = frame
        while upcoming is not None and upcoming[0] <= start:
            upcoming = next(candidates, None)
        position = stop + 1
        newlines += whole.count(b"\n", at, start)
        at = start
        number = None if run.lines is None else run.lines + newlines + 1
        if stop > start:
            when = seen_early if base + start < early else seen  # a frame that was whole before is no news now
            yield from _read(run, frames[start:stop], base + start, number, when)
    if run.lines is not None:
        run.lines += whole.count(b"\n")


def _skip(run: Run, buffer: bytes, end: int, base: int) -> tuple[int, int, bytes]:
    """Drops bytes up to the line's end, which is what the run is skipping to."""
    ends = [place for place in (buffer.find(b"\n"), buffer.find(b"\r")) if place >= 0]
    if not ends:
        return 0, base, b""
    cut = min(ends)
    run.skipping = ""
    return end - cut, base + cut, buffer[cut:]


def _without_oversized(run: Run, frames: bytes) -> bytes:
    """The same bytes with lines above the bound blanked out, so that nothing is found in them."""
    position = 0
    while position + LONGEST < len(frames):
        stop = frames.rfind(b"\n", position, position + LONGEST + 1)
        if stop >= 0:
            position = stop + 1
            continue
        stop = frames.find(b"\n", position + LONGEST)
        run.count("oversized")
        frames = frames[:position] + b" " * (stop - position) + frames[stop:]
        position = stop + 1
    return frames


def _candidates(frames: bytes) -> Iterator[Frame]:
    """Start and end of each frame that bears a mark, in order."""
    for found in SIEVE.finditer(frames):
        yield frames.rfind(b"\n", 0, found.start()) + 1, found.end()


_LAST_SAID = {
    last: tuple(mark for mark, name in vllm.ACCESS.items() if name == counted)
    for last, counted in (("last_answered", "answered"), ("last_refused", "refused_auth"), ("last_failed", "failed"))
}
"""Of each kind of answer, the newest line is kept for quotes."""


def _count_access(run: Run, frames: bytes, whole: bytes, base: int) -> None:
    """Who asks whether it is alive, or for its numbers, brings no work: such answers do not count."""
    if b'HTTP/1.1" ' not in frames:
        return
    if b'"GET ' in frames:
        frames = vllm.ASKED.sub(rb"\1---", frames)
    engines = run.engines
    for mark, name in vllm.ACCESS.items():
        count = frames.count(mark)
        if count:
            setattr(engines, name, getattr(engines, name) + count)
            engines.answered_seen = run.seen if name == "answered" else engines.answered_seen
    for name, marks in _LAST_SAID.items():
        last = max(frames.rfind(mark) for mark in marks)
        if last >= 0:
            start = frames.rfind(b"\n", 0, last) + 1
            text = frames[start : frames.find(b"\n", last)].decode("utf-8", "replace")
            number = None if run.lines is None else run.lines + 1 + whole.count(b"\n", 0, start)
            setattr(engines, name, [base + start, number, text[:400]])


def _read(run: Run, raw: bytes, offset: int, number: int | None, seen: float | None) -> Iterator[Reading]:
    """Readings of one frame."""
    text = raw.decode("utf-8", "replace")
    if b"\0" in raw:
        return  # counted with the piece that it came in
    if text.count("�") > len(text) // 8 + 4:
        run.count("undecodable")
        return
    line = unwrap(text, offset, number, run.clock)
    if line.clock_s is not None:
        run.clock, run.clock_at = line.clock_s, offset
    if run.blocks and line.speaker in run.blocks:
        gathered = _gather(run, line)
        if gathered is not None:
            yield from _keep(run, gathered, seen)
            return
    if "Step " in line.body and (header := skyrl.HEADER.match(line.body)) is not None:
        run.headers[line.speaker] = int(header[1][:18])
        while len(run.headers) > MOST_BLOCKS:
            run.headers.pop(next(iter(run.headers)))
        return
    if "{" in line.text and "/" in line.text and "WANDB_MIRROR" not in line.text and _opens(run, line):
        return
    short = line if len(text) <= SHORT else None
    for dialect in readers_of(raw):
        if short is None and dialect.NAME not in LONG:
            short = unwrap(text[:SHORT], offset, number, run.clock)
        try:
            readings = dialect.read(line if dialect.NAME in LONG or short is None else short)
        except (Malformed, ValueError, OverflowError):
            run.count("malformed")
            return
        if readings:
            if dialect.NAME == skyrl.NAME and line.speaker in run.headers:
                readings = _headed(run, line, readings)
            yield from _keep(run, readings, seen)
            return


def _keep(run: Run, readings: list[Reading], seen: float | None) -> Iterator[Reading]:
    for reading in readings:
        run.take(reading, seen)
        yield reading


def _headed(run: Run, line: Line, readings: list[Reading]) -> list[Reading]:
    """A dict on one line, after a line that named its step."""
    if skyrl.OPENS_BLOCK.search(line.text) is None:
        return readings
    return skyrl.dict_reading([line], run.headers.pop(line.speaker)) or readings


# -- dicts printed over many lines -------------------------------------------------------------------------------------


def _opens(run: Run, line: Line) -> bool:
    """Whether a printed dict of metrics begins here and does not end here."""
    text = line.text
    if text.count("{") <= text.count("}") or skyrl.OPENS_BLOCK.search(text) is None:
        return False
    if len(run.blocks) >= MOST_BLOCKS:
        run.blocks.pop(next(iter(run.blocks)))
        run.count("unclosed")
    run.blocks[line.speaker] = {"lines": [[line.offset, line.number, line.raw]], "size": len(line.raw), "strays": 0}
    return True


def _gather(run: Run, line: Line) -> list[Reading] | None:
    """The block that this line ends; [] while it goes on; None for a line that is no part of it."""
    block = run.blocks[line.speaker]
    lines, size, strays = block["lines"], block["size"], block["strays"]
    assert isinstance(lines, list) and isinstance(size, int) and isinstance(strays, int)
    if _CONTINUES.match(line.text) is None or "{" in line.text:
        if strays >= MOST_STRAYS:
            del run.blocks[line.speaker]
            run.count("unclosed")
        else:
            run.blocks[line.speaker] = {**block, "strays": strays + 1}
        return None
    lines = [*lines, [line.offset, line.number, line.raw]]
    size += len(line.raw)
    if "}" in line.text:
        del run.blocks[line.speaker]
        spoken = [unwrap(str(raw), int(place), number, run.clock) for place, number, raw in lines]
        return skyrl.dict_reading(spoken, run.headers.pop(line.speaker, None))
    if size > LONGEST_BLOCK or len(lines) > MOST_BLOCK_LINES:
        del run.blocks[line.speaker]
        run.count("unclosed")
        return []
    run.blocks[line.speaker] = {"lines": lines, "size": size, "strays": strays}
    return []
