"""The page of calls: every request that can ever be sent to an API server, and how an answer is told from a failure.

All of them read, but one: :meth:`ApiServer.delete`, which takes a UID as its precondition. ``EXEC`` runs scripts of the on-node
page alone, which only look, and stands in ``kubernetes_exec``. The official client gives the
connection (TLS, proxy, who we are); the bytes come straight from it, without its model objects and without its retries, so that
a deadline is one.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import urllib3
from kubernetes.client.rest import RESTClientObject

from supervisor.clusters.kubernetes_login import Login, authorization
from supervisor.clusters.kubernetes_objects import plain
from supervisor.clusters.kubernetes_wire import HttpPool, HttpsPool, Line, Room, on_this_thread
from supervisor.model.errors import AnswerUnusable, ClusterError, LoginFailed, TookTooLong

GROUPS = "/apis"
GROUP = "/apis/{group}/{version}"
VERSION = "/version"
NAMESPACE = "/api/v1/namespaces/{name}"
PODS = "/api/v1/namespaces/{namespace}/pods"
PODS_EVERYWHERE = "/api/v1/pods"
POD = "/api/v1/namespaces/{namespace}/pods/{name}"
POD_LOG = "/api/v1/namespaces/{namespace}/pods/{name}/log"
EXEC = "/api/v1/namespaces/{namespace}/pods/{name}/exec"
EVENTS = "/api/v1/namespaces/{namespace}/events"
RECORDS = "/apis/{group}/{version}/namespaces/{namespace}/{plural}"
RECORDS_EVERYWHERE = "/apis/{group}/{version}/{plural}"
RECORD = "/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}"

_MOST_BYTES = 256 * 2**20
_POLITE_WAIT_S = 10.0

T = TypeVar("T")


class NotThere(ClusterError):
    """404. ``positive``: the API server itself says NotFound, so the object is gone; a proxy's 404 says nothing."""

    def __init__(self, cluster: str, text: str, positive: bool) -> None:
        super().__init__(cluster, text)
        self.positive = positive


class NotAllowed(ClusterError):
    """403: who we are is known, and may not do this."""


class Outdated(ClusterError):
    """410: the list we were in the middle of is no longer kept; it must begin again."""


class Conflicts(ClusterError):
    """409: the object is not the one we meant (its UID differs)."""


class Refused(ClusterError):
    """Any other answer that is an error, with its status."""

    def __init__(self, cluster: str, text: str, status: int, wait_s: float | None = None) -> None:
        super().__init__(cluster, text)
        self.status, self.wait_s = status, wait_s


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer with a status below 300."""

    data: bytes
    date: float | None
    """The server's clock, seconds since the epoch, in whole seconds; None where it gave none."""


def path_of(template: str, **parts: str) -> str:
    """A path of this page with its parts filled in; each part is one segment, whatever it holds."""
    for part in parts.values():
        if part in ("", ".", ".."):
            raise ValueError(f"{part!r} cannot be a part of an API path")
    return template.format(**{key: quote(part, safe="") for key, part in parts.items()})


class ApiServer:
    """One API server under one login. Methods are coroutines; the waiting is done in threads of its own."""

    def __init__(self, cluster: str, login: Login, timeout_s: float, connections: int) -> None:
        self._cluster, self._login, self._timeout_s = cluster, login, timeout_s
        login.configuration.connection_pool_maxsize = connections
        self._pool = RESTClientObject(login.configuration).pool_manager
        self._pool.pool_classes_by_scheme = {"http": HttpPool, "https": HttpsPool}
        self._host = str(login.configuration.host).rstrip("/")
        self._under_way: set[Line] = set()
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix=f"kubernetes-{cluster}")

    @property
    def host(self) -> str:
        return self._host

    @property
    def login(self) -> Login:
        return self._login

    @property
    def proxy(self) -> tuple[str | None, Mapping[str, str]]:
        """Address of the proxy that stands before it, and the headers that it wants. Raises ClusterError for a SOCKS proxy."""
        if hasattr(self._pool, "proxy_url"):
            raise ClusterError(self._cluster, f"a SOCKS proxy stands before {self._host}, through which exec cannot go")
        if not isinstance(self._pool, urllib3.ProxyManager) or self._pool.proxy is None:
            return None, {}
        return str(self._pool.proxy), dict(self._pool.proxy_headers or {})

    def close(self) -> None:
        """Hang up whatever is under way. One that is merely dropped lets what is under way go on, and ends its threads after."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for line in list(self._under_way):
            line.hang_up()
        self._pool.clear()

    async def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        read: Callable[[Answer], T],
        timeout_s: float | None = None,
        most_bytes: int = _MOST_BYTES,
    ) -> T:
        """Ask, and hand the whole answer to ``read`` in the same thread. Raises ClusterError subclasses.

        An answer of 429 that asks for a short wait is asked again once, within the deadline.
        """
        return await self._asked(
            "GET", path, query, None, lambda data, date: read(Answer(bytes(data), date)), timeout_s, most_bytes
        )

    async def page(self, path: str, query: Mapping[str, str], *, room: Room, read: Callable[[memoryview], T]) -> T:
        """Ask for one page of a long list, and hand it to ``read`` where it lies: in ``room``, into which the next one is read too.

        So the pages of a list cost the memory of one. What ``read`` keeps of the bytes it must copy. Raises as :meth:`get` does.
        """
        return await self._asked("GET", path, query, None, lambda data, _: read(data), None, _MOST_BYTES, room)

    async def delete(self, path: str, uid: str) -> Answer:
        """Delete the object that has this UID, and no other; what it owns goes first. Raises ClusterError subclasses."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": uid},
        }
        given = json.dumps(body).encode()
        return await self._asked("DELETE", path, None, given, lambda data, date: Answer(bytes(data), date))

    async def _asked(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        read: Callable[[memoryview, float | None], T],
        timeout_s: float | None = None,
        most_bytes: int = _MOST_BYTES,
        room: Room | None = None,
    ) -> T:
        limit_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        line = Line()
        url = f"{self._host}{path}{'?' + urlencode(query) if query else ''}"

        def run() -> T:
            on_this_thread.line = line
            for again in (True, False):
                if line.hung_up.is_set():
                    break
                try:
                    return read(*self._sent(line, method, url, body, limit_s, most_bytes, path, room))
                except Refused as error:
                    wait_s = error.wait_s
                    if not again or method != "GET" or wait_s is None or wait_s > min(_POLITE_WAIT_S, limit_s / 2):
                        raise
                    line.hung_up.wait(wait_s)
            raise TookTooLong(self._cluster, path, limit_s)

        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, run)
        except RuntimeError as error:
            raise ClusterError(self._cluster, "the connection was closed") from error
        self._under_way.add(line)
        try:
            done, _ = await asyncio.wait({future}, timeout=limit_s)
        except asyncio.CancelledError:
            line.hang_up()
            future.add_done_callback(_heard)
            raise
        finally:
            self._under_way.discard(line)
        if not done:
            line.hang_up()
            future.add_done_callback(_heard)
            raise TookTooLong(self._cluster, f"{self._host}{path}", limit_s)
        if future.cancelled():
            raise ClusterError(self._cluster, "the connection was closed")
        return future.result()

    def _sent(
        self,
        line: Line,
        method: str,
        url: str,
        body: bytes | None,
        limit_s: float,
        most_bytes: int,
        path: str,
        room: Room | None,
    ) -> tuple[memoryview, float | None]:
        """The whole answer, and the time that it gives for itself."""
        headers = {
            "Accept": "application/json, */*",
            "User-Agent": "fleet-supervisor",
            **authorization(self._login.configuration),
        }
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            response = self._pool.request(
                method,
                url,
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(total=limit_s),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error, path, limit_s) from error
        except (OSError, ValueError) as error:
            raise ClusterError(self._cluster, f"{self._host} could not be asked: {error}") from error
        assert line.body is not None
        whole = False
        try:
            data = (room or Room()).fill(line.body, most_bytes)
            whole = data is not None
        except TimeoutError as error:
            raise TookTooLong(self._cluster, f"{self._host}{path}", limit_s) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            text = " ".join(str(error).split())[:200]
            raise AnswerUnusable(self._cluster, f"{path}: the answer was cut off: {text}") from error
        finally:
            if not whole:
                response.close()
            response.release_conn()
        if data is None:
            raise AnswerUnusable(self._cluster, f"{path}: more than {most_bytes // 2**20} MiB in one answer")
        packed = response.headers.get("Content-Encoding", "identity")
        if packed != "identity":
            raise AnswerUnusable(
                self._cluster, f"{path}: the answer is packed ({plain(packed, 60)}), which was not asked for"
            )
        if response.status >= 300:
            raise refusal(self._cluster, response.status, response.headers, bytes(data), path)
        return data, _date(response.headers.get("Date"))

    def _unreachable(self, error: urllib3.exceptions.HTTPError, path: str, limit_s: float) -> ClusterError:
        text, where = " ".join(str(error).split()), self._host
        if isinstance(error, urllib3.exceptions.NameResolutionError):
            return ClusterError(
                self._cluster,
                f"the name of {where} cannot be resolved",
                "check the network, or the server of the kubeconfig",
            )
        if isinstance(error, urllib3.exceptions.NewConnectionError):
            why = "connection refused" if "refused" in text else text.rpartition(": ")[2]
            return ClusterError(self._cluster, f"{where} cannot be reached: {why}")
        if isinstance(error, urllib3.exceptions.TimeoutError):
            return TookTooLong(self._cluster, f"{where}{path}", limit_s)
        if isinstance(error, urllib3.exceptions.SSLError):
            hint = "check certificate-authority of the kubeconfig, and this machine's clock"
            return LoginFailed(self._cluster, f"no trusted connection to {where}: {text[:300]}", hint)
        if isinstance(error, urllib3.exceptions.ProxyError):
            return ClusterError(self._cluster, f"the proxy to {where} failed: {text[:300]}")
        if isinstance(error, (urllib3.exceptions.ProtocolError, urllib3.exceptions.DecodeError)):
            return AnswerUnusable(self._cluster, f"{path}: the answer was cut off: {text[:200]}")
        return ClusterError(self._cluster, f"{where} could not be asked: {text[:300]}")


def _heard(late: asyncio.Future[Any]) -> None:
    """An answer that came after everybody had gone: its error is nobody's."""
    if not late.cancelled():
        late.exception()


def refusal(cluster: str, status: int, headers: Mapping[str, str], data: bytes, path: str) -> ClusterError:
    """What an answer with an error status means. The server's own words are quoted, without control characters."""
    said, reason = _said(data)
    named = f"{status}{': ' + said if said else ''}"
    if status == 401:
        return LoginFailed(
            cluster, f"the API server does not accept these credentials ({named})", "log in again, or renew the token"
        )
    if status == 403:
        return NotAllowed(cluster, f"not allowed ({named})", "ask for the right, or name other namespaces")
    if status == 404:
        return NotThere(cluster, f"{path} is not there ({named})", positive=reason == "NotFound")
    if status == 409:
        return Conflicts(cluster, f"the API server refused ({named})")
    if status == 410:
        return Outdated(cluster, f"the list is no longer kept ({named})")
    if 300 <= status < 400:
        return AnswerUnusable(
            cluster, f"{path}: the answer sends us elsewhere ({status}); a login page stands before the API server?"
        )
    if status == 429:
        after = str(headers.get("Retry-After") or "")
        wait_s = float(after) if after.isascii() and after.isdigit() else None
        asked = f" and asks to wait {after} s" if wait_s is not None else ""
        return Refused(cluster, f"the API server is too busy{asked} ({named})", status, wait_s)
    return Refused(cluster, f"the API server answered {named}", status)


def _said(data: bytes) -> tuple[str, str]:
    """Message and reason of a Status object; the first words of anything else."""
    try:
        answer = json.loads(data)
        if isinstance(answer, dict) and answer.get("kind") == "Status":
            return plain(str(answer.get("message") or "")), str(answer.get("reason") or "")
    except ValueError:
        pass
    return plain(data[:200].decode("utf-8", "replace")), ""


def _date(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError):
        return None
