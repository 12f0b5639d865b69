"""What every transport does with a script, shown on this machine's own shell."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.clusters.local import LocalShell
from supervisor.clusters.shell import STDERR_LIMIT, quoted, whole
from supervisor.model.errors import TookTooLong

SHELL = LocalShell("box")


async def test_a_script_s_words_and_its_exit_status_come_back_apart() -> None:
    ran = await SHELL.run("echo out; echo err >&2; exit 3", limit_s=20)

    assert (ran.exit_status, ran.stdout, ran.stderr, ran.truncated) == (3, b"out\n", b"err\n", False)


async def test_a_script_that_dies_by_a_signal_did_not_succeed() -> None:
    """POLL-1."""
    assert (await SHELL.run("kill -9 $$", limit_s=20)).exit_status == 128 + 9


@settings(max_examples=80, deadline=None)
@given(cut=st.integers(0, len(whole("touch marker; kill -0 1")) - len("} </dev/null\n")))
def test_a_script_that_arrives_cut_off_at_any_byte_runs_not_at_all(cut: int) -> None:
    """A shell runs what it reads as it comes, and half a command can be a worse one."""
    with tempfile.TemporaryDirectory() as folder:
        arrived = whole("touch marker; kill -0 1")[:cut]
        subprocess.run(["sh", "-s"], input=arrived, cwd=folder, capture_output=True, check=False)

        assert not (Path(folder) / "marker").exists()


def test_a_script_that_arrives_whole_runs(tmp_path: Path) -> None:
    subprocess.run(["sh", "-s"], input=whole("touch marker"), cwd=tmp_path, check=True)

    assert (tmp_path / "marker").exists()


async def test_a_command_cannot_eat_the_rest_of_the_script_from_its_standard_input() -> None:
    assert (await SHELL.run("cat\necho still here", limit_s=20)).stdout == b"still here\n"


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_quoted_value_is_one_word_that_means_itself(value: str) -> None:
    ran = subprocess.run(
        ["sh", "-s"], input=whole(f"printf '%s' {quoted(value)}"), capture_output=True, check=True, env=dict(os.environ)
    )

    assert ran.stdout == value.encode()


def test_a_value_with_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quoted("a\0b")


async def test_output_beyond_the_limit_ends_the_script_and_is_never_a_success() -> None:
    ran = await SHELL.run("yes", limit_s=20, limit_bytes=100_000)

    assert (len(ran.stdout), ran.truncated, ran.exit_status) == (100_000, True, None)


async def test_output_of_exactly_the_limit_is_whole() -> None:
    ran = await SHELL.run("printf 12345", limit_s=20, limit_bytes=5)

    assert (ran.stdout, ran.truncated, ran.exit_status) == (b"12345", False, 0)


async def test_a_flood_of_complaints_is_cut_and_spoils_nothing() -> None:
    ran = await SHELL.run("head -c 1000000 /dev/zero >&2; echo done", limit_s=20)

    assert (ran.stdout, len(ran.stderr), ran.exit_status) == (b"done\n", STDERR_LIMIT, 0)


async def test_a_script_that_hangs_ends_at_its_limit_with_all_that_it_started(tmp_path: Path) -> None:
    """POLL-6."""
    started = time.monotonic()

    with pytest.raises(TookTooLong, match=r"box: .* within 0\.5 s"):
        await SHELL.run(f"sleep 60 & echo $! > {quoted(str(tmp_path / 'pid'))}; trap '' TERM; wait", limit_s=0.5)

    assert time.monotonic() - started < 10
    assert _gone(int((tmp_path / "pid").read_text()))


async def test_a_cancelled_run_leaves_nothing_behind(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    run = asyncio.create_task(SHELL.run(f"echo $$ > {quoted(str(pid_file))}; exec sleep 60", limit_s=60))
    while not pid_file.exists() or not pid_file.read_text():
        await asyncio.sleep(0.01)

    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert _gone(int(pid_file.read_text()))


def _gone(pid: int) -> bool:
    for _ in range(200):
        stat = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False, text=True).stdout
        if not stat.strip() or stat.strip().startswith("Z"):
            return True
        time.sleep(0.02)
    return False
