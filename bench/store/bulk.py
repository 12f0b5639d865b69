"""Tests 9 and 10: 10,000 jobs into the store at once, as on a first tick.

    python -m bench.store.bulk [--jobs N] [--rounds N] [--postgres]

Anchors, interleaved in the same rounds, with the same rows into a table of the same columns and indexes: on SQLite a bare
``executemany`` of the driver, on PostgreSQL a bare COPY into the table. Ours: the store's bulk path with rows made ready; and
``Store.record`` as a whole, which also makes the rows from the jobs and keeps history (for information: it has no goal).
SQLite by CPU time; PostgreSQL by wall time, since the server works in other processes. Median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from bench.store.jobs import NOW, job, poll
from supervisor.store.bodies import JOB_COLUMNS, job_row
from supervisor.store.store import Store

GOALS = {9: (1.3, 3.0), 10: (2.5, 5.0)}
NAMES = ", ".join(JOB_COLUMNS)


def clocked(clock: Callable[[], float], work: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    began = clock()
    work()
    took = clock() - began
    gc.enable()
    return took


def emptied(store: Store) -> None:
    with store._db.write("emptying") as connection:
        for table in ("poll", "change", "transition", "attempt", "job"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
    if not store._db.is_sqlite:
        with store._db.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM")


def sqlite_rounds(jobs: int, rounds: int, folder: Path) -> list[tuple[float, float, float]]:
    held = [job(number) for number in range(jobs)]
    rows = [job_row(one, number + 1, 1, 0) for number, one in enumerate(held)]
    marks = ", ".join("?" * len(JOB_COLUMNS))
    text = f"INSERT INTO job ({NAMES}) VALUES ({marks})"
    taken = []
    for round_ in range(rounds + 1):
        stores = [Store.open(f"sqlite:///{folder / f'{round_}-{name}.db'}") for name in ("bare", "put", "record")]
        for store in stores:
            store.upgrade()
            store._db.close()
        bare = sqlite3.connect(stores[0].url, isolation_level=None)
        bare.execute("PRAGMA synchronous = FULL")

        def anchor(bare: sqlite3.Connection = bare) -> None:
            bare.execute("BEGIN IMMEDIATE")
            bare.executemany(text, rows)
            bare.execute("COMMIT")

        def put(store: Store = stores[1]) -> None:
            with store._db.write("bench") as connection:
                store._write_jobs(connection, rows)

        def record(store: Store = stores[2]) -> None:
            store.record(poll("c0", NOW, held, []))

        taken.append(tuple(clocked(time.process_time, work) for work in (anchor, put, record)))
        bare.close()
        for store in stores:
            store.close()
        for path in folder.glob(f"{round_}-*"):
            path.unlink()
    return taken[1:]  # type: ignore[return-value]


def postgres_rounds(jobs: int, rounds: int) -> list[tuple[float, float, float]]:
    from tests.postgres import PrivatePostgres

    held = [job(number) for number in range(jobs)]
    rows = [job_row(one, number + 1, 1, 0) for number, one in enumerate(held)]
    server = PrivatePostgres()
    taken = []
    try:
        store = Store.open(server.new_database())
        store.upgrade()
        driver = store._db.engine.raw_connection()

        def anchor() -> None:
            with driver.cursor() as cursor, cursor.copy(f"COPY job ({NAMES}) FROM STDIN") as copy:  # type: ignore[attr-defined]
                for row in rows:
                    copy.write_row(row)
            driver.commit()

        def put() -> None:
            with store._db.write("bench") as connection:
                store._write_jobs(connection, rows)

        def record() -> None:
            store.record(poll("c0", NOW + timedelta(seconds=len(taken)), held, []))

        for _ in range(rounds + 1):
            times = []
            for work in (anchor, put, record):
                emptied(store)
                times.append(clocked(time.perf_counter, work))
            taken.append(tuple(times))
        driver.close()
        store.close()
    finally:
        server.remove()
    return taken[1:]  # type: ignore[return-value]


def told(test: int, jobs: int, taken: list[tuple[float, float, float]]) -> bool:
    """Print one result; whether it is within its goal."""
    goal, fail = GOALS[test]
    ratio = statistics.median(put / anchor for anchor, put, _ in taken)
    whole = statistics.median(record / anchor for anchor, _, record in taken)
    result = {
        "test": test,
        "rows": jobs,
        "anchor_ms": round(statistics.median(anchor for anchor, _, _ in taken) * 1000, 1),
        "ratio": round(ratio, 2),
        "record_ratio": round(whole, 2),
        "record_us_per_job": round(statistics.median(record for _, _, record in taken) / jobs * 1e6, 1),
        "goal": goal,
        "fail": fail,
    }
    print(json.dumps(result), flush=True)
    return ratio <= goal


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--only", type=int, choices=sorted(GOALS), help="one of the two tests")
    given = options.parse_args()
    good = True
    if given.only != 10:
        with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
            good &= told(9, given.jobs, sqlite_rounds(given.jobs, given.rounds, Path(folder)))
    if given.only != 9:
        from tests.postgres import NoPostgres

        try:
            good &= told(10, given.jobs, postgres_rounds(given.jobs, given.rounds))
        except NoPostgres as error:
            print(json.dumps({"test": 10, "skipped": str(error)}))
    return 0 if good else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())
