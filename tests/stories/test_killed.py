"""SIGKILL at every await of a tick: run again, nothing is lost and nothing doubled."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from supervisor.app.errands import LEASE
from supervisor.model.job import JobState
from supervisor.store.store import Store
from tests.scripted import World
from tests.stories.daemon import one_tick, story


def chapters():
    """A story in five chapters; each changes the world before the next tick."""

    def begin(world):
        world.submit("1", "rl__good")
        world.submit("2", "sft__dies")
        world.start("2")
        world.print("2", b"step 1\n")

    def run(world):
        world.start("1")
        world.print("1", b"step 1\n")
        world.print("2", b"step 2\n")

    def die(world):
        world.print(
            "2", b'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: bad batch\n'
        )
        world.end("2", JobState.FAILED, 1)
        world.submit("3", "chain")
        world.print("1", b"step 2\n")

    def requeue(world):
        world.requeue("1")
        world.start("3")

    def finish(world):
        world.start("1")
        world.print("1", b"step 3\n")
        world.end("3", JobState.COMPLETED, 0)

    return [begin, run, die, requeue, finish]


def tell(folder: Path, upto: int) -> World:
    """Tick through the first ``upto`` chapters; the world as it is before the next one's tick."""
    world = World()
    for number, chapter in enumerate(chapters()):
        world.pass_time()
        chapter(world)
        if number == upto:
            break
        asyncio.run(one_tick(folder, [world]))
    return world


class _Counted:
    """A coroutine driven step by step; at step ``die_at`` of the whole loop the process kills itself."""

    def __init__(self, coro, counter, die_at):
        self.coro, self.counter, self.die_at = coro, counter, die_at

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        self.counter[0] += 1
        if self.counter[0] == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.coro.send(value)

    def throw(self, *error):
        return self.coro.throw(*error)

    def close(self):
        self.coro.close()


async def _drive(counted):
    return await counted


def tick_in_a_child(folder: Path, world: World, die_at: int) -> tuple[bool, int]:
    """(killed?, steps made). The child makes one tick and kills itself at step ``die_at``, as the system would."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            counter = [0]
            loop = asyncio.new_event_loop()
            loop.set_task_factory(
                lambda loop, coro, **named: asyncio.Task(_drive(_Counted(coro, counter, die_at)), loop=loop, **named)
            )
            loop.run_until_complete(one_tick(folder, [world]))
            os.write(write, str(counter[0]).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as said:
        steps = said.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True, die_at
    assert os.WEXITSTATUS(status) == 0
    return False, int(steps)


@pytest.mark.slow
def test_a_tick_killed_at_any_await_and_run_again_tells_the_same_story(tmp_path):
    """House, idea 4: one transaction a cluster; after a crash the world is looked at again."""
    last = len(chapters()) - 1
    whole = tmp_path / "whole"
    whole.mkdir()
    world = tell(whole, last)
    asyncio.run(one_tick(whole, [world]))
    world.pass_time(LEASE)
    asyncio.run(one_tick(whole, [world]))
    expected, kills = story(whole), 0

    for chapter in (0, 2, 3):
        start = tmp_path / f"start-{chapter}"
        start.mkdir()
        tell(start, chapter)
        step, alive = 1, False
        while not alive:
            folder = tmp_path / "run"
            shutil.copytree(start, folder)
            world = tell_world(chapter)
            killed, _ = tick_in_a_child(folder, world, step)
            alive = not killed
            kills += killed
            world.pass_time(timedelta(seconds=1))
            asyncio.run(one_tick(folder, [world]))
            for number in range(chapter + 1, last + 1):
                world.pass_time()
                chapters()[number](world)
                asyncio.run(one_tick(folder, [world]))
            world.pass_time(LEASE)
            asyncio.run(one_tick(folder, [world]))
            told = story(folder)
            assert told == expected, f"killed in chapter {chapter} at step {step}"
            with Store.open(f"sqlite:///{folder / 'supervisor.db'}") as store:
                assert not [each for each in store.errands_open("autopsy") if not each.payload.get("again")]
            records = [path.name for path in (folder / "agent_logs").glob("*-2-failed.md")]
            assert len(records) == 1
            shutil.rmtree(folder)
            step += 1 if step < 12 else 3
    assert kills > 20


def tell_world(chapter: int) -> World:
    """The world at ``chapter`` without any ticks."""
    world = World()
    for change in chapters()[: chapter + 1]:
        world.pass_time()
        change(world)
    return world
