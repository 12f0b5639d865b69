"""A real iris controller, its log server and its workers for tests, started by the ``iris-lab`` script when first asked for.

Tasks are processes of this machine. Where the lab can't run, the tests that ask for it are skipped with its own reason.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
Json = dict[str, Any]

_ROOT = Path(__file__).resolve().parents[1]
_numbers = itertools.count(1)
_running: list[IrisLab | str] = []
"""The lab of this process; a text is the reason why it could not be started."""
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass
class IrisLab:
    """A running cluster, its ways to break, and a plain client of its own for making what tests look at."""

    script: Path
    folder: Path
    facts: dict[str, str]

    @property
    def url(self) -> str:
        return self.facts["IRIS_LAB_URL"]

    def token(self, role: str) -> str:
        """A token of the role ``admin``, ``user`` or ``dashboard``."""
        return self.facts[f"IRIS_LAB_{role.upper()}_TOKEN"]

    def lab(self, *words: str) -> str:
        return _lab(self.script, self.folder, *words)

    def user(self) -> str:
        """A user that no other test has used: an iris job's name may be used again, and its record stays for days."""
        return f"alice{next(_numbers)}"

    def submit(self, path: str, script: str, *options: str) -> str:
        """A job that runs ``script`` by ``sh``. Its path."""
        return self.lab("submit", "--name", path, *options, "--", "sh", "-c", script).strip()

    def rpc(self, method: str, **body: Any) -> Json:
        request = urllib.request.Request(
            f"{self.url}/iris.cluster.ControllerService/{method}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with _opener.open(request, timeout=20) as answer:
            return dict(json.loads(answer.read()))

    def counts(self, path: str) -> dict[str, int]:
        return dict(self.rpc("GetJobStatus", jobId=path)["job"].get("taskStateCounts") or {})

    def state(self, path: str) -> str:
        return str(self.rpc("GetJobStatus", jobId=path)["job"]["state"]).removeprefix("JOB_STATE_").lower()

    def until_state(self, path: str, *states: str) -> None:
        self.until(f"{path} is {states}", lambda: self.state(path) in states)

    def until_counts(self, path: str, **counts: int) -> None:
        self.until(f"tasks of {path} are {counts}", lambda: self.counts(path) == counts)

    def until(self, what: str, holds: Callable[[], T], timeout: float = 40) -> T:
        """Wait for a condition of the lab, looking ten times a second."""
        end = time.monotonic() + timeout
        while not (got := holds()):
            assert time.monotonic() < end, f"{what}: not after {timeout:g} s"
            time.sleep(0.1)
        return got

    def end_all(self, *users: str) -> None:
        """Cancel what still goes on."""
        for user in users:
            listed = self.rpc("ListJobs", query={"jobIdPrefix": f"/{user}/", "limit": 500}).get("jobs") or ()
            for job in listed:
                if job["state"] in ("JOB_STATE_RUNNING", "JOB_STATE_PENDING"):
                    with contextlib.suppress(urllib.error.HTTPError):
                        self.rpc("TerminateJob", jobId=job["jobId"])

    @contextlib.contextmanager
    def stopped(self, name: str = "controller", how: str = "stop") -> Iterator[None]:
        self.lab(how, name)
        try:
            yield
        finally:
            self.lab("start", name)

    @contextlib.contextmanager
    def paused(self, name: str = "controller") -> Iterator[None]:
        self.lab("pause", name)
        try:
            yield
        finally:
            self.lab("resume", name)


def start_iris_lab() -> IrisLab:
    """The running lab, started now if it is the first call. Raises pytest's skip where it can't run."""
    if not _running:
        _running.append(_up())
    lab = _running[0]
    if isinstance(lab, str):
        pytest.skip(lab)
    return lab


def _script() -> Path | None:
    folders = [os.environ.get("SUPERVISOR_LABS"), _ROOT / "deploy" / "lab", _ROOT.parent / "shared" / "lab"]
    scripts = [Path(folder) / "iris-lab" for folder in folders if folder]
    return next((script for script in scripts if script.exists()), None)


@contextlib.contextmanager
def own_iris_lab(*options: str) -> Iterator[IrisLab]:
    """A lab for one test alone. Raises pytest's skip where it can't run."""
    lab = _up(*options)
    if isinstance(lab, str):
        pytest.skip(lab)
    try:
        yield lab
    finally:
        _down(lab.script, lab.folder)


def _up(*options: str) -> IrisLab | str:
    script = _script()
    if script is None:
        return "no iris-lab here: set SUPERVISOR_LABS to the folder that holds it"
    folder = Path(tempfile.mkdtemp(prefix="iris-lab-"))
    atexit.register(_down, script, folder)
    try:
        _lab(script, folder, "up", *options, timeout=600)
        facts = json.loads(_lab(script, folder, "env", "--json"))
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        return f"no iris lab: {error}"
    return IrisLab(script, folder, facts)


def _down(script: Path, folder: Path) -> None:
    if not folder.exists():
        return
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, AssertionError):
        _lab(script, folder, "down", "--purge")
    shutil.rmtree(folder, ignore_errors=True)


def _lab(script: Path, folder: Path, *words: str, timeout: float = 120) -> str:
    done = subprocess.run(
        [sys.executable, str(script), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "IRIS_LAB_DIR": str(folder)},
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise AssertionError(f"iris-lab {' '.join(words)} exited {done.returncode}: {said[-1] if said else ''}")
    return done.stdout


@pytest.fixture(scope="session")
def iris_lab() -> IrisLab:
    return start_iris_lab()
