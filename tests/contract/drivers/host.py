"""Plain hosts: this machine, and the same one over a real sshd."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.clusters.host import HostCluster
from supervisor.clusters.host_settings import HostSettings
from supervisor.model.ports import Cluster
from tests.clusters.shells.private_sshd import SSHD, PrivateSshd
from tests.contract.driving import Driver, Drivers


class HostDriver:
    """Jobs are real processes, started by ``supervisorctl launch``."""

    patience_s = 20.0
    deadline_s = 3.0
    any_name = True

    def __init__(self, state: Path, settings: HostSettings, sshd: PrivateSshd | None) -> None:
        self.state, self.sshd = state, sshd
        self.cluster: Cluster = HostCluster("box", settings, settings.shell("box"), state / "host")

    def start(self, name: str, script: str) -> str:
        command = [
            sys.executable,
            "-m",
            "supervisor.app.ctl",
            "launch",
            "--state-dir",
            str(self.state),
            f"--name={name}",
        ]
        done = subprocess.run(
            [*command, "--json", "--", "sh", "-c", script], capture_output=True, text=True, check=True
        )
        return str(json.loads(done.stdout)["job"]).partition("/")[2]

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        if self.sshd is not None:
            self.sshd.stop()
        away = self.state / "unmounted"
        (self.state / "host").rename(away)
        try:
            yield
        finally:
            away.rename(self.state / "host")
            if self.sshd is not None:
                self.sshd.start()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        if self.sshd is None:
            pytest.skip("nothing stands between the daemon and its own machine that could hang")
        self.sshd.freeze()
        try:
            yield
        finally:
            self.sshd.thaw()

    def end_all(self) -> None:
        for file in (self.state / "host" / "live").glob("*.json"):
            with contextlib.suppress(OSError, ValueError, TypeError):
                os.killpg(json.loads(file.read_text())["pid"], signal.SIGKILL)


@contextlib.contextmanager
def _here(request: pytest.FixtureRequest) -> Iterator[Driver]:
    state: Path = request.getfixturevalue("tmp_path") / "state"
    driver = HostDriver(state, HostSettings(cancel_grace_s=3), None)
    try:
        yield driver
    finally:
        driver.end_all()


@contextlib.contextmanager
def _over_ssh(request: pytest.FixtureRequest) -> Iterator[Driver]:
    if SSHD is None:
        pytest.skip("no sshd on this machine")
    state: Path = request.getfixturevalue("tmp_path") / "state"
    folder: Path = request.getfixturevalue("tmp_path") / "sshd"
    folder.mkdir()
    sshd = PrivateSshd(folder)
    settings = HostSettings.model_validate(
        sshd.settings().model_dump()
        | {
            "host": sshd.node,
            "records": str(state / "host"),
            "poll_timeout_s": 3,
            "logs_timeout_s": 3,
            "cancel_grace_s": 3,
        }
    )
    driver = HostDriver(state, settings, sshd)
    try:
        yield driver
    finally:
        driver.end_all()
        sshd.stop()


DRIVERS: Drivers = {"host": _here, "host over ssh": _over_ssh}
