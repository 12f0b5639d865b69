"""What one pod's record says of it: state, word and reason. Pure.

The lifecycle record is the truth (POLL-5): no log text is looked at, and exit code 137 alone proves neither an out-of-memory kill
nor a preemption.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from supervisor.clusters.kubernetes_objects import Condition, condition, holds, plain, said
from supervisor.clusters.pod_objects import ContainerStatus, Pod, Terminated
from supervisor.model.job import JobState

MAIN_CONTAINERS = ("main", "task", "trainer", "train", "pytorch", "worker", "ray-head", "ray-job-submitter", "node")
"""Names under which operators run the program itself, in the order in which they are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRead:
    """What one pod's record says."""

    pod: Pod
    container: str
    """Its main container."""
    state: JobState
    word: str
    """As the STATUS column of ``kubectl get pods`` has it, where it has a word."""
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    started_at: datetime | None = None
    """Start of its main container's present run."""
    ended_at: datetime | None = None
    restarts: int = 0
    waits_for_place: bool = False
    """No node yet: gated, unschedulable, or not looked at by the scheduler."""
    past: Terminated | None = None
    """How the main container's run before the present one ended."""

    @property
    def name(self) -> str:
        return self.pod.metadata.name


def main_container(pod: Pod) -> str:
    """The container that runs the program: the annotated default, else a customary name, else the first."""
    names = [one.name for one in pod.spec.containers]
    wanted = pod.metadata.notes.default_container
    if wanted in names:
        return wanted
    for name in MAIN_CONTAINERS:
        if name in names:
            return name
    return names[0] if names else ""


def read_pod(pod: Pod, now: datetime, terminating_limit: timedelta) -> PodRead:
    """State, word and reason of one pod. ``now`` is the cluster's clock; it only decides whether a deletion is stuck."""
    container = main_container(pod)
    status = _status_of(pod, container)
    if pod.status.phase in ("Succeeded", "Failed"):
        read = _ended(pod, container, status)
    elif pod.status.phase == "Running":
        read = _running(pod, container, status)
    elif pod.status.phase in ("Pending", ""):
        read = _pending(pod, container, status)
    else:
        text = said(pod.status.reason, pod.status.message) or "the node's kubelet does not report"
        read = PodRead(
            pod=pod, container=container, state=JobState.UNKNOWN, word=plain(pod.status.phase, 60), reason=text
        )
    if pod.metadata.deletion_timestamp is not None and not read.state.ended:
        return _terminating(pod, read, now, terminating_limit)
    return read


def disruption(pod: Pod) -> Condition | None:
    """Why the cluster takes this pod off, if it does: preemption, eviction, a lost node, Kueue."""
    return holds(pod.status.conditions, "DisruptionTarget") or holds(pod.status.conditions, "TerminationTarget")


def end_of(ended: Terminated) -> tuple[JobState, str]:
    """State and reason of one run of a container, by itself."""
    if ended.reason == "OOMKilled":
        return JobState.OUT_OF_MEMORY, f"OOMKilled (exit code {ended.exit_code})"
    if ended.exit_code == 0 and not ended.signal:
        return JobState.COMPLETED, ended.reason or "Completed"
    text = f"{ended.reason or 'Error'} (exit code {ended.exit_code})"
    return JobState.FAILED, plain(f"{text}: {ended.message}" if ended.message else text)


def signal_of(ended: Terminated) -> int | None:
    """The signal that ended it: the runtime's own word, else what a shell's exit code above 128 stands for."""
    if ended.signal:
        return ended.signal
    return ended.exit_code - 128 if 128 < ended.exit_code < 128 + 65 else None


def _status_of(pod: Pod, container: str) -> ContainerStatus | None:
    for status in pod.status.container_statuses or ():
        if status.name == container:
            return status
    return None


def _pending(pod: Pod, container: str, status: ContainerStatus | None) -> PodRead:
    placed = condition(pod.status.conditions, "PodScheduled")
    if not pod.spec.node_name and (placed is None or not placed.true):
        gates = ", ".join(plain(gate.name, 80) for gate in pod.spec.scheduling_gates)
        if placed is None:
            word, reason = (
                ("SchedulingGated", f"held by {gates}")
                if gates
                else ("Pending", "the scheduler has not looked at it yet")
            )
        else:
            word, reason = placed.reason or "Pending", plain(placed.message or "")
            reason = f"held by {gates}" if word == "SchedulingGated" and gates else reason
        return PodRead(
            pod=pod,
            container=container,
            state=JobState.PENDING,
            word=plain(word, 60),
            reason=reason,
            waits_for_place=True,
        )
    word, reason = _start(pod, status)
    return PodRead(
        pod=pod,
        container=container,
        state=JobState.STARTING,
        word=word,
        reason=reason,
        restarts=status.restart_count if status else 0,
    )


def _start(pod: Pod, status: ContainerStatus | None) -> tuple[str, str]:
    """What a placed pod is doing before its containers run."""
    inits = pod.status.init_container_statuses or ()
    for done, init in enumerate(inits):
        ended, waits = init.state.terminated, init.state.waiting
        if ended is not None and ended.exit_code != 0:
            return "Init:Error", f"init container {plain(init.name, 80)}: {end_of(ended)[1]}"
        if waits is not None and waits.reason not in ("", "PodInitializing"):
            past = init.last_state.terminated
            last = f"; its last run: {end_of(past)[1]}" if past is not None else ""
            return (
                f"Init:{plain(waits.reason, 60)}",
                f"init container {plain(init.name, 80)}: {said(waits.reason, waits.message)}{last}",
            )
        if init.state.running is not None and not init.ready:
            return f"Init:{done}/{len(inits)}", f"init container {plain(init.name, 80)} runs"
    for one in sorted(pod.status.container_statuses or (), key=lambda each: each is not status):
        waits = one.state.waiting
        if waits is not None and waits.reason not in ("", "PodInitializing", "ContainerCreating"):
            return plain(waits.reason, 60), f"container {plain(one.name, 80)}: {said(waits.reason, waits.message)}"
    waits = status.state.waiting if status is not None else None
    return (
        (plain(waits.reason, 60), "containers are being created")
        if waits is not None and waits.reason
        else ("Pending", "placed on a node")
    )


def _running(pod: Pod, container: str, status: ContainerStatus | None) -> PodRead:
    if status is None:
        return PodRead(
            pod=pod, container=container, state=JobState.RUNNING, word="Running", started_at=pod.status.start_time
        )
    past = status.last_state.terminated
    running, waits, ended = status.state.running, status.state.waiting, status.state.terminated
    if running is not None:
        began = (
            f"restarted {status.restart_count} times; the run before: {end_of(past)[1]}"
            if past is not None and status.restart_count
            else None
        )
        return PodRead(
            pod=pod,
            container=container,
            state=JobState.RUNNING,
            word="Running",
            reason=began,
            started_at=running.started_at,
            restarts=status.restart_count,
            past=past,
        )
    if ended is not None:
        others = [one.name for one in pod.status.container_statuses or () if one.state.running is not None]
        beside = f"; still running beside it: {plain(', '.join(others), 120)}" if others else ""
        return PodRead(
            pod=pod,
            container=container,
            state=JobState.COMPLETING,
            word=plain(ended.reason, 60) or "Terminated",
            reason=f"container {plain(container, 80)} has ended, {end_of(ended)[1]}{beside}",
            exit_code=ended.exit_code,
            signal=signal_of(ended),
            started_at=ended.started_at,
            restarts=status.restart_count,
            past=past,
        )
    word = plain(waits.reason, 60) if waits is not None and waits.reason else "ContainerCreating"
    reason = said(waits.reason, waits.message) if waits is not None else None
    if past is not None:
        reason = f"{status.restart_count} restarts; the last run: {end_of(past)[1]}; {reason or word}"
    return PodRead(
        pod=pod,
        container=container,
        state=JobState.STARTING,
        word=word,
        reason=reason,
        restarts=status.restart_count,
        past=past,
    )


def _ended(pod: Pod, container: str, status: ContainerStatus | None) -> PodRead:
    ended = status.state.terminated if status is not None else None
    times = [
        one.state.terminated.finished_at
        for one in pod.status.container_statuses or ()
        if one.state.terminated is not None
    ]
    last = max((time for time in times if time is not None), default=None)
    if last is None:
        changes = [one.last_transition_time for one in pod.status.conditions if one.last_transition_time is not None]
        last = max(changes, default=pod.metadata.creation_timestamp)
    state, word, reason = (
        (JobState.COMPLETED, "Completed", None) if pod.status.phase == "Succeeded" else _failure(pod, ended)
    )
    return PodRead(
        pod=pod,
        container=container,
        state=state,
        word=word,
        reason=reason,
        exit_code=ended.exit_code if ended is not None else None,
        signal=signal_of(ended) if ended is not None else None,
        started_at=ended.started_at if ended is not None else pod.status.start_time,
        ended_at=last,
        restarts=status.restart_count if status is not None else 0,
        past=status.last_state.terminated if status is not None else None,
    )


_NODE_REASONS = frozenset(
    {"NodeLost", "NodeShutdown", "Shutdown", "Terminated", "UnexpectedAdmissionError", "NodeAffinity"}
)
NODE_DISRUPTIONS = frozenset({"DeletionByTaintManager", "DeletionByPodGC"})


def _failure(pod: Pod, ended: Terminated | None) -> tuple[JobState, str, str]:
    """Why a pod failed. What the cluster did comes before what the program's exit code looks like."""
    status, taken = pod.status, disruption(pod)
    words = said(status.reason, status.message)
    if status.reason == "DeadlineExceeded":
        return JobState.TIMED_OUT, "DeadlineExceeded", words
    if ended is not None and ended.reason == "OOMKilled":
        return JobState.OUT_OF_MEMORY, "OOMKilled", end_of(ended)[1]
    if taken is not None:
        reason = said(taken.reason, taken.message)
        if taken.reason in NODE_DISRUPTIONS or status.reason in _NODE_REASONS:
            return JobState.NODE_FAILED, plain(status.reason or taken.reason or "NodeLost", 60), words or reason
        return JobState.PREEMPTED, "Evicted" if status.reason == "Evicted" else "Preempted", reason
    if status.reason == "Evicted":
        low = "was low on resource" in status.message
        return (JobState.PREEMPTED if low else JobState.FAILED), "Evicted", words
    if status.reason == "Preempting":
        return JobState.PREEMPTED, "Preempted", words
    if status.reason in _NODE_REASONS:
        return JobState.NODE_FAILED, status.reason, words
    for one in pod.status.container_statuses or ():
        if one.state.terminated is not None and one.state.terminated.reason == "OOMKilled":
            return (
                JobState.OUT_OF_MEMORY,
                "OOMKilled",
                f"container {plain(one.name, 80)}: {end_of(one.state.terminated)[1]}",
            )
    if ended is None:
        return (
            JobState.FAILED,
            plain(status.reason, 60) or "Failed",
            words or _failed_init(pod) or "no container says how it ended",
        )
    if pod.metadata.deletion_timestamp is not None and ended.exit_code in (137, 143):
        return JobState.CANCELLED, "Deleted", f"the pod was deleted; {end_of(ended)[1]}"
    reason = end_of(ended)[1]
    if ended.exit_code == 137:
        reason += "; killed by SIGKILL, with no OOMKilled and no disruption on record"
    elif ended.exit_code == 0:
        reason = _failed_beside(pod, ended) or words or reason
    return JobState.FAILED, plain(ended.reason, 60) or "Error", reason


def _failed_init(pod: Pod) -> str | None:
    for init in pod.status.init_container_statuses or ():
        if init.state.terminated is not None and init.state.terminated.exit_code:
            return f"init container {plain(init.name, 80)}: {end_of(init.state.terminated)[1]}"
    return None


def _failed_beside(pod: Pod, main: Terminated) -> str | None:
    for one in pod.status.container_statuses or ():
        ended = one.state.terminated
        if ended is not None and ended is not main and ended.exit_code:
            return f"container {plain(one.name, 80)}: {end_of(ended)[1]}"
    return None


def _terminating(pod: Pod, read: PodRead, now: datetime, limit: timedelta) -> PodRead:
    """Deleted and not gone yet. A deletion says nothing of how the program ended."""
    due = pod.metadata.deletion_timestamp
    taken = disruption(pod)
    why = said(taken.reason, taken.message) if taken is not None else "it was deleted"
    state = JobState.COMPLETING
    if taken is not None and taken.reason in NODE_DISRUPTIONS:
        why = f"its node does not answer ({why})"
    if due is not None and now - due > limit:
        held = ", ".join(pod.metadata.finalizers or ())
        why += f"; stuck Terminating since {due:%Y-%m-%dT%H:%M:%SZ}" + (f", held by {plain(held, 120)}" if held else "")
    return PodRead(
        pod=pod,
        container=read.container,
        state=state,
        word="Terminating",
        reason=why,
        started_at=read.started_at,
        restarts=read.restarts,
        past=read.past,
    )
