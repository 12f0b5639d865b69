"""A real Slurm behind a real sshd."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from supervisor.clusters.slurm import SlurmCluster
from supervisor.model.ports import Cluster
from tests.contract.driving import Driver, Drivers
from tests.labs import SlurmLab, start_slurm_lab


class SlurmDriver:
    """Jobs are batch jobs of the lab's user; the login node's sshd is cut off, and the controller hangs."""

    patience_s = 60.0
    deadline_s = 20.0
    any_name = True

    def __init__(self, lab: SlurmLab) -> None:
        self.lab = lab
        settings = lab.settings(queue_timeout_s=5, accounting_timeout_s=5, connect_timeout_s=3, login_timeout_s=3)
        self.cluster: Cluster = SlurmCluster("lab", settings, settings.shells("lab"))

    def start(self, name: str, script: str) -> str:
        return self.lab.submit(f"--job-name={name}", f"--output={self.lab.home}/contract-%j.out", script=script)

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        with self.lab.broken("stop", "sshd"):
            yield

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        with self.lab.broken("pause", "slurmctld"):
            yield


@contextlib.contextmanager
def _slurm(request: pytest.FixtureRequest) -> Iterator[Driver]:
    driver = SlurmDriver(start_slurm_lab("a"))
    try:
        yield driver
    finally:
        driver.lab.clear()


DRIVERS: Drivers = {"slurm": _slurm}
