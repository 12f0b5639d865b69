"""Log and trial store tell the same numbers: which of them wins."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from supervisor.dialects import follow, summarise
from supervisor.model.facts import NO_RUN, LogFacts
from supervisor.model.readings import RunSummary, TrialFigures
from supervisor.model.trials import Recent, TrialCounts, TrialFacts, TrialPlace, TrialsUnread
from supervisor.rules.output import run_facts
from supervisor.rules.trials import moved_on, with_trials
from tests.some import MINUTE, NOON, some_log

PLACE = TrialPlace("/scratch/jobs/j1", "--jobs-dir in its command")
FIGURES = TrialFigures(done=142, planned=300, mean=0.5, passed=60, scored=120, exceptions={"AgentTimeoutError": 20})
COUNTS = TrialCounts(figures=FIGURES, begun=150, avg_turns=7.5, turns_of=142)
DENIED = TrialsUnread("permission denied", "ls -1Ap /scratch/jobs/j1")


def read(counts: TrialCounts | None = COUNTS, **changes: object) -> TrialFacts:
    values = {"place": PLACE, "where": PLACE.where, "counts": counts, "read_at": NOON, "last_end_at": NOON - MINUTE}
    return TrialFacts(**(values | changes))  # type: ignore[arg-type]


def by_log(text: str) -> RunSummary:
    state, _ = follow(None, text.encode(), 0, seen_at=NOON)
    return summarise(state, "eval")


LOG = by_log("100/300 Mean: 0.111 ━━━ 0:10:00 0:20:00\n")


def test_a_store_that_was_read_whole_goes_before_the_log() -> None:
    """EVAL-1, EVAL-4"""
    run = with_trials(run_facts(LOG), read(), "eval", LOG)

    assert run.metrics == {"trials": 142.0, "mean": 0.5, "pass_rate": 0.5, "top_exception": "AgentTimeoutError"}
    assert (run.trials_at, run.trials_unread) == ("/scratch/jobs/j1", None)


def test_what_the_log_told_before_goes_where_the_store_knows_better() -> None:
    log = by_log("".join(f"t{n}__x | Trial failed (RuntimeError), scored reward=0.0\n" for n in range(4)))
    clean = replace(COUNTS, figures=replace(FIGURES, exceptions={}))

    assert with_trials(run_facts(log), read(), "eval", log).metrics["top_exception"] == "AgentTimeoutError"
    assert "top_exception" not in with_trials(run_facts(log), read(clean), "eval", log).metrics


def test_trace_generation_tells_turns_and_the_share_of_exceptions() -> None:
    """DATAGEN-1"""
    run = with_trials(NO_RUN, read(), "datagen", None)

    assert run.metrics == {"trials": 142.0, "mean": 0.5, "avg_turns": 7.5, "exc_rate": 20 / 142}


def test_an_unread_store_leaves_the_logs_numbers_and_says_why() -> None:
    """EVAL-4: what was counted before is kept where the log tells nothing."""
    run = with_trials(run_facts(LOG), read(unread=DENIED), "eval", LOG)

    assert run.metrics == {"trials": 100.0, "mean": 0.111, "pass_rate": 0.5, "top_exception": "AgentTimeoutError"}
    assert run.trials_unread == "permission denied"


def test_a_store_that_was_never_read_tells_nothing_and_never_0() -> None:
    """BUCKET-3"""
    run = with_trials(NO_RUN, read(None, read_at=None, last_end_at=None, unread=DENIED), "eval", None)

    assert run.metrics == {}
    assert moved_on(LogFacts(), read(None, unread=DENIED), "eval", None, None, NOON, 8) == LogFacts()


def test_results_that_wait_to_be_counted_tell_shares_and_no_total() -> None:
    behind = replace(COUNTS, figures=replace(FIGURES, done=None, exact=False), left=700)

    assert "trials" not in with_trials(NO_RUN, read(behind), "eval", None).metrics
    assert with_trials(run_facts(LOG), read(behind), "eval", LOG).metrics["trials"] == 100.0


def test_for_a_trainer_its_trials_are_evidence_and_no_progress() -> None:
    """LIVE-4: rollouts go on under a trainer that hangs."""
    log = some_log(timedelta(hours=2))

    assert moved_on(log, read(), "rl", None, None, NOON, 8) == log
    assert with_trials(NO_RUN, read(), "rl", None).metrics == {}


def test_a_trial_that_ended_is_progress_though_the_log_says_nothing() -> None:
    """EVAL-2, LIVE-2: no false alarm over a display that is redrawn nowhere."""
    silent = some_log(timedelta(hours=2))
    log = moved_on(silent, read(), "eval", None, NOON - timedelta(hours=3), NOON, 8)

    assert (log.progress_at, log.step, log.total) == (NOON - MINUTE, 142, 300)


def test_lines_without_a_result_are_no_progress_once_trials_are_read() -> None:
    """EVAL-2, LIVE-3: an hour without a result under a chatty log is a stall."""
    chatty = some_log(MINUTE)
    log = moved_on(chatty, read(last_end_at=NOON - timedelta(hours=2)), "eval", None, None, NOON, 8)

    assert log.progress_at == NOON - timedelta(hours=2)
    assert log.last_output_at == NOON - MINUTE


def test_what_an_earlier_attempt_left_is_no_progress_of_this_one() -> None:
    """CHAIN-2"""
    fresh = LogFacts()
    log = moved_on(fresh, read(last_end_at=NOON - timedelta(hours=5)), "eval", None, NOON - MINUTE, NOON, 8)

    assert (log.progress_at, log.step) == (None, 142)


def test_a_clock_ahead_of_ours_makes_no_progress_in_the_future() -> None:
    assert moved_on(LogFacts(), read(last_end_at=NOON + MINUTE), "eval", None, None, NOON, 8).progress_at == NOON


def test_its_cadence_is_that_of_its_trials_where_the_log_tells_none() -> None:
    """LIVE-2"""
    ends = tuple(Recent(f"t{n}", 1000 + 90 * n, True, 3, False, "") for n in range(20))
    log = moved_on(LogFacts(), read(replace(COUNTS, recent=ends)), "eval", None, None, NOON, 8)

    assert log.cadence == timedelta(seconds=90)


def test_the_rate_and_what_is_left_come_from_the_newest_ends() -> None:
    run = with_trials(NO_RUN, read(replace(COUNTS, rate_per_s=0.1)), "eval", None)

    assert (run.rate_per_s, run.eta_s) == (0.1, 1580.0)
