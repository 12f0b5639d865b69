"""What one poll's answer says, before anything follows from it: queue, ends, sizes of logs, quota. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from supervisor.clusters.slurm_commands import QUEUE_FIELDS, UNIT, Nonce
from supervisor.clusters.slurm_jobs import Clock, accounting_state, clock_offset
from supervisor.clusters.slurm_settings import SlurmSettings
from supervisor.clusters.slurm_text import (
    ACCOUNTING_IS_OFF,
    AccountingRow,
    Answer,
    FileRow,
    Part,
    Queue,
    QueueRow,
    good,
    read_accounting,
    read_files,
    read_queue,
    row_of,
)
from supervisor.model.errors import AnswerUnusable
from supervisor.model.job import Details, JobKey
from supervisor.model.logs import LogStat, LogState
from supervisor.model.polling import Headroom, Watch

PLACEHOLDER = "allocation"
"""What accounting calls a job whose name it was not told yet."""
SETTLED_S = 60
"""Age of an end after which such a name is taken for the real one, seconds."""


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
    now_s: int = 0
    """The cluster's own clock, when the answer was nearly whole."""
    ended_rows: list[AccountingRow] = field(default_factory=list)
    """Ends since the last good look."""
    found_rows: list[AccountingRow] = field(default_factory=list)
    """Whole histories of the jobs in ``sought``."""
    sought: frozenset[str] = frozenset()
    asked_again: bool = False
    """Whether this node, asked once more, said again that the queue is empty (POLL-3)."""
    not_again: str | None = None
    """What it said instead."""
    still_rows: list[AccountingRow] = field(default_factory=list)
    """What accounting holds to be running or waiting while the queue is empty."""
    accounting_off: bool = False
    """Whether the cluster keeps no accounting: the queue is all there is."""
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

    def named(self, watch: Watch) -> list[AccountingRow]:
        """Accounting's rows under their real names.

        For some seconds accounting calls a short job ``allocation``. One that was listed before keeps the name it had
        there; any other is left for the next look, which goes back far enough.
        """
        rows = []
        for row in self.rows:
            if row.name == PLACEHOLDER:
                line = self.queue.lines.get(row.id, watch.lines.get(row.id))
                seen = row_of(line) if isinstance(line, str) and line.count(UNIT) >= len(QUEUE_FIELDS) - 1 else None
                if seen is not None and seen.submit == row.submit:
                    rows.append(row._replace(name=seen.name))
                    continue
                if row.stop.isdecimal() and self.now_s - int(row.stop) < SETTLED_S and row.id not in watch.live:
                    continue
            rows.append(row)
        return rows

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

    def unknown_to_accounting(self, watch: Watch) -> list[str]:
        """Jobs held as live of which accounting has no row at all."""
        told = {(row.id, row.submit) for row in self.rows}
        later = {row.id: row.submitted for row in sorted(self.rows, key=lambda row: row.submitted)}
        return sorted(
            job
            for job, key in watch.live.items()
            if (job, key.incarnation) not in told
            and later.get(job, -1) < _epoch(key.incarnation)
            and job not in self.started
        )

    def goes_on(self) -> list[AccountingRow]:
        """What accounting says runs or waits now. A record that outlived its time limit by a day was never closed."""
        return [row for row in self.still_rows if accounting_state(row).live and not _never_closed(row, self.now_s)]


def _never_closed(row: AccountingRow, now_s: int) -> bool:
    limited = row.start.isdecimal() and row.limit_min.isdecimal()
    return limited and int(row.start) + int(row.limit_min) * 60 + NEVER_CLOSED_S < now_s


NEVER_CLOSED_S = 86400
"""How long after its time limit a job is no longer believed to run because accounting says so, seconds."""
REGISTERED_S = 60
"""Age up to which accounting need not know of a job yet, seconds."""


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
        now_s=max(ticks),
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
        look.accounting_off = True
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
        found[job] = LogStat(path, LogState.UNREAD, reason=reason) if row is None else stat_of(path, row, clock)
    return found


def stat_of(path: str, row: FileRow, clock: Clock) -> LogStat:
    if row.seconds is None:
        return LogStat(path, LogState.ABSENT, reason="no such file")
    if path == "/dev/null":
        return LogStat(path, LogState.NONE, reason="its output goes to /dev/null")
    if row.trouble is not None:
        return LogStat(path, LogState.UNREAD, reason=row.trouble)
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


def version_numbers(text: str | None) -> tuple[int, int] | None:
    found = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", text or "")
    return (int(found[1]), int(found[2])) if found else None


def _epoch(incarnation: str) -> int:
    return int(incarnation) if incarnation.isdecimal() else 0
