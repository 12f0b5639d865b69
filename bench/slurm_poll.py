"""Test 7: reading a queue of 10,000 jobs against bare ``str.split`` of the same text.

    python -m bench.slurm_poll [--jobs N] [--rounds N]

Interleaved rounds in one process, CPU time, median of the ratios of each round. Goal of a first reading, in which each
record is taken apart and typed: at most 1.5 x of the split; of a later one in which 3 % changed: less than the split.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time

from supervisor.clusters.slurm_commands import QUEUE_FIELDS, UNIT, Nonce
from supervisor.clusters.slurm_text import read_queue

GOAL, FAIL = 1.5, 3.0
NONCE = Nonce("n0123456789abcdef0123")


def record(number: int, rng: random.Random, *, changed: bool = False) -> str:
    """One record of squeue as a poll asks for it; ``changed`` ends a job or starts it."""
    running = rng.random() < 0.7
    if changed:
        running = not running
    submit = 1_790_000_000 + rng.randrange(10**6)
    job = f"{1_000_000 + number}" if rng.random() < 0.8 else f"{900_000 + number // 50}_{number % 50}"
    nodes = rng.randrange(1, 65)
    fields = (
        str(submit + 900) if running else "N/A", str(submit + 87300) if running else "N/A", job,
        "RUNNING" if running else "PENDING", f"user{number % 3:03d}", str(1_000_000 + number), str(submit), "0",
        f"acct{number % 40}", rng.choice(("batch", "interactive", "preempt")),
        "None" if running else rng.choice(("Priority", "Resources", "QOSMaxJobsPerUserLimit", "Dependency")), "1-00:00:00",
        str(nodes), f"gpu[{rng.randrange(500):03d}-{500 + rng.randrange(400):03d}]" if running else "", "0", "(null)",
        f"rl__grpo-{rng.randrange(10**6):06d}-{rng.choice(('7b', '32b', '70b'))}",
    )  # fmt: skip
    return UNIT.join(fields)


def payload(jobs: int, changed: float) -> str:
    ends = random.Random(2)
    titles = UNIT.join(name.upper() for name in QUEUE_FIELDS)
    texts = [titles + NONCE.end + "\n"]
    for number in range(jobs):
        texts.append(record(number, random.Random(number), changed=ends.random() < changed) + NONCE.end + "\n")
    return "".join(texts)


def cpu(work: object) -> float:
    gc.collect()
    began = time.process_time()
    kept = work()  # type: ignore[operator]
    took = time.process_time() - began
    del kept
    return took


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=9)
    given = options.parse_args()
    users = frozenset(f"user{n:03d}" for n in range(3))
    first, later = payload(given.jobs, 0), payload(given.jobs, 0.03)
    known = read_queue(first, NONCE, {}, users).lines
    anchors, firsts, laters = [], [], []
    for round_ in range(given.rounds + 1):
        anchor = cpu(lambda: [line.split(UNIT) for line in first.split("\n")])
        whole = cpu(lambda: read_queue(first, NONCE, {}, users))
        again = cpu(lambda: read_queue(later, NONCE, known, users))
        if round_:
            anchors.append(anchor)
            firsts.append(whole / anchor)
            laters.append(again / anchor)
    result = {
        "test": 7, "jobs": given.jobs, "bytes_per_job": round(len(first) / given.jobs),
        "split_ms": round(statistics.median(anchors) * 1000, 2),
        "first_reading_ratio": round(statistics.median(firsts), 2),
        "later_reading_ratio": round(statistics.median(laters), 2),
        "goal": GOAL, "fail": FAIL,
    }  # fmt: skip
    print(json.dumps(result))
    return 1 if statistics.median(firsts) > FAIL else 0


if __name__ == "__main__":
    raise SystemExit(main())
