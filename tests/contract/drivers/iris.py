"""A real iris controller, whose tasks are real processes of this machine, and a real API server that has a pod for each of them."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import threading
from collections.abc import Iterator

import pytest

from supervisor.clusters.iris import IrisCluster
from supervisor.clusters.iris_pods import task_hash
from supervisor.clusters.iris_settings import IrisSettings, PodSource
from supervisor.model.ports import Cluster
from tests.contract.driving import Driver, Drivers
from tests.iris_lab import IrisLab, start_iris_lab
from tests.kube_lab import KubeLab, has_worlds, in_a_world, pod, start_kube_lab

PACED = 'set -o pipefail; {script} | while IFS= read -r line; do printf "%s\\n" "$line"; sleep 0.02; done'
"""Iris's process runtime hands on one line each time that output arrives, and holds back the rest of a burst until more comes."""
_numbers = itertools.count(1)
_namespaces: list[str] = []


class IrisDriver:
    """Jobs are root jobs of one task. The controller is stopped, and hangs; tasks go on without it."""

    patience_s = 40.0
    deadline_s = 5.0
    any_name = False

    def __init__(self, lab: IrisLab, kube: KubeLab) -> None:
        self.lab, self.kube = lab, kube
        _namespaces.extend(kube.namespace() for _ in range(1 - len(_namespaces)))
        self.namespace = _namespaces[0]
        # Two of them, since a name is unique among its user's jobs.
        self.users = (lab.user(), lab.user())
        self.pods: list[TaskPod] = []
        self.started: set[str] = set()
        settings = IrisSettings(
            url=lab.url,
            users=self.users,
            request_timeout_s=3,
            poll_timeout_s=5,
            log_looks_timeout_s=3,
            pods=PodSource(kubeconfig=kube.kubeconfig, namespace=self.namespace),
        )
        self.cluster: Cluster = IrisCluster("lab", settings)

    def start(self, name: str, script: str) -> str:
        path = next(path for user in self.users if (path := f"/{user}/{name}") not in self.started)
        self.started.add(path)
        made = f"iris-task-{next(_numbers)}"
        command = in_a_world("bash", "-c", PACED.format(script=shlex.join(("sh", "-c", script))))
        enters = f"mkdir -p {self._home(made)} && echo $$ > {self._home(made)}/init; " if has_worlds() else ""
        self.lab.submit(path, enters + "exec " + shlex.join(command))
        self.pods.append(TaskPod(self.lab, self.kube, self.namespace, made, path))
        return path.removeprefix("/")

    def _home(self, made: str) -> str:
        return shlex.quote(str(self.kube.folder / "podfs" / self.namespace / made))

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        with self.lab.stopped():
            yield

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        with self.lab.paused():
            yield

    def end_all(self) -> None:
        self.lab.end_all(*self.users)
        for one in self.pods:
            one.end()
        self.kube.empty(self.namespace)


class TaskPod:
    """The pod of one job's only task, as iris's own backend labels it; it ends when the task has ended."""

    def __init__(self, lab: IrisLab, kube: KubeLab, namespace: str, name: str, path: str) -> None:
        self.lab, self.kube, self.namespace, self.name, self.path = lab, kube, namespace, name, path
        labels = {
            "iris.managed": "true",
            "iris.runtime": "iris-kubernetes",
            "iris.task_hash": task_hash(f"{path}/0"),
            "iris.attempt_id": "0",
        }
        # On a node by itself: a scheduler that has lost its API server, as other tests bring about, takes its time to come back.
        made = pod(name, "running", labels=labels, nodeName="lab-node-1")
        made["metadata"]["annotations"]["iris.task_id"] = f"{path}/0"
        kube.create(namespace, made)
        kube.until_phase(namespace, name, "Running")
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.over.set()
        self.thread.join(10)

    def _live(self) -> None:
        while not self.over.wait(0.2):
            with contextlib.suppress(OSError, ValueError, KeyError):  # whatever the controller is put through meanwhile
                state = self.lab.state(self.path)
                if state == "killed":
                    where = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
                    self.kube.call("DELETE", where, {"gracePeriodSeconds": 0})
                    return
                if state not in ("pending", "running"):
                    code = int(self.lab.rpc("ListTasks", jobId=self.path)["tasks"][0].get("exitCode") or 0)
                    self.kube.end(self.namespace, self.name, code, "Error" if code else "Completed")
                    return


@contextlib.contextmanager
def _iris(request: pytest.FixtureRequest) -> Iterator[Driver]:
    driver = IrisDriver(start_iris_lab(), start_kube_lab())
    try:
        yield driver
    finally:
        driver.end_all()


DRIVERS: Drivers = {"iris": _iris}
