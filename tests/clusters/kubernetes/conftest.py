"""Fixtures of the Kubernetes tests: the real lab, a namespace of one's own in it, and clusters that look at nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from supervisor.clusters.kubernetes import KubernetesCluster
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.model.job import JobKey, Observation
from supervisor.model.polling import Polled, Reading, Watch
from tests.kube_lab import KubeLab, kube_lab

__all__ = ["kube_lab"]


class Eyes:
    """A cluster and what the daemon would remember of it between polls."""

    def __init__(self, cluster: KubernetesCluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
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

    @staticmethod
    def now() -> datetime:
        return datetime.now(UTC)

    def id(self, kind: str, name: str) -> str:
        return f"{self.namespace}/{kind}/{name}"

    async def see(self, kind: str, name: str, *, ended: bool = False) -> Observation:
        """What a fresh look says of one job."""
        self.watch = Watch(live=self.watch.live)
        reading = await self.poll()
        found = [one for one in (reading.ended if ended else reading.changed) if one.key.id == self.id(kind, name)]
        final = [one for one in found if one.final or not ended]
        assert len(final) == 1, (
            kind,
            name,
            [one.key.id for one in (*reading.changed, *reading.ended)],
            reading.problems,
        )
        return final[0]


MakeEyes = Callable[..., Eyes]


@pytest.fixture
def namespace(kube_lab: KubeLab) -> Iterator[str]:
    name = kube_lab.namespace()
    yield name
    kube_lab.clear(name)


@pytest.fixture
async def eyes_of(kube_lab: KubeLab, namespace: str) -> AsyncIterator[MakeEyes]:
    """Makes clusters with settings of the test's own."""
    made: list[Eyes] = []

    def make(**settings: Any) -> Eyes:
        given = {"kubeconfig": kube_lab.kubeconfig, "namespaces": (namespace,)} | settings
        made.append(Eyes(KubernetesCluster("east", KubernetesSettings(**given)), namespace))
        return made[-1]

    yield make
    for one in made:
        await one.cluster.close()


@pytest.fixture
def eyes(eyes_of: MakeEyes) -> Eyes:
    return eyes_of()
