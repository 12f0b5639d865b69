"""A deep probe's evidence of one Kubernetes job: its own object and its pods, events, logs, and what runs in its containers.

Everything here reads. What an object's JSON holds of environments and secrets is never kept (``kubernetes_kept``). Of a job with
many pods the first, the last and some between are looked at; the others are counted.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from supervisor.clusters import kubernetes_calls as calls
from supervisor.clusters import pod_capture
from supervisor.clusters.kubernetes_absence import object_path, still_there
from supervisor.clusters.kubernetes_calls import Answer, ApiServer, NotThere, path_of
from supervisor.clusters.kubernetes_jobs import Folded, fold, parts_of
from supervisor.clusters.kubernetes_kept import OBJECT, command_of, kept, page
from supervisor.clusters.kubernetes_kinds import BY_WORD
from supervisor.clusters.kubernetes_lists import Lister, Served
from supervisor.clusters.kubernetes_logs import LogBook
from supervisor.clusters.kubernetes_states import log_path, read_job
from supervisor.clusters.log_pieces import newest
from supervisor.clusters.pod_capture import Left, pod_left
from supervisor.clusters.pod_objects import Pod
from supervisor.clusters.pods import PodRead, read_pod
from supervisor.model.errors import AnswerUnusable, ClusterError, LoginFailed
from supervisor.model.job import JobKey, Observation
from supervisor.model.logs import LogRead, LogWanted
from supervisor.model.probe import Captured, CaptureWanted, Remains, Role

_MOST_LEFT = 20
"""Pods that are told one by one of what remains."""


@dataclass(slots=True)
class _Found:
    """What the API server has of one job, and why it has no more."""

    owner: dict[str, Any] | None = None
    owner_path: str | None = None
    why_no_owner: str | None = None
    other: str | None = None
    """Another object bears its name: nothing that is found is its own."""
    pods: list[PodRead] = field(default_factory=list)
    """All of its pods that have not ended, if there are any; else all."""
    why_no_pods: str | None = None
    phases: str = ""
    """How many of all its pods are in which phase."""
    verdict: str = ""
    """Of Kueue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesProbe:
    """One question to one API server."""

    cluster: str
    server: ApiServer
    served: Served
    page_size: int
    terminating_limit: timedelta

    async def capture(self, wanted: CaptureWanted, now: datetime) -> list[Captured]:
        """Raises ClusterError where neither the job's object nor its pods could be asked for."""
        ends = time.monotonic() + wanted.time_s
        key = wanted.seen.key
        parts = parts_of(key.id)
        if parts is None:
            raise AnswerUnusable(self.cluster, f"{key.id!r} is no job id of Kubernetes: NAMESPACE/KIND/NAME")
        found = await self._found(key, parts, now)
        if found.other is not None:
            return self._another(found.other, wanted, key)
        some = pod_capture.chosen(found.pods, wanted.nodes_most)
        raw = await self._raw(some)
        uids = [key.incarnation.partition("@")[0], *(pod.pod.metadata.uid for pod in some)]
        verdict = [f"queue: {found.verdict}"] if found.verdict else []
        told = pod_capture.events(self.server, parts[0], list(dict.fromkeys(uids)), wanted.piece_bytes, verdict)
        events, logs, looks = await asyncio.gather(
            pod_capture.in_time(told, Role.EVENTS, f"events of {key.id}", wanted, ends),
            pod_capture.in_time(self._logs(some, wanted, now), Role.LOG, f"logs of {key.id}", wanted, ends),
            self._looks(some, found, wanted, ends),
        )
        script = self._script(found, some, raw)
        return [self._record(found, some, raw, wanted.piece_bytes), script, *events, *logs, *looks]

    async def remains(self, seen: Observation, now: datetime) -> Remains:
        """Its own object, by its name and UID, and its pods, by a whole list. Raises ClusterError."""
        parts = parts_of(seen.key.id)
        if parts is None:
            return Remains(failure=f"{seen.key.id!r} is no job id of Kubernetes")
        there: list[str] = []
        path = object_path(self.served, seen.key)
        if path is None and parts[1] in BY_WORD:
            return Remains(failure=f"the API server does not say any more where {parts[1]}s are")
        if path is not None and parts[1] != "pod":
            owner = await still_there(self.server, self.served, seen.key)
            if isinstance(owner, str):
                return Remains(failure=f"whether {parts[1]} {parts[2]} is gone is not known: {owner}")
            if owner is not None and not isinstance(owner, Pod):
                there.append(Left(f"{parts[1]} {parts[2]}", "is there", owner.record.metadata).sentence)
        try:
            job, problems = await self._job(seen.key, parts)
        except LoginFailed:
            raise
        except ClusterError as error:
            return Remains(there=tuple(there), failure=f"its pods could not be listed: {error.text}")
        pods = [read_pod(pod, now, self.terminating_limit) for pod in job.pods] if job is not None else []
        there += [pod_left(pod) for pod in pods[:_MOST_LEFT]]
        there += [f"{len(pods) - _MOST_LEFT} more of its pods are there"] if len(pods) > _MOST_LEFT else []
        if not there and problems and parts[1] not in ("job", "pod", "podgroup"):
            return Remains(failure=f"what stands between it and its pods could not be read: {problems[0]}")
        return Remains(there=tuple(there))

    # -- what is there -------------------------------------------------------------------------------------------------

    async def _found(self, key: JobKey, parts: tuple[str, str, str], now: datetime) -> _Found:
        found = _Found(owner_path=object_path(self.served, key))
        unreachable: list[ClusterError] = []
        try:
            await self._owner(found, key)
        except LoginFailed:
            raise
        except ClusterError as error:
            found.why_no_owner = error.text
            if not isinstance(error, NotThere):
                unreachable.append(error)
        if found.other is not None:
            return found
        try:
            await self._pods(found, key, parts, now)
        except LoginFailed:
            raise
        except ClusterError as error:
            found.why_no_pods = error.text
            if found.owner is None and (unreachable or found.owner_path is None):
                raise
        return found

    async def _owner(self, found: _Found, key: JobKey) -> None:
        if found.owner_path is None:
            found.why_no_owner = "no object of its own can be asked for"
            return
        body = await self.server.get(found.owner_path, read=lambda answer: _json(self.cluster, answer))
        uid = (body.get("metadata") or {}).get("uid")
        if uid != key.incarnation:
            found.other = f"another object bears its name now: its UID is {uid}, not {key.incarnation}"
        found.owner = body

    async def _pods(self, found: _Found, key: JobKey, parts: tuple[str, str, str], now: datetime) -> None:
        job, problems = await self._job(key, parts)
        if job is None:
            found.why_no_pods = "; ".join(["no pod of it is listed", *problems])
            return
        main = read_job(job, now, self.terminating_limit).main
        every = [read_pod(pod, now, self.terminating_limit) for pod in job.pods]
        found.pods = pod_capture.in_order(every, main)
        found.verdict = job.verdict.text if job.verdict is not None else ""
        found.phases = ", ".join(
            f"{count} {phase or 'without a phase'}"
            for phase, count in sorted(Counter(pod.pod.status.phase for pod in every).items())
        )

    async def _job(self, key: JobKey, parts: tuple[str, str, str]) -> tuple[Folded | None, list[str]]:
        """The job as it is listed now, if it is still this one, and what could not be listed beside the pods."""
        lister = Lister(self.cluster, self.server, self.served, self.page_size)
        read = await lister.read((parts[0],), "")
        jobs = await asyncio.to_thread(fold, self.cluster, read.listing, {key.id: key})
        job = jobs.get(key.id)
        return (job if job is not None and job.key == key else None), read.problems

    async def _raw(self, pods: Sequence[PodRead]) -> list[dict[str, Any] | str]:
        """Each pod's own JSON, or why there is none."""

        async def one(pod: PodRead) -> dict[str, Any] | str:
            meta = pod.pod.metadata
            path = path_of(calls.POD, namespace=meta.namespace, name=meta.name)
            try:
                body = await self.server.get(path, read=lambda answer: _json(self.cluster, answer))
            except LoginFailed:
                raise
            except ClusterError as error:
                return error.text
            same = (body.get("metadata") or {}).get("uid") == meta.uid
            return body if same else "another pod bears its name by now"

        return list(await asyncio.gather(*map(one, pods)))

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _another(self, why: str, wanted: CaptureWanted, key: JobKey) -> list[Captured]:
        """Another object bears its name: nothing that is there now is evidence of this job."""
        roles = (Role.RECORD, Role.SCRIPT, Role.EVENTS, Role.LOG)
        pieces = [Captured(role=role, command=f"{role.value} of {key.id}", failure=why) for role in roles]
        return pieces + (pod_capture.unseen(wanted, why) if wanted.live else [])

    def _record(
        self, found: _Found, pods: Sequence[PodRead], raw: Sequence[dict[str, Any] | str], most_bytes: int
    ) -> Captured:
        """A list: its own object first, then its pods. What else is there stands in lines after it."""
        paths = [found.owner_path] if found.owner_path is not None else []
        paths += [path_of(calls.POD, namespace=pod.pod.metadata.namespace, name=pod.name) for pod in pods]
        command = "; ".join(f"GET {path}" for path in dict.fromkeys(paths)) or "GET its object and its pods"
        objects = [found.owner] if found.owner is not None else []
        uids = {(each.get("metadata") or {}).get("uid") for each in objects}
        objects += [each for each in raw if isinstance(each, dict) and each["metadata"]["uid"] not in uids]
        remarks = [f"pod {pod.name}: {each}" for pod, each in zip(pods, raw, strict=True) if isinstance(each, str)]
        remarks += [f"its own object: {found.why_no_owner}"] if found.why_no_owner else []
        remarks += [f"its pods: {found.why_no_pods}"] if found.why_no_pods else []
        remarks += [f"its pods: {found.phases}"] if found.phases else []
        if not objects:
            return Captured(role=Role.RECORD, command=command, failure="\n".join(remarks) or "nothing of it is there")
        items = [kept(each, OBJECT) for each in objects]
        data = page({"kind": "List", "items": items}, remarks)
        while len(data) > most_bytes and len(items) > 1:
            items = items[:-1]
            data = page(
                {"kind": "List", "items": items}, [*remarks, f"{len(items)} objects of {len(objects)} are shown"]
            )
        return Captured(role=Role.RECORD, command=command, data=data)

    def _script(self, found: _Found, pods: Sequence[PodRead], raw: Sequence[dict[str, Any] | str]) -> Captured:
        """The command line of its main container; of a RayJob, what it submits."""
        spec = (found.owner or {}).get("spec")
        entry = spec.get("entrypoint") if isinstance(spec, dict) else None
        if isinstance(entry, str) and entry:
            command = f"GET {found.owner_path}: spec.entrypoint"
            return Captured(role=Role.SCRIPT, command=command, data=entry.encode("utf-8", "replace") + b"\n")
        if not pods:
            return Captured(role=Role.SCRIPT, command="its main container's command", failure="no pod of it is there")
        main, body = pods[0], raw[0]
        command = f"pod {main.name}: command and args of container {main.container}"
        if isinstance(body, str):
            return Captured(role=Role.SCRIPT, command=command, failure=body)
        words = command_of(body, main.container)
        if words is None:
            return Captured(role=Role.SCRIPT, command=command, failure="its spec names none: it is the image's own")
        return Captured(role=Role.SCRIPT, command=command, data=words.encode("utf-8", "replace") + b"\n")

    async def _logs(self, pods: Sequence[PodRead], wanted: CaptureWanted, now: datetime) -> list[Captured]:
        """The log that is followed, whole; of the other pods' a shorter part. Each goes back through its container's restarts."""
        # A book of its own: what is read for evidence moves no place of what is followed.
        book = LogBook(self.cluster)

        async def read(asked: Sequence[LogWanted], _: datetime) -> dict[tuple[str, str], LogRead]:
            return await book.read(self.server, asked)

        first = log_path(pods[0]) if pods and pods[0].container else None
        paths = tuple(path for path in (*wanted.log_paths, first) if path)
        pieces = await newest(read, replace(wanted, log_paths=paths), now)
        mine = {piece.source for piece in pieces}
        others = [pod for pod in pods if pod.container and log_path(pod) not in mine]
        asked = [
            LogWanted(wanted.seen.key.id, log_path(pod), 0, min(wanted.piece_bytes, wanted.log_bytes)) for pod in others
        ]
        if asked:
            more = replace(
                wanted,
                details=replace(wanted.details, log_path=None, err_path=None),
                log_paths=tuple(one.path for one in asked),
                log_bytes=asked[0].limit,
            )
            pieces += await newest(read, more, now)
        return pieces

    async def _looks(
        self, pods: Sequence[PodRead], found: _Found, wanted: CaptureWanted, ends: float
    ) -> list[Captured]:
        if not wanted.live:
            return []
        return await pod_capture.looks(self.server, self.cluster, pods, wanted, ends, found.why_no_pods)


def _json(cluster: str, answer: Answer) -> dict[str, Any]:
    try:
        body = json.loads(answer.data)
    except (ValueError, RecursionError) as error:
        raise AnswerUnusable(cluster, f"a record cannot be read: {str(error)[:200]}") from error
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        raise AnswerUnusable(cluster, "a record is no object of an API server")
    return body
