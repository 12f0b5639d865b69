"""One login node asked for everything: the poll's one script, and, only where something is new, what follows from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from supervisor.clusters.shell import Shell
from supervisor.clusters.slurm_commands import (
    Nonce,
    Place,
    Site,
    again_script,
    chunks,
    follow_script,
    places_script,
    poll_script,
)
from supervisor.clusters.slurm_jobs import (
    RUNS_AGAIN,
    STATES,
    accounting_state,
    details_of,
    has_no_log,
    used_up,
)
from supervisor.clusters.slurm_reading import Look, log_stats, newest_while, read_look, stat_of, version_numbers
from supervisor.clusters.slurm_settings import SlurmSettings
from supervisor.clusters.slurm_text import (
    NOT_STARTED,
    UNKNOWN_JOB,
    AccountingRow,
    Answer,
    DetailRow,
    FileRow,
    Part,
    QueueRow,
    good,
    group_of,
    read_accounting,
    read_answer,
    read_details,
    read_places,
    read_queue,
    row_of,
)
from supervisor.model.errors import ClusterError
from supervisor.model.job import Details, JobKey, JobState
from supervisor.model.logs import LogState
from supervisor.model.polling import Watch

PLACES_PER_POLL = 50
"""Work directories listed in one poll, at most (FIND-2)."""


class Looker:
    """Asks one login node. Nothing of it is kept from one poll to the next."""

    def __init__(
        self, cluster: str, settings: SlurmSettings, site: Site, shell: Shell, fresh_nonce: Callable[[], Nonce]
    ) -> None:
        self.cluster, self.settings, self.site, self.shell, self.fresh_nonce = (
            cluster,
            settings,
            site,
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
        if not look.queue.lines:
            await self._again(look)
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
            site=self.site,
        )
        limit = self.site.of(queue=1, accounting=1, logs=len(chunks(paths)), quota=1 if settings.quota_command else 0)
        before = time.monotonic()
        answer = await self._run(script, nonce, limit)
        return read_look(self.cluster, self.shell.place, answer, nonce, watch, settings, now, time.monotonic() - before)

    async def _run(self, script: str, nonce: Nonce, limit_s: float) -> Answer:
        return read_answer(self.cluster, self.shell.place, await self.shell.run(script, limit_s=limit_s), nonce)

    async def _again(self, look: Look) -> None:
        """POLL-3: an empty queue is asked for once more, and accounting for what it holds to be running or waiting."""
        nonce = self.fresh_nonce()
        script = again_script(nonce, users=look.users, accounts=self.settings.accounts, site=self.site)
        try:
            answer = await self._run(script, nonce, self.site.of(queue=1, accounting=1))
            part = good(self.cluster, self.shell.place, answer, "queue", "squeue")
            lines = read_queue(part.text, nonce, {}, frozenset(look.users)).lines
        except (ClusterError, ValueError) as error:
            look.not_again = f"and asked again: {error.text if isinstance(error, ClusterError) else error}"
            return
        look.asked_again = True
        if lines:
            look.not_again = f"and asked again it lists {len(lines)}"
        still = answer.get("still")
        if still is not None and still.failure is None:
            try:
                look.still_rows = read_accounting(still.text, nonce)
            except ValueError as error:
                look.problems.append(f"accounting did not tell of what runs: {error}")

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
            site=self.site,
        )
        try:
            limit = self.site.of(queue=1 if ids else 0, accounting=len(chunks(asked)))
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
        version = version_numbers(look.version)
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
        limit = self.site.of(logs=len(chunks(asked)) + len(chunks(places)))
        try:
            answer = await self._run(places_script(nonce, paths=asked, places=places, site=self.site), nonce, limit)
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
            if has_no_log(told, version_numbers(look.version)):
                continue
            known = look.details.get(JobKey(self.cluster, job, row.submit))
            path = known.log_path if known else details_of(told, version_numbers(look.version)).log_path
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
                details_of(details[job], version_numbers(look.version))
                if listed
                else Details(workdir=wanted.late[job].workdir)
            )
        look.details[key] = replace(told, log_path=row.path)
        look.logs[job] = stat_of(row.path, row, look.clock)


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


def _other_id(row: QueueRow | AccountingRow) -> str:
    """The raw id of a task or component, where it is its own and not the whole array's or set's."""
    return "" if row.raw_id in (row.id, group_of(row.shown_id)) else row.raw_id


def _usable(path: str) -> bool:
    return bool(path) and "\0" not in path
