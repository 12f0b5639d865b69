"""Logs of real runs made for these tests: transformers 4.57 and 5, TRL, tqdm, torchrun and Ray on a CPU, with what each knew itself."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from supervisor.dialects import follow, summarise
from supervisor.model.readings import RunSummary

SAMPLES = Path(__file__).parent / "samples"
TRUTH = json.loads((SAMPLES / "truth.json").read_text())


def summary_of(name: str, bucket: str | None = None) -> RunSummary:
    state, _ = follow(None, (SAMPLES / f"{name}.log").read_bytes(), 0)
    return summarise(state, bucket, ended=True)


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_step_and_total_are_what_the_trainer_itself_counted(name: str) -> None:
    """SFT-1: total steps come from the banner or the trainer's own bar, never from a bar over data or an evaluation."""
    progress = summary_of(name).progress

    assert (progress.step, progress.total) == (TRUTH[name]["step"], TRUTH[name]["total"])


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_each_printed_dict_is_given_the_step_at_which_it_was_logged(name: str) -> None:
    """SFT-2: the Trainer's dict names no step; a wrong one would bend every trend."""
    series = summary_of(name, "sft").series.get("loss", ())

    assert [point.step for point in series] == TRUTH[name]["steps"]


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_the_last_metrics_are_those_of_the_last_log_call(name: str) -> None:
    """BUCKET-3: floats (version 4) and strings of four digits (version 5) alike; NaN is a value."""
    latest = summary_of(name).latest
    for key, value in TRUTH[name]["last"].items():
        if value == "NaN":
            assert math.isnan(latest[key].value)
        else:
            assert latest[key].value == pytest.approx(value, rel=5e-3, abs=5e-4)


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_a_run_that_ended_has_said_so_and_no_other(name: str) -> None:
    assert (summary_of(name).finished is not None) == TRUTH[name].get("ended", True)


def test_a_step_whose_dict_bears_the_running_time_is_no_end() -> None:
    """SFT-4: with tokens counted, each step's dict has the time that else only the last one has."""
    log = (SAMPLES / "hf4_tokens_counted.log").read_bytes()
    state, _ = follow(None, log[: len(log) // 2], 0)

    assert b"train_runtime" in log[: len(log) // 2]
    assert summarise(state).finished is None
    assert summarise(state).metrics["loss"] == 3.812


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_a_trained_step_is_progress_and_a_second_stage_or_lap_no_restart(name: str) -> None:
    """LIVE-6, RL-14: the phase follows from the first step; an epoch's bar begins anew and loses nothing."""
    summary = summary_of(name)

    assert summary.last_progress is not None
    assert summary.resumes == ()


@pytest.mark.parametrize(
    ("name", "step", "total", "steps"),
    [
        ("bars_nested", 20, 20, 60),
        ("bars_by_epoch", 20, 20, 60),
        ("bars_by_epoch_of_three", 60, 60, 60),
        ("bars_evaluations_below", 30, 30, 30),
        ("bars_one_after_another", 40, 40, 40),
        ("bars_scaled", 2500, 2500, 2500),
        ("bars_slower_than_one_a_second", 6, 6, 6),
        ("bars_resumed", 75, 100, 75),
    ],
)
def test_bars_of_all_forms_give_the_step_that_they_show(name: str, step: int, total: int, steps: int) -> None:
    """SFT-1, CHAIN-2: ``steps`` counts over all laps, so that a trend goes on where a new epoch's bar begins at 0 again."""
    summary = summary_of(name)

    assert (summary.progress.step, summary.progress.total, summary.resumes) == (step, total, ())
    assert follow(None, (SAMPLES / f"{name}.log").read_bytes(), 0)[0]["track"]["step"] == steps  # type: ignore[index]


def test_the_end_of_an_epochs_bar_is_not_told_as_the_end_of_the_run() -> None:
    """SFT-2: how many epochs there are is not told; a bar that says ``2/3`` tells it."""
    log = "Epoch 1:  41%|####      | 410/1000 [03:10<04:34,  2.15it/s, loss=0.412]\r"
    again = log.replace("410", "420").replace("03:10", "03:15")
    (one, _), (other, _) = (
        follow(None, (log + again).encode(), 0),
        follow(None, log.replace(" 1:", " 2/3:").encode(), 0),
    )

    assert summarise(one).progress.eta_s is None
    assert (summarise(other).progress.step, summarise(other).progress.total) == (1410, 3000)


def test_a_run_of_verl_under_ray_is_read_through_its_prefixes() -> None:
    """RL-1: a generator's own word of rewards does not stand in for the trainer's."""
    summary = summary_of("ray_verl")

    assert (summary.progress.step, summary.progress.total, summary.bucket) == (8, 8, "rl")
    assert summary.metrics == {"reward": 0.46, "policy_loss": -0.008, "grad_norm": 0.28, "entropy": 0.42}
    assert [point.step for point in summary.series["reward"]] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_standard_evaluation_tells_its_scores_and_the_requests_of_its_last_part() -> None:
    """EVAL-1: bars over contexts come first; the table of scores comes last."""
    summary = summary_of("lm_eval")

    assert (summary.bucket, summary.progress.step, summary.progress.total) == ("eval", 80, 80)
    assert summary.scores == {"tiny_gen/exact_match": 0.0, "tiny_mc/acc": 0.6}
    assert summary.resumes == ()


def test_steps_before_a_rank_raised_are_known() -> None:
    """FIND-7"""
    summary = summary_of("elastic_raises")

    assert (summary.progress.step, summary.progress.total) == (6, 40)
    assert (summary.metrics["loss"], summary.metrics["grad_norm"]) == (1.9, 1.06)
    assert "local_rank: 1" in summary.failures[0].said.text


@pytest.mark.parametrize("name", ["hf4_nan", "hf5_nan"])
def test_a_nan_that_was_printed_as_zero_loss_is_counted(name: str) -> None:
    """SFT-4: `logging_nan_inf_filter` shows 0.0; the gradient's NaN is the honest sign."""
    summary = summary_of(name)

    assert summary.metrics["loss"] == 0.0
    assert summary.hidden_nan > 0


def test_a_resumed_run_stands_where_it_goes_on() -> None:
    """CHAIN-2: the Trainer's bar begins at 0 and jumps; that is no restart from step 0."""
    summary = summary_of("hf5_resumed")

    assert summary.resumes == ()
    assert summary.first_step == 20


def test_bars_over_data_are_signs_of_bring_up_and_not_of_training() -> None:
    """LIVE-6: tokenising 4000 examples is no step of 4000."""
    summary = summary_of("hf5_data_bars")

    assert summary.last_bring_up is not None
    assert {counter.role for counter in summary.counters if counter.total == 4000} == {"data"}
    assert summary.progress.rate_per_s == pytest.approx(4.0, rel=0.15)


def test_the_kind_of_work_is_told_by_what_speaks() -> None:
    """BUCKET-1: rewards in the Trainer's dict are reinforcement learning, a bare loss is fine-tuning."""
    assert summary_of("trl_grpo").bucket == "rl"
    assert summary_of("hf4").bucket == "sft"


def test_a_driver_log_of_ray_keeps_the_trainer_and_counts_no_engines() -> None:
    """LIVE-4: the driver folds equal lines of many workers into one, so single engines are not told apart in it."""
    summary = summary_of("ray_wrapped")

    assert (summary.progress.step, summary.progress.total) == (6, 8)
    assert summary.engine.aggregated
    assert summary.engine.engines == {}
    assert [point.step for point in summary.series["grad_norm"]] == [3, 4, 5, 6]
    assert [round(point.value, 2) for point in summary.series["grad_norm"]] == [0.23, 0.24, 0.25, 0.26]
    assert summary.progress.rate_per_s == pytest.approx(1.66, rel=0.05)


def test_the_launcher_tells_which_ranks_died_and_how() -> None:
    """FIND-7: rank 1 was killed; the launcher then ended rank 0, and lists that one first."""
    summary = summary_of("elastic")

    assert summary.progress.step == 2
    assert [mark.said.text.strip() for mark in summary.failures][1:] == [
        "exitcode  : -15 (pid: 16020)  (SIGTERM)",
        "exitcode  : -9 (pid: 16021)  (SIGKILL)",
    ]
    assert "failed (exitcode: -9) local_rank: 1" in summary.failures[0].said.text


@pytest.mark.parametrize(
    ("frame", "step", "total", "elapsed_s"),
    [
        ("Training Step Progress:  81%|▊| 78/96 [59:59<00:00, 100000.00it/s, loss=nan, lr=", 78, 96, 3599.0),
        ("Training Step Progress:  50%|4| 907/1832 [00:03<04:40,  3.30", 907, 1832, 3.0),
        (" 62%|▌| 18707/30000 [25:00:00<00:00, 3.10it/s, loss=0.4", 18707, 30000, 90000.0),
        ("Training Step Progress: 100%|██████████| 7/7 [00:00<?, ?it/s]", 7, 7, 0.0),
    ],
)
def test_frames_cut_off_at_a_terminals_width_still_show_the_count(
    frame: str, step: int, total: int, elapsed_s: float
) -> None:
    """As tqdm itself made them; half a number at the cut is not read."""
    _, readings = follow(None, frame.encode() + b"\r", 0)
    (reading,) = readings

    assert (reading.step, reading.total, reading.elapsed_s) == (step, total, elapsed_s)
    assert "loss" not in reading.metrics


@pytest.mark.parametrize("frame", [" 62%|▌| 18707/300", " 62%|▌| 18707/30000"])
def test_a_total_that_may_be_cut_off_is_no_total(frame: str) -> None:
    assert follow(None, frame.encode() + b"\r", 0)[1] == ()
