"""Test 15, the store's part: a whole process that reads what ``status`` shows, against ``python -c pass``.

    python -m bench.store.light [--jobs 20000] [--live 1000] [--rounds 15]

CPU time of child processes, interleaved, median of the rounds' ratios. ``status`` as a whole has a goal of 5 x; what is left
after this reading is for the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from bench.store.jobs import NOW, job, poll
from supervisor.model.lifecycle import Phase
from supervisor.store.store import Store

READ = """
import sys
from supervisor.store.light import Light
with Light.open(sys.argv[1]) as light:
    light.summary()
    light.counts()
    jobs = light.jobs(limit=int(sys.argv[2]))
assert len(jobs) == int(sys.argv[2])
"""


def cpu_of(*arguments: str) -> float:
    child = subprocess.Popen([sys.executable, *arguments])
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{arguments} exited {child.returncode}")
    return used.ru_utime + used.ru_stime


def filled(url: str, jobs: int, live: int) -> None:
    with Store.open(url) as store:
        store.upgrade()
        for cluster in range(20):
            held = []
            for number in range(cluster, jobs, 20):
                one = job(number, f"c{cluster}")
                held.append(one if number < live else one.having(life=replace(one.life, phase=Phase.DONE)))
            store.record(poll(f"c{cluster}", NOW, held, []))
        store.finish_tick(store.begin_tick(NOW, "bench"), NOW + timedelta(seconds=6), "report", "{}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=20_000)
    options.add_argument("--live", type=int, default=1_000)
    options.add_argument("--rounds", type=int, default=15)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
        url = f"sqlite:///{Path(folder) / 'store.db'}"
        filled(url, given.jobs, given.live)
        rounds = []
        for _ in range(given.rounds + 1):
            bare = cpu_of("-c", "pass")
            few = cpu_of("-c", READ, url, str(min(given.live, 50)))
            whole = cpu_of("-c", READ, url, str(given.live))
            rounds.append((bare, few, whole))
    rounds = rounds[1:]
    ratio = statistics.median(whole / bare for bare, _, whole in rounds)
    result = {
        "test": 15,
        "jobs": given.jobs,
        "live": given.live,
        "pass_ms": round(statistics.median(bare for bare, _, _ in rounds) * 1000, 1),
        "fifty_jobs_ratio": round(statistics.median(few / bare for bare, few, _ in rounds), 2),
        "all_live_ratio": round(ratio, 2),
        "goal": 5.0,
        "fail": 8.0,
    }
    print(json.dumps(result))
    return 0 if ratio <= 5.0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
