"""Settings of one Slurm cluster, beside those of its login nodes. Durations are seconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from supervisor.clusters.login_settings import LoginSettings, NodeText

if TYPE_CHECKING:
    from supervisor.clusters.shell import Shell

SlurmName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._@+-]*$", max_length=128)]
"""A user or an account as Slurm spells it; no comma, since commas separate them."""

QUOTA_GROUPS = frozenset({"inodes_used", "inodes_soft", "bytes_used", "bytes_soft"})
"""Named groups that ``quota_pattern`` may have."""


class SlurmSettings(LoginSettings, frozen=True, extra="forbid"):
    """``kind = "slurm"``: a cluster that is asked by ``squeue`` and ``sacct`` on its login nodes."""

    kind: Literal["slurm"] = "slurm"
    login_nodes: tuple[NodeText, ...] = ()
    """Login nodes of this cluster, ``[user@]host[:port]``. More than one lets a lying or dead one be found out (POLL-3).

    Not needed where ``transport = "local"``."""
    users: tuple[SlurmName, ...] = ()
    """Whose jobs are watched (POLL-8). Default: the user of the login."""
    accounts: tuple[SlurmName, ...] = ()
    """Only jobs charged to these accounts. Default: any."""
    slurm_bin: str = Field(default="", pattern=r"^(/[^:\n\x00]*)?$")
    """Folder of ``squeue`` and ``sacct`` on the login nodes, where a login without a terminal lacks it in its PATH.

    Default: the PATH as it is."""
    queue_timeout_s: float = Field(default=30, ge=1, le=600)
    """Longest that ``squeue`` may take on the login node, seconds."""
    accounting_timeout_s: float = Field(default=45, ge=1, le=600)
    """Longest that ``sacct`` may take on the login node, seconds."""
    logs_timeout_s: float = Field(default=20, ge=1, le=600)
    """Longest that looking at the logs' sizes, or reading one piece of a log, may take there, seconds."""
    first_look_back_s: float = Field(default=24 * 3600, ge=0, le=30 * 24 * 3600)
    """How far back ended jobs are asked for when the cluster is polled for the first time, seconds (POLL-7)."""
    look_back_margin_s: float = Field(default=600, ge=60, le=24 * 3600)
    """How much further than the last good reading ended jobs are asked for, seconds; accounting lags (POLL-7)."""
    quota_command: str | None = Field(default=None, min_length=1, max_length=2000)
    """Shell command whose output tells the quota of the place where jobs write (CLEAN-4), such as ``lfs quota -u alice /scratch``.

    Run once a poll on the login node; it must be cheap. Default: none, and nothing is said of quotas."""
    quota_pattern: str | None = None
    """Regular expression for that output; its groups ``inodes_used``, ``inodes_soft``, ``bytes_used`` and ``bytes_soft``
    take the numbers, with or without a suffix K, M, G, T or P."""
    quota_unit_bytes: int = Field(default=1024, ge=1, le=2**40)
    """Size of one unit of ``bytes_used`` and ``bytes_soft`` where they have no suffix, bytes."""
    quota_timeout_s: float = Field(default=10, ge=1, le=600)
    """Longest that ``quota_command`` may take, seconds."""

    node_access: Literal["srun", "ssh", "none"] = "srun"
    """How a deep probe looks at a running job's processes on its compute nodes.

    ``srun``: a short step inside the job's own allocation, beside its other steps (``srun --overlap``; it shows in the
    accounting of the job's steps as ``supervisor-look``). ``ssh``: from the login node to the compute node, without a
    password. ``none``: not at all; what needs them is then an error of the probe, never a guess."""

    @field_validator("quota_pattern")
    @classmethod
    def _pattern_has_groups(cls, value: str | None) -> str | None:
        if value is None:
            return value
        try:
            groups = re.compile(value, re.MULTILINE).groupindex
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        if not groups or not groups.keys() <= QUOTA_GROUPS:
            raise ValueError(f"needs named groups, and of these only: {', '.join(sorted(QUOTA_GROUPS))}")
        return value

    @model_validator(mode="after")
    def _complete(self) -> SlurmSettings:
        if not self.login_nodes and self.transport != "local":
            raise ValueError('login_nodes is missing: at least one is needed unless transport = "local"')
        if (self.quota_command is None) != (self.quota_pattern is None):
            raise ValueError("quota_command and quota_pattern go together: one is set without the other")
        return self

    def shells(self, cluster: str, clock: Callable[[], datetime] | None = None) -> tuple[Shell, ...]:
        """One shell for each login node, over the configured transport. Nothing is opened yet.

        ``clock`` lets a refused login be put down to a certificate that has ended.
        """
        from supervisor.clusters.transports import shell_for

        nodes = ("localhost",) if self.transport == "local" else self.login_nodes
        return tuple(shell_for(cluster, node, self, clock) for node in nodes)
