"""A scripted scheduler: what is true is known, and readings of it can be spoilt in the ways that real ones are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from supervisor.model.errors import ClusterError, NotApproved
from supervisor.model.job import Dependency, Details, JobKey, JobState, Observation
from supervisor.model.logs import LogRead, LogStat, LogState, LogText, LogUnread, LogWanted
from supervisor.model.polling import Check, Polled, Reading, Unreached, Watch
from supervisor.model.ports import Approval, CancelReceipt
from supervisor.model.probe import Captured, CaptureWanted, Remains
from tests.scripted_captures import captures
from tests.some import HOUR, NOON


class OnCancel(Enum):
    """What becomes of a cancel that is sent to a job."""

    ENDS = "taken, and the job ends"
    REFUSED = "refused, and the job lives"
    ENDS_UNSAID = "the job ends, but the answer is lost (KILL-6)"
    LOST = "the answer is lost, and so was the cancel (KILL-6)"
    IGNORED = "taken, but the job lives on"
    LEAVES_REMAINS = "taken, and the job ends, but a process of it stays"
    UNREACHABLE = "no session can be opened: ClusterError, and nothing was sent"


@dataclass
class ScriptedJob:
    """One job as it truly is."""

    id: str
    name: str
    submitted_at: datetime
    state: JobState = JobState.PENDING
    attempt: int = 1
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    depends_on: tuple[Dependency, ...] = ()
    output_at: datetime | None = None
    text: bytes = b""
    listed: bool = True
    in_accounting: bool = True
    past: list[Observation] = field(default_factory=list)
    busy: bool = True
    """Whether its processes use their processors, and stand in work; else they wait in a collective."""
    log_unread: str | None = None
    """Why its log cannot be captured."""
    remains: tuple[str, ...] = ()
    """What is still there after its end."""
    on_cancel: OnCancel = OnCancel.ENDS

    @property
    def incarnation(self) -> str:
        return str(int(self.submitted_at.timestamp()))

    def seen(self, cluster: str, *, final: bool = True) -> Observation:
        return Observation(
            key=JobKey(cluster, self.id, self.incarnation),
            name=self.name,
            user="alice",
            state=self.state,
            scheduler_state=self.state.value.upper(),
            submitted_at=self.submitted_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            exit_code=self.exit_code,
            attempt=self.attempt,
            renews=self.attempt > 1,
            depends_on=self.depends_on if self.state is JobState.PENDING else (),
            details=Details(log_path=f"/home/alice/{self.id}.out", workdir="/home/alice", restarts=self.attempt - 1),
            time_limit=HOUR,
            nodes=("node01",) if self.started_at else (),
            final=final,
        )


class World:
    """A scheduler's truth, and honest or spoilt readings of it. Time moves only when told."""

    def __init__(self, cluster: str = "cluster-a", now: datetime = NOON) -> None:
        self.cluster, self.now = cluster, now
        self.jobs: dict[str, ScriptedJob] = {}
        self.accounting_up = True
        self.unreachable: str | None = None
        self.captures: dict[str, list[Captured]] = {}
        """What is captured of a job, in place of what is true of it."""

    # -- what happens ----------------------------------------------------------------------------------------------

    def pass_time(self, span: timedelta = timedelta(minutes=1)) -> None:
        self.now += span

    def submit(self, job: str, name: str = "", after: str | None = None) -> ScriptedJob:
        edges = (Dependency("afterany", after),) if after else ()
        self.jobs[job] = ScriptedJob(job, name or f"train-{job}", self.now, depends_on=edges)
        return self.jobs[job]

    def start(self, job: str) -> None:
        it = self.jobs[job]
        it.state, it.started_at = JobState.RUNNING, self.now

    def print(self, job: str, text: bytes = b"step\n") -> None:
        it = self.jobs[job]
        it.text += text
        it.output_at = self.now

    def end(self, job: str, state: JobState, exit_code: int | None = None, *, listed: bool = False) -> None:
        it = self.jobs[job]
        it.state, it.ended_at, it.exit_code, it.listed = state, self.now, exit_code, listed
        for child in self.jobs.values():
            if any(edge.on == job for edge in child.depends_on) and child.state is JobState.PENDING:
                child.state, child.started_at = JobState.RUNNING, self.now

    def requeue(self, job: str, state: JobState = JobState.REQUEUED) -> None:
        it = self.jobs[job]
        it.past.append(replace(it.seen(self.cluster, final=False), state=state, ended_at=self.now, details=None))
        it.submitted_at, it.state, it.started_at, it.attempt = self.now, JobState.PENDING, None, it.attempt + 1
        it.output_at = None

    # -- what a poll sees ------------------------------------------------------------------------------------------

    def read(self, watch: Watch, *, lag: frozenset[str] = frozenset()) -> Reading:
        """A reading now. ``lag``: jobs whose end accounting does not know yet."""
        if self.unreachable:
            return Unreached(cluster=self.cluster, at=self.now, reason=self.unreachable)
        listed = {it.id: it.seen(self.cluster) for it in self.jobs.values() if it.listed}
        lines = {job: str(seen) for job, seen in listed.items()}
        ended: list[Observation] = []
        if self.accounting_up:
            for it in self.jobs.values():
                ended += it.past
                if it.state.ended and it.in_accounting and it.id not in lag:
                    ended.append(replace(it.seen(self.cluster), details=None))
        logs = {job: self._stat(path, job) for job, path in watch.logs.items() if job in self.jobs}
        return Polled(
            cluster=self.cluster,
            at=self.now,
            lines=lines,
            changed=[seen for job, seen in listed.items() if watch.lines.get(job) != lines[job]],
            ended=ended,
            ends_read=self.accounting_up,
            logs=logs,
        )

    def _stat(self, path: str, job: str) -> LogStat:
        it = self.jobs[job]
        if it.output_at is None:
            return LogStat(path, LogState.READ, size=0, modified_at=it.started_at, inode=1)
        return LogStat(path, LogState.READ, size=len(it.text), modified_at=it.output_at, inode=1)


class ScriptedCluster:
    """The world behind the port, for the loop's own tests."""

    kind = "scripted"

    def __init__(self, world: World) -> None:
        self.world, self.name = world, world.cluster
        self.polls = 0
        self.captured: list[CaptureWanted] = []
        self.cancelled: list[JobKey] = []
        """Each cancel that reached the scheduler, whatever became of it."""

    async def poll(self, watch: Watch, now: datetime) -> Reading:
        self.polls += 1
        return self.world.read(watch)

    async def read_logs(self, wanted: Sequence[LogWanted], now: datetime) -> Mapping[tuple[str, str], LogRead]:
        answers: dict[tuple[str, str], LogRead] = {}
        for each in wanted:
            it = self.world.jobs.get(each.job_id)
            if it is None or not each.path.endswith(f"{it.id}.out"):
                answers[each.job_id, each.path] = LogUnread(each.path, "No such file or directory")
                continue
            start = max(each.offset, len(it.text) - each.limit) if each.tail else each.offset
            skipped = it.text[each.offset : start].count(b"\n")
            data = it.text[start : start + each.limit]
            answers[each.job_id, each.path] = LogText(each.path, start, data, len(it.text), skipped)
        return answers

    async def cancel(self, job: JobKey, approval: Approval) -> CancelReceipt:
        if approval.job != job or job.cluster != self.name:
            raise NotApproved(f"approval {approval.id} is for {approval.job.ref}, not for {job.ref}")
        it = self.world.jobs.get(job.id)
        if self.world.unreachable or (it is not None and it.on_cancel is OnCancel.UNREACHABLE):
            raise ClusterError(self.name, self.world.unreachable or "Connection refused")
        self.cancelled.append(job)
        if it is None or it.incarnation != job.incarnation or it.state.ended:
            return CancelReceipt(False, "nothing was sent: it is no longer there as it was")
        how = it.on_cancel
        if how is OnCancel.REFUSED:
            return CancelReceipt(False, f"scancel: error: Kill job error on job id {job.id}: Access/permission denied")
        if how in (OnCancel.ENDS, OnCancel.ENDS_UNSAID, OnCancel.LEAVES_REMAINS):
            self.world.end(job.id, JobState.CANCELLED)
        if how is OnCancel.LEAVES_REMAINS:
            it.remains = it.remains or ("node01: process 4242 python train.py",)
        if how in (OnCancel.ENDS_UNSAID, OnCancel.LOST):
            return CancelReceipt(None, "scancel exited 1: Socket timed out on send/recv operation")
        return CancelReceipt(True, "scancel exited 0")

    async def capture(self, wanted: CaptureWanted, now: datetime) -> Sequence[Captured]:
        if self.world.unreachable:
            raise ClusterError(self.name, self.world.unreachable)
        self.captured.append(wanted)
        key = wanted.seen.key
        if key.id in self.world.captures:
            return self.world.captures[key.id]
        return captures(self.world.jobs[key.id], wanted, now)

    async def remains(self, seen: Observation, now: datetime) -> Remains:
        if self.world.unreachable:
            return Remains(failure=self.world.unreachable)
        it = self.world.jobs.get(seen.key.id)
        if it is None or it.incarnation != seen.key.incarnation:
            return Remains()
        if it.state.ended:
            return Remains(there=it.remains)
        return Remains(there=(f"job {it.id} is {it.state.value.upper()} and holds node01",))

    async def check(self, now: datetime) -> Sequence[Check]:
        return [Check(self.name, "ok", "scripted")]

    async def close(self) -> None:
        return None
