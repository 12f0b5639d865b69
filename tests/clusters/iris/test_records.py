"""What a controller's records mean, read from real answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.clusters.iris_ends import cause_of
from supervisor.clusters.iris_jobs import Folded, JobRead, fingerprint, fold, id_of, read_job
from supervisor.clusters.iris_rows import configs_of_rows, tasks_of_rows, tasks_query
from supervisor.clusters.iris_text import (
    JobAnswer,
    JobsPage,
    JobStatus,
    LogsAnswer,
    Moment,
    NotAnAnswer,
    QueryAnswer,
    States,
    TasksAnswer,
    config_of,
    decode,
    friendly,
    tasks_of,
)
from supervisor.model.facts import Facts, Seen
from supervisor.model.job import Burn, JobState, TaskCounts
from supervisor.model.lifecycle import Sign
from supervisor.rules.signs import read_sign
from tests.some import LIMITS, NOON, some_held

Answers = Callable[[str], bytes]
ANSWERS = Path(__file__).with_name("answers")


def folded(answer: Answers, name: str, tasks: str | None = None) -> Folded:
    told = decode(answer(f"job-{name}"), JobAnswer)
    job = Folded(told.job, config=config_of(told))
    job.tasks = tasks_of(told.job.job_id, decode(answer(tasks or f"tasks-{name}"), TasksAnswer))
    return job


def read(answer: Answers, name: str, tasks: str | None = None) -> JobRead:
    return read_job("marin", folded(answer, name, tasks))


# -- ends --------------------------------------------------------------------------------------------------------------


def test_a_job_that_ended_well_has_exit_code_0(answer: Answers) -> None:
    seen = read(answer, "succeeded").observation

    assert (seen.state, seen.exit_code, seen.signal) == (JobState.COMPLETED, 0, None)
    assert str(seen.key.ref) == "marin/alice/ok"
    assert (seen.name, seen.user) == ("ok", "alice")


def test_the_exit_code_is_the_tasks_and_never_the_jobs_default_of_0(answer: Answers) -> None:
    """FAIL-1: JobStatus.exitCode is 0 of every job."""
    assert decode(answer("job-failed-exit3"), JobAnswer).job.word == "failed"

    seen = read(answer, "failed-exit3").observation

    assert (seen.state, seen.exit_code, seen.signal) == (JobState.FAILED, 3, None)
    assert seen.reason is not None
    assert seen.reason.startswith(
        "Exit code: 3 (Cumulative failed task attempts exceeded max_task_failures: failures=1"
    )


def test_a_signal_is_a_negative_exit_code(answer: Answers) -> None:
    seen = read(answer, "failed-sigkill").observation

    assert (seen.state, seen.exit_code, seen.signal) == (JobState.FAILED, None, 9)


def test_a_container_killed_for_memory_is_told_from_a_plain_137(answer: Answers) -> None:
    job = folded(answer, "failed-exit3")
    told = decode(
        answer("k8s-task-oomkilled").replace(b'{"task": ', b'{"tasks": [').replace(b'}, "jobRes', b'}], "jobRes'),
        TasksAnswer,
    )
    job.tasks = tasks_of("/alice/kone", told)
    seen = read_job("marin", job).observation

    assert (seen.state, seen.exit_code, seen.signal) == (JobState.OUT_OF_MEMORY, 137, 9)

    (task,) = job.tasks
    plain = replace(task.attempts[0], error="Exit code: 137", terminal_reason="Error")
    job.tasks = (replace(task, attempts=(plain,)),)
    assert read_job("marin", job).observation.state is JobState.FAILED


def test_a_job_whose_time_was_up_timed_out_without_an_exit_code(answer: Answers) -> None:
    seen = read(answer, "failed-timeout").observation

    assert (seen.state, seen.exit_code, seen.time_limit) == (JobState.TIMED_OUT, None, timedelta(seconds=2))
    assert seen.attempt == 2


def test_a_users_cancel_is_a_cancel(answer: Answers) -> None:
    seen = read(answer, "killed-by-user").observation

    assert (seen.state, seen.exit_code) == (JobState.CANCELLED, None)
    assert seen.reason == "Terminated by user"


def test_a_job_that_found_no_place_in_time_failed_without_having_run(answer: Answers) -> None:
    seen = read(answer, "unschedulable").observation

    assert (seen.state, seen.scheduler_state, seen.started_at) == (JobState.FAILED, "unschedulable", None)


def test_the_failed_task_of_several_is_named_and_its_log_is_read_too(answer: Answers) -> None:
    """FIND-7: siblings that were killed with it explain nothing."""
    seen = read(answer, "failed-one-of-three").observation

    assert (seen.state, seen.exit_code) == (JobState.FAILED, 5)
    assert seen.details is not None
    assert seen.reason is not None
    assert seen.reason.startswith("task 1: Exit code: 5 (Cumulative failed")
    assert seen.details.log_path == f"iris:/bob/many/0?since={seen.key.incarnation}"
    assert seen.details.err_path == f"iris:/bob/many/1?since={seen.key.incarnation}"


# -- attempts and budgets ----------------------------------------------------------------------------------------------


def test_the_third_attempt_runs_and_an_earlier_attempts_error_is_not_its_own(answer: Answers) -> None:
    """A running task's ``error`` and ``exitCode`` may be those of the attempt before."""
    assert b'"error": "Exit code: 7"' in answer("tasks-running-third-attempt")

    seen = read(answer, "running-third-attempt").observation

    assert (seen.state, seen.attempt, seen.exit_code, seen.reason) == (JobState.RUNNING, 3, None, None)
    assert seen.burn == Burn(2, 2)


def test_budgets_of_failures_and_preemptions_are_told_apart(answer: Answers) -> None:
    assert read(answer, "failed-retries-burnt").observation.burn == Burn(3, 2)

    seen = read(answer, "running-gang-after-preemption").observation
    assert (seen.burn, seen.preemptions) == (Burn(0, 1), Burn(1, 100))


def test_a_cancel_is_no_preemption(answer: Answers) -> None:
    """The controller's own count takes it for one of each task that ran."""
    job = folded(answer, "killed-by-user")
    assert job.root.preemption_count > 0

    assert read_job("marin", job).observation.preemptions in (None, Burn(0, 100))


def test_a_gang_that_runs_again_after_a_preemption_is_in_its_second_attempt(answer: Answers) -> None:
    seen = read(answer, "running-gang-after-preemption").observation

    assert (seen.state, seen.attempt, seen.reason) == (JobState.RUNNING, 2, None)
    assert seen.tasks == TaskCounts(2, running=2)


def test_a_gang_whose_tasks_all_wait_again_goes_back_to_bring_up(answer: Answers) -> None:
    """POLL-5: the controller's word is ``running``, and nothing runs; it waits, and is not dead."""
    job = folded(answer, "running-job-pending-tasks")
    assert job.root.word == "running"

    seen = read_job("marin", job).observation

    assert seen.state is JobState.PENDING
    assert seen.tasks == TaskCounts(2, running=0, pending=2)
    assert seen.reason is not None
    assert "2 of 2 tasks wait to run again" in seen.reason
    assert "attempt 2 of task 0 ended as worker_failed" in seen.reason
    held = some_held(key=seen.key, observation=seen)
    facts = Facts(held=held, seen=Seen.LISTED, limits=LIMITS, observation=seen)
    assert read_sign(facts, NOON).sign is Sign.WAITING


@pytest.mark.parametrize("main", [0, 1])
def test_attempts_before_the_current_one_are_told_with_what_caused_their_end(answer: Answers, main: int) -> None:
    """A gang's bounced sibling is explained by the task that was preempted, or lost its worker."""
    job = folded(answer, "killed-by-user")
    both = [
        task
        for number in (main, 1 - main)
        for task in tasks_of("/bob/gang", decode(_as_list(answer(f"task-killed-by-user-{number}")), TasksAnswer))
    ]
    assert {one.state for one in both[main].attempts} == {"preempted", "worker_failed", "killed"}
    job.tasks = tuple(both)

    past = read_job("marin", job).past

    assert [(one.attempt, one.state, one.final) for one in past] == [
        (1, JobState.PREEMPTED, False),
        (2, JobState.NODE_FAILED, False),
    ]


def _as_list(one: bytes) -> bytes:
    task = msgspec.json.decode(one)["task"]
    return msgspec.json.encode({"tasks": [task]})


def test_a_gated_gang_starts_with_the_backends_verdict(answer: Answers) -> None:
    """LIVE-6: the job is ``running`` for its controller, while no container exists."""
    seen = read(answer, "running-gang", "k8s-tasks-building-unschedulable").observation
    assert seen.state is JobState.RUNNING

    job = folded(answer, "running-gang", "k8s-tasks-building-unschedulable")
    job.root = msgspec.structs.replace(job.root, task_state_counts={"building": 2})
    seen = read_job("marin", job).observation

    assert seen.state is JobState.PENDING
    assert seen.reason is not None
    assert seen.reason.startswith("2 of 2 tasks: Unschedulable: 0/2 nodes are available")
    assert seen.started_at is None


def test_a_pending_job_says_what_it_waits_for(answer: Answers) -> None:
    seen = read(answer, "pending").observation

    assert (seen.state, seen.started_at) == (JobState.PENDING, None)
    assert seen.reason


def test_a_word_of_a_later_version_moves_nothing(answer: Answers) -> None:
    job = folded(answer, "running-gang")
    job.root = msgspec.structs.replace(job.root, state="JOB_STATE_DREAMING")

    assert read_job("marin", job).observation.state is JobState.UNKNOWN


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (9, "assigned"),
        ("TASK_STATE_COSCHED_FAILED", "cosched_failed"),
        ("10", "preempted"),
        (99, "state 99"),
        ("TASK_STATE_PREEMPTED", "preempted"),
    ],
)
def test_states_of_both_generations_are_known_by_number_and_by_name(state: str | int, word: str) -> None:
    assert friendly(state, "TASK_STATE_") == word


# -- identity, children, whose jobs ------------------------------------------------------------------------------------


def test_a_name_used_again_is_another_job(answer: Answers) -> None:
    """POLL-11: the controller counts attempts from 0 again."""
    first, again = read(answer, "succeeded").observation, read(answer, "name-used-again").observation

    assert first.key.id == again.key.id
    assert first.key != again.key
    assert first.details is not None
    assert again.details is not None
    assert first.details.log_path != again.details.log_path


def status(path: str, word: str = "RUNNING", **fields: object) -> JobStatus:
    return JobStatus(path, f"JOB_STATE_{word}", Moment(1_795_979_162_708), **fields)  # type: ignore[arg-type]


def test_children_are_folded_under_their_root_and_others_jobs_left_out() -> None:
    """POLL-8."""
    jobs = fold(
        [
            status("/alice/run"),
            status("/alice/run/child"),
            status("/alice/run/child/grandchild"),
            status("/alicex/run"),
            status("/alice"),
            status("//run"),
        ],
        ["alice"],
    )

    assert list(jobs) == ["alice/run"]
    assert [id_of(one.job_id) for one in jobs["alice/run"].children] == [
        "alice/run/child",
        "alice/run/child/grandchild",
    ]


def test_a_coordinator_whose_every_child_waits_is_waiting() -> None:
    root = status("/alice/run", task_state_counts={"running": 1}, task_count=1)
    child = status(
        "/alice/run/train", "PENDING", task_state_counts={"pending": 4}, task_count=4, pending_reason="no GPUs free"
    )
    seen = read_job("marin", Folded(root, [child])).observation

    assert seen.tasks == TaskCounts(4, running=0, pending=4)
    assert seen.reason == "child alice/run/train waits: no GPUs free"

    child = msgspec.structs.replace(child, state="JOB_STATE_RUNNING", task_state_counts={"running": 4})
    assert read_job("marin", Folded(root, [child])).observation.tasks == TaskCounts(5, running=5)


def test_a_failed_child_is_named_while_its_root_goes_on() -> None:
    root = status("/alice/run", task_state_counts={"running": 1}, task_count=1)
    child = status("/alice/run/serve", "FAILED", error="Exit code: 1", finished_at=Moment(1_795_979_200_000))

    assert read_job("marin", Folded(root, [child])).observation.reason == "child alice/run/serve failed: Exit code: 1"


def test_the_fingerprint_changes_with_what_a_waiting_task_waits_for(answer: Answers) -> None:
    job = folded(answer, "running-gang", "k8s-tasks-building-unschedulable")
    job.root = msgspec.structs.replace(job.root, task_state_counts={"building": 2})
    before = fingerprint(job)
    assert job.tasks is not None
    job.tasks = tuple(replace(task, waits_for="SchedulingGated: queue position 3") for task in job.tasks)

    assert fingerprint(job) != before


# -- secrets -----------------------------------------------------------------------------------------------------------


def test_nothing_of_a_jobs_environment_is_ever_decoded(answer: Answers) -> None:
    data = answer("job-running-gang")
    assert b'"FOO": "bar"' in data

    told = decode(data.replace(b'"bar"', b'"hunter2"').replace(b"[REDACTED]", b"hunter3"), JobAnswer)

    assert b"hunter" not in msgspec.json.encode(told)


# -- rows of a query ---------------------------------------------------------------------------------------------------


def test_rows_of_a_query_say_the_same_as_the_tasks_themselves(answer: Answers) -> None:
    found = tasks_of_rows(decode(answer("query-tasks-of-jobs"), QueryAnswer))
    (bad,) = found["/alice/bad"]
    (flaky,) = found["/alice/flaky"]

    assert bad.attempt is not None
    assert (bad.state, bad.attempt.exit_code, bad.attempt.error) == ("failed", 3, "Exit code: 3")
    assert [one.number for one in flaky.attempts] == [0, 1, 2]
    assert len({one.uid for one in flaky.attempts}) == 3
    configs = configs_of_rows(decode(answer("query-configs-of-jobs"), QueryAnswer))
    assert configs["/alice/flaky"].max_retries_failure == 2
    assert configs["/alice/bad"].argv == ("bash", "-c", "echo hi; exit 3")


def test_a_jobs_name_steers_no_query() -> None:
    query = tasks_query(["/alice/x') OR 1=1 --", "/alice/a:b"])

    assert "'/alice/x'') OR 1=1 --'" in query
    assert "'/alice/a\\:b'" in query


# -- half an answer is none --------------------------------------------------------------------------------------------

_KINDS: list[tuple[str, type]] = [
    ("list-jobs", JobsPage),
    ("list-jobs-prefix", JobsPage),
    ("tasks-failed-one-of-three", TasksAnswer),
    ("query-tasks-of-jobs", QueryAnswer),
    ("job-state-batch", States),
    ("logs-job", LogsAnswer),
]


@given(st.sampled_from(_KINDS), st.integers(0, 10**6))
def test_a_truncated_answer_is_never_a_good_one(kind: tuple[str, type], at: int) -> None:
    """POLL-2."""
    data = (ANSWERS / f"{kind[0]}.json").read_bytes().rstrip(b"\n")

    with pytest.raises(NotAnAnswer):
        decode(data[: at % len(data)], kind[1])


@given(st.sampled_from(_KINDS), st.integers(0, 10**6), st.binary(min_size=1, max_size=4))
def test_a_garbled_answer_is_read_or_refused_and_never_breaks(kind: tuple[str, type], at: int, noise: bytes) -> None:
    data = (ANSWERS / f"{kind[0]}.json").read_bytes()
    at %= len(data)

    try:
        told = decode(data[:at] + noise + data[at + len(noise) :], kind[1])
        if isinstance(told, QueryAnswer):
            tasks_of_rows(told)
    except NotAnAnswer:
        return
    assert isinstance(told, kind[1])


@pytest.mark.parametrize("data", [b"{}", b"[]", b"null", b"", b'{"jobs": []}', b"<html>log in</html>"])
def test_a_listing_without_its_own_count_is_no_listing(data: bytes) -> None:
    """POLL-2: an empty answer is trusted only when it is positively good."""
    with pytest.raises(NotAnAnswer):
        decode(data, JobsPage)


@given(st.lists(st.sampled_from(["failed", "cosched_failed", "killed", "preempted", "running"]), max_size=6))
def test_a_bounced_sibling_is_never_the_cause(states: list[str]) -> None:
    (task,) = tasks_of("/alice/ok", decode((ANSWERS / "tasks-succeeded.json").read_bytes(), TasksAnswer))
    ends = [(task, replace(task.attempts[0], state=state)) for state in states]

    cause = cause_of(ends)

    assert (cause is None) == (not {"failed", "killed", "preempted"} & set(states))
    assert cause is None or cause[1].state not in ("cosched_failed", "running")
