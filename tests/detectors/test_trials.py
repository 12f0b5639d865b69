"""Eyes on trials: trace generation and evaluation."""

from __future__ import annotations

from datetime import timedelta

import pytest

from supervisor.model.lifecycle import Phase
from tests.detectors.looking import found_in, rules_in
from tests.some import NOON
from tests.stories.voices import BEGAN, engine, tally, trial, trials

OLD = NOON - timedelta(minutes=20)
REFUSED = '10.0.0.9:5000 - "POST /v1/chat/completions HTTP/1.1" 401 Unauthorized\n'
BROKE = '10.0.0.9:5000 - "POST /v1/chat/completions HTTP/1.1" 503 Service Unavailable\n'
FINE = '10.0.0.9:5000 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'


def failing(exception: str, count: int = 30) -> str:
    return "".join(trial(f"task-{n}__ab", failed=exception) for n in range(count))


def test_turns_near_one_mean_a_dead_engine() -> None:
    """DATAGEN-2"""
    log = trials(range(1, 41), 500) + tally(3, 20, 40, 1.02, 0.0, 0.04)

    assert rules_in(log, bucket="datagen") == {("DATAGEN-2", "fault")}
    assert found_in(trials(range(1, 11), 500) + tally(0, 20, 10, 1.0, 0.0, 0.0), bucket="datagen") == [], (
        "too few trials"
    )
    assert found_in(trials(range(1, 41), 500) + tally(18, 20, 40, 5.1, 0.5, 0.25), bucket="datagen") == []


def test_an_engine_that_never_answers_is_dead_and_one_that_did_is_not_called_so() -> None:
    """DATAGEN-2"""
    assert rules_in(BROKE * 25, bucket="datagen") == {("DATAGEN-2", "fault")}
    assert found_in(FINE + BROKE * 25, bucket="datagen") == []


@pytest.mark.parametrize("bucket", ["datagen", "eval"])
def test_agent_timeouts_even_of_every_trial_are_capability(bucket: str) -> None:
    """EVAL-3, DATAGEN-2, RL-6"""
    for name in ("AgentTimeoutError", "ContextLengthExceededError"):
        assert found_in(failing(name), bucket=bucket, name="x") == []


def test_trials_that_all_fail_to_reach_the_model_are_no_result() -> None:
    """EVAL-3, DATAGEN-2"""
    assert rules_in(failing("APIConnectionError"), bucket="eval", name="eval-x") == {("EVAL-3", "fault")}
    assert rules_in(failing("APIConnectionError"), bucket="datagen") == {("DATAGEN-2", "fault")}
    assert found_in(failing("APIConnectionError", 10), bucket="eval", name="eval-x") == [], "too few"
    scored = failing("APIConnectionError") + trial("good__ab", reward=1.0)
    assert found_in(scored, bucket="eval", name="eval-x") == [], "one completed"


def test_all_trials_done_and_still_running_is_a_zombie() -> None:
    """EVAL-2"""
    log = trials(range(1, 301), 300)

    assert rules_in(log, bucket="eval", name="eval-x", seen_at=OLD) == {("EVAL-2", "watch")}
    assert found_in(log, bucket="eval", name="eval-x", seen_at=NOON - timedelta(minutes=10)) == [], "it may wrap up"
    assert found_in(trials(range(1, 300), 300), bucket="eval", name="eval-x", seen_at=OLD) == [], "one is left"


def test_a_calibration_run_is_observed_and_exempt_from_actions() -> None:
    """EVAL-4"""
    found = found_in(trials(range(1, 301), 300), bucket="eval", name="DCAgent2/calibrate-7", seen_at=OLD)

    assert [(each.severity.value, each.text.rpartition("; ")[2]) for each in found] == [
        ("note", "calibration, exempt from actions")
    ]


def test_no_result_while_lines_arrive_is_a_stall_of_the_evaluation() -> None:
    """EVAL-2, DATAGEN-3"""
    log, silent = trials(range(1, 100), 300), {"phase": Phase.SUSPECT, "seen_at": NOON - timedelta(hours=2)}

    assert rules_in(log, bucket="eval", name="eval-x", **silent) == {("EVAL-2", "watch")}
    assert rules_in(log, bucket="datagen", **silent) == {("DATAGEN-3", "watch")}


def test_an_engine_that_says_nothing_while_trials_are_left_is_idle() -> None:
    """EVAL-2, EVAL-4: recent answers clear it."""
    log = trials(range(1, 100), 300) + engine(BEGAN)

    assert rules_in(log, bucket="eval", name="eval-x", seen_at=OLD) == {("EVAL-2", "watch")}
    assert found_in(log + FINE, bucket="eval", name="eval-x", seen_at=OLD) == []
    assert found_in(log, bucket="eval", name="eval-x") == []


def test_credentials_refused_again_and_again_are_told() -> None:
    """EVAL-2"""
    assert rules_in(REFUSED * 5 + FINE, bucket="eval", name="eval-x") == {("EVAL-2", "watch")}
    assert found_in(REFUSED * 4 + FINE, bucket="eval", name="eval-x") == []
    some = failing("AgentAuthenticationError", 6) + trial("good__ab", reward=1.0)
    found = found_in(some, bucket="eval", name="eval-x")
    assert [each.key for each in found] == ["EVAL-2/auth"]
    assert "AgentAuthenticationError" in found[0].quotes[0].text
