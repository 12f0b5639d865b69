"""A daemon killed at any point of its writing: no transition is lost and none is doubled (house, idea 4).

The daemon here is small and has one plan: each tick moves every job one step along ``LIFE``, deciding from what the store
holds, as the real one does. A killer sits on the database driver's own events and ends the process with SIGKILL at the n-th
boundary: before each statement that writes, before each commit, and after it. Then a new daemon carries the plan to its end.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from supervisor.model.facts import Held
from supervisor.model.job import Outcome
from supervisor.model.lifecycle import Phase, Sign, SignRead, Transition
from supervisor.model.records import ErrandWanted
from supervisor.store.engine import Row
from supervisor.store.schema import metadata
from supervisor.store.store import Store
from tests.some import MINUTE, NOON
from tests.store.some import attempts, new_job, poll

LIFE = (Phase.BRING_UP, Phase.RUNNING, Phase.SUSPECT, Phase.TERMINAL)
JOBS = 26  # enough for the bulk path
NOTES = 2
LEASE = timedelta(seconds=30)


def stepped(job: Held, tick: int) -> tuple[Held, Transition]:
    after = replace(job.life, phase=LIFE[LIFE.index(job.life.phase) + 1], since=NOON + tick * MINUTE)
    if not after.phase.live:
        after = replace(after, outcome=Outcome.COMPLETED)
    read = SignRead(Sign.PROGRESSING, f"tick {tick}")
    return job.having(life=after), Transition(job=job.key, before=job.life, after=after, read=read, at=after.since)


def ticks(store: Store, owner: str) -> None:
    """The whole life of the daemon: until every job is at its end, and every note is written."""
    while True:
        number = store.begin_tick(NOON, owner)
        now = NOON + number * MINUTE
        assert store.take_cluster("cluster-a", owner, now, now + LEASE)
        held = store.held("cluster-a", ended_after=NOON)
        if not held:
            jobs = [new_job(str(each), phase=LIFE[0]) for each in range(JOBS)]
            store.record(poll(*jobs, at=number * MINUTE, tick=number, attempts=attempts(jobs)), owner=owner)
            continue
        moves = [stepped(job, number) for job in held if job.life.phase.live]
        over = [job for job, _ in moves if not job.life.phase.live]
        notes = [ErrandWanted("note", job.key, {}, f"note {job.key.id}") for job in over[:NOTES]]
        record = poll(
            *[job for job, _ in moves],
            at=number * MINUTE,
            tick=number,
            transitions=[step for _, step in moves],
            attempts=attempts([job for job, _ in moves]),
            errands=notes,
        )
        store.record(record, owner=owner)
        while (errand := store.claim_errand(["note"], owner, now, LEASE)) is not None:
            assert store.finish_errand(errand.id, owner, now)
        store.finish_tick(number, now, "report", "{}")
        if not moves and not store.errands_open():
            return


def killed_at(url: str, boundary: int) -> int:
    """Run the daemon in a child that is killed at a boundary; its wait status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        store = Store.open(url)
        passed = 0

        def pass_boundary(*_: object) -> None:
            nonlocal passed
            passed += 1
            if passed == boundary:
                os.kill(os.getpid(), signal.SIGKILL)

        def pass_statement(connection: sa.Connection, *_: object) -> None:
            if connection.get_execution_options().get("writes"):  # between two readings nothing can be torn
                pass_boundary()

        sa.event.listen(store._db.engine, "before_cursor_execute", pass_statement)
        many = store._db.run_many

        def run_many(connection: sa.Connection, text: str, rows: Sequence[Row]) -> int:
            pass_boundary()
            return many(connection, text, rows)

        store._db.run_many = run_many  # type: ignore[method-assign]  this goes by the driver, past SQLAlchemy's events
        sa.event.listen(store._db.engine, "commit", pass_statement)
        sa.event.listen(store._db.engine, "checkin", pass_boundary)
        ticks(store, f"killed at {boundary}")
        os._exit(0)
    finally:
        os._exit(1)


def finish(url: str) -> None:
    """A new daemon carries on, once the killed one's lease has run out."""
    with Store.open(url) as store:
        for lease in store.leases(NOON):
            assert store.take_cluster(lease.cluster, "the next one", lease.until, lease.until)
        ticks(store, "the next one")


def check(url: str) -> None:
    with Store.open(url) as store:
        held = store.held("cluster-a", ended_after=NOON)
        assert len(held) == JOBS
        for job in held:
            steps = store.transitions(job.row or 0)
            assert [step.number for step in steps] == [1, 2, 3]
            lives = [steps[0].transition.before, *[step.transition.after for step in steps]]
            assert [life.phase for life in lives] == list(LIFE)
            assert [step.transition.before for step in steps] == lives[:-1]
            assert job.life == lives[-1]
            assert [number for number, _ in store.attempts(job.row or 0)] == [1]
            assert [look.phase for look in store.changes(job.row or 0)] == [phase.value for phase in LIFE]
        assert store.errands_open() == []
        polls = store.polls("cluster-a", NOON)
        assert sum(one.changed for one in polls) == JOBS * len(LIFE)
        assert store.check()


def emptied(url: str) -> None:
    """The same database as new."""
    with Store.open(url) as store, store._db.write("test") as connection:
        for table in reversed(metadata.sorted_tables):
            connection.exec_driver_sql(f"DELETE FROM {table.name}")


STRIDE = 6
"""Boundaries are shared out over as many tests, so that they run side by side."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, STRIDE + 1))
def test_killed_at_any_statement_or_commit_no_transition_is_lost_or_doubled(url: str, first: int) -> None:
    boundary, killed = first, 0
    while True:
        status = killed_at(url, boundary)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break  # it came to its end before that boundary
        assert os.WTERMSIG(status) == signal.SIGKILL
        finish(url)
        check(url)
        emptied(url)
        boundary, killed = boundary + STRIDE, killed + 1

    assert killed >= 10
    check(url)
