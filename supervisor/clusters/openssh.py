"""The system's ``ssh`` through a master connection that a person has opened, for sites with two-factor login.

Nothing here ever logs in: where the master is gone, ``ssh`` would try a login of its own, and that could ring a person's
phone every 15 minutes. A proxy command that fails at once keeps it from doing so.
"""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

from supervisor.clusters.local import captured
from supervisor.clusters.login_settings import LoginNode, LoginSettings
from supervisor.clusters.shell import Ran, whole
from supervisor.model.errors import ClusterError, LoginFailed, LoginNeedsPerson, TookTooLong

_SSH_FAILED = 255
"""Exit status of ``ssh`` for its own failures; a remote command may end with it too."""
_MASTER_CHECK_S = 10.0
_REFUSED_SESSION = b"Session open refused by peer"
_TRIES = 20
_BETWEEN_TRIES_S = 0.25


class OpensshShell:
    """Runs each script by ``ssh -S CONTROL_PATH … sh -s``."""

    def __init__(self, cluster: str, node: LoginNode, settings: LoginSettings) -> None:
        if settings.control_path is None:
            raise ValueError("control_path is needed")
        self._cluster, self._node, self._settings = cluster, node, settings
        self._control_path = settings.control_path
        if self._control_path.startswith("~/"):
            self._control_path = str(Path(self._control_path).expanduser())
        self._sessions = asyncio.Semaphore(settings.max_sessions)

    @property
    def place(self) -> str:
        return f"{self._node} through {self._control_path}"

    async def run(self, script: str, *, limit_s: float, limit_bytes: int = 64 * 2**20) -> Ran:
        try:
            async with asyncio.timeout(limit_s):
                async with self._sessions:
                    return await self._run(whole(script), limit_s, limit_bytes)
        except TimeoutError:
            raise TookTooLong(self._cluster, f"the command on {self.place}", limit_s) from None
        except OSError as error:
            raise LoginFailed(self._cluster, f"the program ssh could not be started: {error}") from error

    async def close(self) -> None:
        """The master connection belongs to the person who opened it and stays."""

    async def _run(self, script: bytes, limit_s: float, limit_bytes: int) -> Ran:
        for _ in range(_TRIES):
            ran = await captured(self._argv("exec sh -s"), script, limit_s=limit_s, limit_bytes=limit_bytes)
            if ran.exit_status != _SSH_FAILED:
                return ran
            if not await self._master_lives():
                if ran.stdout:
                    return Ran(None, ran.stdout, ran.stderr)
                raise LoginNeedsPerson(
                    self._cluster,
                    f"no master connection answers at {self._control_path}",
                    hint=f"open it by hand and log in once: {self._opening_command()}",
                )
            if ran.stdout or _REFUSED_SESSION not in ran.stderr:
                return ran
            # Others hold all sessions of the master (MaxSessions). The script has not started: waiting is safe.
            await asyncio.sleep(_BETWEEN_TRIES_S)
        raise ClusterError(
            self._cluster,
            f"{self.place} refuses more sessions (sshd's MaxSessions)",
            hint="lower max_sessions, or end other sessions that use this master connection",
        )

    async def _master_lives(self) -> bool:
        try:
            asked = await captured(self._argv(None), b"", limit_s=_MASTER_CHECK_S, limit_bytes=4096)
        except TimeoutError:
            return False
        return asked.exit_status == 0

    def _argv(self, command: str | None) -> list[str]:
        argv = ["ssh", *self._config_file(), "-S", self._control_path]
        for option in (
            "ControlMaster=no",
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            "ProxyCommand=false",
            "RequestTTY=no",
            "RemoteCommand=none",
            "ClearAllForwardings=yes",
            "LogLevel=ERROR",
        ):
            argv += ["-o", option]
        argv += ["-O", "check"] if command is None else ["-T"]
        argv += [*self._where(), "--", self._node.host]
        return argv if command is None else [*argv, command]

    def _opening_command(self) -> str:
        parts = ["ssh", *self._config_file(), "-M", "-S", self._control_path, "-o", "ControlPersist=yes", "-fN"]
        return shlex.join([*parts, *self._where(), self._node.host])

    def _config_file(self) -> list[str]:
        config = self._settings.ssh_config
        return [] if config is True else ["-F", "none" if config is False else str(config)]

    def _where(self) -> list[str]:
        where = ["-l", self._node.user] if self._node.user else []
        return where + (["-p", str(self._node.port)] if self._node.port else [])
