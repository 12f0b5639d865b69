"""The port-forward that the daemon holds itself: through an API server to a pod's port, and open again after it broke."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from supervisor.clusters.iris import IrisCluster
from supervisor.clusters.iris_forward import Forward
from supervisor.clusters.iris_settings import IrisSettings, PortForward
from supervisor.model.job import JobState
from supervisor.model.polling import Polled, Unreached, Watch
from tests.clusters.iris.conftest import MakeEyes
from tests.clusters.iris.kubelet import PortForwarder
from tests.iris_lab import IrisLab
from tests.kube_lab import KubeLab, kube_lab

__all__ = ["kube_lab"]


class ApiServer:
    """An API server and its kubelet, as far as a port-forward needs them: a Service, pods, and WebSockets to a port of this machine."""

    def __init__(self) -> None:
        self.kubelet = PortForwarder()
        self.pods = [pod("controller-a")]
        self.forwards = 0
        self.status = 200
        self.url = ""
        self.tokens: list[str | None] = []
        self.went_to: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization"))
        if self.status != 200:
            return web.json_response({"kind": "Status", "message": "no"}, status=self.status)
        if request.path.endswith("/services/iris-controller-svc"):
            ports = [{"port": 10000, "targetPort": "http"}]
            return web.json_response({"kind": "Service", "spec": {"ports": ports, "selector": {"app": "controller"}}})
        if request.path.endswith("/pods"):
            assert request.query["labelSelector"] == "app=controller"
            return web.json_response({"kind": "PodList", "items": self.pods})
        if request.path.endswith("/portforward"):
            return await self._forward(request)
        return web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        assert request.query["ports"] == "8000"
        name = request.path.split("/")[-2]
        if name not in [one["metadata"]["name"] for one in self.pods]:
            return web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)
        self.forwards += 1
        self.went_to.append(name)
        return await self.kubelet.forward(request, 8000)


def pod(name: str, phase: str = "Running", ready: str = "True", **meta: Any) -> dict[str, Any]:
    ports = [{"name": "http", "containerPort": 8000}]
    return {
        "metadata": {"name": name, **meta},
        "spec": {"containers": [{"name": "main", "ports": ports}]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    }


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    made.url = str(server.make_url("/")).rstrip("/")
    yield made
    await made.kubelet.close()
    await server.close()


@pytest.fixture
async def controller() -> AsyncIterator[TestServer]:
    """A controller that lists no jobs, in an answer of several pieces."""

    async def handle(request: web.Request) -> web.StreamResponse:
        padding = " " * 300_000
        return web.Response(text=f'{{"totalCount": 0, {padding} "hasMore": false}}', content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    yield server
    await server.close()


def kubeconfig(folder: Path, url: str, token: str = "abc") -> Path:
    file = folder / "kubeconfig"
    config = {
        "current-context": "east",
        "contexts": [{"name": "east", "context": {"cluster": "east", "user": "me"}}],
        "clusters": [{"name": "east", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": {"token": token}}],
    }
    file.write_text(json.dumps(config))
    return file


def settings(tmp_path: Path, api: ApiServer, **more: Any) -> dict[str, Any]:
    way = {"kubeconfig": kubeconfig(tmp_path, api.url), "namespace": "iris", "service": "iris-controller-svc"}
    return {"url": None, "port_forward": PortForward(**way), "request_timeout_s": 3, "poll_timeout_s": 6} | more


@contextlib.asynccontextmanager
async def cluster_of(tmp_path: Path, api: ApiServer) -> AsyncIterator[IrisCluster]:
    made = IrisCluster("marin", IrisSettings(users=("alice",), **settings(tmp_path, api)))
    try:
        yield made
    finally:
        await made.close()


async def test_a_controller_is_asked_through_the_api_server(
    api: ApiServer, controller: TestServer, tmp_path: Path
) -> None:
    api.kubelet.port = controller.port or 0
    async with cluster_of(tmp_path, api) as cluster:
        reading = await cluster.poll(Watch(), datetime.now(UTC))

    assert isinstance(reading, Polled), reading
    assert reading.source == "service iris/iris-controller-svc by port-forward"
    assert api.forwards == 1
    assert set(api.tokens) == {"Bearer abc"}


async def test_a_forward_that_broke_is_no_reading_and_the_next_one_goes_to_the_pod_that_is_there_now(
    api: ApiServer, controller: TestServer, tmp_path: Path
) -> None:
    """POLL-1: and no restart of the daemon is needed."""
    api.kubelet.port = controller.port or 0
    async with cluster_of(tmp_path, api) as cluster:
        assert isinstance(await cluster.poll(Watch(), datetime.now(UTC)), Polled)
        api.kubelet.drops = True

        broken = await cluster.poll(Watch(), datetime.now(UTC))
        assert isinstance(broken, Unreached), broken
        assert broken.reason

        api.kubelet.drops = False
        api.pods = [pod("controller-b")]
        mended = await cluster.poll(Watch(), datetime.now(UTC))
        assert isinstance(mended, Polled), mended
    assert api.went_to == ["controller-a", "controller-a", "controller-b"]


async def test_why_the_far_end_could_not_be_reached_is_said(
    api: ApiServer, controller: TestServer, tmp_path: Path
) -> None:
    await controller.close()
    api.kubelet.port = controller.port or 0
    async with cluster_of(tmp_path, api) as cluster:
        reading = await cluster.poll(Watch(), datetime.now(UTC))

    assert isinstance(reading, Unreached), reading
    assert "error forwarding port 8000" in reading.reason


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "does not accept these credentials"), (403, "gave 403"), (404, "gave 404"), (503, "gave 503")],
)
async def test_an_api_server_that_refuses_is_named(api: ApiServer, tmp_path: Path, status: int, words: str) -> None:
    api.status = status
    async with cluster_of(tmp_path, api) as cluster:
        reading = await cluster.poll(Watch(), datetime.now(UTC))

    assert isinstance(reading, Unreached), reading
    assert words in reading.reason


async def test_a_pod_that_runs_and_is_ready_is_chosen(api: ApiServer, tmp_path: Path) -> None:
    api.pods = [
        pod("a", phase="Pending"),
        pod("b", ready="False"),
        pod("c", deletionTimestamp="2026-11-29T12:00:00Z"),
        pod("d"),
    ]
    forward = Forward("marin", settings(tmp_path, api)["port_forward"])
    try:
        await forward.open(datetime.now(UTC))
        assert forward.target is not None
        assert (forward.target.pod, forward.target.port) == ("d", 8000)
    finally:
        await forward.close()


async def test_no_other_user_of_this_machine_can_use_the_forward(api: ApiServer, tmp_path: Path) -> None:
    """Whoever comes from the controller's own machine is its admin."""
    forward = Forward("marin", settings(tmp_path, api)["port_forward"])
    socket = Path(await forward.open(datetime.now(UTC)))

    assert stat.S_ISSOCK(socket.stat().st_mode)
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    await forward.close()
    assert not socket.parent.exists()


async def test_a_kubeconfig_that_changed_is_read_again(api: ApiServer, controller: TestServer, tmp_path: Path) -> None:
    """POLL-12: rotated credentials."""
    api.kubelet.port = controller.port or 0
    async with cluster_of(tmp_path, api) as cluster:
        await cluster.poll(Watch(), datetime.now(UTC))
        kubeconfig(tmp_path, api.url, token="rotated")
        assert isinstance(await cluster.poll(Watch(), datetime.now(UTC)), Polled)

    assert api.tokens[-1] == "Bearer rotated"


@pytest.mark.lab
async def test_a_real_controller_is_read_through_it(
    iris_lab: IrisLab, eyes_of: MakeEyes, api: ApiServer, tmp_path: Path
) -> None:
    api.kubelet.port = int(iris_lab.url.rpartition(":")[2])
    eyes = eyes_of(**settings(tmp_path, api))
    path = f"/{eyes.user}/run"
    iris_lab.submit(path, "while :; do sleep 1; done")
    iris_lab.until_counts(path, running=1)

    assert (await eyes.see("run")).attempt == 1

    with iris_lab.stopped():
        assert isinstance(await eyes.look(), Unreached)
    assert eyes.id("run") in (await eyes.poll()).lines


@pytest.mark.lab
async def test_a_real_controller_is_read_through_a_real_api_server(
    iris_lab: IrisLab, eyes_of: MakeEyes, kube_lab: KubeLab
) -> None:
    """Service, pods and the upgrade to a WebSocket are the API server's own; the kubelet's part is played."""
    kubelet, server = PortForwarder(), web.Application()

    async def handle(request: web.Request) -> web.StreamResponse:
        return await kubelet.forward(request, int(request.query["port"]))

    server.router.add_get("/portForward/{namespace}/{pod}", handle)
    runner = web.AppRunner(server)
    await runner.setup()
    pki = kube_lab.folder / "pki"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pki / "kubelet.crt", pki / "kubelet.key")
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    kubelet.port = int(iris_lab.url.rpartition(":")[2])
    namespace = await asyncio.to_thread(_controller_in, kube_lab, runner.addresses[0][1])
    way = PortForward(kubeconfig=kube_lab.kubeconfig, namespace=namespace, service="iris-controller-svc")
    eyes = eyes_of(url=None, port_forward=way)
    try:
        path = f"/{eyes.user}/run"
        iris_lab.submit(path, "while :; do sleep 1; done")
        await asyncio.to_thread(iris_lab.until_counts, path, running=1)

        seen = await eyes.see("run")

        assert (seen.attempt, seen.state) == (1, JobState.RUNNING)
    finally:
        await eyes.cluster.close()
        await kubelet.close()
        await runner.cleanup()
        await asyncio.to_thread(kube_lab.clear, namespace)
        await asyncio.to_thread(kube_lab.call, "DELETE", "/api/v1/nodes/forwarding")


def _controller_in(lab: KubeLab, kubelet_port: int) -> str:
    """A controller's Service and pod, on a node whose kubelet listens at this port. Its namespace."""
    namespace = lab.namespace()
    lab.must("POST", "/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "forwarding"}})
    address = {"type": "InternalIP", "address": "127.0.0.1"}
    endpoints = {"kubeletEndpoint": {"Port": kubelet_port}}
    lab.merge("/api/v1/nodes/forwarding/status", {"status": {"addresses": [address], "daemonEndpoints": endpoints}})
    root = f"/api/v1/namespaces/{namespace}"
    service = {"ports": [{"port": 10000, "targetPort": "http"}], "selector": {"app": "controller"}}
    metadata = {"name": "iris-controller-svc"}
    lab.must("POST", f"{root}/services", {"kind": "Service", "apiVersion": "v1", "metadata": metadata, "spec": service})
    container = {"name": "main", "image": "registry.example/iris:1", "ports": [{"name": "http", "containerPort": 8000}]}
    spec = {"nodeName": "forwarding", "containers": [container], "tolerations": [{"operator": "Exists"}]}
    metadata = {"name": "controller", "labels": {"app": "controller"}}
    lab.must("POST", f"{root}/pods", {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec})
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    lab.merge(f"{root}/pods/controller/status", {"status": ready})
    return namespace
