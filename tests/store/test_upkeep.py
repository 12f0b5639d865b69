"""Backups, thinning with age, a look at the database's health."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from supervisor.model.errors import StoreError
from supervisor.model.facts import LogFacts
from supervisor.model.lifecycle import Phase
from supervisor.model.records import Heartbeat
from supervisor.store.entries import Keep, Measurement, Pruned
from supervisor.store.faults import StoreBroken
from supervisor.store.revisions import HEAD
from supervisor.store.store import Store
from tests.some import HOUR, MINUTE, NOON
from tests.store.some import move, new_job, poll

DAY = timedelta(days=1)


# ---------------------------------------------------------------- backup


def test_a_backup_is_a_whole_store_and_is_taken_beside_a_writer(sqlite_store: Store, tmp_path: Path) -> None:
    (job,) = sqlite_store.record(poll(new_job()))

    with sqlite_store._db.write("test") as connection:
        connection.exec_driver_sql("DELETE FROM job")  # a transaction that is not committed yet
        size = sqlite_store.backup(tmp_path / "copy.db")
        connection.rollback()

    assert sorted(path.name for path in tmp_path.glob("copy.db*")) == ["copy.db"]
    assert (tmp_path / "copy.db").stat().st_size == size
    with Store.open(f"sqlite:///{tmp_path / 'copy.db'}") as copy:
        copy.check_schema()
        assert copy.held("cluster-a", ended_after=NOON) == [job]


def test_a_backup_overwrites_nothing(sqlite_store: Store, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("precious")

    with pytest.raises(StoreError, match="exists already"):
        sqlite_store.backup(tmp_path / "copy.db")

    assert (tmp_path / "copy.db").read_text() == "precious"


def test_a_backup_that_fails_leaves_nothing(sqlite_store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="backing up to"):
        sqlite_store.backup(tmp_path / "no" / "folder" / "copy.db")


@pytest.mark.lab
def test_a_postgresql_store_is_backed_up_by_its_own_program(postgres_url: str, tmp_path: Path) -> None:
    with Store.open(postgres_url) as store, pytest.raises(StoreError, match="pg_dump"):
        store.backup(tmp_path / "copy.db")


# ---------------------------------------------------------------- health


def test_a_sound_database_says_so(store: Store) -> None:
    store.record(poll(new_job()))

    assert store.check().startswith(f"schema {HEAD}, sound; 1 jobs, 0 transitions")


def test_a_damaged_file_is_found(sqlite_store: Store, tmp_path: Path) -> None:
    sqlite_store.record(poll(*[new_job(str(number)) for number in range(500)]))
    sqlite_store.close()
    path = tmp_path / "supervisor.db"
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 40960] = b"\x5a" * 40960
    path.write_bytes(data)

    with pytest.raises(StoreBroken, match="damaged"):
        sqlite_store.check()


def test_rows_that_belong_to_no_job_are_found(sqlite_store: Store) -> None:
    with sqlite_store._db.read("test") as connection:
        connection.exec_driver_sql("SELECT 1")
        connection.rollback()
    raw = sqlite_store._db.engine.raw_connection()
    raw.execute("PRAGMA foreign_keys = OFF")  # type: ignore[attr-defined]
    raw.execute("INSERT INTO diagnosis VALUES (99, 1, 0, NULL, 'x', '{}')")  # type: ignore[attr-defined]
    raw.close()

    with pytest.raises(StoreBroken, match="1 rows belong to jobs that are not there"):
        sqlite_store.check()


# ---------------------------------------------------------------- prune


def test_measurements_are_thinned_with_age_and_the_last_of_each_stretch_stays(store: Store) -> None:
    """House, idea 6: measurements for a while."""
    (job,) = store.record(poll(new_job()))
    row = job.row or 0
    now = NOON + 60 * DAY
    quarter = 15 * MINUTE
    values = [Measurement("loss", now - age * DAY + n * quarter, float(n), n) for age in (50, 10, 1) for n in range(8)]
    store.put_readings(row, values)
    store.put_readings(row, [Measurement("reward", now - 50 * DAY, 1.0)])

    pruned = store.prune(now, Keep())

    kept = [(one.at, one.value) for one in store.measurements(row, "loss", NOON)]
    assert kept == [
        (now - 50 * DAY + 7 * quarter, 7.0),
        (now - 10 * DAY + 3 * quarter, 3.0),
        (now - 10 * DAY + 7 * quarter, 7.0),
        *[(now - 1 * DAY + n * quarter, float(n)) for n in range(8)],
    ]
    assert len(store.measurements(row, "reward", NOON)) == 1
    assert pruned.measurements == 13
    assert store.prune(now, Keep()) == Pruned(
        measurements=0, polls=0, changes=0, tick_reports=0, heartbeats=0, requests=0
    )


def test_decisions_stay_for_ever_and_what_proves_them_for_a_while(store: Store) -> None:
    """Transitions, attempts, errands, holds, alerts and diagnoses are never pruned."""
    (job,) = store.record(poll(new_job()))
    moved, step = move(job, Phase.SUSPECT)
    (job,) = store.record(poll(moved, at=MINUTE, transitions=[step]))
    store.record(poll(job.having(log=LogFacts(step=1)), at=400 * DAY))
    row = job.row or 0
    number = store.ask_tick("alice", NOON)
    store.answer_request(number, NOON, "done")
    still_open = store.ask_tick("alice", NOON)
    beat = Heartbeat(
        daemon="d", host="h", pid=1, version="1", started_at=NOON, beat_at=NOON, interval_s=1, next_tick_at=None
    )
    store.beat(beat)
    store.put_diagnosis(row, 1, {"category": "oom"}, NOON)

    pruned = store.prune(NOON + 400 * DAY)

    assert (pruned.polls, pruned.changes, pruned.heartbeats, pruned.requests) == (2, 1, 1, 1)
    assert len(store.transitions(row)) == 1
    assert len(store.diagnoses(row)) == 1
    assert [one.id for one in store.open_requests()] == [still_open]
    assert [look.phase for look in store.changes(row)] == ["suspect"]
    assert len(store.held("cluster-a", ended_after=NOON)) == 1


def test_of_old_ticks_the_last_report_of_each_day_stays(store: Store) -> None:
    now = NOON + 500 * DAY
    begun = [now - 400 * DAY, now - 10 * DAY, now - 10 * DAY + HOUR, now - HOUR, now]
    numbers = [store.begin_tick(moment, "d") for moment in begun]
    for number, moment in zip(numbers, begun, strict=True):
        store.finish_tick(number, moment, f"report {number}", "{}")

    pruned = store.prune(now)

    ticks = [store.tick(number) for number in numbers]
    assert [tick is not None and tick.report is not None for tick in ticks] == [False, False, True, True, True]
    assert pruned.tick_reports == 2
