"""A records folder with real processes in it, and shells that stand between it and its reader."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from supervisor.clusters.host import HostCluster
from supervisor.clusters.host_settings import HostSettings
from supervisor.clusters.local import LocalShell, captured
from supervisor.clusters.shell import Ran, Shell, whole
from supervisor.model.job import Observation
from supervisor.model.polling import Polled, Reading, Watch

ROOT = Path(__file__).resolve().parents[3]


class Box:
    """This machine as a host cluster, with a state folder of the test's own."""

    def __init__(self, state: Path) -> None:
        self.state, self.records = state, state / "host"

    def run(self, *words: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
        """``supervisorctl`` with these words, in ``cwd``, under no other configuration than the test's own."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SUPERVISOR")}
        return subprocess.run(
            [sys.executable, "-m", "supervisor.app.ctl", *words],
            cwd=cwd,
            env={**clean, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(self.state / "no-config"), **environment},
            capture_output=True,
            text=True,
            check=False,
            errors="surrogateescape",
        )

    def launch(self, *command: str, name: str = "rl__x") -> str:
        """The new process's number."""
        done = self.run("launch", "--state-dir", str(self.state), f"--name={name}", "--json", "--", *command)
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["job"]).partition("/")[2]

    def sh(self, script: str, name: str = "rl__x") -> str:
        return self.launch("sh", "-c", script, name=name)

    def live(self, job: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.records / "live" / f"{job}.json").read_text())
        return record

    def edit(self, job: str, **changes: object) -> None:
        """What a reboot, another machine or a stranger with the same process id would have made of the record."""
        text = json.dumps(self.live(job) | changes, indent=1) + "\n"
        (self.records / "live" / f"{job}.json").write_text(text)

    def cluster(self, shell: Shell | None = None, **settings: Any) -> HostCluster:
        return HostCluster("box", HostSettings(**settings), shell or LocalShell("box"), self.records)

    async def poll(self, watch: Watch | None = None, shell: Shell | None = None, **settings: Any) -> Reading:
        return await self.cluster(shell, **settings).poll(watch or Watch(), datetime.now(UTC))

    async def good(self, watch: Watch | None = None, shell: Shell | None = None, **settings: Any) -> Polled:
        reading = await self.poll(watch, shell, **settings)
        assert isinstance(reading, Polled), reading
        return reading

    async def one(self, job: str, watch: Watch | None = None, **settings: Any) -> Observation:
        """What a poll says of one process, whether it lives or ended."""
        reading = await self.good(watch, **settings)
        found = [seen for seen in (*reading.changed, *reading.ended) if seen.key.id == job]
        assert len(found) == 1, reading
        return found[0]

    async def ended(self, job: str) -> Observation:
        await until(lambda: not (self.records / "live" / f"{job}.json").exists())
        return await self.one(job)

    def end_all(self) -> None:
        for file in self.records.glob("live/*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                record = json.loads(file.read_text())
                for kill, pid in ((os.killpg, record["pid"]), (os.kill, record["waiter"])):
                    if isinstance(pid, int) and pid > 1:
                        with contextlib.suppress(ProcessLookupError):
                            kill(pid, signal.SIGKILL)


async def until(holds: Callable[[], object], within_s: float = 20) -> None:
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.02)


class Prefixed(LocalShell):
    """A machine whose shell says or defines something before the script runs."""

    def __init__(self, before: str) -> None:
        super().__init__("box")
        self.before = before

    async def run(self, script: str, *, limit_s: float, limit_bytes: int = 64 * 2**20) -> Ran:
        return await super().run(f"{self.before}\n{script}", limit_s=limit_s, limit_bytes=limit_bytes)


class RunBy(LocalShell):
    """A machine whose ``sh`` is another one."""

    def __init__(self, argv: Sequence[str]) -> None:
        super().__init__("box")
        self.argv = argv

    async def run(self, script: str, *, limit_s: float, limit_bytes: int = 64 * 2**20) -> Ran:
        return await captured(self.argv, whole(script), limit_s=limit_s, limit_bytes=limit_bytes)


class Recorded(LocalShell):
    """Keeps what the machine answered, and may hand on another answer."""

    def __init__(self, change: Callable[[Ran], Ran] = lambda ran: ran) -> None:
        super().__init__("box")
        self.change = change
        self.scripts: list[str] = []
        self.answers: list[Ran] = []

    async def run(self, script: str, *, limit_s: float, limit_bytes: int = 64 * 2**20) -> Ran:
        ran = await super().run(script, limit_s=limit_s, limit_bytes=limit_bytes)
        self.scripts.append(script)
        self.answers.append(ran)
        return self.change(ran)
