"""Test 8: listing and decoding 10,000 pods, against the official client's objects and against the bare transfer.

    python -m bench.kubernetes.listing [--pods N] [--rounds N] [--typed-rounds N]

Each case is a fresh process that lists every page from one server on loopback, interleaved; an untimed list of one pod goes
first, so that imports count for nobody. Goals: at least 60 times faster than the typed objects, within 2.2 x of the bare
transfer, and a peak memory below an eighth of the typed one's. Ratios are medians over the rounds, by the clock on the wall,
for which the goals were set, and by CPU time; a goal is met if either says so, since a busy machine spoils the first, and the
second leaves out what waiting costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FASTER, TRANSFER, MEMORY = 60.0, 2.2, 1 / 8
PAGE = 500
CASES = ("ours", "bare", "typed")


# -- pods as a training cluster has them -------------------------------------------------------------------------------


def pod(number: int) -> dict[str, Any]:
    """One pod of some 9.5 kB: what is read of it is a tenth, what managed fields, volumes and environment add is the rest."""
    when, gang, rank = "2026-07-01T12:00:00Z", f"grpo-{number // 8:05}", number % 8
    env = [{"name": f"NCCL_SETTING_{n}", "value": str(number * 7919 % 1_000_003 + n)} for n in range(20)]
    env += [{"name": f"KEY_{n}", "valueFrom": {"secretKeyRef": {"name": "keys", "key": f"key-{n}"}}} for n in range(6)]
    env_fields = {f'k:{{"name":"{one["name"]}"}}': {".": {}, "f:name": {}, "f:value": {}} for one in env}
    container_fields = {'k:{"name":"main"}': {"f:env": env_fields, "f:image": {}, "f:resources": {"f:limits": {}}}}
    fields = {
        "f:metadata": {"f:labels": {".": {}}},
        "f:spec": {"f:containers": container_fields, "f:restartPolicy": {}},
    }
    phase = ("Running", "Running", "Running", "Running", "Running", "Running", "Pending", "Failed")[number * 31 % 8]
    state = {"running": {"startedAt": when}}
    if phase != "Running":
        state = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "startedAt": when, "finishedAt": when}}
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    resources = {"cpu": "96", "memory": "1000Gi", "nvidia.com/gpu": "8"}
    container = {
        "name": "main",
        "image": "registry.example/train:2026.07",
        "command": ["bash", "-c", "python -m train " + "trainer.some_setting=value " * 14],
        "env": env,
        "resources": {"limits": resources, "requests": resources},
        "volumeMounts": [{"name": f"data-{n}", "mountPath": f"/data/{n}"} for n in range(4)],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "metadata": {
            "name": f"{gang}-worker-{rank}",
            "generateName": f"{gang}-worker-",
            "namespace": "train",
            "uid": f"{number:08x}-0000-4000-8000-{number:012x}",
            "resourceVersion": str(90_000_000 + number),
            "creationTimestamp": when,
            "labels": {
                "app": "train",
                "team": "rl",
                "user": "alice",
                "batch.kubernetes.io/job-name": gang,
                "batch.kubernetes.io/job-completion-index": str(rank),
            },
            "annotations": {"example.com/notes": "n" * 1200, "prometheus.io/scrape": "true"},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": gang,
                    "uid": f"{number // 8:08x}-0000-4000-9000-000000000000",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                {
                    "manager": who,
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": when,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": fields,
                }
                for who in ("kube-controller-manager", "kubelet")
            ],
        },
        "spec": {
            "containers": [container],
            "volumes": [{"name": f"data-{n}", "persistentVolumeClaim": {"claimName": f"claim-{n}"}} for n in range(4)],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "nodeName": f"gpu-{number // 8:04}",
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute"} for key in ("a", "b", "nvidia.com/gpu")
            ],
            "priority": 0,
        },
        "status": {
            "phase": phase,
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": when} for kind in kinds
            ],
            "hostIP": "10.0.0.1",
            "podIP": "10.1.0.1",
            "podIPs": [{"ip": "10.1.0.1"}],
            "startTime": when,
            "containerStatuses": [
                {
                    "name": "main",
                    "state": state,
                    "lastState": {},
                    "ready": phase == "Running",
                    "restartCount": number % 3,
                    "image": "registry.example/train:2026.07",
                    "imageID": "registry.example/train@sha256:" + "ab" * 32,
                    "containerID": f"containerd://{number:064x}",
                    "started": True,
                }
            ],
            "qosClass": "Guaranteed",
        },
    }


def pages(pods: int) -> list[bytes]:
    texts = []
    for start in range(0, pods, PAGE):
        end = min(start + PAGE, pods)
        meta = {"resourceVersion": "7", "continue": str(len(texts) + 1) if end < pods else ""}
        thing = {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": [pod(n) for n in range(start, end)]}
        texts.append(json.dumps(thing, separators=(",", ":")).encode())
    return texts


# -- the server: bytes made beforehand, nothing computed ---------------------------------------------------------------


def serve(pods: int, ready: Any) -> None:
    answers = {"many": pages(pods), "one": pages(1)}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                which = "one" if b"/namespaces/one/" in head else "many"
                token = re.search(rb"continue=(\d+)", head)
                body = answers[which][int(token[1]) if token else 0]
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                )
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        ready.put((server.sockets[0].getsockname()[1], sum(map(len, answers["many"])) // pods))
        await server.serve_forever()

    asyncio.run(run())


# -- the cases: each lists one namespace and says how many pods it holds -----------------------------------------------


def ours(port: int, namespace: str) -> int:
    from supervisor.clusters.kubernetes_calls import ApiServer
    from supervisor.clusters.kubernetes_lists import Lister, Served
    from supervisor.clusters.kubernetes_login import log_in
    from supervisor.clusters.kubernetes_settings import KubernetesSettings

    async def run() -> int:
        settings = KubernetesSettings(kubeconfig=Path(os.environ["KUBECONFIG"]))
        server = ApiServer("bench", log_in("bench", settings, datetime.now(UTC)), 300, 4)
        lister = Lister("bench", server, Served(versions={}, release="v1"), PAGE)
        held = await lister.pods(namespace, "")
        server.close()
        return len(held)

    return asyncio.run(run())


def bare(port: int, namespace: str) -> int:
    import aiohttp

    async def run() -> int:
        count, token, held = 0, "", b""
        async with aiohttp.ClientSession(read_bufsize=2**20) as session:
            while True:
                query = {"limit": str(PAGE)} | ({"continue": token} if token else {})
                async with session.get(
                    f"http://127.0.0.1:{port}/api/v1/namespaces/{namespace}/pods", params=query
                ) as answer:
                    held = await answer.read()
                count += 1
                found = re.search(rb'"continue":"(\d*)"', held[:500])
                token = found[1].decode() if found else ""
                if not token:
                    return count

    return asyncio.run(run())


def typed(port: int, namespace: str) -> int:
    from kubernetes import client

    configuration = client.Configuration()
    configuration.host = f"http://127.0.0.1:{port}"
    api = client.CoreV1Api(client.ApiClient(configuration))
    held: list[Any] = []
    token: str | None = None
    while True:
        page = api.list_namespaced_pod(namespace, limit=PAGE, **({"_continue": token} if token else {}))
        held += page.items
        token = page.metadata._continue
        if not token:
            return len(held)


def run_case(name: str, port: int) -> None:
    case = {"ours": ours, "bare": bare, "typed": typed}[name]
    case(port, "one")
    began, busy = time.perf_counter(), time.process_time()
    count = case(port, "many")
    print(json.dumps({"cpu": time.process_time() - busy, "wall": time.perf_counter() - began, "count": count}))


@dataclass(frozen=True)
class Run:
    cpu: float
    wall: float
    peak_mb: float
    count: int


def measured(name: str, port: int, kubeconfig: Path) -> Run:
    """One case in a process of its own. Seconds of CPU time and of the clock."""
    argv = [sys.executable, "-m", "bench.kubernetes.listing", "--case", name, "--port", str(port)]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, "KUBECONFIG": str(kubeconfig)})
    assert child.stdout is not None
    said = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"case {name} exited {child.returncode}")
    answer = json.loads(said)
    return Run(answer["cpu"], answer["wall"], usage.ru_maxrss / 1024, answer["count"])


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pods", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument(
        "--typed-rounds", type=int, default=1, help="rounds of the official client's objects, the slow ones"
    )
    options.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    options.add_argument("--port", type=int, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.case:
        run_case(given.case, given.port)
        return 0
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    server = context.Process(target=serve, args=(given.pods, ready), daemon=True)
    server.start()
    try:
        port, size = ready.get(timeout=120)
        with tempfile.TemporaryDirectory() as folder:
            result = compare(given, port, size, _kubeconfig(Path(folder), port))
    finally:
        server.terminate()
        server.join()
    print(json.dumps(result))
    return 0 if result["ok"] else 1


def compare(given: argparse.Namespace, port: int, size: int, kubeconfig: Path) -> dict[str, Any]:
    runs: dict[str, list[Run]] = {name: [] for name in CASES}
    for number in range(given.rounds):
        for name in CASES:
            if name != "typed" or number < given.typed_rounds:
                runs[name].append(measured(name, port, kubeconfig))
        assert runs["ours"][-1].count == given.pods, runs["ours"][-1]

    def ratio(above: str, below: str, what: str) -> float:
        pairs = zip(runs[above], runs[below], strict=False)
        return statistics.median(getattr(one, what) / getattr(other, what) for one, other in pairs)

    faster = {what: round(ratio("typed", "ours", what), 1) for what in ("wall", "cpu")}
    transfer = {what: round(ratio("ours", "bare", what), 2) for what in ("wall", "cpu")}
    memory = ratio("ours", "typed", "peak_mb")
    return {
        "test": 8,
        "pods": given.pods,
        "bytes_per_pod": size,
        "times_faster_than_typed": faster,
        "of_bare_transfer": transfer,
        "memory_of_typed": round(memory, 4),
        "wall_s": {name: round(statistics.median(run.wall for run in each), 3) for name, each in runs.items()},
        "peak_mb": {name: round(max(run.peak_mb for run in each)) for name, each in runs.items()},
        "goals": {"faster": FASTER, "transfer": TRANSFER, "memory": MEMORY},
        "ok": max(faster.values()) >= FASTER and min(transfer.values()) <= TRANSFER and memory < MEMORY,
    }


def _kubeconfig(folder: Path, port: int) -> Path:
    file = folder / "kubeconfig"
    thing = {
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
    }
    file.write_text(json.dumps(thing))
    return file


if __name__ == "__main__":
    raise SystemExit(main())
