"""Events: what the cluster said at the time of objects that are gone. Kept by the API server for an hour or so.

They are asked for only where a record is missing that would have said how something ended: a job that is gone, or a batch Job
whose first pods are not there any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from supervisor.clusters import kubernetes_calls as calls
from supervisor.clusters.kubernetes_calls import Answer, ApiServer, path_of
from supervisor.clusters.kubernetes_objects import ListMeta, Part, plain
from supervisor.model.errors import ClusterError
from supervisor.model.job import JobState

_MOST = "500"


class Event(Part, frozen=True):
    reason: str | None = None
    message: str | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None

    @property
    def at(self) -> datetime | None:
        return self.last_timestamp or self.event_time or self.first_timestamp


class EventList(Part, frozen=True):
    kind: str
    metadata: ListMeta
    items: tuple[Event, ...] | None


_EVENTS = msgspec.json.Decoder(EventList)


@dataclass(frozen=True, slots=True)
class End:
    """How something ended that is gone now."""

    state: JobState
    word: str
    reason: str
    at: datetime
    began: datetime | None = None
    """When it was last started; None where events do not tell."""
    node: str | None = None


@dataclass(frozen=True, slots=True)
class LostPod:
    """A pod that was made for a job and is gone."""

    name: str
    made: datetime
    end: End | None


ENDS = {
    "Completed": JobState.COMPLETED,
    "BackoffLimitExceeded": JobState.FAILED,
    "DeadlineExceeded": JobState.TIMED_OUT,
    "PodFailurePolicy": JobState.FAILED,
    "Preempted": JobState.PREEMPTED,
    "Preempting": JobState.PREEMPTED,
    "Evicted": JobState.PREEMPTED,
    "TaintManagerEviction": JobState.NODE_FAILED,
    "DeletingNode": JobState.NODE_FAILED,
    "Killing": JobState.CANCELLED,
}
"""What an event's reason says of an end, most telling first: a pod that is preempted is stopped too."""


async def events_of(server: ApiServer, namespace: str, **fields: str) -> Sequence[Event]:
    """Events about one object (``uid``, ``name``); none where they may not be read."""
    selector = ",".join(f"involvedObject.{field}={value}" for field, value in fields.items())
    path = path_of(calls.EVENTS, namespace=namespace)
    try:
        return await server.get(path, {"fieldSelector": selector, "limit": _MOST}, read=_read)
    except (ClusterError, ValueError):
        # Without events an end is merely not known: nothing is concluded from their absence.
        return ()


def end_of(events: Sequence[Event]) -> End | None:
    """How their object ended, if they say so."""
    told = {
        event.reason: event
        for event in events
        if event.reason in ENDS and event.at is not None and not _restarts(event)
    }
    for word, state in ENDS.items():
        event = told.get(word)
        if event is not None and event.at is not None:
            shown = "Deleted" if word == "Killing" else word
            reason = plain(f"event {word}: {event.message or ''}".rstrip(": "))
            return End(state, shown, reason, event.at, _began(events), _node(events))
    return None


def _began(events: Sequence[Event]) -> datetime | None:
    """Its containers start together: the first of them speaks for all."""
    return min((event.at for event in events if event.reason == "Started" and event.at is not None), default=None)


def _node(events: Sequence[Event]) -> str | None:
    placed = [event.message or "" for event in events if event.reason == "Scheduled"]
    _, to, node = placed[-1].rpartition(" to ") if placed else ("", "", "")
    return plain(node, 253) if to else None


def _restarts(event: Event) -> bool:
    """A container that is stopped to be started again, as after a failed probe."""
    return event.reason == "Killing" and not (event.message or "").startswith("Stopping container")


async def lost_pods(server: ApiServer, namespace: str, uid: str, present: Iterable[str], most: int) -> list[LostPod]:
    """Pods that were made for this batch Job and are not there any more, oldest first, at most ``most`` of them looked up."""
    there = set(present)
    made: dict[str, datetime] = {}
    for event in await events_of(server, namespace, uid=uid):
        name = (event.message or "").removeprefix("Created pod: ")
        if (
            event.reason == "SuccessfulCreate"
            and name != event.message
            and name not in there
            and event.first_timestamp is not None
        ):
            made[name] = event.first_timestamp
    lost = []
    for name, when in sorted(made.items(), key=lambda each: each[1])[-most:]:
        lost.append(LostPod(plain(name, 253), when, end_of(await events_of(server, namespace, name=name, kind="Pod"))))
    return lost


def _read(answer: Answer) -> Sequence[Event]:
    return _EVENTS.decode(answer.data).items or ()
