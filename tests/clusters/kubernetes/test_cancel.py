"""KILL: the one call that changes anything deletes exactly what was approved, and knows what it does not know."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import supervisor.clusters
from supervisor.clusters import kubernetes_calls as calls
from supervisor.model.errors import NotApproved
from supervisor.model.job import JobKey, JobState
from tests.clusters.kubernetes.conftest import Eyes, MakeEyes
from tests.clusters.kubernetes.test_kueue import gang
from tests.contract.driving import approval_for
from tests.kube_lab import KubeLab, job, pod

pytestmark = pytest.mark.lab


def exists(lab: KubeLab, path: str) -> bool:
    return lab.call("GET", path)[0] == 200


async def running_job(lab: KubeLab, eyes: Eyes, name: str, **spec: Any) -> JobKey:
    lab.create(eyes.namespace, job(name, pod("x", "running"), parallelism=2, completions=2, **spec))
    path = f"/api/v1/namespaces/{eyes.namespace}/pods?labelSelector=job-name={name}"
    phases = ["Running"] * 2
    lab.until("both run", lambda: [one["status"].get("phase") for one in lab.call("GET", path)[1]["items"]] == phases)
    return (await eyes.see("job", name)).key


async def test_a_cancelled_job_is_seen_going_with_its_pods_before_it_and_then_was_cancelled(
    kube_lab: KubeLab, eyes: Eyes
) -> None:
    """KILL-1, KILL-3."""
    key = await running_job(kube_lab, eyes, "condemned")

    receipt = await eyes.cluster.cancel(key, approval_for(key))

    assert receipt.accepted is True
    assert key.incarnation in receipt.output
    path = f"/apis/batch/v1/namespaces/{eyes.namespace}/jobs/condemned"
    kube_lab.until("it is gone", lambda: not exists(kube_lab, path))
    pods = f"/api/v1/namespaces/{eyes.namespace}/pods?labelSelector=job-name=condemned"
    assert kube_lab.call("GET", pods)[1]["items"] == []
    (ended,) = (await eyes.poll()).ended
    assert (ended.key, ended.state, ended.final) == (key, JobState.CANCELLED, True)


async def test_pods_that_fail_because_they_are_deleted_make_no_failed_job(kube_lab: KubeLab, eyes: Eyes) -> None:
    """Its controller counts them as failures, and says BackoffLimitExceeded while it is going."""
    key = await running_job(kube_lab, eyes, "condemned", backoffLimit=0)

    receipt = await eyes.cluster.cancel(key, approval_for(key))

    assert receipt.accepted is True
    path = f"/apis/batch/v1/namespaces/{eyes.namespace}/jobs/condemned"
    said = []
    while exists(kube_lab, path):
        said += (await eyes.poll()).ended
    said += (await eyes.poll()).ended
    assert {one.state for one in said if one.final} == {JobState.CANCELLED}


async def test_a_job_of_the_same_name_that_was_not_approved_stays(kube_lab: KubeLab, eyes: Eyes) -> None:
    """KILL-2, POLL-11: the UID is a precondition that the server itself checks."""
    key = await running_job(kube_lab, eyes, "bystander")
    earlier = replace(key, incarnation="00000000-0000-4000-8000-000000000000")

    receipt = await eyes.cluster.cancel(earlier, approval_for(earlier))

    assert receipt.accepted is False
    assert exists(kube_lab, f"/apis/batch/v1/namespaces/{eyes.namespace}/jobs/bystander")
    assert (await eyes.poll()).ended == []


async def test_an_approval_for_another_job_is_none(kube_lab: KubeLab, eyes: Eyes) -> None:
    key = await running_job(kube_lab, eyes, "bystander")

    with pytest.raises(NotApproved):
        await eyes.cluster.cancel(key, approval_for(replace(key, id=f"{key.id}-2")))


async def test_a_viewer_cannot_cancel_and_says_so(kube_lab: KubeLab, eyes: Eyes, eyes_of: MakeEyes) -> None:
    key = await running_job(kube_lab, eyes, "bystander")

    receipt = await eyes_of(context="viewer").cluster.cancel(key, approval_for(key))

    assert receipt.accepted is False
    assert "cannot delete resource" in receipt.output


async def test_a_job_that_is_gone_already_is_no_success(eyes: Eyes) -> None:
    key = JobKey("east", eyes.id("job", "nobody"), "00000000-0000-4000-8000-000000000000")

    receipt = await eyes.cluster.cancel(key, approval_for(key))

    assert receipt.accepted is False
    assert "not found" in receipt.output


@pytest.mark.parametrize("how", ["stopped", "paused"])
async def test_a_cancel_that_nobody_answered_may_have_worked(kube_lab: KubeLab, eyes_of: MakeEyes, how: str) -> None:
    """KILL-6."""
    eyes = eyes_of(request_timeout_s=1.5)
    key = await running_job(kube_lab, eyes, "condemned")
    trouble = kube_lab.stopped() if how == "stopped" else kube_lab.paused()

    with trouble:
        receipt = await eyes.cluster.cancel(key, approval_for(key))

    assert receipt.accepted is None


async def test_a_pod_group_is_cancelled_pod_by_pod(kube_lab: KubeLab, eyes: Eyes) -> None:
    gang(kube_lab, eyes, gated=False)
    kube_lab.create(eyes.namespace, pod("bystander", "running"))
    kube_lab.until_phase(eyes.namespace, "gang-2", "Running")
    key = (await eyes.see("podgroup", "gang")).key

    receipt = await eyes.cluster.cancel(key, approval_for(key))

    assert receipt.accepted is True
    path = f"/api/v1/namespaces/{eyes.namespace}/pods"
    names = [["bystander"]]
    kube_lab.until(
        "they are gone", lambda: [[one["metadata"]["name"] for one in kube_lab.call("GET", path)[1]["items"]]] == names
    )


@pytest.mark.parametrize("kind", ["sweep", "podgroup/x", "node"])
async def test_what_is_of_no_known_kind_cannot_be_deleted(eyes: Eyes, kind: str) -> None:
    key = JobKey("east", f"{eyes.namespace}/{kind}/x", "u")

    receipt = await eyes.cluster.cancel(key, approval_for(key))

    assert receipt.accepted is False


def test_the_page_of_calls_holds_no_other_way_to_change_anything() -> None:
    """House, idea 8: one DELETE, with a UID; every other request is a GET."""
    folder = Path(supervisor.clusters.__file__).parent
    files = sorted(folder.glob("kubernetes*.py"))
    words = re.findall(r'"(GET|POST|PUT|PATCH|DELETE)"', "".join(file.read_text() for file in files))
    passed_on = "super().request(*args, **kwargs)"
    sent = r"\.request\(|urlopen|\.delete\("
    elsewhere = [file.name for file in files if re.search(sent, file.read_text().replace(passed_on, ""))]

    assert set(words) == {"GET", "DELETE"}
    assert sorted(elsewhere) == ["kubernetes.py", "kubernetes_calls.py"]
    assert (folder / "kubernetes.py").read_text().count(".delete(") == 1


@pytest.mark.parametrize("part", ["../secrets", "a/b", "a?x=1", "a#b", "a%2fb", "ü"])
def test_a_name_is_one_segment_of_a_path_whatever_it_holds(part: str) -> None:
    path = calls.path_of(calls.POD, namespace="train", name=part)

    assert path.startswith("/api/v1/namespaces/train/pods/")
    assert path.count("/") == 6
    assert not set("?#") & set(path)


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_a_segment_that_means_another_path_is_refused(part: str) -> None:
    with pytest.raises(ValueError, match="cannot be a part"):
        calls.path_of(calls.POD, namespace="train", name=part)
