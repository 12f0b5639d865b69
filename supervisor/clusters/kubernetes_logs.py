"""Pods' logs: a stream without byte offsets, read as if it were a file, without gap or repeat.

Every line is asked for with its time stamp. That does three things: text without one is an error that a kubelet printed into the
stream, and no log text (FIND-4); the newest line's stamp is the time of the last output; and a place in the stream is a stamp.
Stamps are not part of what is handed on.

One path, ``pod/NAMESPACE/POD/CONTAINER``, is one log through all restarts of its container: what the container before had still
to say comes first. ``…/previous`` is the log of the container before alone.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from supervisor.clusters import kubernetes_calls as calls
from supervisor.clusters.kubernetes_calls import ApiServer, NotThere, Refused, path_of
from supervisor.clusters.kubernetes_objects import plain, said
from supervisor.clusters.kubernetes_session import Clock
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.clusters.kubernetes_states import JobRead, log_path
from supervisor.clusters.pods import ContainerStatus, Pod, PodRead
from supervisor.model.errors import ClusterError
from supervisor.model.job import JobState
from supervisor.model.logs import LogRead, LogStat, LogState, LogText, LogUnread, LogWanted
from supervisor.model.polling import Watch

_PIECE = 8 * 2**20
"""Bytes of one answer, stamps counted. A kubelet serves one file, by default of at most 10 MiB."""
_MOST_PIECES = 8
_LOOK_BYTES = 4096
_VERSION = "k1"
_POD = msgspec.json.Decoder(Pod)


class NoLogText(ClusterError):
    """The answer is not log text."""


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
class _Line:
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
class _Run:
    """New lines of one run of a container."""

    lines: list[_Line]
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


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a look at the newest line found."""

    stat: LogStat
    stamp: int = 0


_MOST_PLACES = 4096


class LogBook:
    """Where each log was last read and looked at.

    Bookmarks that the caller hands back come first; what is remembered here serves callers that hand back none.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._places: dict[str, tuple[int, str]] = {}
        """Offset after the last piece, and its bookmark, by path."""
        self._looks: dict[str, _Looked] = {}

    async def look(
        self,
        server: ApiServer,
        reads: Mapping[str, JobRead],
        watch: Watch,
        clock: Clock,
        settings: KubernetesSettings,
    ) -> dict[str, LogStat]:
        """Newest line of each running job's log, in turn where there are more than ``log_looks`` of them (LIVE-1)."""
        mains = {job: one.main for job, one in reads.items() if one.observation.state is JobState.RUNNING and one.main}
        running, most = sorted(mains), settings.log_looks
        if len(running) > most > 0:
            turn = int(clock.ours().timestamp()) // 60 * most % len(running)
            running = (running + running)[turn : turn + most]
        limit_s = settings.log_looks_timeout_s
        tasks = {
            job: asyncio.create_task(self._look(server, mains[job], watch.bookmarks.get(job), clock.offset, limit_s))
            for job in running[:most]
        }
        if not tasks:
            return {}
        try:
            await asyncio.wait(tasks.values(), timeout=limit_s)
        finally:
            for task in tasks.values():
                task.cancel()
        looked = {job: task.result() for job, task in tasks.items() if task.done() and not task.cancelled()}
        self._looks = {one.stat.path: one for one in looked.values()}
        late = f"its newest line did not come within {limit_s:g} s"
        return {
            job: looked[job].stat if job in looked else LogStat(log_path(mains[job]), LogState.UNREAD, reason=late)
            for job in tasks
        }

    async def read(self, server: ApiServer, wanted: Sequence[LogWanted]) -> dict[tuple[str, str], LogRead]:
        """A piece of each log, or why there is none."""
        reads = await asyncio.gather(*(self._read(server, one) for one in wanted))
        for one, read in zip(wanted, reads, strict=True):
            if isinstance(read, LogText) and read.bookmark is not None:
                self._places.pop(one.path, None)
                self._places[one.path] = (read.offset + len(read.data), read.bookmark)
        for path in list(self._places)[: max(0, len(self._places) - _MOST_PLACES)]:
            del self._places[path]
        return {(one.job_id, one.path): read for one, read in zip(wanted, reads, strict=True)}

    async def _look(
        self, server: ApiServer, pod: PodRead, bookmark: str | None, offset: timedelta, limit_s: float
    ) -> _Looked:
        """Time of the newest line.

        ``size`` is a lower bound, since a stream does not tell its length: what was read up to the bookmark, and every
        newest line seen since. It grows whenever there is something new.
        """
        meta, path = pod.pod.metadata, log_path(pod)
        inode = zlib.crc32(meta.uid.encode()) + 1
        query = {"container": pod.container, "timestamps": "true", "tailLines": "1", "limitBytes": str(_LOOK_BYTES)}
        where = path_of(calls.POD_LOG, namespace=meta.namespace, name=meta.name)
        try:
            data = await server.get(where, query, read=lambda answer: answer.data, timeout_s=limit_s)
        except ClusterError as error:
            return _Looked(LogStat(path, LogState.UNREAD, reason=error.text))
        mark = Bookmark.parse(bookmark) or Bookmark.parse(self._places.get(path, (0, None))[1])
        mark = mark if mark is not None and mark.uid == meta.uid else None
        read = mark.offset if mark is not None else 0
        if not data:
            return _Looked(LogStat(path, LogState.READ, size=read, inode=inode))
        lines = list(_stamped(data))
        if not lines:
            return _Looked(LogStat(path, LogState.UNREAD, reason=_not_text(data)))
        stamp, text = lines[-1]
        known = mark is not None and (stamp, pod.restarts) == (mark.stamp, mark.restarts) and len(text) <= mark.taken
        size, before = read if known else read + len(text), self._looks.get(path)
        if not known and before is not None and before.stat.inode == inode:
            size = max(size, before.stat.size + (0 if before.stamp == stamp else len(text)))
        return _Looked(LogStat(path, LogState.READ, size=size, modified_at=_time(stamp) - offset, inode=inode), stamp)

    async def _read(self, server: ApiServer, wanted: LogWanted) -> LogRead:
        place = parse_path(wanted.path)
        if place is None:
            return LogUnread(wanted.path, "this is no path of a pod's log: pod/NAMESPACE/POD/CONTAINER")
        namespace, name, container, previous = place
        where = path_of(calls.POD, namespace=namespace, name=name)
        try:
            pod = await server.get(where, read=lambda answer: _POD.decode(answer.data))
            status = _container(self._cluster, pod, container)
            mark = self._mark(wanted) if wanted.offset else None
            if mark is not None and mark.uid != pod.metadata.uid:
                return LogUnread(wanted.path, "the pod was replaced by another of its name; its log begins anew")
            return await _Log(server, self._cluster, pod, status).read(wanted, mark, previous)
        except NotThere as error:
            return LogUnread(wanted.path, "the pod is gone, and its log with it" if error.positive else error.text)
        except ClusterError as error:
            return LogUnread(wanted.path, error.text)
        except ValueError as error:
            return LogUnread(wanted.path, f"the pod's record cannot be read: {error}")

    def _mark(self, wanted: LogWanted) -> Bookmark | None:
        handed = Bookmark.parse(wanted.bookmark)
        if handed is not None and handed.offset == wanted.offset:
            return handed
        offset, remembered = self._places.get(wanted.path, (0, None))
        return Bookmark.parse(remembered) if offset == wanted.offset else None


def _container(cluster: str, pod: Pod, container: str) -> ContainerStatus:
    for status in (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ())):
        if status.name == container:
            waits = status.state.waiting
            if waits is not None and status.last_state.terminated is None:
                raise NoLogText(
                    cluster,
                    f"container {plain(container, 80)} is waiting to start: {said(waits.reason, waits.message)}",
                )
            return status
    raise NoLogText(cluster, f"container {plain(container, 80)} has not been started yet")


class _Log:
    """One container's log at one moment."""

    def __init__(self, server: ApiServer, cluster: str, pod: Pod, status: ContainerStatus) -> None:
        self._server, self._cluster, self._pod, self._status = server, cluster, pod, status

    async def read(self, wanted: LogWanted, mark: Bookmark | None, previous: bool) -> LogRead:
        """Everything new is fetched and counted; of it the wanted part is handed on."""
        runs = await self._runs(mark, previous)
        lines = [line for run in runs for line in run.lines]
        more = runs[-1].more
        gap = any(run.gap for run in runs)
        text = b"".join(line.text for line in lines)
        behind = 0
        if wanted.offset and mark is None:
            # Without a bookmark the log is counted from its beginning, as far as that is still kept.
            if len(text) < wanted.offset:
                return LogText(wanted.path, len(text), b"", len(text), lines_skipped=None)
            behind = wanted.offset
        fresh = text[behind:]
        skipped = max(0, len(fresh) - wanted.limit) if wanted.tail else 0
        data = fresh[skipped : skipped + wanted.limit]
        end = skipped + len(data)
        return LogText(
            path=wanted.path,
            offset=wanted.offset + skipped,
            data=data,
            size=wanted.offset + len(fresh) + (1 if more else 0),
            lines_skipped=None if gap else fresh[:skipped].count(b"\n"),
            bookmark=self._bookmark(lines, behind + end, wanted.offset + end, mark),
        )

    async def _runs(self, mark: Bookmark | None, previous: bool) -> list[_Run]:
        """What is new of the run before, if that was not read to its end, and of the present one."""
        now = self._status.restart_count
        if previous:
            return [await self._new(now - 1, True, mark)]
        runs = []
        if now and (mark is None or mark.restarts < now):
            try:
                before = await self._new(now - 1, True, mark if mark is not None and mark.restarts == now - 1 else None)
                missed = mark is not None and mark.restarts < now - 1
                runs.append(_Run(before.lines, before.more, before.gap or missed))
            except (NoLogText, Refused, NotThere):
                # The run before may be cleaned away while the present one can be read: then there is a gap.
                runs.append(_Run([], gap=True))
            if runs[0].more or self._status.state.waiting is not None:
                return runs
        return [*runs, await self._new(now, False, mark if mark is not None and mark.restarts == now else None)]

    async def _new(self, run: int, old: bool, mark: Bookmark | None) -> _Run:
        """Lines of one run after the bookmark, as far as the bounds allow."""
        stamped: list[tuple[int, bytes]] = []
        since, more = (mark.stamp if mark is not None else None), False
        for _ in range(_MOST_PIECES):
            part, more = await self._fetched(old, since)
            stamped = _continued(stamped, part)
            if not more or not stamped or stamped[-1][0] == since:
                break
            since = stamped[-1][0]
        if old and not more and stamped and not stamped[-1][1].endswith(b"\n"):
            # Its last words had no line end; the next run's first line begins a new one.
            stamped[-1] = (stamped[-1][0], stamped[-1][1] + b"\n")
        lines = list(_numbered(run, stamped))
        if mark is None:
            return _Run(lines, more)
        return _after(lines, mark, more)

    async def _fetched(self, old: bool, since: int | None) -> tuple[list[tuple[int, bytes]], bool]:
        """One answer as stamped lines, and whether it was cut by its bound. Asked once more if it is no log text (FIND-4)."""
        meta = self._pod.metadata
        query = {"container": self._status.name, "timestamps": "true", "limitBytes": str(_PIECE)}
        if old:
            query["previous"] = "true"
        if since is not None:
            # A second earlier: the API counts in whole seconds, and lines of two streams may change places.
            query["sinceTime"] = f"{_time(since) - timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
        path = path_of(calls.POD_LOG, namespace=meta.namespace, name=meta.name)
        data = b""
        for _ in range(2):
            data = await self._server.get(path, query, read=lambda answer: answer.data)
            lines = list(_stamped(data))
            if lines or not data:
                return lines, len(data) >= _PIECE
        raise NoLogText(self._cluster, _not_text(data))

    def _bookmark(self, lines: list[_Line], end: int, offset: int, mark: Bookmark | None) -> str | None:
        """The place after ``end`` bytes of these lines."""
        last, taken = None, 0
        for line in lines:
            if end <= 0:
                break
            last, taken = line, line.taken + min(end, len(line.text))
            end -= len(line.text)
        if last is None:
            return str(mark) if mark is not None else None
        check = zlib.crc32(last.whole[:taken])
        return str(Bookmark(offset, self._pod.metadata.uid, last.restarts, last.stamp, last.nth, taken, check))


def _stamped(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines with their stamps, up to the first line that has none: that one is not the program's."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        found = _STAMP.match(data, at, end)
        if found is None:
            return
        yield _nanoseconds(found), data[found.end() : end]
        at = end


def _numbered(run: int, stamped: Iterable[tuple[int, bytes]]) -> Iterator[_Line]:
    seen: Counter[int] = Counter()
    for stamp, text in stamped:
        seen[stamp] += 1
        yield _Line(run, stamp, seen[stamp], text)


def _continued(before: list[tuple[int, bytes]], part: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
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


def _after(lines: list[_Line], mark: Bookmark, more: bool) -> _Run:
    """What follows the bookmark. Its line is found by its stamp; where stamps have changed, by its words."""
    for at, line in enumerate(lines):
        if line.stamp == mark.stamp and line.nth == mark.nth:
            rest = _Line(line.restarts, line.stamp, line.nth, line.whole, min(mark.taken, len(line.whole)))
            return _Run([rest, *lines[at + 1 :]] if rest.text else lines[at + 1 :], more)
    for at, line in enumerate(lines):
        if len(line.whole) >= mark.taken and zlib.crc32(line.whole[: mark.taken]) == mark.text:
            rest = _Line(line.restarts, line.stamp, line.nth, line.whole, mark.taken)
            return _Run([rest, *lines[at + 1 :]] if rest.text else lines[at + 1 :], more, gap=True)
    return _Run(lines, more, gap=bool(lines))


_STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?")


def _nanoseconds(found: re.Match[bytes]) -> int:
    zone = b"+00:00" if found[8] == b"Z" else found[8]
    moment = datetime.fromisoformat((b"%s-%s-%sT%s:%s:%s%s" % (*found.groups()[:6], zone)).decode())
    return int(moment.timestamp()) * 10**9 + int((found[7] or b"0").ljust(9, b"0"))


def _time(stamp: int) -> datetime:
    return datetime.fromtimestamp(stamp // 10**9, UTC) + timedelta(microseconds=stamp % 10**9 // 1000)


def _not_text(data: bytes) -> str:
    return f"the answer is no log text: {plain(data[:400].decode('utf-8', 'replace'), 200)}"
