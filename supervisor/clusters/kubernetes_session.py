"""One API server as we hold it from poll to poll: connection, credentials in force, kinds it has, and its clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from supervisor.clusters.kubernetes_calls import Answer, ApiServer
from supervisor.clusters.kubernetes_lists import Served, discover
from supervisor.clusters.kubernetes_login import Login, log_in
from supervisor.clusters.kubernetes_settings import EVERY_NAMESPACE, KubernetesSettings
from supervisor.model.errors import LoginFailed, LoginNeedsPerson
from supervisor.model.job import Observation

T = TypeVar("T")

_DISCOVERY_LASTS = timedelta(minutes=10)
_CLOCK_DOUBT_S = 1.5
"""A server's Date has whole seconds."""


class Session:
    """Credentials are read again whenever a file of theirs changes, a plugin's are about to end, or the server refuses them."""

    def __init__(self, cluster: str, settings: KubernetesSettings) -> None:
        self._cluster, self._settings = cluster, settings
        self._server: ApiServer | None = None
        self._served: tuple[datetime, Served] | None = None
        self._logging_in = asyncio.Lock()

    async def run(self, now: datetime, work: Callable[[ApiServer], Coroutine[Any, Any, T]]) -> T:
        """Do it under the credentials in force; once more under new ones if these are refused and others are to be had."""
        server = await self.connected(now)
        try:
            return await work(server)
        except LoginFailed as error:
            if self._server is server:
                self._server = None
            if not server.login.renews_itself and not server.login.stale(now):
                raise self._explained(error, server.login, now) from error
        return await work(await self.connected(now))

    async def connected(self, now: datetime) -> ApiServer:
        """The server under the credentials in force. Raises LoginFailed."""
        async with self._logging_in:
            if self._server is not None and not self._server.login.stale(now):
                return self._server
            login = await asyncio.to_thread(log_in, self._cluster, self._settings, now)
            # The one before is dropped, not closed: a poll may be under way on it.
            self._server = ApiServer(self._cluster, login, self._settings.request_timeout_s, self._settings.connections)
            return self._server

    async def served(self, server: ApiServer, now: datetime) -> Served:
        """Kinds that the cluster has, asked for at most every ten minutes."""
        if self._served is not None and timedelta(0) <= now - self._served[0] < _DISCOVERY_LASTS:
            return self._served[1]
        served = await discover(server, self._cluster)
        self._served = (now, served) if served.problem is None else None
        return served

    def namespaces(self, login: Login) -> tuple[str | None, ...]:
        """Those to watch; None stands for all (POLL-8)."""
        names = self._settings.namespaces or (login.namespace,)
        return (None,) if EVERY_NAMESPACE in names else names

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _explained(self, error: LoginFailed, login: Login, now: datetime) -> LoginFailed:
        if login.expires_at is None or login.expires_at > now:
            return error
        text = f"its {login.expires_what} ended at {login.expires_at:%Y-%m-%dT%H:%M:%SZ}; {error.text}"
        return LoginNeedsPerson(self._cluster, text, error.hint)


class Clock:
    """Our clock from the moment a poll began, and the cluster's from its own answers (POLL-10)."""

    def __init__(self, now: datetime) -> None:
        self._now, self._began = now, time.monotonic()
        self.offset = timedelta(0)
        """Theirs minus ours."""

    def ours(self) -> datetime:
        return self._now + timedelta(seconds=time.monotonic() - self._began)

    def theirs(self) -> datetime:
        return self.ours() + self.offset

    def heard(self, answer: Answer) -> None:
        """Take the time from an answer that has just come."""
        if answer.date is None:
            return
        apart = answer.date + 0.5 - self.ours().timestamp()
        self.offset = timedelta(0) if abs(apart) < _CLOCK_DOUBT_S else timedelta(seconds=round(apart))

    def corrected(self, one: Observation) -> Observation:
        """Times of the cluster's clock turned into ours."""
        if not self.offset:
            return one
        return replace(
            one,
            submitted_at=one.submitted_at - self.offset if one.submitted_at else None,
            started_at=one.started_at - self.offset if one.started_at else None,
            ended_at=one.ended_at - self.offset if one.ended_at else None,
        )
