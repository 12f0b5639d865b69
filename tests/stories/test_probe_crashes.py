"""SIGKILL anywhere in a probe: run again, there is one verdict, its whole evidence, its record, and no second proposal."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from supervisor.app import evidence
from supervisor.app.agent_logs import AgentLogs
from supervisor.app.evidence import open_folder
from supervisor.app.probes import LEASE
from supervisor.model.probe import Ruling
from supervisor.model.proposals import ProposalState
from supervisor.store.store import Store
from tests.scripted import ScriptedCluster, World
from tests.some import HOUR, MINUTE, NOON
from tests.stories.daemon import a_room
from tests.stories.test_killed import _Counted, _drive
from tests.stories.test_probes import JOB, STEP

pytestmark = pytest.mark.slow


def hung(folder: Path) -> World:
    """A world with a hung job, and a store that wants it probed."""
    world = World()
    world.submit(JOB, "sft__a").busy = False
    world.start(JOB)

    async def until_suspect() -> None:
        room, clock = a_room(folder, [ScriptedCluster(world)], NOON)
        for number in range(1, 6):
            await room.tick(30)
            world.print(JOB, STEP.format(n=number).encode())
            world.pass_time(MINUTE)
            clock[0] = world.now
        await room.tick(30)
        world.pass_time(2 * HOUR)
        clock[0] = world.now
        await room.tick(30)
        assert len(room.writer.store.errands_open("probe")) == 1
        await room.close()

    asyncio.run(until_suspect())
    return world


async def probe(folder: Path, world: World, later: timedelta = timedelta(0)) -> None:
    """A daemon that starts, takes over the clusters, makes the probes that are due, and ends."""
    room, _clock = a_room(folder, [ScriptedCluster(world)], world.now + later)
    try:
        await room.tick(30)
        await room.run_probes(HOUR)
    finally:
        await room.close()


def in_a_child(folder: Path, world: World, spoil) -> tuple[bool, bytes]:
    """(killed?, what it said) of a probe in a process of its own, spoilt by ``spoil(loop)`` before it begins."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            loop = asyncio.new_event_loop()
            said = spoil(loop)
            loop.run_until_complete(probe(folder, world))
            os.write(write, str(said()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as told:
        words = told.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status), words


def at_step(number: int):
    def spoil(loop):
        counter = [0]
        loop.set_task_factory(
            lambda loop, coro, **named: asyncio.Task(_drive(_Counted(coro, counter, number)), loop=loop, **named)
        )
        return lambda: counter[0]

    return spoil


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def around(owner, name: str, *, before: bool, nth: int = 1):
    """Dies right before, or right after, the ``nth`` call of ``owner.name``."""

    def spoil(loop):
        real, calls = getattr(owner, name), [0]

        def spoilt(*given, **named):
            calls[0] += 1
            if before and calls[0] == nth:
                die()
            result = real(*given, **named)
            if calls[0] == nth:
                die()
            return result

        setattr(owner, name, spoilt)
        return lambda: calls[0]

    return spoil


def assert_whole(folder: Path, world: World, why: str) -> None:
    """One verdict, one proposal, evidence that stands, one record, nothing left to do, after whoever came next."""
    asyncio.run(probe(folder, world, LEASE + MINUTE))
    with Store.open(f"sqlite:///{folder / 'supervisor.db'}") as store:
        found = store.verdicts()
        assert [each.verdict.ruling for each in found] == [Ruling.KILL], why
        assert [each.verdict for each in store.proposals(*ProposalState)] == [found[0].id], why
        assert store.errands_open("probe") == [], why
    whole = open_folder(Path(found[0].verdict.evidence))
    for gate in found[0].verdict.gates:
        for quote in gate.quotes:
            assert quote.text in whole.lines(quote.file)[quote.line - 1], why
    assert [each.name for each in (folder / "state" / "evidence").iterdir()] == [whole.path.name], why
    records = [path.name for path in (folder / "agent_logs").glob("*-verdict.md")]
    assert len(records) == 1, why
    assert not list((folder / "agent_logs").glob(".part-*")) or "record" in why, why


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hung")
    return folder, hung(folder)


@pytest.fixture
def fresh(story, tmp_path):
    """A copy of the story, made anew as often as it is called."""
    made = [0]

    def again():
        made[0] += 1
        folder = tmp_path / str(made[0])
        shutil.copytree(story[0], folder)
        return folder, story[1]

    return again


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_probe_killed_at_any_await_and_run_again_gives_one_verdict(fresh):
    folder, world = fresh()
    killed, said = in_a_child(folder, world, at_step(0))
    assert not killed
    steps = int(said)
    kills = 0
    for number in range(1, steps + 1, max(1, steps // 24)):
        folder, world = fresh()
        killed, _ = in_a_child(folder, world, at_step(number))
        kills += killed
        assert_whole(folder, world, f"killed at step {number} of {steps}")
        shutil.rmtree(folder)
    assert kills >= 20


CUTS = {
    "before its evidence folder": (evidence.Evidence, "begin", True, 1),
    "after its evidence folder": (evidence.Evidence, "begin", False, 1),
    "before the first file": (evidence, "_durable", True, 1),
    "before a later file": (evidence, "_durable", True, 4),
    "after the evidence": (evidence.Evidence, "write", False, 1),
    "before the verdict": (Store, "put_verdict", True, 1),
    "after the verdict": (Store, "put_verdict", False, 1),
    "before the record": (AgentLogs, "put", True, 1),
    "after the record": (AgentLogs, "put", False, 1),
    "before the errand is finished": (Store, "finish_errand", True, 1),
    "after the errand is finished": (Store, "finish_errand", False, 1),
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_probe_killed_between_two_writes_and_run_again_gives_one_verdict(fresh, cut):
    owner, name, before, nth = CUTS[cut]
    folder, world = fresh()
    killed, said = in_a_child(folder, world, around(owner, name, before=before, nth=nth))
    assert killed, f"{name} was called {said.decode()} times"
    assert_whole(folder, world, cut)


def test_evidence_that_a_crash_left_whole_is_judged_if_it_is_recent(fresh):
    """It need not be taken twice."""
    folder, world = fresh()
    in_a_child(folder, world, around(Store, "put_verdict", before=True))
    (left,) = (folder / "state" / "evidence").iterdir()
    taken = open_folder(left).taken_at

    asyncio.run(probe(folder, world, LEASE + MINUTE))
    with Store.open(f"sqlite:///{folder / 'supervisor.db'}") as store:
        assert store.verdicts()[0].verdict.taken_at == taken


def test_evidence_that_a_crash_left_is_taken_anew_if_it_is_old(fresh):
    folder, world = fresh()
    in_a_child(folder, world, around(Store, "put_verdict", before=True))
    (left,) = (folder / "state" / "evidence").iterdir()
    taken = open_folder(left).taken_at

    asyncio.run(probe(folder, world, HOUR))
    with Store.open(f"sqlite:///{folder / 'supervisor.db'}") as store:
        assert store.verdicts()[0].verdict.taken_at > taken
