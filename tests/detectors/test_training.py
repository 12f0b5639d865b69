"""Eyes on trainers: what is called, on how many points, and what is left alone."""

from __future__ import annotations

import math
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.model.facts import PastEnd
from supervisor.model.job import JobState
from supervisor.model.lifecycle import Phase
from tests.detectors.looking import facts_of, found_in, rules_in
from tests.some import NOON, some_held, some_observation
from tests.stories.voices import BEGAN, BROKEN, engine, rl_run, sft_run, trial

NAN = float("nan")
SILENT = {"phase": Phase.SUSPECT, "seen_at": NOON - timedelta(hours=2)}


def falls_apart(steps: range, at: int, until: int | None = None, **only: float) -> str:
    return rl_run(steps, dict.fromkeys(range(at, until or steps.stop), only or BROKEN))


@given(seed=st.integers(0, 2**32), scale=st.sampled_from([1e-5, 0.006, 0.02, 0.3]), shaped=st.booleans())
@settings(max_examples=40, deadline=None)
def test_no_healthy_run_raises_a_flag_whatever_its_noise(seed: int, scale: float, shaped: bool) -> None:
    """RL-4, RL-5, RL-13: gradient norms of any size that stay as they were, and log ratios within their band."""
    assert rules_in(rl_run(range(1, 45), seed=seed, scale=scale, shaped=shaped)) == set()


def test_on_fewer_points_than_the_minimum_nothing_is_called() -> None:
    """RL-13"""
    assert found_in(falls_apart(range(1, 10), 5)) == []


def test_one_signal_is_a_note_and_two_on_one_step_are_a_collapse() -> None:
    """RL-2"""
    alone = falls_apart(range(1, 31), 28, **{"policy/policy_entropy": 0.1})
    both = falls_apart(range(1, 31), 28, **{"policy/policy_entropy": 0.1, "policy/raw_grad_norm": 4.0})

    assert rules_in(alone) == {("RL-2", "note")}
    assert rules_in(both) == {("RL-2", "fault")}


def test_a_single_spike_of_the_gradient_norm_is_no_signal() -> None:
    """RL-2: two steps in a row."""
    assert found_in(falls_apart(range(1, 31), 30, **{"policy/raw_grad_norm": 9.0})) == []


def test_a_norm_that_was_always_above_one_is_that_runs_own_scale() -> None:
    assert found_in(rl_run(range(1, 31), scale=4.0)) == []


def test_a_steady_fall_of_the_entropy_is_no_signal() -> None:
    """RL-2: off its trend, not off its start."""
    falling = {step: {"policy/policy_entropy": 0.6 - 0.01 * step} for step in range(1, 50)}

    assert found_in(rl_run(range(1, 50), falling)) == []


def test_a_log_ratio_that_one_token_lifts_is_no_signal() -> None:
    """RL-2: the mean doubles while its maximum stays bounded."""
    outlier = {"policy/tis/log_ratio_abs_mean": 0.09, "policy/log_ratio_abs_max": 19.0, "policy/policy_entropy": 0.1}

    assert ("RL-2", "fault") not in rules_in(falls_apart(range(1, 31), 29, **outlier))


def test_a_collapse_that_lasts_does_not_become_the_usual() -> None:
    """RL-2: held against the run as it was before."""
    finding = found_in(falls_apart(range(1, 100), 26))[0]

    assert finding.text.startswith("collapse since step 26")


def test_the_words_of_a_standing_collapse_do_not_change_from_tick_to_tick() -> None:
    """SAY-5: or the same alert would be said at each."""
    texts = {found_in(falls_apart(range(1, last), 26))[0].text for last in range(28, 70, 3)}

    assert len(texts) == 1


def test_a_run_that_recovers_is_not_called() -> None:
    """RL-13"""
    assert found_in(falls_apart(range(1, 45), 26, 29)) == []


@pytest.mark.parametrize("tag", ["zclip", "stale_clip", "maxgn09_hint", "SHAPED_ENTROPY"])
def test_an_ablations_collapse_is_an_observation_and_its_nan_a_failure(tag: str) -> None:
    """RL-3"""
    name = f"rl__math_{tag}"

    assert ("RL-2", "note") in rules_in(falls_apart(range(1, 31), 26), name=name)
    assert ("RL-2", "fault") not in rules_in(falls_apart(range(1, 31), 26), name=name)
    assert ("RL-14", "fault") in rules_in(falls_apart(range(1, 31), 28, **{"policy/policy_loss": NAN}), name=name)


def test_outliers_of_the_probability_difference_say_nothing() -> None:
    """RL-5"""
    assert found_in(falls_apart(range(1, 31), 20, **{"policy/rollout_train_prob_diff_mean": 8e9})) == []


def test_a_few_of_the_newest_trials_passing_is_a_signal() -> None:
    """RL-2: under a tenth over the last hundred, where more did before."""
    lines = [trial(f"t{n}__ab", reward=float(n < 200 and n % 2)) for n in range(320)]
    log = falls_apart(range(1, 31), 30, **{"policy/policy_entropy": 0.1}) + "".join(lines)

    assert "0 of the newest 100 trials passed" in found_in(log)[0].text


def test_a_gradient_that_is_no_number_is_watched_once_and_a_fault_when_it_stays() -> None:
    """RL-14: the step counter moves on all the same."""
    once, twice = (falls_apart(range(1, 21), at, **{"policy/raw_grad_norm": NAN}) for at in (20, 19))

    assert rules_in(once) == {("RL-14", "watch")}
    assert rules_in(twice) == {("RL-14", "fault")}


def test_steps_that_the_optimiser_skips_in_silence_are_told() -> None:
    """RL-14"""
    log = rl_run(range(1, 12)) + "rank 0 grad_norm is not finite: nan\n" + rl_run(range(12, 15))
    finding = next(each for each in found_in(log) if each.key == "RL-14/skipped")

    assert finding.quotes[0].text == "rank 0 grad_norm is not finite: nan"
    assert rules_in(log + rl_run(range(15, 40))) == {("RL-14", "note")}, "long over"


def test_a_batch_that_failed_whole_is_told_and_one_that_was_stale_is_not() -> None:
    """RL-14"""
    failed = "Orchestrator restart failed. Returning all-failed output to avoid killing training job.\n"
    stale = "All 8 groups in mini-batch were stale and discarded (max_staleness_steps=2). Training will wait for fresh generation data.\n"

    assert ("RL-14", "watch") in rules_in(rl_run(range(1, 15)) + failed)
    assert rules_in(rl_run(range(1, 15)) + stale) == set()


def test_advantages_of_zero_for_ten_steps_train_on_nothing() -> None:
    """RL-14"""
    assert ("RL-14", "watch") in rules_in(falls_apart(range(1, 31), 20, **{"loss/avg_raw_advantages_abs": 0.0}))
    assert found_in(falls_apart(range(1, 31), 25, **{"loss/avg_raw_advantages_abs": 0.0})) == []


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("policy/tis/imp_ratio_mean", 1.9),
        ("policy/ppo_clip_ratio", 0.05),
        ("policy/tis/imp_ratio_capped_fraction", 0.2),
        ("policy/tis/imp_ratio_mean", 0.5),
    ],
)
def test_what_lies_outside_its_healthy_band_for_ten_steps_is_noted(printed: str, value: float) -> None:
    """RL-9"""
    assert rules_in(falls_apart(range(1, 31), 20, **{printed: value})) == {("RL-9", "note")}
    assert found_in(falls_apart(range(1, 31), 27, **{printed: value})) == []


def test_a_run_that_counts_from_zero_again_is_told() -> None:
    """RL-14: a silent restart from step 0."""
    finding = found_in(rl_run(range(1, 60)), rl_run(range(1, 4)))[0]

    assert (finding.rule, finding.text) == ("RL-14", "started again from step 1 after step 59")
    assert found_in(rl_run(range(1, 6)), rl_run(range(1, 4))) == [], "before the first checkpoint it is no surprise"
    assert found_in(rl_run(range(1, 60)), rl_run(range(41, 50))) == [], "a resume from a checkpoint"


def test_attempts_that_end_at_one_step_are_doomed() -> None:
    """CHAIN-5: and a quote of an earlier attempt's log is not passed off as this one's."""
    finding = found_in(rl_run(range(1, 28)), rl_run(range(21, 28)), rl_run(range(21, 24)))[0]

    assert (finding.rule, finding.severity.value) == ("CHAIN-5", "fault")
    assert "step 27" in finding.text
    assert found_in(rl_run(range(1, 28)), rl_run(range(21, 41)), rl_run(range(41, 44))) == []


def test_engines_that_print_do_not_hide_a_dead_trainer() -> None:
    """LIVE-4"""
    log = rl_run(range(1, 20)) + engine(BEGAN + timedelta(hours=5))
    facts = facts_of(log, **SILENT)

    assert facts.log.progress_at == NOON - timedelta(hours=2)
    assert rules_in(log, **SILENT) == {("LIVE-4", "watch")}


def test_a_bar_that_stands_still_by_its_own_clock_is_a_stall_though_lines_arrive() -> None:
    """LIVE-3"""
    frozen = "".join(
        f"\rTraining Step Progress:  24%|##  | 19/80 [{hours}:30:00<9:00:00, 420.0s/it]" for hours in range(1, 7)
    )

    assert rules_in(rl_run(range(1, 20)) + frozen + "\n") == {("LIVE-3", "watch")}
    assert rules_in(rl_run(range(1, 20))) == set()


def test_a_log_that_is_silent_whole_is_silent() -> None:
    """LIVE-2"""
    from tests.some import some_log

    log = rl_run(range(1, 20))
    facts = facts_of(log, **SILENT)
    quiet = some_log(timedelta(hours=2), cadence=facts.log.cadence, speaks_steps=True)

    assert rules_in(log, log=quiet, **SILENT) == {("LIVE-2", "watch")}
    assert rules_in(log, log=quiet, **SILENT | {"phase": Phase.WEDGED}) == {("LIVE-2", "watch")}, (
        "a hang clears no flag"
    )


# -- supervised fine-tuning --------------------------------------------------------------------------------------------


def said(loss: str, grad: str) -> str:
    return f"{{'loss': {loss}, 'grad_norm': {grad}, 'learning_rate': 1e-05, 'epoch': 0.1}}"


def test_a_loss_that_is_no_number_is_a_fault() -> None:
    """SFT-4"""
    log = sft_run(1, 60, 916, changes={step: said("nan", "nan") for step in (59, 60)})
    finding = found_in(log, bucket="sft")[0]

    assert (finding.rule, finding.severity.value, finding.text) == ("SFT-4", "fault", "loss is NaN since step 59")


def test_a_half_precision_run_that_finds_its_loss_scale_is_healthy() -> None:
    """SFT-4: the first gradients overflow, and one now and then; the losses are numbers all the time."""
    first = {step: said("1.9", value) for step, value in ((1, "inf"), (2, "nan"), (3, "inf"))}

    assert rules_in(sft_run(1, 3, 916, changes=first), bucket="sft") == {("SFT-4", "note")}
    assert rules_in(sft_run(1, 60, 916, changes={60: said("1.2", "inf")}), bucket="sft") == {("SFT-4", "note")}
    lasts = {step: said("1.2", "inf") for step in (59, 60)}
    assert rules_in(sft_run(1, 60, 916, changes=lasts), bucket="sft") == {("SFT-4", "fault")}
    hidden = {step: said("0.0", "nan") for step in (1, 2)}
    assert ("SFT-4", "fault") in rules_in(sft_run(1, 2, 916, changes=hidden), bucket="sft")


def test_a_loss_of_zero_beside_a_gradient_of_nan_is_one_too() -> None:
    """SFT-4: the Trainer prints 0.0 for a loss that is none."""
    log = sft_run(1, 60, 916, changes={step: said("0.0", "nan") for step in (59, 60)})

    assert ("SFT-4", "fault") in rules_in(log, bucket="sft")


def test_a_gradient_that_explodes_is_watched_and_a_spike_is_not() -> None:
    """SFT-4"""
    assert rules_in(
        sft_run(1, 60, 916, changes={59: said("2.0", "800.0"), 60: said("2.4", "900.0")}), bucket="sft"
    ) == {("SFT-4", "watch")}
    assert found_in(sft_run(1, 60, 916, changes={60: said("2.0", "800.0")}), bucket="sft") == []


def test_an_explosion_that_lasts_keeps_its_words_until_it_is_over() -> None:
    """SFT-4, SAY-5"""

    def boom(last: int, until: int = 99) -> list[str]:
        log = sft_run(1, last, 916, changes={step: said("2.0", "800.0") for step in range(40, min(last, until) + 1)})
        return [finding.text for finding in found_in(log, bucket="sft")]

    assert {*boom(41), *boom(60), *boom(90)} == {"grad norm explodes at step 40: 800 where 0.88 is usual"}
    assert boom(60, until=45) == []


def test_healthy_fine_tuning_bears_no_flag() -> None:
    assert found_in(sft_run(1, 320, 916), bucket="sft", name="sft__a") == []


@given(
    values=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=40), seed=st.integers(0, 99)
)
@settings(max_examples=60, deadline=None)
def test_no_values_at_all_can_break_the_eyes(values: list[float], seed: int) -> None:
    chance = Random(seed)
    keys = list(BROKEN)
    changes = {step: {chance.choice(keys): value} for step, value in enumerate(values, 1)}

    for finding in found_in(rl_run(range(1, len(values) + 1), changes)):
        assert finding.text
        assert finding.quotes
        assert not math.isnan(len(finding.text))


# -- attempts ----------------------------------------------------------------------------------------------------------


def ends(*minutes: int, step: int | None = 27, **how: object) -> tuple[PastEnd, ...]:
    values = {"state": JobState.FAILED, "words": "FAILED", "exit_code": 1} | how
    return tuple(
        PastEnd(attempt=n, started_at=NOON, ended_at=NOON + timedelta(minutes=took), step=step, **values)  # type: ignore[arg-type]
        for n, took in enumerate(minutes, 1)
    )


def after(past: tuple[PastEnd, ...], bucket: str = "sft", **seen: object) -> set[tuple[str, str]]:
    more = {"observation": some_observation(name="train-42", **seen)} if seen else {}
    return rules_in("", bucket=bucket, held=some_held(bucket=bucket, past=past), **more)


def test_sigterm_after_one_and_the_same_time_is_a_limit_and_not_chance() -> None:
    """SFT-4"""
    term = {"exit_code": None, "signal": 15, "words": "REQUEUED", "state": JobState.REQUEUED}

    assert after(ends(120, 121, 119, step=None, **term)) >= {("SFT-4", "watch")}
    assert ("SFT-4", "watch") not in after(ends(120, 340, 61, **term))
    assert after(ends(120, 121, **term), bucket="other") == set()


def test_a_job_that_requeues_itself_at_its_time_limit_is_a_chain_and_no_incident() -> None:
    """CHAIN-1: it is told a few minutes before its time runs out, at one and the same time of course."""
    term = {"exit_code": None, "signal": 15, "words": "REQUEUED", "state": JobState.REQUEUED}
    past = (*ends(1435, step=100, **term), *ends(1436, step=200, **term), *ends(1434, step=300, **term))

    assert after(past, time_limit=timedelta(hours=24)) == set()
    assert ("SFT-4", "watch") in after(past, time_limit=timedelta(hours=72))


def test_attempts_that_fail_alike_at_one_step_are_doomed() -> None:
    """CHAIN-5"""
    assert after(ends(30, 90)) == {("CHAIN-5", "fault")}
    assert after(ends(30)) == set()
    assert after(ends(30, 90, step=None)) == set(), "without a step it takes one more"
    assert after(ends(30, 90, 40, step=None)) == {("CHAIN-5", "fault")}
    assert after((*ends(30), *ends(90, step=41))) == set()
    term = {"exit_code": None, "signal": 15, "words": "PREEMPTED", "state": JobState.REQUEUED}
    assert after(ends(30, 90, 210, **term)) == set(), "whom a preemption ends did not fail"
