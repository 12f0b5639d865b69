"""Reading the logs that grew, and keeping their text: bounded per job and tick, each piece exactly once (FIND-3 to FIND-5)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import structlog

from supervisor.app.fleet import Station
from supervisor.app.kept import KeptLogs
from supervisor.app.sections import LogsSection
from supervisor.app.writing import Writer
from supervisor.dialects import excerpt, follow, next_attempt, summarise
from supervisor.model.errors import ClusterError
from supervisor.model.facts import Followed, Held
from supervisor.model.logs import LogRead, LogStat, LogState, LogText, LogUnread, LogWanted
from supervisor.model.polling import Polled
from supervisor.model.records import LogCursor
from supervisor.model.trials import CURSOR
from supervisor.rules.reading import Plan, plan, share

log = structlog.get_logger("supervisor.follow")


class Follower:
    """Follows the logs of all clusters. What it remembers of a run can be made again from the store's cursors."""

    def __init__(self, writer: Writer, kept: KeptLogs, limits: LogsSection) -> None:
        self.writer, self.kept, self.limits = writer, kept, limits
        self._runs: dict[str, dict[str, Followed]] = {}
        self._bookmarks: dict[str, dict[str, str]] = {}
        self._owed: dict[str, set[str]] = {}
        """Jobs by cluster whose log holds more than could be read: asked again even if it does not grow (FIND-4)."""
        self._unread: dict[str, dict[str, str]] = {}

    def runs(self, station: Station) -> Mapping[str, Followed]:
        """What is known of the runs of one cluster, by job id."""
        return self._runs.get(station.name, {})

    def bookmarks(self, station: Station) -> Mapping[str, str]:
        """Where each log of one cluster was left, by job id, as the backend itself put it."""
        return self._bookmarks.get(station.name, {})

    def believed(self, station: Station, reading: Polled) -> Polled:
        """``reading`` with each log as unread whose text could not be fetched: size and time alone are no look at it (FIND-4)."""
        unread = self._unread.pop(station.name, {})
        if not unread:
            return reading
        logs = {
            job: replace(stat, state=LogState.UNREAD, reason=unread[job]) if job in unread else stat
            for job, stat in reading.logs.items()
        }
        return replace(reading, logs=logs)

    async def load(self, station: Station) -> None:
        """After a start: the runs of the living jobs, as their logs told them before."""
        rows = {held.row: job for job, held in station.memory.items() if held.row is not None and held.life.phase.live}
        cursors = await self.writer.call(lambda store: store.log_cursors_of(set(rows)))
        mine = [(rows[each.job_row], each) for each in cursors if each.state and not each.path.startswith(CURSOR)]
        self._bookmarks[station.name] = {rows[each.job_row]: each.bookmark for each in cursors if each.bookmark}
        found = await asyncio.to_thread(lambda: {job: self._summed(station, job, each) for job, each in mine})
        self._runs[station.name] = {
            job: run for job, run in found.items() if run.file == station.memory[job].details.log_path
        }

    def _summed(self, station: Station, job: str, cursor: LogCursor) -> Followed:
        held = station.memory.get(job)
        return Followed(cursor.path, summarise(cursor.state, held.bucket if held is not None else None), excerpt)

    async def follow(self, station: Station, reading: Polled, now: datetime) -> set[str]:
        """Fetch what is new in the logs of this reading, keep it, and hear what it says; ids of jobs with news.

        A log that cannot be fetched changes nothing and is said; a full disk is a problem of ours, not of the job's.
        """
        stats = self._grown(station, reading)
        if not stats:
            return set()
        rows = {job: row for job in stats if (held := station.memory.get(job)) and (row := held.row) is not None}
        found = await self.writer.call(lambda store: store.log_cursors_of(set(rows.values())))
        cursors = {(each.job_row, each.path): each for each in found}
        known = {job: cursors.get((rows[job], stat.path)) for job, stat in stats.items() if job in rows}
        per_job = self.limits.bytes_per_job
        plans = share({job: stats[job] for job in known}, known, per_job, self.limits.bytes_per_tick)
        waiting = {job for job in known if plan(job, stats[job], known[job], per_job) is not None}
        owed = self._owed.setdefault(station.name, set())
        owed -= stats.keys()
        owed |= waiting - {each.wanted.job_id for each in plans}
        return await self._fetch(station, plans, stats, rows, known, now)

    def _grown(self, station: Station, reading: Polled) -> dict[str, LogStat]:
        """Logs of jobs that are stored already, whose size differs from what was last seen of them, or that were never read: a job
        that stood still before it was first seen has words too."""
        found, owed, runs = {}, self._owed.get(station.name, ()), self._runs.get(station.name, {})
        for job, stat in reading.logs.items():
            held = station.memory.get(job)
            if held is None or held.row is None:
                continue
            unheard = job not in runs and stat.state is LogState.READ and stat.size > 0
            if stat != held.log.stat or job in owed or unheard:
                found[job] = stat
        return found

    async def _fetch(
        self,
        station: Station,
        plans: list[Plan],
        stats: Mapping[str, LogStat],
        rows: Mapping[str, int],
        known: Mapping[str, LogCursor | None],
        now: datetime,
    ) -> set[str]:
        if not plans or station.cluster is None:
            return set()
        answers = await read_logs(station, [each.wanted for each in plans], now)
        news, cursors = set(), []
        for each in plans:
            job, path = each.wanted.job_id, each.wanted.path
            answer = answers.get((job, path), LogUnread(path, "no answer"))
            if isinstance(answer, LogUnread):
                log.warning("log.unread", job=f"{station.name}/{job}", path=path, reason=answer.reason)
                self._unread.setdefault(station.name, {})[job] = answer.reason
                self._owed.setdefault(station.name, set()).add(job)
                continue
            before = await self._state_before(station, job, known[job], afresh=each.afresh)
            cursor = await self.keep(rows[job], stats[job], known[job], answer, afresh=each.afresh)
            if cursor is None:
                continue
            written = stats[job].modified_at or now
            state = await asyncio.to_thread(_heard, before, answer, min(written, now))
            cursor = replace(cursor, state=state)
            self._runs.setdefault(station.name, {})[job] = self._summed(station, job, cursor)
            if cursor.bookmark:
                self._bookmarks.setdefault(station.name, {})[job] = cursor.bookmark
            cursors.append(cursor)
            news.add(job)
        if cursors:
            await self.writer.call(lambda store: store.put_log_cursors(cursors))
        return news

    async def last_lines(self, station: Station, reading: Polled, now: datetime) -> set[str]:
        """Hear the rest of the logs of jobs that this reading no longer lists, or lists as ended: their last steps count too.

        Asked once an end, and only of jobs whose log was followed; what cannot be read any more stays as it was heard.
        """
        over = {seen.key.id for seen in reading.changed if seen.state.ended}
        over |= station.memory.live.keys() - reading.lines.keys()
        ended = {
            job: (held.row, held.log.stat)
            for job in over
            if (held := station.memory.get(job)) is not None
            and held.life.phase.live
            and held.row is not None
            and held.log.stat is not None
            and held.log.stat.path == held.details.log_path
        }
        if not ended:
            return set()
        found = await self.writer.call(lambda store: store.log_cursors_of({row for row, _ in ended.values()}))
        cursors = {(each.job_row, each.path): each for each in found}
        known: dict[str, LogCursor | None] = {
            job: cursor for job, (row, stat) in ended.items() if (cursor := cursors.get((row, stat.path))) is not None
        }
        plans = [
            Plan(LogWanted(job, cursor.path, cursor.offset, self.limits.bytes_per_job), afresh=False)
            for job, cursor in known.items()
            if cursor is not None
        ]
        stats = {job: ended[job][1] for job in known}
        rows = {job: ended[job][0] for job in known}
        return await self._fetch(station, plans, stats, rows, known, now)

    async def _state_before(
        self, station: Station, job: str, cursor: LogCursor | None, *, afresh: bool
    ) -> Mapping[str, object]:
        """Where the run stood before this piece: its own, or that of the link of the chain before it (CHAIN-2)."""
        if cursor is not None:
            return next_attempt(cursor.state) if afresh and cursor.state else cursor.state
        held = station.memory.get(job)
        parent = station.memory.get(held.predecessor) if held is not None and held.predecessor else None
        if parent is None or parent.row is None:
            return {}
        row, path = parent.row, parent.details.log_path
        before = await self.writer.call(lambda store: store.log_cursors(row))
        state = next((each.state for each in before if each.path == path), {})
        return next_attempt(state) if state else {}

    async def keep(
        self, row: int, stat: LogStat, cursor: LogCursor | None, piece: LogText, *, afresh: bool
    ) -> LogCursor | None:
        """Keep one piece; None where the disk refuses, which is said and costs nothing but the text."""
        try:
            return await asyncio.to_thread(self.kept.add, row, stat, cursor, piece, afresh=afresh)
        except OSError as error:
            log.error("log.not_kept", path=stat.path, reason=str(error))
            return None

    async def last_words(self, station: Station, held: Held, now: datetime) -> tuple[list[LogCursor], list[LogUnread]]:
        """Fetch what is left of an ended (or suspect) job's logs, standard error too; all cursors of the job after that."""
        row = held.row
        if row is None:
            return [], []
        found = await self.writer.call(lambda store: store.log_cursors(row))
        cursors = {each.path: each for each in found if not each.path.startswith(CURSOR)}
        unread: list[LogUnread] = []
        paths = [path for path in (held.details.log_path, held.details.err_path) if path]
        if station.cluster is None or not paths:
            return list(cursors.values()), unread
        wanted = [self._rest(held.key.id, path, cursors.get(path)) for path in paths]
        answers = await read_logs(station, wanted, now)
        for each in wanted:
            answer = answers.get((each.job_id, each.path), LogUnread(each.path, "no answer"))
            if isinstance(answer, LogUnread):
                unread.append(answer)
            elif answer.data or each.path not in cursors:
                stat = held.log.stat if held.log.stat and held.log.stat.path == each.path else _stat_of(answer)
                kept = await self.keep(row, stat, cursors.get(each.path), answer, afresh=False)
                if kept is not None:
                    if each.path == held.details.log_path and answer.data:
                        state = await asyncio.to_thread(_heard, kept.state, answer, now)
                        kept = replace(kept, state=state)
                        self._runs.setdefault(station.name, {})[held.key.id] = self._summed(station, held.key.id, kept)
                    cursors[each.path] = kept
        found = list(cursors.values())
        await self.writer.call(lambda store: store.put_log_cursors(found))
        return found, unread

    def _rest(self, job: str, path: str, cursor: LogCursor | None) -> LogWanted:
        half = self.limits.kept_bytes_per_job // 2
        if cursor is None:
            return LogWanted(job, path, 0, half)
        return LogWanted(job, path, cursor.offset, half, bookmark=cursor.bookmark)


async def read_logs(station: Station, wanted: list[LogWanted], now: datetime) -> Mapping[tuple[str, str], LogRead]:
    """The backend's answers; a backend that fails whole leaves each log unread with its reason (FIND-4)."""
    if station.cluster is None:
        return {(each.job_id, each.path): LogUnread(each.path, "cluster not set up") for each in wanted}
    try:
        return await asyncio.wait_for(station.cluster.read_logs(wanted, now), timeout=station.section.deadline_s)
    except TimeoutError:
        reason = f"no answer within {station.section.deadline_s:g} s"
    except ClusterError as error:
        reason = error.text
    return {(each.job_id, each.path): LogUnread(each.path, reason) for each in wanted}


def _heard(state: Mapping[str, object], piece: LogText, written_at: datetime) -> Mapping[str, object]:
    """The run's state after one piece of its log. In a thread: a megabyte takes some hundredths of a second."""
    after, _readings = follow(
        state or None, piece.data, piece.offset, seen_at=written_at, lines_skipped=piece.lines_skipped
    )
    return after


def _stat_of(piece: LogText) -> LogStat:
    return LogStat(piece.path, LogState.READ, size=piece.size)
