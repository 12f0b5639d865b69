"""What the newest verdict of a probe does to a job's life, and what it never does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from supervisor.buckets import bucket_of
from supervisor.detectors import examine
from supervisor.model.findings import Quote
from supervisor.model.job import JobState, Outcome
from supervisor.model.lifecycle import Phase, Sign
from supervisor.model.probe import Mark, Ruling, Standing
from supervisor.rules.memory import Memory
from supervisor.rules.step import step
from tests.scripted import World
from tests.some import BOOK, HOUR

JOB = "42"


class Watched:
    """One job that printed once and then nothing for two hours, and readings of it with a verdict at hand."""

    def __init__(self):
        self.world, self.memory, self.lines = World(), Memory(), {}
        self.world.submit(JOB)
        self.world.start(JOB)
        self.world.print(JOB)
        self.look()
        self.look()
        self.world.pass_time(2 * HOUR)
        assert self.look() is Phase.SUSPECT

    def look(self, verdict=None):
        """The job's phase after one more reading."""
        reading = self.world.read(self.memory.watch(self.lines, None))
        standing = {} if verdict is None else {self.memory[JOB].key: verdict}
        now, known = self.world.now, lambda name: bucket_of(name, {})
        self.steps = step(self.memory, reading, BOOK, known, examine, now, standing=standing)
        for held in self.steps.changed.values():
            self.memory.put(replace(held, row=1))
        self.lines = reading.lines
        return self.memory[JOB].life.phase

    def verdict(self, ruling=Ruling.KILL, **changes):
        held = self.memory[JOB]
        mark = Mark(at=self.world.now, step=held.log.step, progress_at=held.log.progress_at)
        values = {
            "id": 9, "job": held.key, "attempt": held.life.attempt, "taken_at": self.world.now, "ruling": ruling,
            "passed": False, "wedged": ruling is Ruling.KILL, "cause": "silent-hang", "reason": "all ranks wait",
            "quotes": (Quote("stack.txt", 4, "pthread_cond_wait"),), "mark": mark, "setting": None,
        }  # fmt: skip
        return Standing(**(values | changes))


def test_suspicion_asks_for_a_probe_and_moves_no_further_by_itself():
    """LIVE-2, LIVE-5"""
    watched = Watched()

    assert watched.steps.probe == {JOB}
    watched.world.pass_time(6 * HOUR)
    assert watched.look() is Phase.SUSPECT


def test_a_kill_by_liveness_makes_it_wedged_with_its_quote_though_nothing_else_is_new():
    """LIVE-5"""
    watched = Watched()

    assert watched.look(watched.verdict()) is Phase.WEDGED
    (move,) = watched.steps.transitions
    assert move.read.sign is Sign.HUNG
    assert move.read.evidence[0].quotes == (Quote("stack.txt", 4, "pthread_cond_wait"),)


def test_progress_lifts_it_out_again_whatever_the_verdict_said():
    """KILL-2"""
    watched = Watched()
    verdict = watched.verdict()
    watched.look(verdict)
    watched.world.pass_time()
    watched.world.print(JOB)

    assert watched.look(verdict) is Phase.RUNNING
    watched.world.pass_time()
    assert watched.look(verdict) is Phase.RUNNING, "an old verdict does not throw it back"


def test_a_new_attempt_is_not_judged_by_the_verdict_on_the_old_one():
    watched = Watched()
    verdict = watched.verdict()
    watched.look(verdict)
    watched.world.pass_time()
    watched.world.requeue(JOB)
    watched.world.pass_time()
    watched.world.start(JOB)

    assert watched.look(verdict) is Phase.BRING_UP


def test_an_end_goes_before_any_verdict():
    watched = Watched()
    verdict = watched.verdict()
    watched.world.end(JOB, JobState.FAILED, 1)
    watched.look(verdict)

    assert watched.memory[JOB].life.outcome is Outcome.FAILED


@pytest.mark.parametrize(("ruling", "after"), [(Ruling.NO_KILL, Phase.SUSPECT), (Ruling.ERROR, Phase.WEDGED)])
def test_a_later_probe_may_take_a_hang_back_but_an_error_knows_nothing(ruling, after):
    """PROBE-3"""
    watched = Watched()
    watched.look(watched.verdict())
    watched.world.pass_time()

    assert watched.look(watched.verdict(ruling, id=10)) is after


def test_a_verdict_on_a_job_that_is_not_listed_moves_nothing():
    """POLL-1"""
    watched = Watched()
    verdict = watched.verdict()
    watched.world.jobs[JOB].listed = False
    watched.world.accounting_up = False
    watched.world.pass_time(timedelta(minutes=1))

    assert watched.look(verdict) is Phase.SUSPECT
