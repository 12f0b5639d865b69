"""Every test of the store's behaviour runs on both engines: SQLite in a file, and a private PostgreSQL server."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.store.store import Store
from tests.postgres import PrivatePostgres, postgres, postgres_url  # noqa: F401  fixtures

ENGINES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.lab))


@pytest.fixture(params=ENGINES)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a database without any table."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'supervisor.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "store.db"
    with Store.open(f"sqlite:///{path}") as store:
        store.upgrade()
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres: PrivatePostgres) -> str:  # noqa: F811
    url = postgres.new_database()
    with Store.open(url) as store:
        store.upgrade()
    return url


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a database with the newest schema and no rows."""
    if request.param == "sqlite":
        path = tmp_path / "supervisor.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    server: PrivatePostgres = request.getfixturevalue("postgres")
    made = server.new_database(like=request.getfixturevalue("postgres_template"))
    yield made
    server.drop(made)


@pytest.fixture
def open_store(url: str) -> Iterator[Callable[[], Store]]:
    """Opens one more store on the same database, as another process would."""
    opened: list[Store] = []

    def another() -> Store:
        opened.append(Store.open(url))
        return opened[-1]

    yield another
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    return open_store()


@pytest.fixture
def sqlite_store(tmp_path: Path, sqlite_template: Path) -> Iterator[Store]:
    """For what only a file can suffer."""
    path = tmp_path / "supervisor.db"
    shutil.copy(sqlite_template, path)
    with Store.open(f"sqlite:///{path}") as store:
        yield store
