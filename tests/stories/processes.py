"""``supervisord`` and ``supervisorctl`` as processes of their own, over real Slurm labs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.labs import SlurmLab


class Daemon:
    """``supervisord`` as a process of its own, started again after each kill."""

    def __init__(self, config: Path) -> None:
        self.config, self.log = config, config.with_name("supervisord.log")
        self.process: subprocess.Popen[bytes] | None = None
        self.submitted: dict[str, list[str]] = {}

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "supervisor.app.daemon", "--config", str(self.config)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=30)

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "supervisor.app.ctl", "--config", str(self.config), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    def status(self) -> dict[str, Any]:
        done = self.ctl("status", "--all", "--json")
        assert done.returncode in (0, 3, 4), done.stderr
        return json.loads(done.stdout)

    def jobs(self, document: dict[str, Any], cluster: str) -> dict[str, dict[str, Any]]:
        """This story's jobs on one cluster, by name; the labs may hold those of another."""
        mine = self.submitted[cluster]
        return {job["name"]: job for job in document["jobs"] if job["cluster"] == cluster and job["id"] in mine}

    def until(self, holds: Callable[[dict[str, Any]], bool], what: str, seconds: float = 90) -> dict[str, Any]:
        """The first status of which ``holds`` is true; polled by its own clock, bounded."""
        ends = time.monotonic() + seconds
        while True:
            document = self.status()
            if holds(document):
                return document
            assert time.monotonic() < ends, f"{what}: not within {seconds} s; {self.log.read_text()[-3000:]}"
            time.sleep(0.5)


def config_for(folder: Path, labs: Sequence[SlurmLab], database: str = "", more: str = "") -> Path:
    """A config file over these labs; ``more`` stands behind the clusters."""
    lines = ['state_dir = "state"', 'agent_logs = "agent_logs"', "interval_s = 5"]
    if database:
        lines.append(f'database_url = "{database}"')
    for lab in labs:
        facts = lab.facts
        lines += [
            "[[cluster]]", f'name = "{facts["cluster"]}"', 'kind = "slurm"', f'login_nodes = ["{facts["host"]}:{facts["port"]}"]',
            f'login_user = "{facts["user"]}"', f'identity_file = "{facts["key"]}"', f'known_hosts = "{facts["known_hosts"]}"',
            "ssh_config = false", "agent = false", "queue_timeout_s = 6", "first_look_back_s = 120",
        ]  # fmt: skip
    path = folder / "config.toml"
    path.write_text("\n".join(lines) + "\n" + more)
    return path
