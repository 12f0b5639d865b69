"""From objects to jobs: one job per top owner, with its pods folded in. Pure.

A job's id is ``namespace/kind/name``: ``train/job/sft-7b``, ``train/rayjob/grpo``, ``train/pod/debug``, ``train/podgroup/gang``.
That is readable, unique in its cluster, and what ``kubectl`` calls it. What tells it from a later job of the same name is its
UID (POLL-11).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from supervisor.clusters.kubernetes_events import LostPod
from supervisor.clusters.kubernetes_kinds import BY_NAME, Kind, Record
from supervisor.clusters.kubernetes_objects import Meta, OwnerRef
from supervisor.clusters.kueue import Verdict, Workload, place_in_queues, verdict
from supervisor.clusters.owners import RecordRead
from supervisor.clusters.pod_objects import Pod
from supervisor.model.job import JobKey

SERVICES = frozenset(
    {
        "ReplicaSet",
        "StatefulSet",
        "DaemonSet",
        "Deployment",
        "ReplicationController",
        "Node",
        "RayService",
        "LeaderWorkerSet",
        "InferenceService",
    }
)
"""Owners whose pods are meant to run for ever: no jobs."""

_PARENTS_THAT_ARE_NO_JOB = frozenset({"CronJob", "ScheduledWorkflow"})
"""They make jobs; each of these is a job of its own."""

_BURST = timedelta(seconds=10)
"""A gang's pods are made within this time."""


@dataclass(frozen=True, slots=True)
class Owned:
    """A record with its kind."""

    kind: Kind
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All that was listed at one poll."""

    pods: Sequence[Pod] = ()
    owned: Sequence[Owned] = ()
    workloads: Sequence[Workload] = ()
    whole: bool = True
    """No selector: what Kueue alone knows of is ours too."""
    unread: frozenset[tuple[str, str]] = frozenset()
    """Group and kind of what exists there and could not be listed."""


@dataclass(slots=True, kw_only=True)
class Folded:
    """One job: its top owner, what owns pods below it, and its pods."""

    key: JobKey
    name: str
    kind: str
    namespace: str
    record: Owned | None = None
    """Record of the top owner; None for bare pods, pod groups, and owners of a kind that is not read."""
    gone: bool = False
    """Its record is of a kind that was listed, and is not there any more, though pods of it are."""
    below: list[Owned] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    verdict: Verdict | None = None
    created: datetime | None = None
    lost: list[LostPod] = field(default_factory=list)
    """Pods that were made for it and are gone, as far as events still tell."""

    @property
    def read(self) -> RecordRead:
        return self.record.kind.read(self.record.record) if self.record is not None else RecordRead()

    @property
    def user(self) -> str | None:
        """Whose job it is, by the labels of its record or of its pods."""
        metas = [each.record.metadata for each in ([self.record] if self.record is not None else []) + self.below]
        return next(
            (person for meta in [*metas, *(pod.metadata for pod in self.pods)] if (person := meta.tags.person)), None
        )

    def members(self) -> Iterator[str]:
        """UIDs of all that it consists of."""
        yield self.key.incarnation
        yield from (each.record.metadata.uid for each in self.below)
        yield from (pod.metadata.uid for pod in self.pods)


@dataclass(frozen=True, slots=True)
class _Top:
    namespace: str
    word: str
    name: str
    uid: str
    record: Owned | None = None
    gone: bool = False

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.word}/{self.name}"


def parts_of(job_id: str) -> tuple[str, str, str] | None:
    """Namespace, kind's word and name of a job's id; None for what is none."""
    parts = job_id.split("/")
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else None


def fold(cluster: str, listing: Listing, live: Mapping[str, JobKey]) -> dict[str, Folded]:
    """Every job of the listing, by id. ``live``: keys already known, so that a pod group keeps its own."""
    by_uid = {each.record.metadata.uid: each for each in listing.owned}
    known = {key.incarnation: key for key in live.values()}
    jobs: dict[str, Folded] = {}

    def job_of(top: _Top) -> Folded:
        found = jobs.get(top.id)
        if found is not None and found.key.incarnation == top.uid:
            return found
        if found is not None and found.record is not None:
            return found
        made = Folded(
            key=JobKey(cluster, top.id, top.uid),
            name=top.name,
            kind=top.word,
            namespace=top.namespace,
            record=top.record,
            gone=top.gone,
        )
        jobs[top.id] = made
        return made

    for each in listing.owned:
        top = _top(each.record.metadata, each, by_uid, listing.unread)
        if top is not None and not top.gone:
            job = job_of(top)
            if top.record is not each:
                job.below.append(each)
    groups: dict[tuple[str, str], list[Pod]] = {}
    for pod in listing.pods:
        if pod.metadata.owner is None and (group := pod.metadata.tags.pod_group or pod.metadata.tags.gang):
            groups.setdefault((pod.metadata.namespace, group), []).append(pod)
            continue
        top = _top(pod.metadata, None, by_uid, listing.unread)
        if top is None or (top.gone and top.uid not in known):
            continue
        job = job_of(_Top(top.namespace, *_word_and_name(known[top.uid]), top.uid, gone=True) if top.gone else top)
        if job.key.incarnation == top.uid:
            job.pods.append(pod)
    for (namespace, group), members in groups.items():
        uid = _group_incarnation(members, live.get(f"{namespace}/podgroup/{group}"))
        job_of(_Top(namespace, "podgroup", group, uid)).pods.extend(members)
    _hand_out_verdicts(cluster, jobs, listing)
    for job in jobs.values():
        metas = [job.record.record.metadata] if job.record is not None else [pod.metadata for pod in job.pods]
        job.created = min((meta.creation_timestamp for meta in metas), default=job.created)
    return jobs


def _word_and_name(key: JobKey) -> tuple[str, str]:
    parts = parts_of(key.id)
    return (parts[1], parts[2]) if parts is not None else ("", key.id)


def _top(meta: Meta, own: Owned | None, by_uid: Mapping[str, Owned], unread: frozenset[tuple[str, str]]) -> _Top | None:
    """The top owner of an object, climbing through records; None for services' pods, whose owner is no job."""
    namespace = meta.namespace
    for _ in range(8):
        owner = meta.owner
        if owner is None or owner.kind in _PARENTS_THAT_ARE_NO_JOB:
            break
        if owner.kind in SERVICES:
            return None
        above = by_uid.get(owner.uid)
        if above is not None:
            meta, own = above.record.metadata, above
            continue
        name = (_group(owner), owner.kind)
        if name not in BY_NAME:
            # Nothing is known of this kind: a record below it speaks for itself, bare pods are known by their owner.
            return _top_of(namespace, meta, own) if own is not None else _by_reference(namespace, owner)
        return _by_reference(namespace, owner, gone=name not in unread)
    return _top_of(namespace, meta, own)


def _top_of(namespace: str, meta: Meta, own: Owned | None) -> _Top:
    return _Top(namespace, own.kind.word if own is not None else "pod", meta.name, meta.uid, own)


def _by_reference(namespace: str, owner: OwnerRef, gone: bool = False) -> _Top:
    group, word = _group(owner), owner.kind.lower()
    taken = any(kind.word == word and kind.group != group for kind in BY_NAME.values())
    return _Top(
        namespace, f"{word}.{group}" if taken or word in ("pod", "podgroup") else word, owner.name, owner.uid, gone=gone
    )


def _group(owner: OwnerRef) -> str:
    group, slash, _ = owner.api_version.partition("/")
    return group if slash else ""


def _group_incarnation(members: Iterable[Pod], before: JobKey | None) -> str:
    """Identity of a pod group, which has no record of its own: the UID of its first pod, with the time of that.

    A pod of it may be replaced. The group is the same as before while that first pod is there, or one made in the same burst.
    """
    metas = [pod.metadata for pod in members]
    if before is not None:
        uid, _, time = before.incarnation.partition("@")
        if any(meta.uid == uid for meta in metas):
            return before.incarnation
        try:
            began = datetime.fromisoformat(time)
        except ValueError:
            began = None
        if began is not None and any(abs(meta.creation_timestamp - began) <= _BURST for meta in metas):
            return before.incarnation
    first = min(metas, key=lambda meta: (meta.creation_timestamp, meta.name))
    return f"{first.uid}@{first.creation_timestamp.isoformat()}"


def _hand_out_verdicts(cluster: str, jobs: dict[str, Folded], listing: Listing) -> None:
    """Each Workload belongs to the job of its owner; that of a pod group bears the group's name."""
    places = place_in_queues(listing.workloads)
    by_member = {uid: job for job in jobs.values() for uid in job.members()}
    for workload in listing.workloads:
        owners = [owner.uid for owner in workload.metadata.owner_references or ()]
        marked = workload.metadata.tags.workload_owner
        uids = [*owners, marked] if marked else owners
        job = next((by_member[uid] for uid in uids if uid in by_member), None)
        if job is None:
            job = jobs.get(f"{workload.metadata.namespace}/podgroup/{workload.metadata.name}")
        if job is None and listing.whole:
            job = _queued_only(jobs, cluster, workload, listing.unread)
        if job is not None and (job.verdict is None or not job.verdict.text):
            job.verdict = verdict(workload, places)


def _queued_only(
    jobs: dict[str, Folded], cluster: str, workload: Workload, unread: frozenset[tuple[str, str]]
) -> Folded | None:
    """A job of which only the queue's record is there: it waits, has no pods, and its owner is of a kind that is not read."""
    meta = workload.metadata
    if not meta.owner_references:
        top = _Top(meta.namespace, "workload", meta.name, meta.uid)
    elif meta.owner is None or meta.owner.kind in SERVICES | {"Pod"}:
        return None
    else:
        name = (_group(meta.owner), meta.owner.kind)
        if name in BY_NAME and name not in unread:
            return None
        top = _by_reference(meta.namespace, meta.owner)
    if top.id in jobs:
        return None
    made = Folded(
        key=JobKey(cluster, top.id, top.uid),
        name=top.name,
        kind=top.word,
        namespace=top.namespace,
        created=meta.creation_timestamp,
    )
    jobs[top.id] = made
    return made
