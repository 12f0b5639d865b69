"""The small process that stays: nothing of how a command ended is lost or made up."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from supervisor.clusters import waiter
from supervisor.model.job import JobState
from tests.clusters.host.box import Box, until

pytestmark = pytest.mark.lab


async def test_an_exit_status_is_kept(box: Box) -> None:
    seen = await box.ended(box.sh("exit 3"))

    assert (seen.state, seen.exit_code, seen.signal, seen.scheduler_state) == (JobState.FAILED, 3, None, "exited")


async def test_a_death_by_signal_is_a_failure_with_that_signal_and_nothing_is_guessed(box: Box) -> None:
    """SIGKILL may be the kernel's for want of memory; nothing here says so."""
    seen = await box.ended(box.sh("kill -9 $$"))

    assert (seen.state, seen.exit_code, seen.signal) == (JobState.FAILED, None, 9)


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_signals_meant_for_a_whole_session_do_not_take_the_exit_status_along(
    box: Box, which: signal.Signals
) -> None:
    go = box.state / "go"
    job = box.sh(f"while [ ! -e '{go}' ]; do sleep 0.05; done; exit 5")
    os.kill(box.live(job)["waiter"], which)
    go.touch()

    assert (await box.ended(job)).exit_code == 5


async def test_a_command_whose_waiter_was_killed_runs_on_and_its_end_is_never_called_good(box: Box) -> None:
    job = box.sh("while [ -e /proc ] || :; do sleep 0.05; done")
    os.kill(box.live(job)["waiter"], signal.SIGKILL)

    async def said(word: str) -> bool:
        return (await box.one(job)).scheduler_state == word

    seen = await box.one(job)
    assert (seen.state, seen.reason) == (JobState.RUNNING, "its waiter is gone, so its exit status will not be known")

    os.killpg(box.live(job)["pid"], signal.SIGKILL)
    for _ in range(500):
        if await said("lost"):
            break
    lost = await box.one(job)
    assert (lost.state, lost.exit_code, lost.signal, lost.ended_at) == (JobState.FAILED, None, None, None)
    assert "no exit status was recorded" in (lost.reason or "")


async def test_an_end_is_written_down_as_soon_as_the_disk_is_back(box: Box) -> None:
    job = box.sh("sleep 0.5; exit 4")
    (box.records / "ended").rename(box.state / "away")
    await until(lambda: not _alive(box.live(job)["pid"]))

    (box.state / "away").rename(box.records / "ended")

    assert (await box.ended(job)).exit_code == 4


def test_a_command_whose_process_id_cannot_be_written_down_never_starts(tmp_path: Path) -> None:
    """No process runs that no record knows."""
    box = Box(tmp_path / "state")
    box.launch("true")
    record = {
        "id": "7",
        "incarnation": uuid.uuid4().hex,
        "command": ["touch", str(tmp_path / "marker")],
        "cwd": str(tmp_path),
        "log": str(box.records / "logs" / "7.log"),
        **waiter.here(),
    }
    path = box.records / "live" / "7.json"
    path.write_text(waiter.as_text(record))
    hear, report = os.pipe()
    full_disk = (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1])

    process = subprocess.Popen(
        [sys.executable, "-I", "-S", waiter.__file__, str(path), str(report)],
        pass_fds=(report,),
        start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, full_disk),  # noqa: PLW1509 - no threads here
    )
    os.close(report)
    with os.fdopen(hear, "rb") as answer:
        assert answer.read().startswith(b"failed")

    assert process.wait() != 0
    assert not (tmp_path / "marker").exists()


def test_a_record_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "record"
    waiter.write_whole(path, "old\n")
    waiter.write_whole(path, "new\n")

    assert path.read_text() == "new\n"
    assert [file.name for file in tmp_path.iterdir()] == ["record"]


def test_the_start_of_a_process_tells_it_from_another_and_a_missing_one_has_none() -> None:
    mine = waiter.start_of(os.getpid())

    assert mine == waiter.start_of(os.getpid()) != ""
    assert waiter.start_of(2**22 + 1) == ""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
