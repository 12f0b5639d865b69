"""What is known of a job becomes one sign; doubt comes before news, ends before life."""

from __future__ import annotations

from datetime import timedelta

import pytest

from supervisor.model.facts import Seen
from supervisor.model.findings import Finding, Severity
from supervisor.model.job import JobState, TaskCounts
from supervisor.model.lifecycle import Sign
from supervisor.model.logs import LogStat, LogState
from supervisor.rules.signs import read_sign, silence_allowed
from tests.some import HOUR, LIMITS, MINUTE, NOON, some_facts, some_log, some_observation

ENDS = {
    JobState.COMPLETED: Sign.COMPLETED,
    JobState.FAILED: Sign.FAILED,
    JobState.CANCELLED: Sign.CANCELLED,
    JobState.TIMED_OUT: Sign.TIMED_OUT,
    JobState.OUT_OF_MEMORY: Sign.OUT_OF_MEMORY,
    JobState.NODE_FAILED: Sign.NODE_FAILED,
    JobState.PREEMPTED: Sign.PREEMPTED,
}


def sign(**facts):
    return read_sign(some_facts(**facts), NOON).sign


def test_a_cluster_without_a_reading_says_nothing_of_a_job_whatever_else_is_known():
    """POLL-1: also not when an old observation says that it ended."""
    assert sign(seen=Seen.UNREACHED, observation=some_observation(state=JobState.FAILED)) is Sign.UNSEEN


def test_a_job_whose_end_could_not_be_looked_up_is_unseen_not_missing():
    """POLL-1, POLL-4: an absence counts only if accounting was asked too."""
    assert sign(seen=Seen.DOUBTFUL) is Sign.UNSEEN


@pytest.mark.parametrize(("state", "expected"), ENDS.items())
def test_each_end_that_the_scheduler_tells_is_read_as_that_end(state, expected):
    """POLL-4"""
    read = read_sign(
        some_facts(seen=Seen.ABSENT, observation=some_observation(state=state), evidence_source="accounting"), NOON
    )

    assert read.sign is expected
    assert read.evidence[0].source == "accounting"
    assert state.value.upper() in read.evidence[0].text


def test_an_end_that_another_attempt_follows_is_no_end_of_the_job():
    """POLL-11: a requeued job's accounting rows say NODE_FAIL or PREEMPTED, and it goes on."""
    assert sign(observation=some_observation(state=JobState.NODE_FAILED, final=False)) is Sign.UNCLEAR


@pytest.mark.parametrize(("absences", "expected"), [(1, Sign.MISSING), (2, Sign.MISSING), (3, Sign.VANISHED)])
def test_a_job_in_neither_list_is_gone_only_after_two_further_good_readings(absences, expected):
    """POLL-4: K = 2 further ones after the first."""
    assert sign(seen=Seen.ABSENT, absences=absences) is expected


def test_a_timed_out_job_with_a_live_successor_is_handed_on_not_failed():
    """CHAIN-1: restart chains hit the wall clock by design."""
    ended = some_observation(state=JobState.TIMED_OUT)

    assert sign(observation=ended, successor="43", successor_live=True) is Sign.HANDED_ON


def test_a_timed_out_job_waits_a_little_for_its_successor_to_show_itself():
    """CHAIN-1: the successor may be in the queue only seconds later; until then nothing is called broken."""
    just = some_observation(state=JobState.TIMED_OUT, ended_at=NOON - MINUTE)
    long_ago = some_observation(state=JobState.TIMED_OUT, ended_at=NOON - 3 * MINUTE)

    assert sign(observation=just, successor="43") is Sign.UNCLEAR
    assert sign(observation=long_ago, successor="43") is Sign.TIMED_OUT


def test_a_timed_out_job_without_successor_is_a_failure_of_the_chain():
    """CHAIN-4"""
    assert sign(observation=some_observation(state=JobState.TIMED_OUT)) is Sign.TIMED_OUT


def test_a_gang_whose_tasks_all_wait_again_is_waiting_though_its_job_claims_to_run():
    """POLL-5: preempted or bounced."""
    bounced = some_observation(tasks=TaskCounts(total=2, running=0, pending=2))

    assert sign(observation=bounced) is Sign.WAITING


@pytest.mark.parametrize("word", [JobState.UNKNOWN, JobState.COMPLETING, JobState.SUSPENDED, JobState.REQUEUED])
def test_a_word_between_two_states_moves_nothing(word):
    """Doubt moves nothing."""
    assert sign(observation=some_observation(state=word)) is Sign.UNCLEAR


def test_an_unread_log_is_never_a_silent_one():
    """FIND-4"""
    old = some_log(age=5 * HOUR, stat=LogStat("/x", LogState.UNREAD, reason="permission denied"))

    assert sign(log=old) is Sign.QUIET


def test_an_absent_log_is_a_path_mismatch_not_a_death():
    """FIND-2"""
    assert sign(log=some_log(age=5 * HOUR, stat=LogStat("/x", LogState.ABSENT))) is Sign.QUIET


def test_silence_beyond_the_floor_makes_a_job_silent():
    """LIVE-2"""
    assert sign(log=some_log(age=timedelta(seconds=900))) is Sign.PROGRESSING
    assert sign(log=some_log(age=timedelta(seconds=901))) is Sign.SILENT


def test_a_slow_job_may_be_silent_for_five_times_its_own_cadence():
    """LIVE-2: the larger of the floor and the multiple."""
    slow = some_log(age=HOUR, cadence=timedelta(minutes=20))

    assert silence_allowed(some_facts(log=slow)) == timedelta(minutes=100)
    assert sign(log=slow) is Sign.PROGRESSING


def test_bring_up_is_patient_to_its_limit_and_no_further():
    """LIVE-6"""
    nothing = some_log(progress_at=None, last_output_at=None)
    late = some_observation(started_at=NOON - LIMITS.bring_up_limit - MINUTE)

    assert sign(log=nothing) is Sign.LOADING
    assert sign(log=nothing, observation=late) is Sign.STUCK_LOADING


def test_a_hard_finding_outweighs_fresh_output():
    """LIVE-5, LIVE-4: engines may go on printing while the trainer hangs."""
    found = Finding("LIVE-5", Severity.FAULT, "collective timed out and nothing moved since")

    assert sign(hung=found) is Sign.HUNG


def test_a_running_job_without_any_log_is_quiet_not_healthy():
    """LIVE-2: never healthy without a live log."""
    assert sign(log=some_log(stat=None)) is Sign.QUIET
