"""SkyRL in its three forms, its timers, buffer bars, and what it says once."""

from __future__ import annotations

import json
import math

import pytest

from supervisor.dialects import excerpt, follow, summarise
from tests.dialects.reads import readings_of, summary_of

ENTRY = "\x1b[36m(skyrl_entrypoint pid=4100)\x1b[0m "
MIRROR = (
    ENTRY
    + "\x1b[32m2026-08-01 12:{minute:02d}:00.123\x1b[0m | \x1b[1mINFO    \x1b[0m | skyrl_train.trainer:_log_metrics_stdout:1965 - "
    "\x1b[1mWANDB_MIRROR kind=train step={step} metrics={metrics}\x1b[0m\n"
)


def mirror(step: int, metrics: str, minute: int = 0) -> str:
    return MIRROR.replace("{minute:02d}", f"{minute:02d}").replace("{step}", str(step)).replace("{metrics}", metrics)


FULL = (
    '{"loss/avg_raw_advantages_abs": 0.31, "policy/policy_entropy": 0.412, '
    '"policy/policy_kl": 0.002, "policy/policy_loss": -0.004, '
    '"policy/ppo_clip_ratio": 0.0003, "policy/raw_grad_norm": 0.21, "policy/tis/imp_ratio_capped_fraction": 0.0, '
    '"policy/tis/imp_ratio_mean": 1.01, "policy/tis/log_ratio_abs_mean": 0.011, "reward/avg_pass_at_8": 0.75, '
    '"reward/avg_raw_reward": 0.619, "timing/step": 427.0, "trainer/global_step": 15}'
)


def test_the_mirror_line_gives_every_metric_of_the_contract() -> None:
    """RL-1, RL-12: entropy and the log-ratio are always there too."""
    summary = summary_of(mirror(15, FULL))

    assert summary.progress.step == 15
    assert summary.metrics == {
        "reward": 0.619, "pass_at_n": 0.75, "policy_loss": -0.004, "grad_norm": 0.21, "entropy": 0.412,
        "tis_log_ratio": 0.011, "tis_ratio": 1.01, "tis_capped": 0.0, "clip_ratio": 0.0003, "kl": 0.002,
    }  # fmt: skip
    assert summary.latest["advantage_abs"].value == 0.31
    assert summary.latest["step_time_s"].value == 427.0


def test_nan_and_infinity_are_values() -> None:
    """RL-14: a gradient that is not finite must be seen as such."""
    summary = summary_of(mirror(3, '{"policy/raw_grad_norm": NaN, "policy/policy_loss": -Infinity}'))

    assert math.isnan(float(summary.metrics["grad_norm"]))
    assert summary.metrics["policy_loss"] == -math.inf


def test_a_quote_of_a_long_line_shows_the_value_that_it_is_for() -> None:
    """PROBE-4: and stands in the line byte for byte."""
    log = mirror(15, FULL)
    summary = summary_of(log)
    quote = excerpt(summary.latest["reward"].said, "reward", width=80)

    assert quote is not None
    assert '"reward/avg_raw_reward": 0.619' in quote.text
    assert quote.text in log
    assert quote.line == 1


def test_the_last_name_of_a_line_of_many_thousand_characters_can_still_be_quoted() -> None:
    """PROBE-4: production mirrors hold hundreds of names, and the reward stands near their end."""
    names = ", ".join(f'"environment/tool_{n}_seconds_mean": {n}.5' for n in range(400))
    log = mirror(
        15, '{"async/staleness_max": 0, ' + names + ', "policy/raw_grad_norm": 0.21, "reward/avg_raw_reward": 0.619}'
    )
    state, _ = follow(None, log.encode(), 0)
    summary = summarise(state)
    for key, printed in (("reward", '"reward/avg_raw_reward": 0.619'), ("grad_norm", '"policy/raw_grad_norm": 0.21')):
        for point in (summary.latest[key], summary.series[key][-1]):
            quote = excerpt(point.said, key)
            assert quote is not None
            assert printed in quote.text
            assert log.encode()[quote.offset :].startswith(quote.text.encode())
    assert len(log) > 16_000
    assert len(json.dumps(state)) < 8_000


def test_broken_mirrors_are_counted_and_never_half_read() -> None:
    log = mirror(1, '{"reward/avg_raw_reward": 0.5, "policy/pol') + mirror(2, '{"_serialize_error": "unhashable"}')
    summary = summary_of(log)

    assert summary.metrics == {}
    assert summary.unread.malformed == 2


def test_a_metric_that_turned_into_a_word_is_counted() -> None:
    summary = summary_of(mirror(1, '{"reward/avg_raw_reward": "n/a", "policy/policy_loss": 0.5}'))

    assert "reward" not in summary.metrics
    assert summary.metrics["policy_loss"] == 0.5
    assert summary.unread.not_numbers == 1


def test_an_evaluation_mirror_moves_no_step() -> None:
    log = mirror(5, FULL) + MIRROR.replace("kind=train", "kind=eval").replace("{minute:02d}", "01").replace(
        "{step}", "6"
    ).replace("{metrics}", '{"eval/all/avg_score": 0.4}')
    summary = summary_of(log)

    assert summary.progress.step == 5
    assert summary.latest["eval_score"].value == 0.4


def test_a_dict_printed_over_many_lines_is_one_step() -> None:
    """The older form: floats as strings, each line with its prefix, other actors between the lines."""
    log = (
        f"{ENTRY}{{'async/staleness_max': 0,\n"
        f"{ENTRY} 'async/staleness_mean': '0.0000',\n"
        "(AsyncVLLMInferenceEngine pid=77) INFO 08-01 12:00:00 [loggers.py:248] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
        "Avg generation throughput: 2.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.2%\n"
        f"{ENTRY} 'policy/raw_grad_norm': '0.2100',\n"
        f"{ENTRY} 'reward/avg_raw_reward': '0.3510',\n"
        f"{ENTRY} 'trainer/global_step': 23}}\n"
    )
    summary = summary_of(log)

    assert summary.progress.step == 23
    assert (summary.metrics["reward"], summary.metrics["grad_norm"]) == (0.351, 0.21)
    assert [spoken.line for spoken in summary.latest["reward"].said] == [5]


def test_a_step_named_before_the_dict_is_its_step() -> None:
    """The console logger: the step stands alone, then the dict."""
    log = (
        "Step 12: \n{'policy/grad_norm': 0.25,\n 'reward/avg_raw_reward': 0.5}\nStep "
        "13:\n{'policy/grad_norm': 0.5, 'reward/avg_raw_reward': 0.25}\n"
    )
    summary = summary_of(log)

    assert [(point.step, point.value) for point in summary.series["reward"]] == [(12, 0.5), (13, 0.25)]


def test_a_dict_that_never_ends_is_counted() -> None:
    summary = summary_of("{'policy/raw_grad_norm': 0.25,\n" + "node exporter: step load 1.2\n" * 60)

    assert summary.unread.unclosed == 1


def test_the_plain_line_and_the_bare_status_speak_of_the_step_under_way() -> None:
    log = (
        "Training Step Progress:  50%|#####     | 4/8 [00:40<00:40, 10.0s/it]\n"
        f"{ENTRY}reward/avg_pass_at_8: 0.5, reward/avg_raw_reward: 0.31 (effective_batch=64 samples)\n"
        f"{ENTRY}{{'policy_loss': -0.02, 'raw_grad_norm': 0.4, 'policy_entropy': 0.6}}\n"
    )
    summary = summary_of(log)

    assert summary.progress.step == 4
    assert {key: [point.step for point in points] for key, points in summary.series.items()} == {
        "reward": [5], "pass_at_n": [5], "policy_loss": [5], "grad_norm": [5], "entropy": [5],
    }  # fmt: skip


def test_the_bar_and_its_banner_give_step_and_total() -> None:
    """The default bar carries a percentage between its name and N/M."""
    log = (
        f"{ENTRY}2026-08-01 12:00:00.000 | INFO | skyrl_train.trainer:train:10 - Total training steps: 80\n"
        "Training Step Progress:  34%|###3      | 26/80 [3:05:04<6:24:20, 427.05s/it]\r"
        "Training Step Progress:  34%|###4      | 27/80 [3:12:11<6:17:13, 427.05s/it]\r"
    )
    progress = summary_of(log).progress

    assert (progress.step, progress.total) == (27, 80)
    assert progress.rate_per_s == pytest.approx(1 / 427)
    assert progress.eta_s == pytest.approx(53 * 427)


def test_a_buffer_bar_is_progress_and_no_step() -> None:
    """BUCKET-3, LIVE-3: the buffer fills while no step has landed."""
    summary = summary_of("Generation Buffer Progress: 40/64 (62%) [721s] | buffer qsize=3\n", "rl")
    (counter,) = summary.counters

    assert summary.progress.step is None
    assert (counter.role, counter.done, counter.total) == ("buffer", 40, 64)
    assert summary.last_progress is not None


def test_a_frozen_buffer_is_no_progress_though_its_clock_runs() -> None:
    """LIVE-3: the same N/M with growing elapsed time is a stall."""
    log = "".join(
        f"Generation Buffer Progress: 40/64 (62%) [{elapsed}s] | buffer qsize=3\n" for elapsed in range(700, 4000, 300)
    )
    summary = summary_of(log)
    (counter,) = summary.counters

    assert counter.frozen_s == 3300 - 300 + 0
    assert counter.frames == 11
    assert summary.last_progress is not None
    assert summary.last_progress.said.line == 1


def test_a_trainer_that_hangs_behind_live_engines_shows_no_progress() -> None:
    """LIVE-4: engines keep printing while the trainer hangs."""
    engine = (
        "(AsyncVLLMInferenceEngine pid=7{n}) INFO 08-01 13:0{n}:00 [loggers.py:248] Engine "
        "000: Avg prompt throughput: 900.0 tokens/s, "
        "Avg generation throughput: 400.0 tokens/s, Running: 9 reqs, Waiting: 0 reqs, GPU KV cache usage: 10.2%\n"
    )
    summary = summary_of(mirror(7, FULL) + "".join(engine.replace("{n}", str(n)) for n in range(5)))

    assert summary.last_progress is not None
    assert summary.last_progress.said.line == 1
    assert summary.last_engine is not None
    assert summary.last_engine.said.line == 6


def test_timers_tell_which_span_is_open() -> None:
    """A span that began and has not ended is where the trainer is."""
    log = (
        f"{ENTRY}2026-08-01 12:00:00.000 | INFO | a:b:1 - Started: 'wait_for_generation_buffer'\n"
        f"{ENTRY}2026-08-01 12:02:00.000 | INFO | a:b:1 - Finished: 'wait_for_generation_buffer', time cost: 120.00s\n"
        f"{ENTRY}2026-08-01 12:02:01.000 | INFO | a:b:1 - Started: 'policy_train'\n"
    )
    timers = {timer.name: timer for timer in summary_of(log).timers}

    assert timers["wait_for_generation_buffer"].took_s == 120.0
    assert timers["wait_for_generation_buffer"].open_since is None
    assert timers["policy_train"].open_since is not None


def test_silently_skipped_steps_are_counted() -> None:
    """RL-14: the step counter moves on, the optimiser did not."""
    summary = summary_of("(FSDPPolicyWorkerBase pid=9) rank 0 grad_norm is not finite: nan\n" + mirror(8, FULL))

    assert summary.skipped_steps == 1
    assert summary.last_skip is not None
    assert "not finite" in summary.last_skip.said.text


@pytest.mark.parametrize(
    "line",
    [
        "Orchestrator restart failed. Returning all-failed output to avoid killing training job.",
        "Emergency orchestrator restart failed. Returning all-failed output.",
        "Batch generation complete: 0/64 successful, 64 failed instances, 0 masked (excluded from baseline)",
    ],
)
def test_batches_in_which_all_failed_are_counted(line: str) -> None:
    """RL-14: an all-failed batch trains on zeros."""
    assert summary_of(f"{ENTRY}{line}\n").all_failed_batches == 1


def test_a_batch_with_failures_is_not_all_failed() -> None:
    line = "Batch generation complete: 60/64 successful, 1 failed instances, 3 masked (excluded from baseline)"
    (reading,) = readings_of(f"{ENTRY}{line}\n")

    assert reading.metrics == {"successful": 60.0, "wanted": 64.0, "failed": 1.0, "masked": 3.0}
    assert summary_of(f"{ENTRY}{line}\n").all_failed_batches == 0


def test_reaching_the_last_step_is_said_with_its_number() -> None:
    """CHAIN-3"""
    summary = summary_of("2026-08-01 12:00:00.123 | INFO | t:f:1 - Reached max training steps (80)\n")

    assert (summary.progress.step, summary.progress.total) == (80, 80)
    assert summary.finished is not None


def test_a_run_that_resumes_at_its_end_is_complete() -> None:
    """CHAIN-3: exit 0 and no further step."""
    log = (
        f"{ENTRY}Resumed at global_step 80 >= max training steps (80); run is already COMPLETE.\n"
        f"{ENTRY}Training already complete on resume - exiting cleanly.\n"
    )
    summary = summary_of(log)

    assert (summary.progress.step, summary.progress.total) == (80, 80)
    assert summary.finished is not None
    assert summary.finish_word == "already complete"


def test_a_restart_from_scratch_is_seen_at_once() -> None:
    """RL-14: the run may have started again from step 0."""
    summary = summary_of(mirror(45, FULL) + f"{ENTRY}No checkpoint found, starting training from scratch\n")

    assert summary.progress.step == 0
    assert [(resume.before, resume.after) for resume in summary.resumes] == [(45, 0)]


def test_the_announced_checkpoint_is_known_by_number() -> None:
    """RL-8: 100 is more than 20, and an announcement is not yet a durable checkpoint."""
    log = "".join(
        f"{ENTRY}Successfully saved checkpoint for global_step_{n} to: /scratch/alice/ckpt\n" for n in (20, 100)
    )

    assert summary_of(log).checkpoint_step == 100


def test_millions_of_prob_diff_are_read_and_nothing_more() -> None:
    """RL-5: normal on healthy runs; it is no metric of the table."""
    summary = summary_of(
        "{'trainer/global_step': 30, 'reward/avg_raw_reward': 0.4, 'policy/rollout_train_prob_diff_mean': 4831022.0}\n"
    )

    assert summary.metrics == {"reward": 0.4}
    assert summary.latest["prob_diff"].value == 4831022.0


def test_effective_batch_belongs_to_its_step() -> None:
    summary = summary_of(f"{ENTRY}Step 12: effective_batch=56 samples (7/8 groups), discard_rate=12.5%\n")

    assert summary.progress.step is None
    assert summary.series["effective_samples"][0].step == 12
    assert summary.series["discard_rate"][0].value == 0.125


def test_agentic_and_standard_runs_are_told_apart() -> None:
    """RL-11: a run without trials is judged without them."""
    trial = "(RolloutCoordinator pid=5400) patch-3__ab12c: running agent...\n"

    assert summary_of(mirror(1, FULL)).flavor == "standard"
    assert summary_of(mirror(1, FULL) + trial).flavor == "agentic"
