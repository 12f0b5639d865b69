"""Eyes on trials as they lie in folders and stores."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from supervisor.detectors import examine
from supervisor.dialects.trial_counts import count, counts_of
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Severity
from supervisor.model.job import Outcome
from supervisor.model.lifecycle import Lifecycle, Phase
from supervisor.model.trials import TrialFacts, TrialFile, TrialPlace, TrialsSeen, TrialsUnread
from supervisor.rules.trials import moved_on, with_trials
from tests.detectors.looking import BOOK, facts_of
from tests.some import HOUR, MINUTE, NOON
from tests.stories.voices import trials
from tests.trial_files import job_result, result

WHERE = "/scratch/jobs/j1"
START = int((NOON - HOUR).timestamp())


def files(count_: int, **outcome: object) -> list[TrialFile]:
    made = []
    for number in range(count_):
        name = f"t{number}__x"
        data = result(name, **outcome)  # type: ignore[arg-type]
        made.append(TrialFile(name, f"{WHERE}/{name}/result.json", START + 60 * number, len(data), data))
    return made


def stored(results: list[TrialFile], job: bytes | None = None, unread: TrialsUnread | None = None) -> TrialFacts:
    own = TrialFile(".", f"{WHERE}/result.json", 0, 0, job) if job is not None else None
    state = count(None, TrialsSeen(where=WHERE, begun=len(results), results=tuple(results), job=own), 0.0)
    counts = counts_of(state)
    assert counts is not None
    last = NOON - timedelta(seconds=int(NOON.timestamp()) - counts.last_end_s) if counts.last_end_s else None
    return TrialFacts(
        place=TrialPlace(WHERE, "jobs_dir in its command"),
        where=WHERE,
        counts=counts,
        read_at=NOON,
        last_end_at=last,
        unread=unread,
    )


def facts_with(read: TrialFacts, bucket: str, log: str = "", **changes: object) -> Facts:
    """The job's facts as a step makes them: its log, then its trials."""
    facts = facts_of(log, bucket=bucket, **{"name": f"{bucket}-x", **changes})  # type: ignore[arg-type]
    summary = facts.followed.summary if facts.followed is not None else None
    points = BOOK.limits_of(bucket).cadence_points
    return replace(
        facts,
        trials=read,
        run=with_trials(facts.run, read, bucket, summary),
        log=moved_on(facts.log, read, bucket, summary, None, NOON, points),
    )


def found(read: TrialFacts, bucket: str, log: str = "", **changes: object) -> list[Finding]:
    return list(examine(facts_with(read, bucket, log, **changes), NOON))


def keys(findings: list[Finding]) -> set[tuple[str, str]]:
    return {(each.identity, each.severity.value) for each in findings}


@pytest.mark.parametrize("bucket", ["rl", "datagen", "eval"])
def test_trials_that_all_end_without_a_sandbox_tell_that_it_was_never_built(bucket: str) -> None:
    """PROBE-11"""
    read = stored(files(25, exception="AddTestsDirError", reward=None, tokens=None, took_s=1))
    told = found(read, bucket)

    assert keys(told) == {("PROBE-11", "fault")}
    assert told[0].quotes[0].file == f"{WHERE}/t24__x/result.json"
    assert told[0].quotes[0].text == '"exception_type": "AddTestsDirError",'


def test_one_trial_with_a_sandbox_means_that_it_can_be_built() -> None:
    """PROBE-11: 100 %, and enough of them."""
    some = [*files(25, exception="AddTestsDirError", reward=None)[:24], *files(25)[24:]]

    assert found(stored(some), "rl") == []
    assert found(stored(files(10, exception="AddTestsDirError", reward=None)), "rl") == []


def test_what_an_earlier_attempt_left_says_nothing_of_this_one() -> None:
    """CHAIN-2: no false alarm in the first minutes of a repaired run."""
    read = stored(files(25, exception="AddTestsDirError", reward=None, tokens=None, took_s=1))
    for bucket in ("eval", "datagen", "rl"):
        facts = facts_with(read, bucket)
        later = replace(facts, observation=replace(facts.observation, started_at=NOON - 5 * MINUTE))
        assert list(examine(later, NOON)) == []
        ahead = replace(read, clock_offset=timedelta(hours=1))
        assert list(examine(replace(later, trials=ahead), NOON)) == []


@pytest.mark.parametrize(("bucket", "key"), [("eval", "EVAL-2/tokens"), ("datagen", "DATAGEN-2/tokens")])
def test_trials_that_end_at_once_without_a_token_tell_of_a_tunnel_that_carries_nothing(bucket: str, key: str) -> None:
    """EVAL-2, DATAGEN-2"""
    told = found(stored(files(30, reward=0.0, tokens=None, turns=None, took_s=1)), bucket)

    assert keys(told) == {(key, "fault")}
    assert "null" in told[0].quotes[0].text


@pytest.mark.parametrize(
    "outcome",
    [
        {"reward": 1.0, "tokens": None, "took_s": 1},
        {"reward": 0.0, "tokens": None, "took_s": 600},
        {"reward": 0.0, "tokens": 500, "took_s": 1},
        {"reward": 0.0, "tokens": None, "took_s": 1, "agent": "nop"},
        {"reward": 0.0, "exception": "AgentTimeoutError"},
    ],
)
def test_what_only_resembles_a_dead_tunnel_is_not_called_one(outcome: dict[str, object]) -> None:
    """EVAL-3: solved ones, agents that count no tokens, quick failures with tokens, baselines, timeouts."""
    for bucket in ("eval", "datagen"):
        assert found(stored(files(30, **outcome)), bucket) == []


def test_turns_near_one_over_all_or_over_the_newest_are_a_dead_engine() -> None:
    """DATAGEN-2"""
    alive = [replace(each, name=f"early{n}", changed_s=START - 9000 + n) for n, each in enumerate(files(300, turns=9))]

    assert keys(found(stored(files(25, turns=1)), "datagen")) == {("DATAGEN-2/turns", "fault")}
    assert keys(found(stored([*alive, *files(110, turns=1)]), "datagen")) == {("DATAGEN-2/turns", "fault")}
    assert found(stored(files(10, turns=1)), "datagen") == []
    assert found(stored(files(30, turns=5)), "datagen") == []


def test_trials_that_all_fail_to_reach_the_model_are_told_from_their_files() -> None:
    """EVAL-3, DATAGEN-2"""
    broken = stored(files(25, exception="ApiConnectionError", reward=None, took_s=200))

    assert keys(found(broken, "eval")) == {("EVAL-3/all", "fault")}
    assert keys(found(broken, "datagen")) == {("DATAGEN-2/trials", "fault")}
    scored = stored([*files(25, exception="ApiConnectionError", reward=None)[:24], *files(25, reward=0.0)[24:]])
    assert found(scored, "eval") == []


def test_credentials_refused_again_and_again_are_told_from_the_files() -> None:
    """EVAL-2"""
    refused = [*files(9, exception="AgentAuthenticationError", reward=None), *files(40)[9:]]

    assert keys(found(stored(refused), "eval")) == {("EVAL-2/auth", "watch")}


def test_all_trials_done_by_the_jobs_own_record_and_still_running_is_a_zombie() -> None:
    """EVAL-2: also without a log."""
    done = job_result(planned=25, completed=25, passed=10, failed=15)
    read = stored(files(25), done)

    assert keys(found(read, "eval")) == {("EVAL-2/zombie", "watch")}
    quote = found(read, "eval")[0].quotes[0]
    assert (quote.file, quote.text) == (f"{WHERE}/result.json", '"n_completed_trials": 25,')
    assert found(stored(files(25), job_result(planned=26, completed=25, running=1)), "eval") == []
    assert keys(found(stored(files(25), job_result(planned=30, completed=25, finished=True)), "eval")) == {
        ("EVAL-2/zombie", "watch")
    }


def test_a_calibration_run_is_observed_and_exempt_from_actions() -> None:
    """EVAL-4"""
    read = stored(files(25, exception="AddTestsDirError", reward=None))
    told = found(read, "eval", name="DCAgent2/calibrate-7")

    assert [(each.rule, each.severity) for each in told] == [("PROBE-11", Severity.NOTE)]


def test_a_counter_that_stands_in_the_log_while_trials_end_is_no_stall() -> None:
    """EVAL-2, LIVE-3: a display is redrawn nowhere, or late."""
    frozen = "".join(f"Evaluating:  33%|###3      | 99/300 [{h}:00:00<2:00:00, 36.00s/it]\n" for h in (1, 2, 3, 4))
    read = stored(files(30))
    late, older = replace(read, last_end_at=NOON - MINUTE), replace(read, last_end_at=NOON - 3 * HOUR)

    assert keys(found(older, "eval", frozen)) == {("stall/EVAL-2", "watch")}
    assert found(late, "eval", frozen) == []


def test_a_silent_evaluation_is_not_idle_once_all_its_trials_are_done() -> None:
    """EVAL-2"""
    log = trials(range(1, 100), 300)
    read = replace(stored(files(30), job_result(planned=300, completed=300, passed=300)), last_end_at=NOON - MINUTE)

    assert found(read, "eval", log) == []


ENDED = Lifecycle(phase=Phase.TERMINAL, since=NOON, outcome=Outcome.TIMED_OUT)


@pytest.mark.parametrize("outcome", [Outcome.TIMED_OUT, Outcome.FAILED, Outcome.OUT_OF_MEMORY])
def test_traces_of_a_run_that_ended_before_its_end_are_told_before_anything_is_cleaned_up(outcome: Outcome) -> None:
    """DATAGEN-3"""
    facts = facts_with(stored(files(25)), "datagen")
    over = replace(facts, held=facts.held.having(life=replace(ENDED, outcome=outcome)))
    told = [each for each in examine(over, NOON) if each.rule == "DATAGEN-3"]

    assert [(each.identity, each.severity.value) for each in told] == [("DATAGEN-3/stranded", "watch")]
    assert WHERE in told[0].text and told[0].quotes


def test_traces_of_a_run_that_ended_well_or_that_lie_in_a_store_are_not_stranded() -> None:
    """DATAGEN-3"""
    facts = facts_with(stored(files(25)), "datagen")
    well = replace(facts, held=facts.held.having(life=replace(ENDED, outcome=Outcome.COMPLETED)))
    read = stored(files(25))
    away = replace(facts, trials=replace(read, where="s3://traces/j1"), held=facts.held.having(life=ENDED))

    for each in (well, away):
        assert not [finding for finding in examine(each, NOON) if finding.rule == "DATAGEN-3"]


def test_a_place_that_cannot_be_read_is_said_with_what_was_asked_and_what_came_back() -> None:
    """FIND-4, EVAL-4"""
    denied = TrialsUnread("permission denied", f"ls -1Ap {WHERE}", "ls: permission denied")
    nothing = TrialFacts(place=TrialPlace(WHERE, "jobs_dir in its command"), where=WHERE, unread=denied)
    named = replace(nothing, place=TrialPlace(WHERE, "trial_stores"))

    told = found(nothing, "eval")
    assert keys(told) == {("FIND-4/trials", "note")}
    assert (told[0].quotes[0].file, told[0].quotes[0].text) == (f"ls -1Ap {WHERE}", "ls: permission denied")
    assert keys(found(named, "eval")) == {("FIND-4/trials", "watch")}


def test_a_folder_that_is_not_there_yet_is_no_finding_while_the_job_comes_up() -> None:
    """LIVE-6"""
    absent = TrialsUnread("not there: no such folder", f"ls -1Ap {WHERE}")
    nothing = TrialFacts(place=TrialPlace(WHERE, "jobs_dir in its command"), where=WHERE, unread=absent)
    guessed = replace(nothing, place=replace(nothing.place, sure=False))
    facts = facts_with(nothing, "eval")
    old = replace(facts, observation=replace(facts.observation, started_at=NOON - 9 * HOUR))

    assert found(nothing, "eval") == []
    assert keys(list(examine(old, NOON))) == {("FIND-4/trials", "note")}
    assert not list(examine(replace(old, trials=guessed), NOON))
