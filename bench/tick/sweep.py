"""Test 11: a whole tick without the network, in our own code, against line-diff scripts, all in the same rounds.

    python -m bench.tick.sweep [--rounds 7]

All read 20 clusters of 500 jobs, of which 3 % change their state and 0.5 % go and come, and write SQLite. A script keeps no
evidence, no reasons and no errands; ours goes through the real poll, step, detectors and store, one transaction a cluster. CPU
time; median of the rounds' ratios. Goal: at most 4 x the performance lab's own script (`tick.py`, found by SUPERVISOR_BENCH or
beside the labs); the ratio to a still leaner script of ours, which is always there, is told beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import re
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from supervisor.app.fleet import Station
from supervisor.app.follow import Follower
from supervisor.app.kept import KeptLogs
from supervisor.app.rooms import rooms
from supervisor.app.sections import LogsSection
from supervisor.app.settings import ClusterSection, Settings, rulebook
from supervisor.app.sweep import Sweeper
from supervisor.app.writing import Writer
from supervisor.clusters.shell import Ran
from supervisor.clusters.slurm import SlurmCluster
from supervisor.clusters.slurm_commands import ACCOUNTING_FIELDS, DETAIL_FIELDS, QUEUE_FIELDS, UNIT, Nonce
from supervisor.clusters.slurm_settings import SlurmSettings
from supervisor.store.store import Store

CLUSTERS, JOBS, CHANGE, GOAL = 20, 500, 0.03, 4.0
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
END = "@end@"
SUBMIT = int(NOW.timestamp()) - 3600


def record(number: int, state: str) -> str:
    """One record of squeue, without its end mark."""
    started = state != "PENDING"
    fields = (
        str(SUBMIT + 60) if started else "N/A", str(SUBMIT + 86460) if started else "N/A", str(number), state, "alice",
        str(number), str(SUBMIT), "0", "lab", "gpu", "None" if started else "Priority", "1-00:00:00", "4",
        "gpu[001-004]" if started else "", "0", "(null)", f"rl__run-{number}-7b",
    )  # fmt: skip
    return UNIT.join(fields)


def payloads(cluster: int) -> tuple[list[str], list[str]]:
    """(before, now)."""
    rand = random.Random(cluster)
    first = 1_000_000 + cluster * 10 * JOBS
    states = [rand.choice(["RUNNING"] * 7 + ["PENDING"] * 3) for _ in range(JOBS)]
    step = {"RUNNING": "COMPLETING", "PENDING": "RUNNING"}
    before = [record(first + n, state) for n, state in enumerate(states)]
    now = [record(first + n, step[s] if rand.random() < CHANGE else s) for n, s in enumerate(states)]
    new = max(1, JOBS // 200)
    return before, now[new:] + [record(first + JOBS + n, "PENDING") for n in range(new)]


class Answering:
    """A shell that answers with a given queue; nothing is in the rest of the answer but what makes it good."""

    place = "bench"

    def __init__(self) -> None:
        self.queue: list[str] = []
        self.text = ""
        self._told: set[str] = set()

    async def run(self, script: str, *, limit_s: float, limit_bytes: int = 0) -> Ran:
        word = re.search(r"n[0-9a-f]{20}", script)
        assert word is not None
        nonce = Nonce(word[0])
        parts = []
        for name in re.findall(r"^part (\w+)", script, re.MULTILINE):
            parts.append(
                f"\n{nonce.mark} begin {name}\n{self._said(name, nonce)}\n{nonce.mark} said {name}\n\n{nonce.mark} end {name} 0"
            )
        return Ran(0, ("".join(parts) + f"\n{nonce.mark} whole\n").encode(), b"")

    def lists(self, queue: list[str]) -> None:
        """From now on the queue holds these records."""
        titles = UNIT.join(name.upper() for name in QUEUE_FIELDS)
        self.queue, self.text = queue, "".join(f"{line}{END}\n" for line in (titles, *queue))

    def _said(self, name: str, nonce: Nonce) -> str:
        if name == "clock":
            return str(int(NOW.timestamp()))
        if name == "who":
            return "alice"
        if name == "version":
            return "slurm 22.05.8"
        if name == "queue":
            return self.text.replace(END, nonce.end)
        if name == "details":
            fresh = [line.split(UNIT, 3)[2] for line in self.queue if line not in self._told]
            self._told |= set(self.queue)
            titles = nonce.gap.join(name.upper() for name in DETAIL_FIELDS)
            return f"{titles}{nonce.end}\n" + "".join(f"{nonce.gap.join(_detail(job))}{nonce.end}\n" for job in fresh)
        if name in ("ended", "found", "still"):
            return nonce.gap.join(ACCOUNTING_FIELDS) + "\n"
        return ""

    async def close(self) -> None:
        return None


def _detail(job: str) -> list[str]:
    values = dict.fromkeys(DETAIL_FIELDS, "")
    values |= {
        "JobArrayID": job, "SubmitTime": str(SUBMIT), "JobID": job, "UserName": "alice", "RestartCnt": "0", "BatchFlag": "0",
        "ArrayJobID": "N/A", "ArrayTaskID": "N/A", "BatchHost": "gpu001", "StdOut": "", "StdErr": "", "WorkDir": "/home/alice",
        "Command": "/home/alice/run.sh", "Name": f"rl__run-{job}-7b",
    }  # fmt: skip
    return [values[name] for name in DETAIL_FIELDS]


async def ours(folder: Path, texts: list[tuple[list[str], list[str]]]) -> tuple[float, int]:
    """(CPU seconds of the second tick, jobs written)."""
    store = Store.open(f"sqlite:///{folder / 'ours.db'}")
    store.upgrade()
    writer = Writer(store)
    made = rooms(rulebook(Settings()))
    moments = [NOW]
    sweeper = Sweeper(
        writer, made, Follower(writer, KeptLogs(folder, 2**20), LogsSection()), lambda: moments[0], "bench", 60
    )
    shells, stations = [], []
    for number in range(len(texts)):
        settings = SlurmSettings(login_nodes=("login01.example",), users=("alice",))
        shell = Answering()
        section = ClusterSection(name=f"cluster-{number}", kind="slurm", of_kind=settings)
        stations.append(Station(section.name, section, SlurmCluster(section.name, settings, [shell])))
        shells.append(shell)
    for shell, (before, _now) in zip(shells, texts, strict=True):
        shell.lists(before)
    first = await sweeper.tick(stations, 60)
    assert first.all_read, first
    for shell, (_before, now) in zip(shells, texts, strict=True):
        shell.lists(now)
    moments[0] = NOW + timedelta(seconds=1)
    gc.collect()
    began = time.process_time()
    done = await sweeper.tick(stations, 60)
    took = time.process_time() - began
    assert done.all_read, done
    changed = sum(each.changed for each in done.clusters)
    writer.close()
    return took, changed


DDL = (
    "CREATE TABLE cur (cluster INTEGER, job_id TEXT, state TEXT, reason TEXT, name TEXT, line TEXT, phase TEXT, seen INTEGER,"
    " PRIMARY KEY (cluster, job_id)) WITHOUT ROWID;"
    "CREATE TABLE hist (cluster INTEGER, job_id TEXT, tick INTEGER, state TEXT, reason TEXT, phase TEXT,"
    " PRIMARY KEY (cluster, job_id, tick)) WITHOUT ROWID;"
    "CREATE TABLE poll (cluster INTEGER, tick INTEGER, jobs INTEGER, PRIMARY KEY (cluster, tick)) WITHOUT ROWID;"
)
NEXT = {"PENDING": "QUEUED", "RUNNING": "LIVE", "COMPLETING": "ENDING"}


def script(folder: Path, texts: list[tuple[list[str], list[str]]]) -> tuple[float, int]:
    """The line-diff script: a set difference of lines, and plain sqlite3 writes of what changed."""
    base = sqlite3.connect(folder / "script.db")
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=FULL")
    base.executescript(DDL)

    def write(cluster: int, changed: list[str], gone: set[str], tick: int, listed: int) -> None:
        rows = [line.split(UNIT, 16) for line in changed]
        base.executemany(
            "INSERT OR REPLACE INTO cur VALUES (?,?,?,?,?,?,?,?)",
            [
                (cluster, f[2], f[3], f[10], f[16], line, NEXT[f[3]], tick)
                for f, line in zip(rows, changed, strict=True)
            ],
        )
        history = [(cluster, f[2], tick, f[3], f[10], NEXT[f[3]]) for f in rows]
        history += [(cluster, job, tick, "GONE", None, "LOST?") for job in gone]
        base.executemany("INSERT OR REPLACE INTO hist VALUES (?,?,?,?,?,?)", history)
        base.execute("INSERT OR REPLACE INTO poll VALUES (?,?,?)", (cluster, tick, listed))
        base.commit()

    for number, (before, _now) in enumerate(texts):
        write(number, before, set(), 1, len(before))
    data = [("\n".join(before), "\n".join(now)) for before, now in texts]
    gc.collect()
    began, count = time.process_time(), 0
    for number, (before, now) in enumerate(data):
        old, new = set(before.split("\n")), now.split("\n")
        changed = [line for line in new if line not in old]
        kept = set(new)
        gone = {line.split(UNIT, 3)[2] for line in old if line not in kept} - {
            line.split(UNIT, 3)[2] for line in changed
        }
        write(number, changed, gone, 2, len(new))
        count += len(changed) + len(gone)
    took = time.process_time() - began
    base.close()
    return took, count


def lab_script() -> Path | None:
    """The performance lab's tick.py, where it is at hand."""
    root = Path(__file__).resolve().parents[2]
    places = [os.environ.get("SUPERVISOR_BENCH", ""), root.parent / "shared" / "bench"]
    return next((path for place in places if place and (path := Path(place) / "tick.py").is_file()), None)


def of_lab(script_path: Path, folder: Path) -> float:
    """CPU seconds of its line-diff, as it says them itself."""
    command = [sys.executable, str(script_path), "run", "line-diff", str(folder / "lab.db")]
    said = subprocess.run(
        [*command, "--clusters", str(CLUSTERS), "--jobs", str(JOBS)], capture_output=True, text=True, check=True
    )
    return float(json.loads(said.stdout.partition("@@")[2])["cpu"])


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=7)
    given = options.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    texts = [payloads(number) for number in range(CLUSTERS)]
    lab = lab_script()
    ratios, lab_ratios, mine, anchors, written = [], [], [], [], 0
    for round_ in range(given.rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            anchor, _ = script(Path(folder), texts)
            took, written = asyncio.run(ours(Path(folder), texts))
            from_lab = of_lab(lab, Path(folder)) if lab is not None else None
        if round_:
            if from_lab:
                lab_ratios.append(took / from_lab)
            ratios.append(took / anchor)
            mine.append(took)
            anchors.append(anchor)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result = {
        "test": 11, "clusters": CLUSTERS, "jobs": CLUSTERS * JOBS, "written": written,
        "script_ms": round(statistics.median(anchors) * 1000, 1), "ours_ms": round(statistics.median(mine) * 1000, 1),
        "ours_ms_per_1000_jobs": round(statistics.median(mine) * 1e6 / (CLUSTERS * JOBS), 2),
        "ratio_to_our_script": round(statistics.median(ratios), 2),
        "ratio": round(statistics.median(lab_ratios), 2) if lab_ratios else None, "goal": GOAL, "peak_rss_mib": round(peak),
    }  # fmt: skip
    print(json.dumps(result))
    return 1 if lab_ratios and statistics.median(lab_ratios) > GOAL else 0


if __name__ == "__main__":
    raise SystemExit(main())
