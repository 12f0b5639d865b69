"""Real Slurm clusters for tests, each behind a real sshd on loopback, started by ``deploy/lab/slurm-lab`` when first asked for.

``slurm_lab`` is one cluster, ``slurm_lab_b`` a second one beside it; both last for the test session and are shared, so a
test that breaks a part mends it again: see :meth:`SlurmLab.broken`. Where a lab can't run, the tests that ask for it are
skipped with the lab's own reason.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from supervisor.clusters.slurm_settings import SlurmSettings

T = TypeVar("T")
SCRIPT = Path(__file__).resolve().parents[1] / "deploy" / "lab" / "slurm-lab"
_running: dict[str, SlurmLab | str] = {}
"""Labs of this process by name; a text is the reason why one could not be started."""


@dataclass
class SlurmLab:
    """A running cluster and its ways to break."""

    folder: Path
    facts: dict[str, Any]
    jobs: list[str] = field(default_factory=list)

    def lab(self, *words: str, timeout: float = 60) -> str:
        """One command of the lab script itself."""
        return _lab(self.folder, *words, timeout=timeout)

    def ssh(self, script: str, timeout: float = 60) -> str:
        """A shell script as the lab's user, on the login node. Raises on a non-zero exit status."""
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "ssh", "--dir", str(self.folder), "--", "sh -s"],
            input=script,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"{script!r} exited {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def root(self, *words: str, timeout: float = 60) -> str:
        """A Slurm command as root."""
        return self.lab("exec", "--", *words, timeout=timeout)

    def submit(self, *words: str, script: str | None = None) -> str:
        """``sbatch`` with these arguments, ``script`` as ``--wrap``. The new job's id."""
        wrap = ("--wrap", script) if script is not None else ()
        job = self.ssh(shlex.join(("sbatch", "--parsable", *words, *wrap))).strip()
        self.jobs.append(job)
        return job

    def state(self, job: str) -> str:
        """The queue's word for a job, for waiting until a test can begin; empty where it is not listed."""
        with contextlib.suppress(AssertionError):
            words = self.ssh(f"squeue -h -t all -j {shlex.quote(job)} -o %T").split()
            return words[0] if words else ""
        return ""

    def until(self, what: str, holds: Callable[[], T], timeout: float = 40) -> T:
        """Wait for a condition of the lab, looking ten times a second."""
        end = time.monotonic() + timeout
        while True:
            got = holds()
            if got:
                return got
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not after {timeout:g} s")
            time.sleep(0.1)

    def until_state(self, job: str, *words: str, timeout: float = 40) -> str:
        def word() -> str:
            return now if (now := self.state(job)) in words else ""

        return self.until(f"{job} is {' or '.join(words)}", word, timeout)

    @contextlib.contextmanager
    def broken(self, how: str, *names: str) -> Iterator[None]:
        """``stop`` or ``pause`` services, and mend them again."""
        mend = {"stop": "start", "pause": "resume"}[how]
        self.lab(how, *names)
        try:
            yield
        finally:
            self.lab(mend, *names)
            self.lab("up")

    def clear(self) -> None:
        """End all jobs of the lab's user."""
        self.ssh(f"scancel -u {shlex.quote(self.facts['user'])}")
        self.until("the queue is drained", lambda: not self.ssh("squeue -h"), timeout=120)

    @property
    def home(self) -> str:
        return str(self.facts["home"])

    def settings(self, **changes: Any) -> SlurmSettings:
        """Settings that log in to this lab and to nothing else."""
        login = {
            "login_nodes": (f"{self.facts['user']}@{self.facts['host']}:{self.facts['port']}",),
            "identity_file": self.facts["key"],
            "known_hosts": self.facts["known_hosts"],
            "ssh_config": False,
            "agent": False,
        }
        return SlurmSettings(**(login | changes))


def start_slurm_lab(name: str, *options: str) -> SlurmLab:
    """The running lab of this name, started now if it is the first call. Raises pytest's skip where it can't run."""
    lab = _running.get(name)
    if lab is None:
        lab = _running[name] = _up(name, options)
    if isinstance(lab, str):
        pytest.skip(lab)
    return lab


def _up(name: str, options: Sequence[str]) -> SlurmLab | str:
    folder = Path(tempfile.mkdtemp(prefix=f"slurm-lab-{name}-"))
    folder.chmod(0o755)
    try:
        _lab(folder, "up", "--gpu-nodes", "2", "--cpu-nodes", "2", *options, timeout=300)
        lab = SlurmLab(folder, json.loads(_lab(folder, "env", "--json")))
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        _down(folder)
        return f"no Slurm lab: {error}"
    atexit.register(_down, folder)
    return lab


def _down(folder: Path) -> None:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, AssertionError):
        _lab(folder, "down", "--purge")
    shutil.rmtree(folder, ignore_errors=True)


def _lab(folder: Path, command: str, *words: str, timeout: float = 60) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), command, "--dir", str(folder), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise AssertionError(f"slurm-lab {command} exited {done.returncode}: {said[-1] if said else ''}")
    return done.stdout


@pytest.fixture(scope="session")
def slurm_lab() -> SlurmLab:
    return start_slurm_lab("a")


@pytest.fixture(scope="session")
def slurm_lab_b() -> SlurmLab:
    return start_slurm_lab("b")
