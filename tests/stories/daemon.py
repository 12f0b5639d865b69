"""A daemon's work without the daemon's process: real store, real sweep, real errands, over scripted worlds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from supervisor.app.agent_logs import AgentLogs
from supervisor.app.errands import Errands
from supervisor.app.evidence import Evidence
from supervisor.app.fleet import Station
from supervisor.app.follow import Follower
from supervisor.app.kept import KeptLogs
from supervisor.app.kill import Kills
from supervisor.app.probes import Probes
from supervisor.app.reporting import Reporter
from supervisor.app.rooms import rooms
from supervisor.app.settings import ClusterSection, Settings, rulebook
from supervisor.app.sweep import Pace, Sweeper, TickDone
from supervisor.app.trials import Trials
from supervisor.app.watchroom import Watchroom
from supervisor.app.writing import Writer
from supervisor.clusters.host_settings import HostSettings
from supervisor.model.ports import Cluster
from supervisor.store.store import Store
from tests.scripted import ScriptedCluster, World

HOUR_S = 3600.0


def a_room(
    folder: Path,
    clusters: Sequence[Cluster],
    now: datetime,
    *,
    owner: str = "daemon-a",
    url: str = "",
    deadline_s: float = 30,
) -> tuple[Watchroom, list[datetime]]:
    """An open watchroom over ``clusters``, and its clock: a list whose one value is now."""
    url = url or f"sqlite:///{folder / 'supervisor.db'}"
    settings = Settings(state_dir=folder / "state", agent_logs=folder / "agent_logs", database_url=url)
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    store = Store.open(url)
    store.upgrade()
    writer, clock, made = Writer(store), [now], rooms(rulebook(settings))
    kept = KeptLogs(settings.state_dir / "logs", 2**20)
    follower, logs = Follower(writer, kept, settings.logs), AgentLogs(settings.agent_logs)

    def tells() -> datetime:
        clock[0] += timedelta(microseconds=1)  # as with a real clock, no two looks at it are the same
        return clock[0]

    stations = [
        Station(
            each.name, ClusterSection(name=each.name, kind="host", deadline_s=deadline_s, of_kind=HostSettings()), each
        )
        for each in clusters
    ]
    sweeper = Sweeper(writer, made, follower, tells, owner, 60, Trials(writer, settings.trials), Pace.of(settings))
    evidence = Evidence(settings.state_dir / "evidence")
    probes = Probes(writer, made, follower, evidence, logs, settings, tells, owner)
    room = Watchroom(
        settings=settings,
        clock=tells,
        owner=owner,
        writer=writer,
        rooms=made,
        stations=stations,
        sweeper=sweeper,
        errands=Errands(writer, follower, kept, logs, settings, tells, owner),
        probes=probes,
        kills=Kills(writer, sweeper, logs, settings, tells, owner, probes.refresh),
        reporter=Reporter(writer, logs, settings),
    )
    return room, clock


async def one_tick(folder: Path, worlds: Sequence[World], *, owner: str = "daemon-a") -> TickDone:
    """A daemon that starts, makes one tick and ends."""
    room, _clock = a_room(folder, [ScriptedCluster(world) for world in worlds], worlds[0].now, owner=owner)
    try:
        return await room.tick(30)
    finally:
        await room.close()


def story(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """All that the store tells of every job's life: for comparing two runs of one story."""
    with Store.open(f"sqlite:///{folder / 'supervisor.db'}") as store:
        told: dict[str, list[tuple[object, ...]]] = {}
        for found in (
            job for cluster in ("cluster-a", "cluster-b") for job in store.held(cluster, ended_after=LONG_AGO)
        ):
            assert found.row is not None
            told[str(found.ref)] = [
                (step.number, step.transition.before.phase, step.transition.after.phase, step.transition.after.outcome,
                 step.transition.after.attempt, step.transition.read.sign)
                for step in store.transitions(found.row)
            ]  # fmt: skip
    return told


LONG_AGO = datetime.fromisoformat("2000-01-01T00:00:00+00:00")
