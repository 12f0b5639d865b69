"""What the shell asks of a backend. A kind of cluster is one class with these methods, tested by one contract suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from supervisor.model.job import JobKey, Observation
from supervisor.model.logs import LogRead, LogWanted
from supervisor.model.polling import Check, Reading, Watch
from supervisor.model.probe import Captured, CaptureWanted, Remains


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person's leave to cancel one attempt of one job, once (KILL-1).

    Built in one place only, from a stored row that a person or their standing rule caused; see ``store``.
    """

    id: int
    job: JobKey
    attempt: int
    verdict_digest: str
    approved_by: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class CancelReceipt:
    """What is known after a cancel was sent. ``accepted`` None: it failed in a way that may have worked (KILL-6)."""

    accepted: bool | None
    output: str


@runtime_checkable
class Cluster(Protocol):
    """A place where jobs run. Every method is bounded in time by the backend's own settings and never prompts.

    ``poll`` and ``read_logs`` turn every expected failure into a value; what they raise is a fault of ours.
    """

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    async def poll(self, watch: Watch, now: datetime) -> Reading:
        """One reading. ``now`` is our clock; the backend measures the cluster's offset against it (POLL-10)."""
        ...

    async def read_logs(self, wanted: Sequence[LogWanted], now: datetime) -> Mapping[tuple[str, str], LogRead]:
        """Pieces of logs by (job id, path); each wanted one has an answer. One remote command for all of them."""
        ...

    async def cancel(self, job: JobKey, approval: Approval) -> CancelReceipt:
        """Send one cancel for exactly this attempt. Raises NotApproved where the approval is for another."""
        ...

    async def capture(self, wanted: CaptureWanted, now: datetime) -> Sequence[Captured]:
        """Evidence of one job, bounded by ``wanted``; it reads only (PROBE-14).

        Each thing that was asked for and did not come is a Captured with its failure, never left out. Raises ClusterError only
        where nothing at all could be asked.
        """
        ...

    async def remains(self, seen: Observation, now: datetime) -> Remains:
        """What of this attempt is still there after its cancel: processes, steps, pods, an allocation (KILL-3)."""
        ...

    async def check(self, now: datetime) -> Sequence[Check]:
        """Reachability, credentials and their expiry, versions: one line each (POLL-12)."""
        ...

    async def close(self) -> None: ...
