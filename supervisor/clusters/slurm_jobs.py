"""Rows of Slurm turned into observations: states, times, attempts, ends, paths. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from supervisor.clusters.slurm_text import AccountingRow, DetailRow, QueueRow, group_of, tasks_in
from supervisor.model.job import Burn, Dependency, Details, JobKey, JobState, Observation

STATES: Mapping[str, JobState] = {
    "PENDING": JobState.PENDING,
    "CONFIGURING": JobState.STARTING,
    "POWER_UP_NODE": JobState.STARTING,
    "RUNNING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "EXPEDITING": JobState.PENDING,
    "SUSPENDED": JobState.SUSPENDED,
    "STOPPED": JobState.SUSPENDED,
    "COMPLETING": JobState.COMPLETING,
    "STAGE_OUT": JobState.COMPLETING,
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "CANCELLED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMED_OUT,
    "DEADLINE": JobState.TIMED_OUT,
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY,
    "NODE_FAIL": JobState.NODE_FAILED,
    "BOOT_FAIL": JobState.NODE_FAILED,
    "PREEMPTED": JobState.PREEMPTED,
    # In the queue the rest are flags that hide the state below them; each means that the job waits to run again.
    "REQUEUED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
}
"""Slurm's words. Any other is UNKNOWN, which moves nothing."""

ENDED_BY_OTHERS = frozenset(
    {JobState.CANCELLED, JobState.TIMED_OUT, JobState.NODE_FAILED, JobState.PREEMPTED, JobState.REQUEUED}
)
"""Ends that were done to the program. Accounting's ``0:0`` beside them is no exit status of it."""
RUNS_AGAIN = frozenset({JobState.NODE_FAILED, JobState.PREEMPTED, JobState.REQUEUED})
"""Ends after which the same id may run again without anybody's doing."""


LAUNCH_FAILED = 53
"""What Slurm writes in a signal's place where the batch script was never begun. No program died of it."""
NOT_LAUNCHED = (
    "it could not start: its output file could not be opened or its work directory entered (Slurm's code 0:53)"
)


@dataclass(frozen=True, slots=True)
class Clock:
    """The cluster's clock against ours (POLL-10)."""

    cluster: str
    offset: timedelta

    def utc(self, epoch: str) -> datetime | None:
        """None for ``N/A``, ``Unknown``, ``None`` and times that no calendar holds."""
        return self.at(int(epoch)) if epoch.isdecimal() and len(epoch) < 12 and epoch != "0" else None

    def at(self, seconds: int) -> datetime | None:
        try:
            return datetime.fromtimestamp(seconds, UTC) - self.offset
        except (OverflowError, ValueError, OSError):
            return None


OFFSET_STEP_S = 30


def clock_offset(remote: Collection[int], began: datetime, took: timedelta) -> timedelta:
    """Cluster's clock minus ours, in steps of 30 s so that it does not flicker; less than one step counts as none.

    ``remote``: what the cluster's clock said near the beginning and the end of a command that began at ``began``, ours.
    """
    if not remote:
        return timedelta(0)
    middle = (min(remote) + max(remote) + 1) / 2
    apart = middle - (began + took / 2).timestamp()
    return timedelta(seconds=round(apart / OFFSET_STEP_S) * OFFSET_STEP_S if abs(apart) >= OFFSET_STEP_S else 0)


def listed(row: QueueRow, clock: Clock, details: Details | None = None) -> Observation:
    """What the queue says of one job."""
    state = STATES.get(row.state, JobState.UNKNOWN)
    ran = state is not JobState.PENDING and (row.nodes != "" or not state.ended)
    restarts = _number(row.restarts)
    own_end = state.ended and state not in ENDED_BY_OTHERS
    exit_code, signal = exit_of(row.exit_code, state) if own_end else (None, None)
    reason = None if row.reason in ("None", "(null)", "") else row.reason
    if signal == LAUNCH_FAILED:
        signal, reason = None, f"{reason}: {NOT_LAUNCHED}" if reason else NOT_LAUNCHED
    return Observation(
        key=JobKey(clock.cluster, row.id, row.submit),
        name=row.name,
        user=row.user,
        state=state,
        scheduler_state=row.state,
        reason=reason,
        submitted_at=clock.utc(row.submit),
        started_at=clock.utc(row.start) if ran else None,
        ended_at=clock.utc(row.stop) if state.ended else None,
        time_limit=time_limit(row.limit),
        account=_told(row.account),
        partition=_told(row.partition),
        group=group_of(row.shown_id) or (row.id if row.shown_id != row.id else None),
        group_size=tasks_in(row.shown_id),
        nodes=node_names(row.nodes),
        node_count=_number(row.node_count),
        exit_code=exit_code,
        signal=signal,
        attempt=None if restarts is None else restarts + 1,
        renews=bool(restarts),
        burn=Burn(restarts) if restarts else None,
        depends_on=dependencies(row.dependency),
        details=details,
    )


def ended(
    row: AccountingRow, clock: Clock, *, final: bool, attempt: int | None, details: Details | None
) -> Observation:
    """What accounting says of one attempt that ended."""
    state = accounting_state(row)
    exit_code, signal = exit_of(row.exit_code, state)
    reason = NOT_LAUNCHED if signal == LAUNCH_FAILED else None
    signal = None if reason else signal
    limit = _number(row.limit_min)
    return Observation(
        key=JobKey(clock.cluster, row.id, row.submit),
        name=row.name,
        user=row.user,
        state=state,
        scheduler_state=row.state,
        reason=reason,
        submitted_at=clock.utc(row.submit),
        started_at=clock.utc(row.start),
        ended_at=clock.utc(row.stop),
        time_limit=None if limit is None else timedelta(minutes=limit),
        account=_told(row.account),
        partition=_told(row.partition),
        group=group_of(row.shown_id),
        group_size=tasks_in(row.shown_id),
        nodes=node_names(row.nodes),
        node_count=_number(row.node_count),
        exit_code=exit_code,
        signal=signal,
        attempt=attempt,
        renews=(attempt or 1) > 1,
        burn=Burn(attempt - 1) if attempt and attempt > 1 else None,
        details=details,
        final=final,
    )


def accounting_state(row: AccountingRow) -> JobState:
    """``CANCELLED by 1001`` is CANCELLED; REQUEUED is the end of an attempt here, not a job that waits."""
    word = row.state.partition(" ")[0]
    return JobState.REQUEUED if word in ("REQUEUED", "REQUEUE") else STATES.get(word, JobState.UNKNOWN)


def ends(
    rows: Iterable[AccountingRow],
    queue: Mapping[str, QueueRow],
    whole: Collection[str],
    clock: Clock,
    details: Mapping[JobKey, Details | None],
) -> list[Observation]:
    """The attempts that ended, each told from the attempts after it.

    ``queue``: those of these jobs that are listed. ``whole``: ids whose whole history is among ``rows``, so that attempts
    can be counted from the first. ``details``: what is known of an attempt; its work directory is all that accounting adds.
    """
    by_id: dict[str, dict[str, AccountingRow]] = {}
    for row in rows:
        by_id.setdefault(row.id, {})[row.submit] = row
    found = []
    for job, history in by_id.items():
        attempts = sorted(history.values(), key=lambda row: row.submitted)
        now_listed = queue.get(job)
        numbers = _attempt_numbers(attempts, now_listed, job in whole)
        for at, row in enumerate(attempts):
            state = accounting_state(row)
            if not state.ended or clock.utc(row.stop) is None:
                continue
            followed = at + 1 < len(attempts) or _listed_again(row, state, now_listed)
            final = not followed and state is not JobState.REQUEUED
            key = JobKey(clock.cluster, job, row.submit)
            known = details[key] if key in details else Details(workdir=_told(row.workdir))
            found.append(ended(row, clock, final=final, attempt=numbers[at], details=known))
    return found


def _listed_again(row: AccountingRow, state: JobState, now_listed: QueueRow | None) -> bool:
    if now_listed is None or not now_listed.submit.isdecimal():
        return False
    if int(now_listed.submit) > row.submitted:
        return True
    live = not STATES.get(now_listed.state, JobState.UNKNOWN).ended
    return now_listed.submit == row.submit and live and state in RUNS_AGAIN


def _attempt_numbers(attempts: list[AccountingRow], now_listed: QueueRow | None, whole: bool) -> list[int | None]:
    """Numbers from 1. Counted back from what the queue says, else forward through a whole history, else not told.

    Slurm uses ids again: rows of another name or user belong to another job, and are not counted.
    """
    if now_listed is not None and (restarts := _number(now_listed.restarts)) is not None:
        after = [row for row in attempts if row.submit != now_listed.submit and _same_job(row, now_listed)]
        number = {row.submit: restarts - back for back, row in enumerate(reversed(after))}
        number[now_listed.submit] = restarts + 1
        return [n if (n := number.get(row.submit)) and n > 0 else None for row in attempts]
    if not whole:
        return [None] * len(attempts)
    counted: list[int | None] = []
    for at, row in enumerate(attempts):
        before = attempts[at - 1] if at else None
        goes_on = before is not None and _same_job(before, row)
        counted.append((counted[-1] or 0) + 1 if goes_on and counted else 1)
    return counted


def _same_job(row: AccountingRow, other: AccountingRow | QueueRow) -> bool:
    return row.name == other.name and row.user == other.user


def used_up(array: str, incarnation: str, rows: Iterable[AccountingRow | QueueRow]) -> AccountingRow | QueueRow | None:
    """The task that took over an array's own record. When it exists no task of that array waits any more.

    Slurm gives each task that starts a number of its own, except the last: that one keeps the array's.
    """
    for row in rows:
        if row.raw_id == array and row.submit == incarnation and re.fullmatch(rf"{array}_[0-9]+", row.shown_id):
            return row
    return None


def all_started(key: JobKey, row: AccountingRow | QueueRow, clock: Clock) -> Observation:
    """The waiting rest of an array, of which nothing waits any more: its tasks are jobs of their own."""
    return Observation(
        key=key,
        name=row.name,
        user=row.user,
        state=JobState.COMPLETED,
        scheduler_state="STARTED",
        reason="every task of this array has started; each is a job of its own",
        submitted_at=clock.utc(row.submit),
        ended_at=clock.utc(row.start),
        account=_told(row.account),
        partition=_told(row.partition),
        group=key.id,
        group_size=0,
    )


# -- words and numbers -------------------------------------------------------------------------------------------------


def exit_of(text: str, state: JobState) -> tuple[int | None, int | None]:
    """Exit code and signal out of ``code:signal``, or out of the raw wait status that squeue before 23.11 prints.

    A program that a signal ended has no exit code. Zeros beside an end that others caused say nothing of the program.
    """
    code_text, colon, signal_text = text.partition(":")
    code, signal = _number(code_text), _number(signal_text)
    if code is None or (colon and signal is None):
        return None, None
    if not colon:
        code, signal = code >> 8 & 0xFF, code & 0x7F
    if signal:
        return None, signal
    return (None, None) if code == 0 and state in ENDED_BY_OTHERS else (code, None)


def time_limit(text: str) -> timedelta | None:
    """``1-02:00:00``, ``10:00`` (minutes and seconds). None for UNLIMITED and other words."""
    found = re.fullmatch(r"(?:([0-9]{1,6})-)?(?:([0-9]{1,6}):)?([0-9]{1,6}):([0-9]{1,2})", text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def dependencies(text: str) -> tuple[Dependency, ...]:
    """``afterany:42(unfulfilled),afterok:7_*(failed)?singleton(unfulfilled)`` as edges. A whole array is named by its id."""
    edges = []
    for word in re.split(r"[,?]", text):
        kind, _, rest = word.partition("(")[0].partition(":")
        if not re.fullmatch(r"[a-z]+", kind):
            continue
        jobs = re.findall(
            r"[0-9]+(?:_[0-9]+|\+[0-9]+)?", re.sub(r"_\*|\+[0-9]+$", "", rest) if kind == "after" else rest
        )
        edges += [Dependency(kind, job) for job in jobs] if jobs else [Dependency(kind, "")]
    return tuple(edges)


NODES_MAX = 4096


@lru_cache(maxsize=4096)
def node_names(text: str) -> tuple[str, ...]:
    """``gpu[01-03,07],login1`` as single names; bounded, so that no text can fill the memory."""
    if text in ("", "(null)", "None assigned", "N/A", "n/a"):
        return ()
    names: list[str] = []
    for word in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        names += _expanded(word, NODES_MAX - len(names))
        if len(names) >= NODES_MAX:
            break
    return tuple(names)


def _expanded(word: str, room: int) -> list[str]:
    found = re.match(r"([^\[]*)\[([^\]]*)\](.*)", word, re.DOTALL)
    if not found:
        return [word][:room]
    before, inside, after = found.groups()
    names: list[str] = []
    for span in inside.split(","):
        ends_of = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", span)
        if ends_of:
            low, high, width = int(ends_of[1]), int(ends_of[2]), len(ends_of[1])
            middles = [str(n).zfill(width) for n in range(low, min(high, low + room) + 1)]
        else:
            middles = [span]
        for middle in middles:
            names += _expanded(before + middle + after, room - len(names))
            if len(names) >= room:
                return names[:room]
    return names


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 12 else None


def _told(text: str) -> str | None:
    return None if text in ("", "(null)", "N/A", "n/a") else text


# -- paths -------------------------------------------------------------------------------------------------------------

_NO_TASK = 4294967294
"""What Slurm prints for the task of a job that is no array."""


def details_of(row: DetailRow, version: tuple[int, int] | None) -> Details:
    """Where a job writes, as the scheduler has it, patterns resolved (FIND-1)."""
    log_path, err = _out_path(row, version), row.err
    out = log_pattern(row)
    err_path = resolved(err, row, version) if _told(err) and err not in (row.out, out) and row.batch == "1" else None
    return Details(
        log_path=None if log_path == NOWHERE else log_path,
        err_path=None if err_path in (log_path, NOWHERE) else err_path,
        workdir=_told(row.workdir),
        command=_told(row.command),
        restarts=_number(row.restarts),
    )


NOWHERE = "/dev/null"


def has_no_log(row: DetailRow, version: tuple[int, int] | None) -> bool:
    """Whether it was told to throw its output away: then no file is its log, whatever its name."""
    return _out_path(row, version) == NOWHERE


def _out_path(row: DetailRow, version: tuple[int, int] | None) -> str | None:
    pattern = log_pattern(row)
    path = resolved(pattern, row, version) if pattern else None
    return NOWHERE if path is not None and posixpath.normpath(path).replace("//", "/") == NOWHERE else path


def log_pattern(row: DetailRow) -> str | None:
    """The pattern of standard output. Before 24.05 squeue shows an array's default under the raw id, where no file is."""
    is_array = row.task_id.isdecimal()
    if row.batch != "1":
        return None
    default = f"{row.workdir}/slurm-{row.raw_id}.out"
    if not _told(row.out) or (row.out == default and row.raw_id != row.shown_id):
        return "slurm-%A_%a.out" if is_array else "slurm-%j.out"
    return row.out


def resolved(pattern: str, row: DetailRow, version: tuple[int, int] | None) -> str | None:
    """A path of ``sbatch -o`` as the batch step opens it. None where it holds a word that this version does not know.

    A backslash anywhere switches all patterns off, and is dropped itself.
    """
    path = pattern if pattern.startswith("/") else f"{row.workdir.rstrip('/')}/{pattern}"
    if "\\" in path:
        return re.sub(r"\\(.?)", r"\1", path, flags=re.DOTALL)
    task = int(row.task_id) if row.task_id.isdecimal() else _NO_TASK
    # The batch script of a heterogeneous job runs in its first component, whose log is the log of all.
    job = row.shown_id.partition("+")[0] if "+" in row.shown_id else row.raw_id
    numbers = {
        "A": row.array_id if row.task_id.isdecimal() else job,
        "a": str(task),
        "j": job,
        "J": job,
        "n": "0",
        "t": "0",
    }
    if version is None or version >= (24, 11):
        numbers["b"] = str(task % 10)
    if version is None or version >= (25, 11):
        numbers["r"] = row.restarts
    words = {"N": row.batch_host.partition(".")[0], "u": row.user, "x": row.name, "s": "batch", "%": "%"}
    if "%N" in path and _told(words["N"]) is None:
        return None

    def put(found: re.Match[str]) -> str:
        width, letter = found.groups()
        if letter in numbers:
            return numbers[letter].zfill(min(int(width or 0), 10))
        return words.get(letter, found[0])

    return re.sub(r"%([0-9]{0,9})(.)", put, path, flags=re.DOTALL)
