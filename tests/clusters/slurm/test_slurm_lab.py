"""The Slurm kind against a real Slurm behind a real sshd: fates of jobs, and outages of every part."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from supervisor.clusters.shell import Ran, Shell, quoted
from supervisor.clusters.slurm import SlurmCluster
from supervisor.clusters.slurm_settings import SlurmSettings
from supervisor.model.job import Details, JobKey, JobState, Observation
from supervisor.model.logs import LogState, LogText, LogWanted
from supervisor.model.polling import Polled, Reading, Unreached, Watch
from supervisor.model.ports import Approval
from tests.labs import SlurmLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(120)]

QUICK = {"queue_timeout_s": 3, "accounting_timeout_s": 3, "logs_timeout_s": 3}


@dataclass
class Follower:
    """Polls, and remembers what a supervisor would."""

    cluster: SlurmCluster
    jobs: dict[str, Observation] = field(default_factory=dict)
    ended: dict[str, list[Observation]] = field(default_factory=dict)
    details: dict[JobKey, Details] = field(default_factory=dict)
    lines: Any = field(default_factory=dict)
    ended_since: datetime | None = None

    def watch(self) -> Watch:
        live = {job: one.key for job, one in self.jobs.items() if one.state.live}
        paths = {job: self.details[key].log_path for job, key in live.items() if key in self.details}
        return Watch(
            lines=self.lines,
            live=live,
            detailed=frozenset(self.details),
            logs={job: path for job, path in paths.items() if path and self.jobs[job].state is not JobState.PENDING},
            ended_since=self.ended_since,
        )

    async def poll(self) -> Reading:
        reading = await self.cluster.poll(self.watch(), datetime.now(UTC))
        if isinstance(reading, Polled):
            for one in (*reading.changed, *reading.ended):
                if one.details is not None:
                    self.details[one.key] = one.details
            self.jobs |= {one.key.id: one for one in reading.changed}
            for one in reading.ended:
                self.ended.setdefault(one.key.id, []).append(one)
                if one.final and one.key.id not in reading.lines:
                    self.jobs[one.key.id] = one
            self.lines = reading.lines
            self.ended_since = reading.at if reading.ends_read else self.ended_since
        return reading

    async def good(self) -> Polled:
        reading = await self.poll()
        assert isinstance(reading, Polled), reading
        return reading

    async def until(self, what: str, holds: Callable[[], object], timeout: float = 40) -> None:
        end = time.monotonic() + timeout
        while not holds():
            assert time.monotonic() < end, f"{what}: not after {timeout:g} s"
            await asyncio.sleep(0.25)
            await self.good()

    async def until_state(self, job: str, *states: JobState, timeout: float = 40) -> Observation:
        await self.until(f"{job} is {states}", lambda: job in self.jobs and self.jobs[job].state in states, timeout)
        return self.jobs[job]


@pytest.fixture
async def follow(slurm_lab: SlurmLab) -> AsyncIterator[Callable[..., Follower]]:
    """Followers of the lab, closed at the end; the lab's jobs are ended."""
    made: list[SlurmCluster] = []

    def build(shells: Callable[[SlurmSettings], list[Shell]] | None = None, **changes: Any) -> Follower:
        settings = slurm_lab.settings(**{"first_look_back_s": 0, **changes})
        chosen = settings.shells("alpha") if shells is None else shells(settings)
        made.append(SlurmCluster("alpha", settings, chosen))
        return Follower(made[-1])

    yield build
    for cluster in made:
        await cluster.close()
    slurm_lab.ssh(f"scancel -u {slurm_lab.facts['user']}")


def facts_of(lab: SlurmLab, job: str) -> list[str]:
    """State, exit code and submit time as sacct itself says them."""
    text = lab.ssh(f"SLURM_TIME_FORMAT=%s sacct -n -X -P -j {job} -o State,ExitCode,Submit").strip()
    return text.splitlines()[-1].split("|") if text else ["", "", ""]


# -- fates -------------------------------------------------------------------------------------------------------------


async def test_jobs_of_all_fates_are_told_as_sacct_and_the_files_tell_them(
    slurm_lab: SlurmLab, follow: Callable[..., Follower]
) -> None:
    lab = slurm_lab
    odd = "pipe|quote'\"; $(id) `id`\nJobId=99 JobState=FAILED\n\x1f\x1b[31mred" + "x" * 900
    fates = {
        lab.submit("-J", "sft__a", script="echo done"): (JobState.COMPLETED, 0, None),
        lab.submit("-J", "rl__a", script="exit 3"): (JobState.FAILED, 3, None),
        lab.submit("-J", "crash", script="kill -SEGV $$"): (JobState.FAILED, None, 11),
        lab.submit("-J", "nodir", "-o", "/nonexistent/x/%j.out", script="true"): (JobState.FAILED, None, None),
        lab.submit("-J", odd, script="echo odd"): (JobState.COMPLETED, 0, None),
    }
    held = lab.submit("-J", "held", "--hold", script="true")
    running = lab.submit("-J", "run", "-o", "out %x-%5j.txt", script="echo step 1; sleep 600")
    follower = follow()

    for job, (state, _, _) in fates.items():
        await follower.until_state(job, state)
    await follower.until_state(running, JobState.RUNNING)
    lab.ssh(f"scancel {held}")
    await follower.until_state(held, JobState.CANCELLED)

    for job, (state, exit_code, signal) in fates.items():
        seen = follower.jobs[job]
        assert (seen.state, seen.exit_code, seen.signal) == (state, exit_code, signal)
        await follower.until(f"accounting tells of {job}", lambda job=job: job in follower.ended)
        assert follower.ended[job][-1].key == seen.key
        assert seen.key.incarnation == facts_of(lab, job)[2]
    assert [one.name for one in follower.jobs.values() if one.name.startswith("pipe")] == [odd]
    path = f"{lab.home}/out run-{int(running):05d}.txt"
    assert follower.details[follower.jobs[running].key].log_path == path
    reading = await follower.good()
    stat = reading.logs[running]
    assert (stat.state, stat.path, stat.size) == (LogState.READ, path, len("step 1\n"))
    assert stat.modified_at is not None and abs(datetime.now(UTC) - stat.modified_at) < timedelta(minutes=1)


async def test_attempts_that_end_tell_whether_another_follows(
    slurm_lab: SlurmLab, follow: Callable[..., Follower]
) -> None:
    """Three that take Slurm its time, at once: out of time, requeued, preempted."""
    await asyncio.gather(
        out_of_time_with_a_successor(slurm_lab, follow()),
        requeued_by_hand(slurm_lab, follow()),
        preempted_by_a_higher_tier(slurm_lab, follow()),
    )


async def out_of_time_with_a_successor(lab: SlurmLab, follower: Follower) -> None:
    """CHAIN-1: the dependency is told while it is visible, since Slurm forgets it."""
    first = lab.submit("-J", "rl__1", "-t", "1", script="sleep 600")
    second = lab.submit("-J", "rl__2", "-d", f"afterany:{first}", script="sleep 600")
    await follower.until_state(first, JobState.RUNNING)
    edge = follower.jobs[second].depends_on[0]
    assert (edge.kind, edge.on) == ("afterany", first)

    lab.ssh(f"scontrol update jobid={first} EndTime=now+1")
    ended = await follower.until_state(first, JobState.TIMED_OUT, timeout=60)
    await follower.until_state(second, JobState.RUNNING)

    assert (ended.exit_code, ended.signal) == (None, None)
    assert follower.jobs[second].depends_on == ()


async def requeued_by_hand(lab: SlurmLab, follower: Follower) -> None:
    """The same id, a new submit time, a second attempt."""
    job = lab.submit("-J", "again", "--requeue", script="sleep 600")
    before = await follower.until_state(job, JobState.RUNNING)
    await asyncio.sleep(1)

    lab.ssh(f"scontrol requeue {job}")
    waits = await follower.until_state(job, JobState.PENDING)
    await follower.until("its first attempt's end is told", lambda: job in follower.ended)
    again = await follower.until_state(job, JobState.RUNNING)

    first = follower.ended[job][-1]
    assert (first.state, first.final, first.attempt, first.key) == (JobState.REQUEUED, False, 1, before.key)
    assert (waits.attempt, again.attempt) == (2, 2)
    assert again.key == waits.key != before.key


async def preempted_by_a_higher_tier(lab: SlurmLab, follower: Follower) -> None:
    job = lab.submit("-J", "low", "-p", "scavenge", "-N2", "--gres=gpu:4", script="sleep 600")
    await follower.until_state(job, JobState.RUNNING)
    await asyncio.sleep(1)

    high = lab.submit("-J", "high", "-p", "gpu", "-N2", "--gres=gpu:4", script="sleep 600")
    waits = await follower.until_state(job, JobState.PENDING, timeout=60)
    await follower.until("accounting tells of the preemption", lambda: job in follower.ended)
    lab.ssh(f"scancel {high}")

    first = follower.ended[job][-1]
    assert (first.state, first.final) == (JobState.PREEMPTED, False)
    assert waits.attempt == 2


@pytest.mark.parametrize("requeue", [True, False])
async def test_a_node_that_fails_ends_an_attempt_and_the_job_only_if_it_is_not_requeued(
    slurm_lab: SlurmLab, follow: Callable[..., Follower], requeue: bool
) -> None:
    lab = slurm_lab
    node = lab.facts["cpu_nodes"].split(",")[1]
    job = lab.submit("-J", "node", "--requeue" if requeue else "--no-requeue", "-w", node, script="sleep 600")
    follower = follow()
    await follower.until_state(job, JobState.RUNNING)
    await asyncio.sleep(1)

    lab.root("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    await follower.until("accounting tells of the node", lambda: job in follower.ended)
    lab.until("the node is back", lambda: "idle" in lab.ssh(f"sinfo -h -n {node} -o %T") or _resume(lab, node))

    first = follower.ended[job][-1]
    assert (first.state, first.final) == (JobState.NODE_FAILED, not requeue)
    await follower.until_state(job, JobState.PENDING if requeue else JobState.NODE_FAILED)


def _resume(lab: SlurmLab, node: str) -> bool:
    """A node that answers comes back by itself; one that was just now set down must be told."""
    try:
        lab.root("scontrol", "update", f"nodename={node}", "state=resume")
    except AssertionError:
        return False
    return True


async def test_tasks_of_an_array_are_jobs_and_its_rest_does_not_vanish(
    slurm_lab: SlurmLab, follow: Callable[..., Follower]
) -> None:
    """POLL-11: the last task to start takes the array's own number."""
    array = slurm_lab.submit("-J", "sweep", "--array=0-2%1", script="sleep 1.5; exit $SLURM_ARRAY_TASK_ID")
    follower = follow()
    await follower.until_state(f"{array}_0", JobState.RUNNING)
    rest = follower.jobs[array]
    assert (rest.state, rest.group, rest.group_size) == (JobState.PENDING, array, 2)

    await follower.until("every task ended", lambda: all(f"{array}_{n}" in follower.ended for n in range(3)))
    await follower.until_state(array, JobState.COMPLETED)

    codes = [follower.ended[f"{array}_{n}"][-1].exit_code for n in range(3)]
    assert codes == [0, 1, 2]
    assert {one.group for one in follower.jobs.values() if one.key.id.startswith(f"{array}_")} == {array}
    assert follower.jobs[array].scheduler_state == "STARTED"


async def test_components_of_a_heterogeneous_job_are_grouped(
    slurm_lab: SlurmLab, follow: Callable[..., Follower]
) -> None:
    """POLL-11"""
    slurm_lab.ssh(
        "printf '#!/bin/sh\\n#SBATCH -p cpu\\n#SBATCH hetjob\\n#SBATCH -p gpu --gres=gpu:1\\necho hi; sleep 600\\n' > h.sh"
    )
    het = slurm_lab.submit("-J", "het", "h.sh")
    follower = follow()

    first = await follower.until_state(f"{het}+0", JobState.RUNNING)
    second = await follower.until_state(f"{het}+1", JobState.RUNNING)

    assert first.group == second.group == het
    assert (
        follower.details[first.key].log_path
        == follower.details[second.key].log_path
        == f"{slurm_lab.home}/slurm-{het}.out"
    )


async def test_jobs_that_slurmctld_has_forgotten_are_found_in_accounting_and_their_ids_used_again(
    slurm_lab: SlurmLab, follow: Callable[..., Follower]
) -> None:
    """POLL-4, POLL-11: one of the two was never eligible, so that only its id finds it. Then their ids go round."""
    lab = slurm_lab
    lab.lab("set", "MinJobAge=2", "FirstJobId=70001", "MaxJobId=70003")
    lab.lab("restart", "slurmctld")
    lab.lab("up")
    try:
        ran = lab.submit("-J", "ran", script="sleep 1; exit 4")
        held = lab.submit("-J", "held", "--hold", script="true")
        follower = follow(look_back_margin_s=60)
        await follower.good()
        lab.ssh(f"scancel {held}")
        lab.until("both are purged", lambda: not lab.state(ran) and not lab.state(held), timeout=90)
        reading = await follower.good()
        assert ran not in reading.lines and held not in reading.lines
        first = follower.jobs[ran]
        assert (first.name, first.state, first.exit_code) == ("ran", JobState.FAILED, 4)
        assert follower.jobs[held].state is JobState.CANCELLED

        again = lab.submit("-J", "another", script="sleep 600")
        second = await follower.until_state(again, JobState.RUNNING)
    finally:
        lab.lab("set", "MinJobAge=65", "FirstJobId=1", "MaxJobId=67043328")
        lab.lab("restart", "slurmctld")
        lab.lab("up")

    assert again == ran, "the id goes round"
    assert (second.name, second.attempt) == ("another", 1)
    assert second.key != first.key
    told = [one for one in follower.ended[ran] if one.key == first.key]
    assert told and {one.exit_code for one in told} == {4}


async def test_a_job_that_is_in_neither_list_is_absent_and_nothing_more(
    slurm_lab: SlurmLab, follow: Callable[..., Follower]
) -> None:
    """POLL-4: it is for the rules to count how often."""
    follower = follow()
    job = slurm_lab.submit("-J", "other", script="sleep 600")
    await follower.until_state(job, JobState.RUNNING)
    ghost = follower.jobs[job]
    follower.jobs["999999"] = Observation(
        key=JobKey("alpha", "999999", "1795000000"),
        name="ghost",
        user=ghost.user,
        state=JobState.RUNNING,
        scheduler_state="RUNNING",
    )

    reading = await follower.good()

    assert reading.ends_read and "999999" not in reading.lines and "999999" not in follower.ended


# -- logs and cancel ---------------------------------------------------------------------------------------------------


async def test_a_log_that_was_moved_is_found_again_in_the_work_directory(
    slurm_lab: SlurmLab, follow: Callable[..., Follower]
) -> None:
    """FIND-2"""
    lab = slurm_lab
    job = lab.submit("-J", "mover", "-o", "plain.txt", script="echo one; sleep 600")
    follower = follow()
    await follower.until_state(job, JobState.RUNNING)
    lab.until("it wrote", lambda: "one" in lab.ssh("cat plain.txt 2>/dev/null || true"))
    lab.ssh(f"mv plain.txt rl_{job}.out")

    await follower.good()
    reading = await follower.good()

    assert reading.logs[job].path == f"{lab.home}/rl_{job}.out"
    assert reading.logs[job].state is LogState.READ


async def test_pieces_of_real_logs_come_by_offset(slurm_lab: SlurmLab, follow: Callable[..., Follower]) -> None:
    """FIND-3"""
    lab = slurm_lab
    lab.ssh("seq 1 50000 > big.log; : > empty.log")
    cluster = follow().cluster
    size = int(lab.ssh("stat -c %s big.log"))
    wanted = [
        LogWanted("1", f"{lab.home}/big.log", offset=0, limit=1000),
        LogWanted("2", f"{lab.home}/big.log", offset=10, limit=1000, tail=False),
        LogWanted("3", f"{lab.home}/empty.log", offset=0, limit=1000),
        LogWanted("4", f"{lab.home}/gone.log", offset=0, limit=1000),
    ]

    found = await cluster.read_logs(wanted, datetime.now(UTC))

    last, piece, empty, gone = (found[one.job_id, one.path] for one in wanted)
    assert isinstance(last, LogText) and last.data.endswith(b"49999\n50000\n")
    assert (last.offset, last.size, last.lines_skipped) == (size - 1000, size, 50000 - last.data.count(b"\n"))
    assert isinstance(piece, LogText) and piece.data.startswith(b"6\n7\n8\n")
    assert isinstance(empty, LogText) and (empty.data, empty.size) == (b"", 0)
    assert not isinstance(gone, LogText)


def leave(job: JobKey) -> Approval:
    return Approval(
        id=1,
        job=job,
        attempt=1,
        verdict_digest="",
        approved_by="alice",
        expires_at=datetime.now(UTC) + timedelta(hours=1),
    )


async def test_one_cancel_ends_exactly_that_attempt(slurm_lab: SlurmLab, follow: Callable[..., Follower]) -> None:
    """KILL-2: an attempt that is no longer the one that was approved is left alone."""
    follower = follow()
    job = slurm_lab.submit("-J", "doomed", script="sleep 600")
    seen = await follower.until_state(job, JobState.RUNNING)
    earlier = JobKey("alpha", job, str(int(seen.key.incarnation) - 1))

    spared = await follower.cluster.cancel(earlier, leave(earlier))
    assert spared.accepted is False
    assert slurm_lab.state(job) == "RUNNING"
    sent = await follower.cluster.cancel(seen.key, leave(seen.key))
    await follower.until_state(job, JobState.CANCELLED)
    again = await follower.cluster.cancel(seen.key, leave(seen.key))

    assert (sent.accepted, again.accepted) == (True, False)


async def test_cancelling_the_waiting_rest_of_an_array_spares_its_running_tasks(
    slurm_lab: SlurmLab, follow: Callable[..., Follower]
) -> None:
    follower = follow()
    array = slurm_lab.submit("-J", "sweep", "--array=0-9%1", script="sleep 600")
    await follower.until_state(f"{array}_0", JobState.RUNNING)
    rest = follower.jobs[array].key

    receipt = await follower.cluster.cancel(rest, leave(rest))
    await follower.until_state(array, JobState.CANCELLED)

    assert receipt.accepted is True
    assert slurm_lab.state(f"{array}_0") == "RUNNING"
    task = follower.jobs[f"{array}_0"].key
    assert (await follower.cluster.cancel(task, leave(task))).accepted is True


# -- outages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "part"),
    [("stop", "slurmctld"), ("pause", "slurmctld"), ("stop", "munge"), ("pause", "munge"), ("stop", "sshd")],
)
async def test_an_outage_gives_no_reading_and_the_next_good_one_finds_all_as_it_was(
    slurm_lab: SlurmLab, follow: Callable[..., Follower], how: str, part: str
) -> None:
    """POLL-1"""
    job = slurm_lab.submit("-J", "steady", script="sleep 600")
    follower = follow(**QUICK, connect_timeout_s=3, login_timeout_s=3)
    await follower.until_state(job, JobState.RUNNING)
    seen, lines = dict(follower.jobs), follower.lines

    with slurm_lab.broken(how, part):
        if part == "sshd":
            slurm_lab.lab("drop-ssh")
        reading = await follower.poll()
        assert isinstance(reading, Unreached), reading
    after = await follower.good()

    assert follower.jobs[job] == seen[job]
    assert after.lines[job] == lines[job]


async def test_without_accounting_the_queue_is_read_and_nothing_counts_as_absent(
    slurm_lab: SlurmLab, follow: Callable[..., Follower]
) -> None:
    """POLL-4, POLL-7: what ended meanwhile is found when accounting is back."""
    follower = follow(**QUICK)
    steady = slurm_lab.submit("-J", "steady", script="sleep 600")
    ending = slurm_lab.submit("-J", "ending", script="sleep 3; exit 7")
    await follower.until_state(steady, JobState.RUNNING)
    before = follower.ended_since

    for how, part in (("pause", "slurmdbd"), ("stop", "mariadb"), ("stop", "slurmdbd")):
        with slurm_lab.broken(how, part):
            reading = await follower.good()
            slurm_lab.until_state(ending, "FAILED")
            assert not reading.ends_read
            assert steady in reading.lines
            assert any("accounting could not be read" in problem for problem in reading.problems)
            assert follower.ended_since == before
    await follower.until("its end is told", lambda: ending in follower.ended)

    assert follower.ended[ending][-1].exit_code == 7


class Shimmed:
    """A login node whose ``squeue`` is another program, found first in the PATH."""

    def __init__(self, shell: Shell, folder: str) -> None:
        self._shell, self._folder = shell, folder

    @property
    def place(self) -> str:
        return f"{self._shell.place} (shimmed)"

    async def run(self, script: str, *, limit_s: float, limit_bytes: int = 64 * 2**20) -> Ran:
        shimmed = f"PATH={quoted(self._folder)}:$PATH\n{script}"
        return await self._shell.run(shimmed, limit_s=limit_s, limit_bytes=limit_bytes)

    async def close(self) -> None:
        await self._shell.close()


def shim(lab: SlurmLab, name: str, script: str) -> str:
    lab.ssh(f"mkdir -p {name}; printf '#!/bin/sh\\n%s\\n' {quoted(script)} > {name}/squeue; chmod +x {name}/squeue")
    return f"{lab.home}/{name}"


async def test_a_login_node_that_lies_is_found_out_by_the_other(
    slurm_lab: SlurmLab, follow: Callable[..., Follower]
) -> None:
    """POLL-2, POLL-3: one that prints nothing, and one that prints the titles and no job."""
    job = slurm_lab.submit("-J", "steady", script="sleep 600")
    mute = shim(slurm_lab, "mute", "exit 0")
    liar = shim(slurm_lab, "liar", '/usr/bin/squeue "$@" | head -n 1')
    both = follow(lambda settings: [Shimmed(settings.shells("alpha")[0], liar), *settings.shells("alpha")])
    await both.until_state(job, JobState.RUNNING)  # on the very first poll, with nothing remembered, as well
    slurm_lab.until("accounting knows that it runs", lambda: facts_of(slurm_lab, job)[0] == "RUNNING")
    both.cluster._first = 0

    reading = await both.good()

    assert job in reading.lines and both.jobs[job].state is JobState.RUNNING
    assert any("lists no job" in problem for problem in reading.problems)
    for folder, reason in ((liar, f"{job} RUNNING"), (mute, "not even its titles")):
        alone = follow(lambda settings, folder=folder: [Shimmed(settings.shells("alpha")[0], folder)])
        first = await alone.poll()
        alone.jobs, alone.lines = dict(both.jobs), both.lines
        later = await alone.poll()
        for doubt in (first, later):
            assert isinstance(doubt, Unreached) and reason in doubt.reason


async def test_a_quota_command_of_the_sites_own_is_read(slurm_lab: SlurmLab, follow: Callable[..., Follower]) -> None:
    """CLEAN-4"""
    pattern = r"^ *(?P<inodes_soft>\d+) +(?P<inodes_used>\d+)$"
    follower = follow(quota_command="df --output=itotal,iused / | tail -n 1", quota_pattern=pattern)

    reading = await follower.good()

    assert reading.headroom is not None and reading.problems == ()
    assert reading.headroom.inodes_used and reading.headroom.inodes_soft


async def test_a_squeue_that_prints_an_error_and_exits_0_is_no_empty_queue(
    slurm_lab: SlurmLab, follow: Callable[..., Follower]
) -> None:
    """POLL-2"""
    told = shim(slurm_lab, "told", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 0")
    printed = shim(slurm_lab, "printed", "echo 'slurm_load_jobs error: Unable to contact slurm controller'; exit 0")

    for folder in (told, printed):
        follower = follow(lambda settings, folder=folder: [Shimmed(settings.shells("alpha")[0], folder)])
        assert isinstance(await follower.poll(), Unreached)


async def test_a_login_node_without_slurm_is_told_by_check(
    slurm_lab: SlurmLab, follow: Callable[..., Follower]
) -> None:
    good = follow().cluster
    bare = follow(lambda settings: [Shimmed(settings.shells("alpha")[0], shim(slurm_lab, "bare", "exit 127"))]).cluster
    now = datetime.now(UTC)

    assert {one.result for one in await good.check(now)} == {"ok"}
    assert any(one.result == "fail" and "squeue" in one.text for one in await bare.check(now))


async def test_a_dropped_session_is_healed_by_the_next_poll(
    slurm_lab: SlurmLab, follow: Callable[..., Follower]
) -> None:
    follower = follow()
    await follower.good()
    slurm_lab.lab("drop-ssh")

    assert isinstance(await follower.poll(), Polled)


async def test_two_clusters_side_by_side_keep_their_jobs_apart(
    slurm_lab: SlurmLab, slurm_lab_b: SlurmLab, follow: Callable[..., Follower]
) -> None:
    """POLL-11: ids of different clusters collide all the time."""
    here = slurm_lab.submit("-J", "here", script="sleep 600")
    slurm_lab_b.submit("-J", "there", script="sleep 600")
    settings = slurm_lab_b.settings(first_look_back_s=0)
    other = Follower(SlurmCluster("beta", settings, settings.shells("beta")))
    first = follow()

    try:
        await first.good()
        await other.good()
        assert first.jobs[here].name == "here"
        assert "here" not in {one.name for one in other.jobs.values()}
        assert {one.key.cluster for one in other.jobs.values()} == {"beta"}
    finally:
        await other.cluster.close()
        slurm_lab_b.clear()


def test_the_lab_script_is_the_one_that_the_project_ships(slurm_lab: SlurmLab) -> None:
    assert Path(slurm_lab.facts["conf"]).is_file()
