"""The heart of it, end to end on a real Slurm: a hung job is proposed with its proof, ended once by a person's approval, and
nothing else is touched; a job that moves again voids its approval. The daemon is killed at any moment of this.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import time
from pathlib import Path

import pytest

from tests.stories.processes import Daemon, config_for

pytestmark = pytest.mark.lab

LIMITS = """
[limits]
silence_floor_s = 6
suspect_look_s = 5
hang_multiple = 2
[approvals]
mode = "ask"
confirm_s = 60
[probe]
timeout_s = 60
retry_s = 2
"""
TRAINS = r"""
import os, sys, time
for step in range(1, 100000):
    print(f"step {step}/100000 loss={2.0 / step:.4f}", flush=True)
    if step == 25 and sys.argv[1] != "never":
        while not os.path.exists(sys.argv[1]):
            time.sleep(1)
    time.sleep(0.2)
"""


def submit(lab, name: str, waits_for: str) -> str:
    """A job that prints steps, and after 25 of them waits for a file that may never come."""
    lab.ssh(f"cat > ~/trains.py <<'END'\n{TRAINS}\nEND")
    return lab.submit(
        "-J", name, "-t", "30", "-o", f"{lab.home}/{name}-%j.out", script=f"python3 ~/trains.py {waits_for}"
    )


def proposals(daemon: Daemon) -> list[dict]:
    told = daemon.ctl("proposals", "--all", "--json")
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)["proposals"]


def until(daemon: Daemon, holds, what: str, seconds: float = 90):
    ends = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < ends, f"{what}: not within {seconds:g} s; {daemon.log.read_text()[-4000:]}"
        time.sleep(0.3)
    return found


def restarted_now_and_then(daemon: Daemon, rng: random.Random, times: int) -> None:
    """SIGKILL at moments that nothing announces."""
    for _ in range(times):
        time.sleep(rng.uniform(0.1, 2.5))
        daemon.kill()
        daemon.start()


def cancels_sent(lab, job: str) -> int:
    """How often the controller was asked to end the job, by its own log."""
    log = Path(lab.facts["logs"]) / "slurmctld.log"
    return len(re.findall(rf"REQUEST_KILL_JOB JobId={job}\b", log.read_text(errors="replace")))


@pytest.mark.timeout(400)
def test_a_hung_job_is_ended_once_by_approval_and_one_that_moves_again_is_not(tmp_path, slurm_lab):
    """KILL-1, KILL-2, KILL-3, PROBE-4: proposals for exactly the hung jobs, quotes that stand in their logs, one CANCELLED."""
    os.chmod(tmp_path, 0o755)
    lab, rng = slurm_lab, random.Random(7)
    lab.clear()
    cluster = lab.facts["cluster"]
    wake = f"{lab.home}/wake-{rng.randrange(10**9)}"
    hangs = submit(lab, "sft__hangs", f"{wake}.never")
    healthy = submit(lab, "sft__healthy", "never")
    wakes = submit(lab, "sft__wakes", wake)
    daemon = Daemon(config_for(tmp_path, [lab], more=LIMITS))
    daemon.start()
    try:
        daemon.until(lambda told: told["monitor"]["last_tick"] is not None, "a first tick")

        def both():
            found = [each for each in proposals(daemon) if each["state"] == "open"]
            return found if {each["job"] for each in found} == {f"{cluster}/{hangs}", f"{cluster}/{wakes}"} else None

        found = {each["job"]: each for each in until(daemon, both, "the two hung jobs are proposed", 120)}
        assert f"{cluster}/{healthy}" not in {each["job"] for each in proposals(daemon)}
        assert [each["kind"] for each in daemon.status()["waiting"]] == ["kill", "kill"]
        assert daemon.ctl("status").returncode == 3
        _quotes_stand(lab, found[f"{cluster}/{hangs}"], hangs)

        # Approved while no daemon runs, and it moves again before one does: the approval is void.
        daemon.kill()
        approved = daemon.ctl("approve", str(found[f"{cluster}/{wakes}"]["id"]), "--yes")
        assert approved.returncode == 0, approved.stderr
        lab.ssh(f"touch {wake}")
        lab.until("it moves again", lambda: "step 30/" in lab.ssh(f"cat {lab.home}/sft__wakes-{wakes}.out"))
        daemon.start()

        def void():
            mine = next(each for each in proposals(daemon) if each["job"] == f"{cluster}/{wakes}")
            return mine["approval"] if mine["approval"]["stage"] == "void" else None

        assert "progress" in until(daemon, void, "the approval of the job that moved is void")["why"]

        # Approved, and the daemon killed again and again while it is carried out: ended once.
        answer = daemon.ctl(
            "approve", str(found[f"{cluster}/{hangs}"]["id"]), "--reason", "hung, see the stack", "--yes"
        )
        assert answer.returncode == 0, answer.stderr
        restarted_now_and_then(daemon, rng, 6)

        def confirmed():
            mine = next(each for each in proposals(daemon) if each["job"] == f"{cluster}/{hangs}")
            return mine["approval"] if mine["approval"]["stage"] == "confirmed" else None

        approval = until(daemon, confirmed, "the kill is confirmed")
        assert approval["reason"] == "hung, see the stack"
        assert cancels_sent(lab, hangs) == 1
        assert lab.ssh(f"sacct -n -X -D -P -j {hangs} -o State").split()[0] == "CANCELLED"
        assert lab.ssh(f"sacct -n -X -D -P -j {hangs} -o State").count("CANCELLED") == 1
        assert (lab.state(healthy), lab.state(wakes)) == ("RUNNING", "RUNNING")
        assert cancels_sent(lab, healthy) == cancels_sent(lab, wakes) == 0

        def ended(document):
            return daemon.jobs(document, cluster)["sft__hangs"]["outcome"] == "cancelled"

        daemon.submitted = {cluster: [hangs, healthy, wakes]}
        daemon.until(ended, "its end is told")
        card = json.loads(daemon.ctl("scorecard", "--json").stdout)
        assert card["verdicts"]["KILL"]["carried_out"] >= 1  # the second look before it is a verdict too
        again = daemon.ctl("approve", str(found[f"{cluster}/{hangs}"]["id"]), "--yes")
        assert again.returncode == 2
        assert again.stderr.count("\n") == 1
    finally:
        daemon.stop()
        lab.ssh(f"scancel {hangs} {healthy} {wakes}")


def _quotes_stand(lab, proposal: dict, job: str) -> None:
    """Each quote stands in the evidence at its line, byte for byte; the log's quotes stand in the job's own log."""
    folder = Path(proposal["evidence"])
    manifest = json.loads((folder / "manifest.json").read_text())
    hashes = {each["file"]: each["sha256"] for each in manifest["exhibits"] if each["file"]}
    log = lab.ssh(f"cat {lab.home}/sft__hangs-{job}.out").splitlines()
    assert proposal["quotes"]
    in_log = 0
    for quote in proposal["quotes"]:
        data = (folder / quote["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == hashes[quote["file"]]
        assert quote["text"] in data.decode().splitlines()[quote["line"] - 1]
        in_log += quote["text"] in log
    assert in_log, proposal["quotes"]
