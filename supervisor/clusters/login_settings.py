"""How a login node is reached: settings that every kind of cluster behind a shell shares.

Relative paths are relative to the configuration file: whoever validates hands its folder in as the validation context
``{"folder": Path}``; without it they are left as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo, model_validator

_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?|[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@$\\+-]*")


@dataclass(frozen=True, slots=True)
class LoginNode:
    """One place to log in. None: what the user's ssh config, or ssh's own default, says."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user + '@' if self.user else ''}{host}{f':{self.port}' if self.port else ''}"

    @classmethod
    def parse(cls, text: str) -> LoginNode:
        """``[user@]host[:port]``, an IPv6 address in brackets where a port follows. Raises ValueError, saying what is allowed."""
        user, at, place = text.rpartition("@")
        if at and not _USER.fullmatch(user):
            raise ValueError(f"{text!r} has no usable user name before the @: allowed is [user@]host[:port]")
        host, port = place, ""
        if place.startswith("["):
            host, closed, rest = place[1:].partition("]")
            if not closed or (rest and not rest.startswith(":")):
                raise ValueError(f"{text!r} has an unclosed bracket: allowed is [user@][IPv6 address][:port]")
            port = rest[1:]
            if rest and not port:
                raise ValueError(f"{text!r} ends before its port")
        elif place.count(":") == 1:
            host, _, port = place.partition(":")
            if not port:
                raise ValueError(f"{text!r} ends before its port")
        if not _HOST.fullmatch(host):
            raise ValueError(f"{text!r} does not name a host: allowed is [user@]host[:port]")
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{text!r} has the port {port!r}: allowed is 1 to 65535")
        return cls(host, user or None, int(port) if port else None)


def _node(text: str) -> str:
    LoginNode.parse(text)
    return text


def _resolved(path: Path, info: ValidationInfo) -> Path:
    path = path.expanduser()
    folder = (info.context or {}).get("folder")
    return path if path.is_absolute() or folder is None else Path(folder) / path


NodeText = Annotated[str, AfterValidator(_node)]
"""``[user@]host[:port]``, checked."""
ConfigPath = Annotated[Path, AfterValidator(_resolved)]
"""A path of the configuration: ``~`` expanded, relative to the configuration file's folder."""


class LoginSettings(BaseModel, frozen=True, extra="forbid"):
    """What a cluster's settings inherit to say how its login nodes are reached."""

    transport: Literal["asyncssh", "openssh", "local"] = "asyncssh"
    """How commands get there.

    ``asyncssh``: a connection of the daemon's own, kept open. ``openssh``: the system's ``ssh`` through a master
    connection that a person has opened (for two-factor logins; see ``control_path``). ``local``: the daemon runs on the
    login node itself.
    """
    login_user: str | None = Field(default=None, pattern=_USER.pattern)
    """User to log in as. Default: the one in ``user@host``, else ssh config's, else the daemon's own."""
    identity_file: ConfigPath | None = None
    """Private key. Default: ssh config's, else the usual names in ``~/.ssh``.

    A certificate beside it (``FILE-cert.pub``) is used with it."""
    certificate_file: ConfigPath | None = None
    """OpenSSH user certificate, where it does not lie beside the key. Default: none."""
    known_hosts: ConfigPath | None = None
    """File of host keys to trust. Default: ssh config's, else ``~/.ssh/known_hosts`` and the system's.

    Host keys are always verified."""
    ssh_config: bool | ConfigPath = True
    """Whether the user's ``~/.ssh/config`` counts (ProxyJump, HostName, User, …), or another file to read in its place."""
    agent: bool = True
    """Whether keys of a running ssh-agent (``SSH_AUTH_SOCK`` or ssh config's IdentityAgent) are offered."""
    control_path: str | None = Field(default=None, min_length=1)
    """Socket of the master connection for ``transport = "openssh"``; ssh's own tokens are allowed (``%h``, ``%p``, ``%C`` …)."""
    connect_timeout_s: float = Field(default=15, gt=0, le=600)
    """Seconds for reaching the host and agreeing on keys."""
    login_timeout_s: float = Field(default=30, gt=0, le=600)
    """Seconds for logging in once the host is reached; a slow directory service counts here."""
    keepalive_s: float = Field(default=15, gt=0, le=3600)
    """Seconds of silence after which the far side is asked whether it is still there."""
    keepalive_misses: int = Field(default=3, ge=1, le=100)
    """Unanswered questions in a row after which the connection is given up."""
    max_sessions: int = Field(default=8, ge=1, le=100)
    """Commands at once over one connection. OpenSSH's default limit (MaxSessions) is 10."""

    @model_validator(mode="after")
    def _transport_has_what_it_needs(self) -> LoginSettings:
        if self.transport == "openssh" and self.control_path is None:
            raise ValueError('transport = "openssh" needs control_path, the socket of the master connection')
        if self.transport != "openssh" and self.control_path is not None:
            raise ValueError(f'control_path is used by transport = "openssh" only, and transport is "{self.transport}"')
        return self

    def node(self, text: str) -> LoginNode:
        """``text`` of the configuration with ``login_user`` filled in where it names no user."""
        node = LoginNode.parse(text)
        return node if node.user or not self.login_user else LoginNode(node.host, self.login_user, node.port)
