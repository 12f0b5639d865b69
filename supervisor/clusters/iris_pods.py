"""Pods of iris tasks, where the Kubernetes cluster that they run on can be asked too: why one waits, and what ended it.

A pod is told by the hash of its task's path (``iris.task_hash``) and the number of its attempt, never by its name: names are cut,
and so are the readable labels. Where the exact path is annotated, it must be the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from supervisor.clusters import kubernetes_calls as calls
from supervisor.clusters.iris_settings import PodSource
from supervisor.clusters.iris_text import Attempt, Task
from supervisor.clusters.kubernetes_calls import Answer, ApiServer, NotAllowed, NotThere, Outdated, path_of
from supervisor.clusters.kubernetes_session import Session
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.clusters.kueue import Verdict, WorkloadList, place_in_queues, verdict
from supervisor.clusters.pod_objects import decode_pods
from supervisor.clusters.pods import PodRead, read_pod
from supervisor.model.errors import AnswerUnusable
from supervisor.model.job import JobState

SELECTOR = "iris.managed=true,iris.runtime=iris-kubernetes"
_KUEUE = ("kueue.x-k8s.io", "Workload")
_PAGE, _MOST_PAGES = 500, 400
_TERMINATING_LIMIT = timedelta(minutes=5)

T = TypeVar("T")

PodKey = tuple[str, int]
"""Hash of the task's path, and number of the attempt."""


class _Labels(msgspec.Struct, frozen=True, rename={"task_hash": "iris.task_hash", "attempt": "iris.attempt_id"}):
    task_hash: str = ""
    attempt: str = ""


class _Annotations(msgspec.Struct, frozen=True, rename={"task": "iris.task_id"}):
    task: str = ""


class _Meta(msgspec.Struct, frozen=True):
    labels: _Labels | None = None
    annotations: _Annotations | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta


class _PodList(msgspec.Struct, frozen=True):
    items: tuple[_Pod, ...] | None = None


_NAMES = msgspec.json.Decoder(_PodList)
_WORKLOADS = msgspec.json.Decoder(WorkloadList)


def task_hash(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:16]


def pods_of(data: bytes, now: datetime, verdicts: Mapping[str, Verdict]) -> tuple[dict[PodKey, PodRead], str]:
    """Pods of one page of a list by task and attempt, and the mark of the page after it."""
    page, names = decode_pods(data), _NAMES.decode(data)
    if page.kind != "PodList":
        raise msgspec.ValidationError(f"a {page.kind} is no list of pods")
    found: dict[PodKey, PodRead] = {}
    for pod, named in zip(page.items or (), names.items or (), strict=True):
        labels, notes = named.metadata.labels or _Labels(), named.metadata.annotations or _Annotations()
        key = labels.task_hash or (task_hash(notes.task) if notes.task else "")
        if not key or not labels.attempt.isdecimal() or (notes.task and task_hash(notes.task) != key):
            continue
        read = read_pod(pod, now, _TERMINATING_LIMIT)
        said = verdicts.get(pod.metadata.tags.pod_group) if pod.spec.scheduling_gates else None
        if said is not None and said.text:
            read = replace(read, reason=": ".join(part for part in (read.word, said.text) if part))
        found[key, int(labels.attempt)] = read
    return found, page.metadata.resume


def enriched(tasks: Sequence[Task], pods: Mapping[PodKey, PodRead]) -> tuple[Task, ...]:
    """Tasks with what their pods say beyond the controller's own words, which come first."""
    return tuple(_with_pods(task, pods) for task in tasks)


def _with_pods(task: Task, pods: Mapping[PodKey, PodRead]) -> Task:
    key = task_hash(task.id)
    attempts = tuple(_with_pod(one, pods.get((key, one.number))) for one in task.attempts)
    now = pods.get((key, task.current))
    if now is not None and task.state in ("building", "assigned") and not task.waits_for:
        return replace(task, attempts=attempts, waits_for=now.reason or now.word)
    return replace(task, attempts=attempts)


_CAUSES = {JobState.PREEMPTED: "preempted", JobState.NODE_FAILED: "worker_failed"}


def _with_pod(attempt: Attempt, pod: PodRead | None) -> Attempt:
    """An attempt that failed by its exit code alone: the pod knows whether memory, a preemption or a lost node was behind it."""
    if pod is None:
        return attempt
    node = attempt.node or pod.pod.spec.node_name
    if attempt.state != "failed" or attempt.terminal_reason or not pod.state.ended:
        return replace(attempt, node=node)
    said = pod.reason or pod.word
    if pod.state is JobState.OUT_OF_MEMORY:
        return replace(attempt, node=node, terminal_reason=f"OOMKilled: {said}")
    state = _CAUSES.get(pod.state)
    return (
        replace(attempt, node=node) if state is None else replace(attempt, node=node, state=state, terminal_reason=said)
    )


class PodBook:
    """The Kubernetes cluster that one controller's tasks run on."""

    def __init__(self, cluster: str, source: PodSource, timeout_s: float) -> None:
        self._cluster, self._source = cluster, source
        settings = KubernetesSettings(
            kubeconfig=source.kubeconfig,
            context=source.context,
            in_cluster=source.in_cluster,
            namespaces=(source.namespace,),
            request_timeout_s=timeout_s,
        )
        self._session = Session(cluster, settings)

    async def read(self, now: datetime) -> dict[PodKey, PodRead]:
        """All pods of iris in its namespace: one request per 500. Raises ClusterError."""
        return await self._session.run(now, lambda server: self._read(server, now))

    @property
    def namespace(self) -> str:
        return self._source.namespace

    async def run(self, now: datetime, work: Callable[[ApiServer], Coroutine[Any, Any, T]]) -> T:
        """Ask its API server for something else, under the credentials in force. Raises ClusterError."""
        return await self._session.run(now, work)

    def close(self) -> None:
        self._session.close()

    async def _read(self, server: ApiServer, now: datetime) -> dict[PodKey, PodRead]:
        verdicts = await self._verdicts(server, now)
        path, token = path_of(calls.PODS, namespace=self._source.namespace), ""
        found: dict[PodKey, PodRead] = {}

        def read(answer: Answer) -> tuple[dict[PodKey, PodRead], str]:
            try:
                return pods_of(answer.data, now, verdicts)
            except msgspec.MsgspecError as error:
                raise AnswerUnusable(self._cluster, f"{path}: no list of pods: {error}") from error

        for _ in range(_MOST_PAGES):
            query = {"labelSelector": SELECTOR, "limit": str(_PAGE)} | ({"continue": token} if token else {})
            some, token = await server.get(path, query, read=read)
            found |= some
            if not token:
                return found
        raise AnswerUnusable(self._cluster, f"{path}: more than {_PAGE * _MOST_PAGES} pods")

    async def _verdicts(self, server: ApiServer, now: datetime) -> dict[str, Verdict]:
        """What Kueue says of each gang, by its workload's name; nothing where there is no Kueue, or it may not be asked."""
        version = (await self._session.served(server, now)).versions.get(_KUEUE)
        if version is None:
            return {}
        path = path_of(
            calls.RECORDS, group=_KUEUE[0], version=version, namespace=self._source.namespace, plural="workloads"
        )
        try:
            answer = await server.get(path, read=lambda one: _WORKLOADS.decode(one.data))
        except (NotAllowed, NotThere, Outdated):
            return {}
        except msgspec.MsgspecError as error:
            raise AnswerUnusable(self._cluster, f"{path}: no list of workloads: {error}") from error
        items = answer.items or ()
        places = place_in_queues(items)
        return {one.metadata.name: verdict(one, places) for one in items}
