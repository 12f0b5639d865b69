"""Tasks and their pods: a real controller and a real Kubernetes cluster that speak of the same attempts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from supervisor.clusters.iris_ends import state_of
from supervisor.clusters.iris_pods import enriched, task_hash
from supervisor.clusters.iris_settings import PodSource
from supervisor.clusters.iris_text import TasksAnswer, decode, tasks_of
from supervisor.model.job import JobState
from supervisor.model.polling import Polled
from tests.clusters.iris.conftest import MakeEyes
from tests.iris_lab import IrisLab
from tests.kube_lab import KubeLab, kube_lab, pod

__all__ = ["kube_lab"]


def test_a_tasks_pod_is_told_by_a_hash_of_its_whole_path() -> None:
    """As the controller itself labels them: the pod of /alice/kone/0 in a recorded answer bears these eight digits."""
    assert task_hash("/alice/kone/0").startswith("9467f57f")
    assert task_hash("/alice/kgang/1").startswith("9eea4563")


def test_without_a_pod_nothing_is_added(answer: Callable[[str], bytes]) -> None:
    tasks = tasks_of("/alice/exit3", decode(answer("tasks-failed-exit3"), TasksAnswer))

    assert enriched(tasks, {}) == tasks
    assert state_of(replace(tasks[0].attempts[0], exit_code=137)) is JobState.FAILED


def iris_pod(path: str, attempt: int, name: str, *play: Any) -> dict[str, Any]:
    """A pod as iris makes them for one attempt of one task."""
    labels = {
        "iris.managed": "true",
        "iris.runtime": "iris-kubernetes",
        "iris.task_hash": task_hash(path),
        "iris.attempt_id": str(attempt),
    }
    made = pod(name, *play, labels=labels)
    made["metadata"]["annotations"]["iris.task_id"] = path
    return made


@pytest.mark.lab
async def test_what_ended_a_task_is_its_pods_word_where_the_exit_code_is_only_137(
    iris_lab: IrisLab, kube_lab: KubeLab, eyes_of: MakeEyes
) -> None:
    """137 is memory, a preemption or neither; a pod of another task under much the same name says nothing of it."""
    namespace = kube_lab.namespace()
    eyes = eyes_of(pods=PodSource(kubeconfig=kube_lab.kubeconfig, namespace=namespace))
    plays = {"memory": "oomkilled", "taken": "evicted", "plain": {"failed": 137}, "alone": None}
    for name, play in plays.items():
        path = f"/{eyes.user}/{name}"
        iris_lab.submit(path, "exit 137")
        iris_lab.until_state(path, "failed")
        if play is not None:
            kube_lab.create(namespace, iris_pod(f"{path}/0", 0, f"iris-{name}", "running", play))
            kube_lab.until_phase(namespace, f"iris-{name}", "Failed")
    other = iris_pod(f"/{eyes.user}/alone/1", 0, "iris-alone-0", "running", "oomkilled")
    kube_lab.create(namespace, other)
    lies = iris_pod(f"/{eyes.user}/alone/0", 0, "iris-alone-1", "running", "oomkilled")
    lies["metadata"]["annotations"]["iris.task_id"] = f"/{eyes.user}/alone-cut-at-63/0"
    kube_lab.create(namespace, lies)
    for name in ("iris-alone-0", "iris-alone-1"):
        kube_lab.until_phase(namespace, name, "Failed")

    reading = await eyes.poll()

    assert {one.name: (one.state, one.signal) for one in reading.ended} == {
        "memory": (JobState.OUT_OF_MEMORY, 9),
        "taken": (JobState.PREEMPTED, 9),
        "plain": (JobState.FAILED, 9),
        "alone": (JobState.FAILED, 9),
    }
    assert reading.problems == ()
    kube_lab.clear(namespace)


@pytest.mark.lab
async def test_pods_that_cannot_be_asked_leave_the_controllers_word(
    iris_lab: IrisLab, eyes_of: MakeEyes, tmp_path: Path
) -> None:
    eyes = eyes_of(pods=PodSource(kubeconfig=tmp_path / "missing"))
    path = f"/{eyes.user}/fails"
    iris_lab.submit(path, "exit 137")
    iris_lab.until_state(path, "failed")

    reading = await eyes.cluster.poll(eyes.watch, datetime.now(UTC))

    assert isinstance(reading, Polled), reading
    (end,) = reading.ended
    assert (end.state, end.exit_code) == (JobState.FAILED, 137)
    assert any(line.startswith("pods could not be asked: kubeconfig") for line in reading.problems)
