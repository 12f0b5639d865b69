"""What a deep probe may rely on, of every kind of cluster: evidence or a failure, a job that is none the worse, and what remains."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from supervisor.model.errors import ClusterError
from supervisor.model.job import NO_DETAILS, JobKey, JobState, Observation
from supervisor.model.logs import LogWanted
from supervisor.model.probe import Captured, CaptureWanted, Remains, Role
from tests.contract.driving import Watcher, approval_for
from tests.contract.test_backends import PRINTS, SILENT, log_of, running

pytestmark = pytest.mark.lab

LIVE = (Role.DEVICES, Role.PROCESSES, Role.STACK, Role.GPU)


async def known(watcher: Watcher, name: str, script: str) -> Observation:
    """A running job with its details."""
    job = await running(watcher, name, script)
    await watcher.until("its log is known", lambda: watcher.listed[job].details is not None)
    return watcher.listed[job]


async def until_said(watcher: Watcher, seen: Observation, words: bytes) -> bytes:
    """The job's log, once it holds these words: what a job prints takes its time to where logs are kept."""
    path = log_of(watcher, seen.key.id)
    end = time.monotonic() + watcher.driver.patience_s
    while time.monotonic() < end:
        answers = await watcher.driver.cluster.read_logs([LogWanted(seen.key.id, path, 0, 2**16)], datetime.now(UTC))
        text: bytes = getattr(answers[seen.key.id, path], "data", b"")
        if words in text:
            return text
        await asyncio.sleep(0.2)
    raise AssertionError(f"{words!r} was not to be read of {path}: {answers}")


async def captured(watcher: Watcher, seen: Observation, **changes: object) -> Sequence[Captured]:
    wanted = CaptureWanted(seen=seen, details=seen.details or NO_DETAILS)
    return await watcher.driver.cluster.capture(replace(wanted, **changes), datetime.now(UTC))  # type: ignore[arg-type]


async def remains(watcher: Watcher, seen: Observation) -> Remains:
    return await watcher.driver.cluster.remains(seen, datetime.now(UTC))


def of(pieces: Sequence[Captured], role: Role) -> list[Captured]:
    return [piece for piece in pieces if piece.role is role]


async def test_the_evidence_of_a_running_job_is_its_record_its_log_and_what_its_processes_do(watcher: Watcher) -> None:
    """PROBE-1, PROBE-2: what could not be had is there too, with what was put out instead."""
    seen = await known(watcher, "rl-waits", f"echo step 17; {SILENT} & wait")
    await until_said(watcher, seen, b"step 17")

    pieces = await captured(watcher, seen)

    assert all(piece.command for piece in pieces)
    (record,) = of(pieces, Role.RECORD)
    assert record.data is not None, record
    assert re.search(rb"(?i)running|alive", record.data)
    log = of(pieces, Role.LOG)[0]
    assert log.data is not None, log
    assert b"step 17" in log.data
    for piece in of(pieces, Role.PROCESSES):
        assert piece.data is not None, piece
        assert piece.node
        first, second = piece.data.decode().split("# sample 2 at ")
        assert first.startswith("# sample 1 at ")
        for sample in (first, second):
            assert sample.splitlines()[1] == "PID PPID PGID STAT NLWP CPUTIMES ETIMES RSS WCHAN COMMAND"
            assert any("sleep 600" in line for line in sample.splitlines())
    (stack,) = of(pieces, Role.STACK)
    assert stack.data is not None, stack
    assert re.search(rb"(?m)^# process [0-9]+ \S", stack.data)
    assert re.search(rb"(?m)^# by (py-spy dump|gdb|/proc)$", stack.data)
    (devices,) = of(pieces, Role.DEVICES)
    assert re.search(rb"(?m)^# [0-9]+ accelerator devices$", devices.data or b"")
    for piece in of(pieces, Role.GPU):
        assert piece.data or piece.failure


async def test_no_environment_stands_in_the_evidence(watcher: Watcher) -> None:
    """A job's environment holds its keys."""
    seen = await known(watcher, "rl-secret", f"HF_TOKEN=hf_$(echo neverShown); export HF_TOKEN; {SILENT} & wait")
    await asyncio.sleep(1)

    pieces = await captured(watcher, seen)

    assert of(pieces, Role.PROCESSES)[0].data
    assert not [piece for piece in pieces if b"hf_neverShown" in (piece.data or b"") + (piece.failure or "").encode()]


async def test_a_job_is_none_the_worse_for_being_looked_at(watcher: Watcher) -> None:
    """PROBE-14: it goes on in the same attempt, printing, and ends as it would have."""
    counts = "n=0; while [ $n -lt 100 ]; do n=$((n+1)); echo line $n; sleep 0.1; done"
    seen = await known(watcher, "sft-counts", counts)

    await captured(watcher, seen)

    ended = await watcher.until_ended(seen.key.id)
    assert (ended.state, ended.key) == (JobState.COMPLETED, seen.key)
    text = await until_said(watcher, seen, b"line 100\n")
    assert text == b"".join(b"line %d\n" % n for n in range(1, 101))


async def test_of_a_job_that_has_ended_the_live_parts_are_failures_with_a_reason(watcher: Watcher) -> None:
    """PROBE-3: that there is nothing to see is not the same as having seen nothing."""
    seen = await known(watcher, "sft-ends", "echo step 17; sleep 3")
    await watcher.until_ended(seen.key.id)

    pieces = await captured(watcher, seen)

    for role in LIVE:
        assert of(pieces, role)
        assert all(piece.data is None and piece.failure for piece in of(pieces, role)), of(pieces, role)
    assert not [p for p in await captured(watcher, seen, live=False) if p.role in LIVE]


async def test_another_job_of_the_same_number_is_never_taken_for_the_one_that_is_probed(watcher: Watcher) -> None:
    """POLL-11, KILL-2."""
    seen = await known(watcher, "rl-other", PRINTS)
    earlier = replace(seen, key=JobKey(seen.key.cluster, seen.key.id, _another(seen.key.incarnation)))

    try:
        pieces = await captured(watcher, earlier)
    except ClusterError:
        pieces = ()
    left = await remains(watcher, earlier)

    assert not [piece for piece in pieces if piece.role in (Role.RECORD, *LIVE) and piece.data is not None]
    assert not left.there


async def test_what_remains_of_a_job_is_told_while_it_runs_and_is_nothing_after_its_end(watcher: Watcher) -> None:
    """KILL-3."""
    seen = await known(watcher, "rl-condemned", f"{SILENT} & wait")
    while_it_runs = await remains(watcher, seen)
    assert while_it_runs.there, while_it_runs
    assert not while_it_runs.gone

    await watcher.driver.cluster.cancel(seen.key, approval_for(seen.key))
    await watcher.until_ended(seen.key.id)

    end = time.monotonic() + watcher.driver.patience_s
    while not (after := await remains(watcher, seen)).gone and time.monotonic() < end:
        await asyncio.sleep(0.2)
    assert after == Remains()


async def test_where_nothing_can_be_asked_nothing_is_evidence_and_nothing_is_gone(watcher: Watcher) -> None:
    """PROBE-3, KILL-3."""
    seen = await known(watcher, "rl-silent", SILENT)

    with watcher.driver.cut():
        try:
            pieces = await captured(watcher, seen, time_s=30.0)
        except ClusterError as error:
            assert error.text
        else:
            assert not [piece for piece in pieces if piece.data is not None]
        left = await remains(watcher, seen)

    assert left.failure
    assert not left.gone


def _another(incarnation: str) -> str:
    """Same shape, other value."""
    return incarnation[:-1] + ("1" if incarnation[-1] != "1" else "2")
