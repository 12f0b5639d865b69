"""What a kind of cluster brings to the contract suite, and the small part of the daemon that the suite plays itself.

A driver is one file in ``drivers/`` with a mapping ``DRIVERS``: a name for the test's id, and a function that takes
pytest's request and gives a context manager of a ``Driver`` on something real. Where it can't run, it skips with the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest

from supervisor.model.job import JobKey, Observation
from supervisor.model.polling import Polled, Reading, Watch
from supervisor.model.ports import Approval, Cluster

Drivers = dict[str, Callable[[pytest.FixtureRequest], AbstractContextManager["Driver"]]]


class Driver(Protocol):
    """One cluster with real jobs in it."""

    @property
    def cluster(self) -> Cluster:
        """Built by its public constructor, with settings that reach nothing but the test's own server."""
        ...

    @property
    def patience_s(self) -> float:
        """Longest until what happened to a job shows in a poll."""
        ...

    @property
    def deadline_s(self) -> float:
        """Longest that a poll of a frozen cluster may take, by the settings that it was built with."""
        ...

    @property
    def any_name(self) -> bool:
        """Whether a job's name may hold any printable or unprintable character."""
        ...

    def start(self, name: str, script: str) -> str:
        """Start ``script`` by ``sh`` as a job, its output going to the job's log. Its id."""
        ...

    def cut(self) -> AbstractContextManager[None]:
        """Nothing can be reached, and what was open is dropped."""
        ...

    def frozen(self) -> AbstractContextManager[None]:
        """Whatever would answer hangs. Skips where that cannot be brought about."""
        ...


def approval_for(job: JobKey, number: int = 1) -> Approval:
    return Approval(
        id=number,
        job=job,
        attempt=1,
        verdict_digest="sha256:0",
        approved_by="alice",
        expires_at=datetime.now(UTC) + timedelta(hours=1),
    )


@dataclass
class Watcher:
    """Remembers between polls what the daemon would, and hands it back."""

    driver: Driver
    lines: dict[str, Hashable] = field(default_factory=dict)
    live: dict[str, JobKey] = field(default_factory=dict)
    listed: dict[str, Observation] = field(default_factory=dict)
    """Latest observation of each job while it was listed, by id; its details are carried along."""
    ended: dict[str, Observation] = field(default_factory=dict)
    ended_since: datetime | None = None

    def watch(self) -> Watch:
        detailed = frozenset(seen.key for seen in self.listed.values() if seen.details is not None)
        paths = {job: seen.details.log_path for job, seen in self.listed.items() if seen.details is not None}
        return Watch(
            lines=dict(self.lines),
            live=dict(self.live),
            detailed=detailed,
            logs={job: path for job, path in paths.items() if path is not None and job in self.live},
            ended_since=self.ended_since,
        )

    async def poll(self) -> Reading:
        """One reading, remembered if it was good."""
        reading = await self.driver.cluster.poll(self.watch(), datetime.now(UTC))
        if isinstance(reading, Polled):
            self._remember(reading)
        return reading

    async def good(self) -> Polled:
        reading = await self.poll()
        assert isinstance(reading, Polled), reading
        return reading

    async def until(self, what: str, holds: Callable[[], object]) -> None:
        """Poll until something holds of what is remembered."""
        end = time.monotonic() + self.driver.patience_s
        while True:
            await self.good()
            if holds():
                return
            assert time.monotonic() < end, (
                f"not within {self.driver.patience_s:g} s: {what}; {self.listed}; {self.ended}"
            )
            await asyncio.sleep(0.2)

    async def until_ended(self, job: str) -> Observation:
        await self.until(f"{job} has ended", lambda: job in self.ended)
        return self.ended[job]

    def _remember(self, reading: Polled) -> None:
        self.lines = dict(reading.lines)
        for seen in reading.changed:
            before = self.listed.get(seen.key.id)
            if seen.details is None and before is not None and before.key == seen.key:
                seen = _with_details(seen, before)  # noqa: PLW2901
            self.listed[seen.key.id] = seen
            if seen.state.live:
                self.live[seen.key.id] = seen.key
        for seen in reading.ended:
            if seen.final:
                self.ended[seen.key.id] = seen
                self.live.pop(seen.key.id, None)
        if reading.ends_read:
            self.ended_since = reading.at


def _with_details(seen: Observation, before: Observation) -> Observation:
    return replace(seen, details=before.details)
