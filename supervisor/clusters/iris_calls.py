"""The page of calls: every request that can ever be sent to an iris controller, and how an answer is told from a failure.

All of them read, but one: :meth:`Controller.terminate`, which takes an approval. Each is one POST of JSON (Connect-RPC).
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import aiohttp
import msgspec

from supervisor.clusters.iris_rows import config_query, tasks_query
from supervisor.clusters.iris_text import (
    CurrentUser,
    ErrorAnswer,
    Health,
    JobAnswer,
    JobsPage,
    JobStatus,
    LogsAnswer,
    NotAnAnswer,
    Nothing,
    QueryAnswer,
    States,
    TasksAnswer,
    decode,
)
from supervisor.clusters.kubernetes_objects import plain
from supervisor.model.errors import AnswerUnusable, ClusterError, LoginFailed, NotApproved, TookTooLong
from supervisor.model.job import JobKey
from supervisor.model.ports import Approval

CONTROLLER = "/iris.cluster.ControllerService/"
LIST_JOBS = CONTROLLER + "ListJobs"
JOB_STATES = CONTROLLER + "GetJobState"
JOB_STATUS = CONTROLLER + "GetJobStatus"
LIST_TASKS = CONTROLLER + "ListTasks"
QUERY = CONTROLLER + "ExecuteRawQuery"
WHO_ARE_WE = CONTROLLER + "GetCurrentUser"
FETCH_LOGS = "/proxy/system.log-server/finelog.logging.LogService/FetchLogs"
HEALTH = "/health"
TERMINATE = CONTROLLER + "TerminateJob"

PAGE = 500
"""Jobs of one answer; no controller gives more."""
LINES = 4000
"""Log lines of one answer."""
_MOST_BELOW = 20_000
_MOST_BYTES = 128 * 2**20
_CHUNK = 2**18

T = TypeVar("T")


class NotThere(ClusterError):
    """404. ``positive``: the controller itself says ``not_found``; a proxy's 404, or an unknown method's, says nothing."""

    def __init__(self, cluster: str, text: str, positive: bool, hint: str | None = None) -> None:
        super().__init__(cluster, text, hint)
        self.positive = positive


class NotAllowed(ClusterError):
    """403: who we are is known, and may not do this."""


class Refused(ClusterError):
    """Any other answer that is an error, with its status and Connect's code."""

    def __init__(self, cluster: str, text: str, status: int, code: str, hint: str | None = None) -> None:
        super().__init__(cluster, text, hint)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class Way:
    """How the controller is reached for now."""

    url: str
    headers: Mapping[str, str]
    shown: str
    """For people."""
    socket: str | None = None
    """Path of a Unix socket that leads there."""
    tls: ssl.SSLContext | None = None
    proxies: bool = False
    """Whether the environment's proxies count: never for this machine itself."""


class Controller:
    """One controller, over connections that last as long as the ``async with`` does."""

    def __init__(self, cluster: str, way: Way, timeout_s: float, connections: int) -> None:
        self._cluster, self._way, self._timeout_s = cluster, way, timeout_s
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self.requests = 0
        self.date: tuple[float, float] | None = None
        """The controller's clock by its latest answer, seconds since the epoch, and ``time.monotonic()`` of that moment."""

    async def __aenter__(self) -> Controller:
        way, limit = self._way, self._connections
        connector: aiohttp.BaseConnector
        if way.socket is not None:
            connector = aiohttp.UnixConnector(way.socket, limit=limit)
        else:
            connector = aiohttp.TCPConnector(limit=limit, ssl=way.tls if way.tls is not None else True)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": "fleet-supervisor", **way.headers},
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=way.proxies,
            auto_decompress=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def shown(self) -> str:
        return self._way.shown

    # -- what can be asked ---------------------------------------------------------------------------------------------

    async def jobs(self, user: str, offset: int) -> JobsPage:
        """One page of a user's jobs, or of those below ``USER/JOB``, children among them, in the order of their submission."""
        query = {
            "scope": "JOB_QUERY_SCOPE_ALL",
            "jobIdPrefix": f"/{user}/",
            "sortField": "JOB_SORT_FIELD_DATE",
            "sortDirection": "SORT_DIRECTION_ASC",
            "offset": offset,
            "limit": PAGE,
        }
        return await self._asked(LIST_JOBS, {"query": query}, JobsPage)

    async def states(self, jobs: list[str]) -> Mapping[str, str | int]:
        """States of these jobs; one that is not there is left out."""
        return (await self._asked(JOB_STATES, {"jobIds": jobs}, States)).states

    async def job(self, path: str) -> JobAnswer:
        """One job. Raises NotThere."""
        return await self._asked(JOB_STATUS, {"jobId": path}, JobAnswer)

    async def job_record(self, path: str) -> dict[str, Any]:
        """One job as the controller gives it, with all that was asked for: keep of it only what may be kept. Raises NotThere."""
        return await self._asked(JOB_STATUS, {"jobId": path}, dict[str, Any])

    async def task_records(self, path: str) -> dict[str, Any]:
        """Its tasks as the controller gives them."""
        return await self._asked(LIST_TASKS, {"jobId": path}, dict[str, Any])

    async def below(self, path: str) -> tuple[JobStatus, ...]:
        """Jobs below one, ended ones too. Raises AnswerUnusable where they are not listed whole."""
        found: list[JobStatus] = []
        while True:
            page = await self.jobs(path.removeprefix("/"), len(found))
            found += page.jobs
            if not page.has_more and len(found) >= page.total_count:
                return tuple(found)
            if not page.has_more or not page.jobs or len(found) > _MOST_BELOW:
                raise AnswerUnusable(self._cluster, f"ListJobs: the children of {path} are not listed whole")

    async def tasks(self, path: str) -> TasksAnswer:
        """Tasks of one job. Of a job that is not there it is empty, and proves nothing."""
        return await self._asked(LIST_TASKS, {"jobId": path}, TasksAnswer)

    async def all_tasks(self, jobs: list[str]) -> QueryAnswer:
        """Tasks and attempts of many jobs at once; an admin's right. Raises NotAllowed."""
        return await self._asked(QUERY, {"sql": tasks_query(jobs)}, QueryAnswer)

    async def all_configs(self, jobs: list[str]) -> QueryAnswer:
        """What was asked for of many jobs at once; an admin's right. Raises NotAllowed."""
        return await self._asked(QUERY, {"sql": config_query(jobs)}, QueryAnswer)

    async def lines(self, source: str, since_ms: int, cursor: int, most: int = LINES) -> LogsAnswer:
        """The oldest lines after ``cursor`` of all keys that begin with ``source``."""
        return await self._lines(source, since_ms, {"cursor": str(cursor), "maxLines": most, "tail": False})

    async def newest_line(self, source: str, since_ms: int, timeout_s: float) -> LogsAnswer:
        return await self._lines(source, since_ms, {"maxLines": 1, "tail": True}, timeout_s)

    async def newest_lines(self, source: str, since_ms: int) -> LogsAnswer:
        return await self._lines(source, since_ms, {"maxLines": LINES, "tail": True})

    async def _lines(
        self, source: str, since_ms: int, more: dict[str, Any], timeout_s: float | None = None
    ) -> LogsAnswer:
        body = {"source": source, "matchScope": "MATCH_SCOPE_PREFIX", "sinceMs": str(since_ms), **more}
        return await self._asked(FETCH_LOGS, body, LogsAnswer, timeout_s)

    async def who_are_we(self) -> CurrentUser:
        return await self._asked(WHO_ARE_WE, {}, CurrentUser)

    async def health(self) -> Health:
        return await self._asked(HEALTH, None, Health)

    async def terminate(self, path: str, job: JobKey, approval: Approval) -> None:
        """End a job and all below it: the one call that changes anything. Raises NotApproved for another job's approval."""
        if approval.job != job:
            raise NotApproved(f"approval {approval.id} is for {approval.job.ref}, not for {job.ref} as it is now")
        await self._asked(TERMINATE, {"jobId": path}, Nothing)

    # -- how it is asked -----------------------------------------------------------------------------------------------

    async def _asked(self, path: str, body: object, what: type[T], timeout_s: float | None = None) -> T:
        assert self._session is not None
        limit_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        named = path.rpartition("/")[2]
        self.requests += 1
        try:
            async with asyncio.timeout(limit_s):
                status, data = await self._sent(path, body)
        except TimeoutError:
            raise TookTooLong(self._cluster, f"{self.shown} ({named})", limit_s) from None
        except aiohttp.ClientError as error:
            raise self._unreachable(error, named) from error
        except OSError as error:
            raise ClusterError(self._cluster, f"{self.shown} cannot be reached: {plain(str(error))}") from error
        if data is None:
            raise AnswerUnusable(self._cluster, f"{named}: more than {_MOST_BYTES // 2**20} MiB in one answer")
        if status != 200:
            raise refusal(self._cluster, status, data, named, self.shown)
        try:
            return decode(data, what)
        except NotAnAnswer as error:
            text = f"{named}: what {self.shown} answered is no answer of an iris controller: {plain(str(error), 200)}"
            raise AnswerUnusable(self._cluster, text, "check url, and the controller's version") from error

    async def _sent(self, path: str, body: object) -> tuple[int, bytes | None]:
        assert self._session is not None
        request: dict[str, Any] = {"allow_redirects": False, "timeout": aiohttp.ClientTimeout(total=None)}
        if body is not None:
            request |= {"data": msgspec.json.encode(body), "headers": {"Content-Type": "application/json"}}
        method = "GET" if body is None else "POST"
        async with self._session.request(method, self._way.url + path, **request) as response:
            parts, size = [], 0
            async for part in response.content.iter_chunked(_CHUNK):
                parts.append(part)
                size += len(part)
                if size > _MOST_BYTES:
                    return response.status, None
            self._hear(response.headers.get("Date"))
            return response.status, b"".join(parts)

    def _hear(self, date: str | None) -> None:
        if date is None:
            return
        try:
            self.date = parsedate_to_datetime(date).timestamp(), time.monotonic()
        except (ValueError, TypeError):
            return

    def _unreachable(self, error: aiohttp.ClientError, named: str) -> ClusterError:
        where, text = self.shown, plain(str(error), 300)
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return ClusterError(self._cluster, f"the name of {where} cannot be resolved", "check the network, or url")
        if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError)):
            hint = "check ca_file, and this machine's clock"
            return LoginFailed(self._cluster, f"no trusted connection to {where}: {text}", hint)
        if isinstance(error, aiohttp.ClientConnectorError):
            why = "connection refused" if isinstance(error.os_error, ConnectionRefusedError) else text
            return ClusterError(self._cluster, f"{where} cannot be reached: {why}", "is the controller up?")
        return AnswerUnusable(self._cluster, f"{named}: the answer of {where} was cut off: {text}")


def refusal(cluster: str, status: int, data: bytes, named: str, where: str) -> ClusterError:
    """What an answer with another status than 200 means. The server's own words are quoted, without control characters."""
    code, said = _said(data)
    words = f"{status}{' ' + code if code else ''}{': ' + said if said else ''}"
    if status == 401:
        return LoginFailed(cluster, f"{where} does not accept this token ({words})", "renew the token in token_file")
    if status == 403:
        return NotAllowed(cluster, f"not allowed: {named} ({words})", "ask for the right, or use another token")
    if status == 404 and code == "not_found":
        return NotThere(cluster, f"{said or named} ({words})", positive=True)
    if status == 404:
        text = f"{where} does not know {named} ({words}): no iris controller, or one of another version"
        return NotThere(cluster, text, positive=False, hint="check url, and the controller's version")
    if 300 <= status < 400:
        text = f"{named}: the answer sends us elsewhere ({status}); a login page stands before the controller?"
        return AnswerUnusable(cluster, text, "set token_file, and token_header for an identity-aware proxy")
    hint = None
    if status == 502:
        hint = "the service behind the controller's proxy is away"
    elif status == 503:
        hint = "the controller is draining or starting"
    return Refused(cluster, f"{where} answered {named} with {words}", status, code, hint)


def _said(data: bytes) -> tuple[str, str]:
    """Connect's code and the message; the first words of anything else."""
    try:
        answer = decode(data, ErrorAnswer)
    except NotAnAnswer:
        return "", plain(data[:200].decode("utf-8", "replace"), 200)
    return plain(answer.code, 40), plain(answer.message or answer.error, 300)
