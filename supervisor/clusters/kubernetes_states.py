"""What is said of one job: its record, its pods and its queue become one observation. Pure.

The order of belief: the record's own end; what Kueue holds back; what the pods do. A gang of which no pod runs is not running,
whatever its record counts as active.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from supervisor.clusters.kubernetes_attempts import (
    cause_of,
    index_of,
    latest,
    past_attempts,
    rounds_lost,
    rounds_preempted,
)
from supervisor.clusters.kubernetes_jobs import Folded
from supervisor.clusters.kubernetes_objects import plain
from supervisor.clusters.owners import RecordRead
from supervisor.clusters.pod_objects import Pod
from supervisor.clusters.pods import NODE_DISRUPTIONS, PodRead, disruption, read_pod
from supervisor.model.job import Burn, Details, JobState, Observation, TaskCounts

_FIRST_ROLES = (
    "submitter",
    "launcher",
    "master",
    "chief",
    "leader",
    "driver",
    "coordinator",
    "head",
    "trainer",
    "node",
)
"""Roles whose log is the job's, in this order; what is not named here comes after them."""

_NO_WORD_FROM_OWNER = timedelta(minutes=10)
"""How long after the end of the last pod an owner of a kind that is not read may still make another."""
_YOUNG = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRead:
    """One job at one poll."""

    observation: Observation
    past: tuple[Observation, ...] = ()
    """Earlier attempts whose end is still on record."""
    main: PodRead | None = None
    """The pod whose log is the job's."""
    doomed: JobState | None = None
    """How it will have ended once it is gone, if it is being deleted now: cancelled, or taken off by the cluster."""


def read_job(job: Folded, now: datetime, terminating_limit: timedelta) -> JobRead:
    """``now``: the cluster's own clock; it decides only whether something takes too long."""
    record = job.read
    pods = [read_pod(pod, now, terminating_limit) for pod in job.pods]
    live = [pod for pod in pods if not pod.state.ended]
    staying = [pod for pod in live if pod.pod.metadata.deletion_timestamp is None]
    live = staying or live
    over = latest(pods) if not live else [pod for pod in latest(pods) if pod.state is JobState.COMPLETED]
    current = sorted([*live, *over], key=lambda pod: _rank(job, pod.pod))
    main = next((pod for pod in current if not pod.state.ended), current[0] if current else None)
    if main is not None and _role(job, main.pod) != _role(job, current[0].pod):
        main = current[0]
    evictions = job.verdict.evictions if job.verdict is not None else 0
    attempt = 1 + max(record.retries, rounds_lost(job, record)) + evictions + (main.restarts if main is not None else 0)
    taken = evictions + rounds_preempted(job, record)
    state, word, reason, cause = _state(job, record, current, main, now)
    deleted = _deleted(job, now, terminating_limit)
    if deleted is not None and (not state.ended or _died_of_deletion(job, record, state)):
        state, word, reason, cause = JobState.COMPLETING, "Terminating", deleted, None
    ended = state.ended
    shown = (cause or main) if ended else None
    # Between two attempts: what is there belongs to the one before.
    between = bool(current) and not ended and all(pod.state.ended for pod in current) and state is JobState.PENDING
    observation = Observation(
        key=job.key,
        name=plain(job.name, 253),
        user=job.user,
        state=state,
        scheduler_state=word or state.value,
        reason=reason or None,
        submitted_at=job.created,
        started_at=_started(state, record, current, main),
        ended_at=(record.ended_at or max((pod.ended_at for pod in current if pod.ended_at is not None), default=None))
        if ended
        else None,
        time_limit=record.time_limit or (_limit_of(main.pod) if main is not None else None),
        partition=(job.verdict.queue if job.verdict is not None else "") or record.queued_by or None,
        nodes=tuple(sorted({pod.pod.spec.node_name for pod in current if pod.pod.spec.node_name})),
        node_count=len({pod.pod.spec.node_name for pod in current if pod.pod.spec.node_name}) or None,
        exit_code=shown.exit_code if shown is not None else None,
        signal=shown.signal if shown is not None else None,
        attempt=attempt,
        burn=_burn(record, main),
        preemptions=Burn(taken) if taken else None,
        tasks=_tasks(record, [] if between else current, state),
        details=_details(job, main, attempt),
    )
    doomed = _doom(job, main) if state is JobState.COMPLETING and word == "Terminating" else None
    return JobRead(
        observation=observation,
        past=past_attempts(job, observation, pods, [] if between else current, main),
        main=main,
        doomed=doomed,
    )


def _died_of_deletion(job: Folded, record: RecordRead, state: JobState) -> bool:
    """Whether its failure only follows from its deletion: pods that are taken away count as failed."""
    due = job.record.record.metadata.deletion_timestamp if job.record is not None else None
    return state is JobState.FAILED and due is not None and record.ended_at is not None and record.ended_at >= due


def _doom(job: Folded, main: PodRead | None) -> JobState:
    taken = disruption(main.pod) if main is not None and job.record is None else None
    if taken is None:
        return JobState.CANCELLED
    return JobState.NODE_FAILED if taken.reason in NODE_DISRUPTIONS else JobState.PREEMPTED


Said = tuple[JobState, str, str | None, PodRead | None]
"""State, word, reason, and the pod that is the cause where one is."""


def _state(job: Folded, record: RecordRead, current: Sequence[PodRead], main: PodRead | None, now: datetime) -> Said:
    if record.state is not None and record.state.ended:
        return _ended_by_record(record, current)
    queue = job.verdict
    held = record.state is JobState.SUSPENDED
    if held and queue is not None and not queue.admitted and not queue.finished:
        return JobState.PENDING, "Suspended", queue.text, None
    if record.state is not None:
        return record.state, record.word, record.reason, None
    live = [pod for pod in current if not pod.state.ended]
    if live:
        state, word, reason = _live(job, record, live, current, main)
        return state, word, reason, None
    if current:
        return _all_over(job, record, current, now)
    if queue is not None and not queue.admitted:
        return JobState.PENDING, "Pending", queue.text, None
    if record.active:
        young = job.created is not None and now - job.created < _YOUNG
        text = f"its record counts {record.active} active pods, and none is there"
        return (JobState.STARTING if young else JobState.RUNNING), record.word or "Active", text, None
    return JobState.PENDING, record.word or "Created", record.reason or "it has no pods yet", None


def _ended_by_record(record: RecordRead, current: Sequence[PodRead]) -> Said:
    assert record.state is not None
    if record.state is JobState.COMPLETED:
        return record.state, record.word, record.reason, None
    cause = cause_of(current)
    if cause is None or record.state is not JobState.FAILED:
        return record.state, record.word, record.reason, cause
    telling = cause.state in (JobState.OUT_OF_MEMORY, JobState.PREEMPTED, JobState.NODE_FAILED, JobState.TIMED_OUT)
    reason = f"{record.reason or record.word}; pod {plain(cause.name, 80)}: {cause.reason or cause.word}"
    return (cause.state if telling else JobState.FAILED), record.word, reason, cause


def _live(
    job: Folded, record: RecordRead, live: Sequence[PodRead], current: Sequence[PodRead], main: PodRead | None
) -> tuple[JobState, str, str | None]:
    """Some pod is not over. What runs counts; else what starts; else why it waits."""
    running = [pod for pod in live if pod.state is JobState.RUNNING]
    waiting = [pod for pod in live if pod.state in (JobState.PENDING, JobState.STARTING)]
    total = max(record.expected or 0, len(current))
    if running:
        reason = running[0].reason if len(current) == 1 else None
        missing = total - len(current)
        if waiting:
            first = waiting[0]
            why = f": {first.reason}" if first.reason else ""
            reason = f"{len(running)} of {total} pods run; {plain(first.name, 80)}: {first.word}{why}"
        elif missing > 0:
            reason = f"{len(running)} of {total} pods run; {missing} are not there"
        return JobState.RUNNING, record.word or "Running", reason or record.reason
    starting = [pod for pod in waiting if pod.state is JobState.STARTING]
    if starting:
        calm = ("ContainerCreating", "PodInitializing", "Pending")
        first = next((pod for pod in starting if pod.word not in calm), main if main in starting else starting[0])
        assert first is not None
        return JobState.STARTING, first.word, _of_gang(first, starting, total)
    if waiting:
        reason = _of_gang(waiting[0], waiting, total)
        queue = job.verdict
        if queue is not None and queue.text:
            reason = f"{reason}; {queue.text}" if reason else queue.text
        return JobState.PENDING, waiting[0].word, reason
    unknown = [pod for pod in live if pod.state is JobState.UNKNOWN]
    first = (unknown or list(live))[0]
    return first.state, first.word, _of_gang(first, unknown or live, total)


def _of_gang(first: PodRead, alike: Sequence[PodRead], total: int) -> str | None:
    if total <= 1:
        return first.reason
    return f"{len(alike)} of {total} pods, among them {plain(first.name, 80)}: {first.reason or first.word}"


def _all_over(job: Folded, record: RecordRead, current: Sequence[PodRead], now: datetime) -> Said:
    """Every pod has ended, and no record says that the job has."""
    cause = cause_of(current)
    last = max((pod.ended_at for pod in current if pod.ended_at is not None), default=None)
    done = cause is None
    head = current[0]
    what: Said = (
        (JobState.COMPLETED, "Completed", None, None)
        if cause is None
        else (cause.state, cause.word, _named(cause, current), cause)
    )
    if job.record is None:
        queued = job.verdict
        owner_unread = job.kind not in ("pod", "podgroup")
        if job.gone:
            return JobState.COMPLETING, "Terminating", f"its record is gone; {what[2] or what[1]}", cause
        if job.kind == "podgroup" and queued is not None and not queued.finished and not done:
            return JobState.COMPLETING, what[1], f"{what[2]}; its group may still be given another pod", cause
        if owner_unread and (last is None or now - last < _NO_WORD_FROM_OWNER):
            return (
                JobState.COMPLETING,
                what[1],
                f"its pods have ended; its owner, a {plain(job.kind, 60)}, may still make another",
                cause,
            )
        return what
    burn = record.burn
    may_retry = not done and burn is not None and burn.allowed is not None and burn.burned <= burn.allowed
    if may_retry:
        assert burn is not None
        how = _named(cause, current) if cause is not None else head.word
        text = f"{how}; {burn.burned} of {burn.allowed} failures used, its controller tries again"
        return JobState.PENDING, record.word or "BackOff", text, cause
    text = f"its pods have ended ({what[2] or what[1]}); its record does not say so yet"
    return JobState.COMPLETING, record.word or what[1], text, cause


def _named(pod: PodRead, among: Sequence[PodRead]) -> str:
    reason = pod.reason or pod.word
    return reason if len(among) == 1 else f"pod {plain(pod.name, 80)}: {reason}"


def _role(job: Folded, pod: Pod) -> str:
    """What a pod of a gang is for, in its operator's word; empty where all are alike."""
    tags = pod.metadata.tags
    if job.kind == "rayjob":
        return tags.ray_node or "submitter"
    return tags.replicated_job or tags.replica_type or tags.ray_node


def _rank(job: Folded, pod: Pod) -> tuple[int, str, tuple[int, ...], float, str]:
    role = _role(job, pod).lower()
    first = _FIRST_ROLES.index(role) if role in _FIRST_ROLES else len(_FIRST_ROLES)
    numbers = (
        tuple(int(part) if part.isdecimal() else 0 for part in index_of(pod).split(".")) if index_of(pod) else (0,)
    )
    return first, role, numbers, -pod.metadata.creation_timestamp.timestamp(), pod.metadata.name


def _started(state: JobState, record: RecordRead, current: Sequence[PodRead], main: PodRead | None) -> datetime | None:
    if state in (JobState.PENDING, JobState.SUSPENDED):
        return None
    if main is not None and main.started_at is not None:
        return main.started_at
    if state.ended and main is None:
        return record.started_at
    return min(
        (pod.pod.status.start_time for pod in current if pod.pod.status.start_time is not None),
        default=record.started_at,
    )


def _tasks(record: RecordRead, current: Sequence[PodRead], state: JobState) -> TaskCounts | None:
    total = max(record.expected or 0, len(current))
    if not total:
        return None
    running = sum(pod.state is JobState.RUNNING for pod in current)
    ended = sum(pod.state.ended for pod in current)
    waiting = sum(pod.state in (JobState.PENDING, JobState.STARTING) for pod in current)
    # Pods that are not there wait to be made, unless the record claims that they run.
    absent = total - len(current) if not state.ended and (current or state is not JobState.RUNNING) else 0
    return TaskCounts(total, running=running, pending=waiting + absent, ended=ended)


def _burn(record: RecordRead, main: PodRead | None) -> Burn | None:
    """Restarts used up; what Kueue took off burns nothing of a controller's own allowance."""
    restarts = main.restarts if main is not None else 0
    if record.burn is not None:
        return replace(record.burn, burned=record.burn.burned + restarts)
    return Burn(restarts) if restarts else None


def _limit_of(pod: Pod) -> timedelta | None:
    seconds = pod.spec.active_deadline_seconds
    return None if seconds is None else timedelta(seconds=seconds)


def log_path(pod: PodRead) -> str:
    return f"pod/{pod.pod.metadata.namespace}/{pod.name}/{pod.container}"


def _details(job: Folded, main: PodRead | None, attempt: int) -> Details | None:
    return None if main is None or not main.container else Details(log_path=log_path(main), restarts=attempt - 1)


def _deleted(job: Folded, now: datetime, limit: timedelta) -> str | None:
    """A record that was deleted and waits for what it owns."""
    if job.record is None:
        return "its record is gone; its pods are still there" if job.gone else None
    meta = job.record.record.metadata
    due = meta.deletion_timestamp
    if due is None:
        return None
    left = f"; {len(job.pods)} of its pods are still there" if job.pods else ""
    if now - due <= limit:
        return f"it was deleted{left}"
    held = ", ".join(meta.finalizers or ())
    return f"it was deleted{left}; stuck Terminating since {due:%Y-%m-%dT%H:%M:%SZ}" + (
        f", held by {plain(held, 120)}" if held else ""
    )
