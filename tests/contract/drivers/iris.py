"""A real iris controller, whose tasks are real processes of this machine."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator

import pytest

from supervisor.clusters.iris import IrisCluster
from supervisor.clusters.iris_settings import IrisSettings
from supervisor.model.ports import Cluster
from tests.contract.driving import Driver, Drivers
from tests.iris_lab import IrisLab, start_iris_lab

PACED = 'set -o pipefail; {script} | while IFS= read -r line; do printf "%s\\n" "$line"; sleep 0.02; done'
"""Iris's process runtime hands on one line each time that output arrives, and holds back the rest of a burst until more comes."""


class IrisDriver:
    """Jobs are root jobs of one task. The controller is stopped, and hangs; tasks go on without it."""

    patience_s = 40.0
    deadline_s = 5.0
    any_name = False

    def __init__(self, lab: IrisLab) -> None:
        self.lab = lab
        # Two of them, since a name is unique among its user's jobs.
        self.users = (lab.user(), lab.user())
        self.started: set[str] = set()
        settings = IrisSettings(
            url=lab.url, users=self.users, request_timeout_s=3, poll_timeout_s=5, log_looks_timeout_s=3
        )
        self.cluster: Cluster = IrisCluster("lab", settings)

    def start(self, name: str, script: str) -> str:
        path = next(path for user in self.users if (path := f"/{user}/{name}") not in self.started)
        self.started.add(path)
        self.lab.submit(path, shlex.join(("bash", "-c", PACED.format(script=shlex.join(("sh", "-c", script))))))
        return path.removeprefix("/")

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        with self.lab.stopped():
            yield

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        with self.lab.paused():
            yield


@contextlib.contextmanager
def _iris(request: pytest.FixtureRequest) -> Iterator[Driver]:
    driver = IrisDriver(start_iris_lab())
    try:
        yield driver
    finally:
        driver.lab.end_all(*driver.users)


DRIVERS: Drivers = {"iris": _iris}
