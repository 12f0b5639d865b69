"""A real Kubernetes control plane, whose pods are real processes of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from supervisor.clusters.kubernetes import KubernetesCluster
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.model.ports import Cluster
from tests.contract.driving import Driver, Drivers
from tests.kube_lab import KubeLab, has_worlds, in_a_world, job, pod, start_kube_lab

_namespaces: list[str] = []


class KubernetesDriver:
    """Jobs are batch Jobs of one pod. The lab's kubelet starts and stops the pods; what runs in them runs here."""

    # A scheduler that has lost its API server several times waits up to a minute before it looks again.
    patience_s = 200.0
    deadline_s = 5.0
    any_name = False

    def __init__(self, lab: KubeLab) -> None:
        self.lab = lab
        # Two of them, since a name is unique in its namespace; the same ones for every test, since controllers that have
        # lost their API server take their time to furnish a new one.
        _namespaces.extend(lab.namespace() for _ in range(2 - len(_namespaces)))
        self.namespaces = tuple(_namespaces)
        self.names: set[tuple[str, str]] = set()
        self.programs: list[Program] = []
        settings = KubernetesSettings(
            kubeconfig=lab.kubeconfig,
            namespaces=self.namespaces,
            request_timeout_s=3,
            poll_timeout_s=5,
            log_looks_timeout_s=3,
        )
        self.cluster: Cluster = KubernetesCluster("lab", settings)

    def start(self, name: str, script: str) -> str:
        namespace = next(one for one in self.namespaces if (one, name) not in self.names)
        self.names.add((namespace, name))
        template = pod("x", "running", labels={"user": "alice"})
        self.lab.create(namespace, job(name, template, {"user": "alice"}, backoffLimit=0))
        self.programs.append(Program(self.lab, namespace, name, script))
        return f"{namespace}/job/{name}"

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        with self.lab.stopped():
            yield

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        with self.lab.paused():
            yield

    def end_all(self) -> None:
        for program in self.programs:
            program.end()
        for namespace in self.namespaces:
            self.lab.empty(namespace)


class Program:
    """What runs in a Job's pod: output goes to the container's log with its time, the exit status into the pod's status."""

    def __init__(self, lab: KubeLab, namespace: str, name: str, script: str) -> None:
        self.lab, self.namespace, self.name, self.script = lab, namespace, name, script
        self.over = threading.Event()
        self.process: subprocess.Popen[bytes] | None = None
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.over.set()
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.thread.join(10)

    def _live(self) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=job-name={self.name}"
        found = self._until(lambda: [one for one in self._list(path) if one["status"].get("phase") == "Running"])
        if not found:
            return
        pod_name = found[0]["metadata"]["name"]
        command = in_a_world("sh", "-c", self.script)
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(command, start_new_session=True, **pipes)
        if has_worlds():
            self.lab.enter(self.namespace, pod_name, self.process.pid)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lab.say(self.namespace, pod_name, line.decode().rstrip("\n"))
        code = self.process.wait()
        if not self.over.is_set():
            self._until(lambda: self._has_ended(pod_name, code))

    def _list(self, path: str) -> list[dict[str, Any]]:
        status, answer = self.lab.call("GET", path)
        return answer["items"] if status == 200 else []

    def _has_ended(self, pod_name: str, code: int) -> bool:
        """Write the end into the pod's status; True once that is done, or the pod is gone."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod_name}"
        status, answer = self.lab.call("GET", path)
        if status == 404:
            return True
        main = answer["status"]["containerStatuses"][0]
        began = main["state"].get("running", {}).get("startedAt")
        reason = "Error" if code else "Completed"
        end = {
            "exitCode": code,
            "reason": reason,
            "startedAt": began,
            "finishedAt": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        }
        main |= {"ready": False, "state": {"terminated": end}}
        body = {"status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [main]}}
        return self.lab.call("PATCH", f"{path}/status", body, "application/merge-patch+json")[0] in (200, 404)

    def _until(self, holds: Any) -> Any:
        """Try until it is so, through whatever the API server is put through meanwhile."""
        while not self.over.is_set():
            with contextlib.suppress(OSError, ValueError, KeyError):
                got = holds()
                if got:
                    return got
            time.sleep(0.1)
        return None


@contextlib.contextmanager
def _kubernetes(request: pytest.FixtureRequest) -> Iterator[Driver]:
    driver = KubernetesDriver(start_kube_lab())
    try:
        yield driver
    finally:
        driver.end_all()


DRIVERS: Drivers = {"kubernetes": _kubernetes}
