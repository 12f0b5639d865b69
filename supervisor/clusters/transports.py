"""Which transport a setting means."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from supervisor.clusters.local import LocalShell
from supervisor.clusters.login_settings import LoginSettings
from supervisor.clusters.openssh import OpensshShell
from supervisor.clusters.shell import Shell


def shell_for(cluster: str, node: str, settings: LoginSettings, clock: Callable[[], datetime] | None = None) -> Shell:
    """A shell at ``node`` (``[user@]host[:port]``) of ``cluster``. Nothing is opened before its first run.

    ``clock`` lets a refused login be put down to a certificate that has ended.
    """
    if settings.transport == "local":
        return LocalShell(cluster)
    if settings.transport == "openssh":
        return OpensshShell(cluster, settings.node(node), settings)
    from supervisor.clusters.ssh import AsyncsshShell  # asyncssh takes a while to load, and not all need it

    return AsyncsshShell(cluster, settings.node(node), settings, clock)
