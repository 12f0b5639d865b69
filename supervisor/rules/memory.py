"""What is remembered of one cluster's jobs between readings, with the lists that a poll needs kept beside it.

A reading of thousands of unchanged jobs must cost next to nothing, so nothing here is built anew for each of them: a job's
place in the lists changes when the job does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType

from supervisor.model.facts import Held
from supervisor.model.job import NO_DETAILS, JobKey, JobState
from supervisor.model.polling import Watch

HANDING_ON = frozenset({"afterany", "afternotok"})
"""Kinds of dependency that a timed-out job satisfies (CHAIN-1)."""

_NOT_STARTED = (JobState.PENDING, JobState.STARTING)


class Memory(Mapping[str, Held]):
    """Jobs of one cluster by id; of jobs that share an id, the latest. Changed only after what changes it was stored."""

    def __init__(self, jobs: Iterable[Held] = ()) -> None:
        self._jobs: dict[str, Held] = {}
        self.live: dict[str, JobKey] = {}
        """Keys of the jobs held as live."""
        self.looks: dict[str, datetime] = {}
        """When time alone could change a job's sign."""
        self.children: dict[str, str] = {}
        """A job's id to the id of the one that goes on after it; the newest where several wait."""
        self._detailed: set[JobKey] = set()
        self._logs: dict[str, str] = {}
        for held in jobs:
            self.put(held)

    def __getitem__(self, job: str) -> Held:
        return self._jobs[job]

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def get(self, job: str, default: Held | None = None) -> Held | None:  # type: ignore[override]
        return self._jobs.get(job, default)

    def put(self, held: Held) -> None:
        """Remember ``held`` in place of what was remembered under its id."""
        job = held.key.id
        before = self._jobs.get(job)
        if before is not None and before.key != held.key:
            self._detailed.discard(before.key)
        self._jobs[job] = held
        if held.life.phase.live:
            self.live[job] = held.key
        else:
            self.live.pop(job, None)
        if held.look_at is not None:
            self.looks[job] = held.look_at
        else:
            self.looks.pop(job, None)
        if held.details != NO_DETAILS:
            self._detailed.add(held.key)
        else:
            self._detailed.discard(held.key)
        if held.life.phase.live and held.details.log_path and held.observation.state not in _NOT_STARTED:
            self._logs[job] = held.details.log_path
        else:
            self._logs.pop(job, None)
        for edge in held.depends_on:
            if edge.kind in HANDING_ON:
                self.children[edge.on] = job

    def forget(self, before: datetime) -> None:
        """Let go of jobs that ended before then; the store keeps them."""
        gone = [job for job in self._jobs.keys() - self.live.keys() if self._jobs[job].life.since < before]
        for job in gone:
            held = self._jobs.pop(job)
            self._detailed.discard(held.key)
            for edge in held.depends_on:
                if self.children.get(edge.on) == job:
                    del self.children[edge.on]

    def watch(
        self, lines: Mapping[str, Hashable], ended_since: datetime | None, bookmarks: Mapping[str, str] | None = None
    ) -> Watch:
        """What a poll is told. ``lines``: fingerprints of the last stored good reading. Views, not copies."""
        return Watch(
            lines=lines,
            live=MappingProxyType(self.live),
            detailed=self._detailed,
            logs=MappingProxyType(self._logs),
            ended_since=ended_since,
            bookmarks=bookmarks or {},
        )
