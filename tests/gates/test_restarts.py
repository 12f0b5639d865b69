"""PROBE-6: restarts that repeat one failure, and those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.gates import restarts
from supervisor.model.findings import Quote
from supervisor.model.job import Burn, JobState
from supervisor.model.probe import Cause, PastAttempt
from tests.gates.cases import some_case

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def ended(number: int, fingerprint: str | None = "oom1", **changes: Any) -> PastAttempt:
    values: dict[str, Any] = {
        "name": f"attempt {number}",
        "state": JobState.FAILED,
        "category": "gpu-oom",
        "fingerprint": fingerprint,
        "quote": Quote(f"attempt-{number}.json", 1, OOM),
        "step": 12,
    }
    return PastAttempt(**(values | changes))


def test_three_attempts_in_a_row_by_one_failure_are_doomed_with_their_quotes_and_the_count():
    case = some_case({"log.txt": "x\n"}, past=[ended(1), ended(2), ended(3)], burn=Burn(3, 5), step=4)

    found = restarts.judge(case)

    assert (found.same_failure, found.times, found.category) == (True, 3, "gpu-oom")
    assert (found.burned, found.allowed, len(found.quotes)) == (3, 5, 3)
    assert found.words == "3 of 5 burned; the last 3 ended by the same failure, gpu-oom at step 12"


@pytest.mark.parametrize(
    "past",
    [
        [ended(1), ended(2)],
        [ended(1), ended(2), ended(3, "nccl1", category="nccl-timeout")],
        [ended(1), ended(2, "nccl1"), ended(3)],
        [ended(1, None), ended(2, None), ended(3, None)],
        [ended(n, category="walltime", state=JobState.TIMED_OUT) for n in (1, 2, 3)],
        [ended(n, category="preempted", state=JobState.PREEMPTED) for n in (1, 2, 3)],
        [ended(n, quote=None) for n in (1, 2, 3)],
    ],
    ids=["two", "the last differs", "one between differs", "unknown", "by the clock", "preempted", "no quote"],
)
def test_it_takes_as_many_in_a_row_of_one_proven_failure(past: list[PastAttempt]):
    assert not restarts.judge(some_case({"log.txt": "x\n"}, past=past, burn=Burn(3, 5))).same_failure


def test_an_attempt_that_has_come_further_is_not_doomed():
    found = restarts.judge(some_case({"log.txt": "x\n"}, past=[ended(1), ended(2), ended(3)], step=13))

    assert not found.same_failure
    assert found.words.endswith("and this attempt has come further")


def test_an_attempt_that_shows_the_same_failure_already_is_counted_in():
    cause = Cause(
        category="gpu-oom",
        confidence="high",
        fingerprint="oom1",
        quotes=(Quote("log.txt", 1, OOM),),
        action="",
        transience="deterministic",
    )
    case = some_case({"log.txt": OOM + "\n"}, past=[ended(1), ended(2), ended(3)], causes={"log.txt": cause})

    assert restarts.judge(case).times == 4


def test_a_job_without_restarts_says_none():
    assert restarts.judge(some_case({"log.txt": "x\n"})).words == "none"
    assert restarts.judge(some_case({"log.txt": "x\n"}, burn=Burn(0, 3))).words == "none of 3 burned"
