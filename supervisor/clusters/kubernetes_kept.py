"""What of an object's JSON is kept as evidence: a positive list, so that no environment, secret or token can be in it. Pure.

A name that is not on the list is left out with all that is below it; what is kept stands as the API server gave it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Union

Kept = Mapping[str, Union["Kept", None]]
"""By name of a member: what is kept below it. None: its value, if it is plain or a list of plain ones. ``*``: every other name."""


def _values(names: str) -> dict[str, Kept | None]:
    return dict.fromkeys(names.split())


_ANY: Kept = {"*": None}
_CONDITION: Kept = _values(
    "type status reason message lastTransitionTime lastProbeTime lastUpdateTime lastHeartbeatTime observedGeneration"
)
_ENDED: Kept = _values("exitCode signal reason message startedAt finishedAt")
_CONTAINER_STATE: Kept = {"running": _values("startedAt"), "waiting": _values("reason message"), "terminated": _ENDED}
_CONTAINER_STATUS: Kept = {
    **_values("name ready started restartCount image imageID containerID"),
    "state": _CONTAINER_STATE,
    "lastState": _CONTAINER_STATE,
}
_CONTAINER: Kept = {
    **_values("name image restartPolicy"),
    "resources": {"limits": _ANY, "requests": _ANY},
}
_META: Kept = {
    **_values(
        "name generateName namespace uid creationTimestamp deletionTimestamp deletionGracePeriodSeconds generation"
    ),
    **_values("finalizers"),
    "labels": _ANY,
    "annotations": _values(
        "kubectl.kubernetes.io/default-container batch.kubernetes.io/job-completion-index iris.task_id "
        "kueue.x-k8s.io/pod-group-total-count kueue.x-k8s.io/workload"
    ),
    "ownerReferences": _values("apiVersion kind name uid controller"),
}
_POD_SPEC: Kept = {
    **_values("nodeName restartPolicy activeDeadlineSeconds terminationGracePeriodSeconds priority priorityClassName"),
    **_values("preemptionPolicy schedulerName runtimeClassName hostNetwork hostPID shareProcessNamespace"),
    "nodeSelector": _ANY,
    "schedulingGates": _values("name"),
    "containers": _CONTAINER,
    "initContainers": _CONTAINER,
}
_ROUNDS: Kept = _values(
    "parallelism completions completionMode backoffLimit backoffLimitPerIndex maxFailedIndexes activeDeadlineSeconds "
    "suspend ttlSecondsAfterFinished podReplacementPolicy managedBy replicas restartPolicy groupName minReplicas "
    "maxReplicas numOfHosts numNodes numProcPerNode name"
)
_REPLICAS: Kept = {"*": _values("replicas restartPolicy")}
_REPLICAS_STATUS: Kept = _values("name ready succeeded failed active suspended replicas")
_SPEC: Kept = {
    **_POD_SPEC,
    **_ROUNDS,
    "replicatedJobs": {**_ROUNDS, "template": {"spec": _ROUNDS}},
    "failurePolicy": _values("maxRestarts restartStrategy"),
    "runPolicy": _values("backoffLimit activeDeadlineSeconds cleanPodPolicy suspend ttlSecondsAfterFinished"),
    "elasticPolicy": _values("minReplicas maxReplicas maxRestarts nProcPerNode rdzvBackend"),
    **dict.fromkeys(
        (f"{word}ReplicaSpecs" for word in ("pytorch", "tf", "mpi", "xgb", "paddle", "jax")),
        _REPLICAS,
    ),
    "trainer": _values("numNodes numProcPerNode"),
    "rayClusterSpec": {"workerGroupSpecs": _ROUNDS},
    "workerGroupSpecs": _ROUNDS,
    **_values("shutdownAfterJobFinishes submissionMode clusterSelector jobId"),
}
_STATUS: Kept = {
    **_values(
        "phase reason message startTime completionTime succeeded failed ready terminating uncountedTerminatedPods"
    ),
    **_values("completedIndexes failedIndexes nominatedNodeName hostIP podIP qosClass"),
    **_values("restarts restartsCountTowardsMax terminalState"),
    **_values("jobStatus jobDeploymentStatus jobId rayClusterName startTime endTime state dashboardURL"),
    **_values("availableWorkerReplicas readyWorkerReplicas desiredWorkerReplicas minWorkerReplicas maxWorkerReplicas"),
    **_values("lastReconcileTime lastUpdateTime observedGeneration"),
    "conditions": _CONDITION,
    "containerStatuses": _CONTAINER_STATUS,
    "initContainerStatuses": _CONTAINER_STATUS,
    "replicatedJobsStatus": _REPLICAS_STATUS,
    "jobsStatus": _REPLICAS_STATUS,
    "replicaStatuses": {"*": _REPLICAS_STATUS},
    "rayClusterStatus": _values("state reason availableWorkerReplicas readyWorkerReplicas desiredWorkerReplicas"),
}
"""Without a Job's ``active``: it counts pods that only wait, and each pod says itself what it does (POLL-5)."""
OBJECT: Kept = {**_values("apiVersion kind"), "metadata": _META, "spec": _SPEC, "status": _STATUS}


def kept(value: Any, what: Kept | None) -> Any:
    """``value`` with what the list names. What is left of a list is a list, of a mapping a mapping."""
    if what is None:
        if isinstance(value, list):
            return [one for one in value if not isinstance(one, dict | list)]
        return None if isinstance(value, dict) else value
    if isinstance(value, list):
        return [kept(one, what) for one in value if isinstance(one, dict)]
    if not isinstance(value, dict):
        return {}
    left: dict[str, Any] = {}
    for name, inner in value.items():
        if name not in what and "*" not in what:
            continue
        below = what[name] if name in what else what["*"]
        if below is not None and not isinstance(inner, dict | list):
            continue
        if below is None and isinstance(inner, dict):
            continue
        left[name] = kept(inner, below)
    return left


def page(body: Mapping[str, Any], remarks: Sequence[str] = ()) -> bytes:
    """JSON of which each line can be quoted, then what is to be said beside it, each on a line after ``# ``."""
    lines = [json.dumps(body, indent=1, ensure_ascii=True), *(f"# {remark}" for remark in remarks)]
    return ("\n".join(lines) + "\n").encode()


def command_of(pod: Mapping[str, Any], container: str) -> str | None:
    """Command line of a pod's container as its spec has it; None where that is left to the image."""
    spec = pod.get("spec")
    for one in _listed(spec, "containers"):
        if isinstance(one, dict) and one.get("name") == container:
            words = [str(word) for part in ("command", "args") for word in _listed(one, part)]
            return shlex.join(words) if words else None
    return None


def _listed(body: Any, name: str) -> list[Any]:
    """What stands there, if it is a list."""
    value = body.get(name) if isinstance(body, dict) else None
    return value if isinstance(value, list) else []
