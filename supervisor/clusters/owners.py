"""Records that own pods: batch Jobs, JobSets, Kubeflow's training jobs, KubeRay's. What each says of itself, in one form. Pure.

A kind is one entry of :data:`KINDS`. Which of them a cluster has is discovered, never assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from supervisor.clusters.kubernetes_objects import Condition, ListMeta, Meta, Part, holds, plain, said
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


def _read_job(job: Job) -> RecordRead:
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
        time_limit=_seconds(spec.active_deadline_seconds),
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


def _read_jobset(one: JobSet) -> RecordRead:
    spec, status = one.spec, one.status
    state, word, reason, ended = _condition_end(status.conditions)
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


def _condition_end(
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


# -- Kubeflow ----------------------------------------------------------------------------------------------------------


class ReplicaSpec(Part, frozen=True):
    replicas: int | None = None


class RunPolicy(Part, frozen=True):
    suspend: bool | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None


Replicas = dict[str, ReplicaSpec]


class TrainingSpec(Part, frozen=True):
    """PyTorchJob and its siblings: each has its own name for the same map of roles."""

    pytorch_replica_specs: Replicas | None = None
    tf_replica_specs: Replicas | None = None
    mpi_replica_specs: Replicas | None = None
    xgb_replica_specs: Replicas | None = None
    paddle_replica_specs: Replicas | None = None
    jax_replica_specs: Replicas | None = None
    run_policy: RunPolicy | None = None

    @property
    def replicas(self) -> int:
        maps = (
            self.pytorch_replica_specs,
            self.tf_replica_specs,
            self.mpi_replica_specs,
            self.xgb_replica_specs,
            self.paddle_replica_specs,
            self.jax_replica_specs,
        )
        return sum(1 if each.replicas is None else each.replicas for roles in maps for each in (roles or {}).values())


class ReplicaStatus(Part, frozen=True):
    active: int | None = None


class TrainingStatus(Part, frozen=True):
    conditions: tuple[Condition, ...] | None = ()
    start_time: datetime | None = None
    completion_time: datetime | None = None
    replica_statuses: dict[str, ReplicaStatus] | None = None


class TrainingJob(Part, frozen=True):
    metadata: Meta
    spec: TrainingSpec = TrainingSpec()
    status: TrainingStatus = TrainingStatus()


def _read_training_job(one: TrainingJob) -> RecordRead:
    spec, status = one.spec, one.status
    policy = spec.run_policy or RunPolicy()
    state, word, reason, ended = _condition_end(status.conditions)
    restarting = holds(status.conditions, "Restarting")
    if state is None and (policy.suspend or holds(status.conditions, "Suspended") is not None):
        state, word, reason = JobState.SUSPENDED, "Suspended", "spec.runPolicy.suspend is set"
    elif state is None and restarting is not None:
        word, reason = "Restarting", said(restarting.reason, restarting.message)
    return RecordRead(
        state=state,
        word=word,
        reason=reason,
        started_at=status.start_time,
        ended_at=status.completion_time or ended if state is not None and state.ended else None,
        time_limit=_seconds(policy.active_deadline_seconds),
        expected=spec.replicas or None,
        active=sum(each.active or 0 for each in (status.replica_statuses or {}).values()),
        burn=Burn(0, policy.backoff_limit) if policy.backoff_limit is not None else None,
        queued_by=one.metadata.tags.queue,
    )


class TrainJobSpec(Part, frozen=True):
    suspend: bool | None = None


class TrainJobStatus(Part, frozen=True):
    conditions: tuple[Condition, ...] | None = ()


class TrainJob(Part, frozen=True):
    metadata: Meta
    spec: TrainJobSpec = TrainJobSpec()
    status: TrainJobStatus = TrainJobStatus()


def _read_train_job(one: TrainJob) -> RecordRead:
    state, word, reason, ended = _condition_end(one.status.conditions)
    if state is None and one.spec.suspend:
        state, word, reason = JobState.SUSPENDED, "Suspended", "spec.suspend is set"
    return RecordRead(state=state, word=word, reason=reason, ended_at=ended, queued_by=one.metadata.tags.queue)


# -- KubeRay -----------------------------------------------------------------------------------------------------------


class RayJobSpec(Part, frozen=True):
    suspend: bool | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None


class RayJobStatus(Part, frozen=True):
    job_status: str | None = None
    job_deployment_status: str | None = None
    reason: str | None = None
    message: str | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    failed: int | None = None


class RayJob(Part, frozen=True):
    metadata: Meta
    spec: RayJobSpec = RayJobSpec()
    status: RayJobStatus = RayJobStatus()


_RAY_ENDS = {"SUCCEEDED": JobState.COMPLETED, "FAILED": JobState.FAILED, "STOPPED": JobState.CANCELLED}


def _read_rayjob(one: RayJob) -> RecordRead:
    spec, status = one.spec, one.status
    deployment, word = (
        status.job_deployment_status or "",
        plain(status.job_status or status.job_deployment_status or "", 60),
    )
    failures = status.failed or 0
    over = deployment in ("Complete", "Failed", "ValidationFailed")
    reason: str | None = said(status.reason, status.message) or None
    state: JobState | None = None
    if over:
        state = _RAY_ENDS.get(status.job_status or "", JobState.FAILED)
        if state is not JobState.COMPLETED and status.reason == "DeadlineExceeded":
            state = JobState.TIMED_OUT
        word = word if status.job_status else deployment
    elif status.job_status in _RAY_ENDS:
        # The job is over, and the operator has not said yet whether it tries again.
        state = JobState.COMPLETING
        reason = reason or f"its Ray job says {word}, its record says {plain(deployment, 60) or 'nothing'}"
    elif spec.suspend or deployment in ("Suspended", "Suspending"):
        state, word, reason = JobState.SUSPENDED, "Suspended", "spec.suspend is set" if spec.suspend else reason
    retries = min(failures, spec.backoff_limit or 0) if over else failures
    return RecordRead(
        state=state,
        word=word,
        reason=reason,
        started_at=status.start_time,
        ended_at=status.end_time if over else None,
        time_limit=_seconds(spec.active_deadline_seconds),
        retries=retries,
        burn=Burn(failures, spec.backoff_limit) if spec.backoff_limit is not None or failures else None,
        queued_by=one.metadata.tags.queue,
    )


class RayClusterSpec(Part, frozen=True):
    suspend: bool | None = None


class RayCluster(Part, frozen=True):
    metadata: Meta
    spec: RayClusterSpec = RayClusterSpec()


def _read_raycluster(one: RayCluster) -> RecordRead:
    suspended = bool(one.spec.suspend)
    return RecordRead(
        state=JobState.SUSPENDED if suspended else None,
        word="Suspended" if suspended else "",
        reason="spec.suspend is set" if suspended else None,
        queued_by=one.metadata.tags.queue,
    )


def _seconds(value: int | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)


# -- the table ---------------------------------------------------------------------------------------------------------

Record = Job | JobSet | TrainingJob | TrainJob | RayJob | RayCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of record: where it is found, how it is decoded, what it says."""

    kind: str
    group: str
    plural: str
    item: type[Record]
    read: Callable[[Any], RecordRead]

    @property
    def word(self) -> str:
        """Its part of a job's id."""
        return self.kind.lower()


def _kubeflow(kind: str) -> Kind:
    return Kind(kind=kind, group="kubeflow.org", plural=f"{kind.lower()}s", item=TrainingJob, read=_read_training_job)


KINDS: tuple[Kind, ...] = (
    Kind(kind="Job", group="batch", plural="jobs", item=Job, read=_read_job),
    Kind(kind="RayCluster", group="ray.io", plural="rayclusters", item=RayCluster, read=_read_raycluster),
    Kind(kind="JobSet", group="jobset.x-k8s.io", plural="jobsets", item=JobSet, read=_read_jobset),
    Kind(kind="RayJob", group="ray.io", plural="rayjobs", item=RayJob, read=_read_rayjob),
    *map(_kubeflow, ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")),
    Kind(kind="TrainJob", group="trainer.kubeflow.org", plural="trainjobs", item=TrainJob, read=_read_train_job),
)
"""Lower in a chain of owners first: listed in this order, after the pods, so that the owner of what is listed is listed too."""

BY_NAME: Mapping[tuple[str, str], Kind] = {(kind.group, kind.kind): kind for kind in KINDS}
BY_WORD: Mapping[str, Kind] = {kind.word: kind for kind in KINDS}


class RecordList(msgspec.Struct, gc=False, frozen=True):
    """Envelope of any list; its items are decoded by their kind's own decoder."""

    kind: str
    metadata: ListMeta
    items: tuple[msgspec.Raw, ...] | None


ENVELOPE = msgspec.json.Decoder(RecordList)
ITEMS: Mapping[str, msgspec.json.Decoder[Any]] = {kind.word: msgspec.json.Decoder(kind.item) for kind in KINDS}
