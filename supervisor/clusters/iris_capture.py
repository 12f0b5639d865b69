"""A deep probe's evidence of one iris job: the controller's record of it and of its tasks, their logs, and what their pods show.

Everything here reads. What was asked for at submission is kept by a positive list, so that its environment is never among it.
The controller's own ``ProfileTask`` and ``ExecInContainer`` are not used: the first writes a row of its own at each call, and
neither says which attempt it looked at. Processes are reached through the pods of the tasks, where their cluster is configured.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from supervisor.clusters import pod_capture
from supervisor.clusters.iris_calls import Controller, NotThere
from supervisor.clusters.iris_jobs import log_path, path_of
from supervisor.clusters.iris_logs import LogBook
from supervisor.clusters.iris_pods import PodBook, PodKey, task_hash
from supervisor.clusters.iris_text import ENDED, JobAnswer, JobStatus, Task, TasksAnswer, tasks_of
from supervisor.clusters.kubernetes_calls import ApiServer
from supervisor.clusters.kubernetes_kept import Kept, kept, page
from supervisor.clusters.kubernetes_objects import plain
from supervisor.clusters.log_pieces import newest
from supervisor.clusters.node_text import spread
from supervisor.clusters.pods import PodRead
from supervisor.model.errors import AnswerUnusable, ClusterError
from supervisor.model.job import JobKey, Observation
from supervisor.model.logs import LogRead, LogWanted
from supervisor.model.probe import Captured, CaptureWanted, Remains, Role

_MOST_CHILDREN = 50
"""Children of one job whose tasks are asked for."""
_MOST_LEFT = 20
_NO_WAY = (
    "its tasks' processes are reached through their pods, whose cluster is not configured: "
    'set pods = { context = "CONTEXT", namespace = "NAMESPACE" } of this cluster, and allow pods/exec there'
)


def _values(names: str) -> dict[str, Kept | None]:
    return dict.fromkeys(names.split())


_AT: Kept = _values("epochMs")
_TIMES: dict[str, Kept | None] = dict.fromkeys(("submittedAt", "startedAt", "finishedAt"), _AT)
_SIZE: Kept = {
    **_values("cpuMillicores memoryBytes diskBytes"),
    "device": {"gpu": _values("variant count"), "tpu": _values("variant count"), "cpu": _values("variant")},
}
_JOB: Kept = {
    **_values("jobId name state exitCode error failureCount preemptionCount taskCount completedCount pendingReason"),
    **_values("statusMessage hasChildren parentJobId backendId cluster peerStatus submittingUser"),
    **_TIMES,
    "taskStateCounts": {"*": None},
    "resources": _SIZE,
}
_ATTEMPT: Kept = {
    **_values(
        "attemptId state workerId exitCode error isWorkerFailure attemptUid podName podUid nodeName terminalReason"
    ),
    **_TIMES,
}
_TASK: Kept = {
    **_values(
        "taskId state workerId exitCode error currentAttemptId pendingReason statusMessage containerId backendId"
    ),
    **_values("cluster canBeScheduled"),
    **_TIMES,
    "attempts": _ATTEMPT,
}
_REQUEST: Kept = {
    **_values(
        "replicas maxTaskFailures maxRetriesFailure maxRetriesPreemption priorityBand preemptionPolicy taskImage"
    ),
    "resources": _SIZE,
    "timeout": _values("milliseconds"),
    "coscheduling": _values("groupBy"),
}


@dataclass(frozen=True, slots=True)
class _Known:
    """One job as the controller has it."""

    body: dict[str, Any]
    status: JobStatus
    argv: tuple[str, ...]
    tasks_body: list[Any]
    tasks: tuple[Task, ...]
    """Its own, in the order of their index, then its children's that go on."""
    children: tuple[JobStatus, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IrisProbe:
    """One question to one controller, and to the cluster of its pods."""

    cluster: str
    controller: Controller
    pods: PodBook | None

    async def capture(self, wanted: CaptureWanted, now: datetime) -> list[Captured]:
        """Raises ClusterError where the controller does not answer for the job."""
        ends = time.monotonic() + wanted.time_s
        key = wanted.seen.key
        known = await self._known(key)
        if isinstance(known, str):
            return self._nothing(known, wanted, key)
        own = [task for task in known.tasks if task.job_id == known.status.job_id]
        some = spread([task.id for task in own], wanted.nodes_most)
        logs, pods = await asyncio.gather(
            pod_capture.in_time(self._logs(some, known, wanted, now), Role.LOG, f"logs of {key.id}", wanted, ends),
            self._of_pods(known, wanted, now, ends),
        )
        return [self._record(known, wanted.piece_bytes), _script(known), *logs, *pods]

    async def remains(self, seen: Observation, now: datetime) -> Remains:
        """Tasks that have not ended, its own and its children's, and pods of any attempt of them. Raises ClusterError."""
        known = await self._known(seen.key)
        if isinstance(known, str):
            return (
                Remains()
            )  # the controller has no such job, or another one by that name: nothing of this one can go on
        there = [f"task {task.id} is {plain(task.state, 60)}{_where(task)}" for task in known.tasks if not _over(task)]
        if not known.status.ended and not there:
            there.append(f"job {known.status.job_id} is {known.status.word}")
        there += [f"child {one.job_id} is {one.word}" for one in known.children if not one.ended]
        problems = list(known.problems)
        if self.pods is not None:
            try:
                there += await self._pods_left(self.pods, known, now)
            except ClusterError as error:
                problems.append(f"its pods could not be asked: {error.text}")
        more = len(there) - _MOST_LEFT
        told = (*there[:_MOST_LEFT], *([f"{more} more of it are there"] if more > 0 else ()))
        return Remains(there=told, failure="; ".join(problems) or None)

    async def _pods_left(self, pods: PodBook, known: _Known, now: datetime) -> list[str]:
        """Pods of any attempt of its tasks that have not ended. Raises ClusterError."""
        hashes = {task_hash(task.id) for task in known.tasks}
        found = await pods.read(now)
        return [
            pod_capture.pod_left(pod)
            for (task, _), pod in sorted(found.items(), key=lambda each: each[0])
            if task in hashes and not pod.state.ended
        ]

    # -- what is there -------------------------------------------------------------------------------------------------

    async def _known(self, key: JobKey) -> _Known | str:
        """The job, if it is still this one; else why it is not. Raises ClusterError where that is not known."""
        path = path_of(key.id)
        try:
            body = await self.controller.job_record(path)
        except NotThere as error:
            if not error.positive:
                raise
            return error.text
        told = self._converted(body, JobAnswer)
        if told.job.incarnation != key.incarnation:
            return f"another job bears its name now: it was submitted at {told.job.incarnation} ms, not at {key.incarnation}"
        tasks_body = await self.controller.task_records(path)
        tasks = list(tasks_of(path, self._converted(tasks_body, TasksAnswer)))
        children = await self.controller.below(path) if told.job.has_children else ()
        live = [one for one in children if not one.ended]
        problems = [f"{len(live) - _MOST_CHILDREN} children were not asked for"] if len(live) > _MOST_CHILDREN else []
        tasks.sort(key=lambda task: task.index)
        # Of a job that is not there the list is empty, and so may it be of one whose tasks are not made yet.
        if len(tasks) < told.job.task_count and not told.job.ended:
            problems.append(f"{len(tasks)} of its {told.job.task_count} tasks are listed")
        for one in (live or children)[:_MOST_CHILDREN]:
            tasks += tasks_of(one.job_id, await self.controller.tasks(one.job_id))
        return _Known(
            body=body,
            status=told.job,
            argv=told.request.entrypoint.run_command.argv,
            tasks_body=tasks_body.get("tasks") or [],
            tasks=tuple(tasks),
            children=tuple(children),
            problems=tuple(problems),
        )

    def _converted(self, body: dict[str, Any], what: type[Any]) -> Any:
        try:
            return msgspec.convert(body, what, strict=False)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise AnswerUnusable(self.cluster, f"the controller's record cannot be read: {str(error)[:200]}") from error

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _nothing(self, why: str, wanted: CaptureWanted, key: JobKey) -> list[Captured]:
        roles = (Role.RECORD, Role.SCRIPT, Role.LOG)
        pieces = [Captured(role=role, command=f"{role.value} of {path_of(key.id)}", failure=why) for role in roles]
        return pieces + (pod_capture.unseen(wanted, why) if wanted.live else [])

    def _record(self, known: _Known, most_bytes: int) -> Captured:
        path = known.status.job_id
        command = f"GetJobStatus {json.dumps({'jobId': path})}; ListTasks {json.dumps({'jobId': path})}"
        remarks = [f"child {one.job_id} is {one.word}" for one in known.children if not one.ended][:_MOST_CHILDREN]
        remarks += known.problems
        tasks = [kept(one, _TASK) for one in known.tasks_body if isinstance(one, dict)]
        body: dict[str, Any] = {
            "job": kept(known.body.get("job"), _JOB),
            "request": kept(known.body.get("request"), _REQUEST),
            "tasks": tasks,
        }
        data = page(body, [plain(remark) for remark in remarks])
        while len(data) > most_bytes and tasks:
            tasks = tasks[: len(tasks) // 2]
            shown = f"{len(tasks)} of {len(known.tasks_body)} tasks are shown"
            data = page(body | {"tasks": tasks}, [shown, *(plain(remark) for remark in remarks)])
        return Captured(role=Role.RECORD, command=command, data=data)

    async def _logs(self, tasks: Sequence[str], known: _Known, wanted: CaptureWanted, now: datetime) -> list[Captured]:
        """The log that is followed, whole; of other tasks a shorter part."""
        book, submitted = LogBook(), known.status.submitted_at.epoch_ms

        async def read(asked: Sequence[LogWanted], _: datetime) -> dict[tuple[str, str], LogRead]:
            return dict(await book.read(self.controller, asked))

        paths = [log_path(task, submitted) for task in tasks]
        pieces = await newest(read, replace(wanted, log_paths=(*wanted.log_paths, *paths[:1])), now)
        mine = {piece.source for piece in pieces}
        others = tuple(path for path in paths if path not in mine)
        if others:
            details = replace(wanted.details, log_path=None, err_path=None)
            bound = min(wanted.piece_bytes, wanted.log_bytes)
            pieces += await newest(read, replace(wanted, details=details, log_paths=others, log_bytes=bound), now)
        return pieces

    async def _of_pods(self, known: _Known, wanted: CaptureWanted, now: datetime, ends: float) -> list[Captured]:
        """Events of its pods, and what is seen in them."""
        if self.pods is None:
            return pod_capture.unseen(wanted, _NO_WAY) if wanted.live else []
        try:
            found = await self.pods.read(now)
            mine = [(task, _pod_of(task, found)) for task in known.tasks if not _over(task)]
            mine = mine or [(task, _pod_of(task, found)) for task in known.tasks]
            pods = pod_capture.chosen([pod for _, pod in mine if pod is not None], wanted.nodes_most)
            return await self.pods.run(now, lambda server: self._seen(server, pods, known, wanted, ends))
        except ClusterError as error:
            why = f"its pods could not be asked: {error.text}"
            command = f"events of the pods of {known.status.job_id}"
            events = Captured(role=Role.EVENTS, command=command, failure=why)
            return [events, *(pod_capture.unseen(wanted, why) if wanted.live else [])]

    async def _seen(
        self, server: ApiServer, pods: Sequence[PodRead], known: _Known, wanted: CaptureWanted, ends: float
    ) -> list[Captured]:
        uids = [pod.pod.metadata.uid for pod in pods]
        does = [f"{pod_capture.pod_left(pod)}: {pod.word}{f', {pod.reason}' if pod.reason else ''}" for pod in pods]
        assert self.pods is not None
        told = pod_capture.events(server, self.pods.namespace, uids, wanted.piece_bytes, does)
        why = None if pods else _no_pod(known)
        if not wanted.live:
            return await told
        events, looks = await asyncio.gather(told, pod_capture.looks(server, self.cluster, pods, wanted, ends, why))
        return [*events, *looks]


# -- pure --------------------------------------------------------------------------------------------------------------


def _script(known: _Known) -> Captured:
    command = f"GetJobStatus of {known.status.job_id}: request.entrypoint.runCommand.argv"
    if not known.argv:
        return Captured(role=Role.SCRIPT, command=command, failure="its request names no command line")
    return Captured(role=Role.SCRIPT, command=command, data=(shlex.join(known.argv) + "\n").encode("utf-8", "replace"))


def _over(task: Task) -> bool:
    return task.state in ENDED


def _where(task: Task) -> str:
    attempt = task.attempt
    return f" on {plain(attempt.node, 120)}" if attempt is not None and attempt.node else ""


def _pod_of(task: Task, found: dict[PodKey, PodRead]) -> PodRead | None:
    """The pod of its present attempt."""
    return found.get((task_hash(task.id), task.current))


def _no_pod(known: _Known) -> str:
    if not known.tasks:
        return "it has no tasks yet, and so no pod"
    task = next((task for task in known.tasks if not _over(task)), known.tasks[0])
    waits = f", {plain(task.waits_for, 300)}" if task.waits_for else ""
    return f"no pod of its tasks' present attempts is there: task {task.id} is {plain(task.state, 60)}{waits}"
