"""One login node asked for everything: the poll's one script, and, only where something is new, what follows from it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from supervisor.clusters.shell import Shell
from supervisor.clusters.slurm_commands import (
    CHUNK,
    Limits,
    Nonce,
    Place,
    follow_script,
    places_script,
    poll_script,
)
from supervisor.clusters.slurm_jobs import (
    RUNS_AGAIN,
    STATES,
    Clock,
    accounting_state,
    clock_offset,
    details_of,
    used_up,
)
from supervisor.clusters.slurm_settings import SlurmSettings
from supervisor.clusters.slurm_text import (
    ACCOUNTING_IS_OFF,
    NOT_STARTED,
    UNKNOWN_JOB,
    AccountingRow,
    Answer,
    DetailRow,
    FileRow,
    Part,
    Queue,
    QueueRow,
    good,
    group_of,
    read_accounting,
    read_answer,
    read_details,
    read_files,
    read_places,
    read_queue,
    row_of,
)
from supervisor.model.errors import AnswerUnusable, ClusterError
from supervisor.model.job import Details, JobKey, JobState
from supervisor.model.logs import LogStat, LogState
from supervisor.model.polling import Headroom, Watch

PLACES_PER_POLL = 50
"""Work directories listed in one poll, at most (FIND-2)."""


@dataclass(slots=True, kw_only=True)
class Look:
    """What one login node said in one poll."""

    place: str
    users: tuple[str, ...]
    """Whose jobs were asked for."""
    queue: Queue
    clock: Clock
    version: str | None
    took: timedelta
    ended_rows: list[AccountingRow] = field(default_factory=list)
    """Ends since the last good look."""
    found_rows: list[AccountingRow] = field(default_factory=list)
    """Whole histories of the jobs in ``sought``."""
    sought: frozenset[str] = frozenset()
    ends_read: bool = True
    details: dict[JobKey, Details] = field(default_factory=dict)
    started: dict[str, AccountingRow | QueueRow] = field(default_factory=dict)
    """Arrays of which nothing waits any more, and the task that shows it."""
    logs: dict[str, LogStat] = field(default_factory=dict)
    headroom: Headroom | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def rows(self) -> list[AccountingRow]:
        return [*self.ended_rows, *self.found_rows]

    def said_live(self, watch: Watch) -> dict[str, str]:
        """Jobs held as live that the queue does not list and that accounting says run or wait: id to its word (POLL-3)."""
        newest: dict[str, AccountingRow] = {}
        for row in self.rows:
            key = watch.live.get(row.id)
            if key is None or row.id in self.queue.lines or row.submitted < _epoch(key.incarnation):
                continue
            best = newest.get(row.id)
            if best is None or row.submitted >= best.submitted:
                newest[row.id] = row
        return {job: row.state for job, row in newest.items() if accounting_state(row).live}


class Looker:
    """Asks one login node. Nothing of it is kept from one poll to the next."""

    def __init__(
        self, cluster: str, settings: SlurmSettings, limits: Limits, shell: Shell, fresh_nonce: Callable[[], Nonce]
    ) -> None:
        self.cluster, self.settings, self.limits, self.shell, self.fresh_nonce = (
            cluster,
            settings,
            limits,
            shell,
            fresh_nonce,
        )

    async def look(self, watch: Watch, now: datetime) -> Look:
        """Raises ClusterError where the queue could not be read: then nothing is known (POLL-1)."""
        began = time.monotonic()
        look = await self._poll(watch, now)
        wanted = self._wanted(look, watch)
        details: dict[str, DetailRow] = {}
        if wanted.details or wanted.find:
            details = await self._follow(look, wanted)
        wanted.late = self._late(look, watch)
        await self._files(look, wanted, details)
        look.took = timedelta(seconds=time.monotonic() - began)
        return look

    # -- the one script of every poll ------------------------------------------------------------------------------

    async def _poll(self, watch: Watch, now: datetime) -> Look:
        settings, nonce = self.settings, self.fresh_nonce()
        since = watch.ended_since
        gap_s = settings.first_look_back_s if since is None else max((now - since).total_seconds(), 0)
        paths = list(dict.fromkeys(path for path in watch.logs.values() if _usable(path)))
        script = poll_script(
            nonce,
            users=settings.users,
            accounts=settings.accounts,
            since_s=gap_s + settings.look_back_margin_s,
            paths=paths,
            quota_command=settings.quota_command,
            limits=self.limits,
        )
        limit = self.limits.of(queue=1, accounting=1, logs=_runs(paths), quota=1 if settings.quota_command else 0)
        before = time.monotonic()
        answer = await self._run(script, nonce, limit)
        return read_look(self.cluster, self.shell.place, answer, nonce, watch, settings, now, time.monotonic() - before)

    async def _run(self, script: str, nonce: Nonce, limit_s: float) -> Answer:
        return read_answer(self.cluster, self.shell.place, await self.shell.run(script, limit_s=limit_s), nonce)

    # -- what follows from it --------------------------------------------------------------------------------------

    def _wanted(self, look: Look, watch: Watch) -> _Wanted:
        lines, cluster = look.queue.lines, self.cluster
        wanted = _Wanted()
        for row in look.queue.fresh:
            state = STATES.get(row.state, JobState.UNKNOWN)
            key = JobKey(cluster, row.id, row.submit)
            ran = state is not JobState.PENDING and (row.nodes != "" or not state.ended)
            if ran and key not in watch.detailed:
                wanted.new[row.id] = row
        fresh = {row.id for row in look.queue.fresh}
        undetailed = {key.id for key in watch.live.values() if key not in watch.detailed}
        absent = {job for job, stat in look.logs.items() if stat.state is LogState.ABSENT}
        for job in sorted((undetailed | (absent & watch.live.keys())) - fresh):
            line = lines.get(job)
            if line is None or line.startswith(NOT_STARTED):
                continue
            (wanted.new if job in undetailed else wanted.lost)[job] = row_of(line)
        if look.ends_read:
            wanted.find = self._unexplained(look, watch)
        return wanted

    def _unexplained(self, look: Look, watch: Watch) -> list[str]:
        """Ids for accounting: live jobs that are neither listed nor ended (POLL-4), and histories that need counting."""
        ended = {(row.id, row.submit) for row in look.ended_rows}
        find = {}
        gone = watch.live.keys() - look.queue.lines.keys()
        listed_tasks: dict[str, list[QueueRow]] = {}
        for shown, line in look.queue.lines.items() if gone else ():
            array, under, _ = shown.partition("_")
            if under and array in gone:
                listed_tasks.setdefault(array, []).append(row_of(line))
        for job in sorted(gone):
            key = watch.live[job]
            if (job, key.incarnation) in ended:
                continue
            tasks = listed_tasks.get(job, ())
            task = used_up(job, key.incarnation, [*tasks, *look.ended_rows]) if job.isdecimal() else None
            if task is None:
                find[job] = True
            else:
                look.started[job] = task
        seen: set[str] = set()
        for row in look.ended_rows:
            if row.id not in look.queue.lines and (row.id in seen or accounting_state(row) in RUNS_AGAIN):
                find[row.id] = True
            seen.add(row.id)
        return list(find)

    def _late(self, look: Look, watch: Watch) -> dict[str, AccountingRow]:
        """Jobs that began and ended out of our sight, newest first: only their work directory can tell of their log."""
        rows = sorted(look.rows, key=lambda row: row.stop, reverse=True)
        return {
            row.id: row
            for row in rows
            if row.id not in look.queue.lines
            and row.start.isdecimal()
            and accounting_state(row).ended
            and JobKey(self.cluster, row.id, row.submit) not in watch.detailed
        }

    async def _follow(self, look: Look, wanted: _Wanted) -> dict[str, DetailRow]:
        """The second question. Where it fails the reading stands, and says what it lacks."""
        nonce, ids = self.fresh_nonce(), [row.raw_id for row in wanted.details.values()]
        asked = list(dict.fromkeys(job.partition("+")[0] for job in wanted.find))
        script = follow_script(
            nonce,
            users=look.users,
            accounts=self.settings.accounts,
            details_of=ids,
            find=asked,
            limits=self.limits,
        )
        try:
            limit = self.limits.of(queue=1 if ids else 0, accounting=_runs(asked))
            answer = await self._run(script, nonce, limit)
        except ClusterError as error:
            look.problems.append(error.text)
            look.ends_read = look.ends_read and not wanted.find
            return {}
        self._take_found(look, wanted, answer.all("found"), nonce)
        part = answer.get("details")
        return {} if part is None else self._details(look, wanted, part, nonce)

    def _take_found(self, look: Look, wanted: _Wanted, parts: Iterable[Part], nonce: Nonce) -> None:
        for part in parts:
            try:
                if part.failure is not None:
                    raise ValueError(part.failure)
                look.found_rows += read_accounting(part.text, nonce)
            except ValueError as error:
                look.ends_read = False
                look.problems.append(f"accounting did not tell of jobs that left the queue: {error}")
                return
        look.sought = frozenset(wanted.find)

    def _details(self, look: Look, wanted: _Wanted, part: Part, nonce: Nonce) -> dict[str, DetailRow]:
        if part.failure is not None and UNKNOWN_JOB in part.said:
            return {}
        try:
            if part.failure is not None:
                raise ValueError(part.failure)
            rows = {row.id: row for row in read_details(part.text, nonce)}
        except ValueError as error:
            look.problems.append(f"log paths of {len(wanted.details)} jobs are not known yet: {error}")
            return {}
        version = _version(look.version)
        for job, row in wanted.new.items():
            told = rows.get(job)
            if told is not None and told.submit == row.submit:
                look.details[JobKey(self.cluster, job, row.submit)] = details_of(told, version)
        return rows

    # -- files: sizes of logs just learnt of, and logs that are not where they should be (FIND-2) -------------------

    async def _files(self, look: Look, wanted: _Wanted, details: Mapping[str, DetailRow]) -> None:
        paths = {
            key.id: told.log_path for key, told in look.details.items() if told.log_path and _usable(told.log_path)
        }
        places = self._places(look, wanted, details)
        if not paths and not places:
            return
        nonce, asked = self.fresh_nonce(), list(dict.fromkeys(paths.values()))
        limit = self.limits.of(logs=_runs(asked) + _runs(places))
        try:
            answer = await self._run(places_script(nonce, paths=asked, places=places, limits=self.limits), nonce, limit)
        except ClusterError as error:
            look.problems.append(error.text)
            return
        look.logs |= log_stats(paths, answer.all("logs"), nonce, look.clock)
        for part in answer.all("places"):
            for job, rows in read_places(part.text, nonce).items():
                self._take_place(look, wanted, details, job, rows)

    def _places(self, look: Look, wanted: _Wanted, details: Mapping[str, DetailRow]) -> list[Place]:
        places = []
        for job, row in {**wanted.new, **wanted.lost}.items():
            told = details.get(job)
            if told is None or told.submit != row.submit or told.batch != "1" or not _usable(told.workdir):
                continue
            known = look.details.get(JobKey(self.cluster, job, row.submit))
            path = known.log_path if known else details_of(told, _version(look.version)).log_path
            folders = dict.fromkeys((told.workdir, *((path.rpartition("/")[0],) if path and _usable(path) else ())))
            other = _other_id(row)
            places += [Place(path, folder, job, other) for folder in folders if folder]
        for job, gone in wanted.late.items():
            if gone.workdir.startswith("/") and _usable(gone.workdir):
                places.append(Place(None, gone.workdir, job, _other_id(gone)))
        return places[:PLACES_PER_POLL]

    def _take_place(
        self, look: Look, wanted: _Wanted, details: Mapping[str, DetailRow], job: str, rows: Iterable[FileRow]
    ) -> None:
        """The newest file that was written to while the job ran: an id may stand in other names by chance."""
        listed = wanted.new.get(job) or wanted.lost.get(job)
        about = listed or wanted.late[job]
        row = newest_while(rows, about.start, about.stop if STATES.get(about.state, JobState.UNKNOWN).ended else "")
        if row is None:
            return
        key = JobKey(self.cluster, job, about.submit)
        told = look.details.get(key)
        if told is None:
            told = (
                details_of(details[job], _version(look.version))
                if listed
                else Details(workdir=wanted.late[job].workdir)
            )
        look.details[key] = replace(told, log_path=row.path)
        look.logs[job] = _stat(row.path, row, look.clock)


@dataclass(slots=True)
class _Wanted:
    """What a poll found that it must ask about."""

    new: dict[str, QueueRow] = field(default_factory=dict)
    """Attempts that run or ran and whose details are not known."""
    lost: dict[str, QueueRow] = field(default_factory=dict)
    """Running jobs whose log is not where it should be."""
    late: dict[str, AccountingRow] = field(default_factory=dict)
    find: list[str] = field(default_factory=list)

    @property
    def details(self) -> dict[str, QueueRow]:
        return {**self.new, **self.lost}


# -- reading the one script's answer: pure -----------------------------------------------------------------------------


def read_look(
    cluster: str,
    place: str,
    answer: Answer,
    nonce: Nonce,
    watch: Watch,
    settings: SlurmSettings,
    began: datetime,
    took_s: float,
) -> Look:
    """What the poll's script said. Raises ClusterError where the queue is not positively good (POLL-1, POLL-2)."""
    users = [user for user in good(cluster, place, answer, "who", "id").text.split(",") if user]
    if not users:
        raise AnswerUnusable(cluster, f"{place} does not say whose jobs are ours")
    queue_part = good(cluster, place, answer, "queue", "squeue")
    ended_part = answer.get("ended")
    ticks = [int(part.out) for part in answer.all("clock") if part.status == 0 and part.out.strip().isdigit()]
    if not ticks:
        raise AnswerUnusable(cluster, f"{place} does not tell the time")
    try:
        queue = read_queue(queue_part.text, nonce, watch.lines, frozenset(users))
    except ValueError as error:
        raise AnswerUnusable(cluster, f"{place}: {error}") from error
    clock = Clock(cluster, clock_offset(ticks, began, timedelta(seconds=took_s)))
    version_part = answer.get("version")
    look = Look(
        place=place,
        users=tuple(users),
        queue=queue,
        clock=clock,
        version=None if version_part is None or version_part.failure else version_words(version_part.text),
        took=timedelta(seconds=took_s),
    )
    _take_ended(look, ended_part, nonce)
    look.logs = log_stats(watch.logs, answer.all("logs"), nonce, clock)
    if settings.quota_pattern is not None:
        look.headroom = headroom(answer.get("quota"), settings)
        if look.headroom is None:
            look.problems.append("quota_command gave nothing that quota_pattern understands")
    return look


def _take_ended(look: Look, part: Part | None, nonce: Nonce) -> None:
    if part is not None and ACCOUNTING_IS_OFF in part.said:
        return  # the queue is all there is on such a cluster, and it was read
    try:
        if part is None:
            raise ValueError("it was not asked")
        if part.failure is not None:
            raise ValueError(part.failure)
        look.ended_rows = read_accounting(part.text, nonce)
    except ValueError as error:
        look.ends_read = False
        look.problems.append(f"accounting could not be read: {error}")


def log_stats(wanted: Mapping[str, str], parts: Iterable[Part], nonce: Nonce, clock: Clock) -> dict[str, LogStat]:
    """A stat for each wanted log. One that nothing was said of is unread, never absent (FIND-4)."""
    rows: dict[str, FileRow] = {}
    reason = "the login node gave neither a size nor a clear no"
    for part in parts:
        rows |= {row.path: row for row in read_files(part.text, nonce)}
        reason = part.failure or reason
    found = {}
    for job, path in wanted.items():
        row = rows.get(path)
        found[job] = LogStat(path, LogState.UNREAD, reason=reason) if row is None else _stat(path, row, clock)
    return found


def _stat(path: str, row: FileRow, clock: Clock) -> LogStat:
    if row.seconds is None:
        return LogStat(path, LogState.ABSENT, reason="no such file")
    return LogStat(path, LogState.READ, row.size, clock.at(row.seconds), row.device, row.inode)


SPILL_S = 600
"""How long after a job's end its log may still be written to, by buffers and slow file systems, seconds."""


def newest_while(rows: Iterable[FileRow], start: str, stop: str) -> FileRow | None:
    """The newest of files that were written to after ``start``, and not long after ``stop`` where the job has ended."""
    low = int(start) - 60 if start.isdecimal() else 0
    high = int(stop) + SPILL_S if stop.isdecimal() else None
    fit = [
        row for row in rows if row.seconds is not None and row.seconds >= low and (high is None or row.seconds <= high)
    ]
    return max(fit, key=lambda row: row.seconds or 0, default=None)


def headroom(part: Part | None, settings: SlurmSettings) -> Headroom | None:
    """Numbers of the quota command's output; None where there are none."""
    if part is None or part.failure is not None or settings.quota_pattern is None:
        return None
    found = re.search(settings.quota_pattern, part.text[:65536], re.MULTILINE)
    if found is None:
        return None
    groups = found.groupdict()
    return Headroom(
        inodes_used=_amount(groups.get("inodes_used"), 1),
        inodes_soft=_amount(groups.get("inodes_soft"), 1),
        bytes_used=_amount(groups.get("bytes_used"), settings.quota_unit_bytes),
        bytes_soft=_amount(groups.get("bytes_soft"), settings.quota_unit_bytes),
    )


def _amount(text: str | None, unit: int) -> int | None:
    found = re.fullmatch(r"\s*([0-9][0-9,]*(?:\.[0-9]+)?)\s*([kKMGTP]?)(?:i?B)?\*?\s*", text or "")
    if not found:
        return None
    scale = 1024 ** " KMGTP".index(found[2].upper()) if found[2] else unit
    return int(float(found[1].replace(",", "")) * scale)


def version_words(text: str) -> str | None:
    """``22.05.8`` of ``slurm-wlm 22.05.8``."""
    found = re.search(r"[0-9]+\.[0-9]+(?:\.[0-9A-Za-z-]+)?", text)
    return found[0] if found else None


def _version(text: str | None) -> tuple[int, int] | None:
    found = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", text or "")
    return (int(found[1]), int(found[2])) if found else None


def _other_id(row: QueueRow | AccountingRow) -> str:
    """The raw id of a task or component, where it is its own and not the whole array's or set's."""
    return "" if row.raw_id in (row.id, group_of(row.shown_id)) else row.raw_id


def _usable(path: str) -> bool:
    return bool(path) and "\0" not in path


def _runs(things: Sized) -> int:
    return -(-len(things) // CHUNK)


def _epoch(incarnation: str) -> int:
    return int(incarnation) if incarnation.isdecimal() else 0
