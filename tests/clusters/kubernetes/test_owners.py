"""Jobs that operators make: one job per top owner, its record telling what its pods alone cannot."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from supervisor.model.job import Burn, JobState, TaskCounts
from tests.clusters.kubernetes.conftest import Eyes, MakeEyes
from tests.kube_lab import KubeLab, job, pod

pytestmark = pytest.mark.lab

Json = dict[str, Any]
SINCE = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def condition(kind: str, reason: str = "", message: str = "", status: str = "True") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE}


def make(lab: KubeLab, eyes: Eyes, group: str, version: str, kind: str, name: str, spec: Json, **meta: Any) -> Json:
    """A record of an operator, without the operator."""
    lab.define(group, version, kind)
    thing = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}
    return lab.create(eyes.namespace, thing)


def says(lab: KubeLab, eyes: Eyes, record: Json, status: Json) -> None:
    """What its operator would write."""
    kind, meta = record["kind"], record["metadata"]
    path = f"/apis/{record['apiVersion']}/namespaces/{eyes.namespace}/{kind.lower()}s/{meta['name']}/status"
    lab.merge(path, {"status": status})


def owned(thing: Json, owner: Json, **labels: str) -> Json:
    meta = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    thing["metadata"]["ownerReferences"] = [reference | {"controller": True}]
    thing["metadata"]["labels"] = {**thing["metadata"].get("labels", {}), **labels}
    return thing


def run(lab: KubeLab, eyes: Eyes, *pods: Json, phase: str = "Running") -> None:
    for one in pods:
        lab.create(eyes.namespace, one)
    for one in pods:
        lab.until_phase(eyes.namespace, one["metadata"]["name"], phase)


# -- JobSet ------------------------------------------------------------------------------------------------------------


async def test_a_jobset_is_one_job_through_the_jobs_below_it(kube_lab: KubeLab, eyes: Eyes) -> None:
    template = {"spec": {"parallelism": 2}}
    spec = {
        "replicatedJobs": [{"name": "workers", "replicas": 1, "template": template}],
        "failurePolicy": {"maxRestarts": 4},
    }
    record = make(kube_lab, eyes, "jobset.x-k8s.io", "v1alpha2", "JobSet", "sft-7b", spec, labels={"user": "alice"})
    says(kube_lab, eyes, record, {"restarts": 2, "restartsCountTowardsMax": 1})
    below = job("sft-7b-workers-0", pod("x", "running"), parallelism=2, completions=2)
    kube_lab.create(eyes.namespace, owned(below, record))
    path = f"/api/v1/namespaces/{eyes.namespace}/pods?labelSelector=job-name=sft-7b-workers-0"
    kube_lab.until(
        "both run",
        lambda: [one["status"].get("phase") for one in kube_lab.call("GET", path)[1]["items"]] == ["Running"] * 2,
    )

    reading = await eyes.poll()

    assert list(reading.lines) == [eyes.id("jobset", "sft-7b")]
    (seen,) = reading.changed
    assert (seen.state, seen.tasks, seen.user) == (JobState.RUNNING, TaskCounts(2, running=2), "alice")
    assert (seen.attempt, seen.burn) == (3, Burn(1, 4))
    assert seen.key.incarnation == record["metadata"]["uid"]


@pytest.mark.parametrize(
    ("end", "state", "word"),
    [
        (condition("Completed", "AllJobsCompleted"), JobState.COMPLETED, "Completed"),
        (
            condition("Failed", "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts"),
            JobState.FAILED,
            "ReachedMaxRestarts",
        ),
    ],
)
async def test_a_jobset_ends_as_its_record_says(
    kube_lab: KubeLab, eyes: Eyes, end: Json, state: JobState, word: str
) -> None:
    record = make(kube_lab, eyes, "jobset.x-k8s.io", "v1alpha2", "JobSet", "sft-7b", {})
    await eyes.poll()
    says(kube_lab, eyes, record, {"conditions": [end]})

    (seen,) = (await eyes.poll()).ended

    assert (seen.key.id, seen.state, seen.scheduler_state) == (eyes.id("jobset", "sft-7b"), state, word)


# -- Kubeflow ----------------------------------------------------------------------------------------------------------


async def test_a_pytorchjobs_log_is_its_masters_and_its_roles_are_counted_together(
    kube_lab: KubeLab, eyes: Eyes
) -> None:
    spec = {
        "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 2}},
        "runPolicy": {"backoffLimit": 3},
    }
    record = make(kube_lab, eyes, "kubeflow.org", "v1", "PyTorchJob", "sft", spec)
    worker, master = "worker", "master"
    pods = [owned(pod(f"sft-worker-{n}", "running"), record, **_replica(worker, n)) for n in range(2)]
    run(kube_lab, eyes, *pods, owned(pod("sft-master-0", "running"), record, **_replica(master, 0)))

    (seen,) = (await eyes.poll()).changed

    assert (seen.key.id, seen.state) == (eyes.id("pytorchjob", "sft"), JobState.RUNNING)
    assert seen.tasks == TaskCounts(3, running=3)
    assert seen.details is not None
    assert seen.details.log_path == f"pod/{eyes.namespace}/sft-master-0/main"


def _replica(kind: str, index: int) -> dict[str, str]:
    return {"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": str(index)}


async def test_a_pytorchjob_that_failed_names_the_pod_that_failed_first(kube_lab: KubeLab, eyes: Eyes) -> None:
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}}
    record = make(kube_lab, eyes, "kubeflow.org", "v1", "PyTorchJob", "sft", spec)
    run(
        kube_lab,
        eyes,
        owned(pod("sft-worker-0", "running", "oomkilled"), record, **_replica("worker", 0)),
        phase="Failed",
    )
    run(
        kube_lab,
        eyes,
        owned(pod("sft-master-0", "running", 1.5, {"failed": 1}), record, **_replica("master", 0)),
        phase="Failed",
    )
    says(kube_lab, eyes, record, {"conditions": [condition("Failed", "PyTorchJobFailed", "sft is failed")]})

    seen = await eyes.see("pytorchjob", "sft", ended=True)

    assert (seen.state, seen.exit_code) == (JobState.OUT_OF_MEMORY, 137)
    assert seen.reason is not None
    assert "pod sft-worker-0: OOMKilled" in seen.reason


async def test_a_trainjob_is_the_top_of_its_jobset(kube_lab: KubeLab, eyes: Eyes) -> None:
    top = make(kube_lab, eyes, "trainer.kubeflow.org", "v1alpha1", "TrainJob", "tune", {})
    kube_lab.define("jobset.x-k8s.io", "v1alpha2", "JobSet")
    middle = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "tune"}, "spec": {}}
    below = kube_lab.create(eyes.namespace, owned(middle, top))
    run(kube_lab, eyes, owned(pod("tune-node-0", "running"), below))

    reading = await eyes.poll()

    assert list(reading.lines) == [eyes.id("trainjob", "tune")]
    assert reading.changed[0].state is JobState.RUNNING


# -- KubeRay -----------------------------------------------------------------------------------------------------------


def ray_gang(lab: KubeLab, eyes: Eyes, status: Json, **spec: Any) -> Json:
    """A RayJob with its cluster, its pods and its submitter."""
    record = make(lab, eyes, "ray.io", "v1", "RayJob", "grpo", spec)
    lab.define("ray.io", "v1", "RayCluster")
    middle = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "grpo-x7k"}, "spec": {}}
    below = lab.create(eyes.namespace, owned(middle, record))
    says(lab, eyes, record, status)
    submitter = job("grpo", pod("x", "running"))
    lab.create(eyes.namespace, owned(submitter, record))
    run(
        lab,
        eyes,
        owned(pod("grpo-x7k-head", "running"), below, **{"ray.io/node-type": "head"}),
        owned(pod("grpo-x7k-worker-a", "running"), below, **{"ray.io/node-type": "worker"}),
    )
    path = f"/api/v1/namespaces/{eyes.namespace}/pods?labelSelector=job-name=grpo"
    lab.until(
        "it is submitted",
        lambda: "Running" in str([one["status"].get("phase") for one in lab.call("GET", path)[1]["items"]]),
    )
    return record


async def test_a_rayjob_is_one_job_with_its_cluster_and_its_submitter_whose_log_is_the_drivers(
    kube_lab: KubeLab, eyes: Eyes
) -> None:
    record = ray_gang(
        kube_lab, eyes, {"jobStatus": "RUNNING", "jobDeploymentStatus": "Running", "failed": 1}, backoffLimit=3
    )

    reading = await eyes.poll()

    assert list(reading.lines) == [eyes.id("rayjob", "grpo")]
    (seen,) = reading.changed
    assert (seen.state, seen.scheduler_state, seen.key.incarnation) == (
        JobState.RUNNING,
        "RUNNING",
        record["metadata"]["uid"],
    )
    assert (seen.tasks, seen.attempt, seen.burn) == (TaskCounts(3, running=3), 2, Burn(1, 3))
    assert seen.details is not None
    assert seen.details.log_path is not None
    assert seen.details.log_path.startswith(f"pod/{eyes.namespace}/grpo-")
    assert "x7k" not in seen.details.log_path


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}, JobState.COMPLETED),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "reason": "AppFailed"}, JobState.FAILED),
        ({"jobStatus": "STOPPED", "jobDeploymentStatus": "Complete"}, JobState.CANCELLED),
        ({"jobStatus": "RUNNING", "jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"}, JobState.TIMED_OUT),
    ],
)
async def test_a_rayjob_ends_as_its_record_says(kube_lab: KubeLab, eyes: Eyes, status: Json, state: JobState) -> None:
    record = make(kube_lab, eyes, "ray.io", "v1", "RayJob", "grpo", {})
    await eyes.poll()
    says(
        kube_lab, eyes, record, status | {"endTime": SINCE, "message": "Job entrypoint command failed with exit code 1"}
    )

    (seen,) = (await eyes.poll()).ended

    assert (seen.state, seen.final) == (state, True)


async def test_a_rayjob_that_failed_and_may_be_tried_again_has_not_ended(kube_lab: KubeLab, eyes: Eyes) -> None:
    record = make(kube_lab, eyes, "ray.io", "v1", "RayJob", "grpo", {"backoffLimit": 2})
    says(kube_lab, eyes, record, {"jobStatus": "FAILED", "jobDeploymentStatus": "Retrying", "failed": 1})

    seen = await eyes.see("rayjob", "grpo")

    assert (seen.state, seen.attempt) == (JobState.COMPLETING, 2)


async def test_a_rays_service_is_no_job(kube_lab: KubeLab, eyes: Eyes) -> None:
    kube_lab.define("ray.io", "v1", "RayCluster")
    service = {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "serve", "uid": "0-0-0-0"}}
    middle = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "serve-x"}, "spec": {}}
    below = owned(middle, service)
    kube_lab.create(eyes.namespace, below)

    assert (await eyes.poll()).lines == {}


# -- owners that are not read ------------------------------------------------------------------------------------------


async def test_pods_of_an_unknown_operator_are_one_job_of_their_owner(kube_lab: KubeLab, eyes: Eyes) -> None:
    record = make(kube_lab, eyes, "lab.example.com", "v1", "Sweep", "grid", {})
    run(kube_lab, eyes, *[owned(pod(f"grid-{n}", "running"), record) for n in range(2)])

    reading = await eyes.poll()

    assert list(reading.lines) == [eyes.id("sweep", "grid")]
    (seen,) = reading.changed
    assert (seen.state, seen.tasks, seen.key.incarnation) == (
        JobState.RUNNING,
        TaskCounts(2, running=2),
        record["metadata"]["uid"],
    )


async def test_a_job_of_a_cronjob_is_a_job_of_its_own(kube_lab: KubeLab, eyes: Eyes) -> None:
    nightly = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", "uid": "0-0-0-0"}}
    one = owned(job("nightly-1", pod("x", "running")), nightly)
    # Nobody would collect it: its CronJob was never there.
    one["metadata"]["ownerReferences"][0]["controller"] = False
    kube_lab.create(eyes.namespace, one)

    assert list((await eyes.poll()).lines) == [eyes.id("job", "nightly-1")]


# -- selectors ---------------------------------------------------------------------------------------------------------


async def test_what_bears_the_selectors_labels_is_watched_with_all_its_kin_and_nothing_else(
    kube_lab: KubeLab, eyes_of: MakeEyes
) -> None:
    """POLL-8: a label on the record or on a pod is enough."""
    eyes = eyes_of(selector="team=a")
    kube_lab.create(eyes.namespace, job("by-record", pod("x", "running"), labels={"team": "a"}))
    kube_lab.create(eyes.namespace, job("by-pod", pod("x", "running", labels={"team": "a"})))
    kube_lab.create(eyes.namespace, job("theirs", pod("x", "running", labels={"team": "b"}), labels={"team": "b"}))
    kube_lab.create(eyes.namespace, pod("alone", "running"))
    path = f"/api/v1/namespaces/{eyes.namespace}/pods"
    kube_lab.until(
        "all run",
        lambda: [one["status"].get("phase") for one in kube_lab.call("GET", path)[1]["items"]] == ["Running"] * 4,
    )

    reading = await eyes.poll()

    assert sorted(reading.lines) == [eyes.id("job", "by-pod"), eyes.id("job", "by-record")]
    assert {one.state for one in reading.changed} == {JobState.RUNNING}


async def test_a_kind_that_the_cluster_does_not_have_is_not_asked_for(kube_lab: KubeLab, eyes: Eyes) -> None:
    lines = await eyes.cluster.check(eyes.now())

    kinds = next(line.text for line in lines if line.what == "kinds")
    assert "Job" in kinds
    assert "XGBoostJob" not in kinds
    assert {line.result for line in lines} == {"ok"}
