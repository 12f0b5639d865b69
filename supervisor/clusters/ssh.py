"""Shells on other machines over one kept SSH connection each.

Facts that the code rests on, each seen with OpenSSH and asyncssh: a connection that drops in the middle of a command
raises nothing, the exit status is just missing; sshd refuses more sessions than its MaxSessions by a failed channel,
and counts a session until its process has ended; a frozen sshd answers nothing at all, so every step has a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from datetime import datetime

import asyncssh

from supervisor.clusters.login_settings import LoginNode, LoginSettings
from supervisor.clusters.shell import STDERR_LIMIT, Ran, whole
from supervisor.clusters.ssh_login import Login, printable
from supervisor.model.errors import ClusterError, LoginFailed, TookTooLong


class AsyncsshShell:
    """One login node. Safe for many runs at once on one event loop; more than ``max_sessions`` of them wait.

    ``clock`` tells the time for one purpose: to say that a certificate has ended when a login is refused.
    """

    def __init__(
        self, cluster: str, node: LoginNode, settings: LoginSettings, clock: Callable[[], datetime] | None = None
    ) -> None:
        self._cluster, self._node, self._settings, self._clock = cluster, node, settings, clock
        self._link: _Link | None = None
        self._opening: asyncio.Task[_Link] | None = None

    @property
    def place(self) -> str:
        return str(self._node)

    async def run(self, script: str, *, limit_s: float, limit_bytes: int = 64 * 2**20) -> Ran:
        try:
            async with asyncio.timeout(limit_s):
                return await self._run(whole(script), limit_bytes)
        except TimeoutError:
            raise TookTooLong(self._cluster, f"the command on {self.place}", limit_s) from None

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._link is not None:
            self._link.abandon()
            self._link = None

    async def _run(self, script: bytes, limit_bytes: int) -> Ran:
        capture = _Capture(limit_bytes)
        link, channel = await self._session(capture)
        try:
            with contextlib.suppress(OSError):  # dropped this very moment: then the session's end is on its way too
                channel.write(script)
                channel.write_eof()
            await capture.ended.wait()
        finally:
            if not capture.ended.is_set() or capture.truncated:
                _end_remote(channel)
            link.leave()
        return capture.ran()

    async def _session(self, capture: _Capture) -> tuple[_Link, asyncssh.SSHClientChannel[bytes]]:
        """A fresh session. Nothing of the script has been sent, so trying again is always safe; but a connection is
        opened anew only once."""
        reopened = False
        while True:
            link = await self._connected()
            if not await link.enter():
                continue
            try:
                channel, _ = await link.connection.create_session(
                    lambda: capture,
                    "exec sh -s",
                    encoding=None,
                    request_pty=False,
                    x11_forwarding=False,
                )
            except (asyncssh.Error, OSError) as error:
                link.leave()
                if link.usable and link.active:
                    link.allow_no_more()
                    continue
                self._retire(link)
                if reopened:
                    raise self._no_session(link, error) from error
                reopened = True
            except asyncio.CancelledError:
                # Not even a session was granted in time: the far side may be frozen. Others on it may finish.
                link.leave()
                self._retire(link)
                raise
            else:
                return link, channel

    def _no_session(self, link: _Link, error: Exception) -> ClusterError:
        if link.usable:
            return ClusterError(
                self._cluster,
                f"{self.place} lets us in and grants no session ({printable(str(error))})",
                hint="look at MaxSessions in its sshd_config and at processes left over from earlier sessions",
            )
        return LoginFailed(self._cluster, f"{self.place} dropped the connection twice: {printable(str(error))}")

    def _retire(self, link: _Link) -> None:
        link.retire()
        if self._link is link:
            self._link = None

    async def _connected(self) -> _Link:
        if self._link is not None:
            if self._link.usable:
                return self._link
            self._retire(self._link)
        if self._opening is None:
            # All who wait share one login, and its failure: no storm of logins against a sick node.
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    def _opened(self, opening: asyncio.Task[_Link]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._link = opening.result()

    async def _open(self) -> _Link:
        login = Login(self._cluster, self._node, self._settings, self._clock)
        connections = await login.open()
        return _Link(connections, self._settings.max_sessions)


class _Link:
    """A connection, the jump hosts under it, and the count of sessions on it."""

    def __init__(self, connections: list[asyncssh.SSHClientConnection], capacity: int) -> None:
        self._connections = connections
        self._capacity = capacity
        self._freed = asyncio.Event()
        self._retired = False
        self.active = 0

    @property
    def connection(self) -> asyncssh.SSHClientConnection:
        return self._connections[-1]

    @property
    def usable(self) -> bool:
        return not self.connection.is_closed()

    async def enter(self) -> bool:
        """Wait for a place. False where the link was given up meanwhile."""
        while self.active >= self._capacity and not self._retired:
            self._freed.clear()
            await self._freed.wait()
        if self._retired:
            return False
        self.active += 1
        return True

    def leave(self) -> None:
        self.active -= 1
        self._freed.set()
        if self._retired and not self.active:
            self.abandon()

    def allow_no_more(self) -> None:
        """sshd has just refused a session beyond those that are open: its limit is lower than ours."""
        self._capacity = max(1, self.active)

    def retire(self) -> None:
        """No new sessions; those under way may finish."""
        self._retired = True
        self._freed.set()
        if not self.active:
            self.abandon()

    def abandon(self) -> None:
        """Drop it without asking the far side, which may not answer."""
        for connection in reversed(self._connections):
            connection.abort()


class _Capture(asyncssh.SSHClientSession[bytes]):
    """Keeps a bounded part of what a session prints, and how it ended."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._out, self._err = bytearray(), bytearray()
        self._status: int | None = None
        self.truncated = False
        self.ended = asyncio.Event()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            self._err += data[: STDERR_LIMIT - len(self._err)]
            return
        room = self._limit - len(self._out)
        self._out += data[:room]
        if len(data) > room:
            self.truncated = True
            self.ended.set()

    def exit_status_received(self, status: int) -> None:
        self._status = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._status = 128 + _SIGNALS.get(signal, 0)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def ran(self) -> Ran:
        return Ran(None if self.truncated else self._status, bytes(self._out), bytes(self._err), self.truncated)


_SIGNALS = {which.name.removeprefix("SIG"): int(which) for which in signal.Signals}


def _end_remote(channel: asyncssh.SSHClientChannel[bytes]) -> None:
    """Ask the far side to end the script, then let go. Best effort: a script that can hang carries its own ``timeout``."""
    with contextlib.suppress(asyncssh.Error, OSError):
        channel.send_signal("TERM")
    with contextlib.suppress(asyncssh.Error, OSError):
        channel.abort()
