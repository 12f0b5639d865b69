"""``supervisorctl`` as a person calls it, in this process; and a store that it can be asked about."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from supervisor.app.clock import utc_now
from supervisor.app.ctl import main
from supervisor.model.job import JobState
from supervisor.model.records import Heartbeat
from supervisor.store.store import Store
from tests.scripted import ScriptedCluster, World
from tests.stories.daemon import a_room

HOSTILE = "a\x1b[31mred\x1b]0;title\x07\u202e|`b"
LONG = "x" * 4000


@dataclass(frozen=True)
class Answer:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line on standard error; no traceback, nothing else."""
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err.rstrip("\n")


Ask = Callable[..., Answer]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Calls ``supervisorctl`` with these words."""

    def asked(*words: object) -> Answer:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as ended:  # argparse ends the program by itself
            code = ended.code if isinstance(ended.code, int) else 1
        told = capsys.readouterr()
        return Answer(code, told.out, told.err)

    return asked


CONFIG = """
interval_s = 900
database_url = "sqlite:///supervisor.db"
[[cluster]]
name = "cluster-a"
kind = "host"
[[cluster]]
name = "cluster-b"
kind = "host"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config with two clusters, and no store yet."""
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="session")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as a daemon leaves it just now: four jobs, odd names, one failure. Copied for each test."""
    folder = tmp_path_factory.mktemp("seed")
    begin = utc_now().replace(microsecond=0) - timedelta(minutes=3)
    a, b = World("cluster-a", begin), World("cluster-b", begin)
    a.submit("1", "rl__alpha")
    a.submit("2", "rl__beta")
    a.submit("3", HOSTILE)
    b.submit("1", LONG)
    for world, job in ((a, "1"), (a, "2"), (a, "3"), (b, "1")):
        world.start(job)
        world.print(job)

    async def ticks() -> None:
        room, clock = a_room(folder, [ScriptedCluster(a), ScriptedCluster(b)], begin)
        await room.tick(30)
        a.print("2", b"Traceback (most recent call last):\nValueError: bad batch\n")
        for world in (a, b):
            world.pass_time(timedelta(minutes=3))
        a.end("2", JobState.FAILED, 3)
        clock[0] = a.now
        await room.tick(30)
        await room.close()

    asyncio.run(ticks())
    return folder


@pytest.fixture
def seeded(config: Path, seed: Path) -> Path:
    """The config with that store."""
    shutil.copytree(seed, config.parent, dirs_exist_ok=True)
    return config


def beat(url: str, **changes: object) -> None:
    """A daemon's sign of life, now unless said otherwise."""
    now = utc_now()
    values: dict[str, object] = {
        "daemon": "elsewhere:1:1", "host": "elsewhere", "pid": 1, "version": "0", "started_at": now, "beat_at": now,
        "interval_s": 900.0, "next_tick_at": now + timedelta(minutes=10),
    }  # fmt: skip
    with Store.open(url) as store:
        store.beat(Heartbeat(**{**values, **changes}))  # type: ignore[arg-type]
