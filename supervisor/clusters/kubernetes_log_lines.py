"""Lines of a pod's log with their time stamps, and places among them. Pure."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from supervisor.clusters.kubernetes_objects import plain

_VERSION = "k1"


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A place in a container's log: after ``taken`` bytes of the ``nth`` line that bears this stamp."""

    offset: int
    """Bytes handed on so far, over all restarts."""
    uid: str
    restarts: int
    stamp: int
    """Nanoseconds since the epoch."""
    nth: int
    taken: int
    text: int
    """Checksum of those bytes, to know the line again where its stamp is not there any more."""

    def __str__(self) -> str:
        parts = (self.offset, self.uid, self.restarts, self.stamp, self.nth, self.taken, self.text)
        return " ".join((_VERSION, *map(str, parts)))

    @classmethod
    def parse(cls, text: str | None) -> Bookmark | None:
        """None for what is none of ours."""
        parts = (text or "").split(" ")
        if len(parts) != 8 or parts[0] != _VERSION:
            return None
        try:
            numbers = [int(part) for part in (parts[1], *parts[3:])]
        except ValueError:
            return None
        return cls(numbers[0], parts[2], *numbers[1:])


@dataclass(frozen=True, slots=True)
class Line:
    """A line of one run, or what is left of it."""

    restarts: int
    stamp: int
    nth: int
    """Among the lines of this run that bear the same stamp, from 1."""
    whole: bytes
    taken: int = 0
    """Bytes of it that were handed on before."""

    @property
    def text(self) -> bytes:
        return self.whole[self.taken :]


@dataclass(frozen=True, slots=True)
class Run:
    """New lines of one run of a container."""

    lines: list[Line]
    more: bool = False
    """More waits than was fetched."""
    gap: bool = False
    """Between the bookmark and these lines something is lost, or what they are cannot be told for sure."""


def parse_path(path: str) -> tuple[str, str, str, bool] | None:
    """Namespace, pod, container, and whether its previous run is meant."""
    parts = path.split("/")
    previous = len(parts) == 5 and parts[4] == "previous"
    if len(parts) not in (4, 5) or (len(parts) == 5 and not previous) or parts[0] != "pod":
        return None
    return None if any(part in ("", ".", "..") for part in parts) else (parts[1], parts[2], parts[3], previous)


def stamped(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines with their stamps, up to the first line that has none: that one is not the program's."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        found = _STAMP.match(data, at, end)
        if found is None:
            return
        yield _nanoseconds(found), data[found.end() : end]
        at = end


def numbered(run: int, stamped: Iterable[tuple[int, bytes]]) -> Iterator[Line]:
    seen: Counter[int] = Counter()
    for stamp, text in stamped:
        seen[stamp] += 1
        yield Line(run, stamp, seen[stamp], text)


def continued(before: list[tuple[int, bytes]], part: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """A further answer laid on the end of the ones before it: it begins before where they were cut."""
    if not before:
        return part
    if not part:
        return before
    # The cut line, and what has its stamp, comes again and whole.
    cut = before[-1][0]
    keep = len(before)
    while keep and before[keep - 1][0] == cut:
        keep -= 1
    start = next((at for at, (stamp, _) in enumerate(part) if stamp == cut), None)
    return before[:keep] + (part[start:] if start is not None else part)


def after(lines: list[Line], mark: Bookmark, more: bool) -> Run:
    """What follows the bookmark. Its line is found by its stamp; where stamps have changed, by its words."""
    for at, line in enumerate(lines):
        if line.stamp == mark.stamp and line.nth == mark.nth:
            rest = Line(line.restarts, line.stamp, line.nth, line.whole, min(mark.taken, len(line.whole)))
            return Run([rest, *lines[at + 1 :]] if rest.text else lines[at + 1 :], more)
    for at, line in enumerate(lines):
        if len(line.whole) >= mark.taken and zlib.crc32(line.whole[: mark.taken]) == mark.text:
            rest = Line(line.restarts, line.stamp, line.nth, line.whole, mark.taken)
            return Run([rest, *lines[at + 1 :]] if rest.text else lines[at + 1 :], more, gap=True)
    return Run(lines, more, gap=bool(lines))


_STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?")


def _nanoseconds(found: re.Match[bytes]) -> int:
    zone = b"+00:00" if found[8] == b"Z" else found[8]
    moment = datetime.fromisoformat((b"%s-%s-%sT%s:%s:%s%s" % (*found.groups()[:6], zone)).decode())
    return int(moment.timestamp()) * 10**9 + int((found[7] or b"0").ljust(9, b"0"))


def time_of(stamp: int) -> datetime:
    return datetime.fromtimestamp(stamp // 10**9, UTC) + timedelta(microseconds=stamp % 10**9 // 1000)


def not_text(data: bytes) -> str:
    return f"the answer is no log text: {plain(data[:400].decode('utf-8', 'replace'), 200)}"
