"""Fixtures of the iris tests: answers of a real controller, the real lab, and clusters that look at one user's jobs alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from supervisor.clusters.iris import IrisCluster
from supervisor.clusters.iris_settings import IrisSettings
from supervisor.model.job import JobKey, Observation
from supervisor.model.polling import Polled, Reading, Watch
from tests.iris_lab import IrisLab, iris_lab

__all__ = ["iris_lab"]

ANSWERS = Path(__file__).with_name("answers")


@pytest.fixture
def answer() -> Callable[[str], bytes]:
    """The body of a real answer, by its name."""
    return lambda name: (ANSWERS / f"{name}.json").read_bytes().rstrip(b"\n")


class Eyes:
    """A cluster and what the daemon would remember of it between polls."""

    def __init__(self, cluster: IrisCluster, user: str) -> None:
        self.cluster, self.user = cluster, user
        self.watch = Watch()
        self.live: dict[str, JobKey] = {}

    async def look(self) -> Reading:
        reading = await self.cluster.poll(self.watch, datetime.now(UTC))
        if isinstance(reading, Polled):
            self.live.update({one.key.id: one.key for one in reading.changed if one.state.live})
            for one in reading.ended:
                if one.final:
                    self.live.pop(one.key.id, None)
            self.watch = Watch(lines=dict(reading.lines), live=dict(self.live), ended_since=reading.at)
        return reading

    async def poll(self) -> Polled:
        reading = await self.look()
        assert isinstance(reading, Polled), reading
        return reading

    def id(self, name: str) -> str:
        return f"{self.user}/{name}"

    async def see(self, name: str, *, ended: bool = False) -> Observation:
        """What a look that remembers no record says of one job."""
        self.watch = Watch(live=self.watch.live)
        reading = await self.poll()
        found = [one for one in (reading.ended if ended else reading.changed) if one.key.id == self.id(name)]
        final = [one for one in found if one.final or not ended]
        assert len(final) == 1, (name, reading)
        return final[0]

    async def earlier(self, name: str) -> list[Observation]:
        """Ends of attempts that another followed."""
        self.watch = Watch(live=self.watch.live)
        reading = await self.poll()
        return [one for one in reading.ended if one.key.id == self.id(name) and not one.final]


MakeEyes = Callable[..., Eyes]


@pytest.fixture
async def eyes_of(iris_lab: IrisLab) -> AsyncIterator[MakeEyes]:
    """Makes clusters with settings of the test's own, all looking at one user's jobs."""
    made: list[Eyes] = []
    user = iris_lab.user()

    def make(**settings: Any) -> Eyes:
        given = {"url": iris_lab.url, "users": (user,), "request_timeout_s": 5, "poll_timeout_s": 10} | settings
        made.append(Eyes(IrisCluster("marin", IrisSettings(**given)), user))
        return made[-1]

    yield make
    for one in made:
        await one.cluster.close()
    iris_lab.end_all(user)


@pytest.fixture
def eyes(eyes_of: MakeEyes) -> Eyes:
    return eyes_of()
