"""Evidence out of pods, whoever owns them: what runs in their containers, by exec; and what events say of them.

Nothing here disturbs a job: a look is one script of the on-node page in a pod's main container, bounded by itself, by its time and
by its bytes. What does not come is told as a failure with what was put out.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from supervisor.clusters import kubernetes_calls as calls
from supervisor.clusters import kubernetes_exec, node_commands, node_text
from supervisor.clusters.kubernetes_calls import Answer, ApiServer, path_of
from supervisor.clusters.kubernetes_exec import Container
from supervisor.clusters.kubernetes_objects import ListMeta, Meta, Part, plain
from supervisor.clusters.node_commands import ALL
from supervisor.clusters.pods import PodRead
from supervisor.model.errors import ClusterError, LoginFailed
from supervisor.model.probe import Captured, CaptureWanted, Role

_AT_ONCE = 4
"""Pods that are looked into at once."""
_LEAST_S = 15.0
"""Time that must be left for a look into a pod, seconds."""
_AROUND_S = 10.0
"""What surrounds a look: the connection, the start of a process over there, and its end."""
_MOST_EVENTS = "500"


# -- which pods --------------------------------------------------------------------------------------------------------


def in_order(pods: Sequence[PodRead], main: PodRead | None = None) -> list[PodRead]:
    """Those that have not ended, if there are any: the main one first, then by name, numbers in it taken as numbers."""
    there = [pod for pod in pods if not pod.state.ended] or list(pods)
    first = main.pod.metadata.uid if main is not None else ""
    return sorted(there, key=lambda pod: (pod.pod.metadata.uid != first, _natural(pod.name)))


def chosen(pods: Sequence[PodRead], most: int) -> list[PodRead]:
    """Of pods in order at most ``most``: the first, the last, and some between."""
    by_uid = {pod.pod.metadata.uid: pod for pod in pods}
    return [by_uid[uid] for uid in node_text.spread(list(by_uid), most)]


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


# -- what runs in them -------------------------------------------------------------------------------------------------


async def looks(
    server: ApiServer, cluster: str, pods: Sequence[PodRead], wanted: CaptureWanted, ends: float, why: str | None = None
) -> list[Captured]:
    """What is seen in each of these pods. ``ends``: on ``time.monotonic()``. ``why``: nothing can be looked into, and why."""
    if why is not None or not pods:
        return unseen(wanted, why or "it has no pod that could be looked into")
    room = asyncio.Semaphore(_AT_ONCE)
    found = await asyncio.gather(
        *(_look(server, cluster, pod, wanted, ends, room, first=at == 0) for at, pod in enumerate(pods))
    )
    return [piece for pieces in found for piece in pieces]


async def in_time(
    work: Awaitable[list[Captured]], role: Role, command: str, wanted: CaptureWanted, ends: float
) -> list[Captured]:
    """What ``work`` brings, or one failure where the time of all captures is up before."""
    try:
        async with asyncio.timeout(max(ends - time.monotonic(), 0)):
            return await work
    except TimeoutError:
        why = f"it did not come within the {wanted.time_s:g} s that all captures have together"
        return [Captured(role=role, command=command, failure=why)]


def unseen(wanted: CaptureWanted, why: str, node: str | None = None) -> list[Captured]:
    """A failure for each thing that a look would have brought."""
    return node_text.failed(node_commands.look(ALL, wanted, with_checkpoints=True), node_text.Look(node), why)


async def _look(
    server: ApiServer,
    cluster: str,
    pod: PodRead,
    wanted: CaptureWanted,
    ends: float,
    room: asyncio.Semaphore,
    *,
    first: bool,
) -> list[Captured]:
    """One pod. Checkpoint folders are asked for in the first one alone: what several pods share looks the same from each."""
    asks = node_commands.look(ALL, wanted, with_checkpoints=first)
    where = Container(pod.pod.metadata.namespace, pod.name, pod.container)
    look = node_text.Look(pod.name, where.way)
    why = why_closed(pod)
    if why is not None:
        return node_text.failed(asks, look, why)
    async with room:
        limit_s = min(node_commands.seconds_needed(asks) + _AROUND_S, ends - time.monotonic())
        if limit_s < _LEAST_S:
            why = f"no time was left of the {wanted.time_s:g} s that all captures have together"
            return node_text.failed(asks, look, why)
        nonce = secrets.token_hex(16)
        try:
            ran = await kubernetes_exec.run(
                server,
                cluster,
                where,
                node_commands.script(nonce, asks, within_s=max(1.0, limit_s - _AROUND_S)),
                limit_s=limit_s,
                limit_bytes=node_commands.bytes_needed(asks),
            )
        except LoginFailed:
            raise
        except ClusterError as error:
            return node_text.failed(asks, look, f"{error.text}\n{error.hint}" if error.hint else error.text)
    return node_text.read(ran, nonce, asks, look)


def why_closed(pod: PodRead) -> str | None:
    """Why there is nothing to look into; None while its main container runs."""
    if pod.pod.spec.host_pid:
        return f"pod {pod.name} shares the process table of its node (hostPID): its own processes cannot be told from others"
    for status in pod.pod.status.container_statuses or ():
        if status.name == pod.container and status.state.running is not None:
            return None
    said = f"{pod.word}: {pod.reason}" if pod.reason else pod.word
    return f"container {pod.container or '(none)'} of pod {pod.name} does not run: {said}"


# -- events ------------------------------------------------------------------------------------------------------------


class _About(Part, frozen=True):
    kind: str = ""
    name: str = ""


class _Event(Part, frozen=True):
    involved_object: _About
    type: str | None = None
    reason: str | None = None
    message: str | None = None
    count: int | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None

    @property
    def at(self) -> datetime:
        return self.last_timestamp or self.event_time or self.first_timestamp or datetime.min.replace(tzinfo=UTC)


class _EventList(Part, frozen=True):
    kind: str
    metadata: ListMeta
    items: tuple[_Event, ...] | None


_EVENTS = msgspec.json.Decoder(_EventList)
_TITLES = "LAST_SEEN TYPE REASON COUNT OBJECT MESSAGE"


async def events(
    server: ApiServer, namespace: str, uids: Sequence[str], most_bytes: int, remarks: Sequence[str] = ()
) -> list[Captured]:
    """Events of these objects, oldest first, a line each below titles; before them ``remarks``, each a line after ``# ``."""
    began, path = time.monotonic(), path_of(calls.EVENTS, namespace=namespace)
    command = f"GET {path}?fieldSelector=involvedObject.uid={','.join(uids)}"
    try:
        found = await asyncio.gather(*(_events_of(server, path, uid) for uid in uids))
    except LoginFailed:
        raise
    except (ClusterError, ValueError) as error:
        why = error.text if isinstance(error, ClusterError) else f"the answer cannot be read: {str(error)[:200]}"
        return [Captured(role=Role.EVENTS, command=command, failure=why, took_s=time.monotonic() - began)]
    every = sorted((one for some in found for one in some), key=lambda one: one.at)
    lines = [_line(one) for one in every]
    while sum(map(len, lines)) > most_bytes - 2**12:
        lines = lines[len(lines) // 4 + 1 :]
    left = len(every) - len(lines)
    head = [f"# {plain(remark, 1000)}" for remark in remarks]
    head += [f"# {left} older events are left out"] if left else []
    text = "\n".join([*head, _TITLES, *lines] if lines else [*head, "# 0 events are kept of it"]) + "\n"
    took = time.monotonic() - began
    return [Captured(role=Role.EVENTS, command=command, data=text.encode("utf-8", "backslashreplace"), took_s=took)]


async def _events_of(server: ApiServer, path: str, uid: str) -> Sequence[_Event]:
    query = {"fieldSelector": f"involvedObject.uid={uid}", "limit": _MOST_EVENTS}

    def read(answer: Answer) -> Sequence[_Event]:
        return _EVENTS.decode(answer.data).items or ()

    return await server.get(path, query, read=read)


def _line(one: _Event) -> str:
    about = f"{one.involved_object.kind.lower()}/{one.involved_object.name}"
    words = (f"{one.at:%Y-%m-%dT%H:%M:%SZ}", one.type or "-", one.reason or "-", str(one.count or 1), about)
    return " ".join(plain(word, 300) for word in words) + " " + plain(one.message or "", 1000)


# -- what remains ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Left:
    """An object that is still there."""

    what: str
    """``pod sft-0``"""
    does: str
    """``is Running on node n1``"""
    meta: Meta

    @property
    def sentence(self) -> str:
        words = f"{self.what} {self.does}"
        if self.meta.deletion_timestamp is not None:
            words += f", Terminating, its grace period ends at {self.meta.deletion_timestamp:%Y-%m-%dT%H:%M:%SZ}"
        if self.meta.finalizers:
            words += f", held by {', '.join(self.meta.finalizers)}"
        return plain(words, 600)


def pod_left(pod: PodRead) -> str:
    one = pod.pod
    node = f" on node {one.spec.node_name}" if one.spec.node_name else ", on no node"
    return Left(f"pod {pod.name}", f"is {one.status.phase or 'there'}{node}", one.metadata).sentence
