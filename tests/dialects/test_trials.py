"""Harbor: its progress line, single trials, result files of several versions, and what counts as a valid outcome."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from supervisor.dialects import Malformed
from supervisor.dialects.evals import read_results
from supervisor.dialects.trials import average_turns, read_job, read_trial, tally
from supervisor.dialects.vocabulary import outcome_of
from supervisor.model.readings import Trial
from tests.dialects.reads import summary_of


def result(**changes: object) -> bytes:
    document: dict[str, object] = {
        "trial_name": "patch-3__ab12c",
        "task_name": "patch-3",
        "config": {"agent": {"kwargs": {"api_key": "not-to-be-kept"}}},
        "agent_info": {"name": "terminus", "version": "2", "model_info": None},
        "agent_result": {"n_input_tokens": 900, "n_output_tokens": 300, "metadata": {"n_episodes": 12}},
        "verifier_result": {"rewards": {"reward": 1.0}},
        "exception_info": None,
        "started_at": "2026-08-01T12:00:00Z",
        "finished_at": "2026-08-01T12:10:00+00:00",
        "environment_setup": {"started_at": "2026-08-01T12:00:00Z", "finished_at": "2026-08-01T12:00:30Z"},
        "agent_setup": None,
        "agent_execution": {"started_at": "2026-08-01T12:01:00Z", "finished_at": "2026-08-01T12:08:00Z"},
        "verifier": {"started_at": "2026-08-01T12:08:00Z", "finished_at": "2026-08-01T12:09:00Z"},
    }
    return json.dumps({**document, **changes}).encode()


def failed(kind: str, **policy: bool) -> dict[str, object]:
    info: dict[str, object] = {"exception_type": kind, "exception_message": "…", "exception_traceback": "…"}
    return {**info, "policy": policy} if policy else info


# -- the log -----------------------------------------------------------------------------------------------------------


def test_the_progress_line_gives_trials_total_and_mean() -> None:
    """DATAGEN-1, EVAL-1."""
    log = "  142/300 Mean: 0.530 ━━━━━━━━━╸━━━━━━━━━━ 0:12:00 0:13:22\n"
    summary = summary_of(log, "datagen")

    assert (summary.progress.step, summary.progress.total) == (142, 300)
    assert summary.metrics == {"mean": 0.53, "trials": 142.0}


def test_a_redrawn_display_counts_its_last_frame() -> None:
    log = "\r140/300 Mean: 0.520 ━━━ 0:11:00 0:13:22\r\x1b[1A\x1b[2K141/300 Mean: 0.525 ━━━ 0:11:30 0:13:00\n"

    assert summary_of(log, "eval").progress.step == 141


def test_the_mean_is_a_series_over_the_trials_done() -> None:
    """DATAGEN-1, EVAL-1: a trend is drawn from it; in a trainer's log it is no metric of the training."""
    log = "".join(f"  {done}/300 Mean: {done / 1000:.3f} ━━━ 0:12:00 0:13:22\n" * 2 for done in range(1, 20))

    assert [(point.step, point.value) for point in summary_of(log, "eval").series["mean"]][-2:] == [
        (18, 0.018),
        (19, 0.019),
    ]
    assert summary_of(log, "rl").series == {}


def test_before_the_first_reward_there_is_no_mean() -> None:
    """BUCKET-3: what was not emitted is absent."""
    summary = summary_of("0/300 Running trials... ━━━ 0:00:10 -:--:--\n", "eval")

    assert summary.progress.total == 300
    assert "mean" not in summary.metrics


def test_steps_of_a_trainer_are_no_trials() -> None:
    assert summary_of("2/8 Loss: 0.5\n", "eval").progress.step is None


def test_the_latest_event_of_a_trial_counts() -> None:
    """A failed trial that was started again is in flight, and a retry replaces its failure."""
    log = (
        "patch-1__aaaaa: running agent...\n"
        "patch-2__bbbbb: starting environment...\n"
        "Trial patch-2__bbbbb failed (EnvironmentStartTimeoutError)\n"
        "patch-2__bbbbb: starting environment...\n"
        "patch-2__bbbbb | Trial completed reward=1.0\n"
        "patch-3__ccccc | Trial failed (AgentTimeoutError), scored reward=0.0\n"
    )
    trials = summary_of(log, "eval").trials

    assert (trials.done, trials.passed, trials.scored, trials.running) == (2, 1, 2, 1)
    assert trials.exceptions == {"AgentTimeoutError": 1}


def test_the_pass_rate_and_top_exception_of_an_evaluation() -> None:
    """EVAL-1: the share with reward above 0."""
    log = "".join(f"t-{n}__abcde | Trial completed reward={reward}\n" for n, reward in enumerate((1.0, 0.0, 0.0, 0.5)))
    log += "".join(f"u-{n}__abcde | Trial failed (AgentTimeoutError), scored reward=0.0\n" for n in range(4))
    summary = summary_of(log, "eval")

    assert summary.metrics["pass_rate"] == 0.25
    assert summary.metrics["top_exception"] == "AgentTimeoutError"


def test_trials_in_a_log_that_ray_folded_are_not_exact() -> None:
    """They tell that something moves, and never how much."""
    trials = summary_of(
        "(RolloutCoordinator pid=5) task-1__abcde | Trial completed reward=1.0 [repeated 5x across cluster]\n", "rl"
    ).trials

    assert not trials.exact
    assert trials.done == 1


# -- result.json -------------------------------------------------------------------------------------------------------


def test_a_trials_result_file() -> None:
    trial = read_trial(result())

    assert trial == Trial(
        name="patch-3__ab12c", task="patch-3", agent="terminus", reward=1.0, valid=True, turns=12, input_tokens=900, output_tokens=300,
        started_at=datetime(2026, 8, 1, 12, tzinfo=UTC), finished_at=datetime(2026, 8, 1, 12, 10, tzinfo=UTC),
        took_s=600.0, environment_setup_s=30.0, agent_s=420.0, verifier_s=60.0, teardown_s=60.0, verifier_late_s=-60.0,
    )  # fmt: skip
    assert "not-to-be-kept" not in repr(trial)


@pytest.mark.parametrize(
    ("exception", "valid", "group"),
    [
        ("AgentTimeoutError", True, "expected"),
        ("ContextLengthExceededError", True, "expected"),
        ("AddTestsDirError", False, "environment"),
        ("RateLimitError", False, "api"),
        ("VerifierTimeoutError", False, "verifier"),
        ("AuthenticationError", False, "auth"),
        ("DaytonaRateLimitError", True, "environment"),
        ("SomethingOfTheirOwn", True, "unknown"),
    ],
)
def test_whether_a_reward_counts_beside_an_exception_follows_the_harness(
    exception: str, valid: bool, group: str
) -> None:
    """RL-6, EVAL-3: an agent that ran out of time is scored; a sandbox that was never built is not."""
    trial = read_trial(result(exception_info=failed(exception)))

    assert (trial.valid, trial.groups, trial.exceptions) == (valid, (group,), (exception,))
    assert outcome_of(exception).group == group


def test_a_policy_that_the_file_states_overrules_the_table() -> None:
    assert not read_trial(result(exception_info=failed("AgentTimeoutError", has_valid_reward=False))).valid
    assert not read_trial(result(reward_valid=False)).valid


def test_a_trial_of_many_steps_sums_them() -> None:
    steps = [
        {
            "step_name": "a",
            "agent_result": {"n_output_tokens": 10, "metadata": {"n_episodes": 2}},
            "verifier_result": {"rewards": {"reward": 0.0}},
        },
        {
            "step_name": "b",
            "agent_result": {"n_output_tokens": 20, "metadata": {"n_episodes": 3}},
            "verifier_result": {"rewards": {"reward": 0.5}},
        },
    ]
    trial = read_trial(result(agent_result=None, verifier_result=None, step_results=steps))

    assert (trial.turns, trial.output_tokens, trial.reward) == (5, 30, 0.5)


def test_what_an_agent_tells_of_its_own_time_is_summed() -> None:
    """PROBE-12: requests to the model and commands in the sandbox, apart."""
    metadata = {"n_episodes": 2, "api_request_times_msec": [1500.0, 2500], "terminal_interaction_times_msec": [250]}
    one = {"agent_result": {"metadata": metadata}}

    trial = read_trial(result(**one))
    steps = read_trial(result(agent_result=None, step_results=[one, one]))

    assert (trial.llm_s, trial.tools_s) == (4.0, 0.25)
    assert (steps.llm_s, steps.tools_s) == (8.0, 0.5)
    assert read_trial(result()).llm_s is None


def test_a_trial_that_ended_within_a_phase_tells_no_teardown() -> None:
    """What came after its last whole phase was the phase that it died in."""
    trial = read_trial(result(agent_execution={"started_at": "2026-08-01T12:01:00Z"}, verifier=None))

    assert trial.teardown_s is None


def test_times_of_unequal_kinds_are_not_subtracted() -> None:
    """A naive time has no known clock."""
    trial = read_trial(result(finished_at="2026-08-01T12:10:00"))

    assert trial.took_s is None
    assert trial.finished_at is None


def test_an_instant_failure_without_tokens_is_told() -> None:
    """EVAL-2: the tunnel carries nothing."""
    nothing = {"agent_result": {"n_output_tokens": None}, "finished_at": "2026-08-01T12:00:01Z"}

    assert read_trial(result(**nothing, verifier_result={"rewards": {"reward": 0.0}})).instant
    assert not read_trial(result(**nothing)).instant
    assert not read_trial(result()).instant


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"id": 1}', b"\xff\xfe", b"[" * 5000])
def test_a_file_that_is_no_result_says_so(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_trial(data)


def test_a_jobs_result_file_of_today_and_of_before() -> None:
    evals = {
        "terminus__m__bench": {
            "n_trials": 4,
            "n_errors": 1,
            "metrics": [{"mean": 0.5}],
            "exception_stats": {"AgentTimeoutError": ["a", "b"]},
        }
    }
    now = read_job(
        json.dumps(
            {
                "n_total_trials": 10,
                "updated_at": "2026-08-01T12:00:00Z",
                "stats": {"n_completed_trials": 5, "n_errored_trials": 2, "n_running_trials": 3, "evals": evals},
            }
        ).encode()
    )
    before = read_job(json.dumps({"n_total_trials": 10, "stats": {"n_trials": 5, "n_errors": 2}}).encode())

    assert (now.planned, now.completed, now.errored, now.running, now.mean, now.scored) == (10, 5, 2, 3, 0.5, 4)
    assert now.exceptions == {"AgentTimeoutError": 2}
    assert now.finished_at is None
    assert (before.completed, before.errored) == (5, 2)


def test_figures_over_trials_count_each_trial_once() -> None:
    """DATAGEN-2: turns of about 1 are a dead engine; EVAL-4: counts over the whole run."""
    trials = [
        read_trial(result(trial_name="a", exception_info=failed("AddTestsDirError"), verifier_result=None)),
        read_trial(result(trial_name="a")),
        read_trial(
            result(
                trial_name="b", verifier_result={"rewards": {"reward": 0.0}}, exception_info=failed("AgentTimeoutError")
            )
        ),
        read_trial(
            result(
                trial_name="c", verifier_result={"rewards": {"reward": 1.0}}, exception_info=failed("RateLimitError")
            )
        ),
    ]
    figures = tally(trials, planned=10)

    assert (figures.done, figures.planned, figures.mean, figures.passed, figures.scored) == (3, 10, 0.5, 1, 2)
    assert figures.exceptions == {"AgentTimeoutError": 1, "RateLimitError": 1}
    assert average_turns(trials) == 12.0


# -- other evaluations -------------------------------------------------------------------------------------------------


def test_lm_eval_results() -> None:
    document = {
        "results": {"gsm8k": {"alias": "gsm8k", "exact_match,strict-match": 0.6467, ""
            "exact_match_stderr,strict-match": 0.0132, "acc,none": 0.5}},
        "n-shot": {"gsm8k": 5}, "n-samples": {"gsm8k": {"original": 1319, "effective": 1319}}, "model_name": "m",
    }  # fmt: skip
    results = read_results(json.dumps(document).encode())

    assert results.framework == "lm-eval"
    assert results.scores == {"gsm8k/exact_match,strict-match": 0.6467, "gsm8k/acc": 0.5}
    assert (results.samples, results.model) == ({"gsm8k": 1319}, "m")


def test_other_harnesses_results() -> None:
    lighteval = {
        "config_general": {"model_name": "m"},
        "results": {"lighteval|gsm8k|0": {"extractive_match": 0.4, "extractive_match_stderr": 0.01}},
    }
    inspect = {
        "eval": {"task": "gsm8k", "model": "m"},
        "results": {
            "completed_samples": 20,
            "scores": [{"metrics": {"accuracy": {"value": 0.7}, "stderr": {"value": 0.1}}}],
        },
    }

    assert read_results(json.dumps(lighteval).encode()).scores == {"lighteval|gsm8k|0/extractive_match": 0.4}
    assert read_results(json.dumps(inspect).encode()).scores == {"gsm8k/accuracy": 0.7}


def test_empty_results_are_no_scores() -> None:
    """CLEAN-6: ended well with empty results is not done."""
    assert read_results(b'{"results": {}}').scores == {}


def test_the_table_that_lm_eval_prints() -> None:
    log = (
        "Running generate_until requests: 100%|##########| 1319/1319 [10:00<00:00,  2.20it/s]\n"
        "|Tasks|Version|     Filter     |n-shot|  Metric   |   |Value |   |Stderr|\n"
        "|gsm8k|      3|flexible-extract|     5|exact_match|↑  |0.6467|±  |0.0132|\n"
    )
    summary = summary_of(log, "eval")

    assert summary.scores == {"gsm8k/exact_match": 0.6467}
    assert (summary.progress.step, summary.progress.total) == (1319, 1319)
