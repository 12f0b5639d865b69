"""Who goes on after a link of a chain that ran out of time (CHAIN-1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.model.job import Dependency, JobState, Outcome
from supervisor.model.polling import Polled
from supervisor.rules.memory import Memory
from supervisor.rules.step import step
from tests.scripted import World
from tests.some import BOOK, HOUR


class Chain:
    """Readings of a world, one after the other; ids of array tasks get their group as a cluster gives it."""

    def __init__(self) -> None:
        self.world, self.memory, self.lines = World(), Memory(), {}

    def look(self) -> None:
        reading = self.world.read(self.memory.watch(self.lines, None))
        assert isinstance(reading, Polled)
        grouped = {
            "changed": [replace(one, group=_group(one.key.id)) for one in reading.changed],
            "ended": [replace(one, group=_group(one.key.id)) for one in reading.ended],
        }
        steps = step(self.memory, replace(reading, **grouped), BOOK, lambda name: "other", _nothing, self.world.now)
        for number, held in enumerate(steps.changed.values()):
            self.memory.put(held if held.row is not None else replace(held, row=number))
        self.lines = reading.lines

    def run(self, *jobs: str, name: str = "") -> None:
        for job in jobs:
            self.world.submit(job, name)
            self.world.start(job)
        self.look()
        self.world.pass_time(HOUR)

    def outcome(self, job: str) -> Outcome | None:
        return self.memory[job].life.outcome


def _group(job: str) -> str | None:
    return job.partition("_")[0] if "_" in job else None


def _nothing(_facts, _now):
    return ()


def test_each_task_of_an_array_hands_on_to_the_job_that_waits_for_the_array():
    """CHAIN-1: ``sbatch -d afterany:401`` names the array, and 401_1 is what times out."""
    chain = Chain()
    chain.run("401_1", "401_2")
    chain.world.submit("402", after="401")
    chain.look()
    chain.world.end("401_1", JobState.TIMED_OUT)
    chain.look()

    assert (chain.outcome("401_1"), chain.memory["401_1"].successor) == (Outcome.HANDED_ON, "402")
    assert chain.outcome("401_2") is None


def test_a_successor_of_an_array_that_shows_itself_late_corrects_its_tasks():
    """CHAIN-1"""
    chain = Chain()
    chain.run("401_1")
    chain.world.end("401_1", JobState.TIMED_OUT)
    chain.look()
    before = chain.outcome("401_1")
    chain.world.submit("402", after="401")
    chain.look()

    assert (before, chain.outcome("401_1")) == (Outcome.TIMED_OUT, Outcome.HANDED_ON)


@pytest.mark.parametrize("started", [False, True])
def test_a_singleton_of_the_same_name_goes_on_after_it(started: bool):
    """CHAIN-1: ``sbatch -d singleton`` waits for all that bear its name."""
    chain = Chain()
    chain.run("42", name="rl__long")
    for job in ("43", "44"):
        chain.world.submit(job, "rl__long").depends_on = (Dependency("singleton", ""),)
    chain.look()
    chain.world.end("42", JobState.TIMED_OUT)
    if started:
        chain.world.start("43")
        chain.world.jobs["43"].depends_on = ()  # the scheduler forgets what is satisfied
    chain.look()

    assert (chain.outcome("42"), chain.memory["42"].successor) == (Outcome.HANDED_ON, "43")


def test_a_singleton_of_another_name_is_no_successor():
    """CHAIN-4"""
    chain = Chain()
    chain.run("42", name="rl__long")
    chain.world.submit("43", "rl__other").depends_on = (Dependency("singleton", ""),)
    chain.look()
    chain.world.end("42", JobState.TIMED_OUT)
    chain.look()

    assert chain.outcome("42") is Outcome.TIMED_OUT


def test_a_successor_cancelled_while_it_waited_leaves_nothing_to_wait_for():
    """CHAIN-4: known at once, not after two minutes."""
    chain = Chain()
    chain.run("42")
    chain.world.submit("43", after="42")
    chain.look()
    chain.world.jobs["43"].depends_on = ()
    chain.world.end("43", JobState.CANCELLED, listed=True)
    chain.world.end("42", JobState.TIMED_OUT)
    chain.look()

    assert chain.outcome("42") is Outcome.TIMED_OUT
