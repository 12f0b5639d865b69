"""A script in a container of a pod, by the ``exec`` subresource over a WebSocket, under the session's own credentials.

Only ``sh -s`` is ever run, with a script of the on-node page on its standard input: it looks, and changes nothing (PROBE-14).

The protocol is ``v4.channel.k8s.io``, which every API server knows: a message begins with its channel, 0 for standard input, 1 for
output, 2 for error, 3 for how it ended. It has no end of input, so that the script ends itself. Should the connection drop, what
runs over there may go on: it is bounded by itself.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from urllib.parse import urlencode

import aiohttp

from supervisor.clusters.kubernetes_calls import EXEC, ApiServer, path_of, refusal
from supervisor.clusters.kubernetes_login import authorization, tls_of
from supervisor.clusters.kubernetes_objects import plain
from supervisor.clusters.shell import STDERR_LIMIT, Ran, whole
from supervisor.model.errors import AnswerUnusable, ClusterError, LoginFailed, TookTooLong

PROTOCOL = "v4.channel.k8s.io"
_IN, _OUT, _ERR, _STATUS = 0, 1, 2, 3
_CHUNK = 2**15
_GOODBYE_S = 2.0
"""Longest that the far side may take to say goodbye, seconds."""
_REFUSAL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Container:
    """Where a script is run."""

    namespace: str
    pod: str
    name: str

    @property
    def way(self) -> str:
        """For people: what ``kubectl`` calls it."""
        return f"kubectl exec -i -n {self.namespace} {self.pod} -c {self.name} -- sh -s"


@dataclass(slots=True)
class _Heard:
    """What has come so far."""

    limit_bytes: int
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    refused: bytes = b""
    """The body of an answer that opens no socket."""
    truncated: bool = False
    open: bool = False

    def take(self, channel: int, data: bytes) -> None:
        if channel == _OUT:
            room = self.limit_bytes - len(self.out)
            self.out += data[:room]
            self.truncated = self.truncated or len(data) > room
        elif channel == _ERR:
            self.err += data[: STDERR_LIMIT - len(self.err)]

    def ran(self, exit_status: int | None, said: str = "") -> Ran:
        err = b"\n".join(part for part in (bytes(self.err).rstrip(b"\n"), said.encode()) if part)
        return Ran(exit_status, bytes(self.out), err, self.truncated)


async def run(
    server: ApiServer, cluster: str, where: Container, script: str, *, limit_s: float, limit_bytes: int
) -> Ran:
    """Run ``script`` there by ``sh -s``. What came before its time was up, or before it broke off, is handed on without a status.

    Raises ClusterError subclasses where it did not begin: NotAllowed, NotThere, LoginFailed, TookTooLong, Refused.
    """
    path = path_of(EXEC, namespace=where.namespace, name=where.pod)
    words = [("command", "sh"), ("command", "-s"), ("container", where.name)]
    url = f"{server.host}{path}?{urlencode([*words, ('stdin', 'true'), ('stdout', 'true'), ('stderr', 'true')])}"
    heard = _Heard(limit_bytes)
    try:
        async with asyncio.timeout(limit_s), await _session(server, cluster, heard) as session:
            configuration = server.login.configuration
            proxy, proxy_headers = server.proxy
            socket = await session.ws_connect(
                url,
                protocols=(PROTOCOL,),
                headers={"User-Agent": "fleet-supervisor", **authorization(configuration)},
                proxy=proxy,
                proxy_headers=proxy_headers or None,
                server_hostname=configuration.tls_server_name or None,
                timeout=aiohttp.ClientWSTimeout(ws_close=_GOODBYE_S),
                max_msg_size=0,
                compress=0,
            )
            heard.open = True
            async with socket:
                return await _talk(socket, script, heard)
    except TimeoutError:
        if not heard.open:
            raise TookTooLong(cluster, f"{server.host}{path}", limit_s) from None
        return heard.ran(None, f"no end of it within {limit_s:.0f} s")
    except aiohttp.WSServerHandshakeError as error:
        if error.status < 300:
            text = f"{path}: what answered speaks no {PROTOCOL}: {plain(error.message, 200)}"
            raise AnswerUnusable(cluster, text) from error
        raise refusal(cluster, error.status, dict(error.headers or {}), heard.refused, path) from error
    except (aiohttp.ClientSSLError, aiohttp.ClientConnectorCertificateError) as error:
        hint = "check certificate-authority of the kubeconfig, and this machine's clock"
        raise LoginFailed(cluster, f"no trusted connection to {server.host}: {plain(str(error), 300)}", hint) from error
    except (aiohttp.ClientError, OSError) as error:
        text = plain(str(error) or type(error).__name__, 300)
        if heard.open:
            return heard.ran(None, f"the connection broke off: {text}")
        raise ClusterError(cluster, f"{server.host} cannot be reached: {text}") from error


async def _session(server: ApiServer, cluster: str, heard: _Heard) -> aiohttp.ClientSession:
    traces = aiohttp.TraceConfig()

    async def answered(_session: object, _context: object, params: aiohttp.TraceRequestEndParams) -> None:
        if params.response.status != 101:
            heard.refused = await params.response.content.read(_REFUSAL_BYTES)

    async def sent_on(_session: object, _context: object, params: aiohttp.TraceRequestRedirectParams) -> None:
        # Credentials and a script go to nobody but the API server itself.
        raise refusal(cluster, params.response.status, {}, b"", params.url.path)

    traces.on_request_end.append(answered)
    traces.on_request_redirect.append(sent_on)
    tls = await asyncio.to_thread(tls_of, cluster, server.login)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls),
        cookie_jar=aiohttp.DummyCookieJar(),
        trace_configs=[traces],
        timeout=aiohttp.ClientTimeout(total=None),
    )


async def _talk(socket: aiohttp.ClientWebSocketResponse, script: str, heard: _Heard) -> Ran:
    given = whole(script) + b"exit\n"
    for at in range(0, len(given), _CHUNK):
        await socket.send_bytes(bytes([_IN]) + given[at : at + _CHUNK])
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == _STATUS:
            return heard.ran(*_ended(data))
        heard.take(channel, data)
        if heard.truncated:
            return heard.ran(None)
    return heard.ran(None, "the connection was closed before it said how it ended")


def _ended(data: bytes) -> tuple[int | None, str]:
    """Exit status, and what the kubelet says where there is none: no such program, no such container."""
    try:
        status = json.loads(data)
        if status["status"] == "Success":
            return 0, ""
        said = plain(str(status.get("message") or "it failed without a word"), 1000)
        if status.get("reason") != "NonZeroExitCode":
            return None, said
        causes = (status.get("details") or {}).get("causes") or ()
        codes = [int(one["message"]) for one in causes if one.get("reason") == "ExitCode"]
        return (codes[0] if codes else None), said
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, f"how it ended cannot be read: {plain(data[:200].decode('utf-8', 'replace'), 200)}"
