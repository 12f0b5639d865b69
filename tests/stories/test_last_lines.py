"""What a job prints just before its end counts: its last steps, and the trials of its end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from supervisor.model.job import JobState
from supervisor.store.store import Store
from tests.scripted import ScriptedCluster, World
from tests.some import NOON
from tests.stories import voices
from tests.stories.daemon import LONG_AGO, a_room


@pytest.mark.parametrize("listed", [True, False])
async def test_the_last_steps_of_a_job_that_ended_between_two_readings_are_counted(
    tmp_path: Path, listed: bool
) -> None:
    """CHAIN-3: done at its final step, with a link of its chain left over."""
    world = World("alpha", NOON)
    world.submit("1", "rl__a")
    world.start("1")
    world.submit("2", "rl__a", after="1")
    room, clock = a_room(tmp_path, [ScriptedCluster(world)], NOON)
    await room.tick(30)
    for steps, end in ((range(1, 61), False), (range(61, 81), True)):
        world.pass_time(timedelta(hours=1))
        world.print("1", voices.rl_run(steps).encode())
        if end:
            world.end("1", JobState.COMPLETED, 0, listed=listed)
        clock[0] = world.now
        await room.tick(30)
    await room.close()
    with Store.open(f"sqlite:///{tmp_path / 'supervisor.db'}") as store:
        held = next(job for job in store.held("alpha", ended_after=LONG_AGO) if job.key.id == "1")

    assert (held.log.step, held.log.total) == (80, 80)
    flag = next(flag.finding for flag in held.flags if flag.finding.rule == "CHAIN-3")
    assert flag.text == "done at its final step 80, and its successor 2 is left over; recommended: cancel that one"
    assert flag.quotes[0].text in world.jobs["1"].text.decode()


async def test_how_each_attempt_ended_is_remembered_with_its_step(tmp_path: Path) -> None:
    """CHAIN-5: over a restart of the daemon too, since it is stored."""
    world = World("alpha", NOON)
    world.submit("1", "rl__a")
    for attempt in (1, 2, 3):
        world.start("1")
        world.jobs["1"].text = b""
        for happens in ("seen", "prints", "ends"):
            world.pass_time(timedelta(minutes=10))
            if happens == "prints":
                world.print("1", voices.rl_run(range(1, 4)).encode())
            elif happens == "ends":
                world.requeue("1", JobState.FAILED)
                world.jobs["1"].past[-1] = replace(world.jobs["1"].past[-1], exit_code=1)
            room, _clock = a_room(tmp_path, [ScriptedCluster(world)], world.now)
            await room.tick(30)
            await room.close()
        with Store.open(f"sqlite:///{tmp_path / 'supervisor.db'}") as store:
            held = next(iter(store.held("alpha", ended_after=LONG_AGO)))
        assert [(end.attempt, end.exit_code, end.step) for end in held.past] == [
            (n, 1, 3) for n in range(1, attempt + 1)
        ]
        assert (("CHAIN-5", "fault") in {(f.finding.rule, f.finding.severity.value) for f in held.flags}) == (
            attempt > 1
        )
