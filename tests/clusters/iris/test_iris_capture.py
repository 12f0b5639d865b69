"""Evidence of an iris job on a real controller: what is kept of its record, how its processes are reached, what remains of it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from supervisor.clusters.iris_capture import IrisProbe
from supervisor.clusters.iris_settings import PodSource
from supervisor.gates.record import Standing, told
from supervisor.model.job import NO_DETAILS, JobKey, JobState, Observation
from supervisor.model.probe import Captured, CaptureWanted, Remains, Role
from tests.clusters.iris.conftest import Eyes, MakeEyes
from tests.clusters.iris.test_task_pods import iris_pod
from tests.contract.driving import approval_for
from tests.iris_lab import IrisLab
from tests.kube_lab import KubeLab, kube_lab

__all__ = ["kube_lab"]


async def captured(eyes: Eyes, seen: Observation, **changes: Any) -> Sequence[Captured]:
    wanted = CaptureWanted(seen=seen, details=seen.details or NO_DETAILS)
    return await eyes.cluster.capture(replace(wanted, **changes), datetime.now(UTC))


async def remains(eyes: Eyes, seen: Observation) -> Remains:
    return await eyes.cluster.remains(seen, datetime.now(UTC))


def of(pieces: Sequence[Captured], role: Role) -> list[Captured]:
    return [piece for piece in pieces if piece.role is role]


def running(lab: IrisLab, eyes: Eyes, name: str, *options: str, script: str = "sleep 600") -> str:
    path = f"/{eyes.user}/{name}"
    lab.submit(path, script, *options)
    return path


# -- on recorded answers -----------------------------------------------------------------------------------------------


class Recorded:
    """Answers of a real controller, by the file that they were recorded in."""

    def __init__(self, job: dict[str, Any], tasks: dict[str, Any]) -> None:
        self.job, self.listed = job, tasks

    async def job_record(self, path: str) -> dict[str, Any]:
        return self.job

    async def task_records(self, path: str) -> dict[str, Any]:
        return self.listed


def seen_of(job: dict[str, Any]) -> Observation:
    key = JobKey("marin", job["job"]["jobId"].removeprefix("/"), job["job"]["submittedAt"]["epochMs"])
    return Observation(key=key, name="run", user="alice", state=JobState.RUNNING, scheduler_state="running")


async def record_of(job: dict[str, Any], tasks: dict[str, Any], most_bytes: int = 2**21) -> bytes:
    probe = IrisProbe(cluster="marin", controller=Recorded(job, tasks), pods=None)  # type: ignore[arg-type]
    known = await probe._known(seen_of(job).key)
    assert not isinstance(known, str)
    data = probe._record(known, most_bytes).data
    assert data is not None
    return data


@pytest.mark.parametrize(
    ("name", "standing"),
    [
        ("running-gang", Standing.RUNNING),
        ("running-gang-after-preemption", Standing.RUNNING),
        ("running-job-pending-tasks", Standing.WAITING),
        ("pending", Standing.WAITING),
        ("failed-exit3", Standing.ENDED),
        ("killed-by-user", Standing.ENDED),
    ],
)
async def test_the_gate_reads_what_is_kept_of_a_real_record(
    answer: Callable[[str], bytes], name: str, standing: Standing
) -> None:
    """POLL-5: a gang that was taken apart waits, whatever its record says."""
    job, tasks = json.loads(answer(f"job-{name}")), json.loads(answer(f"tasks-{name}"))

    data = await record_of(job, tasks)

    says = told("record", data.decode().splitlines(), seen_of(job).key)
    assert says is not None
    assert says.standing is standing
    assert job["job"]["state"] in says.quote.text


async def test_nothing_of_a_jobs_environment_is_kept(answer: Callable[[str], bytes]) -> None:
    job, tasks = json.loads(answer("job-running-gang")), json.loads(answer("tasks-running-gang"))
    job["request"]["environment"] = {"envVars": {"HF_TOKEN": "hf_neverShown"}, "extras": ["hf_neverShown"]}
    job["request"]["submitArgv"] = ["iris", "job", "run", "-e", "HF_TOKEN", "hf_neverShown"]
    job["job"]["environment"] = tasks["tasks"][0]["environment"] = {"HF_TOKEN": "hf_neverShown"}

    data = await record_of(job, tasks)

    assert b"hf_neverShown" not in data
    body = json.loads(data)
    assert body["request"]["replicas"] == job["request"]["replicas"]
    assert [each["taskId"] for each in body["tasks"]] == [each["taskId"] for each in tasks["tasks"]]


async def test_a_record_of_very_many_tasks_is_cut_to_its_bound_and_says_so(answer: Callable[[str], bytes]) -> None:
    job, tasks = json.loads(answer("job-running-gang")), json.loads(answer("tasks-running-gang"))
    tasks["tasks"] = tasks["tasks"] * 200

    data = await record_of(job, tasks, most_bytes=20_000)

    assert len(data) <= 20_000
    assert b"of 400 tasks are shown" in data
    assert told("record", data.decode().splitlines(), seen_of(job).key) is not None


# -- on a real controller ----------------------------------------------------------------------------------------------


@pytest.mark.lab
async def test_without_a_cluster_of_pods_the_rest_is_there_and_it_is_said_what_to_configure(
    iris_lab: IrisLab, eyes: Eyes
) -> None:
    """PROBE-3."""
    path = running(iris_lab, eyes, "run")
    iris_lab.until_counts(path, running=1)
    seen = await eyes.see("run")

    pieces = await captured(eyes, seen)

    assert of(pieces, Role.RECORD)[0].data
    assert b"sleep 600" in (of(pieces, Role.SCRIPT)[0].data or b"")
    for role in (Role.DEVICES, Role.PROCESSES, Role.STACK, Role.MEMORY, Role.GPU):
        (piece,) = of(pieces, role)
        assert piece.failure is not None
        assert "set pods = {" in piece.failure
        assert "pods/exec" in piece.failure


@pytest.mark.lab
async def test_pods_that_cannot_be_asked_leave_the_controllers_evidence(
    iris_lab: IrisLab, eyes_of: MakeEyes, tmp_path: Path
) -> None:
    eyes = eyes_of(pods=PodSource(kubeconfig=tmp_path / "missing"))
    iris_lab.until_counts(running(iris_lab, eyes, "run"), running=1)
    seen = await eyes.see("run")

    pieces = await captured(eyes, seen)
    left = await remains(eyes, seen)

    assert of(pieces, Role.RECORD)[0].data
    assert "its pods could not be asked: kubeconfig" in (of(pieces, Role.STACK)[0].failure or "")
    assert not left.gone
    assert "its pods could not be asked: kubeconfig" in (left.failure or "")
    assert left.there[0].startswith(f"task /{eyes.user}/run/0 is running on ")


@pytest.mark.lab
async def test_the_logs_of_a_gangs_tasks_are_evidence_each(iris_lab: IrisLab, eyes: Eyes) -> None:
    script = 'echo "rank $IRIS_TASK_ID"; sleep 1; echo ready; sleep 600'
    path = running(iris_lab, eyes, "gang", "--replicas", "3", script=script)
    iris_lab.until_counts(path, running=3)
    seen = await eyes.see("gang")

    def said() -> bool:
        body = json.dumps({"source": f"{path}/", "matchScope": "MATCH_SCOPE_PREFIX"}).encode()
        where = f"{iris_lab.url}/proxy/system.log-server/finelog.logging.LogService/FetchLogs"
        request = urllib.request.Request(where, data=body, headers={"Content-Type": "application/json"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as got:
            return len({each["key"] for each in json.loads(got.read()).get("entries") or ()}) == 3

    iris_lab.until("all have spoken", said)

    pieces = await captured(eyes, seen, nodes_most=2)

    logs = of(pieces, Role.LOG)
    assert [(piece.source or "").partition("?")[0] for piece in logs] == [f"iris:{path}/0", f"iris:{path}/2"]
    assert all(f"rank {path}/{n}".encode() in (piece.data or b"") for n, piece in zip((0, 2), logs, strict=True))


@pytest.mark.lab
async def test_what_remains_is_told_task_by_task_and_pod_by_pod(
    iris_lab: IrisLab, kube_lab: KubeLab, eyes_of: MakeEyes
) -> None:
    """KILL-3: a controller that calls it killed is not the end of it while a pod is there."""
    namespace = kube_lab.namespace()
    eyes = eyes_of(pods=PodSource(kubeconfig=kube_lab.kubeconfig, namespace=namespace))
    path = running(iris_lab, eyes, "gang", "--replicas", "2")
    iris_lab.until_counts(path, running=2)
    kube_lab.create(namespace, iris_pod(f"{path}/1", 0, "iris-gang-1", "running"))
    kube_lab.until_phase(namespace, "iris-gang-1", "Running")
    seen = await eyes.see("gang")

    before = await remains(eyes, seen)
    receipt = await eyes.cluster.cancel(seen.key, approval_for(seen.key))
    iris_lab.until_state(path, "killed")
    after = await remains(eyes, seen)
    kube_lab.must("DELETE", f"/api/v1/namespaces/{namespace}/pods/iris-gang-1", {"gracePeriodSeconds": 0})

    assert receipt.accepted
    assert [line.partition(" on ")[0] for line in before.there[:2]] == [
        f"task {path}/0 is running",
        f"task {path}/1 is running",
    ]
    assert [line for line in after.there if not line.startswith("pod iris-gang-1 is Running on node")] == []
    assert len(after.there) == 1
    assert await remains(eyes, seen) == Remains()
    kube_lab.clear(namespace)


@pytest.mark.lab
async def test_a_job_that_no_controller_knows_leaves_nothing_and_is_no_evidence(eyes: Eyes) -> None:
    """``not_found`` is the controller's own word; POLL-11 for the other."""
    gone = replace(seen_of({"job": {"jobId": f"/{eyes.user}/never", "submittedAt": {"epochMs": "1"}}}))

    pieces = await captured(eyes, gone)

    assert all(piece.failure for piece in pieces)
    assert "not_found" in (of(pieces, Role.RECORD)[0].failure or "")
    assert await remains(eyes, gone) == Remains()


@pytest.mark.lab
@pytest.mark.parametrize("how", ["stopped", "paused"])
async def test_where_the_controller_does_not_answer_it_is_not_known_what_remains(
    iris_lab: IrisLab, eyes_of: MakeEyes, how: str
) -> None:
    """KILL-3, POLL-1."""
    eyes = eyes_of(request_timeout_s=2)
    iris_lab.until_counts(running(iris_lab, eyes, "run"), running=1)
    seen = await eyes.see("run")

    with iris_lab.stopped() if how == "stopped" else iris_lab.paused():
        left = await remains(eyes, seen)

    assert left.failure
    assert left.there == ()
