"""Records that own pods: batch Jobs and JobSets. What each says of itself, in one form. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from supervisor.clusters.kubernetes_objects import Condition, Meta, Part, holds, plain, said
from supervisor.model.job import Burn, JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRead:
    """What one record says of its job."""

    state: JobState | None = None
    """None: it says nothing beyond what its pods say."""
    word: str = ""
    reason: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    time_limit: timedelta | None = None
    expected: int | None = None
    """Pods that the present attempt should have."""
    active: int = 0
    """Pods that its controller counts as not ended."""
    retries: int = 0
    """Attempts that are over, by its own count."""
    burn: Burn | None = None
    queued_by: str = ""
    """Name of its queue, where it names one."""


class ReplicaTemplateSpec(Part, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None


def seconds_of(value: int | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)


# -- batch/v1 Job ------------------------------------------------------------------------------------------------------


class JobSpec(Part, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    suspend: bool | None = None


class JobStatus(Part, frozen=True):
    active: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = ()


class Job(Part, frozen=True):
    metadata: Meta
    spec: JobSpec
    status: JobStatus = JobStatus()


def read_job_record(job: Job) -> RecordRead:
    spec, status = job.spec, job.status
    parallel = 1 if spec.parallelism is None else spec.parallelism
    expected = (
        parallel
        if spec.completions is None
        else min(parallel, max(spec.completions - (status.succeeded or 0), 0)) or parallel
    )
    failures = status.failed or 0
    state, word, reason, ended = _job_end(status)
    if state is None and spec.suspend:
        state, word, reason = JobState.SUSPENDED, "Suspended", "spec.suspend is set"
    return RecordRead(
        state=state,
        word=word,
        reason=reason,
        started_at=status.start_time,
        ended_at=ended,
        time_limit=seconds_of(spec.active_deadline_seconds),
        expected=expected,
        active=status.active or 0,
        # One lost pod of a gang costs the whole gang its attempt; a gang that fails whole loses one attempt too.
        retries=max(-(-failures // max(parallel, 1)) - (1 if state in (JobState.FAILED, JobState.TIMED_OUT) else 0), 0),
        burn=Burn(failures, spec.backoff_limit),
        queued_by=job.metadata.tags.queue,
    )


def _job_end(status: JobStatus) -> tuple[JobState | None, str, str | None, datetime | None]:
    done, failed = holds(status.conditions, "Complete"), holds(status.conditions, "Failed")
    if done is not None:
        return (
            JobState.COMPLETED,
            "Complete",
            said(done.reason, done.message) or None,
            status.completion_time or done.last_transition_time,
        )
    if failed is not None:
        state = JobState.TIMED_OUT if failed.reason == "DeadlineExceeded" else JobState.FAILED
        return (
            state,
            plain(failed.reason or "Failed", 60),
            said(failed.reason, failed.message),
            failed.last_transition_time,
        )
    for name in ("FailureTarget", "SuccessCriteriaMet"):
        ending = holds(status.conditions, name)
        if ending is not None:
            return JobState.COMPLETING, name, said(ending.reason, ending.message), None
    return None, "", None, None


# -- JobSet ------------------------------------------------------------------------------------------------------------


class JobTemplate(Part, frozen=True):
    spec: ReplicaTemplateSpec = ReplicaTemplateSpec()


class ReplicatedJob(Part, frozen=True):
    name: str = ""
    replicas: int | None = None
    template: JobTemplate = JobTemplate()


class FailurePolicy(Part, frozen=True):
    max_restarts: int | None = None


class JobSetSpec(Part, frozen=True):
    replicated_jobs: tuple[ReplicatedJob, ...] | None = ()
    suspend: bool | None = None
    failure_policy: FailurePolicy | None = None


class JobSetStatus(Part, frozen=True):
    conditions: tuple[Condition, ...] | None = ()
    restarts: int | None = None
    restarts_count_towards_max: int | None = None
    terminal_state: str | None = None


class JobSet(Part, frozen=True):
    metadata: Meta
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


def read_jobset(one: JobSet) -> RecordRead:
    spec, status = one.spec, one.status
    state, word, reason, ended = condition_end(status.conditions)
    if state is None and spec.suspend:
        state, word, reason = JobState.SUSPENDED, "Suspended", "spec.suspend is set"
    restarts = status.restarts or 0
    counted = restarts if status.restarts_count_towards_max is None else status.restarts_count_towards_max
    allowed = (spec.failure_policy.max_restarts or 0) if spec.failure_policy is not None else 0
    expected = sum(
        (1 if each.replicas is None else each.replicas) * (each.template.spec.parallelism or 1)
        for each in spec.replicated_jobs or ()
    )
    return RecordRead(
        state=state,
        word=word,
        reason=reason,
        ended_at=ended,
        expected=expected or None,
        retries=restarts,
        burn=Burn(counted, allowed),
        queued_by=one.metadata.tags.queue,
    )


def condition_end(
    conditions: tuple[Condition, ...] | None, done: tuple[str, ...] = ("Completed", "Complete", "Succeeded")
) -> tuple[JobState | None, str, str | None, datetime | None]:
    """End of a record that says it in conditions named as most operators name them."""
    for name in done:
        found = holds(conditions, name)
        if found is not None:
            return JobState.COMPLETED, name, said(found.reason, found.message) or None, found.last_transition_time
    failed = holds(conditions, "Failed")
    if failed is not None:
        state = JobState.TIMED_OUT if failed.reason == "DeadlineExceeded" else JobState.FAILED
        return (
            state,
            plain(failed.reason or "Failed", 60),
            said(failed.reason, failed.message),
            failed.last_transition_time,
        )
    return None, "", None, None
