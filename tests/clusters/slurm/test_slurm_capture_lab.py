"""Evidence of jobs of a real Slurm: by steps beside their own, by ssh to their nodes, and from nodes that are dead."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from supervisor.clusters.shell import Ran
from supervisor.clusters.slurm import SlurmCluster
from supervisor.model.job import NO_DETAILS, Observation
from supervisor.model.polling import Polled, Watch
from supervisor.model.probe import Captured, CaptureWanted, Remains, Role
from tests.labs import SlurmLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

ON_NODES = (Role.DEVICES, Role.PROCESSES, Role.STACK, Role.MEMORY, Role.GPU, Role.GPU_PROCESSES, Role.SESSION_LOG)


class Prober:
    def __init__(self, cluster: SlurmCluster) -> None:
        self.cluster = cluster

    async def seen(self, job: str) -> Observation:
        reading = await self.cluster.poll(Watch(), datetime.now(UTC))
        assert isinstance(reading, Polled), reading
        return next(each for each in (*reading.changed, *reading.ended) if each.key.id == job)

    async def capture(self, job: str, time_s: float = 120.0) -> list[Captured]:
        seen = await self.seen(job)
        wanted = CaptureWanted(seen=seen, details=seen.details or NO_DETAILS, time_s=time_s)
        return list(await self.cluster.capture(wanted, datetime.now(UTC)))

    async def remains(self, job: str) -> Remains:
        return await self.cluster.remains(await self.seen(job), datetime.now(UTC))


@pytest.fixture
async def probing(slurm_lab: SlurmLab) -> AsyncIterator[Callable[..., Prober]]:
    made: list[SlurmCluster] = []

    def build(**changes: Any) -> Prober:
        settings = slurm_lab.settings(**changes)
        made.append(SlurmCluster("alpha", settings, settings.shells("alpha")))
        return Prober(made[-1])

    yield build
    for cluster in made:
        await cluster.close()
    slurm_lab.clear()


def of(pieces: Sequence[Captured], role: Role, node: str | None = None) -> Captured:
    (piece,) = [each for each in pieces if each.role is role and node in (None, each.node)]
    return piece


def text(piece: Captured) -> str:
    assert piece.data is not None, piece
    return piece.data.decode()


async def test_each_node_of_a_job_shows_its_own_processes_and_its_memory_group(
    slurm_lab: SlurmLab, probing: Callable[..., Prober]
) -> None:
    job = slurm_lab.submit("-p", "gpu", "-N2", "-n2", "--gres=gpu:1", script="srun sleep 600")
    slurm_lab.until(f"{job} has its step", lambda: slurm_lab.ssh(f"squeue -h -s -j {job}").count("sleep"))

    pieces = await probing().capture(job)

    assert "GRES=gpu:a100:1" in text(of(pieces, Role.RECORD))
    assert "|RUNNING|" in text(of(pieces, Role.ACCOUNTING))
    assert "srun sleep 600" in text(of(pieces, Role.SCRIPT))
    first, second = (text(of(pieces, Role.PROCESSES, node)) for node in ("gpu01", "gpu02"))
    assert "slurm_script" in first
    assert "slurm_script" not in second
    assert "sleep 600" in second
    assert "supervisor-look" not in first + second
    memory = of(pieces, Role.MEMORY, "gpu02")
    if slurm_lab.facts.get("memory_cgroup", True) and memory.data is not None:
        assert f"/job_{job}/memory." in text(memory)
    assert of(pieces, Role.GPU, "gpu01").failure == "nvidia-smi is not in the PATH here"
    assert text(of(pieces, Role.STACK, "gpu02")).startswith("# process ")


async def test_another_clusters_job_of_the_same_number_on_the_same_machine_is_not_its_own(
    slurm_lab: SlurmLab, probing: Callable[..., Prober]
) -> None:
    """Its control group bears another user's number; what it does says nothing of our job."""
    if not slurm_lab.facts.get("memory_cgroup", True):
        pytest.skip("no memory control group of the old kind here to make another one in")
    job = slurm_lab.submit("-p", "cpu", script="sleep 600")
    slurm_lab.until(f"{job} runs", lambda: slurm_lab.ssh(f"squeue -h -t R -j {job}").count("cpu"))
    other = Path(f"/sys/fs/cgroup/memory/elsewhere/uid_4242/job_{job}")
    other.mkdir(parents=True)
    process = subprocess.Popen(["sleep", "601"])
    try:
        (other / "cgroup.procs").write_text(str(process.pid))

        seen = text(of(await probing().capture(job), Role.PROCESSES))
    finally:
        process.kill()
        process.wait()
        for folder in (other, *other.parents[:2]):
            folder.rmdir()

    assert "sleep 600" in seen
    assert "sleep 601" not in seen


async def test_a_task_and_a_component_are_looked_at_under_numbers_of_their_own(
    slurm_lab: SlurmLab, probing: Callable[..., Prober]
) -> None:
    """POLL-11."""
    array = slurm_lab.submit("-p", "cpu", "--array=1-2", script="sleep 60$SLURM_ARRAY_TASK_ID")
    het = slurm_lab.submit("-p", "cpu", "-N1", ":", "-p", "cpu", script="srun --het-group=0,1 sleep 600")
    slurm_lab.until(f"{het} has its step", lambda: slurm_lab.ssh(f"squeue -h -s -j {het}").count("sleep"))
    prober = probing()

    processes = text(of(await prober.capture(f"{array}_1"), Role.PROCESSES))
    assert "sleep 601" in processes
    assert "sleep 602" not in processes
    pieces = await prober.capture(f"{het}+1")
    assert "--het-group=1 " in of(pieces, Role.PROCESSES).command
    assert "sleep 600" in text(of(pieces, Role.PROCESSES))
    assert (await prober.remains(f"{het}+1")).there


async def test_steps_of_the_job_go_on_while_it_is_looked_at(
    slurm_lab: SlurmLab, probing: Callable[..., Prober]
) -> None:
    """PROBE-14: the look holds back neither processors, nor memory, nor devices."""
    steps = (
        "while :; do began=$(date +%s%N); srun -n1 --mem=0 --gres=gpu:1 true; "
        "echo step $(( ($(date +%s%N) - began) / 1000000 )) ms; sleep 0.2; done"
    )
    log = f"{slurm_lab.home}/steps.out"
    job = slurm_lab.submit("-p", "gpu", "-n1", "--gres=gpu:1", f"--output={log}", script=steps)
    slurm_lab.until("its steps go", lambda: slurm_lab.ssh(f"cat {log} 2>/dev/null || :").count("step ") > 2)
    before = slurm_lab.ssh(f"wc -l < {log}").strip()

    pieces = await probing().capture(job)

    lines = slurm_lab.ssh(f"tail -n +{before} {log}").splitlines()
    assert of(pieces, Role.PROCESSES).data
    assert len(lines) > 5
    assert max(int(line.split()[1]) for line in lines) < 5000, lines
    assert slurm_lab.state(job) == "RUNNING"
    shown = slurm_lab.ssh(f"sacct -n -P -j {job} -o JobName,State")
    assert "supervisor-look|COMPLETED" in shown


async def test_what_a_login_sets_for_srun_does_not_count(slurm_lab: SlurmLab, probing: Callable[..., Prober]) -> None:
    """A profile may ask for labels, or for files in place of output."""
    job = slurm_lab.submit("-p", "cpu", "-N1", script="sleep 600")
    slurm_lab.until_state(job, "RUNNING")
    env = "SLURM_LABELIO=1 SLURM_STDOUTMODE=/dev/null SLURM_GRES=gpu:7 SLURM_NTASKS=9 SRUN_EXPORT_ENV=NONE"
    settings = slurm_lab.settings()
    (shell,) = settings.shells("alpha")

    class Profiled:
        place = shell.place

        async def close(self) -> None:
            await shell.close()

        async def run(self, script: str, *, limit_s: float, limit_bytes: int = 64 * 2**20) -> Ran:
            return await shell.run(f"export {env}\n{script}", limit_s=limit_s, limit_bytes=limit_bytes)

    prober = Prober(SlurmCluster("alpha", settings, [Profiled()]))
    pieces = await prober.capture(job)
    await prober.cluster.close()

    assert "sleep 600" in text(of(pieces, Role.PROCESSES))


async def test_a_dead_node_is_a_failure_in_the_words_of_srun_and_the_others_are_there(
    slurm_lab: SlurmLab, probing: Callable[..., Prober]
) -> None:
    """PROBE-3."""
    job = slurm_lab.submit("-p", "cpu", "-N2", "-n2", script="srun sleep 600")
    slurm_lab.until(f"{job} has its step", lambda: slurm_lab.ssh(f"squeue -h -s -j {job}").count("sleep"))

    with slurm_lab.broken("stop", "slurmd@cpu02"):
        pieces = await probing().capture(job)

    assert "sleep 600" in text(of(pieces, Role.PROCESSES, "cpu01"))
    for role in ON_NODES:
        piece = of(pieces, role, "cpu02")
        assert piece.data is None
        assert "failed on node cpu02" in (piece.failure or "")


async def test_a_node_that_hangs_costs_no_more_time_than_there_is(
    slurm_lab: SlurmLab, probing: Callable[..., Prober]
) -> None:
    """PROBE-14."""
    job = slurm_lab.submit("-p", "cpu", "-N1", "-w", "cpu02", script="sleep 600")
    slurm_lab.until_state(job, "RUNNING")
    prober = probing()

    with slurm_lab.broken("pause", "slurmd@cpu02"):
        began = time.monotonic()
        pieces = await prober.capture(job, time_s=45)
        took = time.monotonic() - began

    assert took < 60
    assert all(of(pieces, role).data is None for role in ON_NODES)
    assert slurm_lab.state(job) == "RUNNING"


async def test_nodes_are_looked_at_by_ssh_where_the_settings_say_so(
    slurm_lab: SlurmLab, probing: Callable[..., Prober]
) -> None:
    key = Path(slurm_lab.facts["key"]).read_text()
    config = "".join(
        f"{line}\n"
        for line in (
            "Host gpu01 gpu02",
            "HostName 127.0.0.1",
            f"Port {slurm_lab.facts['port']}",
            "IdentityFile ~/.ssh/look",
            "StrictHostKeyChecking no",
            "UserKnownHostsFile /dev/null",
        )
    )
    slurm_lab.ssh(
        f"umask 077; mkdir -p ~/.ssh; printf %s {shlex.quote(key)} > ~/.ssh/look; "
        f"printf %s {shlex.quote(config)} > ~/.ssh/config"
    )
    job = slurm_lab.submit("-p", "gpu", "-N2", "-n2", script="srun sleep 600")
    slurm_lab.until(f"{job} has its step", lambda: slurm_lab.ssh(f"squeue -h -s -j {job}").count("sleep"))
    try:
        pieces = await probing(node_access="ssh").capture(job)
    finally:
        slurm_lab.ssh("cd ~/.ssh && unlink look && unlink config")
    refused = await probing(node_access="ssh").capture(job)

    second = of(pieces, Role.PROCESSES, "gpu02")
    assert second.command.startswith("ssh gpu02: ")
    assert "sleep 600" in text(second)
    assert "slurm_script" not in text(second)
    assert of(refused, Role.STACK, "gpu02").data is None
    assert "gpu02" in (of(refused, Role.STACK, "gpu02").failure or "")
    assert "supervisor-look" not in slurm_lab.ssh(f"sacct -n -P -j {job} -o JobName")


async def test_a_job_that_ends_in_the_middle_of_its_probe_leaves_failures_and_no_half_pieces(
    slurm_lab: SlurmLab, probing: Callable[..., Prober]
) -> None:
    """PROBE-3."""
    job = slurm_lab.submit("-p", "cpu", "-N1", script="sleep 600")
    slurm_lab.until_state(job, "RUNNING")
    prober = probing()
    seen = await prober.seen(job)
    slurm_lab.ssh(f"(sleep 3; scancel {job}) >/dev/null 2>&1 &")

    wanted = CaptureWanted(seen=seen, details=seen.details or NO_DETAILS)
    pieces = list(await prober.cluster.capture(wanted, datetime.now(UTC)))

    processes = of(pieces, Role.PROCESSES)
    assert processes.data is None or "# sample 2 at " in text(processes)
    assert of(pieces, Role.STACK).failure
    slurm_lab.until_state(job, "CANCELLED", "")
    assert (await prober.cluster.remains(seen, datetime.now(UTC))).gone
