"""A scripted world in which jobs can be killed, verdicts on them, and the loop that carries approvals out."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from supervisor.app.agent_logs import AgentLogs
from supervisor.app.kill import Kills, Refresh
from supervisor.app.sections import ApprovalsSection
from supervisor.app.watchroom import Watchroom
from supervisor.model.facts import Held
from supervisor.model.findings import Quote
from supervisor.model.job import JobKey, JobState, Observation
from supervisor.model.ports import Approval, CancelReceipt
from supervisor.model.probe import GateScore, Mark, Remains, Restarts, Ruling, Score, Verdict
from supervisor.model.proposals import Decision, Proposal
from supervisor.rules.leave import may_propose, silence_key
from supervisor.store.store import Store
from tests.scripted import ScriptedCluster, World
from tests.some import HOUR, NOON
from tests.stories.daemon import a_room

QUOTE = Quote("1.out", 1, "step 15/80")
ASK = {"mode": "ask", "per_tick": 10, "per_day": 10}


@dataclass
class Effects:
    """What a cancel does. Each is called with the world and the job's id."""

    ends: Callable[[World, str], None] | None = None
    """None: nothing happens."""
    receipt: CancelReceipt = field(default_factory=lambda: CancelReceipt(True, ""))
    raises: BaseException | None = None
    """After the effect: the answer is lost."""
    left: tuple[str, ...] = ()
    """What remains of it."""
    remains_unknown: str | None = None


def cancelled(world: World, job: str) -> None:
    world.end(job, JobState.CANCELLED, listed=False)


class KillableCluster(ScriptedCluster):
    """The scripted world, with a scheduler that obeys a cancel, or does not, as told. What it was sent is kept."""

    def __init__(self, world: World, effects: Effects | None = None, book: Path | None = None) -> None:
        super().__init__(world)
        self.effects = effects or Effects(cancelled)
        self.sent: list[tuple[JobKey, Approval]] = []
        self.book = book
        """A file that outlives this process: a line for each cancel that reached the scheduler."""
        self.on_cancel: Callable[[JobKey, Approval], None] = lambda job, approval: None

    async def cancel(self, job: JobKey, approval: Approval) -> CancelReceipt:
        self.on_cancel(job, approval)
        self.sent.append((job, approval))
        if self.book is not None:
            line = os.open(self.book, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(line, f"{approval.id} {job.id} {job.incarnation}\n".encode())
            os.close(line)
        it = self.world.jobs.get(job.id)
        if self.effects.ends is not None and it is not None and it.incarnation == job.incarnation and it.state.live:
            self.effects.ends(self.world, job.id)
        if self.effects.raises is not None:
            raise self.effects.raises
        return self.effects.receipt

    async def remains(self, seen: Observation, now: datetime) -> Remains:
        if self.effects.remains_unknown:
            return Remains(failure=self.effects.remains_unknown)
        return Remains(there=self.effects.left)


def verdict_on(held: Held, at: datetime, ruling: Ruling = Ruling.KILL, **changes: Any) -> Verdict:
    """A verdict on a job as it is held."""
    kill = ruling is Ruling.KILL
    gate = GateScore(
        gate="A",
        name="liveness",
        result=Score.FAIL if kill else Score.PASS,
        reason="no step for 95 min",
        quotes=(QUOTE,),
        hard=kill,
        wedge=kill,
        cause="silent-hang" if kill else "",
        fix="set a timeout" if kill else "",
    )
    values: dict[str, Any] = {
        "job": held.key,
        "name": held.observation.name,
        "attempt": held.life.attempt,
        "taken_at": at,
        "ruling": ruling,
        "confidence": "high",
        "gates": (gate,),
        "restarts": Restarts(),
        "cause": "silent-hang" if kill else "",
        "reasoning": "it stands at step 15",
        "next_steps": ("stop it",),
        "flip_signal": "a new step line",
        "evidence": f"/evidence/{held.key.cluster}-{held.key.id}-{at.timestamp()}",
        "mark": Mark(at=at, step=held.log.step, total=80, progress_at=held.log.progress_at),
    }
    return Verdict(**(values | changes))


@dataclass
class Scene:
    """One daemon over scripted worlds, its kills, and the clock that all of them share."""

    folder: Path
    worlds: list[World]
    clusters: list[KillableCluster]
    room: Watchroom
    clock: list[datetime]
    kills: Kills
    refreshed: list[Held] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return self.room.writer.store

    @property
    def now(self) -> datetime:
        return self.clock[0]

    def pass_time(self, span: timedelta) -> None:
        self.clock[0] += span
        for world in self.worlds:
            world.now = self.clock[0]

    async def tick(self) -> None:
        for world in self.worlds:
            world.now = self.clock[0]
        await self.room.sweeper.tick(self.room.stations, 30)

    async def settle(self) -> None:
        """Until the jobs' logs were found and read: the first tick learns where they lie, the second reads them."""
        await self.tick()
        self.pass_time(timedelta(minutes=1))
        await self.tick()

    async def carry_out(self, limit: timedelta = HOUR, *, wait: bool = False) -> None:
        await self.kills.run(self.room.stations, limit, wait=wait)

    def held(self, job: str = "1", cluster: str = "cluster-a") -> Held:
        found = [each for each in self.store.held(cluster, ended_after=NOON - 99 * HOUR) if each.key.id == job]
        return found[-1]

    def judge(self, ruling: Ruling = Ruling.KILL, job: str = "1", **changes: Any) -> Proposal | None:
        """Store a verdict on a job as it is held now; the proposal that follows."""
        held = self.held(job)
        verdict = verdict_on(held, self.now, ruling, **changes)
        leave = may_propose(verdict, held, self.marks())
        assert held.row is not None
        _, number = self.store.put_verdict(
            held.row, verdict, self.now, silence_key=silence_key(verdict), leave=leave, expires_at=self.now + 24 * HOUR
        )
        return None if number is None else self.store.proposal(number)

    def marks(self) -> Any:
        from supervisor.app.marks import marks_of

        return marks_of(self.kills.settings)

    def approve(self, proposal: Proposal | None, **changes: Any) -> Decision:
        assert proposal is not None
        values: dict[str, Any] = {
            "digest": proposal.digest,
            "by": "alice@box",
            "reason": "it hangs",
            "mode": "ask",
            "expires_at": self.now + HOUR,
            "now": self.now,
        }
        return self.store.approve(proposal.id, **(values | changes))

    def decision(self, number: int = 1) -> Decision:
        return self.store.decision(number)

    def records(self) -> dict[str, str]:
        """Dated records of kills, by name."""
        folder = self.folder / "agent_logs"
        return {each.name: each.read_text() for each in sorted(folder.glob("*-kill-*.md"))}

    @property
    def sent(self) -> list[tuple[JobKey, Approval]]:
        return [each for cluster in self.clusters for each in cluster.sent]


def a_scene(
    folder: Path,
    *worlds: World,
    effects: Effects | None = None,
    owner: str = "daemon-a",
    url: str = "",
    refresh: Refresh | None = None,
    book: Path | None = None,
    **approvals: Any,
) -> Scene:
    """A daemon that may send cancels (``mode = "ask"``) unless told otherwise."""
    given = list(worlds)
    clusters = [KillableCluster(world, effects, book) for world in given]
    room, clock = a_room(folder, clusters, given[0].now, owner=owner, url=url)
    settings = room.settings.model_copy(update={"approvals": ApprovalsSection(**(ASK | approvals))})
    scene: Scene

    async def as_it_is(held: Held) -> Verdict | str:
        """The same verdict again, of the job as it is."""
        scene.refreshed.append(held)
        return verdict_on(held, clock[0])

    async def pause(seconds: float) -> None:
        scene.pass_time(timedelta(seconds=seconds))

    kills = Kills(
        room.writer,
        room.sweeper,
        AgentLogs(settings.agent_logs),
        settings,
        room.clock,
        owner,
        refresh or as_it_is,
        pause,
    )
    scene = Scene(folder, given, clusters, room, clock, kills)
    return scene


def a_hung_world(job: str = "1", name: str = "rl__hangs", cluster: str = "cluster-a") -> World:
    """A job that runs, said where it was, and will say no more."""
    world = World(cluster)
    world.submit(job, name)
    world.pass_time()
    world.start(job)
    world.pass_time()
    world.print(job, b"step 15/80\n")
    world.pass_time()
    return world
