"""SIGKILL at every await, every statement and every commit of an approval and of its execution; run again.

The scheduler is a file that outlives the daemon: a line for each cancel that reached it. Whatever the moment, at most one stands
there, nothing is lost, and what is said of it in the end is true.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from supervisor.app.kill import LEASE
from supervisor.model.errors import UsageError
from supervisor.model.probe import Ruling
from supervisor.model.proposals import ProposalState, Stage
from supervisor.store.store import Store
from tests.scripted import World
from tests.some import MINUTE
from tests.stories.killing import Scene, a_hung_world, a_scene, cancelled, verdict_on
from tests.stories.test_killed import _Counted, _drive


def world_of(folder: Path, minutes: int = 0) -> World:
    """The world as the scheduler's book has it."""
    world = a_hung_world()
    world.pass_time((minutes + 10) * MINUTE)
    if sent(folder):
        cancelled(world, "1")
    return world


def sent(folder: Path) -> list[str]:
    book = folder / "scheduler"
    return book.read_text().splitlines() if book.exists() else []


def scene_in(folder: Path, minutes: int, **more: Any) -> Scene:
    return a_scene(folder, world_of(folder, minutes), book=folder / "scheduler", **more)


async def begin(folder: Path) -> None:
    """A job is watched, and hangs."""
    scene = scene_in(folder, 0)
    await scene.settle()
    await scene.room.close()


async def go_on(scene: Scene) -> None:
    """Whatever is left to do of: judge, approve, carry out."""
    held = scene.held()
    if held.life.phase.live and not scene.store.verdicts():
        scene.judge()
    for proposal in scene.store.proposals():
        try:
            scene.approve(proposal)
        except UsageError:
            assert not held.life.phase.live
    await scene.carry_out(wait=True)


def in_a_child(folder: Path, prepare: Callable[[Scene, asyncio.AbstractEventLoop], None]) -> bool:
    """Whether it was killed. The child judges, approves and carries out, and kills itself where ``prepare`` says."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
            scene = scene_in(folder, 1)
            prepare(scene, loop)
            loop.run_until_complete(go_on(scene))
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def at_await(number: int) -> Callable[[Scene, asyncio.AbstractEventLoop], None]:
    def prepare(scene: Scene, loop: asyncio.AbstractEventLoop) -> None:
        counter = [0]
        loop.set_task_factory(
            lambda loop, coro, **named: asyncio.Task(_drive(_Counted(coro, counter, number)), loop=loop, **named)
        )

    return prepare


def at_statement(number: int) -> Callable[[Scene, asyncio.AbstractEventLoop], None]:
    """Before each statement that writes, before each commit, and after each."""

    def prepare(scene: Scene, loop: asyncio.AbstractEventLoop) -> None:
        passed = 0

        def boundary(*_: object) -> None:
            nonlocal passed
            passed += 1
            if passed == number:
                os.kill(os.getpid(), signal.SIGKILL)

        def written(connection: sa.Connection, *_: object) -> None:
            if connection.get_execution_options().get("writes"):
                boundary()

        engine = scene.store._db.engine
        sa.event.listen(engine, "before_cursor_execute", written)
        sa.event.listen(engine, "commit", written)
        sa.event.listen(engine, "checkin", boundary)

    return prepare


def in_the_scheduler(when: str) -> Callable[[Scene, asyncio.AbstractEventLoop], None]:
    """While the cancel is on its way: before it arrives, or after, before it is answered."""

    def prepare(scene: Scene, loop: asyncio.AbstractEventLoop) -> None:
        cluster = scene.clusters[0]
        if when == "before":
            cluster.on_cancel = lambda job, approval: os.kill(os.getpid(), signal.SIGKILL)
        else:
            cluster.effects.ends = lambda world, job: os.kill(os.getpid(), signal.SIGKILL)

    return prepare


def run_again(folder: Path) -> None:
    """New daemons, after the dead one's claim ran out, until nothing is left to do."""
    for again in range(3):
        scene = scene_in(folder, 7 + 20 * again)
        asyncio.run(scene.tick())
        asyncio.run(go_on(scene))
        asyncio.run(scene.room.close())


def check(folder: Path, where: str) -> None:
    with Store.open(f"sqlite:///{folder / 'supervisor.db'}") as store:
        (entry,) = store.verdicts()
        (proposal,) = store.proposals(*ProposalState)
        (decision,) = store.decisions()
        (job,) = store.held("cluster-a", ended_after=decision.approved_at - 99 * LEASE)
        assert store.errands_open("kill") == [], where
        assert (proposal.verdict, decision.proposal) == (entry.id, proposal.id)
        assert proposal.state is ProposalState.DONE, where
    reached = sent(folder)
    assert len(reached) <= 1, where
    if reached:
        assert (decision.stage, job.life.phase.live) == (Stage.CONFIRMED, False), where
    else:
        assert (decision.stage, job.life.phase.live) == (Stage.UNCONFIRMED, True), where
    records = [each.name for each in (folder / "agent_logs").glob("*-kill-*")]
    assert len(records) == 1, where
    assert records[0].endswith(f"kill-1-{decision.stage.value}.md"), where


def played(tmp_path: Path, prepare: Callable[[Scene, asyncio.AbstractEventLoop], None], where: str) -> bool:
    """One crash and what followed; False where the story came to its end before it."""
    start, folder = tmp_path / "start", tmp_path / "run"
    if not start.exists():
        start.mkdir()
        asyncio.run(begin(start))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(start, folder)
    killed = in_a_child(folder, prepare)
    run_again(folder)
    check(folder, where)
    return killed


SHARES = 4
"""Moments are shared out over as many tests, so that they run side by side."""


@pytest.mark.slow
@pytest.mark.parametrize("share", range(1, SHARES + 1))
def test_killed_at_any_statement_or_commit_a_kill_is_sent_at_most_once_and_nothing_is_lost(tmp_path, share):
    """KILL-3: verdict, proposal, approval, errand, intent, receipt, outcome."""
    moment, kills = share, 0
    while played(tmp_path, at_statement(moment), f"statement {moment}"):
        moment, kills = moment + SHARES, kills + 1

    assert kills >= 8


@pytest.mark.slow
@pytest.mark.parametrize("share", range(1, SHARES + 1))
def test_killed_at_any_await_a_kill_is_sent_at_most_once_and_nothing_is_lost(tmp_path, share):
    """KILL-3: between any two steps of the execution."""
    moment, kills = share, 0
    while played(tmp_path, at_await(moment), f"await {moment}"):
        moment, kills = moment + SHARES, kills + 1

    assert kills >= 8


@pytest.mark.parametrize(("when", "reached"), [("before", 0), ("after", 1)])
def test_killed_while_the_cancel_is_on_its_way_it_is_looked_up_and_never_sent_again(tmp_path, when, reached):
    """KILL-3, KILL-6: from outside the two look the same."""
    assert played(tmp_path, in_the_scheduler(when), when)

    assert len(sent(tmp_path / "run")) == reached


def test_without_any_crash_it_is_sent_once(tmp_path):
    assert not played(tmp_path, at_await(10**9), "no crash")

    assert len(sent(tmp_path / "run")) == 1


@pytest.mark.slow
def test_killed_anywhere_a_job_that_progressed_meanwhile_is_never_killed(tmp_path):
    """KILL-2: the daemon that comes after looks again before it sends."""
    start = tmp_path / "start"
    start.mkdir()
    asyncio.run(begin(start))
    moment = 1
    while True:
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)
        killed = in_a_child(folder, at_statement(moment))
        before = sent(folder)
        with Store.open(f"sqlite:///{folder / 'supervisor.db'}") as store:
            begun = [each.stage for each in store.decisions()]
        scene = scene_in(folder, 7)
        if not before:
            scene.worlds[0].print("1", b"step 16/80\n")
        asyncio.run(scene.tick())

        async def honest(held: Any, scene: Scene = scene) -> Any:
            moved = (held.log.step or 0) > 15
            return verdict_on(held, scene.now, Ruling.NO_KILL if moved else Ruling.KILL)

        scene.kills.refresh = honest
        asyncio.run(scene.carry_out(wait=True))
        asyncio.run(scene.carry_out(wait=True))
        assert sent(folder) == before, f"statement {moment}, {begun}"
        for decision in scene.store.decisions():
            assert decision.stage is (Stage.CONFIRMED if before else decision.stage), f"statement {moment}"
            assert decision.stage in (Stage.CONFIRMED, Stage.VOID, Stage.UNCONFIRMED), f"statement {moment}"
        asyncio.run(scene.room.close())
        if not killed:
            break
        moment += 3
    assert moment > 20


@pytest.mark.lab
def test_on_a_server_too_a_killed_daemons_intent_is_looked_up_by_the_next(tmp_path, postgres_url):
    """Two daemons on one PostgreSQL: the second takes over what the first had begun."""
    world = a_hung_world()
    first = a_scene(tmp_path, world, url=postgres_url, owner="daemon-a", book=tmp_path / "scheduler")
    asyncio.run(first.settle())
    decision = first.approve(first.judge())
    assert decision.role == "supervisor"

    def dies(job: Any, approval: Any) -> None:
        raise asyncio.CancelledError

    first.clusters[0].on_cancel = dies
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(first.carry_out())
    assert first.decision().stage is Stage.INTENDED

    world.pass_time(first.now - world.now + 20 * MINUTE)
    second = a_scene(tmp_path, world, url=postgres_url, owner="daemon-b", book=tmp_path / "scheduler")
    asyncio.run(second.carry_out(wait=True))

    assert (second.decision().stage, sent(tmp_path), second.sent) == (Stage.UNCONFIRMED, [], [])
    for scene in (first, second):
        asyncio.run(scene.room.close())
