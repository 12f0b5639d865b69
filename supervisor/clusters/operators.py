"""Records of operators that train: Kubeflow's jobs and KubeRay's. What each says of itself. Pure."""

from __future__ import annotations

from datetime import datetime

from supervisor.clusters.kubernetes_objects import Condition, Meta, Part, holds, plain, said
from supervisor.clusters.owners import RecordRead, condition_end, seconds_of
from supervisor.model.job import Burn, JobState

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


def read_training_job(one: TrainingJob) -> RecordRead:
    spec, status = one.spec, one.status
    policy = spec.run_policy or RunPolicy()
    state, word, reason, ended = condition_end(status.conditions)
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
        time_limit=seconds_of(policy.active_deadline_seconds),
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


def read_train_job(one: TrainJob) -> RecordRead:
    state, word, reason, ended = condition_end(one.status.conditions)
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


def read_rayjob(one: RayJob) -> RecordRead:
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
        time_limit=seconds_of(spec.active_deadline_seconds),
        retries=retries,
        burn=Burn(failures, spec.backoff_limit) if spec.backoff_limit is not None or failures else None,
        queued_by=one.metadata.tags.queue,
    )


class RayClusterSpec(Part, frozen=True):
    suspend: bool | None = None


class RayCluster(Part, frozen=True):
    metadata: Meta
    spec: RayClusterSpec = RayClusterSpec()


def read_raycluster(one: RayCluster) -> RecordRead:
    suspended = bool(one.spec.suspend)
    return RecordRead(
        state=JobState.SUSPENDED if suspended else None,
        word="Suspended" if suspended else "",
        reason="spec.suspend is set" if suspended else None,
        queued_by=one.metadata.tags.queue,
    )
