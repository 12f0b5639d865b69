"""Kueue's word on a job that waits: its place in the queue, what is missing, and whether waiting can help."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.model.job import Burn, JobState, Observation
from tests.clusters.kubernetes.conftest import Eyes
from tests.clusters.kubernetes.test_owners import condition
from tests.kube_lab import KubeLab, job, pod

pytestmark = pytest.mark.lab

Json = dict[str, Any]
BUSY = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more needed"
CEILING = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, "
    "request > maximum capacity (128 > 64)"
)


def queued(lab: KubeLab, eyes: Eyes, name: str, owner: Json | None, *conditions: Json, **spec: Any) -> Json:
    """A Workload as Kueue would write it; no Kueue runs here."""
    meta: Json = {"name": name}
    if owner is not None:
        owners = [owner] if isinstance(owner, dict) else owner
        meta["ownerReferences"] = [
            {
                "apiVersion": one["apiVersion"],
                "kind": one["kind"],
                "name": one["metadata"]["name"],
                "uid": one["metadata"]["uid"],
            }
            for one in owners
        ]
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": meta}
    made = lab.create(eyes.namespace, kind | {"spec": {"queueName": "gpus", **spec}})
    path = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{eyes.namespace}/workloads/{name}"
    lab.merge(f"{path}/status", {"status": {"conditions": list(conditions)}})
    return made


def no_quota(reason: str, message: str) -> Json:
    return condition("QuotaReserved", reason, message, "False")


def suspended(lab: KubeLab, eyes: Eyes, name: str) -> Json:
    return lab.create(eyes.namespace, job(name, pod("x", "running"), suspend=True))


async def waiting(eyes: Eyes, name: str) -> Observation:
    return await eyes.see("job", name)


async def test_a_job_that_kueue_holds_back_waits_with_its_place_in_the_queue_and_what_is_missing(
    kube_lab: KubeLab, eyes: Eyes
) -> None:
    """LIVE-6, LIVE-7."""
    for name, priority in (("first", 100), ("second", 0), ("third", 0)):
        record = suspended(kube_lab, eyes, name)
        queued(kube_lab, eyes, f"job-{name}", record, no_quota("Pending", BUSY), priority=priority)

    seen = await waiting(eyes, "second")

    assert (seen.state, seen.partition) == (JobState.PENDING, "gpus")
    assert seen.reason is not None
    assert "queue gpus, place 2 of 3" in seen.reason
    assert f"no quota: Pending: {BUSY}" in seen.reason
    assert "heal" not in seen.reason


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ExceedsMaxQuota", CEILING),
        ("Misconfigured", "ClusterQueue gpus references a missing flavor"),
        ("NoMatchingFlavor", "no flavor matches the node affinity"),
        ("Pending", CEILING),
    ],
)
async def test_a_verdict_that_no_waiting_can_change_is_told_from_one_that_can(
    kube_lab: KubeLab, eyes: Eyes, reason: str, message: str
) -> None:
    record = suspended(kube_lab, eyes, "too-big")
    queued(kube_lab, eyes, "job-too-big", record, no_quota(reason, message))

    seen = await waiting(eyes, "too-big")

    assert seen.state is JobState.PENDING
    assert seen.reason is not None
    assert "this cannot heal by itself" in seen.reason


async def test_one_flavor_that_is_merely_busy_is_hope(kube_lab: KubeLab, eyes: Eyes) -> None:
    record = suspended(kube_lab, eyes, "patient")
    queued(kube_lab, eyes, "job-patient", record, no_quota("Pending", f"{CEILING}; {BUSY}"))

    seen = await waiting(eyes, "patient")

    assert seen.reason is not None
    assert "heal" not in seen.reason


async def test_a_workload_that_was_deactivated_stays_so(kube_lab: KubeLab, eyes: Eyes) -> None:
    record = suspended(kube_lab, eyes, "off")
    gone = condition("Evicted", "Deactivated", "The workload is deactivated")
    queued(kube_lab, eyes, "job-off", record, gone, no_quota("Pending", "off"), active=False)

    seen = await waiting(eyes, "off")

    assert seen.reason is not None
    assert "deactivated; it stays so" in seen.reason


async def test_a_job_that_kueue_preempted_waits_in_its_next_attempt_and_tells_how_the_last_one_ended(
    kube_lab: KubeLab, eyes: Eyes
) -> None:
    """POLL-5: it is waiting, not dead."""
    record = suspended(kube_lab, eyes, "bounced")
    taken = condition(
        "Evicted", "Preempted", "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization"
    )
    queued(kube_lab, eyes, "job-bounced", record, taken, no_quota("Pending", taken["message"]))

    reading = await eyes.poll()

    (seen,) = reading.changed
    (before,) = reading.ended
    assert (seen.state, seen.attempt) == (JobState.PENDING, 2)
    assert (before.state, before.attempt, before.final) == (JobState.PREEMPTED, 1, False)
    assert before.reason is not None
    assert "Preempted to accommodate a workload" in before.reason


async def test_requeues_are_counted_by_kueues_own_count(kube_lab: KubeLab, eyes: Eyes) -> None:
    record = suspended(kube_lab, eyes, "often")
    queued(kube_lab, eyes, "job-often", record, no_quota("Pending", BUSY))
    path = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{eyes.namespace}/workloads/job-often/status"
    stats = {"evictions": [{"reason": "Preempted", "count": 2}, {"reason": "PodsReadyTimeout", "count": 1}]}
    kube_lab.merge(path, {"status": {"schedulingStats": stats}})

    seen = await waiting(eyes, "often")

    assert (seen.attempt, seen.burn, seen.preemptions) == (4, Burn(0, 6), Burn(3))


async def test_an_admitted_job_that_is_still_suspended_by_a_person_is_suspended(kube_lab: KubeLab, eyes: Eyes) -> None:
    record = suspended(kube_lab, eyes, "parked")
    queued(kube_lab, eyes, "job-parked", record, condition("QuotaReserved"), condition("Admitted"))

    assert (await waiting(eyes, "parked")).state is JobState.SUSPENDED


def gang(lab: KubeLab, eyes: Eyes, *, gated: bool) -> list[Json]:
    """A pod group as Kueue's users make it: bare pods of one label."""
    gates = [{"name": "kueue.x-k8s.io/admission"}] if gated else []
    labels = {"kueue.x-k8s.io/pod-group-name": "gang", "kueue.x-k8s.io/queue-name": "gpus"}
    return [
        lab.create(eyes.namespace, pod(f"gang-{n}", "running", labels=labels, schedulingGates=gates)) for n in range(3)
    ]


async def test_a_gated_pod_group_is_one_job_that_waits_with_kueues_verdict(kube_lab: KubeLab, eyes: Eyes) -> None:
    pods = gang(kube_lab, eyes, gated=True)
    queued(kube_lab, eyes, "gang", pods, no_quota("Pending", BUSY))  # type: ignore[arg-type]

    reading = await eyes.poll()

    assert list(reading.lines) == [eyes.id("podgroup", "gang")]
    (seen,) = reading.changed
    assert (seen.state, seen.scheduler_state) == (JobState.PENDING, "SchedulingGated")
    assert seen.reason is not None
    assert "held by kueue.x-k8s.io/admission" in seen.reason
    assert "insufficient unused quota" in seen.reason


async def test_a_pod_group_stays_the_same_job_while_one_of_its_pods_is_replaced(kube_lab: KubeLab, eyes: Eyes) -> None:
    """POLL-11: it has no record of its own to name it."""
    gang(kube_lab, eyes, gated=False)
    kube_lab.until_phase(eyes.namespace, "gang-2", "Running")
    before = await eyes.see("podgroup", "gang")
    first = before.key.incarnation.partition("@")[0]
    path = f"/api/v1/namespaces/{eyes.namespace}/pods"
    name = next(
        one["metadata"]["name"] for one in kube_lab.call("GET", path)[1]["items"] if one["metadata"]["uid"] == first
    )
    kube_lab.must("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})

    after = await eyes.see("podgroup", "gang")

    assert after.key == before.key


async def test_a_workload_whose_owner_is_of_an_unknown_kind_is_a_job_that_waits(kube_lab: KubeLab, eyes: Eyes) -> None:
    owner = {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "wrapped", "uid": "u-1"},
    }
    queued(kube_lab, eyes, "appwrapper-wrapped", owner, no_quota("Pending", BUSY))

    seen = await eyes.see("appwrapper", "wrapped")

    assert seen.state is JobState.PENDING
    assert seen.reason is not None
    assert "insufficient unused quota" in seen.reason
