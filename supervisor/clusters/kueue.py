"""Kueue's Workloads: what the queue says of a job that waits, was taken off, or was let in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from supervisor.clusters.kubernetes_objects import Condition, ListMeta, Meta, Part, condition, holds, plain, said

NEVER_BY_ITSELF = frozenset({"ExceedsMaxQuota", "Misconfigured", "NoMatchingFlavor"})
"""Reasons of ``QuotaReserved`` that no waiting can change: somebody must change the job or the quota."""

_CEILING, _BUSY = "maximum capacity", "insufficient unused quota"


class Admission(Part, frozen=True):
    cluster_queue: str = ""


class RequeueState(Part, frozen=True):
    count: int | None = None


class Eviction(Part, frozen=True):
    reason: str = ""
    count: int = 0


class SchedulingStats(Part, frozen=True):
    evictions: tuple[Eviction, ...] | None = ()


class WorkloadSpec(Part, frozen=True):
    queue_name: str = ""
    priority: int | None = None
    active: bool | None = None


class WorkloadStatus(Part, frozen=True):
    conditions: tuple[Condition, ...] | None = ()
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    scheduling_stats: SchedulingStats | None = None


NO_SPEC, NO_STATUS = WorkloadSpec(), WorkloadStatus()


class Workload(Part, frozen=True):
    metadata: Meta
    spec: WorkloadSpec = NO_SPEC
    status: WorkloadStatus = NO_STATUS


class WorkloadList(Part, frozen=True):
    kind: str
    metadata: ListMeta
    items: tuple[Workload, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What Kueue says of one job."""

    queue: str
    admitted: bool
    finished: bool
    text: str
    """In Kueue's words, with the place in its queue; empty for an admitted one."""
    hopeless: bool = False
    """No waiting will change it."""
    evictions: int = 0
    evicted: Condition | None = None
    """The latest time it was taken off, if it is still known."""


def place_in_queues(workloads: Iterable[Workload]) -> Mapping[str, tuple[int, int]]:
    """By UID: place among those that wait in the same local queue, from 1, and how many wait there.

    The order is Kueue's default: priority, then the time since which it waits.
    """
    queues: dict[tuple[str, str], list[Workload]] = {}
    for one in workloads:
        if _waits(one):
            queues.setdefault((one.metadata.namespace, one.spec.queue_name), []).append(one)
    places = {}
    for waiting in queues.values():
        waiting.sort(key=lambda one: (-(one.spec.priority or 0), _since(one), one.metadata.name))
        places.update({one.metadata.uid: (place, len(waiting)) for place, one in enumerate(waiting, 1)})
    return places


def verdict(workload: Workload, places: Mapping[str, tuple[int, int]]) -> Verdict:
    """Kueue's verdict in words, and whether it can change by itself."""
    conditions, spec = workload.status.conditions, workload.spec
    evicted = condition(conditions, "Evicted")
    admitted, finished = holds(conditions, "Admitted") is not None, holds(conditions, "Finished") is not None
    text, hopeless = "", False
    if not admitted and not finished:
        text, hopeless = _waiting_words(workload, places)
    return Verdict(
        queue=plain(spec.queue_name, 80),
        admitted=admitted,
        finished=finished,
        text=text,
        hopeless=hopeless,
        evictions=_evictions(workload, evicted),
        evicted=evicted if evicted is not None and evicted.true else None,
    )


def _waiting_words(workload: Workload, places: Mapping[str, tuple[int, int]]) -> tuple[str, bool]:
    conditions, spec = workload.status.conditions, workload.spec
    parts = [f"Kueue workload {plain(workload.metadata.name, 80)}"]
    if spec.queue_name:
        place = places.get(workload.metadata.uid)
        parts.append(f"queue {plain(spec.queue_name, 80)}" + (f", place {place[0]} of {place[1]}" if place else ""))
    if workload.status.admission is not None and workload.status.admission.cluster_queue:
        parts.append(f"cluster queue {plain(workload.status.admission.cluster_queue, 80)}")
    quota, gone = condition(conditions, "QuotaReserved"), holds(conditions, "Evicted")
    if gone is not None:
        parts.append(f"evicted: {said(gone.reason, gone.message)}")
    if spec.active is False:
        parts.append("deactivated; it stays so until somebody sets spec.active again")
        return "; ".join(parts), True
    if quota is None:
        parts.append("not looked at by Kueue yet")
        return "; ".join(parts), False
    if quota.true:
        checks = condition(conditions, "Admitted")
        parts.append(
            "quota reserved, waits for admission"
            + (f": {said(checks.reason, checks.message)}" if checks is not None else "")
        )
        return "; ".join(parts), False
    parts.append(f"no quota: {said(quota.reason, quota.message)}")
    hopeless = hopeless_quota(quota)
    if hopeless:
        parts.append("this cannot heal by itself")
    return "; ".join(parts), hopeless


def hopeless_quota(quota: Condition) -> bool:
    """Whether a quota verdict can never change by waiting: above every flavour's ceiling, or misconfigured.

    Older Kueue says only Pending or Inadmissible, and the ceiling in words, flavour by flavour: one flavour that is merely
    busy is hope.
    """
    if quota.reason in NEVER_BY_ITSELF:
        return True
    message = quota.message or ""
    return _CEILING in message and _BUSY not in message


def _waits(workload: Workload) -> bool:
    conditions = workload.status.conditions
    return (
        holds(conditions, "QuotaReserved") is None
        and holds(conditions, "Finished") is None
        and workload.spec.active is not False
    )


def _since(workload: Workload) -> datetime:
    evicted = holds(workload.status.conditions, "Evicted")
    if evicted is not None and evicted.last_transition_time is not None:
        return evicted.last_transition_time
    return workload.metadata.creation_timestamp


def _evictions(workload: Workload, evicted: Condition | None) -> int:
    """How often it was taken off: by Kueue's own count where it keeps one, else at least what is on record."""
    stats, requeues = workload.status.scheduling_stats, workload.status.requeue_state
    counted = sum(one.count for one in stats.evictions or ()) if stats is not None else 0
    requeued = requeues.count or 0 if requeues is not None else 0
    return max(counted, requeued, 1 if evicted is not None else 0)


WORKLOADS = msgspec.json.Decoder(WorkloadList)
