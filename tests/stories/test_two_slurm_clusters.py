"""The main job, end to end: two real Slurm clusters, jobs of all fates, a real daemon that is killed again and again.

What ``supervisorctl status --json`` says in the end is held against what ``sacct`` and the files themselves say.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.stories.processes import Daemon, config_for

pytestmark = pytest.mark.lab

FATES = """
set -e
cd ~
sbatch --parsable -J rl__runs -t 30 --wrap 'for i in $(seq 1 900); do echo step $i; sleep 1; done'
sbatch --parsable -J sft__fails -t 30 --wrap 'echo start; sleep 8; echo "Traceback (most recent call last):"; echo "  File \\"train.py\\", line 7, in <module>"; echo "ValueError: bad batch"; exit 3'
sbatch --parsable -J eval-ends-well -t 30 --wrap 'echo start; sleep 6; echo done'
sbatch --parsable -J memory --mem=30M -t 30 --wrap 'echo start; sleep 4; python3 -c "x = bytearray(200 * 1024 * 1024); print(len(x))"'
sbatch --parsable -J sweep --array=0-2%2 -t 30 --wrap 'echo task; sleep 6; exit $((SLURM_ARRAY_TASK_ID % 2))'
sbatch --parsable -J held -H -t 30 --wrap true
sbatch --parsable -J cancelled -t 30 --wrap 'echo start; sleep 600'
sbatch --parsable -J again -t 30 --requeue --wrap 'echo attempt ${SLURM_RESTART_COUNT:-0}; sleep 600'
first=$(sbatch --parsable -J link-1 -t 30 --wrap 'while :; do echo step; sleep 1; done')
echo $first
sbatch --parsable -J link-2 -d afterany:$first -t 30 --wrap 'echo goes on; sleep 600'
sbatch --parsable -J 'we|ird
name' -t 30 --wrap 'echo x; sleep 600'
sbatch --parsable -J signal -t 30 --wrap 'echo start; sleep 5; kill -SEGV $$'
sbatch --parsable -J badpath -t 30 -o /nonexistent/folder/out.txt --wrap true
sbatch --parsable -J toobig -t 99-0 -p short --wrap true
"""
OUTCOMES = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "TIMEOUT": "timed_out",
    "OUT_OF_MEMORY": "out_of_memory",
    "NODE_FAIL": "node_failed",
}


def accounted(lab, jobs) -> dict[str, tuple[str, str, str]]:
    """(state, exit code, log's age in whole seconds) as ``sacct`` has it, by job id; the last row of each."""
    ids = ",".join(jobs)
    rows = {}
    for line in lab.ssh(f"sacct -n -X -P -j {ids} -o JobID,State,ExitCode").splitlines():
        job, state, code = line.split("|")
        rows[job] = (state.split()[0], code)
    return rows


def play(lab) -> list[str]:
    ids = lab.ssh(FATES).split()
    lab.jobs += ids
    return ids


def run_the_story(folder: Path, labs, database: str = "") -> None:
    daemon = Daemon(config_for(folder, labs, database))
    names = [lab.facts["cluster"] for lab in labs]
    for lab in labs:
        lab.clear()
    daemon.submitted = {lab.facts["cluster"]: play(lab) for lab in labs}
    daemon.start()
    try:
        _run(daemon, labs, names)
    finally:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.stop()


def _run(daemon: Daemon, labs, names) -> None:
    def all_running(document):
        return all(daemon.jobs(document, name).get("rl__runs", {}).get("phase") == "running" for name in names)

    daemon.until(all_running, "the running job is held as running on both clusters")
    for lab, name in zip(labs, names, strict=True):
        jobs = daemon.jobs(daemon.status(), name)
        lab.ssh(f"scancel {jobs['cancelled']['id']}")
        lab.ssh(f"scontrol requeue {jobs['again']['id']}")
        lab.ssh(f"scontrol update jobid={jobs['link-1']['id']} EndTime=now+1")
        for number in range(5):
            daemon.kill()
            daemon.start()
            time.sleep(0.3 * number)

    def all_done(document):
        return all(
            (jobs := daemon.jobs(document, name))["sft__fails"]["outcome"] == "failed"
            and jobs["cancelled"]["outcome"] == "cancelled"
            and jobs["again"]["attempt"] == 2
            and jobs["link-1"]["outcome"] == "handed_on"
            and jobs["memory"]["outcome"] == "out_of_memory"
            and jobs["sft__fails"]["diagnosis"] is not None
            for name in names
        )

    daemon.until(all_done, "every fate is told", seconds=150)
    _hold_against_accounting(daemon, labs, names)
    _stop_a_controller(daemon, labs[0], names)


def _hold_against_accounting(daemon: Daemon, labs, names) -> None:
    document = daemon.status()
    for lab, name in zip(labs, names, strict=True):
        jobs = {job["id"]: job for job in document["jobs"] if job["cluster"] == name}
        for job, (state, code) in accounted(lab, daemon.submitted[name]).items():
            if "[" in job or job not in jobs:
                assert state == "PENDING", f"{name}/{job} is {state} in accounting and not in status"
                continue
            told = jobs[job]
            if state in OUTCOMES and told["outcome"] != "handed_on":
                assert (told["phase"], told["outcome"]) == ("terminal", OUTCOMES[state]), (job, state, told)
                if state == "FAILED" and not code.startswith("0:"):
                    assert told["exit_code"] == int(code.split(":")[0]), (job, code, told)
            elif state in ("RUNNING", "PENDING"):
                assert told["phase"] in ("bring_up", "running"), (job, state, told)
        named = daemon.jobs(document, name)
        assert named["link-1"]["successor"] == named["link-2"]["id"]
        assert named["link-2"]["predecessor"] == named["link-1"]["id"]
        assert named["we|ird\nname"]["phase"] == "running"
        _same_age(lab, named["rl__runs"], document)
        cause = named["sft__fails"]["diagnosis"]["cause"]
        at = lab.ssh(f"grep -nF 'ValueError: bad batch' {cause['file']}").split(":")[0]
        assert (cause["line"], cause["text"]) == (int(at), "ValueError: bad batch")


def _same_age(lab, job, document) -> None:
    """LIVE-1: the log's age is the file's own, as of the last poll."""
    from datetime import datetime

    modified = int(lab.ssh(f"stat -c %Y {job['log']['path']}"))
    told = datetime.fromisoformat(job["log"]["last_output_at"]).timestamp()
    assert 0 <= modified - told < 30


def _stop_a_controller(daemon: Daemon, lab, names) -> None:
    """POLL-1: a stopped slurmctld changes no job's phase; the cluster is UNKNOWN with its reason."""
    before = {job["id"]: job["phase"] for job in daemon.status()["jobs"] if job["cluster"] == names[0]}
    lab.lab("stop", "slurmctld")
    try:

        def unknown(document):
            return {each["name"]: each["state"] for each in document["clusters"]}[names[0]] == "unknown"

        document = daemon.until(unknown, "the cluster without a controller is unknown")
        time.sleep(6)
        document = daemon.status()
        assert {job["id"]: job["phase"] for job in document["jobs"] if job["cluster"] == names[0]} == before
        other = {each["name"]: each for each in document["clusters"]}[names[1]]
        assert other["state"] == "ok"
        assert other["age_s"] < 20, "the dead cluster adds nothing to the other"
    finally:
        lab.lab("start", "slurmctld")

    def back(document):
        return {each["name"]: each["state"] for each in document["clusters"]}[names[0]] == "ok"

    document = daemon.until(back, "the cluster heals by itself")
    after = {job["id"]: job["phase"] for job in document["jobs"] if job["cluster"] == names[0]}
    assert {job: phase for job, phase in after.items() if job in before} == before


@pytest.mark.timeout(420)
def test_two_clusters_with_jobs_of_all_fates_under_a_daemon_that_is_killed_ten_times(tmp_path, slurm_lab, slurm_lab_b):
    """POLL-1, POLL-4, POLL-11, CHAIN-1, LIVE-1: each job's phase, outcome, attempt and log age are what sacct and the files say."""
    os.chmod(tmp_path, 0o755)
    run_the_story(tmp_path, [slurm_lab, slurm_lab_b])


@pytest.mark.timeout(420)
def test_the_same_on_postgresql(tmp_path, slurm_lab, slurm_lab_b, postgres_url):
    run_the_story(tmp_path, [slurm_lab, slurm_lab_b], postgres_url)
