"""All that one daemon (or one ``tick`` by hand) works with: store, stations, sweeper, errands, probes, kills, reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from supervisor.app.agent_logs import AgentLogs
from supervisor.app.errands import Errands
from supervisor.app.evidence import Evidence
from supervisor.app.fleet import Station
from supervisor.app.follow import Follower
from supervisor.app.kept import KeptLogs
from supervisor.app.kill import Kills
from supervisor.app.kinds import KINDS
from supervisor.app.probes import Probes
from supervisor.app.reporting import Reporter
from supervisor.app.rooms import Rooms, rooms
from supervisor.app.settings import ClusterSection, Settings, rulebook
from supervisor.app.sweep import Pace, Sweeper, TickDone
from supervisor.app.trials import Trials
from supervisor.app.writing import Writer
from supervisor.model.errors import StoreError, SupervisorError
from supervisor.model.lifecycle import Phase
from supervisor.model.records import Heartbeat
from supervisor.store.store import Store

log = structlog.get_logger("supervisor.watchroom")

ERRANDS_IN_TICK = timedelta(seconds=30)
"""How long a tick waits for its errands before its report; the rest goes on between ticks."""


@dataclass(slots=True)
class Watchroom:
    """Open one by :func:`open_watchroom`; close it when done."""

    settings: Settings
    clock: Callable[[], datetime]
    owner: str
    writer: Writer
    rooms: Rooms
    stations: list[Station]
    sweeper: Sweeper
    errands: Errands
    probes: Probes
    kills: Kills
    reporter: Reporter

    async def tick(self, budget_s: float) -> TickDone:
        """One tick, the errands it left (as far as time allows), its report and its dated log."""
        done = await self.sweeper.tick(self.stations, budget_s)
        await self.run_errands(ERRANDS_IN_TICK)
        if done.clusters and all(each.state == "elsewhere" for each in done.clusters):
            return done  # another daemon holds them all: its own reports tell of them, and ours would only repeat it
        try:
            await self.reporter.report(done)
        except OSError as error:
            done.trouble = f"the dated log could not be written: {error}"
            log.error("report.unwritten", reason=str(error))
        await self._housekeeping()
        return done

    async def look_at_suspects(self) -> None:
        """Poll only the clusters that hold suspects or wedged jobs; the same visit, the same transaction as in a tick."""
        wanted = [each for each in self.stations if each.look_soon or _holds_suspects(each)]
        if not wanted:
            return
        for station in wanted:
            station.look_soon.clear()
        last = await self.writer.call(lambda store: store.last_tick())
        number = last.number if last is not None else 0
        await self.sweeper.look(wanted, number)
        await self.run_errands(ERRANDS_IN_TICK)

    async def run_errands(self, limit: timedelta) -> None:
        await self.errands.run(self.stations, limit)

    async def begin_probes(self) -> None:
        """Begin what probes are due; they go on by themselves."""
        await self.probes.round(self.stations)

    async def run_probes(self, limit: timedelta) -> None:
        """What probes are due, to their end, for at most ``limit``."""
        await self.probes.run(self.stations, limit)

    async def run_kills(self, limit: timedelta, *, wait: bool = False) -> None:
        """Carry out what was approved, and look after what waits. ``wait``: until what was sent is confirmed, too."""
        self.probes.stations = self.stations
        await self.kills.run(self.stations, limit, wait=wait)

    async def open_tick_requests(self) -> list[int]:
        return await self.writer.call(lambda store: [each.id for each in store.open_requests("tick")])

    async def answer_tick(self, request: int, number: int) -> None:
        now = self.clock()
        await self.writer.call(lambda store: store.answer_request(request, now, str(number)))

    async def begin_anew(self) -> None:
        """Make the schema again and forget what was remembered of the old store. Raises StoreError where that fails too."""
        await self.writer.call(lambda store: store.upgrade())
        for station in self.stations:
            station.forget()

    async def beat(self, heartbeat: Heartbeat) -> None:
        await self.writer.call(lambda store: store.beat(heartbeat))

    async def reconfigure(self, settings: Settings) -> None:
        """Take a new config: stations whose settings did not change keep their connection and memory."""
        kept = {each.name: each for each in self.stations}
        fresh = []
        for section in settings.cluster:
            old = kept.pop(section.name, None)
            if old is not None and old.section == section and old.broken is None:
                fresh.append(old)
                continue
            if old is not None:
                await _close(old)
            fresh.append(station_for(section, settings))
        for gone in kept.values():
            await _close(gone)
        self.settings, self.stations = settings, fresh
        self.rooms = rooms(rulebook(settings))
        self.sweeper.rooms = self.rooms
        self.sweeper.trials = _trials(self.writer, settings, self.sweeper.trials)
        self.sweeper.pace = Pace.of(settings)
        self.errands.settings = self.errands.autopsy.settings = self.kills.settings = settings
        self.probes.configure(settings, self.rooms, fresh)
        self.reporter.settings = settings

    async def close(self) -> None:
        """Give back the leases, close every connection and the store."""
        await self.probes.stop()
        await self.sweeper.stop()
        names = [each.name for each in self.stations]
        try:
            await self.writer.call(lambda store: [store.release_cluster(name, self.owner) for name in names])
        except SupervisorError as error:
            log.warning("leases.kept", reason=str(error))
        for station in self.stations:
            await _close(station)
        self.writer.close()

    async def _housekeeping(self) -> None:
        """Once an hour: thin what may be thinned, forget the kept text of long-ended jobs."""
        try:
            if await self.errands.housekeeping(self.clock()):
                await self.probes.housekeeping(self.clock())
        except StoreError as error:
            log.warning("housekeeping.put_off", reason=str(error))


def open_watchroom(settings: Settings, clock: Callable[[], datetime], owner: str) -> Watchroom:
    """Open and upgrade the store, build the stations. Raises StoreError; a cluster that cannot be built is only UNKNOWN."""
    settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = Store.open(settings.database_url)
    store.upgrade()
    writer = Writer(store)
    made = rooms(rulebook(settings))
    kept = KeptLogs(settings.state_dir / "logs", settings.logs.kept_bytes_per_job)
    follower = Follower(writer, kept, settings.logs)
    logs = AgentLogs(settings.agent_logs)
    trials, lease_s = _trials(writer, settings), settings.daemon.lease_s
    sweeper = Sweeper(writer, made, follower, clock, owner, lease_s, trials, Pace.of(settings))
    probes = Probes(writer, made, follower, Evidence(settings.state_dir / "evidence"), logs, settings, clock, owner)
    return Watchroom(
        settings=settings,
        clock=clock,
        owner=owner,
        writer=writer,
        rooms=made,
        stations=[station_for(section, settings) for section in settings.cluster],
        sweeper=sweeper,
        errands=Errands(writer, follower, kept, logs, settings, clock, owner),
        probes=probes,
        kills=Kills(writer, sweeper, logs, settings, clock, owner, probes.refresh),
        reporter=Reporter(writer, logs, settings),
    )


def _trials(writer: Writer, settings: Settings, known: Trials | None = None) -> Trials | None:
    """What reads trials, with what it knows already; None where none are to be read."""
    if not settings.trials.read:
        return None
    if known is None:
        return Trials(writer, settings.trials)
    known.limits = settings.trials
    return known


def station_for(section: ClusterSection, settings: Settings) -> Station:
    """A station with its backend; one that its settings cannot make is UNKNOWN with the reason, and hinders nobody."""
    try:
        cluster = KINDS[section.kind].build(section.name, section.of_kind, settings.state_dir)
    except (SupervisorError, OSError, ValueError) as error:
        log.error("cluster.not_built", cluster=section.name, reason=str(error))
        return Station(section.name, section, None, broken=str(error))
    return Station(section.name, section, cluster)


def _holds_suspects(station: Station) -> bool:
    return any(held.life.phase in (Phase.SUSPECT, Phase.WEDGED) for held in station.memory.values())


async def _close(station: Station) -> None:
    if station.cluster is not None:
        try:
            await asyncio.wait_for(station.cluster.close(), timeout=5)
        except (TimeoutError, SupervisorError, OSError) as error:
            log.warning("cluster.close_failed", cluster=station.name, reason=repr(error))
