"""Trees of trials behind the backends themselves: a launched process on this machine, and a job of a real Slurm over real SSH."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from supervisor.clusters.host import HostCluster
from supervisor.clusters.host_settings import HostSettings
from supervisor.clusters.local import LocalShell
from supervisor.clusters.shell import Ran
from supervisor.clusters.slurm import SlurmCluster
from supervisor.dialects.places import place_of
from supervisor.model.errors import LoginFailed
from supervisor.model.polling import Polled, Watch
from supervisor.model.trials import TrialPlace, TrialReader, TrialsSeen, TrialsUnread, TrialsWanted
from tests.labs import SlurmLab, slurm_lab
from tests.trial_files import result, write

__all__ = ["slurm_lab"]


class Away(LocalShell):
    async def run(self, script: str, *, limit_s: float, limit_bytes: int = 64 * 2**20) -> Ran:
        raise LoginFailed("alpha", "connection refused")


def wanted(place: TrialPlace | None, job: str = "42") -> TrialsWanted:
    assert place is not None
    return TrialsWanted(job_id=job, place=place)


async def test_a_host_reads_the_trials_that_its_jobs_command_names(tmp_path: Path) -> None:
    write(tmp_path / "jobs" / "j1", "a__1", result("a__1"))
    host = HostCluster("box", HostSettings(), LocalShell("box"), tmp_path)
    place = place_of("harbor run --jobs-dir jobs --job-name j1", str(tmp_path))

    got = (await host.read_trials([wanted(place)], datetime.now(UTC)))["42"]

    assert isinstance(host, TrialReader)
    assert isinstance(got, TrialsSeen)
    assert [file.name for file in got.results] == ["a__1"]


async def test_a_machine_that_cannot_be_reached_leaves_each_job_unread(tmp_path: Path) -> None:
    """POLL-1"""
    host = HostCluster("box", HostSettings(), Away("box"), tmp_path)

    got = await host.read_trials([wanted(TrialPlace("/j", "x"), str(n)) for n in range(3)], datetime.now(UTC))

    assert {job: answer.reason for job, answer in got.items() if isinstance(answer, TrialsUnread)} == dict.fromkeys(
        ("0", "1", "2"), "connection refused"
    )


@pytest.fixture
def cluster(slurm_lab: SlurmLab) -> Iterator[SlurmLab]:
    yield slurm_lab
    slurm_lab.clear()


@pytest.mark.lab
async def test_a_job_of_a_real_slurm_is_followed_by_its_command_to_its_trials(cluster: SlurmLab) -> None:
    """FIND-1, POLL-6: the batch script's arguments name the folder, one command over SSH reads it, no search."""
    lab = cluster
    content = result("a__1").decode()
    lab.ssh(
        "mkdir -p trials/jobs/j1/a__1 trials/jobs/j1/b__2 && cat > trials/jobs/j1/a__1/result.json <<'END'\n"
        f"{content}\nEND\nprintf '#!/bin/sh\\nsleep 600\\n' > trials/run.sh"
    )
    job = lab.ssh("cd trials && sbatch --parsable -J eval-bench run.sh --jobs-dir jobs --job-name j1").strip()
    lab.jobs.append(job)
    lab.until_state(job, "RUNNING")
    settings = lab.settings(first_look_back_s=0)
    slurm = SlurmCluster("alpha", settings, settings.shells("alpha"))
    try:
        reading = await slurm.poll(Watch(), datetime.now(UTC))
        assert isinstance(reading, Polled)
        seen = next(each for each in reading.changed if each.key.id == job)
        assert seen.details is not None
        place = place_of(seen.details.command, seen.details.workdir)

        got = (await slurm.read_trials([wanted(place, job)], datetime.now(UTC)))[job]
        gone = (await slurm.read_trials([wanted(TrialPlace("/nonexistent/j", "x"), job)], datetime.now(UTC)))[job]
    finally:
        await slurm.close()

    assert place is not None and place.where == f"{lab.home}/trials/jobs/j1", shlex.quote(str(seen.details.command))
    assert isinstance(got, TrialsSeen)
    assert (got.begun, [file.name for file in got.results]) == (2, ["a__1"])
    assert got.results[0].data is not None and got.results[0].data.decode().strip() == content
    assert isinstance(gone, TrialsUnread) and gone.not_there


async def test_another_login_node_is_asked_where_one_gives_no_answer(tmp_path: Path) -> None:
    """POLL-3"""
    from supervisor.clusters.slurm_settings import SlurmSettings

    write(tmp_path, "a__1", result("a__1"))
    settings = SlurmSettings(transport="local")
    slurm = SlurmCluster("alpha", settings, [Away("alpha"), LocalShell("alpha")])
    down = SlurmCluster("alpha", settings, [Away("alpha"), Away("alpha")])

    got = (await slurm.read_trials([wanted(TrialPlace(str(tmp_path), "x"))], datetime.now(UTC)))["42"]
    none = (await down.read_trials([wanted(TrialPlace(str(tmp_path), "x"))], datetime.now(UTC)))["42"]

    assert isinstance(got, TrialsSeen)
    assert isinstance(none, TrialsUnread) and none.reason == "connection refused"
