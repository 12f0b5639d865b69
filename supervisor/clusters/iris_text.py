"""Answers of an iris controller and its log service, as far as they are used. Pure.

What is not named here is never decoded: a job's environment, with the secrets in it, is not read out of the answer at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

T = TypeVar("T")

STATES = (
    *("unspecified", "pending", "building", "running", "succeeded", "failed", "killed", "worker_failed"),
    *("unschedulable", "assigned", "preempted", "cosched_failed", "missing"),
)
"""Friendly names by number, of jobs (0 to 8) and tasks."""
ENDED = frozenset({"succeeded", "failed", "killed", "worker_failed", "unschedulable", "preempted", "cosched_failed"})
_NUMBERS = range(len(STATES))
LATEST_MS = 253_402_300_799_000


class NotAnAnswer(ValueError):
    """Not what the controller would say: cut off, garbled, or another program's."""


class Part(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Fields that were never set are absent; 64-bit numbers come as strings."""


class Moment(Part, frozen=True):
    epoch_ms: int

    def __post_init__(self) -> None:
        if not 0 <= self.epoch_ms <= LATEST_MS:
            raise ValueError("a time beyond the calendar")


class JobStatus(Part, frozen=True):
    job_id: str
    state: str | int
    submitted_at: Moment
    """What tells it from another job of its name; an answer without it is not believed."""
    started_at: Moment | None = None
    finished_at: Moment | None = None
    error: str = ""
    failure_count: int = 0
    preemption_count: int = 0
    task_state_counts: dict[str, int] = {}
    task_count: int = 0
    pending_reason: str = ""
    status_message: str = ""
    has_children: bool = False
    backend_id: str = ""
    cluster: str = ""
    peer_status: str | int = ""

    @property
    def word(self) -> str:
        return friendly(self.state, "JOB_STATE_")

    @property
    def ended(self) -> bool:
        return self.word in ENDED

    @property
    def incarnation(self) -> str:
        return str(self.submitted_at.epoch_ms)

    @property
    def root(self) -> str:
        """Path of the job at the top of its tree."""
        return "/".join(self.job_id.split("/")[:3])


class JobsPage(Part, frozen=True):
    total_count: int
    """Always present: an answer without it is another program's."""
    has_more: bool
    jobs: tuple[JobStatus, ...] = ()


class States(Part, frozen=True):
    states: dict[str, str | int] = {}


class RunCommand(Part, frozen=True):
    argv: tuple[str, ...] = ()


class Entrypoint(Part, frozen=True):
    run_command: RunCommand = RunCommand()


class Duration(Part, frozen=True):
    milliseconds: int = 0


class LaunchRequest(Part, frozen=True):
    entrypoint: Entrypoint = Entrypoint()
    max_task_failures: int = 0
    max_retries_failure: int = 0
    max_retries_preemption: int = 0
    timeout: Duration | None = None


class JobAnswer(Part, frozen=True):
    job: JobStatus
    request: LaunchRequest = LaunchRequest()


class TaskAttempt(Part, frozen=True):
    attempt_id: int
    state: str | int
    worker_id: str = ""
    exit_code: int | None = None
    error: str = ""
    started_at: Moment | None = None
    finished_at: Moment | None = None
    attempt_uid: str = ""
    node_name: str = ""
    terminal_reason: str = ""


class TaskStatus(Part, frozen=True):
    task_id: str
    state: str | int
    current_attempt_id: int = -1
    attempts: tuple[TaskAttempt, ...] = ()
    pending_reason: str = ""
    status_message: str = ""


class TasksAnswer(Part, frozen=True):
    tasks: tuple[TaskStatus, ...] = ()


class Column(Part, frozen=True):
    name: str


class QueryAnswer(Part, frozen=True):
    columns: tuple[Column, ...]
    rows: tuple[str, ...] = ()
    """Each row is a JSON array in a string."""


class LogEntry(Part, frozen=True):
    timestamp: Moment
    key: str
    seq: int
    data: str = ""


class LogsAnswer(Part, frozen=True):
    cursor: int
    entries: tuple[LogEntry, ...] = ()


class Health(Part, frozen=True):
    status: str
    reason: str = ""


class CurrentUser(Part, frozen=True):
    user_id: str = ""
    role: str = ""


class ErrorAnswer(Part, frozen=True):
    code: str = ""
    message: str = ""
    error: str = ""


class Nothing(Part, frozen=True):
    """An answer whose content does not matter."""


def decode(data: bytes, what: type[T]) -> T:
    """One whole answer. Raises NotAnAnswer, with what is wrong with it."""
    try:
        return msgspec.json.decode(data, type=what, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotAnAnswer(f"{error}") from None


def friendly(state: str | int, prefix: str) -> str:
    """A state's friendly name; what this version does not know stays as it is."""
    if isinstance(state, int):
        return STATES[state] if state in _NUMBERS else f"state {state}"
    word = state.removeprefix(prefix).lower()
    return STATES[int(word)] if word.isascii() and word.isdecimal() and int(word) in _NUMBERS else word


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of one task. Times are the controller's."""

    number: int
    """From 0."""
    uid: str
    state: str
    exit_code: int | None = None
    """None unless it ended by itself: before, the field's 0 means nothing."""
    error: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    node: str = ""
    terminal_reason: str = ""

    @property
    def burnt_preemption(self) -> bool:
        """Whether it counts against the preemption budget."""
        return self.state in ("worker_failed", "killed", "preempted") and self.started_at is not None


@dataclass(frozen=True, slots=True)
class Task:
    id: str
    """``/user/job/0``"""
    job_id: str
    state: str
    current: int
    """Number of its current attempt; -1 before the first."""
    attempts: tuple[Attempt, ...] = ()
    """Those that the answer held, in order."""
    waits_for: str = ""
    all_attempts: bool = False

    @property
    def index(self) -> int:
        last = self.id.rpartition("/")[2]
        return int(last) if last.isascii() and last.isdecimal() else 0

    @property
    def attempt(self) -> Attempt | None:
        """The current one: only its error is the task's."""
        return next((one for one in self.attempts if one.number == self.current), None)


@dataclass(frozen=True, slots=True)
class JobConfig:
    """What was asked for at submission."""

    max_task_failures: int = 0
    max_retries_failure: int = 0
    max_retries_preemption: int = 0
    timeout_ms: int | None = None
    argv: tuple[str, ...] = ()


def time_of(moment: Moment | None) -> datetime | None:
    return None if moment is None else from_ms(moment.epoch_ms)


def from_ms(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def exit_code_of(state: str, code: int | None) -> int | None:
    """The exit code of an attempt that ended by itself."""
    if state == "failed":
        # A failed attempt with 0 did not end by exiting: its time was up, or it never began.
        return code or None
    return 0 if state == "succeeded" else None


def tasks_of(job_id: str, answer: TasksAnswer) -> tuple[Task, ...]:
    """Tasks as ``ListTasks`` tells them: of each the current attempt, and sometimes one before it."""
    return tuple(_task(job_id, one) for one in answer.tasks)


def _task(job_id: str, told: TaskStatus) -> Task:
    attempts = []
    for one in sorted(told.attempts, key=lambda each: each.attempt_id):
        state = friendly(one.state, "TASK_STATE_")
        attempts.append(
            Attempt(
                number=one.attempt_id,
                uid=one.attempt_uid,
                state=state,
                exit_code=exit_code_of(state, one.exit_code),
                error=one.error,
                started_at=time_of(one.started_at),
                finished_at=time_of(one.finished_at),
                node=one.node_name or one.worker_id,
                terminal_reason=one.terminal_reason,
            )
        )
    return Task(
        id=told.task_id,
        job_id=job_id,
        state=friendly(told.state, "TASK_STATE_"),
        current=told.current_attempt_id,
        attempts=tuple(attempts),
        waits_for=told.status_message or told.pending_reason,
    )


def config_of(answer: JobAnswer) -> JobConfig:
    asked = answer.request
    return JobConfig(
        max_task_failures=asked.max_task_failures,
        max_retries_failure=asked.max_retries_failure,
        max_retries_preemption=asked.max_retries_preemption,
        timeout_ms=asked.timeout.milliseconds if asked.timeout is not None else None,
        argv=asked.entrypoint.run_command.argv,
    )
