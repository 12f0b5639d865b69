"""Pods' logs: a stream without byte offsets, read as if it were a file, without gap or repeat.

Every line is asked for with its time stamp. That does three things: text without one is an error that a kubelet printed into the
stream, and no log text (FIND-4); the newest line's stamp is the time of the last output; and a place in the stream is a stamp.
Stamps are not part of what is handed on.

One path, ``pod/NAMESPACE/POD/CONTAINER``, is one log through all restarts of its container: what the container before had still
to say comes first. ``…/previous`` is the log of the container before alone.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from supervisor.clusters import kubernetes_calls as calls
from supervisor.clusters.kubernetes_calls import ApiServer, NotThere, Refused, path_of
from supervisor.clusters.kubernetes_log_lines import (
    Bookmark,
    Line,
    Run,
    after,
    continued,
    not_text,
    numbered,
    parse_path,
    stamped,
    time_of,
)
from supervisor.clusters.kubernetes_objects import plain, said
from supervisor.clusters.kubernetes_session import Clock
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.clusters.kubernetes_states import JobRead, log_path
from supervisor.clusters.pod_objects import ContainerStatus, Pod
from supervisor.clusters.pods import PodRead
from supervisor.model.errors import ClusterError
from supervisor.model.job import JobState
from supervisor.model.logs import LogRead, LogStat, LogState, LogText, LogUnread, LogWanted
from supervisor.model.polling import Watch

_PIECE = 8 * 2**20
"""Bytes of one answer, stamps counted. A kubelet serves one file, by default of at most 10 MiB."""
_MOST_PIECES = 8
_LOOK_BYTES = 4096
_POD = msgspec.json.Decoder(Pod)


class NoLogText(ClusterError):
    """The answer is not log text."""


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
            job: asyncio.create_task(self._look(server, job, mains[job], watch, clock.offset, limit_s))
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
        running_paths = {log_path(main) for main in mains.values()}
        self._looks = {path: one for path, one in self._looks.items() if path in running_paths}
        self._looks |= {one.stat.path: one for one in looked.values() if one.stat.state is LogState.READ}
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
        self, server: ApiServer, job: str, pod: PodRead, watch: Watch, offset: timedelta, limit_s: float
    ) -> _Looked:
        """Time of the newest line.

        ``size`` is a lower bound, since a stream does not tell its length: what was read up to the bookmark, and every
        newest line seen since. It grows whenever there is something new. A log that was followed before this process began,
        by a caller that keeps no bookmarks, is counted once: a smaller size would look like another log.
        """
        meta, path = pod.pod.metadata, log_path(pod)
        inode = zlib.crc32(meta.uid.encode()) + 1
        query = {"container": pod.container, "timestamps": "true", "tailLines": "1", "limitBytes": str(_LOOK_BYTES)}
        where = path_of(calls.POD_LOG, namespace=meta.namespace, name=meta.name)
        mark = Bookmark.parse(watch.bookmarks.get(job)) or Bookmark.parse(self._places.get(path, (0, None))[1])
        mark = mark if mark is not None and mark.uid == meta.uid else None
        before = self._looks.get(path)
        try:
            data = await server.get(where, query, read=lambda answer: answer.data, timeout_s=limit_s)
            if mark is None and before is None and data and watch.logs.get(job) == path:
                before = _Looked(LogStat(path, LogState.READ, size=await self._counted(server, pod), inode=inode))
        except ClusterError as error:
            return _Looked(LogStat(path, LogState.UNREAD, reason=error.text))
        read = mark.offset if mark is not None else 0
        if not data:
            return _Looked(LogStat(path, LogState.READ, size=read, inode=inode))
        lines = list(stamped(data))
        if not lines:
            return _Looked(LogStat(path, LogState.UNREAD, reason=not_text(data)))
        stamp, text = lines[-1]
        known = mark is not None and (stamp, pod.restarts) == (mark.stamp, mark.restarts) and len(text) <= mark.taken
        size = read if known else read + len(text)
        if not known and before is not None and before.stat.inode == inode:
            size = max(size, before.stat.size + (len(text) if before.stamp not in (stamp, 0) else 0))
        return _Looked(LogStat(path, LogState.READ, size=size, modified_at=time_of(stamp) - offset, inode=inode), stamp)

    async def _counted(self, server: ApiServer, pod: PodRead) -> int:
        """Bytes of the whole log, as far as it is kept."""
        status = _container(self._cluster, pod.pod, pod.container)
        return await _Log(server, self._cluster, pod.pod, status).count()

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

    async def count(self) -> int:
        """Bytes of all of it that is still kept."""
        return sum(len(line.text) for run in await self._runs(None, False) for line in run.lines)

    async def _runs(self, mark: Bookmark | None, previous: bool) -> list[Run]:
        """What is new of the run before, if that was not read to its end, and of the present one."""
        now = self._status.restart_count
        if previous:
            return [await self._new(now - 1, True, mark)]
        runs = []
        if now and (mark is None or mark.restarts < now):
            try:
                before = await self._new(now - 1, True, mark if mark is not None and mark.restarts == now - 1 else None)
                missed = mark is not None and mark.restarts < now - 1
                runs.append(Run(before.lines, before.more, before.gap or missed))
            except (NoLogText, Refused, NotThere):
                # The run before may be cleaned away while the present one can be read: then there is a gap.
                runs.append(Run([], gap=True))
            if runs[0].more or self._status.state.waiting is not None:
                return runs
        return [*runs, await self._new(now, False, mark if mark is not None and mark.restarts == now else None)]

    async def _new(self, run: int, old: bool, mark: Bookmark | None) -> Run:
        """Lines of one run after the bookmark, as far as the bounds allow."""
        stamped: list[tuple[int, bytes]] = []
        since, more = (mark.stamp if mark is not None else None), False
        for _ in range(_MOST_PIECES):
            part, more = await self._fetched(old, since)
            stamped = continued(stamped, part)
            if not more or not stamped or stamped[-1][0] == since:
                break
            since = stamped[-1][0]
        if old and not more and stamped and not stamped[-1][1].endswith(b"\n"):
            # Its last words had no line end; the next run's first line begins a new one.
            stamped[-1] = (stamped[-1][0], stamped[-1][1] + b"\n")
        lines = list(numbered(run, stamped))
        if mark is None:
            return Run(lines, more)
        return after(lines, mark, more)

    async def _fetched(self, old: bool, since: int | None) -> tuple[list[tuple[int, bytes]], bool]:
        """One answer as stamped lines, and whether it was cut by its bound. Asked once more if it is no log text (FIND-4)."""
        meta = self._pod.metadata
        query = {"container": self._status.name, "timestamps": "true", "limitBytes": str(_PIECE)}
        if old:
            query["previous"] = "true"
        if since is not None:
            # A second earlier: the API counts in whole seconds, and lines of two streams may change places.
            query["sinceTime"] = f"{time_of(since) - timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
        path = path_of(calls.POD_LOG, namespace=meta.namespace, name=meta.name)
        data = b""
        for _ in range(2):
            data = await self._server.get(path, query, read=lambda answer: answer.data)
            lines = list(stamped(data))
            if lines or not data:
                return lines, len(data) >= _PIECE
        raise NoLogText(self._cluster, not_text(data))

    def _bookmark(self, lines: list[Line], end: int, offset: int, mark: Bookmark | None) -> str | None:
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
