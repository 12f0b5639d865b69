"""Who goes on after a job of a chain, as one reading and what is remembered show it (CHAIN-1). Pure."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from supervisor.model.facts import Held
from supervisor.model.job import Dependency, JobState, Observation
from supervisor.model.polling import Polled
from supervisor.rules.memory import HANDING_ON, Memory

START_SLACK = timedelta(seconds=60)
"""How long before its parent's end a successor may have started, by clocks that disagree a little."""


class Successors:
    """The chains of one reading. Nothing is kept from one to the next."""

    def __init__(self, memory: Memory, polled: Polled, ended: Mapping[str, Sequence[Observation]]) -> None:
        self._memory, self._polled, self._ended = memory, polled, ended
        self._listed = {seen.key.id: seen for seen in polled.changed}
        new = {
            edge.on: seen.key.id
            for seen in (*polled.ended, *polled.changed)
            for edge in edges_of(seen)
            if edge.kind in HANDING_ON
        }
        self._children = ChainMap(new, memory.children) if new else memory.children
        self._singletons: dict[tuple[str, str | None], list[Observation]] | None = None

    def of(self, held: Held, seen: Observation) -> str | None:
        """The one that goes on after ``held``, of which ``seen`` is news: found by its id or, where a whole array was waited
        for, by the array's; ``singleton`` waits for all that bear its name. One that ended without a start is none."""
        child = self._children.get(held.key.id)
        if child is None and seen.group is not None:
            child = self._children.get(seen.group)
        child = child or held.successor
        if seen.state is JobState.TIMED_OUT:
            child = child or self._singleton_after(seen)
            if child is not None and self._never_began(child):
                return None
        return child

    def goes_on(self, child: str | None, after: datetime | None) -> bool:
        """Whether the successor runs or waits, or ran after its parent's end."""
        seen = self._latest(child) if child is not None else None
        if seen is None:
            return False
        if seen.state.live:
            return seen.reason != "DependencyNeverSatisfied"
        return seen.started_at is not None and after is not None and seen.started_at >= after - START_SLACK

    def parents(self, later: Collection[str]) -> Iterator[tuple[str, bool]]:
        """Jobs on which one of this reading waits or waited, and whether that one ended without a start.

        A job that waits for a whole array has each of its tasks for a parent. ``later``: ids that are not remembered yet.
        Ids that nobody holds may be among them.
        """
        tasks: dict[str, list[str]] | None = None
        for seen in (*self._polled.changed, *self._polled.ended):
            known = self._memory.get(seen.key.id)
            edges, lost = edges_of(seen), seen.state.ended and seen.started_at is None
            if not edges and lost and known is not None:
                edges = known.depends_on
            for edge in edges:
                if edge.kind not in HANDING_ON:
                    continue
                yield edge.on, lost
                parent = self._memory.get(edge.on)
                if parent is not None and parent.observation.group is None:
                    continue
                tasks = self._tasks(later) if tasks is None else tasks
                for task in tasks.get(edge.on, ()):
                    yield task, lost

    def _tasks(self, later: Collection[str]) -> dict[str, list[str]]:
        """Ids of tasks by the id of their array."""
        found: dict[str, list[str]] = {}
        for job in dict.fromkeys((*self._memory, *later)):
            array, under, _ = job.partition("_")
            if under:
                found.setdefault(array, []).append(job)
        return found

    def _latest(self, job: str) -> Observation | None:
        told, known = self._ended.get(job), self._memory.get(job)
        return self._listed.get(job) or (max(told, key=order_of) if told else known.observation if known else None)

    def _never_began(self, child: str) -> bool:
        seen = self._latest(child)
        return seen is not None and seen.state.ended and seen.final and seen.started_at is None

    def _singleton_after(self, seen: Observation) -> str | None:
        """The first job submitted after it as ``singleton``, under the same name by the same user."""
        if self._singletons is None:
            self._singletons = {}
            waiting = {
                job: self._memory[job].observation for job in self._memory.live if _alone(self._memory[job].depends_on)
            }
            waiting |= {
                job: self._listed[job] for job in self._listed if job in waiting or _alone(edges_of(self._listed[job]))
            }
            for one in waiting.values():
                if one.state.live:
                    self._singletons.setdefault((one.name, one.user), []).append(one)
        later = [
            one
            for one in self._singletons.get((seen.name, seen.user), ())
            if one.key.id != seen.key.id and seen.submitted_at and one.submitted_at
            if one.submitted_at >= seen.submitted_at
        ]
        return min(later, key=order_of).key.id if later else None


def edges_of(seen: Observation) -> tuple[Dependency, ...]:
    """What it waits for, as far as this reading shows it: the scheduler forgets what is satisfied."""
    return seen.depends_on or (seen.details.depends_on if seen.details else ())


def order_of(seen: Observation) -> tuple[int, float]:
    """For sorting attempts and submissions by age."""
    moment = seen.submitted_at or seen.started_at or seen.ended_at
    return (seen.attempt or 0, moment.timestamp() if moment else 0.0)


def _alone(edges: Collection[Dependency]) -> bool:
    return any(edge.kind == "singleton" for edge in edges)
