"""Lists as they are read at each poll: discovery of kinds, pages, and what cannot be listed.

A list is believed only when it is whole: status 200, the expected kind, every page. An empty one too (POLL-2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec

from supervisor.clusters import kubernetes_calls as calls
from supervisor.clusters.kubernetes_calls import Answer, ApiServer, NotAllowed, NotThere, Outdated, path_of
from supervisor.clusters.kubernetes_jobs import Listing, Owned
from supervisor.clusters.kubernetes_kinds import BY_NAME, ENVELOPE, ITEMS, KINDS, Kind
from supervisor.clusters.kubernetes_objects import Group, GroupList, ListMeta, ResourceList, Version
from supervisor.clusters.kubernetes_wire import Room
from supervisor.clusters.kueue import Workload, WorkloadList
from supervisor.clusters.pod_objects import Pod, decode_pods
from supervisor.model.errors import AnswerUnusable, ClusterError

_RESTARTS = 3
_MOST_PAGES = 100_000
_KUEUE = ("kueue.x-k8s.io", "Workload")
_WORKLOADS = msgspec.json.Decoder(WorkloadList)
_GROUPS = msgspec.json.Decoder(GroupList)
_RESOURCES = msgspec.json.Decoder(ResourceList)
_VERSION = msgspec.json.Decoder(Version)


class OddRecord(ClusterError):
    """A whole answer, in which a record has a field of another type than we know. Only its kind goes unread."""


T = TypeVar("T")
D = TypeVar("D", bytes, memoryview)
Page = tuple[ListMeta, Sequence[T]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What this cluster has, by group and kind: the version to ask for."""

    versions: dict[tuple[str, str], str]
    release: str
    problem: str | None = None
    """Why kinds beyond the built-in ones could not be discovered."""


@dataclass(slots=True, kw_only=True)
class Read:
    """A whole reading, before anything is concluded."""

    listing: Listing
    selected: frozenset[str] | None = None
    """UIDs of what bears the selector's labels; None without a selector: all."""
    problems: list[str] = field(default_factory=list)
    empty: tuple[str, ...] = ()
    """Namespaces in which nothing at all is."""


async def discover(server: ApiServer, cluster: str) -> Served:
    """Which kinds there are. A cluster that does not let us ask is read by its built-in kinds."""
    release = await server.get(calls.VERSION, read=_decoded(cluster, calls.VERSION, _VERSION))
    versions = {("batch", "Job"): "v1"}
    wanted = {name: kind for name, kind in ((_KUEUE, None), *BY_NAME.items()) if name not in versions}
    try:
        groups = await server.get(calls.GROUPS, read=_decoded(cluster, calls.GROUPS, _GROUPS))
        for group in groups.groups:
            names = {name for name in wanted if name[0] == group.name}
            for version in _in_order(group) if names else ():
                path = path_of(calls.GROUP, group=group.name, version=version)
                resources = await server.get(path, read=_decoded(cluster, path, _RESOURCES))
                for resource in resources.resources:
                    name = (group.name, resource.kind)
                    if name in names and "/" not in resource.name and "list" in resource.verbs:
                        versions.setdefault(name, version)
                if names <= versions.keys():
                    break
    except NotAllowed as error:
        return Served(
            versions=versions, release=release.git_version, problem=f"its kinds cannot be discovered: {error.text}"
        )
    return Served(versions=versions, release=release.git_version)


def _in_order(group: Group) -> list[str]:
    preferred = [group.preferred_version.version] if group.preferred_version is not None else []
    return preferred + [one.version for one in group.versions if one.version not in preferred]


def path_for(served: Served, kind: Kind, namespace: str | None) -> str:
    return _path(kind.group, served.versions[(kind.group, kind.kind)], kind.plural, namespace)


def record_path(served: Served, kind: Kind, namespace: str, name: str) -> str | None:
    """Path of one record; None where its kind is not served."""
    version = served.versions.get((kind.group, kind.kind))
    if version is None:
        return None
    return path_of(calls.RECORD, group=kind.group, version=version, namespace=namespace, plural=kind.plural, name=name)


def _path(group: str, version: str, plural: str, namespace: str | None) -> str:
    if namespace is None:
        return path_of(calls.RECORDS_EVERYWHERE, group=group, version=version, plural=plural)
    return path_of(calls.RECORDS, group=group, version=version, plural=plural, namespace=namespace)


def pods_path(namespace: str | None) -> str:
    return calls.PODS_EVERYWHERE if namespace is None else path_of(calls.PODS, namespace=namespace)


def record_paths(served: Served, namespace: str | None) -> list[tuple[str, str]]:
    """What is listed besides pods, with its path."""
    return [
        (kind.plural, path_for(served, kind, namespace)) for kind in KINDS if (kind.group, kind.kind) in served.versions
    ]


class Lister:
    """Reads all lists of one cluster once."""

    def __init__(self, cluster: str, server: ApiServer, served: Served, page_size: int) -> None:
        self._cluster, self._server, self._served, self._page_size = cluster, server, served, page_size

    async def read(self, namespaces: Sequence[str | None], selector: str) -> Read:
        """Everything, pods first and owners after what they own, so that each listed object's owner is listed too.

        Raises ClusterError where pods could not be listed whole; kinds of records that are forbidden are named instead.
        """
        found = Read(listing=Listing())
        pods = await self._everywhere(namespaces, lambda where: self.pods(where, selector))
        owned: list[Owned] = []
        unread: set[tuple[str, str]] = set()
        for kind in KINDS:
            if (kind.group, kind.kind) in self._served.versions:
                owned += await self._everywhere(
                    namespaces, partial(self._records, kind, selector=selector, unread=unread, found=found)
                )
            elif self._served.problem is not None:
                unread.add((kind.group, kind.kind))
        workloads = await self._everywhere(namespaces, lambda where: self._workloads(where, found))
        if self._served.problem is not None:
            found.problems.append(self._served.problem)
        if selector:
            found.selected = frozenset(
                [pod.metadata.uid for pod in pods] + [each.record.metadata.uid for each in owned]
            )
            pods, owned = await self._kin(namespaces, pods, owned, unread, found)
        used = {pod.metadata.namespace for pod in pods} | {each.record.metadata.namespace for each in owned}
        found.empty = tuple(name for name in namespaces if name is not None and name not in used)
        found.listing = Listing(
            pods=pods, owned=owned, workloads=workloads, whole=not selector, unread=frozenset(unread)
        )
        return found

    async def pods(self, namespace: str | None, selector: str) -> list[Pod]:
        return await self._paged(pods_path(namespace), selector, _decode_pods)

    async def _records(
        self, kind: Kind, namespace: str | None, selector: str, unread: set[tuple[str, str]], found: Read
    ) -> list[Owned]:
        try:
            path = path_for(self._served, kind, namespace)
            records: list[Any] = await self._paged(path, selector, lambda data: _decode_records(data, kind))
        except (NotAllowed, NotThere, OddRecord) as error:
            unread.add((kind.group, kind.kind))
            found.problems.append(f"{kind.plural} of {namespace or 'all namespaces'} cannot be listed: {error.text}")
            return []
        return [Owned(kind, record) for record in records]

    async def _workloads(self, namespace: str | None, found: Read) -> list[Workload]:
        version = self._served.versions.get(_KUEUE)
        if version is None:
            return []
        try:
            # Without the selector: Kueue does not copy labels, and the place in a queue counts everybody.
            return await self._paged(_path(_KUEUE[0], version, "workloads", namespace), "", _decode_workloads)
        except (NotAllowed, NotThere) as error:
            found.problems.append(
                f"Kueue's workloads of {namespace or 'all namespaces'} cannot be listed: {error.text}"
            )
            return []

    async def _kin(
        self,
        namespaces: Sequence[str | None],
        pods: list[Pod],
        owned: list[Owned],
        unread: set[tuple[str, str]],
        found: Read,
    ) -> tuple[list[Pod], list[Owned]]:
        """Owners and pods of what bears the selector's labels, where they bear none: from whole lists, if any is missed."""
        known = {each.record.metadata.uid for each in owned}
        metas = [pod.metadata for pod in pods] + [each.record.metadata for each in owned]
        if any(meta.owner is not None and meta.owner.uid not in known for meta in metas):
            for kind in KINDS:
                if (kind.group, kind.kind) in self._served.versions and (kind.group, kind.kind) not in unread:
                    more = await self._everywhere(
                        namespaces, partial(self._records, kind, selector="", unread=unread, found=found)
                    )
                    owned += [each for each in more if each.record.metadata.uid not in known]
        owners = {meta.owner.uid for meta in (pod.metadata for pod in pods) if meta.owner is not None}
        if any(
            each.record.metadata.uid in found.selected and each.record.metadata.uid not in owners
            for each in owned
            if found.selected
        ):
            seen = {pod.metadata.uid for pod in pods}
            more_pods = await self._everywhere(namespaces, lambda where: self.pods(where, ""))
            pods += [pod for pod in more_pods if pod.metadata.uid not in seen]
        return pods, owned

    async def _everywhere(self, namespaces: Sequence[str | None], one: Callable[[str | None], Any]) -> list[Any]:
        """The same list of every namespace, at the same time; the first failure is everybody's, and ends the others."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(where)) for where in namespaces]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [item for task in tasks for item in task.result()]

    async def _paged(self, path: str, selector: str, decode: Callable[[memoryview], Page[T]]) -> list[T]:
        """Every page of a list. A list that grows too old in the middle begins again."""
        query = {"limit": str(self._page_size)} | ({"labelSelector": selector} if selector else {})

        def read(data: memoryview) -> Page[T]:
            return _believed(self._cluster, path, data, decode)

        for _ in range(_RESTARTS):
            items: list[T] = []
            token, room = "", Room()
            try:
                for _page in range(_MOST_PAGES):
                    asked = query | ({"continue": token} if token else {})
                    meta, part = await self._server.page(path, asked, room=room, read=read)
                    items += part
                    if not meta.resume:
                        return items
                    if meta.resume == token:
                        raise AnswerUnusable(self._cluster, f"{path}: the list repeats its page for ever")
                    token = meta.resume
            except Outdated as error:
                outdated = error
        raise outdated


def _decode_pods(data: memoryview) -> Page[Pod]:
    page = decode_pods(data)
    _is_list(page.kind)
    return page.metadata, page.items or ()


def _decode_workloads(data: memoryview) -> Page[Workload]:
    try:
        page = _WORKLOADS.decode(data)
    except msgspec.ValidationError as error:
        raise OddRecord("", f"workloads: a record is not as this version knows them: {error}") from error
    _is_list(page.kind)
    return page.metadata, page.items or ()


def _decode_records(data: memoryview, kind: Kind) -> Page[Any]:
    page = ENVELOPE.decode(data)
    _is_list(page.kind)
    decoder = ITEMS[kind.word]
    try:
        return page.metadata, [decoder.decode(item) for item in page.items or ()]
    except msgspec.ValidationError as error:
        raise OddRecord("", f"{kind.plural}: a record is not as this version knows them: {error}") from error


def _is_list(kind: str) -> None:
    if not kind.endswith("List"):
        raise ValueError(f"expected a list, got {kind[:60]!r}")


def _decoded(cluster: str, path: str, decoder: msgspec.json.Decoder[T]) -> Callable[[Answer], T]:
    return lambda answer: _believed(cluster, path, answer.data, decoder.decode)


def _believed(cluster: str, path: str, data: D, decode: Callable[[D], T]) -> T:
    """What an answer holds. Raises AnswerUnusable for one that is not what was asked for."""
    try:
        return decode(data)
    except (ValueError, RecursionError) as error:
        # msgspec's errors are ValueErrors; they quote no text of the answer.
        raise AnswerUnusable(cluster, f"{path}: the answer cannot be read: {str(error)[:200]}") from error
