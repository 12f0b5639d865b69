"""No healthy run is flagged: many kinds of them over one shift, through the real loop, looked at each quarter of an hour."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from supervisor.store.light import Light
from tests.scripted import ScriptedCluster, World
from tests.stories.daemon import a_room
from tests.stories.healthy import RUNS, SHIFT

pytestmark = pytest.mark.slow
BEGIN = datetime(2026, 7, 1, 6, 0, tzinfo=UTC)
TICK = 15


@pytest.fixture(scope="module")
def shift(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What was said against each run at any tick of the shift."""
    return asyncio.run(_shift(tmp_path_factory.mktemp("shift")))


async def _shift(folder: Path) -> dict[str, list[str]]:
    world = World("alpha", BEGIN)
    room, clock = a_room(folder, [ScriptedCluster(world)], BEGIN)
    said = {name: list(run()) for name, run in RUNS.items()}
    spoken = dict.fromkeys(RUNS, 0)
    against: dict[str, list[str]] = {name: [] for name in RUNS}
    for number, name in enumerate(RUNS):
        world.submit(str(100 + number), name)
        world.start(str(100 + number))
    try:
        for minute in range(SHIFT):
            for number, name in enumerate(RUNS):
                while spoken[name] < len(said[name]) and said[name][spoken[name]][0] <= minute:
                    world.print(str(100 + number), said[name][spoken[name]][1].encode())
                    spoken[name] += 1
            if minute % TICK == 0:
                clock[0] = world.now
                await room.tick(30)
                _note(folder, minute, against)
            world.pass_time()
    finally:
        await room.close()
    return against


def _note(folder: Path, minute: int, against: dict[str, list[str]]) -> None:
    with Light.open(f"sqlite:///{folder / 'supervisor.db'}") as light:
        for job in light.jobs(ended_after=BEGIN):
            if job.worst in ("watch", "fault") or job.phase not in ("bring_up", "running"):
                against[job.name].append(f"minute {minute}: {job.phase}: {job.worst}: {job.flags}")


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_healthy_run_is_never_flagged_nor_suspected(shift: dict[str, list[str]], name: str) -> None:
    """LIVE-2, LIVE-3, LIVE-6, RL-2, RL-13, SFT-4, DATAGEN-2, EVAL-3."""
    assert shift[name] == []


def test_there_are_many_kinds_of_them() -> None:
    assert len(RUNS) >= 40
