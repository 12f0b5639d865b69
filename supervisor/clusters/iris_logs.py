"""Logs of iris tasks: lines with a number each, read as if they were a file, without gap or repeat.

One path, ``iris:/user/job/0?since=MS``, is the log of one task through all its attempts. The log service keeps lines under the
job's name alone, so that those of an earlier job of the same name stand before them: only lines since the submission count, and
none from a later job's submission on.

Byte offsets count each line with its line end. A place is a bookmark: the number of the last line that was read whole, and how
many bytes of the next one were.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from supervisor.clusters.iris_calls import LINES, Controller, Refused
from supervisor.clusters.iris_text import LogEntry, LogsAnswer, from_ms
from supervisor.model.errors import ClusterError
from supervisor.model.logs import LogRead, LogStat, LogState, LogText, LogUnread, LogWanted

_MOST_PAGES = 64
"""Answers of one read. What lies beyond is left out, and said to be."""
_MOST_PLACES = 4096
_VERSION = "i1"
_PATH = re.compile(r"iris:(/[^/\x00-\x1f]+(?:/[^/\x00-\x1f]+)+/[0-9]+)\?since=([0-9]{1,15})")


@dataclass(frozen=True, slots=True)
class Bookmark:
    log: int
    """Checksum of the log's path: a job's log may become another task's."""
    offset: int
    """Bytes handed on, or counted as left out, so far."""
    seq: int
    """Number of the last line that was read whole; 0 before the first."""
    taken: int = 0
    """Bytes of the line after it that were handed on."""

    def __str__(self) -> str:
        return f"{_VERSION} {self.log} {self.offset} {self.seq} {self.taken}"

    @classmethod
    def parse(cls, text: str | None) -> Bookmark | None:
        """None for what is none of ours."""
        match = re.fullmatch(rf"{_VERSION}((?: [0-9]{{1,18}}){{4}})", text or "")
        return cls(*map(int, match[1].split())) if match else None

    @classmethod
    def of(cls, path: str, text: str | None) -> Bookmark | None:
        """The bookmark, if it was made in this log."""
        mark = cls.parse(text)
        return mark if mark is not None and mark.log == _checksum(path) else None


@dataclass(frozen=True, slots=True)
class LogPlace:
    """What a path names."""

    path: str
    task: str
    since_ms: int

    @property
    def source(self) -> str:
        """Prefix of the keys of all attempts of this task, and of no other."""
        return f"{self.task}:"

    @classmethod
    def parse(cls, path: str) -> LogPlace | None:
        match = _PATH.fullmatch(path)
        return cls(path, match[1], int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class _Looked:
    stat: LogStat
    seq: int = 0


@dataclass(slots=True)
class _Line:
    seq: int
    text: bytes
    """What of it was not read before."""
    taken: int = 0
    """Bytes of it that were."""


class LogBook:
    """Where each log was last read and looked at.

    Bookmarks that the caller hands back come first; what is remembered here serves callers that hand back none.
    """

    def __init__(self) -> None:
        self._marks: dict[str, Bookmark] = {}
        """Place after the last piece, by path."""
        self._looks: dict[str, _Looked] = {}
        self.newest: dict[str, int] = {}
        """Submission of the job that bears an id now, milliseconds, by job id."""

    # -- the newest line -----------------------------------------------------------------------------------------------

    async def look(
        self,
        controller: Controller,
        paths: Mapping[str, str],
        bookmarks: Mapping[str, str],
        offset: timedelta,
        limit_s: float,
    ) -> dict[str, LogStat]:
        """Size and time of each of these logs, by job id. One request each, all of them within ``limit_s``."""
        tasks = {
            job: asyncio.create_task(self._look(controller, path, bookmarks.get(job), offset, limit_s))
            for job, path in paths.items()
        }
        if not tasks:
            return {}
        try:
            await asyncio.wait(tasks.values(), timeout=limit_s)
        finally:
            for task in tasks.values():
                task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        late = f"its newest line did not come within {limit_s:g} s"
        stats = {}
        for job, task in tasks.items():
            if task.cancelled():
                stats[job] = LogStat(paths[job], LogState.UNREAD, reason=late)
                continue
            looked = task.result()
            self._looks[paths[job]] = looked
            stats[job] = looked.stat
        for path in list(self._looks)[: max(0, len(self._looks) - _MOST_PLACES)]:
            del self._looks[path]
        return stats

    async def _look(
        self, controller: Controller, path: str, bookmark: str | None, offset: timedelta, limit_s: float
    ) -> _Looked:
        """``size`` is a lower bound, since the service does not tell a log's length: it grows whenever a line is new."""
        place = LogPlace.parse(path)
        if place is None:
            return _Looked(LogStat(path, LogState.NONE, reason="this is no path of an iris task's log"))
        try:
            answer = await controller.newest_line(place.source, place.since_ms, limit_s)
        except ClusterError as error:
            return _Looked(LogStat(path, LogState.UNREAD, reason=error.text))
        entries = _of(place, answer)
        mark = Bookmark.of(path, bookmark) or self._marks.get(path)
        read, inode = mark.offset if mark is not None else 0, _checksum(path)
        if not entries:
            return _Looked(LogStat(path, LogState.READ, size=read, inode=inode))
        last = entries[-1]
        known = mark is not None and last.seq <= mark.seq
        size, before = read if known else read + len(_text(last)), self._looks.get(path)
        if not known and before is not None:
            size = max(size, before.stat.size + (0 if before.seq == last.seq else len(_text(last))))
        moment = from_ms(last.timestamp.epoch_ms) - offset
        return _Looked(LogStat(path, LogState.READ, size=size, modified_at=moment, inode=inode), last.seq)

    # -- pieces --------------------------------------------------------------------------------------------------------

    async def read(self, controller: Controller, wanted: Sequence[LogWanted]) -> dict[tuple[str, str], LogRead]:
        """A piece of each log, or why there is none."""
        pieces = await asyncio.gather(*(self._read(controller, one) for one in wanted))
        for one, piece in zip(wanted, pieces, strict=True):
            mark = Bookmark.parse(piece.bookmark) if isinstance(piece, LogText) else None
            if mark is not None:
                self._marks.pop(one.path, None)
                self._marks[one.path] = mark
        for path in list(self._marks)[: max(0, len(self._marks) - _MOST_PLACES)]:
            del self._marks[path]
        return {(one.job_id, one.path): piece for one, piece in zip(wanted, pieces, strict=True)}

    async def _read(self, controller: Controller, wanted: LogWanted) -> LogRead:
        place = LogPlace.parse(wanted.path)
        if place is None or not place.task.startswith(f"/{wanted.job_id}/"):
            return LogUnread(wanted.path, "this is no path of this job's log: iris:/USER/JOB/TASK?since=MS")
        if wanted.offset < 0 or wanted.limit < 0:
            return LogUnread(wanted.path, "a piece cannot begin or extend below 0")
        newest = self.newest.get(wanted.job_id, 0)
        until_ms = newest if newest > place.since_ms else None
        try:
            return await _Reading(controller, place, until_ms, wanted, self._mark(wanted)).piece()
        except ClusterError as error:
            return LogUnread(wanted.path, error.text)

    def _mark(self, wanted: LogWanted) -> Bookmark | None:
        for mark in (Bookmark.of(wanted.path, wanted.bookmark), self._marks.get(wanted.path)):
            if mark is not None and mark.offset == wanted.offset:
                return mark
        return None


@dataclass(slots=True)
class _Reading:
    """One piece while it is fetched; only what may be handed on is kept in memory."""

    controller: Controller
    place: LogPlace
    until_ms: int | None
    """Lines from this moment on are a later job's."""
    wanted: LogWanted
    mark: Bookmark | None
    kept: deque[_Line] = field(default_factory=deque)
    kept_bytes: int = 0
    left_out: int = 0
    """Bytes between the wanted offset and the kept lines."""
    lines_out: int = 0
    seq: int = 0
    """Number of the last line that is not kept."""

    async def piece(self) -> LogText:
        wanted = self.wanted
        start = self.mark or Bookmark(0, 0, 0)
        ahead = wanted.offset - start.offset
        """Bytes that are only counted, where no bookmark tells the place: from the beginning, as far as it is still kept."""
        cursor, partial, more, self.seq = start.seq, start.taken, True, start.seq
        for _ in range(_MOST_PAGES):
            entries, more = await self._page(cursor)
            for entry in entries:
                text = _text(entry)
                cut, partial = min(partial, len(text)), 0
                if len(text) - cut <= ahead:
                    ahead -= len(text) - cut
                    self.seq = entry.seq
                else:
                    cut, ahead = cut + ahead, 0
                    self._keep(_Line(entry.seq, text[cut:], cut))
            cursor = entries[-1].seq if entries else cursor
            if not more or (not wanted.tail and self.kept_bytes >= wanted.limit):
                break
        if ahead > 0 and self.mark is None and not more:
            # Less is there than was read before: it begins anew.
            there = wanted.offset - ahead
            return LogText(wanted.path, there, b"", there, lines_skipped=None)
        gap = False
        if more and wanted.tail:
            gap = await self._jump()
        return self._cut(more and not wanted.tail, gap)

    async def _page(self, cursor: int) -> tuple[list[LogEntry], bool]:
        """Lines after ``cursor``, and whether more may follow."""
        try:
            answer = await self.controller.lines(self.place.source, self.place.since_ms, cursor)
        except Refused:
            answer = await self.controller.lines(self.place.source, self.place.since_ms, cursor)  # FIND-4: once more
        entries = [entry for entry in _of(self.place, answer) if entry.seq > cursor]
        mine = [entry for entry in entries if self.until_ms is None or entry.timestamp.epoch_ms < self.until_ms]
        return mine, len(answer.entries) >= LINES and len(mine) == len(entries) and bool(entries)

    async def _jump(self) -> bool:
        """Far more waits than can be fetched: the newest lines alone, as many as one answer holds."""
        answer = await self.controller.newest_lines(self.place.source, self.place.since_ms)
        last = self.kept[-1].seq if self.kept else self.seq
        entries = [entry for entry in _of(self.place, answer) if entry.seq > last]
        if self.until_ms is not None:
            entries = [entry for entry in entries if entry.timestamp.epoch_ms < self.until_ms]
        for line in self.kept:
            self.left_out += len(line.text)
            self.seq = line.seq
        self.kept.clear()
        self.kept_bytes = 0
        for entry in entries:
            self._keep(_Line(entry.seq, _text(entry)))
        return True

    def _keep(self, line: _Line) -> None:
        self.kept.append(line)
        self.kept_bytes += len(line.text)
        while self.wanted.tail and self.kept_bytes - len(self.kept[0].text) >= self.wanted.limit and len(self.kept) > 1:
            first = self.kept.popleft()
            self.kept_bytes -= len(first.text)
            self.left_out += len(first.text)
            self.lines_out += first.text.count(b"\n")
            self.seq = first.seq

    def _cut(self, more: bool, gap: bool) -> LogText:
        wanted, lines = self.wanted, self.kept
        text = b"".join(line.text for line in lines)
        skip = max(0, len(text) - wanted.limit) if wanted.tail else 0
        data = text[skip : skip + wanted.limit]
        offset, end = wanted.offset + self.left_out + skip, skip + len(data)
        seq, taken, at = self.seq, 0, 0
        if self.mark is not None and not (self.left_out or lines):
            taken = self.mark.taken
        for line in lines:
            if at + len(line.text) <= end:
                at, seq = at + len(line.text), line.seq
                continue
            # Of a line of which nothing new was handed on, what was handed on before still counts.
            taken = line.taken + (end - at)
            break
        size = wanted.offset + self.left_out + len(text) + (1 if more else 0)
        skipped = None if gap else self.lines_out + text[:skip].count(b"\n")
        mark = Bookmark(_checksum(wanted.path), offset + len(data), seq, taken)
        return LogText(wanted.path, offset, data, size, skipped, str(mark))


def _checksum(path: str) -> int:
    """Never 0, which stands for none."""
    return zlib.crc32(path.encode("utf-8", "replace")) + 1


def _of(place: LogPlace, answer: LogsAnswer) -> list[LogEntry]:
    """Lines of this log alone, in their order, whatever else the service may have thought matches."""
    mine = [one for one in answer.entries if one.key.startswith(place.source)]
    mine = [one for one in mine if one.timestamp.epoch_ms > place.since_ms]
    return sorted(mine, key=lambda one: one.seq)


def _text(entry: LogEntry) -> bytes:
    return entry.data.encode("utf-8", "replace") + b"\n"
