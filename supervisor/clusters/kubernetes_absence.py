"""Jobs that were listed and are not any more: gone, or only out of sight (POLL-5).

A listing alone proves no end. Each such job is asked for once by name; only the API server's own NotFound, or another UID under
that name, says that it is gone. How it ended is then said only where its deletion was seen or events tell it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from supervisor.clusters import kubernetes_calls as calls
from supervisor.clusters.kubernetes_calls import ApiServer, NotThere, path_of
from supervisor.clusters.kubernetes_events import End, end_of, events_of, lost_pods
from supervisor.clusters.kubernetes_jobs import Owned, parts_of
from supervisor.clusters.kubernetes_kinds import BY_WORD, ITEMS
from supervisor.clusters.kubernetes_lists import Served, record_path
from supervisor.clusters.kubernetes_states import JobRead
from supervisor.clusters.pod_objects import Pod
from supervisor.model.errors import ClusterError
from supervisor.model.job import JobKey, JobState, Observation

MOST_LOOKED_UP = 100
_LAST_PODS = 2
_FOLLOWS_FROM_DELETION = frozenset({JobState.CANCELLED, JobState.FAILED})
"""What events say of a job that was being deleted: its pods are stopped, and count as failed."""
_POD = msgspec.json.Decoder(Pod)


@dataclass(slots=True)
class LookedUp:
    """What asking for each missing job found."""

    pods: list[Pod] = field(default_factory=list)
    owned: list[Owned] = field(default_factory=list)
    uncertain: dict[str, str] = field(default_factory=dict)
    """By job id, why it is not known whether it is gone."""

    @property
    def problem(self) -> str | None:
        if not self.uncertain:
            return None
        first, why = next(iter(self.uncertain.items()))
        more = f" (and {len(self.uncertain) - 1} more)" if len(self.uncertain) > 1 else ""
        return f"{first}{more} is not listed, and whether it is gone is not known: {why}; left as it was"


def object_path(served: Served, key: JobKey) -> str | None:
    """Where a job's own object is; None where it has none that we can ask for."""
    parts = parts_of(key.id)
    if parts is None:
        return None
    namespace, word, name = parts
    if word == "pod":
        return path_of(calls.POD, namespace=namespace, name=name)
    return record_path(served, BY_WORD[word], namespace, name) if word in BY_WORD else None


async def look_up(server: ApiServer, served: Served, missing: Sequence[JobKey]) -> LookedUp:
    """Ask once for each of the first hundred; the others stay uncertain until the next poll."""
    found = LookedUp()
    asked = missing[:MOST_LOOKED_UP]
    answers = await asyncio.gather(*(still_there(server, served, key) for key in asked))
    for key, answer in zip(asked, answers, strict=True):
        if isinstance(answer, str):
            found.uncertain[key.id] = answer
        elif isinstance(answer, Pod):
            found.pods.append(answer)
        elif isinstance(answer, Owned):
            found.owned.append(answer)
    for key in missing[MOST_LOOKED_UP:]:
        found.uncertain[key.id] = f"more than {MOST_LOOKED_UP} jobs are gone at once"
    return found


async def still_there(server: ApiServer, served: Served, key: JobKey) -> Pod | Owned | str | None:
    """Its object, if the very same is still there; None if it is gone; else why that is not known."""
    path = object_path(served, key)
    if path is None:
        return None
    word = key.id.split("/")[1]
    decoder: msgspec.json.Decoder[Any] = _POD if word == "pod" else ITEMS[word]
    try:
        found = await server.get(path, read=lambda answer: decoder.decode(answer.data))
    except NotThere as error:
        return None if error.positive else error.text
    except ClusterError as error:
        return error.text
    except ValueError:
        return "its record cannot be read"
    if found.metadata.uid != key.incarnation:
        return None
    return found if isinstance(found, Pod) else Owned(BY_WORD[word], found)


class LastSeen:
    """Jobs as they were when last listed. Lost on a restart; then only events tell of what is gone."""

    def __init__(self) -> None:
        self._seen: dict[JobKey, Observation] = {}
        self._doomed: dict[JobKey, Observation] = {}
        """Jobs that were being deleted, as they will have ended once they are gone."""

    def note(self, reads: Iterable[JobRead], live: Iterable[JobKey]) -> None:
        """Remember what is listed now, and nothing of what nobody holds any more."""
        listed = {one.observation.key: one for one in reads if not one.observation.state.ended}
        held = {*live, *listed}
        self._seen = {key: seen for key, seen in self._seen.items() if key in held}
        self._doomed = {key: end for key, end in self._doomed.items() if key in held}
        for key, one in listed.items():
            self._seen[key] = one.observation
            if one.doomed is not None:
                self._doomed[key] = replace(one.observation, state=one.doomed, details=None)

    def deleted(self, key: JobKey, why: str) -> None:
        """We had it deleted ourselves."""
        self._doomed[key] = replace(self._as_it_was(key, JobState.CANCELLED), scheduler_state="Deleted", reason=why)

    async def ends(self, server: ApiServer, gone: Iterable[JobKey], now: datetime) -> list[Observation]:
        """Ends of jobs that are gone, as far as they are known. Of the others nothing is said: they are absent."""
        told = await asyncio.gather(*(self._end(server, key, now) for key in gone))
        return [end for end in told if end is not None]

    async def _end(self, server: ApiServer, key: JobKey, now: datetime) -> Observation | None:
        last, parts = self._doomed.pop(key, None), parts_of(key.id)
        told: End | None = None
        if parts is not None and (last is None or last.state is JobState.CANCELLED):
            told = end_of(await events_of(server, parts[0], uid=key.incarnation.partition("@")[0]))
            if told is None and last is None and parts[1] == "job":
                told = await _deleted_under_its_pods(server, parts[0], key.incarnation)
        if told is not None and (last is None or told.state not in _FOLLOWS_FROM_DELETION):
            was = self._as_it_was(key, told.state)
            if key not in self._seen:
                was = replace(was, started_at=told.began, nodes=(told.node,) if told.node else ())
            reason = f"its record is gone; {told.reason}"
            return replace(was, scheduler_state=told.word, reason=reason, ended_at=told.at)
        if last is not None:
            return replace(last, ended_at=now, reason=f"{last.reason or last.scheduler_state}; it is gone now")
        return None

    def _as_it_was(self, key: JobKey, state: JobState) -> Observation:
        blank = Observation(key=key, name=key.id.split("/")[-1], user=None, state=state, scheduler_state=state.value)
        return replace(self._seen.get(key, blank), state=state, details=None, tasks=None)


async def _deleted_under_its_pods(server: ApiServer, namespace: str, uid: str) -> End | None:
    """The deletion of a batch Job of which no event tells an end of its own: a pod of its last round was stopped, not finished.

    Had the Job ended by itself before, its controller would have said so; what took pods alone would have left its record.
    """
    for pod in reversed(await lost_pods(server, namespace, uid, (), _LAST_PODS)):
        if pod.end is not None and pod.end.state is JobState.CANCELLED:
            return replace(pod.end, reason=f"pod {pod.name}: {pod.end.reason}")
    return None
