"""What a poll makes of records and processes that are not as they were left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from supervisor.clusters.host import HostCluster
from supervisor.clusters.host_settings import HostSettings
from supervisor.clusters.host_text import Unusable, read_poll
from supervisor.clusters.shell import Ran
from supervisor.model.job import JobKey, JobState
from supervisor.model.logs import LogState
from supervisor.model.polling import Unreached, Watch
from tests.clusters.host.box import Box, Prefixed, Recorded, RunBy, until
from tests.clusters.shells.private_sshd import SSHD, PrivateSshd, new_key
from tests.contract.driving import approval_for

pytestmark = pytest.mark.lab


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[PrivateSshd]:
    if SSHD is None:
        pytest.skip("no sshd on this machine")
    (tmp_path / "sshd").mkdir()
    server = PrivateSshd(tmp_path / "sshd")
    yield server
    server.stop()


KNOWN_SHELLS = (
    ("dash", "-s"),
    ("bash", "--posix", "-s"),
    ("bash", "-s"),
    ("busybox", "sh", "-s"),
    ("ksh", "-s"),
    ("zsh", "--emulate", "sh", "-s"),
)
SHELLS = [list(argv) for argv in KNOWN_SHELLS if shutil.which(argv[0])]


@pytest.mark.parametrize("argv", SHELLS, ids=" ".join)
async def test_every_shell_that_is_called_sh_somewhere_gives_the_same_answer(box: Box, argv: list[str]) -> None:
    running, ended = box.launch("sleep", "600"), box.sh("exit 3")
    await box.ended(ended)

    reading = await box.good(shell=RunBy(argv))
    assert [seen.key.id for seen in reading.changed] == [running]
    assert [(seen.key.id, seen.exit_code) for seen in reading.ended] == [(ended, 3)]
    assert reading.logs[running].state is LogState.READ

    key = reading.changed[0].key
    receipt = await box.cluster(RunBy(argv)).cancel(key, approval_for(key))
    assert (receipt.accepted, receipt.output) == (True, "sent TERM")


async def test_the_number_of_commands_does_not_grow_with_the_number_of_processes(box: Box) -> None:
    """POLL-6."""
    for n in range(5):
        box.launch("sleep", "600", name=f"x{n}")
    shell = Recorded()

    assert len((await box.good(shell=shell)).lines) == 5
    assert len(shell.scripts) == 1


# -- an answer that is not whole ---------------------------------------------------------------------------------------


async def test_an_answer_cut_off_at_any_byte_is_no_answer(box: Box) -> None:
    """POLL-2."""
    box.launch("sleep", "600")
    await box.ended(box.sh("exit 3"))
    shell = Recorded()
    await box.good(shell=shell)
    answer = shell.answers[0].stdout
    nonce = answer.split(b" ", 1)[0].decode()
    assert read_poll(answer, nonce).live

    for cut in range(len(answer)):
        with pytest.raises(Unusable):
            read_poll(answer[:cut], nonce)


@pytest.mark.parametrize(("status", "keep"), [(None, True), (1, True), (0, False)])
async def test_a_whole_looking_answer_without_a_good_exit_status_is_no_answer(
    box: Box, status: int | None, keep: bool
) -> None:
    """POLL-2."""
    box.launch("sleep", "600")

    shell = Recorded(lambda ran: Ran(status, ran.stdout if keep else b"", b"complaint"))
    assert isinstance(await box.poll(shell=shell), Unreached)


async def test_what_a_login_shell_prints_first_does_no_harm(box: Box) -> None:
    job = box.launch("sleep", "600")

    reading = await box.good(shell=Prefixed(r"printf 'Welcome\r\n\rto \033[31mcluster-a\n{}\n'; echo complaint >&2"))

    assert job in reading.lines


async def test_a_record_that_cannot_be_read_keeps_its_process_listed_and_is_said(box: Box) -> None:
    """Doubt moves nothing."""
    job = box.launch("sleep", "600")
    record = box.live(job)
    try:
        (box.records / "live" / f"{job}.json").write_text('{"id": "1", "torn')

        reading = await box.good()

        assert job in reading.lines
        assert not reading.changed
        assert "the record of process 1 is unreadable" in reading.problems[0]
    finally:
        os.killpg(record["pid"], signal.SIGKILL)


# -- records folders that are not there --------------------------------------------------------------------------------


async def test_a_machine_where_nothing_was_ever_launched_is_a_good_empty_reading(box: Box) -> None:
    """POLL-2."""
    reading = await box.good()

    assert (reading.lines, reading.changed, reading.ended) == ({}, [], [])


async def test_a_folder_that_is_gone_while_processes_were_live_is_no_reading(box: Box) -> None:
    """POLL-2: the file system is not mounted."""
    job = box.launch("sleep", "600")
    key = (await box.one(job)).key
    box.records.rename(box.state / "away")

    reading = await box.poll(Watch(live={job: key}))

    (box.state / "away").rename(box.records)
    assert isinstance(reading, Unreached)
    assert "there is no folder" in reading.reason


@pytest.mark.parametrize("part", ["live", "ended", "logs", "cancels"])
async def test_a_folder_that_lacks_a_part_is_no_reading(box: Box, part: str) -> None:
    box.launch("true")
    shutil.rmtree(box.records / part)

    assert isinstance(await box.poll(), Unreached)


async def test_records_of_another_version_are_not_guessed_at(box: Box) -> None:
    box.launch("true")
    (box.records / "format").write_text("2\n")

    reading = await box.poll()

    assert isinstance(reading, Unreached)
    assert "format '2'" in reading.reason


async def test_a_record_that_was_deleted_is_absent_and_nothing_is_said_of_its_end(box: Box) -> None:
    """POLL-4: vanished is the rules' word, after good readings on which it is missing."""
    job = box.launch("sleep", "600")
    record, key = box.live(job), (await box.one(job)).key
    (box.records / "live" / f"{job}.json").unlink()
    try:
        reading = await box.good(Watch(live={job: key}))

        assert job not in reading.lines
        assert not reading.ended
    finally:
        os.killpg(record["pid"], signal.SIGKILL)


# -- processes that are not the ones ------------------------------------------------------------------------------------


async def test_a_stranger_with_the_same_process_id_is_not_the_job(box: Box) -> None:
    job = box.launch("sleep", "600")
    record = box.live(job)
    box.edit(job, start="1", waiter_start="1")
    try:
        seen = await box.one(job)
        receipt = await box.cluster().cancel(seen.key, approval_for(seen.key))

        assert (seen.state, seen.scheduler_state, seen.exit_code) == (JobState.FAILED, "lost", None)
        assert receipt.accepted is False
        os.kill(record["pid"], 0)
    finally:
        os.killpg(record["pid"], signal.SIGKILL)


@pytest.mark.parametrize(
    ("changes", "state", "word"),
    [
        ({"boot": "another"}, JobState.NODE_FAILED, "machine restarted"),
        ({"boot": "another", "host": "elsewhere"}, JobState.UNKNOWN, "elsewhere"),
        ({"machine": "another"}, JobState.UNKNOWN, "elsewhere"),
        ({"pid_namespace": "pid:[1]"}, JobState.UNKNOWN, "elsewhere"),
        ({"pid": None, "launched_at": 1}, JobState.FAILED, "not started"),
        ({"pid": None}, JobState.STARTING, "starting"),
        ({"pid": 2**22 + 1, "start": "1"}, JobState.COMPLETING, "ending"),
    ],
)
async def test_reboots_other_machines_and_launches_cut_off_are_told_apart(
    box: Box, changes: dict[str, object], state: JobState, word: str
) -> None:
    job = box.launch("sleep", "600")
    record = box.live(job)
    box.edit(job, **changes)
    try:
        seen = await box.one(job)
        receipt = await box.cluster().cancel(seen.key, approval_for(seen.key))

        assert (seen.state, seen.scheduler_state, seen.exit_code) == (state, word, None)
        assert receipt.accepted is False
        os.kill(record["pid"], 0)
    finally:
        os.killpg(record["pid"], signal.SIGKILL)


async def test_a_launch_cut_off_is_found_out_by_time_alone(box: Box) -> None:
    job = box.launch("sleep", "600")
    pid = box.live(job)["pid"]
    box.edit(job, pid=None)
    first = await box.good()
    box.edit(job, launched_at=1)
    lines = {job: (await box.good()).lines.get(job, first.lines[job])}

    reading = await box.good(Watch(lines=lines))

    os.killpg(pid, signal.SIGKILL)
    assert [seen.state for seen in reading.ended] == [JobState.FAILED]


async def test_a_stopped_process_is_suspended(box: Box) -> None:
    job = box.launch("sleep", "600")
    lines = (await box.good()).lines
    os.kill(box.live(job)["pid"], signal.SIGSTOP)

    assert (await box.one(job, Watch(lines=lines))).state is JobState.SUSPENDED


# -- credentials -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (timedelta(hours=30), None),
        (timedelta(hours=23), "ends at 2026-07-01T12:00:00Z, in less than 24 h"),
        (timedelta(hours=1), "ends at 2026-07-01T12:00:00Z, in less than 2 h"),
    ],
)
async def test_a_certificate_that_will_end_is_announced_with_each_reading(
    box: Box, sshd: PrivateSshd, left: timedelta, said: str | None
) -> None:
    """POLL-12."""
    box.launch("sleep", "600")
    authority, ends = new_key(sshd.folder / "authority"), datetime(2026, 7, 1, 12, tzinfo=UTC)
    sign = [
        "ssh-keygen",
        "-q",
        "-s",
        str(authority),
        "-I",
        "a",
        "-V",
        "20200101000000Z:20260701120000Z",
        f"{sshd.key}.pub",
    ]
    subprocess.run(sign, check=True)
    far = HostSettings.model_validate(sshd.settings().model_dump() | {"host": sshd.node, "records": str(box.records)})
    cluster = HostCluster("box", far, far.shell("box"))

    reading = await cluster.poll(Watch(), ends - left)
    await cluster.close()

    assert not isinstance(reading, Unreached)
    assert [said in problem for problem in reading.problems] == ([True] if said else [])  # type: ignore[operator]


# -- whose, and since when ---------------------------------------------------------------------------------------------


async def test_only_the_configured_users_processes_are_listed(box: Box) -> None:
    """POLL-8."""
    running, ended = box.launch("sleep", "600"), box.sh("exit 3")
    await box.ended(ended)
    user = box.live(running)["user"]

    nobody = await box.good(users=("somebody-else",))
    mine = await box.good(users=(user,))

    assert (nobody.lines, nobody.changed, nobody.ended) == ({}, [], [])
    assert list(mine.lines) == [running]
    assert [seen.key.id for seen in mine.ended] == [ended]


async def test_old_ends_are_listed_only_when_asked_for(box: Box) -> None:
    """POLL-7."""
    old, fresh = box.sh("exit 3"), box.sh("exit 4")
    keys = {job: (await box.ended(job)).key for job in (old, fresh)}
    (record,) = (box.records / "ended").glob(f"*-{old}.json")
    record.rename(record.with_name(f"{int(record.name.partition('-')[0]) - 40 * 86400}-{old}.json"))

    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    recent = await box.good(Watch(ended_since=hour_ago))
    asked = await box.good(Watch(ended_since=hour_ago, live={old: keys[old]}))
    slept = await box.good(Watch(ended_since=datetime.now(UTC) - timedelta(days=41)))

    assert [seen.key.id for seen in recent.ended] == [fresh]
    assert {seen.key.id for seen in asked.ended} == {old, fresh}
    assert {seen.key.id for seen in slept.ended} == {old, fresh}


async def test_times_are_corrected_by_a_clock_that_is_two_hours_ahead(box: Box) -> None:
    """POLL-10."""
    job = box.launch("sleep", "600")
    ahead = Prefixed("date() { echo $(($(command date +%s) + 7200)); }")

    reading = await box.good(shell=ahead)

    assert abs(reading.clock_offset - timedelta(hours=2)) < timedelta(seconds=2)
    started = reading.changed[0].started_at
    assert started is not None
    assert abs(started - (datetime.now(UTC) - timedelta(hours=2))) < timedelta(minutes=1)
    assert [line.result for line in await box.cluster(ahead).check(datetime.now(UTC)) if line.what == "clock"] == [
        "warn"
    ]
    assert job in reading.lines


async def test_a_clock_that_agrees_leaves_times_as_they_are(box: Box) -> None:
    assert (await box.good()).clock_offset == timedelta(0)


async def test_a_name_and_arguments_of_any_bytes_come_through_as_text(box: Box) -> None:
    job = box.launch("sh", "-c", "sleep 600", "\udcff\x1b[31m\n'\"", name="\udcfe|,\n\x1b]0;x\x07")

    seen = await box.one(job)

    assert seen.name == "\ufffd|,\n\x1b]0;x\x07"
    assert seen.details is not None
    assert "\ufffd" in (seen.details.command or "")
    seen.name.encode()


async def test_a_log_that_was_deleted_is_absent(box: Box) -> None:
    job = box.launch("sleep", "600")
    (box.records / "logs" / f"{job}.log").unlink()

    assert (await box.good()).logs[job].state is LogState.ABSENT


# -- cancel ------------------------------------------------------------------------------------------------------------


async def test_a_cancel_that_is_not_heeded_becomes_a_kill_after_the_grace_for_the_whole_group(box: Box) -> None:
    job = box.sh("trap '' TERM; sleep 601 & echo $!; while :; do sleep 0.05; done")
    log = box.records / "logs" / f"{job}.log"
    await until(log.read_text)
    child, key = int(log.read_text()), (await box.one(job)).key

    receipt = await box.cluster(cancel_grace_s=1).cancel(key, approval_for(key, 17))

    assert (receipt.accepted, receipt.output) == (True, "sent TERM; sent KILL")
    seen = await box.ended(job)
    assert (seen.state, seen.signal) == (JobState.CANCELLED, 9)
    assert seen.reason == "cancelled under approval 17, ended by signal 9"
    await until(lambda: not Path(f"/proc/{child}").exists() or _zombie(child))


async def test_a_command_that_tidies_up_and_exits_well_when_cancelled_is_cancelled(box: Box) -> None:
    job = box.sh("trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    await until((box.records / "logs" / f"{job}.log").read_text)
    key = (await box.one(job)).key

    await box.cluster().cancel(key, approval_for(key))

    seen = await box.ended(job)
    assert (seen.state, seen.exit_code) == (JobState.CANCELLED, 0)


async def test_a_mark_of_a_cancel_for_another_process_of_that_number_means_nothing(box: Box) -> None:
    job = box.sh("sleep 1; exit 3")
    (box.records / "cancels" / job).write_text(f"{'0' * 32} 1 1\n")

    assert (await box.ended(job)).state is JobState.FAILED


@pytest.mark.parametrize(("job", "incarnation"), [("1; touch x", "0" * 32), ("1", "$(touch x)"), ("../1", "0" * 32)])
async def test_a_key_that_no_record_can_have_reaches_no_shell(box: Box, job: str, incarnation: str) -> None:
    shell, key = Recorded(), JobKey("box", job, incarnation)

    receipt = await box.cluster(shell).cancel(key, approval_for(key))

    assert receipt.accepted is False
    assert not shell.scripts


async def test_a_cancel_whose_answer_was_lost_does_not_say_that_nothing_happened(box: Box) -> None:
    """KILL-6."""
    job = box.launch("sleep", "600")
    key = (await box.one(job)).key

    receipt = await box.cluster(Recorded(lambda _: Ran(None, b"", b""))).cancel(key, approval_for(key))

    assert receipt.accepted is None


async def test_records_under_the_home_folder_are_found(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    job = box.launch("sleep", "600")
    monkeypatch.setenv("HOME", str(box.state.parent))

    assert job in (await box.good(records="~/state/host")).lines


async def test_without_settings_the_place_is_where_launch_without_a_config_writes(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = box.launch("sleep", "600")
    target = box.state / "fleet-supervisor"
    target.mkdir()
    (target / "host").symlink_to(box.records)
    monkeypatch.setenv("XDG_STATE_HOME", str(box.state))
    box.records, records = target / "host", box.records

    cluster = box.cluster()
    cluster._records = None
    reading = await cluster.poll(Watch(), datetime.now(UTC))

    box.records = records
    assert not isinstance(reading, Unreached)
    assert job in reading.lines


def _zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
