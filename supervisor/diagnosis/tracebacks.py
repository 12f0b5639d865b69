"""Python tracebacks, put together backwards from the exception's last line out of the lines of its own stream.

Backwards, because the last line is what a search finds, because many logs hold only the end of a traceback, and
because it needs no memory of open tracebacks while a scan goes on: the lines above are still in the buffer.
"""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass

from supervisor.diagnosis.lines import Line, take_apart
from supervisor.model.diagnosis import Frame, Stream, Traceback

HEADER = b"Traceback (most recent call last)"
MOST_LINES = 700
MOST_FOREIGN = 80
"""Lines of other streams in a row that may stand inside a traceback."""
MOST_STRAY = 3
"""Lines of the same stream in a row that fit no traceback: bars, warnings of other threads."""

_TYPE = rb"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*"
_KNOWN_ENDING = rb"(?:Error|Exception|Interrupt|Exit|Timeout|Expired|Abort|Empty|Full|Exit|Died|Errors|Failure|Group)"
RAISED = re.compile(rb"(?P<type>" + _TYPE + _KNOWN_ENDING + rb")(?P<of>\([\w.]+\))?(?:: ?(?P<text>.*)|\s*)\Z", re.S)
"""The last line of a traceback by the look of its type's name."""
_ANY_RAISED = re.compile(rb"(?P<type>" + _TYPE + rb")(?P<of>\([\w.]+\))?(?:: (?P<text>.*)|\s*)\Z", re.S)
_FRAME = re.compile(rb'\s*File "(?P<path>[^"\n]{1,400})", line (?P<line>\d+)(?:, in (?P<function>.{1,200}))?')
_CHAIN = (
    b"During handling of the above exception, another exception occurred",
    b"The above exception was the direct cause of the following exception",
)
_GROUP_BAR = re.compile(rb"[ |]*\| ?")
_GROUP_HEADER = b"+ Exception Group Traceback"
_GROUP_RULE = re.compile(rb"[ |]*\+-+")


@dataclass(frozen=True, slots=True)
class Assembled:
    """A traceback and where its header starts in the buffer (None where the log shows none)."""

    traceback: Traceback
    header_at: int | None


def raised(message: bytes, *, sure: bool = False) -> re.Match[bytes] | None:
    """Match of an exception's last line. With `sure` (below frames) any name of a class will do."""
    return RAISED.match(message) or (_ANY_RAISED.match(message) if sure else None)


_BUILT_IN = frozenset(
    name.encode()
    for name, thing in vars(builtins).items()
    if isinstance(thing, type) and issubclass(thing, BaseException) and not issubclass(thing, Warning)
)


def is_known_type(name: bytes) -> bool:
    """True for Python's own exceptions and for dotted names; without a traceback others are often mere log messages."""
    return name in _BUILT_IN or b"." in name


def strip_group_bar(message: bytes) -> bytes:
    """The message without the bars that exception groups draw."""
    found = _GROUP_BAR.match(message)
    return message[found.end() :] if found else message


def assemble(buffer: bytearray, floor: int, start: int, line: Line, match: re.Match[bytes]) -> Assembled:
    """Read upwards from the exception line that starts at `start`; nothing above `floor` is looked at."""
    grouped = bool(_GROUP_BAR.match(line.message))
    frames: list[Frame] = []
    header_at: int | None = None
    original = chained = in_group = False
    foreign = stray = 0
    at = start
    for _ in range(MOST_LINES):
        if at <= floor:
            break
        end = at - 1
        at = buffer.rfind(b"\n", floor, end) + 1 or floor
        above = take_apart(bytes(buffer[max(at, end - 2000) : end]).rstrip(b"\r"))
        if not _same(above.stream, line.stream):
            foreign += 1
            if foreign > MOST_FOREIGN:
                break
            continue
        message = strip_group_bar(above.message) if grouped else above.message
        if frame := _FRAME.match(message):
            path = frame["path"].decode("utf-8", "replace")
            frames.append(
                Frame(path, int(frame["line"]), (frame["function"] or b"").decode("utf-8", "replace").strip())
            )
            foreign = stray = 0
        elif HEADER in message:
            header_at = at
            original = b"Original Traceback" in message
            in_group = _GROUP_HEADER in above.message
            break
        elif _FRAME.match(message.lstrip(b"> |")) or _GROUP_RULE.match(above.message):
            foreign = stray = 0
        elif any(words in message for words in _CHAIN):
            break
        elif message[:2] in (b"  ", b"\t ") or message[:1] == b"\t" or not message.strip():
            foreign = 0
        else:
            stray += 1
            if stray > MOST_STRAY or not frames:
                break
    if header_at is not None:
        chained = _is_chained(buffer, floor, header_at, line.stream)
        if grouped and not in_group:
            in_group = _under_group(buffer, floor, header_at)
    traceback = Traceback(
        type=(match["type"] + (match["of"] or b"")).decode("latin-1"),
        message=(match["text"] or b"").decode("utf-8", "replace")[:2000],
        frames=tuple(reversed(frames)),
        has_header=header_at is not None,
        height=buffer.count(b"\n", at if header_at is None else header_at, start),
        is_original=original,
        is_chained=chained,
    )
    if grouped and not in_group:
        traceback = Traceback(traceback.type, traceback.message, (), has_header=False)
    return Assembled(traceback, header_at)


def _same(above: Stream, own: Stream) -> bool:
    if above == own:
        return True
    return above.pid == own.pid and above.rank == own.rank and above.actor == own.actor and above.pid is not None


def _above(buffer: bytearray, floor: int, at: int, own: Stream, most: int) -> list[bytes]:
    """Messages of the same stream above a position, nearest first."""
    got: list[bytes] = []
    for _ in range(most * 4):
        if at <= floor or len(got) >= most:
            break
        end = at - 1
        at = buffer.rfind(b"\n", floor, end) + 1 or floor
        above = take_apart(bytes(buffer[max(at, end - 2000) : end]))
        if _same(above.stream, own):
            got.append(above.message)
    return got


def _is_chained(buffer: bytearray, floor: int, header_at: int, own: Stream) -> bool:
    return any(words in message for message in _above(buffer, floor, header_at, own, 4) for words in _CHAIN)


def _under_group(buffer: bytearray, floor: int, header_at: int) -> bool:
    near = bytes(buffer[max(floor, header_at - 20000) : header_at])
    return _GROUP_HEADER in near


def exception_line(buffer: bytearray, header_at: int, end: int) -> tuple[int, int] | None:
    """Where the last line of a traceback stands, going down from its header; None if the buffer ends before it.

    For exceptions whose names do not tell that they are exceptions. The span is (start, end) of the line.
    """
    at = header_at
    own: Stream | None = None
    seen_frame = False
    for _ in range(MOST_LINES):
        stop = buffer.find(b"\n", at, end)
        if stop < 0:
            return None
        line = take_apart(bytes(buffer[at : min(stop, at + 4000)]))
        if own is None:
            own = line.stream
        elif _same(line.stream, own):
            message = line.message
            if _FRAME.match(message):
                seen_frame = True
            elif seen_frame and message[:1] not in (b" ", b"\t", b"") and raised(message, sure=True):
                return at, stop
            elif HEADER in message:
                return None
        at = stop + 1
    return None
