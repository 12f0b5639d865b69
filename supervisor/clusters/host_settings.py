"""Settings of ``kind = "host"``: processes on one machine without a scheduler. Durations are seconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal

from pydantic import Field, model_validator

from supervisor.clusters.local import LocalShell
from supervisor.clusters.login_settings import LoginSettings, NodeText
from supervisor.clusters.shell import Shell
from supervisor.clusters.transports import shell_for


class HostSettings(LoginSettings, frozen=True, extra="forbid"):
    """One machine, this one or another, whose processes were started by ``supervisorctl launch``."""

    kind: Literal["host"] = "host"
    host: NodeText | None = None
    """Another machine, ``[user@]host[:port]``, read over SSH. Default: this machine."""
    records: str | None = Field(default=None, pattern=r"^(/|~/).*")
    """Folder of the launch records on that machine. Default: ``host`` in the state folder here,
    ``~/.local/state/fleet-supervisor/host`` on another machine (where ``launch`` without a config writes)."""
    users: tuple[str, ...] = ()
    """Only processes launched by these users (POLL-8). Default: all in the records folder."""
    poll_timeout_s: float = Field(default=30, gt=0, le=600)
    """Longest that one poll may take, seconds."""
    logs_timeout_s: float = Field(default=60, gt=0, le=600)
    """Longest that reading pieces of logs may take, seconds."""
    cancel_grace_s: int = Field(default=30, ge=0, le=600)
    """Between asking a cancelled process group to end (SIGTERM) and ending it (SIGKILL), seconds."""
    first_look_back_s: float = Field(default=24 * 3600, ge=0, le=30 * 24 * 3600)
    """How far back ended processes are listed when the machine is polled for the first time, seconds (POLL-7)."""
    look_back_margin_s: float = Field(default=300, ge=0, le=24 * 3600)
    """How much further than the last good reading ended processes are listed, seconds (POLL-7)."""
    keep_ended_days: float | None = Field(default=None, gt=0)
    """Days after which the record and the log of an ended process are deleted by the next ``launch`` on this machine.

    Default: never."""

    @model_validator(mode="after")
    def _somewhere(self) -> HostSettings:
        if self.host is None and self.transport == "openssh":
            raise ValueError('transport = "openssh" needs host, the other machine')
        if self.host is not None and self.transport == "local":
            raise ValueError('host is another machine, and transport = "local" reads this one: drop one of them')
        return self

    @property
    def here(self) -> bool:
        """Whether it is this machine."""
        return self.host is None

    def shell(self, cluster: str, clock: Callable[[], datetime] | None = None) -> Shell:
        """A shell on that machine over the configured transport. Nothing is opened yet."""
        return LocalShell(cluster) if self.host is None else shell_for(cluster, self.host, self, clock)
