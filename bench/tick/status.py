"""Test 15 and its larger brother: `supervisorctl status` as a whole process, CPU against `python -c pass`, interleaved.

    python -m bench.tick.status [--rounds 9]

Two stores: 1,000 live jobs; and 20,000 jobs of which 1,000 live. Goal: at most 5 x. SkyPilot's published figure for listing 20,001
jobs, 7.19 s of wall time on other hardware, is told beside it and proves nothing by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from supervisor.model.facts import Held
from supervisor.model.job import JobKey, JobState, Observation, Outcome
from supervisor.model.lifecycle import Lifecycle, Phase
from supervisor.model.records import ClusterState, ClusterStatus, Heartbeat, PollRecord
from supervisor.store.store import Store

GOAL = 5.0


def filled(folder: Path, live: int, ended: int, now: datetime) -> Path:
    """A config beside a store with so many jobs."""
    config = folder / "config.toml"
    config.write_text('[[cluster]]\nname = "alpha"\nkind = "host"\n', encoding="utf-8")
    (folder / "state").mkdir()
    with Store.open(f"sqlite:///{folder / 'state' / 'supervisor.db'}") as store:
        store.upgrade()
        tick = store.begin_tick(now, "bench:1:1")
        jobs = [_job(number, number >= live, now) for number in range(live + ended)]
        status = ClusterStatus(
            name="alpha", kind="host", state=ClusterState.OK, polled_at=now, last_good_at=now, jobs_live=live
        )
        store.record(PollRecord(tick=tick, status=status, changed=jobs, at=now, listed=live))
        store.finish_tick(tick, now, "", "{}")
        beat = Heartbeat(
            daemon=f"elsewhere:1:{int(now.timestamp())}", host="elsewhere", pid=1, version="0", started_at=now, beat_at=now,
            interval_s=900, next_tick_at=now + timedelta(seconds=900),
        )  # fmt: skip
        store.beat(beat)
    return config


def _job(number: int, over: bool, now: datetime) -> Held:
    bucket = ("rl", "sft", "datagen", "eval", "other")[number % 5]
    key = JobKey("alpha", str(number), "1")
    began = now - timedelta(hours=3 if not over else 24 * (2 + number % 60))
    state = JobState.COMPLETED if over else JobState.RUNNING
    seen = Observation(
        key=key, name=f"{bucket}__run-{number}-7b", user="alice", state=state, scheduler_state=state.value.upper(), submitted_at=began,
        started_at=began, ended_at=began + timedelta(hours=1) if over else None, nodes=("gpu001", "gpu002"), time_limit=timedelta(hours=12),
    )  # fmt: skip
    phase = Phase.TERMINAL if over else Phase.RUNNING
    return Held(
        key=key,
        life=Lifecycle(phase=phase, since=began, outcome=Outcome.COMPLETED if over else None),
        bucket=bucket,
        observation=seen,
    )


def cpu(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 3, 4), done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=9)
    given = options.parse_args()
    worst = 0.0
    for live, ended in ((1000, 0), (1000, 19000)):
        with tempfile.TemporaryDirectory() as folder:
            now = datetime.now(UTC)
            config = filled(Path(folder), live, ended, now)
            os.environ["SUPERVISOR_CONFIG"] = str(config)
            ctl = [str(Path(sys.executable).with_name("supervisorctl")), "status"]
            ratios, times = [], []
            for round_ in range(given.rounds + 1):
                anchor, took = cpu([sys.executable, "-c", "pass"]), cpu(ctl)
                if round_:
                    ratios.append(took / anchor)
                    times.append(took)
        result = {
            "test": 15, "jobs": live + ended, "live": live, "cpu_ms": round(statistics.median(times) * 1000, 1),
            "ratio": round(statistics.median(ratios), 2), "goal": GOAL, "skypilot_published_s_for_20001_jobs": 7.19,
        }  # fmt: skip
        print(json.dumps(result))
        worst = max(worst, float(result["ratio"]))
    return 0 if worst <= GOAL else 1


if __name__ == "__main__":
    raise SystemExit(main())
