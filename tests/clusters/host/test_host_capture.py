"""Evidence of one launched process, and what is left of it: by its record, its session, and the mark of its launch."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from supervisor.clusters.shell import Ran
from supervisor.model.errors import ClusterError
from supervisor.model.job import NO_DETAILS, JobKey, Observation
from supervisor.model.probe import Captured, CaptureWanted, Remains, Role
from tests.clusters.host.box import Box, Recorded, RunBy, until

KNOWN_SHELLS = (("dash", "-s"), ("bash", "--posix", "-s"), ("bash", "-s"), ("busybox", "sh", "-s"), ("ksh", "-s"))
SHELLS = [list(argv) for argv in KNOWN_SHELLS if shutil.which(argv[0])]
LIVE = (Role.DEVICES, Role.PROCESSES, Role.STACK, Role.MEMORY, Role.GPU, Role.GPU_PROCESSES, Role.SESSION_LOG)
NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)


async def capture(box: Box, seen: Observation, **changes: object) -> Sequence[Captured]:
    wanted = CaptureWanted(seen=seen, details=seen.details or NO_DETAILS)
    return await box.cluster().capture(replace(wanted, **changes), NOW)  # type: ignore[arg-type]


async def remains(box: Box, seen: Observation) -> Remains:
    return await box.cluster().remains(seen, NOW)


def why_not_live(pieces: Sequence[Captured]) -> set[str | None]:
    found = [piece for piece in pieces if piece.role in LIVE]
    assert {piece.role for piece in found} == set(LIVE)
    assert all(piece.data is None for piece in found)
    return {piece.failure for piece in found}


@pytest.mark.parametrize("argv", SHELLS, ids=" ".join)
async def test_every_shell_that_is_called_sh_somewhere_tells_the_same_of_what_remains(
    box: Box, argv: list[str]
) -> None:
    """KILL-3."""
    job = box.sh("sleep 600 & sleep 600")
    seen = await box.one(job)
    await until(lambda: len(_session(box, job)) == 3)

    left = await box.cluster(RunBy(argv)).remains(seen, NOW)

    assert sorted(each.split()[3] for each in left.there) == ["sh", "sleep", "sleep"]


def _session(box: Box, job: str) -> list[str]:
    pid = str(box.live(job)["pid"])
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == pid:
            found.append(stat.parent.name)
    return found


async def test_a_process_that_left_the_session_is_told_after_the_rest_was_killed(box: Box) -> None:
    """KILL-3: a cancel that left something behind is not confirmed."""
    job = box.sh("setsid sleep 601 & wait; sleep 600")
    seen = await box.one(job)
    pid = box.live(job)["pid"]
    await until(lambda: "601" in _commands())
    os.killpg(pid, signal.SIGKILL)
    await box.ended(job)

    left = await remains(box, seen)

    assert len(left.there) == 1
    assert left.there[0].endswith(" sleep")
    os.kill(int(left.there[0].split()[1]), signal.SIGKILL)
    await until(lambda: "601" not in _commands())
    assert (await remains(box, seen)).gone


def _commands() -> str:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(each for each in found if each.startswith("sleep"))


async def test_a_number_that_another_process_has_now_is_not_the_job(box: Box) -> None:
    """KILL-3, POLL-11."""
    job = box.sh("sleep 600")
    seen = await box.one(job)
    box.edit(job, start="1")

    assert await remains(box, seen) == Remains()
    (why,) = why_not_live(await capture(box, seen))
    assert "another process's now" in (why or "")


@pytest.mark.parametrize(
    ("changes", "gone", "why"),
    [
        ({"boot": "another"}, True, "the machine was restarted since it was launched"),
        ({"machine": "another"}, False, "on another machine or in another container"),
        ({"pid_namespace": "another"}, False, "on another machine or in another container"),
    ],
)
async def test_a_launch_of_another_time_or_place_is_not_looked_for_here(
    box: Box, changes: dict[str, str], gone: bool, why: str
) -> None:
    """KILL-3: of a process elsewhere nothing is known."""
    job = box.sh("sleep 600")
    seen = await box.one(job)
    box.edit(job, **changes)

    left = await remains(box, seen)

    assert left.gone is gone
    assert bool(left.failure) is not gone
    (said,) = why_not_live(await capture(box, seen))
    assert why in (said or "")


async def test_a_launch_that_has_no_record_any_more_is_not_gone_but_unknown(box: Box) -> None:
    """KILL-3."""
    job = box.sh("sleep 600")
    seen = await box.one(job)
    other = replace(seen, key=JobKey("box", job, "0" * 32))

    assert (await remains(box, other)).failure == f"there is no record of process {job} any more"
    pieces = await capture(box, other)
    assert all(piece.data is None for piece in pieces if piece.role in (Role.RECORD, Role.SCRIPT))
    why_not_live(pieces)


async def test_the_record_tells_the_state_of_its_process_in_its_last_line(box: Box) -> None:
    """PROBE-2: the state line of a plain host."""
    job = box.sh("sleep 600")
    seen = await box.one(job)
    record = next(piece for piece in await capture(box, seen, live=False) if piece.role is Role.RECORD)
    assert (
        (record.data or b"").splitlines()[-1].startswith(f"# process: leader {box.live(job)['pid']} alive, ".encode())
    )

    os.killpg(box.live(job)["pid"], signal.SIGKILL)
    await box.ended(job)

    record = next(piece for piece in await capture(box, seen, live=False) if piece.role is Role.RECORD)
    assert (record.source or "").startswith("ended/")
    assert (record.data or b"").splitlines()[-1].endswith(b" gone, 0 of its group and session live")


async def test_a_command_is_shown_as_one_could_type_it(box: Box) -> None:
    job = box.launch("sh", "-c", "sleep 600 # it's")
    script = next(p for p in await capture(box, await box.one(job), live=False) if p.role is Role.SCRIPT)

    assert script.data == b"sh -c 'sleep 600 # it'\"'\"'s'\n"


async def test_checkpoints_outlive_the_process(box: Box, tmp_path: Path) -> None:
    job = box.sh("exit 3")
    seen = await box.ended(job)
    (tmp_path / "ckpt" / "checkpoint-10").mkdir(parents=True)

    pieces = await capture(box, seen, live=False, checkpoint_dirs=(str(tmp_path / "ckpt"),))

    (listed,) = [piece for piece in pieces if piece.role is Role.CHECKPOINTS]
    assert b" directory checkpoint-10\n" in (listed.data or b"")
    assert not [piece for piece in pieces if piece.role in LIVE]


def _cut(ran: Ran) -> Ran:
    return Ran(0, ran.stdout[:-20], ran.stderr)


def _dropped(ran: Ran) -> Ran:
    return Ran(None, ran.stdout, ran.stderr)


def _refused(ran: Ran) -> Ran:
    return Ran(1, b"", b"This account is currently not available.")


@pytest.mark.parametrize("change", [_cut, _dropped, _refused])
async def test_an_answer_that_is_not_whole_is_an_error_and_nothing_is_gone(
    box: Box, change: Callable[[Ran], Ran]
) -> None:
    """POLL-1, KILL-3."""
    job = box.sh("sleep 600")
    seen = await box.one(job)
    cluster = box.cluster(Recorded(change))

    left = await cluster.remains(seen, NOW)

    assert left.failure
    assert not left.gone
    with pytest.raises(ClusterError):
        await cluster.capture(CaptureWanted(seen=seen, details=NO_DETAILS), NOW)


async def test_time_that_is_up_is_a_failure_of_each_part(box: Box) -> None:
    """PROBE-14."""
    job = box.sh("sleep 600")
    await asyncio.sleep(0.1)

    (why,) = why_not_live(await capture(box, await box.one(job), time_s=5.0))

    assert why == "no time was left of the 5 s that all captures have together"
