"""Pids, times, ranks, paths, prefixes and numbers are accidents: with others in their place the answer is the same."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from supervisor.app.diagnose import Source, diagnose_files
from supervisor.app.packs import Prepared
from tests.diagnosis import corpus
from tests.diagnosis.test_cause import ELASTIC, OOM, STEPS, TRACEBACK, WATCHDOG

OWN = [
    STEPS + OOM + ELASTIC,
    STEPS + TRACEBACK + "KeyError: 'labels'\n" + ELASTIC,
    STEPS + "".join(WATCHDOG.format(r=r) for r in range(4)),
    STEPS + "slurmstepd: error: *** JOB 4711042 ON node-12 CANCELLED AT 2026-07-04T03:00:00 DUE TO TIME LIMIT ***\n",
    STEPS + "OSError: [Errno 28] No space left on device: '/scratch/alice/ckpt/step_100.pt'\n",
    STEPS,
]
CASES: list[dict[str, Any]] = [
    {"id": f"own-{n}", "log": log.rstrip("\n")} for n, log in enumerate(OWN)
] + corpus.cases()


def pids(log: str, rng: random.Random) -> str:
    changed: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        return found[1] + changed.setdefault(found[2], str(rng.randrange(1000, 4_000_000)))

    return re.sub(r"((?:pid[=: ]+|PID[=: ]+|process ))(\d{3,7})\b", other, log)


def times(log: str, rng: random.Random) -> str:
    """All times of day later or earlier by the same whole minutes, within the day."""
    pattern = r"(?<![\d:.])([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?![\d:])"
    stamped = [int(h) * 60 + int(m) for h, m, _ in re.findall(pattern, log)]
    if not stamped:
        return log
    shift = rng.randint(-min(stamped), 1439 - max(stamped))

    def moved(found: re.Match[str]) -> str:
        if "<" in log[found.end() : found.end() + 1] or log[found.start() - 1 : found.start()] in ("<", "["):
            return found[0]
        hours, minutes = divmod(int(found[1]) * 60 + int(found[2]) + shift, 60)
        return f"{hours:02d}:{minutes:02d}:{found[3]}"

    return re.sub(pattern, moved, log)


def ranks(log: str, rng: random.Random) -> str:
    order = list(range(64))
    rng.shuffle(order)

    def other(found: re.Match[str]) -> str:
        return f"{found[1]}{order[int(found[2])] if int(found[2]) < 64 else found[2]}"

    return re.sub(r"(\[rank|\[Rank |Rank (?=\d+\])|local_rank: |rank +: )(\d+)", other, log)


def paths(log: str, _rng: random.Random) -> str:
    for old, new in (("/home/user1", "/data/u77"), ("/opt/venv", "/srv/py/env-2"), ("/workspace/run", "/mnt/z/job-9")):
        log = log.replace(old, new)
    return log


def numbers(log: str, rng: random.Random) -> str:
    """Long numbers and addresses, which are ids and sizes."""
    log = re.sub(r"0x[0-9a-f]{6,}", lambda _: f"0x{rng.getrandbits(44):x}", log)

    def other(found: re.Match[str]) -> str:
        digits = len(found[0])
        return str(rng.randrange(10 ** (digits - 1), 10**digits))

    return re.sub(r"(?<![\d.:=-])\d{8,}(?![\d.])", other, log)


def launcher(log: str, _rng: random.Random) -> str:
    return "\n".join(f"[03:12:45] task=/alice/run-{len(log) % 7}/0 attempt=1 | {line}" for line in log.split("\n"))


def container(log: str, _rng: random.Random) -> str:
    return "\n".join(f"[pod/trainer-0/main] {line}" for line in log.split("\n"))


def relayed(log: str, rng: random.Random) -> str:
    prefix = rng.choice(["node-02: ", "trainer-launcher: ", "i.pretrain/0 ", "[1,3]<stderr>:", "vllm-1  | ", "3: "])
    return "\n".join(f"{prefix}{line}" for line in log.split("\n"))


@pytest.mark.parametrize(
    "change", [pids, times, ranks, paths, numbers, launcher, container, relayed], ids=lambda change: change.__name__
)
def test_the_answer_does_not_hang_on(change: Any, shipped: Prepared):
    """Category and key line stay, whatever the accidents."""
    differing = []
    for case in CASES:
        rng = random.Random(case["id"])
        before = diagnose_files([Source("job.log", data=(case["log"] + "\n").encode())], None, shipped)
        after = diagnose_files([Source("job.log", data=(change(case["log"], rng) + "\n").encode())], None, shipped)
        told = [(a.category, a.cause.line if a.cause else None) for a in (before, after)]
        if told[0] != told[1]:
            differing.append(f"{case['id']}: {told[0]} became {told[1]}")

    assert differing == []
