from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.contract.driving import Driver, Drivers, Watcher


def _all() -> Drivers:
    found: Drivers = {}
    for file in sorted(Path(__file__).with_name("drivers").glob("[!_]*.py")):
        found |= import_module(f"tests.contract.drivers.{file.stem}").DRIVERS
    return found


DRIVERS = _all()


@pytest.fixture(params=sorted(DRIVERS))
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    with DRIVERS[request.param](request) as made:
        yield made


@pytest.fixture
async def watcher(driver: Driver) -> AsyncIterator[Watcher]:
    yield Watcher(driver)
    await driver.cluster.close()
