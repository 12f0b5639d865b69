"""A controller's records as jobs: children folded under their root, tasks and attempts read for what they mean. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from supervisor.clusters.iris_command import command_of
from supervisor.clusters.iris_ends import Cause, cause_of, earlier_ends, end_of, exit_of
from supervisor.clusters.iris_text import ENDED, JobConfig, JobStatus, Task, time_of
from supervisor.clusters.kubernetes_objects import plain
from supervisor.model.job import Burn, Details, JobKey, JobState, Observation, TaskCounts

LOG_SCHEME = "iris:"
_MOST_NODES = 256
_PENDING, _STARTING = ("pending",), ("building", "assigned")
_GATES = ("SchedulingGated", "Unschedulable", "Kueue workload")
_KNOWN = frozenset({"pending", "building", "running"}) | ENDED


@dataclass(slots=True)
class Folded:
    """One root job with all that runs below it."""

    root: JobStatus
    children: list[JobStatus] = field(default_factory=list)
    tasks: tuple[Task, ...] | None = None
    """The root's own, in the order of their index; None where they are not known (yet)."""
    child_tasks: tuple[Task, ...] = ()
    """Of children that go on, where they are known."""
    config: JobConfig | None = None

    @property
    def id(self) -> str:
        return id_of(self.root.job_id)

    @property
    def live_children(self) -> list[JobStatus]:
        return [one for one in self.children if not one.ended]

    @property
    def unsettled(self) -> bool:
        """Why it waits is told by its tasks alone, and changes without a change of its record."""
        counts = self.root.task_state_counts
        return self.root.word == "running" and not counts.get("running", 0)

    def key(self, cluster: str) -> JobKey:
        return JobKey(cluster, self.id, self.root.incarnation)


def id_of(path: str) -> str:
    """The path without its first slash, so that ``cluster/id`` reads well on a command line."""
    return path.removeprefix("/")


def path_of(job_id: str) -> str:
    return "/" + job_id


def fold(statuses: Iterable[JobStatus], users: Sequence[str]) -> dict[str, Folded]:
    """Roots of the watched users by job id (POLL-8), children beneath them. A child whose root is not listed is left out."""
    allowed = frozenset(users)
    mine = [one for one in statuses if _owner(one.job_id) in allowed]
    found = {id_of(one.job_id): Folded(one) for one in mine if one.root == one.job_id}
    for one in mine:
        parent = found.get(id_of(one.root))
        if one.root != one.job_id and parent is not None:
            parent.children.append(one)
    return found


def _owner(path: str) -> str:
    """User of a whole path; "" of what is none."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "" and all(parts[1:]) else ""


def fingerprint(job: Folded) -> str:
    """Equal for equal records, in every process. What an unsettled job waits for is part of it."""
    children = sorted(job.children, key=lambda one: one.job_id)
    waits = [task.waits_for for task in job.tasks or ()] if job.unsettled else []
    data = msgspec.json.encode([_plain_record(one) for one in (job.root, *children)] + [waits])
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def _plain_record(one: JobStatus) -> object:
    record = msgspec.to_builtins(one)
    record["taskStateCounts"] = sorted(one.task_state_counts.items())
    return record


# -- one job -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobRead:
    observation: Observation
    past: tuple[Observation, ...] = ()
    """Ends of its earlier attempts, which were followed by another."""


def read_job(cluster: str, job: Folded) -> JobRead:
    """What the records say of one job, by the controller's clock."""
    root, tasks = job.root, job.tasks or ()
    main = tasks[0] if tasks else None
    attempt = max(main.current + 1, 1) if main is not None else None
    ended = root.ended
    state, reason, cause = end_of(root, tasks) if ended else (*_live(job), None)
    exit_code, signal = exit_of(cause[1].exit_code) if cause is not None else (None, None)
    if state is JobState.COMPLETED and tasks:
        exit_code, signal = 0, None
    config = job.config
    seen = Observation(
        key=job.key(cluster),
        name=plain(root.job_id.split("/")[2], 253),
        user=plain(root.job_id.split("/")[1], 128),
        state=state,
        scheduler_state=plain(root.word, 60),
        reason=plain(reason) or None if reason else None,
        submitted_at=time_of(root.submitted_at),
        started_at=_started(root, main, ended=ended),
        ended_at=(time_of(root.finished_at) or _last_end(tasks)) if ended else None,
        time_limit=timedelta(milliseconds=config.timeout_ms) if config is not None and config.timeout_ms else None,
        partition=plain(root.cluster if root.cluster not in ("", "local") else root.backend_id, 120) or None,
        nodes=_nodes((*tasks, *job.child_tasks)),
        exit_code=exit_code,
        signal=signal,
        attempt=attempt,
        burn=Burn(root.failure_count, _failures_allowed(root, config)),
        preemptions=_preemptions(root, tasks, config),
        tasks=_counts(job),
        details=_details(job, cause),
    )
    return JobRead(seen, earlier_ends(seen, tasks))


def _live(job: Folded) -> tuple[JobState, str | None]:
    root, counts = job.root, job.root.task_state_counts
    handed = _handed_on(root)
    if root.word not in _KNOWN:
        return JobState.UNKNOWN, None
    if root.word == "pending":
        return JobState.PENDING, handed or root.pending_reason or root.status_message
    running, starting, pending = (_sum(counts, words) for words in (("running",), _STARTING, _PENDING))
    total = root.task_count or sum(counts.values())
    if running:
        parts = []
        if running < total and (starting or pending):
            parts.append(f"{running} of {total} tasks run")
        parts += _children_words(job)
        return JobState.RUNNING, "; ".join(parts)
    if starting or root.word == "building":
        waits = [task for task in job.tasks or () if task.state in _STARTING and task.waits_for]
        why = waits[0].waits_for if waits else root.status_message
        gated = bool(waits) and all(task.waits_for.startswith(_GATES) for task in waits)
        reason = f"{starting} of {total} tasks: {why}" if why and total > 1 else why
        return (JobState.PENDING if gated else JobState.STARTING), reason or handed
    if pending:
        return JobState.PENDING, _why_again(job, pending, total)
    # Nothing runs, starts or waits, and it has not ended: its tasks are over, its own end is about to be written.
    done = bool(counts) and sum(counts.values()) >= total > 0
    return (JobState.COMPLETING if done else JobState.RUNNING), handed


def _why_again(job: Folded, pending: int, total: int) -> str:
    """Tasks that wait after they ran before."""
    words = f"{pending} of {total} tasks wait to run again"
    cause = cause_of((task, task.attempt) for task in job.tasks or () if task.state == "pending")
    if cause is None:
        return words
    task, attempt = cause
    why = f": {attempt.error}" if attempt.error else ""
    return f"{words}; attempt {attempt.number + 1} of task {task.index} ended as {attempt.state}{why}"


def _children_words(job: Folded) -> list[str]:
    waiting = [one for one in job.live_children if not one.task_state_counts.get("running", 0)]
    words = []
    if waiting:
        first = waiting[0]
        why = first.pending_reason or first.status_message
        more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        words.append(f"child {id_of(first.job_id)}{more} waits{f': {why}' if why else ''}")
    failed = [one for one in job.children if one.word in ("failed", "worker_failed", "unschedulable")]
    if failed:
        last = max(failed, key=lambda one: one.finished_at.epoch_ms if one.finished_at else 0)
        more = f" (of {len(failed)} that failed)" if len(failed) > 1 else ""
        words.append(f"child {id_of(last.job_id)}{more} {last.word}: {last.error}")
    return words


def _handed_on(root: JobStatus) -> str | None:
    if root.cluster in ("", "local"):
        return None
    word = str(root.peer_status).removeprefix("PEER_STATUS_").lower()
    return f"handed on to {root.cluster}" + (f" ({word})" if word and word not in ("none", "synced") else "")


def _counts(job: Folded) -> TaskCounts | None:
    """Tasks of the root and of what goes on below it. A coordinator whose every child waits does not count as running."""
    root, below = job.root, job.live_children
    records = [root, *below]
    if below and not root.ended and root.task_count == 1 and not any(_ran(one) for one in below):
        records = below
    counts: dict[str, int] = {}
    for one in records:
        for word, number in one.task_state_counts.items():
            counts[word] = counts.get(word, 0) + max(number, 0)
    total = max(sum(max(one.task_count, 0) for one in records), sum(counts.values()))
    if not total:
        return None
    return TaskCounts(
        total,
        running=counts.get("running", 0),
        pending=_sum(counts, _PENDING) + _sum(counts, _STARTING),
        ended=sum(number for word, number in counts.items() if word in ENDED),
    )


def _ran(one: JobStatus) -> bool:
    return bool(one.task_state_counts.get("running", 0))


def _sum(counts: Mapping[str, int], words: Iterable[str]) -> int:
    return sum(max(counts.get(word, 0), 0) for word in words)


def _failures_allowed(root: JobStatus, config: JobConfig | None) -> int | None:
    """Failures after which it is still tried again: bounded for each task, and for all of them together."""
    if config is None:
        return None
    return min(config.max_retries_failure * max(root.task_count, 1), config.max_task_failures)


def _preemptions(root: JobStatus, tasks: Sequence[Task], config: JobConfig | None) -> Burn | None:
    """The budget is each task's own: told is the task that has used most of it."""
    allowed = config.max_retries_preemption if config is not None else None
    if not tasks or not all(task.all_attempts for task in tasks):
        # The record's own count takes a cancel for a preemption of each task that ran.
        return Burn(root.preemption_count, allowed) if root.word != "killed" else None
    return Burn(max(_taken(task, cancelled=root.word == "killed") for task in tasks), allowed)


def _taken(task: Task, *, cancelled: bool) -> int:
    """Attempts that were taken from a task. The one that a cancel of the whole job ended is none of them."""
    last = task.current if cancelled else None
    return sum(one.burnt_preemption for one in task.attempts if one.number != last or one.state != "killed")


def _started(root: JobStatus, main: Task | None, *, ended: bool) -> datetime | None:
    """Start of the attempt that runs or ran last."""
    attempt = main.attempt if main is not None else None
    if main is not None and not ended and main.state not in ("running", *ENDED):
        return time_of(root.started_at) if _ran(root) else None
    return (attempt.started_at if attempt is not None else None) or time_of(root.started_at)


def _last_end(tasks: Sequence[Task]) -> datetime | None:
    ends = (one.finished_at for task in tasks for one in task.attempts)
    return max((end for end in ends if end is not None), default=None)


def _nodes(tasks: Sequence[Task]) -> tuple[str, ...]:
    nodes = {plain(task.attempt.node, 253) for task in tasks if task.attempt is not None and task.attempt.node}
    return tuple(sorted(nodes)[:_MOST_NODES])


# -- details -----------------------------------------------------------------------------------------------------------


def log_path(task: str, since_ms: int) -> str:
    """The log of one task through all its attempts, from the submission on: an earlier job of its name had another one."""
    return f"{LOG_SCHEME}{task}?since={since_ms}"


def main_log(job: Folded) -> str | None:
    """The log that tells of the job's progress: of its first task that runs, else of its first. None where that is not known.

    Tasks of a gang run together, and the first speaks for all; of others the first may have ended long ago.
    """
    if not job.tasks:
        return None
    task = next((task for task in job.tasks if task.state == "running"), job.tasks[0])
    return log_path(task.id, job.root.submitted_at.epoch_ms)


def first_log(root: JobStatus) -> str:
    """The log of the first task, which every job has."""
    return log_path(f"{root.job_id}/0", root.submitted_at.epoch_ms)


def _details(job: Folded, cause: Cause | None) -> Details:
    root = job.root
    since = root.submitted_at.epoch_ms
    main = main_log(job) or first_log(root)
    other = None
    if cause is not None and log_path(cause[0].id, since) != main:
        other = log_path(cause[0].id, since)
    elif root.word == "failed":
        failed = [one for one in job.children if one.word == "failed"]
        if failed:
            first = min(failed, key=lambda one: one.finished_at.epoch_ms if one.finished_at else 0)
            other = log_path(f"{first.job_id}/0", first.submitted_at.epoch_ms)
    command = command_of(job.config.argv) if job.config is not None else None
    return Details(log_path=main, err_path=other, command=command)
