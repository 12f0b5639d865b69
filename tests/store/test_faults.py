"""A locked, full, read-only, damaged or absent database: one clear line, nothing half written, and well again when it is."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from supervisor.model.errors import StoreError
from supervisor.store.faults import StoreAway, StoreBroken, StoreFull, StoreLocked, StoreReadOnly
from supervisor.store.store import Store
from tests.postgres import PrivatePostgres
from tests.some import MINUTE, NOON
from tests.store.some import SECOND, new_job, poll

JOBS = 3000


def jobs_held(store: Store) -> int:
    return len(store.held("cluster-a", ended_after=NOON))


def one_line(error: StoreError) -> str:
    assert "\n" not in str(error)
    assert error.__cause__ is not None or isinstance(error, StoreLocked)
    return str(error)


# ---------------------------------------------------------------- SQLite


@pytest.fixture
def path(tmp_path: Path, sqlite_template: Path) -> Path:
    shutil.copy(sqlite_template, tmp_path / "supervisor.db")
    return tmp_path / "supervisor.db"


@pytest.fixture
def filed(path: Path) -> Iterator[Store]:
    """A store on a file that holds one job already."""
    with Store.open(f"sqlite:///{path}", busy_s=0.05) as store:
        store.record(poll(new_job()))
        yield store


def test_a_database_locked_by_another_process_is_told_and_then_used_again(filed: Store, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreLocked, match="locked by another process, while storing the poll of cluster-a"):
            filed.record(poll(new_job("43"), at=MINUTE))
        assert jobs_held(filed) == 1  # reading goes on
        other.execute("ROLLBACK")

    filed.record(poll(new_job("43"), at=MINUTE))
    assert jobs_held(filed) == 2


def test_a_full_disk_is_told_and_nothing_of_the_poll_is_stored(filed: Store) -> None:
    pages = filed._db.engine.raw_connection()
    count = pages.cursor().execute("PRAGMA page_count").fetchone()[0]
    pages.close()
    filed.close()

    def limit(connection: sqlite3.Connection, _: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {count + 20}")

    sa.event.listen(filed._db.engine, "connect", limit)
    with pytest.raises(StoreFull, match="disk is full"):
        filed.record(poll(*[new_job(str(number)) for number in range(1000, 1000 + JOBS)], at=MINUTE))
    assert jobs_held(filed) == 1

    sa.event.remove(filed._db.engine, "connect", limit)
    filed.close()
    filed.record(poll(*[new_job(str(number)) for number in range(1000, 1000 + JOBS)], at=MINUTE))
    assert jobs_held(filed) == 1 + JOBS


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[], None]]:
    """A real file system of 2 MB; what is given makes it bigger."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        yield lambda: subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True) and None  # type: ignore[func-returns-value]
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.lab
def test_a_really_full_disk_is_told_and_the_store_heals_when_there_is_room(
    tmp_path: Path, sqlite_template: Path
) -> None:
    """LIVE-8: a full disk is said, never swallowed."""
    with small_disk(tmp_path / "disk") as grow:
        shutil.copy(sqlite_template, tmp_path / "disk" / "store.db")
        with Store.open(f"sqlite:///{tmp_path / 'disk' / 'store.db'}") as store:
            store.record(poll(new_job()))

            with pytest.raises(StoreFull, match="disk is full"):
                store.record(poll(*[new_job(str(number)) for number in range(1000, 1000 + JOBS)], at=MINUTE))
            assert jobs_held(store) == 1

            grow()
            store.record(poll(*[new_job(str(number)) for number in range(1000, 1000 + JOBS)], at=MINUTE))
            assert jobs_held(store) == 1 + JOBS
            assert "sound" in store.check()


def test_a_database_that_may_not_be_written_is_told(filed: Store) -> None:
    filed.close()
    sa.event.listen(filed._db.engine, "begin", lambda one: one.exec_driver_sql("PRAGMA query_only = ON"))

    with pytest.raises(StoreReadOnly, match="read-only"):
        filed.record(poll(new_job("43"), at=MINUTE))

    assert jobs_held(filed) == 1


def test_a_store_opened_to_be_read_only_reads_and_refuses_to_write(filed: Store, path: Path) -> None:
    with Store.open(f"sqlite:///{path}", read_only=True) as reader:
        assert jobs_held(reader) == 1
        with pytest.raises(StoreError, match="opened to be read only"):
            reader.record(poll(new_job("43"), at=MINUTE))


def test_a_damaged_file_is_told_and_healed_by_a_backup(filed: Store, path: Path, tmp_path: Path) -> None:
    filed.record(poll(*[new_job(str(number)) for number in range(1000, 1500)], at=SECOND))
    filed.backup(tmp_path / "backup.db")
    filed.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\x5a" * (len(whole) - 4096))

    with pytest.raises(StoreBroken, match=r"damaged.*restore a backup"):
        filed.record(poll(new_job("43"), at=MINUTE))

    shutil.copy(tmp_path / "backup.db", path)
    filed.record(poll(new_job("43"), at=MINUTE))
    assert jobs_held(filed) == 502


def test_a_file_that_is_no_database_is_told(filed: Store, path: Path) -> None:
    filed.close()
    path.write_bytes(b"hello " * 1000)

    with pytest.raises(StoreBroken, match="not an SQLite database"):
        filed.holds()


def test_a_file_that_was_taken_away_is_told_and_never_made_anew(filed: Store, path: Path, tmp_path: Path) -> None:
    """A daemon that writes on into a deleted file, or into a new and empty one, would report all well over nothing."""
    for part in list(tmp_path.glob("supervisor.db*")):
        part.rename(tmp_path / f"away-{part.name}")

    with pytest.raises(StoreAway, match="can't be opened"):
        filed.record(poll(new_job("43"), at=MINUTE))
    assert not path.exists()

    for part in list(tmp_path.glob("away-*")):
        part.rename(tmp_path / part.name.removeprefix("away-"))
    filed.record(poll(new_job("43"), at=MINUTE))
    assert jobs_held(filed) == 2


def test_a_file_that_was_replaced_is_read_as_it_is_now(
    filed: Store, path: Path, tmp_path: Path, sqlite_template: Path
) -> None:
    assert jobs_held(filed) == 1
    for part in list(tmp_path.glob("supervisor.db*")):
        part.unlink()
    shutil.copy(sqlite_template, path)

    assert jobs_held(filed) == 0


def test_threads_of_one_daemon_write_in_turn(sqlite_store: Store) -> None:
    """Twenty clusters end their polls at the same time: none is refused, none waits for the lock's own pauses."""

    def store_one(number: int) -> None:
        for at in range(5):
            sqlite_store.record(poll(new_job(f"{at}", cluster=f"c{number}"), cluster=f"c{number}", at=at * SECOND))

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(store_one, range(20)))

    assert [len(sqlite_store.held(f"c{number}", ended_after=NOON)) for number in range(20)] == [5] * 20


# ---------------------------------------------------------------- PostgreSQL


@pytest.fixture
def served(postgres: PrivatePostgres, postgres_template: str) -> Iterator[Store]:
    """A store on a server that holds one job already."""
    with Store.open(postgres.new_database(like=postgres_template), busy_s=0.2) as store:
        store.record(poll(new_job()))
        yield store


@pytest.mark.lab
def test_a_server_restarted_in_the_middle_of_a_transaction_is_told_and_then_used_again(
    served: Store, postgres: PrivatePostgres
) -> None:
    with pytest.raises(StoreAway, match=r"shut down or restarted|doesn't answer|closed the connection") as caught:  # noqa: SIM117
        with served._db.write("storing the poll of cluster-a") as connection:
            connection.exec_driver_sql("UPDATE job SET name = 'half done'")
            postgres.restart()
            connection.exec_driver_sql("UPDATE job SET name = 'half done'")
    assert "storing the poll of cluster-a" in one_line(caught.value)

    served.record(poll(new_job("43"), at=MINUTE))
    assert [job.name for job in served.find_jobs("rl__")] == ["rl__gsm8k_43", "rl__gsm8k_42"]


@pytest.mark.lab
def test_a_server_restarted_between_two_calls_is_not_noticed(served: Store, postgres: PrivatePostgres) -> None:
    postgres.restart()

    served.record(poll(new_job("43"), at=MINUTE))
    assert jobs_held(served) == 2


@pytest.mark.lab
def test_a_server_that_is_down_is_told_until_it_is_up(served: Store, postgres: PrivatePostgres) -> None:
    postgres.stop()
    try:
        with pytest.raises(StoreAway) as caught:
            served.record(poll(new_job("43"), at=MINUTE))
        one_line(caught.value)
    finally:
        postgres.start()

    served.record(poll(new_job("43"), at=MINUTE))
    assert jobs_held(served) == 2


@pytest.mark.lab
def test_a_row_locked_by_another_session_is_told(served: Store, postgres: PrivatePostgres) -> None:
    (job,) = served.held("cluster-a", ended_after=NOON)
    with served._db.write("another session") as other:
        other.exec_driver_sql("SELECT 1 FROM job FOR UPDATE")

        with pytest.raises(StoreLocked, match="locked by another session"):
            served.record(poll(job, at=MINUTE))

    (job,) = served.record(poll(job, at=MINUTE))
    assert job.version == 2


@pytest.mark.lab
def test_a_wrong_database_is_told_with_what_to_do(postgres: PrivatePostgres) -> None:
    with Store.open(postgres.url("nosuch")) as store, pytest.raises(StoreAway) as caught:
        store.holds()

    assert "nosuch" in one_line(caught.value)


@pytest.mark.lab
def test_a_server_that_may_not_be_written_is_told(served: Store, postgres: PrivatePostgres) -> None:
    with served._db.write("test") as connection:
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    served.close()

    with pytest.raises(StoreReadOnly, match="read-only"):
        served.record(poll(new_job("43"), at=MINUTE))
    assert jobs_held(served) == 1
