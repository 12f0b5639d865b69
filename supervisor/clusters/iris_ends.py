"""How iris jobs and the attempts of their tasks ended, and which end explains the others. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from supervisor.clusters.iris_text import ENDED, Attempt, JobStatus, Task
from supervisor.clusters.kubernetes_objects import plain
from supervisor.model.job import JobState, Observation

_MOST_PAST = 20

_CAUSES = ("failed", "preempted", "worker_failed", "unschedulable", "killed")
"""Which of several ends explains the others, the most telling first. A gang's bounced siblings explain nothing."""

_ENDS = {
    "succeeded": JobState.COMPLETED,
    "failed": JobState.FAILED,
    "killed": JobState.CANCELLED,
    "worker_failed": JobState.NODE_FAILED,
    "preempted": JobState.PREEMPTED,
    "unschedulable": JobState.FAILED,
    "cosched_failed": JobState.REQUEUED,
}

Cause = tuple[Task, Attempt]


def end_of(root: JobStatus, tasks: Sequence[Task]) -> tuple[JobState, str | None, Cause | None]:
    """State and reason of a job that has ended, and the attempt of a task that explains them where one does."""
    state = _ENDS[root.word]
    if state is JobState.COMPLETED:
        return state, None, None
    cause = cause_of((task, task.attempt) for task in tasks)
    reason = root.error or root.word
    if cause is None or state is JobState.CANCELLED:
        return state, reason, None
    task, attempt = cause
    own = state_of(attempt)
    telling = own in (JobState.OUT_OF_MEMORY, JobState.TIMED_OUT, JobState.PREEMPTED, JobState.NODE_FAILED)
    if root.word == "worker_failed" or (root.word == "failed" and telling):
        state = own if telling else state
    said = ": ".join(dict.fromkeys(part for part in (attempt.terminal_reason, attempt.error) if part)) or attempt.state
    which = f"task {task.index}: " if len(tasks) > 1 else ""
    around = reason.removesuffix(said).rstrip("; ") if reason != said else ""
    reason = f"{which}{said}" + (f" ({around})" if around else "")
    return state, reason, cause


def cause_of(ends: Iterable[tuple[Task, Attempt | None]]) -> Cause | None:
    """The end that explains the others: the most telling kind, and of these the first in time."""
    found = [(task, attempt) for task, attempt in ends if attempt is not None and attempt.state in _CAUSES]
    return min(found, key=lambda pair: (_CAUSES.index(pair[1].state), _moment(pair[1]), pair[0].index), default=None)


def state_of(attempt: Attempt) -> JobState:
    """How one attempt ended."""
    if attempt.state == "failed":
        said = f"{attempt.terminal_reason}\n{attempt.error}"
        if re.search(r"\bOOMKilled\b", said):
            return JobState.OUT_OF_MEMORY
        if attempt.error.startswith("Execution timeout exceeded"):
            return JobState.TIMED_OUT
    return _ENDS.get(attempt.state, JobState.UNKNOWN)


def earlier_ends(seen: Observation, tasks: Sequence[Task]) -> tuple[Observation, ...]:
    """Earlier attempts of the main task; a bounced one is explained by its siblings' attempts of the same number."""
    if not tasks:
        return ()
    main, found = tasks[0], []
    for one in main.attempts:
        between = main.state == "pending" and one.number == main.current
        if one.state not in ENDED or not (one.number < main.current or between):
            continue
        siblings = ((task, each) for task in tasks for each in task.attempts if each.number == one.number)
        cause = cause_of([(main, one)]) or cause_of(siblings) or (main, one)
        exit_code, signal = exit_of(cause[1].exit_code)
        found.append(
            replace(
                seen,
                state=state_of(cause[1]),
                scheduler_state=cause[1].state,
                reason=plain(cause[1].error) or None,
                started_at=one.started_at,
                ended_at=one.finished_at or cause[1].finished_at,
                nodes=(one.node,) if one.node else (),
                exit_code=exit_code,
                signal=signal,
                attempt=one.number + 1,
                burn=None,
                preemptions=None,
                tasks=None,
                details=None,
                final=False,
            )
        )
    return tuple(found[-_MOST_PAST:])


def exit_of(code: int | None) -> tuple[int | None, int | None]:
    """Exit code and signal. Iris's own runtime tells a signal as a negative number, a container as 128 and more."""
    if code is None:
        return None, None
    if -64 <= code < 0:
        return None, -code
    return code, (code - 128 if 128 < code <= 192 else None)


def _moment(attempt: Attempt) -> float:
    moment = attempt.finished_at or attempt.started_at
    return moment.timestamp() if moment is not None else float("inf")
