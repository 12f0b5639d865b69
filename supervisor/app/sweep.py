"""One tick: every cluster at the same time, each under its own deadline; each stored in one transaction of its own (POLL-6).

The order within a cluster is fixed: all network I/O first, then the pure step, then one transaction, then memory. A crash
anywhere is healed by looking again: nothing is remembered that was not stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from supervisor.app.alive import gone
from supervisor.app.fleet import REMEMBERED, Station, skipped_status, status_after
from supervisor.app.follow import Follower
from supervisor.app.kinds import KINDS
from supervisor.app.rooms import Rooms
from supervisor.app.trials import Trials
from supervisor.app.writing import Writer
from supervisor.model.errors import ClusterError, StoreError
from supervisor.model.facts import Held
from supervisor.model.job import JobState
from supervisor.model.lifecycle import Transition
from supervisor.model.polling import Polled, Reading, Unreached
from supervisor.model.proposals import ProposalState
from supervisor.model.records import PollRecord
from supervisor.rules.memory import Memory
from supervisor.rules.probing import Judged
from supervisor.rules.step import Steps, step
from supervisor.store.entries import Measurement

if TYPE_CHECKING:
    from supervisor.app.settings import Settings
    from supervisor.store.store import Store

log = structlog.get_logger("supervisor.sweep")

Clock = Callable[[], datetime]


@dataclass(slots=True)
class Swept:
    """What one tick did with one cluster."""

    name: str
    state: str
    """``ok``, ``unknown``, ``skipped``, ``elsewhere`` (another daemon holds it), ``unstored``"""
    reason: str | None = None
    jobs: int = 0
    changed: int = 0
    moves: tuple[Transition, ...] = ()
    took_s: float = 0.0


@dataclass(slots=True)
class TickDone:
    """One tick, for its canonical log line and its report."""

    number: int
    started_at: datetime
    finished_at: datetime
    clusters: list[Swept] = field(default_factory=list)
    trouble: str | None = None

    @property
    def took_s(self) -> float:
        return round((self.finished_at - self.started_at).total_seconds(), 3)

    @property
    def all_read(self) -> bool:
        """Whether each cluster that is ours and not skipped gave a reading that was stored."""
        return self.trouble is None and all(each.state in ("ok", "skipped", "elsewhere") for each in self.clusters)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often jobs are probed without anybody asking (RL-10)."""

    every: timedelta = timedelta(minutes=12)
    """Least time between two probes of a job whose setting is new: an interval, less what a tick may come early."""
    new_settings: bool = True

    @classmethod
    def of(cls, settings: Settings) -> Pace:
        return cls(timedelta(seconds=settings.interval_s * 0.8), settings.probe.rl_new_settings)


class Sweeper:
    """Polls stations and stores what follows. One at a time per station: a tick and a narrower look never overlap."""

    def __init__(
        self,
        writer: Writer,
        rooms: Rooms,
        follower: Follower,
        clock: Clock,
        owner: str,
        lease_s: float,
        trials: Trials | None = None,
        pace: Pace = Pace(),
    ) -> None:
        self.writer, self.rooms, self.follower, self.clock = writer, rooms, follower, clock
        self.owner, self.lease_s, self.trials = owner, lease_s, trials
        self.pace = pace
        self._judged: dict[str, Judged] = {}
        self._busy: dict[str, asyncio.Lock] = {}
        self._visits: dict[str, asyncio.Task[Swept]] = {}

    async def tick(self, stations: list[Station], budget_s: float) -> TickDone:
        """All clusters at the same time. Raises StoreError if the tick itself cannot be written down.

        A cluster that has not answered when the budget is spent is not waited for: its visit goes on, under its own deadline,
        and is stored when it ends; until then it is not asked again.
        """
        started = self.clock()
        number = await self.writer.call(lambda store: store.begin_tick(started, self.owner))
        ours = await self.taken(stations, started)
        await self._learn(stations)
        work = {}
        for station in stations:
            if station.name not in self._visits:
                self._begin(station, number, ours)
            work[self._visits[station.name]] = station
        done, _late = await asyncio.wait(work, timeout=budget_s) if work else (set(), set())
        swept = [task.result() if task in done else self._late(work[task], budget_s) for task in work]
        return TickDone(number, started, self.clock(), swept)

    async def _learn(self, stations: list[Station]) -> None:
        """What the rules must know of verdicts, read once a tick for all clusters. One that comes while they are polled is told
        by the next look."""
        names, pace = [each.name for each in stations], self.pace
        self._judged |= await self.writer.call(lambda store: _judged(store, names, pace))

    def _begin(self, station: Station, number: int, ours: set[str]) -> None:
        task = asyncio.ensure_future(self.guarded(station, number, ours))
        self._visits[station.name] = task
        task.add_done_callback(lambda _: self._visits.pop(station.name, None))

    async def stop(self) -> None:
        """Give up visits that still go on; what they have begun to store is stored."""
        going_on = list(self._visits.values())
        for task in going_on:
            task.cancel()
        await asyncio.gather(*going_on, return_exceptions=True)

    def _late(self, station: Station, budget_s: float) -> Swept:
        return Swept(station.name, "unknown", f"the tick's budget of {budget_s:g} s was spent before it answered")

    async def taken(self, stations: list[Station], now: datetime) -> set[str]:
        """The clusters that are ours to poll now: one transaction takes or prolongs all leases."""
        longest = max((each.section.deadline_s for each in stations), default=0)
        until = now + timedelta(seconds=self.lease_s + longest)
        names = [each.name for each in stations if not each.skipped(now)]
        return await self.writer.call(lambda store: _take(store, names, self.owner, now, until))

    async def look(self, stations: list[Station], tick: int) -> list[Swept]:
        """A narrower look between ticks: the same visit, counted to the tick before."""
        ours = await self.taken(stations, self.clock())
        await self._learn(stations)
        return await asyncio.gather(*(self.guarded(station, tick, ours) for station in stations))

    async def guarded(self, station: Station, tick: int, ours: set[str]) -> Swept:
        """One cluster's faults stay its own: nothing here may end the tick for the others."""
        lock = self._busy.setdefault(station.name, asyncio.Lock())
        async with lock:
            try:
                return await self.visit(station, tick, ours)
            except StoreError as error:
                station.forget()
                log.error("cluster.unstored", cluster=station.name, reason=str(error))
                return Swept(station.name, "unstored", str(error))

    async def visit(self, station: Station, tick: int, ours: set[str]) -> Swept:
        """Poll, step, store, remember. Raises StoreError; then nothing of this visit counts."""
        began = self.clock()
        if station.skipped(began):
            station.status = skipped_status(station, began)
            status = station.status
            await self.writer.call(lambda store: store.put_status(status))
            return Swept(station.name, "skipped", status.reason)
        if station.name not in ours:
            station.forget()
            return Swept(station.name, "elsewhere", "another daemon holds it")
        if not station.loaded:
            await self._load(station, began)
        ended_since = station.status.ended_since if station.status else None
        reading = await self._read(station, ended_since, began)
        news: set[str] = set()
        if isinstance(reading, Polled) and station.cluster is not None:
            news = await self.follower.follow(station, reading, self.clock())
            news |= await self.follower.last_lines(station, reading, self.clock())
            reading = self.follower.believed(station, reading)
            if self.trials is not None:
                news |= await self._trials(station, reading)
        return await self._store(station, reading, news, tick, began)

    async def _trials(self, station: Station, reading: Polled) -> frozenset[str]:
        """Ids of jobs with news of their trials. A fault of ours there must not cost the whole reading. Raises StoreError."""
        assert self.trials is not None
        try:
            return await self.trials.read(station, reading, self.follower.runs(station), self.clock())
        except StoreError:
            raise
        except Exception:
            log.exception("trials.broke", cluster=station.name)
            return frozenset()

    async def _load(self, station: Station, now: datetime) -> None:
        held = await self.writer.call(lambda store: store.held(station.name, ended_after=now - REMEMBERED))
        station.status = await self.writer.call(lambda store: store.cluster_status(station.name))
        station.memory = Memory(sorted(held, key=lambda job: (job.life.phase.live, job.row or 0)))
        station.lines = {}
        await self.follower.load(station)
        if self.trials is not None:
            await self.trials.load(station)
        station.loaded = True

    async def _read(self, station: Station, ended_since: datetime | None, now: datetime) -> Reading:
        """A reading, whatever happens: what a backend raises is a reason, never a crash and never silence."""
        if station.cluster is None:
            return Unreached(cluster=station.name, at=now, reason=station.broken or "it could not be set up")
        watch = station.memory.watch(station.lines, ended_since, self.follower.bookmarks(station))
        limit = station.section.deadline_s
        try:
            return await asyncio.wait_for(station.cluster.poll(watch, now), timeout=limit)
        except TimeoutError:
            return Unreached(
                cluster=station.name, at=self.clock(), reason=f"no answer within its deadline of {limit:g} s"
            )
        except ClusterError as error:
            return Unreached(cluster=station.name, at=self.clock(), reason=error.text, hint=error.hint)
        except Exception as error:  # a fault of ours must not pass for "no jobs", nor end the other clusters' tick
            log.exception("cluster.poll_broke", cluster=station.name)
            return Unreached(cluster=station.name, at=self.clock(), reason=f"fault in the supervisor itself: {error!r}")

    async def _store(self, station: Station, reading: Reading, news: set[str], tick: int, began: datetime) -> Swept:
        now = self.clock()
        if isinstance(reading, Unreached):
            status = status_after(station, reading, now, 0)
            await self.writer.call(
                lambda store: store.record(PollRecord(tick=tick, status=status, at=now, good=False, listed=0))
            )
            station.status = status
            return self._swept(station, "unknown", reading.reason, began)
        runs, rooms = self.follower.runs(station), self.rooms
        trials = self.trials.facts(station) if self.trials is not None else {}
        judged = self._judged.get(station.name, NOTHING_JUDGED)
        steps = step(
            station.memory,
            reading,
            rooms.book,
            rooms.bucket_of,
            rooms.examine,
            now,
            runs,
            news,
            judged.standing,
            trials=trials,
        )
        probes = station.agenda.errands(
            station.memory, steps.changed, steps.probe, judged, rooms.book, now, self.pace.every
        )
        live = len(station.memory.live) + sum(
            held.life.phase.live - (job in station.memory.live) for job, held in steps.changed.items()
        )
        status = status_after(station, reading, now, live)
        record = PollRecord(
            tick=tick,
            status=status,
            changed=[*steps.retired, *steps.changed.values()],
            transitions=steps.transitions,
            attempts=steps.attempts,
            errands=[*steps.errands, *probes],
            listed=len(reading.lines),
            at=now,
        )
        stored = await self.writer.call(lambda store: store.record(_without_history(store, record)))
        retired = {held.key for held in steps.retired}
        for held in stored:
            if held.key not in retired:
                station.memory.put(held)
        measured = {held.row: _measured(held, now) for held in stored if held.row is not None and held.key.id in news}
        if any(measured.values()):
            await self.writer.call(lambda store: store.put_measurements(measured))
        station.memory.forget(now - REMEMBERED)
        station.lines, station.status = reading.lines, status
        station.look_soon |= steps.look_soon | _dying_unread(station, stored)
        self._say(steps)
        swept = self._swept(station, "ok", status.reason, began)
        swept.jobs, swept.changed, swept.moves = len(reading.lines), len(steps.changed), tuple(steps.transitions)
        return swept

    def _swept(self, station: Station, state: str, reason: str | None, began: datetime) -> Swept:
        took = round((self.clock() - began).total_seconds(), 3)
        say = log.info if state == "ok" else log.warning
        say("cluster.polled", cluster=station.name, state=state, reason=reason, took_s=took)
        return Swept(station.name, state, reason, took_s=took)

    def _say(self, steps: Steps) -> None:
        for move in steps.transitions:
            if move.moved:
                log.info(
                    "job.moved",
                    job=str(move.job.ref),
                    before=move.before.phase.value,
                    after=move.after.phase.value,
                    sign=move.read.sign.value,
                    reason=move.read.reason,
                )


NOTHING_JUDGED = Judged()


def _judged(store: Store, clusters: list[str], pace: Pace) -> dict[str, Judged]:
    """A few queries, one of them a cluster and none a job."""
    passed = store.passed_settings() if pace.new_settings else None
    waiting = store.proposals(ProposalState.OPEN, ProposalState.APPROVED)
    found = {}
    for name in clusters:
        proposed = {(each.job, each.attempt) for each in waiting if each.job.cluster == name}
        found[name] = Judged(standing=store.standing(name), proposed=proposed, passed=passed)
    return found


def _measured(held: Held, now: datetime) -> list[Measurement]:
    """Its newest metrics, one value each: what a plot shows of steps that its log is no longer remembered for."""
    return [
        Measurement(name, now, float(value), held.log.step)
        for name, value in held.run.metrics.items()
        if isinstance(value, (int, float)) or value in ("NaN", "Infinity", "-Infinity")
    ]


def _dying_unread(station: Station, stored: list[Held]) -> set[str]:
    """FIND-5: running jobs whose log goes with them and was never looked at: not left until the next tick."""
    if not KINDS[station.kind].logs_die:
        return set()
    return {
        held.key.id
        for held in stored
        if held.observation.state is JobState.RUNNING and held.details.log_path and held.log.stat is None
    }


def _without_history(store: Store, record: PollRecord) -> PollRecord:
    """``record`` without jobs that are new to memory only: they ended long ago, are stored, and accounting told of them again."""
    fresh = [held.key for held in record.changed if held.row is None]
    known = {held.key for held in store.known(record.status.name, fresh)} if fresh else set()
    if not known:
        return record
    return replace(
        record,
        changed=[held for held in record.changed if held.row is not None or held.key not in known],
        transitions=[move for move in record.transitions if move.job not in known],
        attempts=[each for each in record.attempts if each.job not in known],
        errands=[each for each in record.errands if each.job not in known],
    )


def _take(store: Store, names: list[str], owner: str, now: datetime, until: datetime) -> set[str]:
    """Leases for ``names``. What a dead daemon of this very machine holds is not waited for."""
    ours = store.take_clusters(names, owner, now, until)
    if len(ours) == len(names):
        return ours
    dead = [each for each in store.owners(now) if each != owner and gone(each)]
    for each in dead:
        log.warning("daemon.taken_over", owner=each)
        store.disown(each, now)
    return store.take_clusters(names, owner, now, until) if dead else ours
