"""What a scheduler's own record says of a job's state, on records of real schedulers (POLL-5)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gates import liveness
from supervisor.gates.record import Standing, Told, told
from supervisor.model.job import JobKey
from supervisor.model.probe import Score
from tests.gates.cases import lines_of, some_case

RECORDS = Path(__file__).parent / "samples" / "records"
UID = "939f9248-5f8f-4f09-a5ea-eb12ce934dd5"


IDS = {
    "running": "5",
    "requeued-2-running-again": "34",
    "pending-priority": "11",
    "completed": "23",
    "cancelled-running": "30",
}
IDS |= {"timeout": "4"}


def read(name: str, job: str | None = None, incarnation: str = "1000") -> Told | None:
    """``job``: of a record of Slurm by default its own number."""
    job = job or IDS.get(name.removeprefix("slurm-").removesuffix(".txt"), "42")
    return told("record", lines_of((RECORDS / name).read_text()), JobKey("cluster-a", job, incarnation))


@pytest.mark.parametrize(
    ("name", "standing", "quoted"),
    [
        ("slurm-running.txt", Standing.RUNNING, "JobState=RUNNING"),
        ("slurm-requeued-2-running-again.txt", Standing.RUNNING, "JobState=RUNNING"),
        ("slurm-pending-priority.txt", Standing.WAITING, "JobState=PENDING Reason=Priority"),
        ("slurm-completed.txt", Standing.ENDED, "JobState=COMPLETED"),
        ("slurm-cancelled-running.txt", Standing.ENDED, "JobState=CANCELLED"),
        ("slurm-timeout.txt", Standing.ENDED, "JobState=TIMEOUT"),
        ("iris-running-gang.json", Standing.RUNNING, '"state": "JOB_STATE_RUNNING"'),
        ("iris-failed-exit3.json", Standing.ENDED, '"state": "JOB_STATE_FAILED"'),
        ("iris-succeeded.json", Standing.ENDED, '"state": "JOB_STATE_SUCCEEDED"'),
        ("iris-killed-by-user.json", Standing.ENDED, '"state": "JOB_STATE_KILLED"'),
        ("kubernetes-job-running.json", Standing.RUNNING, '"active": 1'),
        ("kubernetes-job-succeeded.json", Standing.ENDED, '"type": "Complete"'),
        ("kubernetes-job-failed.json", Standing.ENDED, '"type": "Failed"'),
        ("kubernetes-job-suspended.json", Standing.SUSPENDED, '"type": "Suspended"'),
        ("kubernetes-pod-running.json", Standing.RUNNING, '"phase": "Running"'),
        ("host-running.json", Standing.RUNNING, '"pid": 10459'),
        ("host-ended.json", Standing.ENDED, '"ended_at": 1795999945.6829555'),
    ],
)
def test_a_record_says_its_state_and_the_part_that_says_so_is_quoted(name: str, standing: Standing, quoted: str):
    host = "caae0b3a537b42f984a5e4c9504f8aed"
    found = read(name, incarnation=host if name.startswith("host") else "1000")

    assert found is not None
    assert (found.standing, quoted in found.quote.text) == (standing, True)
    assert found.quote.text in lines_of((RECORDS / name).read_text())[(found.quote.line or 0) - 1]
    assert len(found.quote.text) <= 400


def test_a_gang_that_was_taken_apart_waits_whatever_its_record_says():
    """POLL-5: the record says running, and every task is pending."""
    found = read("iris-gang-just-preempted.json")

    assert found is not None
    assert (found.standing, found.word) == (Standing.WAITING, "RUNNING")


def test_of_a_heterogeneous_job_or_an_array_the_jobs_own_record_speaks():
    component = read("slurm-het-running.txt", job="35+1")
    task = read("slurm-array-running.txt", job="6_1")
    rest = read("slurm-array-running.txt", job="6")
    stranger = read("slurm-array-running.txt", job="9_1")

    assert component is not None and "JobState=RUNNING" in component.quote.text and component.quote.line == 2
    assert task is not None and task.standing is Standing.RUNNING
    assert rest is not None and rest.standing is Standing.WAITING
    assert stranger is None
    assert read("slurm-running.txt", job="6") is None


@pytest.mark.parametrize(
    ("name", "same", "other"),
    [
        ("slurm-requeued-2-running-again.txt", "2026-11-29T18:54:47", "2026-11-29T18:40:00"),
        ("slurm-requeued-2-running-again.txt", "1795978487", "1795977600"),
        ("kubernetes-job-running.json", UID, "f" + UID[1:]),
        ("host-running.json", "caae0b3a537b42f984a5e4c9504f8aed", "0" * 32),
    ],
)
def test_a_record_of_another_attempt_is_no_record_of_this_one(name: str, same: str, other: str):
    mine, another = read(name, incarnation=same), read(name, incarnation=other)

    assert mine is not None and mine.standing is Standing.RUNNING
    assert another is not None and another.standing is Standing.OTHER


def test_a_job_that_ended_while_it_was_probed_is_an_error_with_its_state_quoted():
    key = JobKey("cluster-a", "30", "1000")
    record = (RECORDS / "slurm-cancelled-running.txt").read_text()
    case = some_case({"record.txt": record, "log.txt": "step 1\n"}, key=key)

    score = liveness.judge(case)

    assert (score.result, [quote.file for quote in score.quotes]) == (Score.ERROR, ["record.txt"])
    assert "It ended while it was probed (CANCELLED)" in score.reason


def test_a_name_that_says_a_state_too_makes_the_state_unsure():
    """Names and comments are their owner's words, never the scheduler's."""
    lines = ["JobId=42 JobName=x JobState=COMPLETED UserId=alice(1000) JobState=RUNNING Reason=None"]

    found = told("record", lines, JobKey("cluster-a", "42", "1000"))

    assert found is not None
    assert found.standing is Standing.UNKNOWN


@pytest.mark.parametrize(
    ("remark", "standing"),
    [
        ("# process: leader 10459 alive, 3 of its group and session live", Standing.RUNNING),
        ("# process: leader 10459 gone, 1 of its group and session live", Standing.RUNNING),
        ("# process: leader 10459 hidden, 0 of its group and session live", Standing.UNKNOWN),
        ("# process: leader 10459 gone, 0 of its group and session live", Standing.ENDED),
    ],
)
def test_beside_a_launch_record_the_process_table_speaks(remark: str, standing: Standing):
    """A waiter that was killed leaves a record without an end."""
    lines = [*lines_of((RECORDS / "host-running.json").read_text()), remark]

    found = told("record", lines, JobKey("box", "1", "caae0b3a537b42f984a5e4c9504f8aed"))

    assert found is not None
    assert (found.standing, found.quote.text) == (standing, remark)


def test_a_text_of_no_known_form_says_nothing():
    for text in ("", "slurm_load_jobs error: Invalid job id specified", "[]", "{}", '{"status": 3}', '{"job": []}'):
        assert told("record", lines_of(text), JobKey("cluster-a", "42", "1000")) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["job", "state", "status", "phase", "items", "metadata", "uid", "pid"]), inner
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_no_json_makes_it_raise(value: object):
    told("record", lines_of(json.dumps(value)), JobKey("cluster-a", "42", "1000"))
    told("record", lines_of(json.dumps(value, indent=1)), JobKey("cluster-a", "42", "1000"))


@given(
    st.lists(
        st.sampled_from(
            ["JobId=42 ", "JobState=RUNNING", "JobState=", "SubmitTime=2026-11-29T18:54:47 ", "é\udce9", "\n"]
        )
    )
)
def test_no_text_makes_it_raise(parts: list[str]):
    told("record", lines_of("".join(parts)), JobKey("cluster-a", "42", "2026-11-29T18:54:47"))
