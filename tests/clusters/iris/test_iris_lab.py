"""A real controller with its workers: jobs that end, fail, retry, bounce, are cancelled, and come again under their name."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from supervisor.clusters.iris import IrisCluster
from supervisor.clusters.iris_settings import IrisSettings
from supervisor.model.errors import NotApproved
from supervisor.model.facts import Facts, Seen
from supervisor.model.job import Burn, JobKey, JobState, TaskCounts
from supervisor.model.lifecycle import Sign
from supervisor.model.logs import LogState, LogText, LogUnread, LogWanted
from supervisor.model.polling import Polled, Unreached, Watch
from supervisor.model.ports import Approval
from supervisor.rules.signs import read_sign
from tests.clusters.iris.conftest import Eyes, MakeEyes
from tests.iris_lab import IrisLab, own_iris_lab
from tests.some import LIMITS, some_held

pytestmark = pytest.mark.lab

FOREVER = "while :; do sleep 1; done"


def approval_for(job: JobKey) -> Approval:
    return Approval(
        id=7,
        job=job,
        attempt=1,
        verdict_digest="sha256:0",
        approved_by="alice",
        expires_at=datetime.now(UTC) + timedelta(hours=1),
    )


# -- how jobs go -------------------------------------------------------------------------------------------------------


async def test_ends_are_told_with_the_exit_codes_of_tasks(iris_lab: IrisLab, eyes: Eyes) -> None:
    """FAIL-1."""
    scripts = {"ok": "true", "three": "echo oh; exit 3", "killed": "kill -9 $$"}
    for name, script in scripts.items():
        iris_lab.submit(f"/{eyes.user}/{name}", script)
    for name in scripts:
        iris_lab.until_state(f"/{eyes.user}/{name}", "succeeded", "failed")

    ends = {one.name: (one.state, one.exit_code, one.signal) for one in (await eyes.poll()).ended}

    assert ends == {
        "ok": (JobState.COMPLETED, 0, None),
        "three": (JobState.FAILED, 3, None),
        "killed": (JobState.FAILED, None, 9),
    }
    assert (await eyes.poll()).lines == {}


async def test_a_retried_job_is_one_job_in_its_next_attempt(iris_lab: IrisLab, eyes: Eyes) -> None:
    path = f"/{eyes.user}/flaky"
    script = f"case $IRIS_TASK_ID in *:2) {FOREVER};; esac; exit 7"
    iris_lab.submit(path, script, "--max-retries", "2")
    iris_lab.until("two failures", lambda: iris_lab.rpc("GetJobStatus", jobId=path)["job"]["failureCount"] == 2)
    iris_lab.until_counts(path, running=1)

    seen = await eyes.see("flaky")
    earlier = await eyes.earlier("flaky")

    assert (seen.state, seen.attempt, seen.burn, seen.exit_code) == (JobState.RUNNING, 3, Burn(2, 2), None)
    assert [(one.attempt, one.state, one.exit_code) for one in earlier] == [
        (1, JobState.FAILED, 7),
        (2, JobState.FAILED, 7),
    ]
    assert {one.key for one in earlier} == {seen.key}


async def test_a_preempted_gang_waits_whole_and_runs_again_as_its_next_attempt(iris_lab: IrisLab, eyes: Eyes) -> None:
    """POLL-5: the controller calls it running all the while; nothing of it is dead."""
    path = f"/{eyes.user}/gang"
    iris_lab.submit(path, FOREVER, "--replicas", "2", "--gpus", "8", "--gang")
    iris_lab.until_counts(path, running=2)
    first = await eyes.see("gang")
    assert (first.state, first.attempt, first.tasks) == (JobState.RUNNING, 1, TaskCounts(2, running=2))
    assert len(first.nodes) == 2

    with iris_lab.stopped("worker-0", "kill"):
        iris_lab.until_counts(path, pending=2)
        assert iris_lab.state(path) == "running"
        waits = await eyes.see("gang")
        assert (waits.state, waits.attempt, waits.key) == (JobState.PENDING, 1, first.key)
        assert waits.tasks == TaskCounts(2, running=0, pending=2)
        assert waits.reason is not None
        assert re.match(
            r"2 of 2 tasks wait to run again; attempt 1 of task [01] ended as worker_failed: ", waits.reason
        )
        assert eyes.id("gang") in (await eyes.poll()).lines

    iris_lab.until_counts(path, running=2)
    again = await eyes.see("gang")
    earlier = await eyes.earlier("gang")
    assert (again.state, again.attempt, again.key, again.reason) == (JobState.RUNNING, 2, first.key, None)
    assert again.preemptions == Burn(1, 100)
    assert [(one.attempt, one.state) for one in earlier] == [(1, JobState.NODE_FAILED)]


async def test_a_bounced_gangs_earlier_attempt_was_preempted(iris_lab: IrisLab, eyes: Eyes) -> None:
    path = f"/{eyes.user}/bounced"
    iris_lab.submit(path, FOREVER, "--replicas", "2", "--gpus", "8", "--gang")
    iris_lab.until_counts(path, running=2)
    iris_lab.lab("preempt", f"{path}/1")
    iris_lab.until("it runs again", lambda: iris_lab.rpc("GetJobStatus", jobId=path)["job"]["preemptionCount"] == 1)
    iris_lab.until_counts(path, running=2)

    seen, earlier = await eyes.see("bounced"), await eyes.earlier("bounced")

    assert (seen.attempt, seen.state, seen.burn) == (2, JobState.RUNNING, Burn(0, 0))
    assert [(one.attempt, one.state) for one in earlier] == [(1, JobState.PREEMPTED)]


async def test_where_the_first_task_is_done_the_next_that_runs_is_listened_to(iris_lab: IrisLab, eyes: Eyes) -> None:
    """LIVE-1: a task that has ended is silent, and its job is not."""
    path = f"/{eyes.user}/many"
    script = f"case $IRIS_TASK_ID in */0:*) exit 0;; esac; echo hello; {FOREVER}"
    iris_lab.submit(path, script, "--replicas", "3")
    iris_lab.until_counts(path, succeeded=1, running=2)

    seen = await eyes.see("many")

    assert log_of(seen) == f"iris:{path}/1?since={seen.key.incarnation}"
    assert await whole_log(eyes, eyes.id("many"), log_of(seen), b"hello\n") == b"hello\n"
    watch = replace(eyes.watch, logs={eyes.id("many"): log_of(seen)})
    again = await eyes.cluster.poll(watch, now())
    assert isinstance(again, Polled), again
    assert not again.changed
    assert again.logs[eyes.id("many")].path == log_of(seen)
    assert seen.tasks == TaskCounts(3, running=2, ended=1)
    assert seen.started_at is not None


async def test_what_does_not_fit_waits_with_a_reason(iris_lab: IrisLab, eyes: Eyes) -> None:
    """LIVE-7."""
    iris_lab.submit(f"/{eyes.user}/big", "true", "--gpus", "16")
    iris_lab.until(
        "its scheduler has spoken",
        lambda: iris_lab.rpc("GetJobStatus", jobId=f"/{eyes.user}/big")["job"].get("pendingReason"),
    )

    seen = await eyes.see("big")

    assert (seen.state, seen.started_at) == (JobState.PENDING, None)
    assert seen.reason


async def test_two_roles_see_the_same_jobs(iris_lab: IrisLab, eyes_of: MakeEyes, tmp_path: Path) -> None:
    """Only an admin may query; everybody else asks for each job by itself, and less often."""
    token = tmp_path / "token"
    token.write_text(iris_lab.token("user") + "\n")
    admin, user = eyes_of(), eyes_of(token_file=token)
    for name in ("a", "b"):
        iris_lab.submit(f"/{admin.user}/{name}", "exit 3")
        iris_lab.until_state(f"/{admin.user}/{name}", "failed")

    ends = [{one.name: one for one in (await eyes.poll()).ended} for eyes in (admin, user)]
    assert [{name: (one.exit_code, one.burn) for name, one in each.items()} for each in ends] == [
        {"a": (3, Burn(1, 0)), "b": (3, Burn(1, 0))}
    ] * 2

    bounded = eyes_of(token_file=token, detail_looks=1)
    first = await bounded.poll()
    assert sorted((one.exit_code or 0) for one in first.ended) == [0, 3]
    assert [line for line in first.problems if "1 jobs are still to be asked for" in line]
    assert {one.exit_code for one in (await bounded.poll()).ended} >= {3}


# -- names used again --------------------------------------------------------------------------------------------------


async def test_a_name_used_again_is_another_job_with_another_log(iris_lab: IrisLab, eyes: Eyes) -> None:
    """POLL-11: the log service keeps the lines of both under one name."""
    path, job = f"/{eyes.user}/again", eyes.id("again")
    iris_lab.submit(path, "echo first")
    iris_lab.until_state(path, "succeeded")
    first = await eyes.see("again", ended=True)
    assert await whole_log(eyes, job, log_of(first), b"first\n") == b"first\n"
    iris_lab.submit(path, f"echo second; {FOREVER}")
    iris_lab.until_counts(path, running=1)

    second = await eyes.see("again")

    assert first.key.id == second.key.id
    assert first.key != second.key
    assert (second.attempt, second.state) == (1, JobState.RUNNING)
    assert await whole_log(eyes, job, log_of(second), b"second\n") == b"second\n"
    assert await whole_log(eyes, job, log_of(first), b"first\n") == b"first\n"
    receipt = await eyes.cluster.cancel(first.key, approval_for(first.key))
    assert receipt.accepted is False
    assert "another job bears the name" in receipt.output


def log_of(seen: object) -> str:
    details = getattr(seen, "details", None)
    assert details is not None
    assert details.log_path is not None
    return str(details.log_path)


async def whole_log(eyes: Eyes, job: str, path: str, expected: bytes) -> bytes:
    """All that a log holds, waited for: lines are there about a second after they were printed."""
    piece: object = None
    for _ in range(100):
        piece = (await eyes.cluster.read_logs([LogWanted(job, path, 0, 10**6)], now()))[job, path]
        assert isinstance(piece, LogText), piece
        if len(piece.data) >= len(expected):
            return piece.data
        await asyncio.sleep(0.1)
    raise AssertionError(piece)


def now() -> datetime:
    return datetime.now(UTC)


# -- cancel ------------------------------------------------------------------------------------------------------------


async def test_an_approved_cancel_ends_the_job_and_what_runs_below_it(iris_lab: IrisLab, eyes: Eyes) -> None:
    """KILL-1."""
    path = f"/{eyes.user}/condemned"
    iris_lab.submit(path, FOREVER)
    iris_lab.until_counts(path, running=1)
    key = (await eyes.see("condemned")).key

    with pytest.raises(NotApproved):
        await eyes.cluster.cancel(key, approval_for(JobKey(key.cluster, key.id, "1")))
    receipt = await eyes.cluster.cancel(key, approval_for(key))

    assert receipt.accepted is True, receipt
    iris_lab.until_state(path, "killed")
    seen = await eyes.see("condemned", ended=True)
    assert (seen.state, seen.reason, seen.key) == (JobState.CANCELLED, "Terminated by user", key)
    again = await eyes.cluster.cancel(key, approval_for(key))
    assert (again.accepted, "has ended already" in again.output) == (False, True)


# -- trouble -----------------------------------------------------------------------------------------------------------


async def test_a_controller_that_is_down_hangs_or_restarts_changes_no_job(iris_lab: IrisLab, eyes_of: MakeEyes) -> None:
    """POLL-1."""
    eyes = eyes_of(request_timeout_s=1, poll_timeout_s=2)
    path = f"/{eyes.user}/run"
    iris_lab.submit(path, FOREVER)
    iris_lab.until_counts(path, running=1)
    before = await eyes.poll()
    assert eyes.id("run") in before.lines

    with iris_lab.paused():
        hanging = await eyes.look()
    assert isinstance(hanging, Unreached), hanging
    assert "did not answer within" in hanging.reason

    with iris_lab.stopped():
        away = await eyes.look()
    assert isinstance(away, Unreached), away
    assert "connection refused" in away.reason

    after = await eyes.poll()
    assert after.lines == before.lines
    assert not after.ended


async def test_a_log_server_that_is_down_is_no_silence(iris_lab: IrisLab, eyes: Eyes) -> None:
    """FIND-4: jobs are read all the same, and their logs are unread."""
    path, job = f"/{eyes.user}/talks", eyes.id("talks")
    iris_lab.submit(path, "n=0; while :; do n=$((n+1)); echo $n; sleep 0.2; done")
    iris_lab.until_counts(path, running=1)
    seen = await eyes.see("talks")
    await whole_log(eyes, job, log_of(seen), b"1\n")

    with iris_lab.stopped("logs", "kill"):
        reading = await eyes.poll()
        pieces = await eyes.cluster.read_logs([LogWanted(job, log_of(seen), 0, 1000)], now())

    assert job in reading.lines
    assert reading.logs[job].state is LogState.UNREAD
    assert any("logs unread" in line for line in reading.problems)
    assert isinstance(pieces[job, log_of(seen)], LogUnread)


async def test_credentials_that_are_refused_are_said_and_a_new_token_is_taken_up(
    iris_lab: IrisLab, eyes_of: MakeEyes, tmp_path: Path
) -> None:
    """POLL-12."""
    token = tmp_path / "token"
    token.write_text("not.a.token")
    eyes = eyes_of(token_file=token)

    refused = await eyes.look()
    assert isinstance(refused, Unreached), refused
    assert "401" in refused.reason
    assert refused.hint == "renew the token in token_file"
    assert "not.a.token" not in f"{refused}"

    token.write_text(iris_lab.token("user"))
    assert (await eyes.poll()).lines == {}

    token.unlink()
    missing = await eyes.look()
    assert isinstance(missing, Unreached), missing
    assert "token_file" in missing.reason


async def test_a_right_that_the_token_lacks_is_named(iris_lab: IrisLab, eyes_of: MakeEyes, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(iris_lab.token("dashboard"))
    eyes = eyes_of(token_file=token)
    path = f"/{eyes.user}/run"
    iris_lab.submit(path, FOREVER)
    iris_lab.until_counts(path, running=1)
    other = eyes_of()
    key = (await other.see("run")).key

    receipt = await eyes.cluster.cancel(key, approval_for(key))
    checks = {line.what: line for line in await eyes.cluster.check(now())}

    assert receipt.accepted is False
    assert "403" in receipt.output
    assert iris_lab.state(path) == "running"
    assert "role dashboard" in checks["credentials"].text


async def test_a_job_whose_record_is_gone_is_not_listed_and_one_that_stays_is(iris_lab: IrisLab, eyes: Eyes) -> None:
    """POLL-5: the controller's own word that it has no such job."""
    path = f"/{eyes.user}/stays"
    iris_lab.submit(path, FOREVER)
    iris_lab.until_counts(path, running=1)
    stays = (await eyes.see("stays")).key
    gone = JobKey("marin", eyes.id("gone"), "1")

    reading = await eyes.cluster.poll(Watch(live={stays.id: stays, gone.id: gone}), now())
    assert isinstance(reading, Polled), reading
    assert (set(reading.lines), reading.ends_read, reading.ended) == ({stays.id}, True, [])

    nobody = Eyes(eyes.cluster, eyes.user)
    iris_lab.rpc("TerminateJob", jobId=path)
    iris_lab.until_state(path, "killed")
    reading = await nobody.cluster.poll(Watch(live={gone.id: gone}), now())
    assert isinstance(reading, Polled), reading
    assert reading.lines == {}


async def test_a_record_that_was_pruned_after_it_was_seen_is_gone_for_good() -> None:
    """POLL-5: first the list is empty, then the controller says ``not_found``; then the rules may call it vanished."""
    with own_iris_lab("--retention", "2", "--workers", "1") as lab:
        eyes = Eyes(IrisCluster("marin", IrisSettings(url=lab.url, users=("alice",))), "alice")
        lab.submit("/alice/short", "sleep 2")
        lab.until_counts("/alice/short", running=1)
        seen = await eyes.see("short")
        assert eyes.live == {"alice/short": seen.key}
        lab.until("it is pruned", lambda: not lab.rpc("GetJobState", jobIds=["/alice/short"]))
        eyes.watch = Watch(live=eyes.live, ended_since=now())

        reading = await eyes.poll()

        assert (reading.lines, reading.ended, reading.ends_read) == ({}, [], True)
        held = some_held(key=seen.key, observation=seen)
        facts = Facts(held=held, seen=Seen.ABSENT, limits=LIMITS, observation=seen, absences=3)
        assert read_sign(facts, now()).sign is Sign.VANISHED


async def test_children_are_seen_under_their_root(iris_lab: IrisLab, eyes: Eyes) -> None:
    path = f"/{eyes.user}/parent"
    iris_lab.submit(path, FOREVER)
    iris_lab.until_counts(path, running=1)
    child = {
        "name": f"{path}/child",
        "entrypoint": {"runCommand": {"argv": ["sh", "-c", FOREVER]}},
        "resources": {"cpuMillicores": 100, "memoryBytes": str(2**30)},
        "environment": {},
        "replicas": 2,
    }
    iris_lab.rpc("LaunchJob", **child)
    iris_lab.until_counts(f"{path}/child", running=2)

    reading = await eyes.poll()

    assert set(reading.lines) == {eyes.id("parent")}
    (seen,) = reading.changed
    assert (seen.tasks, seen.state) == (TaskCounts(3, running=3), JobState.RUNNING)
    assert seen.nodes


async def test_check_says_who_we_are_and_what_answers(iris_lab: IrisLab, eyes: Eyes) -> None:
    iris_lab.submit(f"/{eyes.user}/run", "true")

    checks = {line.what: (line.result, line.text) for line in await eyes.cluster.check(now())}

    assert checks["reach"] == ("ok", f"{iris_lab.url} answers, an iris controller")
    assert checks["credentials"][0] == "ok"
    assert "role admin" in checks["credentials"][1]
    assert checks[f"jobs of {eyes.user}"] == ("ok", "1 listed, children and ended ones included")
    assert checks["logs"][0] == "ok"
