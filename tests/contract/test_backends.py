"""One set of sentences over every kind of cluster, each on something real."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from supervisor.model.errors import NotApproved
from supervisor.model.job import JobKey, JobState
from supervisor.model.logs import LogState, LogText, LogUnread, LogWanted
from supervisor.model.polling import Polled, Unreached
from tests.contract.driving import Driver, Watcher, approval_for

pytestmark = pytest.mark.lab

PRINTS = "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.1; done"
SILENT = "sleep 600"
COUNTS = (
    "n=0; while [ $n -lt 200 ]; do n=$((n+1)); echo line $n of 200; [ $((n % 20)) -ne 0 ] || sleep 0.2; done; sleep 600"
)
COUNTED = "".join(f"line {n} of 200\n" for n in range(1, 201)).encode()


async def running(watcher: Watcher, name: str, script: str) -> str:
    job = watcher.driver.start(name, script)
    await watcher.until(f"{job} runs", lambda: job in watcher.listed and watcher.listed[job].state is JobState.RUNNING)
    return job


def log_of(watcher: Watcher, job: str) -> str:
    details = watcher.listed[job].details
    assert details is not None
    assert details.log_path is not None
    return details.log_path


# -- what a poll says --------------------------------------------------------------------------------------------------


async def test_a_running_job_is_seen_with_its_name_and_its_start(watcher: Watcher) -> None:
    job = await running(watcher, "rl-prints", PRINTS)
    seen = watcher.listed[job]

    assert (seen.key.cluster, seen.key.id, seen.name) == (watcher.driver.cluster.name, job, "rl-prints")
    assert seen.started_at is not None
    assert abs(datetime.now(UTC) - seen.started_at) < timedelta(minutes=2)
    assert seen.ended_at is None
    assert seen.user


async def test_a_job_that_ends_well_is_reported_completed(watcher: Watcher) -> None:
    job = await running(watcher, "sft-ends", "echo done; sleep 3")

    ended = await watcher.until_ended(job)

    assert (ended.state, ended.signal) == (JobState.COMPLETED, None)
    assert ended.exit_code in (0, None)
    assert ended.key == watcher.listed[job].key
    assert ended.ended_at is not None
    assert ended.ended_at >= ended.started_at if ended.started_at else True
    assert job not in watcher.lines or watcher.listed[job].state.ended


async def test_a_job_that_fails_is_reported_failed_with_its_exit_status(watcher: Watcher) -> None:
    """FAIL-1."""
    job = await running(watcher, "sft-fails", "sleep 3; exit 3")

    ended = await watcher.until_ended(job)

    assert (ended.state, ended.exit_code, ended.signal) == (JobState.FAILED, 3, None)


async def test_a_job_that_came_and_went_between_two_polls_is_reported(watcher: Watcher) -> None:
    """POLL-7."""
    await watcher.good()

    job = watcher.driver.start("sft-short", "exit 3")

    assert (await watcher.until_ended(job)).state is JobState.FAILED


async def test_a_silent_job_runs_all_the_same(watcher: Watcher) -> None:
    """LIVE-1: what it says and whether it is there are two questions."""
    job = await running(watcher, "rl-silent", SILENT)
    await watcher.until("its log is known", lambda: watcher.listed[job].details is not None)

    reading = await watcher.good()

    assert job in reading.lines
    log = reading.logs.get(job)
    assert log is None or (log.size, log.reason) == (0, None) or log.state is not LogState.READ


async def test_the_log_of_a_running_job_tells_when_it_last_spoke(watcher: Watcher) -> None:
    """LIVE-1."""
    job = await running(watcher, "rl-prints", PRINTS)
    await watcher.until("its log is known", lambda: watcher.listed[job].details is not None)
    sizes: list[int] = []
    end = time.monotonic() + watcher.driver.patience_s

    while len(sizes) < 2 and time.monotonic() < end:
        log = (await watcher.good()).logs[job]
        assert log.state is LogState.READ, log
        if log.size > (sizes[-1] if sizes else 0):
            assert log.modified_at is not None
            assert abs(datetime.now(UTC) - log.modified_at) < timedelta(seconds=60)
            sizes.append(log.size)
        await asyncio.sleep(0.5)

    assert len(sizes) == 2, "it prints ten lines a second, and is not seen to"


async def test_a_job_of_which_nothing_new_is_known_is_not_told_again(watcher: Watcher) -> None:
    """POLL-6: an unchanged job costs no more than the comparison."""
    job = await running(watcher, "rl-silent", SILENT)
    await watcher.good()

    reading = await watcher.good()

    assert job in reading.lines
    assert job not in [seen.key.id for seen in reading.changed]


async def test_two_jobs_of_one_name_are_two_jobs(watcher: Watcher) -> None:
    """POLL-11."""
    first = await running(watcher, "rl-twin", SILENT)
    second = await running(watcher, "rl-twin", SILENT)

    assert first != second
    assert watcher.listed[first].key != watcher.listed[second].key


@pytest.mark.parametrize(
    "name", ["a|b;c", 'it\'s "quoted" $(touch x) `y`', "tab\tand\x1b[31mred", "ünïcode ✓", "-n", "%s%n\\n"]
)
async def test_a_name_is_data_whatever_it_holds(watcher: Watcher, name: str) -> None:
    if not watcher.driver.any_name:
        pytest.skip("the scheduler itself allows no such names")

    job = await running(watcher, name, SILENT)

    assert watcher.listed[job].name == name


# -- when nothing can be known -----------------------------------------------------------------------------------------


async def test_a_cluster_out_of_reach_is_no_reading_and_comes_back_with_its_jobs(watcher: Watcher) -> None:
    """POLL-1: not seen is not the same as not there."""
    job = await running(watcher, "rl-silent", SILENT)

    with watcher.driver.cut():
        reading = await watcher.poll()
        assert isinstance(reading, Unreached), reading
        assert reading.cluster == watcher.driver.cluster.name
        assert reading.reason

    back = await watcher.good()
    assert job in back.lines
    assert back.lines[job] == watcher.lines[job]


async def test_a_hanging_cluster_costs_its_deadline_and_no_more(watcher: Watcher) -> None:
    """POLL-6."""
    job = await running(watcher, "rl-silent", SILENT)

    with watcher.driver.frozen():
        started = time.monotonic()
        reading = await watcher.poll()
        took = time.monotonic() - started

    assert isinstance(reading, Unreached), reading
    assert took < watcher.driver.deadline_s + 3
    await watcher.until("it is back", lambda: job in watcher.lines)


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03, 0.1])
async def test_a_poll_cut_off_at_any_moment_never_loses_a_job(watcher: Watcher, after_s: float) -> None:
    """POLL-2: half an answer is none."""
    jobs = {await running(watcher, f"rl-{n}", SILENT) for n in range(2)}

    poll = asyncio.create_task(watcher.poll())
    await asyncio.sleep(after_s)
    with watcher.driver.cut():
        reading = await poll

    if isinstance(reading, Polled):
        assert jobs <= reading.lines.keys()
        assert not {seen.key.id for seen in reading.ended} & jobs
    await watcher.until("both are still there", lambda: jobs <= watcher.lines.keys())


async def test_check_says_what_works_and_what_does_not(watcher: Watcher) -> None:
    job = watcher.driver.start("rl-silent", SILENT)
    assert job
    good = await watcher.driver.cluster.check(datetime.now(UTC))
    assert good
    assert {line.result for line in good} <= {"ok", "warn"}, good

    with watcher.driver.cut():
        bad = await watcher.driver.cluster.check(datetime.now(UTC))
    assert {line.result for line in bad} & {"fail", "warn"}, bad


# -- logs --------------------------------------------------------------------------------------------------------------


async def test_a_log_read_piece_by_piece_has_no_gap_and_no_repeat(watcher: Watcher) -> None:
    """FIND-3."""
    job = await running(watcher, "rl-counts", COUNTS)
    await watcher.until("its log is known", lambda: watcher.listed[job].details is not None)
    path, text, bookmark = log_of(watcher, job), b"", None
    end = time.monotonic() + watcher.driver.patience_s

    while len(text) < len(COUNTED) and time.monotonic() < end:
        wanted = LogWanted(job, path, len(text), 333, tail=False, bookmark=bookmark)
        piece = (await watcher.driver.cluster.read_logs([wanted], datetime.now(UTC)))[job, path]
        if isinstance(piece, LogUnread):
            await asyncio.sleep(0.2)
            continue
        assert (piece.offset, piece.lines_skipped) == (len(text), 0)
        assert len(piece.data) <= 333
        text, bookmark = text + piece.data, piece.bookmark or bookmark
        if not piece.data:
            await asyncio.sleep(0.1)

    assert text == COUNTED


async def test_the_newest_part_of_a_long_log_knows_how_many_lines_lie_before_it(watcher: Watcher) -> None:
    """FIND-3."""
    job = await running(watcher, "rl-counts", COUNTS)
    await watcher.until("its log is known", lambda: watcher.listed[job].details is not None)
    path = log_of(watcher, job)
    piece: object = None
    end = time.monotonic() + watcher.driver.patience_s

    while time.monotonic() < end:
        answers = await watcher.driver.cluster.read_logs([LogWanted(job, path, 0, 100)], datetime.now(UTC))
        piece = answers[job, path]
        if isinstance(piece, LogText) and piece.size == len(COUNTED):
            break
        await asyncio.sleep(0.2)

    assert isinstance(piece, LogText), piece
    assert piece.data == COUNTED[piece.offset :][:100]
    assert piece.offset + len(piece.data) == len(COUNTED)
    assert piece.lines_skipped in (COUNTED[: piece.offset].count(b"\n"), None)


async def test_a_log_that_cannot_be_read_is_never_an_empty_log(watcher: Watcher) -> None:
    """FIND-4."""
    job = await running(watcher, "rl-prints", PRINTS)
    await watcher.until("its log is known", lambda: watcher.listed[job].details is not None)
    path = log_of(watcher, job)
    wanted = [LogWanted(job, path, 0, 1000), LogWanted(job, f"{path}-nowhere", 0, 1000)]

    answers = await watcher.driver.cluster.read_logs(wanted, datetime.now(UTC))
    assert isinstance(answers[job, f"{path}-nowhere"], LogUnread)

    with watcher.driver.cut():
        answers = await watcher.driver.cluster.read_logs(wanted, datetime.now(UTC))
    assert all(isinstance(answers[job, piece.path], LogUnread) for piece in wanted), answers


# -- cancel ------------------------------------------------------------------------------------------------------------


async def test_an_approved_cancel_ends_that_job_and_no_other(watcher: Watcher) -> None:
    """KILL-1."""
    job = await running(watcher, "rl-condemned", SILENT)
    other = await running(watcher, "rl-bystander", SILENT)
    key = watcher.listed[job].key

    receipt = await watcher.driver.cluster.cancel(key, approval_for(key))

    assert receipt.accepted is True, receipt
    assert (await watcher.until_ended(job)).state is JobState.CANCELLED
    await watcher.good()
    assert other in watcher.lines
    assert other not in watcher.ended


async def test_an_approval_for_another_job_cancels_nothing(watcher: Watcher) -> None:
    """KILL-1."""
    job = await running(watcher, "rl-condemned", SILENT)
    other = await running(watcher, "rl-bystander", SILENT)

    with pytest.raises(NotApproved):
        await watcher.driver.cluster.cancel(watcher.listed[other].key, approval_for(watcher.listed[job].key))

    await watcher.good()
    assert {job, other} <= watcher.lines.keys()


async def test_a_cancel_meant_for_an_earlier_job_of_the_same_number_cancels_nothing(watcher: Watcher) -> None:
    """KILL-2, POLL-11: schedulers reuse ids, and a person approved the other one."""
    job = await running(watcher, "rl-bystander", SILENT)
    real = watcher.listed[job].key
    earlier = JobKey(real.cluster, real.id, _another(real.incarnation))

    receipt = await watcher.driver.cluster.cancel(earlier, approval_for(earlier))

    assert receipt.accepted is False, receipt
    await watcher.good()
    assert job in watcher.lines


async def test_a_cancel_without_a_connection_does_not_claim_to_know(watcher: Watcher) -> None:
    """KILL-6."""
    job = await running(watcher, "rl-condemned", SILENT)
    key = watcher.listed[job].key

    with watcher.driver.cut():
        try:
            receipt = await watcher.driver.cluster.cancel(key, approval_for(key))
        except Exception as error:  # which one is the backend's; that it claims no success is the point
            assert error.args
        else:
            assert receipt.accepted is not True

    await watcher.until("it runs", lambda: job in watcher.lines)


def _another(incarnation: str) -> str:
    """Same shape, other value."""
    first = incarnation[:-1]
    return first + ("1" if incarnation[-1] != "1" else "2")


def test_every_backend_is_the_port(driver: Driver) -> None:
    from supervisor.model.ports import Cluster

    assert isinstance(driver.cluster, Cluster)
