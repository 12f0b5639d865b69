"""Test 12: what a month of 1,000 jobs at 96 ticks a day leaves on the disk, against one row for each job and tick.

    python -m bench.store.growth [--days 30]

Each tick 3 % of the jobs change in their scheduler's words, one ends and another comes in its place, with its attempt and the steps
of its life; a report of the tick with its document is kept, and each day is pruned, as the daemon does. The other design is
filled for one day and counted up (its rows never share anything, so it grows evenly). Goal: at most 0.05 of it.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from bench.store.jobs import NOW, job, poll, step
from supervisor.model.facts import Held
from supervisor.model.lifecycle import Phase, Transition
from supervisor.store.store import Store

JOBS, A_DAY, CHANGED = 1000, 96, 30
GOAL, FAIL = 0.05, 0.2


def row_for_each_tick(folder: Path) -> int:
    """Bytes of a day in the other design: the columns of a queue, a key of cluster, job and tick."""
    names = [
        "cluster",
        "job_id",
        "tick",
        "name",
        "user",
        "account",
        "partition",
        "state",
        "reason",
        "submitted",
        "started",
        "ended",
        "elapsed",
        "limit_s",
    ]
    names += ["nodes", "cpus", "gres", "nodelist", "workdir", "fingerprint"]
    path = folder / "each.db"
    jobs = [job(number) for number in range(JOBS)]
    with closing(sqlite3.connect(path)) as other:
        columns = ", ".join(f"{name} INTEGER" if name in ("tick", "submitted") else f"{name}" for name in names)
        other.execute(f"CREATE TABLE each ({columns}, PRIMARY KEY (cluster, job_id, tick)) WITHOUT ROWID")
        for tick in range(A_DAY):
            other.executemany(
                f"INSERT INTO each VALUES ({', '.join('?' * len(names))})",
                [
                    (
                        *("c0", one.key.id, tick, one.observation.name, one.observation.user, one.observation.account),
                        *("gpu", one.observation.scheduler_state, one.observation.reason, 1_790_000_000 + number),
                        *(1_790_001_000 + number, None, tick * 900, 86400, 4, 96 * 4, "gres:gpu:h100:8"),
                        *("gpu[001-004]", one.details.workdir, f"{number:016x}"),
                    )
                    for number, one in enumerate(jobs)
                ],
            )
            other.commit()
    return path.stat().st_size


def ours(folder: Path, days: int) -> tuple[int, dict[str, int], float]:
    """Bytes of the store after some days, rows by table, and seconds of CPU for one tick."""
    rand = random.Random(1)
    url = f"sqlite:///{folder / 'store.db'}"
    spent = 0.0
    with Store.open(url) as store:
        store.upgrade()
        live: list[Held] = list(store.record(poll("c0", NOW, [job(number) for number in range(JOBS)], [])))
        coming = JOBS
        for tick in range(1, days * A_DAY + 1):
            now = NOW + tick * timedelta(minutes=15)
            began = time.process_time()
            number = store.begin_tick(now, "bench")
            changed: dict[int, Held] = {}
            moves: list[Transition] = []
            for place in rand.sample(range(JOBS), CHANGED):
                seen = live[place].observation
                words = replace(seen, reason=rand.choice(("Priority", "Resources", "QOSMaxJobsPerUserLimit")))
                changed[place] = live[place].having(observation=words)
            leaving = rand.randrange(JOBS)
            gone, move = step(live[leaving], Phase.TERMINAL, now)
            gone, last = step(gone, Phase.DONE, now)
            moves += [move, last]
            changed.pop(leaving, None)
            fresh, move = step(job(coming, at=now), Phase.RUNNING, now)
            moves.append(move)
            coming += 1
            stored = store.record(poll("c0", now, [gone, fresh, *changed.values()], moves, number))
            live[leaving] = stored[1]
            for place, one in zip(changed, stored[2:], strict=True):
                live[place] = one
            document = json.dumps(
                [{"id": one.key.id, "name": one.observation.name, "state": one.life.phase} for one in live]
            )
            store.finish_tick(number, now + timedelta(seconds=5), document[: len(document) // 2], document)
            spent += time.process_time() - began
            if tick % A_DAY == 0:
                store.prune(now)
        with store._db.read("counting") as connection:
            names = ("job", "change", "transition", "attempt", "poll", "tick")
            counts = {name: connection.exec_driver_sql(f"SELECT COUNT(*) FROM {name}").scalar_one() for name in names}
    return sum(path.stat().st_size for path in folder.glob("store.db*")), counts, spent / (days * A_DAY)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--days", type=int, default=30)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as name:
        folder = Path(name)
        each = row_for_each_tick(folder) * given.days
        size, counts, tick_s = ours(folder, given.days)
    result = {
        "test": 12,
        "days": given.days,
        "row_for_each_tick_mb": round(each / 2**20, 1),
        "ours_mb": round(size / 2**20, 1),
        "ratio": round(size / each, 4),
        "rows": counts,
        "cpu_ms_per_tick": round(tick_s * 1000, 2),
        "goal": GOAL,
        "fail": FAIL,
    }
    print(json.dumps(result))
    return 0 if size / each <= GOAL else 1


if __name__ == "__main__":
    raise SystemExit(main())
