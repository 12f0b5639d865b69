"""Evidence of a Kubernetes job on a real API server: what is kept of its objects, what its pods show, what remains of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.clusters import pod_capture
from supervisor.clusters.kubernetes_kept import OBJECT, Kept, command_of, kept, page
from supervisor.clusters.pod_objects import Pod
from supervisor.clusters.pods import read_pod
from supervisor.gates.record import Standing, told
from supervisor.model.errors import ClusterError
from supervisor.model.job import NO_DETAILS, Observation
from supervisor.model.probe import Captured, CaptureWanted, Remains, Role
from tests.clusters.kubernetes.conftest import Eyes, MakeEyes
from tests.clusters.kubernetes.test_kueue import gang
from tests.contract.driving import approval_for
from tests.kube_lab import Json, KubeLab, has_worlds, in_a_world, job, pod

Inside = Callable[[str, str], None]
SECRET = "hf_neverShown0123456789"


@pytest.fixture
def inside(kube_lab: KubeLab, namespace: str) -> Iterator[Inside]:
    """Puts a real program into a pod that the lab plays, in a world of its own as a container's is."""
    if not has_worlds():
        pytest.skip("no namespaces for processes on this machine")
    running: list[subprocess.Popen[bytes]] = []

    def put(name: str, script: str) -> None:
        kube_lab.until_phase(namespace, name, "Running")
        running.append(subprocess.Popen(in_a_world("sh", "-c", script), start_new_session=True))
        kube_lab.enter(namespace, name, running[-1].pid)

    yield put
    for one in running:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()


async def captured(eyes: Eyes, seen: Observation, **changes: Any) -> Sequence[Captured]:
    wanted = CaptureWanted(seen=seen, details=seen.details or NO_DETAILS)
    return await eyes.cluster.capture(replace(wanted, **changes), datetime.now(UTC))


async def remains(eyes: Eyes, seen: Observation) -> Remains:
    return await eyes.cluster.remains(seen, datetime.now(UTC))


def of(pieces: Sequence[Captured], role: Role) -> list[Captured]:
    return [piece for piece in pieces if piece.role is role]


def with_secrets(made: Json) -> Json:
    """Secrets in every place of a pod's spec where people put them."""
    container = made["spec"]["containers"][0]
    container["env"] = [{"name": "HF_TOKEN", "value": SECRET}]
    container["envFrom"] = [{"prefix": SECRET[:2], "secretRef": {"name": "keys", "optional": True}}]
    container["livenessProbe"] = {"httpGet": {"port": 1, "httpHeaders": [{"name": "Authorization", "value": SECRET}]}}
    made["metadata"]["annotations"]["example.com/token"] = SECRET
    return made


def pods_of(lab: KubeLab, eyes: Eyes, name: str, count: int) -> list[str]:
    path = f"/api/v1/namespaces/{eyes.namespace}/pods?labelSelector=job-name={name}"

    def running() -> list[str]:
        items = lab.call("GET", path)[1]["items"]
        names = sorted(one["metadata"]["name"] for one in items if one["status"].get("phase") == "Running")
        return names if len(names) == count else []

    return lab.until(f"{count} pods run", running)


# -- the record --------------------------------------------------------------------------------------------------------


@pytest.mark.lab
async def test_the_record_holds_owner_and_pods_and_no_environment(kube_lab: KubeLab, eyes: Eyes) -> None:
    """PROBE-1: what the gate of liveness reads, and nothing that is secret."""
    kube_lab.create(eyes.namespace, job("sft", with_secrets(pod("x", "running")), {"user": "alice"}))
    (name,) = pods_of(kube_lab, eyes, "sft", 1)
    seen = await eyes.see("job", "sft")

    pieces = await captured(eyes, seen, live=False)

    (record,) = of(pieces, Role.RECORD)
    assert record.data is not None, record
    assert SECRET.encode() not in record.data
    assert b"managedFields" not in record.data
    text = record.data.decode()
    body = json.loads(text[: text.index("\n# ")])
    assert [each["kind"] for each in body["items"]] == ["Job", "Pod"]
    assert body["items"][0]["metadata"]["uid"] == seen.key.incarnation
    assert body["items"][1]["spec"]["nodeName"].startswith("lab-node-")
    assert f"/pods/{name}" in record.command
    says = told("record", text.splitlines(), seen.key)
    assert says is not None
    assert (says.standing, says.word, says.quote.text.strip()) == (Standing.RUNNING, "Running", '"phase": "Running",')


@pytest.mark.lab
async def test_a_job_whose_pods_only_wait_is_not_running_by_its_record(kube_lab: KubeLab, eyes: Eyes) -> None:
    """POLL-5: a Job counts pods that wait as active."""
    kube_lab.create(eyes.namespace, job("waits", pod("x", gpus=64)))
    seen = await eyes.see("job", "waits")

    (record,) = of(await captured(eyes, seen), Role.RECORD)

    says = told("record", (record.data or b"").decode().splitlines(), seen.key)
    assert says is not None
    assert says.standing is Standing.WAITING


@pytest.mark.lab
async def test_the_command_of_the_main_container_is_its_script(kube_lab: KubeLab, eyes: Eyes) -> None:
    made = pod("x", "running")
    made["spec"]["containers"][0] |= {"command": ["python", "train.py"], "args": ["--name", "two words"]}
    kube_lab.create(eyes.namespace, job("sft", made))
    pods_of(kube_lab, eyes, "sft", 1)

    (script,) = of(await captured(eyes, await eyes.see("job", "sft"), live=False), Role.SCRIPT)

    assert script.data == b"python train.py --name 'two words'\n"


_NAMES = st.sampled_from(
    [
        "metadata",
        "spec",
        "status",
        "env",
        "containers",
        "template",
        "name",
        "value",
        "data",
        "conditions",
        "labels",
        "managedFields",
        "annotations",
        "kind",
        "message",
        "secretRef",
        "containerStatuses",
        "state",
        "items",
    ]
)
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES | st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_whatever_an_object_holds_no_name_beyond_the_list_is_kept(body: Any) -> None:
    left = kept(body if isinstance(body, dict) else {"spec": body}, OBJECT)

    assert _beyond(left, OBJECT) == set()
    assert page(left, ["a remark"]).decode().splitlines()[-1] == "# a remark"


def _beyond(left: Any, listed: Kept | None) -> set[str]:
    """Names, and values of more than one part, that are not on the list."""
    if isinstance(left, list):
        return {name for each in left for name in _beyond(each, listed)}
    if not isinstance(left, dict):
        return set()
    if listed is None:
        return set(left)
    known = {name: listed.get(name, listed.get("*")) for name in left if name in listed or "*" in listed}
    return (set(left) - set(known)) | {found for name in known for found in _beyond(left[name], known[name])}


@given(_JSON)
def test_a_command_is_read_of_any_spec_without_a_fault(body: Any) -> None:
    found = command_of({"spec": body}, "main")

    assert found is None or isinstance(found, str)


# -- its pods ----------------------------------------------------------------------------------------------------------


@pytest.mark.lab
async def test_of_many_pods_the_first_the_last_and_some_between_are_looked_into(
    kube_lab: KubeLab, eyes: Eyes, inside: Inside
) -> None:
    """PROBE-14: bounded, whatever the size of the job."""
    kube_lab.create(eyes.namespace, job("wide", pod("x", "running"), parallelism=5, completions=5))
    names = pods_of(kube_lab, eyes, "wide", 5)
    for name in names:
        inside(name, f"sleep 60{names.index(name)} & wait")
        kube_lab.say(eyes.namespace, name, f"rank {names.index(name)}")
    seen = await eyes.see("job", "wide")

    pieces = await captured(eyes, seen, nodes_most=3, piece_bytes=10_000)

    looked = of(pieces, Role.PROCESSES)
    assert len({piece.node for piece in looked}) == 3
    for piece in looked:
        assert piece.node in names
        assert f"sleep 60{names.index(piece.node or '')}" in (piece.data or b"").decode()
        assert len([line for line in (piece.data or b"").decode().splitlines() if "sleep 60" in line]) == 4
    assert {(piece.source, piece.data) for piece in of(pieces, Role.LOG)} == {
        (f"pod/{eyes.namespace}/{piece.node}/main", f"rank {names.index(piece.node or '')}\n".encode())
        for piece in looked
    }
    (record,) = of(pieces, Role.RECORD)
    assert b"# its pods: 5 Running" in (record.data or b"")


@pytest.mark.lab
async def test_checkpoint_folders_are_looked_for_once_inside_a_pod(
    kube_lab: KubeLab, eyes: Eyes, inside: Inside, tmp_path: Any
) -> None:
    (tmp_path / "global_step_20").mkdir()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("20")
    kube_lab.create(eyes.namespace, job("wide", pod("x", "running"), parallelism=2, completions=2))
    for name in pods_of(kube_lab, eyes, "wide", 2):
        inside(name, "sleep 600")

    pieces = await captured(eyes, await eyes.see("job", "wide"), checkpoint_dirs=(str(tmp_path), "/absent"))

    (folders,) = of(pieces, Role.CHECKPOINTS)
    text = (folders.data or b"").decode()
    assert "directory global_step_20" in text
    assert "# absent /absent" in text
    assert "\n20\n" in text


@pytest.mark.lab
async def test_the_log_of_a_container_goes_back_through_its_restart(kube_lab: KubeLab, eyes: Eyes) -> None:
    kube_lab.create(
        eyes.namespace, pod("loops", "running", {"log": "the first run"}, "crashloop", restartPolicy="Always")
    )
    kube_lab.until(
        "it waits to start again",
        lambda: kube_lab.pod_status(eyes.namespace, "loops").get("containerStatuses", [{}])[0].get("restartCount"),
    )
    folder = kube_lab.pod_logs / eyes.namespace / "loops"
    (folder / "main.log").rename(folder / "main.previous.log")
    seen = await eyes.see("pod", "loops")

    pieces = await captured(eyes, seen)

    assert any(b"the first run" in (piece.data or b"") for piece in of(pieces, Role.LOG)), of(pieces, Role.LOG)
    for piece in of(pieces, Role.STACK):
        assert piece.failure is not None
        assert piece.failure.startswith("container main of pod loops does not run: CrashLoopBackOff")


@pytest.mark.lab
async def test_events_of_the_job_and_its_pods_are_told_oldest_first(kube_lab: KubeLab, eyes: Eyes) -> None:
    kube_lab.create(eyes.namespace, job("sft", pod("x", "running")))
    pods_of(kube_lab, eyes, "sft", 1)

    (events,) = of(await captured(eyes, await eyes.see("job", "sft"), live=False), Role.EVENTS)

    titles, *lines = (events.data or b"").decode().splitlines()
    assert titles == "LAST_SEEN TYPE REASON COUNT OBJECT MESSAGE"
    assert {line.split(" ")[2] for line in lines} >= {"SuccessfulCreate", "Scheduled"}
    assert lines == sorted(lines, key=lambda line: line.split(" ")[0])
    assert any(line.split(" ")[4] == "job/sft" for line in lines)


@pytest.mark.lab
async def test_a_pod_group_is_captured_by_its_pods(kube_lab: KubeLab, eyes: Eyes, inside: Inside) -> None:
    """It has no record of its own."""
    gang(kube_lab, eyes, gated=False)
    for n in range(3):
        inside(f"gang-{n}", f"sleep 70{n}")
    seen = await eyes.see("podgroup", "gang")

    pieces = await captured(eyes, seen)

    assert sorted(piece.node or "" for piece in of(pieces, Role.PROCESSES)) == ["gang-0", "gang-1", "gang-2"]
    assert all(piece.data for piece in of(pieces, Role.PROCESSES))
    (record,) = of(pieces, Role.RECORD)
    assert record.data is not None
    assert len((await remains(eyes, seen)).there) == 3


# -- what does not come ------------------------------------------------------------------------------------------------


@pytest.mark.lab
async def test_without_the_right_to_exec_the_rest_is_there_and_the_refusal_is_told(
    kube_lab: KubeLab, eyes: Eyes, eyes_of: MakeEyes
) -> None:
    """PROBE-3: the viewer reads pods and logs, and may not exec."""
    kube_lab.create(eyes.namespace, job("sft", pod("x", "running")))
    (name,) = pods_of(kube_lab, eyes, "sft", 1)
    kube_lab.say(eyes.namespace, name, "step 17")
    seen = await eyes.see("job", "sft")

    pieces = await captured(eyes_of(context="viewer"), seen)

    assert of(pieces, Role.RECORD)[0].data
    assert of(pieces, Role.LOG)[0].data == b"step 17\n"
    for role in (Role.DEVICES, Role.PROCESSES, Role.STACK, Role.GPU, Role.MEMORY):
        (piece,) = of(pieces, role)
        assert piece.failure is not None
        assert f'pods "{name}" is forbidden' in piece.failure
        assert 'resource "pods/exec"' in piece.failure
        assert piece.command.startswith(f"kubectl exec -i -n {eyes.namespace} {name} -c main -- sh -s: ")


@pytest.mark.lab
async def test_a_pod_whose_node_is_dead_gives_failures_in_the_servers_words(kube_lab: KubeLab, eyes: Eyes) -> None:
    kube_lab.create(eyes.namespace, job("sft", pod("x", "running")))
    (name,) = pods_of(kube_lab, eyes, "sft", 1)
    seen = await eyes.see("job", "sft")
    node = kube_lab.call("GET", f"/api/v1/namespaces/{eyes.namespace}/pods/{name}")[1]["spec"]["nodeName"]
    path = f"/api/v1/nodes/{node}"
    port = kube_lab.call("GET", path)[1]["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    kube_lab.merge(f"{path}/status", {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}})
    try:
        pieces = await captured(eyes, seen)
    finally:
        kube_lab.merge(f"{path}/status", {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}})

    assert of(pieces, Role.RECORD)[0].data
    assert "connection refused" in (of(pieces, Role.STACK)[0].failure or "")
    assert "connection refused" in (of(pieces, Role.LOG)[0].failure or "")


@pytest.mark.lab
async def test_what_does_not_come_in_time_is_told_piece_by_piece(kube_lab: KubeLab, eyes: Eyes) -> None:
    """PROBE-14: all captures together are bounded."""
    kube_lab.create(eyes.namespace, job("sft", pod("x", "running")))
    pods_of(kube_lab, eyes, "sft", 1)

    pieces = await captured(eyes, await eyes.see("job", "sft"), time_s=0.0)

    assert of(pieces, Role.RECORD)[0].data
    for role in (Role.EVENTS, Role.LOG, Role.STACK, Role.PROCESSES):
        (piece,) = of(pieces, role)
        assert "the 0 s that all captures have together" in (piece.failure or "")


@pytest.mark.lab
async def test_a_job_that_is_gone_leaves_no_evidence_and_says_so(kube_lab: KubeLab, eyes: Eyes) -> None:
    kube_lab.create(eyes.namespace, job("sft", pod("x", "running")))
    pods_of(kube_lab, eyes, "sft", 1)
    seen = await eyes.see("job", "sft")
    path = f"/apis/batch/v1/namespaces/{eyes.namespace}/jobs/sft"
    kube_lab.must("DELETE", path, {"propagationPolicy": "Foreground", "gracePeriodSeconds": 0})
    kube_lab.until("it is gone", lambda: kube_lab.call("GET", path)[0] == 404)

    pieces = await captured(eyes, seen)

    assert [piece for piece in pieces if piece.data is not None and piece.role is not Role.EVENTS] == []
    (record,) = of(pieces, Role.RECORD)
    assert 'jobs.batch "sft" not found' in (record.failure or "")
    assert "no pod of it is listed" in (of(pieces, Role.STACK)[0].failure or "")
    assert await remains(eyes, seen) == Remains()


@pytest.mark.lab
async def test_nobody_gets_no_evidence_and_is_told_why(kube_lab: KubeLab, eyes: Eyes, eyes_of: MakeEyes) -> None:
    kube_lab.create(eyes.namespace, job("sft", pod("x", "running")))
    pods_of(kube_lab, eyes, "sft", 1)
    seen = await eyes.see("job", "sft")
    nobody = eyes_of(context="nobody")

    with pytest.raises(ClusterError, match="not allowed"):
        await captured(nobody, seen)

    left = await remains(nobody, seen)
    assert not left.gone
    assert "not allowed" in (left.failure or "")


def test_a_pod_that_shares_its_nodes_process_table_is_not_looked_into() -> None:
    """Its processes cannot be told from those of others."""
    made = {
        "metadata": {"name": "agent", "uid": "1", "creationTimestamp": "2026-07-01T12:00:00Z", "namespace": "train"},
        "spec": {"hostPID": True, "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]},
    }
    read = read_pod(msgspec.json.decode(json.dumps(made), type=Pod), datetime.now(UTC), timedelta(minutes=5))

    assert "hostPID" in (pod_capture.why_closed(read) or "")


# -- what remains ------------------------------------------------------------------------------------------------------


@pytest.mark.lab
async def test_a_pod_that_is_stuck_terminating_remains_with_what_holds_it(kube_lab: KubeLab, eyes: Eyes) -> None:
    """KILL-3."""
    made = pod("x", "running")
    made["metadata"]["annotations"]["kube-lab/stop"] = "never"
    made["spec"]["terminationGracePeriodSeconds"] = 1
    kube_lab.create(eyes.namespace, job("condemned", made))
    (name,) = pods_of(kube_lab, eyes, "condemned", 1)
    seen = await eyes.see("job", "condemned")

    await eyes.cluster.cancel(seen.key, approval_for(seen.key))
    path = f"/api/v1/namespaces/{eyes.namespace}/pods/{name}"
    kube_lab.until("it is going", lambda: kube_lab.call("GET", path)[1]["metadata"].get("deletionTimestamp"))
    left = await remains(eyes, seen)

    assert not left.gone
    owner, one = left.there
    assert owner.startswith("job condemned is there, Terminating, its grace period ends at 20")
    assert owner.endswith("held by foregroundDeletion")
    assert one.startswith(f"pod {name} is Running on node lab-node-")
    assert "Terminating" in one
    kube_lab.must("DELETE", path, {"gracePeriodSeconds": 0})
    end = asyncio.get_running_loop().time() + 60
    while not (after := await remains(eyes, seen)).gone and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.2)
    assert after == Remains()


@pytest.mark.lab
async def test_an_owner_that_a_finalizer_holds_remains_without_pods(kube_lab: KubeLab, eyes: Eyes) -> None:
    """KILL-3."""
    made = job("held", pod("x", "running"))
    made["metadata"]["finalizers"] = ["example.com/wait"]
    kube_lab.create(eyes.namespace, made)
    pods_of(kube_lab, eyes, "held", 1)
    seen = await eyes.see("job", "held")
    path = f"/apis/batch/v1/namespaces/{eyes.namespace}/jobs/held"
    kube_lab.must("DELETE", path, {"propagationPolicy": "Background"})

    try:
        end = asyncio.get_running_loop().time() + 60
        while len((left := await remains(eyes, seen)).there) != 1 and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.2)
        assert "held by example.com/wait" in left.there[0]
    finally:
        kube_lab.merge(path, {"metadata": {"finalizers": None}})


@pytest.mark.lab
@pytest.mark.parametrize("how", ["stopped", "paused"])
async def test_where_the_server_does_not_answer_it_is_not_known_what_remains(
    kube_lab: KubeLab, eyes_of: MakeEyes, how: str
) -> None:
    """KILL-3, POLL-1."""
    eyes = eyes_of(request_timeout_s=1.5)
    kube_lab.create(eyes.namespace, job("sft", pod("x", "running")))
    pods_of(kube_lab, eyes, "sft", 1)
    seen = await eyes.see("job", "sft")

    with kube_lab.stopped() if how == "stopped" else kube_lab.paused():
        left = await remains(eyes, seen)

    assert left.failure
    assert left.there == ()
