"""What a scripted job's evidence looks like: the text forms of ``clusters.node_commands``, filled in from what is true of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from supervisor.model.job import JobState
from supervisor.model.probe import Captured, CaptureWanted, Role

if TYPE_CHECKING:
    from tests.scripted import ScriptedJob

PID = 4242
"""Of a job's trainer; its launcher is the number before."""

_RECORD = """JobId={id} JobName={name}
   UserId=alice(1000) GroupId=alice(1000) MCS_label=N/A
   Priority=1000 Nice=0 Account=lab QOS=normal
   JobState={state} Reason=None Dependency=(null)
   Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode={exit_code}:0
   SubmitTime={submitted} EligibleTime={submitted}
   StartTime={started} EndTime={ended} Deadline=N/A
   Partition=gpu AllocNode:Sid=login01:1
   NodeList={nodes}
   BatchHost={nodes}
   NumNodes=1 NumCPUs=8 NumTasks=1 CPUs/Task=8 ReqB:S:C:T=0:0:*:*
   TRES=cpu=8,mem=32000M,node=1,billing=8
   Command=/home/alice/train.sh
   WorkDir=/home/alice
   StdErr={log}
   StdIn=/dev/null
   StdOut={log}
"""

_HEADER = "PID PPID PGID STAT NLWP CPUTIMES ETIMES RSS WCHAN COMMAND"

_WORKS = """Thread {pid} (active): "MainThread"
    forward (torch/nn/modules/linear.py:134)
    training_step (trainer.py:3812)
    <module> (train.py:88)"""
_WAITS = """Thread {pid} (idle): "MainThread"
    wait (torch/distributed/distributed_c10d.py:501)
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    training_step (trainer.py:3830)
    <module> (train.py:88)"""


def captures(job: ScriptedJob, wanted: CaptureWanted, now: datetime) -> list[Captured]:
    """All that a backend brings of a job without devices. Of one that has ended the live parts are failures."""
    pieces = [
        Captured(role=Role.RECORD, command=f"scontrol show job -d {job.id}", data=record(job), exit_status=0),
        log(job, wanted),
        Captured(
            role=Role.SCRIPT,
            command=f"scontrol write batch_script {job.id} -",
            data=b"#!/bin/sh\npython train.py\n",
            exit_status=0,
        ),
    ]
    absent = "".join(f"# absent {folder}\n" for folder in wanted.checkpoint_dirs)
    if absent:
        command = f"ls -l {' '.join(wanted.checkpoint_dirs)}, one level"
        pieces.append(Captured(role=Role.CHECKPOINTS, command=command, data=absent.encode(), exit_status=0))
    if wanted.live:
        pieces += live(job, now)
    return pieces


def record(job: ScriptedJob) -> bytes:
    def at(time: datetime | None) -> str:
        return "Unknown" if time is None else f"{time:%Y-%m-%dT%H:%M:%S}"

    return _RECORD.format(
        id=job.id,
        name=job.name,
        state=job.state.value.upper(),
        restarts=job.attempt - 1,
        exit_code=job.exit_code or 0,
        submitted=at(job.submitted_at),
        started=at(job.started_at),
        ended=at(job.ended_at),
        nodes="node01" if job.started_at else "(null)",
        log=f"/home/alice/{job.id}.out",
    ).encode()


def log(job: ScriptedJob, wanted: CaptureWanted) -> Captured:
    path = f"/home/alice/{job.id}.out"
    if job.log_unread is not None:
        return Captured(role=Role.LOG, command=f"tail {path}", source=path, failure=job.log_unread, exit_status=1)
    cut = max(0, len(job.text) - wanted.log_bytes)
    return Captured(
        role=Role.LOG,
        command=f"tail {path}",
        source=path,
        data=job.text[cut:],
        exit_status=0,
        cut=cut,
        first_line=job.text[:cut].count(b"\n") + 1,
    )


def live(job: ScriptedJob, now: datetime) -> list[Captured]:
    """What is asked of its node: processes busy or idle as ``busy`` says, and where they stand."""

    def asked(role: Role, words: str, text: str | None, failure: str = "", status: int = 0) -> Captured:
        return Captured(
            role=role,
            command=f"srun --jobid={job.id} --overlap --nodelist=node01: {words}",
            node="node01",
            data=None if text is None else text.encode(),
            failure=failure if text is None else None,
            exit_status=status,
        )

    gone = job.state is not JobState.RUNNING
    why = f"srun: error: Unable to create step for job {job.id}: Invalid job id specified"
    no_gpu = "nvidia-smi is not in the PATH here"
    devices, table = "# 0 accelerator devices\n", processes(job, now)
    stack = f"# process {PID} python\n# by py-spy dump\n{(_WORKS if job.busy else _WAITS).format(pid=PID)}\n"
    memory = "# path /sys/fs/cgroup/memory.events\nlow 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n"
    return [
        asked(Role.DEVICES, "ls /dev/nvidia[0-9]*", None if gone else devices, why, 1 if gone else 0),
        asked(Role.PROCESSES, "processes, twice within 4 s", None if gone else table, why, 1 if gone else 0),
        asked(Role.MEMORY, "files of its memory group", None if gone else memory, why, 1 if gone else 0),
        asked(Role.GPU, "nvidia-smi --query-gpu", None, why if gone else no_gpu, 1 if gone else 127),
        asked(Role.GPU_PROCESSES, "nvidia-smi --query-compute-apps", None, why if gone else no_gpu, 1 if gone else 127),
        asked(Role.STACK, "py-spy dump, else gdb, else /proc", None if gone else stack, why, 1 if gone else 0),
        asked(
            Role.SESSION_LOG,
            "newest 32 of worker-*.out",
            None,
            why if gone else "no process of the job holds a file of a Ray session open",
            1,
        ),
    ]


def processes(job: ScriptedJob, now: datetime, apart: timedelta = timedelta(seconds=4)) -> str:
    lines = []
    age = int((now - (job.started_at or now)).total_seconds())
    for number, since in ((1, timedelta()), (2, apart)):
        spent = since.total_seconds() * (0.98 if job.busy else 0.0) + 120
        state, where = ("R", "0") if job.busy else ("S", "futex_wait_queue")
        older = age + int(since.total_seconds())
        lines += [
            f"# sample {number} at {int((now + since).timestamp())}",
            _HEADER,
            f"{PID - 1} 1 {PID - 1} S 1 0.00 {older} 1492 do_wait /bin/bash /var/spool/slurmd/job/slurm_script",
            f"{PID} {PID - 1} {PID - 1} {state} 64 {spent:.2f} {older} 9437184 {where} python train.py",
        ]
    return "\n".join(lines) + "\n"
