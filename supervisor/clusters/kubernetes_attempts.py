"""Attempts of one job: which pods belong to the present one, why one failed, and what is still on record of earlier ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from supervisor.clusters.kubernetes_jobs import Folded
from supervisor.clusters.kubernetes_objects import plain
from supervisor.clusters.owners import RecordRead
from supervisor.clusters.pod_objects import Pod
from supervisor.clusters.pods import PodRead, end_of, signal_of
from supervisor.model.job import JobState, Observation

_ONE_ROUND = timedelta(seconds=10)
"""Pods of one attempt are made within this time of each other; a controller waits at least as long before the next."""
_START = timedelta(seconds=3)
"""Longer than a controller takes from starting a Job to making its pods, by whole seconds."""
_SAYS_MOST = {
    JobState.OUT_OF_MEMORY: 0,
    JobState.PREEMPTED: 0,
    JobState.NODE_FAILED: 0,
    JobState.TIMED_OUT: 1,
    JobState.FAILED: 2,
}
_NEVER = datetime.max.replace(tzinfo=UTC)


def cause_of(pods: Sequence[PodRead]) -> PodRead | None:
    """The failed pod that failed first; at the same second, the one whose record says most."""
    failed = [pod for pod in pods if pod.state.ended and pod.state is not JobState.COMPLETED]
    return min(failed, key=_first_cause, default=None)


def _first_cause(pod: PodRead) -> tuple[bool, datetime, int, str]:
    # A sibling that was deleted only echoes the first failure.
    echo = pod.state is JobState.CANCELLED
    return echo, pod.ended_at or _NEVER, _SAYS_MOST.get(pod.state, 3), pod.name


def latest(pods: Sequence[PodRead]) -> list[PodRead]:
    """Ended pods that no later one of the same place has replaced."""
    newest: dict[tuple[str, str], PodRead] = {}
    loose: list[PodRead] = []
    for pod in pods:
        if not pod.state.ended:
            continue
        index = index_of(pod.pod)
        if not index:
            loose.append(pod)
            continue
        place = (_place(pod.pod), index)
        held = newest.get(place)
        if held is None or held.pod.metadata.creation_timestamp < pod.pod.metadata.creation_timestamp:
            newest[place] = pod
    if loose:
        owner = loose[0].pod.metadata.owner
        if owner is not None:
            made = max(pod.pod.metadata.creation_timestamp for pod in loose)
            loose = [
                pod
                for pod in loose
                if pod.state is JobState.COMPLETED or made - pod.pod.metadata.creation_timestamp < _ONE_ROUND
            ]
    return [*newest.values(), *loose]


def _place(pod: Pod) -> str:
    tags = pod.metadata.tags
    return tags.replicated_job or tags.replica_type or tags.ray_group or tags.ray_node


def index_of(pod: Pod) -> str:
    tags = pod.metadata.tags
    inner = tags.index or pod.metadata.notes.index or tags.replica_index
    return f"{tags.job_index}.{inner}" if tags.job_index and inner else inner or tags.job_index


def past_attempts(
    job: Folded, latest: Observation, pods: Sequence[PodRead], current: Sequence[PodRead], main: PodRead | None
) -> tuple[Observation, ...]:
    """Ends of earlier attempts that are still on record: a container's last run, failed pods that were replaced, an eviction."""
    assert latest.attempt is not None
    found: list[Observation] = []
    attempt = latest.attempt - 1
    blank = replace(
        latest,
        final=False,
        details=None,
        burn=None,
        preemptions=None,
        tasks=None,
        started_at=None,
        exit_code=None,
        signal=None,
        nodes=(),
        node_count=None,
    )
    if main is not None and main.past is not None and main.restarts and attempt > 0:
        state, reason = end_of(main.past)
        found.append(
            replace(
                blank,
                state=state if state is not JobState.COMPLETED else JobState.REQUEUED,
                scheduler_state=plain(main.past.reason, 60) or "Error",
                reason=reason,
                started_at=main.past.started_at,
                ended_at=main.past.finished_at,
                exit_code=main.past.exit_code,
                signal=signal_of(main.past),
                nodes=(main.pod.spec.node_name,) if main.pod.spec.node_name else (),
                attempt=attempt,
            )
        )
        attempt = latest.attempt - 1 - main.restarts
    evicted = job.verdict.evicted if job.verdict is not None else None
    if evicted is not None and attempt > 0:
        preempted = evicted.reason == "Preempted"
        found.append(
            replace(
                blank,
                state=JobState.PREEMPTED if preempted else JobState.REQUEUED,
                scheduler_state=plain(evicted.reason or "Evicted", 60),
                reason=plain(f"Kueue: {evicted.message or evicted.reason}"),
                ended_at=evicted.last_transition_time,
                attempt=attempt,
            )
        )
        attempt -= 1
    present = {id(pod) for pod in current}
    replaced = [
        pod for pod in pods if pod.state.ended and pod.state is not JobState.COMPLETED and id(pod) not in present
    ]
    for cause in _causes(replaced):
        if attempt < 1:
            break
        found.append(
            replace(
                blank,
                state=cause.state,
                scheduler_state=cause.word,
                reason=f"pod {plain(cause.name, 80)}: {cause.reason or cause.word}",
                started_at=cause.started_at,
                ended_at=cause.ended_at,
                exit_code=cause.exit_code,
                signal=cause.signal,
                nodes=(cause.pod.spec.node_name,) if cause.pod.spec.node_name else (),
                attempt=attempt,
            )
        )
        attempt -= 1
    for lost in reversed(job.lost):
        if attempt < 1 or lost.end is None:
            break
        end = lost.end
        reason = f"pod {plain(lost.name, 80)}: {end.reason}"
        found.append(
            replace(
                blank,
                state=end.state,
                scheduler_state=end.word,
                reason=reason,
                started_at=end.began,
                ended_at=end.at,
                nodes=(end.node,) if end.node else (),
                attempt=attempt,
            )
        )
        attempt -= 1
    return tuple(one for one in found if one.ended_at is not None)


def rounds_lost(job: Folded, record: RecordRead) -> int:
    """Attempts whose pods are gone, by the events that say they were made."""
    return -(-len(job.lost) // max(record.expected or 1, 1))


def rounds_preempted(job: Folded, record: RecordRead) -> int:
    """Those of them that the cluster took for something else."""
    taken = sum(pod.end is not None and pod.end.state is JobState.PREEMPTED for pod in job.lost)
    return -(-taken // max(record.expected or 1, 1))


def needs_events(job: Folded) -> bool:
    """Whether a batch Job seems to have had other pods, of which its record says nothing: they came late, and none has failed."""
    record = job.read
    if job.kind != "job" or record.state is not None or record.started_at is None or not job.pods or record.retries:
        return False
    first = min(pod.metadata.creation_timestamp for pod in job.pods)
    return first - record.started_at > _START


def _causes(replaced: Sequence[PodRead]) -> list[PodRead]:
    """Of pods that failed and were replaced, one cause per round, newest round first."""
    rounds: list[list[PodRead]] = []
    for pod in sorted(replaced, key=lambda each: each.pod.metadata.creation_timestamp):
        made = pod.pod.metadata.creation_timestamp
        if rounds and made - rounds[-1][0].pod.metadata.creation_timestamp < _ONE_ROUND:
            rounds[-1].append(pod)
        else:
            rounds.append([pod])
    return [cause for one in reversed(rounds) if (cause := cause_of(one)) is not None]
