"""A port-forward to the controller's Service, held by the daemon through the Kubernetes API, and opened again when it breaks.

It ends at a Unix socket in a folder that only we may enter: whoever reaches the controller from its own machine is its admin, so
that a port on loopback would make an admin of every user of this machine.

Each connection is one WebSocket to the pod's ``portforward`` (``v4.channel.k8s.io``): a message begins with its channel, 0 for
data and 1 for errors; the first message of each channel is the port's number.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from supervisor.clusters.iris_settings import PortForward
from supervisor.clusters.kubernetes_login import Login, authorization, log_in, tls_of
from supervisor.clusters.kubernetes_objects import plain
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.model.errors import ClusterError, LoginFailed

SERVICE = "/api/v1/namespaces/{namespace}/services/{name}"
PODS = "/api/v1/namespaces/{namespace}/pods"
PORT_FORWARD = "/api/v1/namespaces/{namespace}/pods/{name}/portforward"
_PROTOCOL = "v4.channel.k8s.io"
_OPEN_S = 20.0
"""Longest that one step of opening may take, seconds."""
_CHUNK = 2**16
_DATA, _ERRORS = 0, 1


class _Port(msgspec.Struct, frozen=True, rename="camel"):
    port: int
    target_port: int | str | None = None


class _ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    ports: tuple[_Port, ...] = ()
    selector: dict[str, str] = {}


class _Service(msgspec.Struct, frozen=True):
    spec: _ServiceSpec


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    deletion_timestamp: str | None = None


class _ContainerPort(msgspec.Struct, frozen=True, rename="camel"):
    container_port: int
    name: str = ""


class _Container(msgspec.Struct, frozen=True):
    ports: tuple[_ContainerPort, ...] | None = None


class _PodSpec(msgspec.Struct, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""
    conditions: tuple[_Condition, ...] | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def ready(self) -> bool:
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions or ())


class _Pods(msgspec.Struct, frozen=True):
    kind: str
    items: tuple[_Pod, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """Where the forward leads at present."""

    pod: str
    port: int


def target_of(service: _Service, pods: _Pods, port: int) -> Target | None:
    """The pod to forward to: of those that run, a ready one first, the newest name last. None where there is none."""
    named = next((one for one in service.spec.ports if one.port == port), None)
    running = [pod for pod in pods.items if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None]
    for pod in sorted(running, key=lambda pod: (not pod.ready, pod.metadata.name)):
        wanted = named.target_port if named is not None and named.target_port is not None else port
        if isinstance(wanted, int):
            return Target(pod.metadata.name, wanted)
        for container in pod.spec.containers:
            for one in container.ports or ():
                if one.name == wanted:
                    return Target(pod.metadata.name, one.container_port)
    return None


class Forward:
    """Opened at its first use. A connection goes to the pod that was there last, under credentials read anew when they change."""

    def __init__(self, cluster: str, settings: PortForward) -> None:
        self._cluster, self._settings = cluster, settings
        self._login: Login | None = None
        self._session: aiohttp.ClientSession | None = None
        self._target: Target | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()
        self.trouble: str | None = None
        """Why the latest connection failed, in the words of the API server or the kubelet."""

    @property
    def target(self) -> Target | None:
        return self._target

    @property
    def shown(self) -> str:
        one = self._settings
        return f"service {one.namespace}/{one.service} by port-forward"

    async def open(self, now: datetime) -> str:
        """Path of the socket. The pod is looked up each time: it may be another by now. Raises LoginFailed, ClusterError."""
        async with self._opening:
            await self._log_in(now)
            self.trouble = None
            self._target = await self._find()
            if self._server is None:
                self._folder = tempfile.TemporaryDirectory(prefix="iris-forward-")  # mode 0700
                self._server = await asyncio.start_unix_server(self._accept, self._socket)
            return self._socket

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for pipe in list(self._pipes):
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._login = self._target = None

    @property
    def _socket(self) -> str:
        assert self._folder is not None
        return str(Path(self._folder.name) / "controller")

    async def _log_in(self, now: datetime) -> None:
        if self._login is not None and not self._login.stale(now):
            return
        one = self._settings
        settings = KubernetesSettings(kubeconfig=one.kubeconfig, context=one.context)
        login = await asyncio.to_thread(log_in, self._cluster, settings, now)
        if self._session is not None:
            await self._session.close()
        connector = aiohttp.TCPConnector(ssl=await asyncio.to_thread(tls_of, self._cluster, login))
        self._session = aiohttp.ClientSession(connector=connector, trust_env=True, cookie_jar=aiohttp.DummyCookieJar())
        self._login = login

    async def _find(self) -> Target:
        one = self._settings
        service = await self._get(SERVICE.format(namespace=one.namespace, name=one.service), {}, _Service)
        selector = ",".join(f"{key}={value}" for key, value in sorted(service.spec.selector.items()))
        if not selector:
            raise ClusterError(self._cluster, f"{self.shown}: it selects no pods", "check port_forward.service")
        pods = await self._get(PODS.format(namespace=one.namespace), {"labelSelector": selector}, _Pods)
        target = target_of(service, pods, one.port)
        if target is None:
            raise ClusterError(
                self._cluster, f"{self.shown}: none of its {len(pods.items)} pods runs and has that port"
            )
        return target

    async def _get(self, path: str, query: dict[str, str], what: type[Any]) -> Any:
        assert self._session is not None
        assert self._login is not None
        url = self._host + path + (f"?{urlencode(query)}" if query else "")
        try:
            async with asyncio.timeout(_OPEN_S):
                async with self._session.get(url, headers=authorization(self._login.configuration)) as response:
                    data = await response.read()
            if response.status != 200:
                raise self._refused(response.status, data, path)
            return msgspec.json.decode(data, type=what)
        except TimeoutError:
            raise ClusterError(self._cluster, f"{self._host} did not answer within {_OPEN_S:g} s") from None
        except msgspec.MsgspecError as error:
            raise ClusterError(
                self._cluster, f"{path}: no answer of an API server: {plain(str(error), 200)}"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ClusterError(self._cluster, f"{self._host} cannot be reached: {plain(str(error), 300)}") from error

    def _refused(self, status: int, data: bytes, path: str) -> ClusterError:
        said = plain(data[:300].decode("utf-8", "replace"), 200)
        if status == 401:
            text = f"the API server does not accept these credentials (401: {said})"
            return LoginFailed(self._cluster, text, "log in again, or renew the token")
        hint = "check port_forward.namespace and port_forward.service" if status == 404 else None
        return ClusterError(self._cluster, f"{self.shown}: {path} gave {status}: {said}", hint)

    @property
    def _host(self) -> str:
        assert self._login is not None
        return str(self._login.configuration.host).rstrip("/")

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pipes.add(task)
        try:
            await self._pipe(reader, writer)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            # Whoever asked sees the connection dropped; the reason is kept for the next message.
            self.trouble = plain(str(error) or type(error).__name__, 200)
        finally:
            self._pipes.discard(task)
            writer.close()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target, login, session = self._target, self._login, self._session
        if target is None or login is None or session is None:
            return
        path = PORT_FORWARD.format(namespace=self._settings.namespace, name=quote(target.pod, safe=""))
        url = f"{self._host}{path}?ports={target.port}"
        async with asyncio.timeout(_OPEN_S):
            socket = await session.ws_connect(
                url,
                protocols=(_PROTOCOL,),
                headers=authorization(login.configuration),
                max_msg_size=0,
                autoping=True,
                compress=0,
            )
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(socket.close)
            up = asyncio.create_task(_upward(reader, socket))
            stack.callback(up.cancel)
            await self._downward(socket, writer, target)

    async def _downward(
        self, socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter, to: Target
    ) -> None:
        begun: set[int] = set()
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel not in begun:
                begun.add(channel)
                data = data[2:]  # the port's number
            if not data:
                continue
            if channel == _ERRORS:
                self.trouble = f"port {to.port} of pod {to.pod}: {plain(data.decode('utf-8', 'replace'), 200)}"
                return
            if channel == _DATA:
                writer.write(data)
                await writer.drain()


async def _upward(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    while data := await reader.read(_CHUNK):
        await socket.send_bytes(bytes([_DATA]) + data)
    await socket.close()
