"""A real Kubernetes API server for tests, started by the ``kube-lab`` script when first asked for, and gone with the session.

The API server, etcd, the controllers and the scheduler are real; pods play the life that their annotation says. Where the lab
can't run, the tests that ask for it are skipped with its own reason.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import http.client
import itertools
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

T = TypeVar("T")
Json = dict[str, Any]

_ROOT = Path(__file__).resolve().parents[1]
_numbers = itertools.count(1)
_IN_POD = """#!/bin/sh
PATH=${PATH#*:}
[ "$PWD" = "$HOME" ] && [ -f ./init ] || exec sh "$@"
read -r outer < ./init
inner=$(cat "/proc/$outer/task/$outer/children") && [ -n "$inner" ] || { echo 'its container has ended' >&2; exit 1; }
exec nsenter -t ${inner%% *} -p -m setsid sh "$@"
"""
"""The shell that the lab's kubelet finds for exec: it sees what the pod's own program sees, if that lives in a world of its own."""
_running: list[KubeLab | str] = []
"""The lab of this process; a text is the reason why it could not be started."""


@dataclass
class KubeLab:
    """A running cluster, its ways to break, and a plain client of its own for making what tests look at."""

    script: Path
    folder: Path
    facts: dict[str, str]

    @property
    def kubeconfig(self) -> Path:
        return Path(self.facts["KUBECONFIG"])

    @property
    def pod_logs(self) -> Path:
        return Path(self.facts["KUBE_LAB_PODLOGS"])

    def enter(self, namespace: str, pod: str, process: int) -> None:
        """A process, made by ``in_a_world``, as what runs in this pod: commands by exec see its processes and no others."""
        home = self.folder / "podfs" / namespace / pod
        home.mkdir(parents=True, exist_ok=True)
        (home / "init").write_text(f"{process}\n")

    def lab(self, *words: str) -> str:
        return _lab(self.script, self.folder, *words)

    def call(
        self, method: str, path: str, body: Json | None = None, kind: str = "application/json"
    ) -> tuple[int, Json]:
        """One request by the lab's administrator: status and answer."""
        where = urlsplit(self.facts["KUBE_LAB_SERVER"])
        context = ssl.create_default_context(cafile=self.facts["KUBE_LAB_CA"])
        connection = http.client.HTTPSConnection(str(where.hostname), where.port, context=context, timeout=30)
        headers = {"Authorization": f"Bearer {self.facts['KUBE_LAB_TOKEN']}", "Content-Type": kind}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
            try:
                return response.status, json.loads(text or b"{}")
            except ValueError:  # a path that is not served yet answers in plain text
                return response.status, {"message": text.decode(errors="replace")}
        finally:
            connection.close()

    def must(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        status, answer = self.call(method, path, body, kind)
        assert status < 300, (method, path, status, answer.get("message"))
        return answer

    def merge(self, path: str, body: Json) -> Json:
        return self.must("PATCH", path, body, "application/merge-patch+json")

    def namespace(self) -> str:
        """A new namespace in which pods can be made."""
        name = f"test-{os.getpid()}-{next(_numbers)}"
        self.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        self.until("the namespace has its service account", lambda: self.call("GET", account)[0] == 200)
        return name

    def clear(self, namespace: str) -> None:
        """Drop a namespace, and what a test made in it first, so that its pods hold no GPUs."""
        self._drop(namespace)
        self.call("DELETE", f"/api/v1/namespaces/{namespace}")

    def empty(self, namespace: str) -> None:
        """Drop what a test made, and wait until it is gone; the namespace stays."""
        self.until("the namespace is empty", lambda: self._drop(namespace) == 0, timeout=60)

    def _drop(self, namespace: str) -> int:
        """Delete all Jobs and pods; how many there were."""
        left = 0
        for path in (f"/apis/batch/v1/namespaces/{namespace}/jobs", f"/api/v1/namespaces/{namespace}/pods"):
            left += len(self.call("GET", path)[1].get("items") or ())
            self.call("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        return left

    def create(self, namespace: str, thing: Json) -> Json:
        group = thing["apiVersion"]
        root = f"/api/{group}" if "/" not in group else f"/apis/{group}"
        plural = f"{thing['kind'].lower()}s"
        path = f"{root}/namespaces/{namespace}/{plural}"
        self.until(f"{plural} are served", lambda: self.call("GET", path)[0] == 200)
        return self.must("POST", path, thing)

    def pod_status(self, namespace: str, name: str) -> Json:
        return self.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")[1].get("status", {})

    def until_phase(self, namespace: str, name: str, *phases: str) -> None:
        self.until(f"{name} is {phases}", lambda: self.pod_status(namespace, name).get("phase") in phases)

    def until(self, what: str, holds: Callable[[], T], timeout: float = 30) -> T:
        """Wait for a condition of the lab, looking ten times a second."""
        end = time.monotonic() + timeout
        while not (got := holds()):
            assert time.monotonic() < end, f"{what}: not after {timeout:g} s"
            time.sleep(0.1)
        return got

    def say(self, namespace: str, pod: str, *lines: str, container: str = "main", at: datetime | None = None) -> None:
        """Lines of a container, each with the time at which it was written, as a container runtime keeps them."""
        file = self.pod_logs / namespace / pod / f"{container}.log"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as log:
            for line in lines:
                stamp = at or datetime.now(UTC)
                log.write(f"{stamp:%Y-%m-%dT%H:%M:%S.%f}{next(_numbers) % 1000:03}Z {line}\n")

    def end(self, namespace: str, pod: str, code: int, reason: str, status: Json | None = None) -> None:
        """The end of a running pod, when a test wants it, in the words that its node's kubelet would write."""
        was = self.pod_status(namespace, pod)["containerStatuses"][0]
        ended = {"exitCode": code, "reason": reason, "startedAt": was["state"]["running"]["startedAt"]}
        ended["finishedAt"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        was |= {"ready": False, "state": {"running": None, "terminated": ended}}
        body = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [was]} | (status or {})
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/status"
        self.must("PATCH", path, {"status": body}, "application/strategic-merge-patch+json")

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        self.lab("api", "stop")
        try:
            yield
        finally:
            self.lab("api", "start")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self.lab("api", "pause")
        try:
            yield
        finally:
            self.lab("api", "resume")

    def define(self, group: str, version: str, kind: str) -> None:
        """A custom resource with any fields, served once this returns."""
        plural = f"{kind.lower()}s"
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        served = {"name": version, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{plural}.{group}",
                "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
            },
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "versions": [served],
                "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            },
        }
        status, answer = self.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
        assert status < 300 or status == 409, answer
        self.until(f"{kind} is served", lambda: self.call("GET", f"/apis/{group}/{version}/{plural}")[0] == 200)


WORLD = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@functools.cache
def has_worlds() -> bool:
    """Whether processes can be started that see no others than those below them, as in a container."""
    try:
        return subprocess.run([*WORLD, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def in_a_world(*command: str) -> list[str]:
    """The command in a world of its own, as a container's; as it is where none can be made."""
    return [*(WORLD if has_worlds() else ()), *command]


def pod(name: str, *play: Any, gpus: int = 0, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    """A pod that plays these stages; see the lab's own description."""
    container = {"name": "main", "image": "registry.example/train:1"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}  # type: ignore[assignment]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": labels or {},
            "annotations": {"kube-lab/play": json.dumps(play)} if play else {},
        },
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def job(name: str, template: Json, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    """A batch Job that makes such pods."""
    inner = {
        "metadata": {key: template["metadata"][key] for key in ("labels", "annotations")},
        "spec": template["spec"],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"template": inner, **spec},
    }


def start_kube_lab() -> KubeLab:
    """The running lab, started now if it is the first call. Raises pytest's skip where it can't run."""
    if not _running:
        _running.append(_up())
    lab = _running[0]
    if isinstance(lab, str):
        pytest.skip(lab)
    return lab


def _script() -> Path | None:
    folders = [os.environ.get("SUPERVISOR_LABS"), _ROOT / "deploy" / "lab", _ROOT.parent / "shared" / "lab"]
    scripts = [Path(folder) / "kube-lab" for folder in folders if folder]
    return next((script for script in scripts if script.exists()), None)


def _up() -> KubeLab | str:
    script = _script()
    if script is None:
        return "no kube-lab here: set SUPERVISOR_LABS to the folder that holds it"
    folder = Path(tempfile.mkdtemp(prefix="kube-lab-")) / "lab"
    atexit.register(_down, script, folder)
    shell = folder.parent / "bin" / "sh"
    shell.parent.mkdir()
    shell.write_text(_IN_POD)
    shell.chmod(0o755)
    try:
        _lab(script, folder, "up", timeout=1500)
        exports = _lab(script, folder, "env")
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        return f"no Kubernetes lab: {error}"
    facts = dict(line.removeprefix("export ").partition("=")[::2] for line in exports.splitlines() if "=" in line)
    return KubeLab(script, folder, facts)


def _down(script: Path, folder: Path) -> None:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, AssertionError):
        _lab(script, folder, "down", "--purge")
    shutil.rmtree(folder.parent, ignore_errors=True)


def _lab(script: Path, folder: Path, *words: str, timeout: float = 120) -> str:
    env = {**os.environ, "KUBE_LAB_DIR": str(folder), "PATH": f"{folder.parent}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", str(script), *words], capture_output=True, text=True, timeout=timeout, env=env, check=False
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise AssertionError(f"kube-lab {' '.join(words)} exited {done.returncode}: {said[-1] if said else ''}")
    return done.stdout


@pytest.fixture(scope="session")
def kube_lab() -> KubeLab:
    return start_kube_lab()
