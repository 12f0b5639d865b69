"""Gate D: the run's own numbers over its last steps. Never a kill by itself."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.gates import dynamics
from supervisor.model.probe import Case, GateScore, Score
from tests.gates.cases import Failed, assert_quotes_stand, some_case
from tests.gates.some_trials import ENTRY, rl_log

HEALTHY: dict[str, float] = {
    "reward/avg_raw_reward": 0.5, "policy/policy_entropy": 0.4, "policy/raw_grad_norm": 0.2, "policy/policy_loss": -0.01,
    "policy/tis/log_ratio_abs_mean": 0.012, "policy/tis/imp_ratio_mean": 1.01, "policy/log_ratio_abs_max": 0.3,
    "loss/avg_raw_advantages_abs": 0.6, "timing/step": 118.0, "timing/policy_train": 40.0, "timing/generate": 70.0,
}  # fmt: skip
SKIPPED = (
    ENTRY
    + "2026-07-01 11:59:0{n}.000 | WARNING  | skyrl_train.workers:optim:80 - rank 0 grad_norm is not finite: nan\n"
)


def steps(count: int = 14, **last: float) -> list[dict[str, float]]:
    """Healthy steps; ``last`` (key by its short name) holds for the last three."""
    keys = {
        "reward": "reward/avg_raw_reward", "entropy": "policy/policy_entropy", "grad": "policy/raw_grad_norm", "loss": "policy/policy_loss",
        "ratio": "policy/tis/log_ratio_abs_mean", "largest": "policy/log_ratio_abs_max",
    }  # fmt: skip
    rows = [{**HEALTHY, "policy/raw_grad_norm": 0.2 + 0.01 * (step % 3)} for step in range(count)]
    for row in rows[-3:]:
        row.update({keys[name]: value for name, value in last.items()})
    return rows


def all_at(**values: float) -> list[dict[str, float]]:
    return [{**HEALTHY, **{name.replace("__", "/"): value for name, value in values.items()}} for _ in range(14)]


def judged(case: Case) -> GateScore:
    score = dynamics.judge(case)
    assert_quotes_stand(case, score.quotes)
    assert not score.hard
    return score


def of(log: str, **about: Any) -> GateScore:
    return judged(some_case({"log.txt": log}, **about))


def sft(*grads: float | str) -> str:
    rows = [
        f"{{'loss': 0.5, 'grad_norm': {grad}, 'learning_rate': 1e-05, 'epoch': {n / 100}}}\n"
        for n, grad in enumerate(grads)
    ]
    return "".join(rows)


SITUATIONS: dict[str, tuple[str, dict[str, Any], Score]] = {
    "healthy": (rl_log(steps()), {}, Score.PASS),
    "flat is not dying": (rl_log(all_at()), {}, Score.PASS),
    "a low flat reward": (rl_log([{**row, "reward/avg_raw_reward": 0.01} for row in steps()]), {}, Score.PASS),
    "a single spike of the grad norm": (rl_log([*steps(12, grad=4.0)[:-2], *steps(2)]), {}, Score.PASS),
    "one signal alone": (rl_log(steps(grad=4.0)), {}, Score.PASS),
    "two signals": (rl_log(steps(grad=4.0, entropy=0.05)), {}, Score.FAIL),
    "grad norm and log ratio": (rl_log(steps(grad=4.0, ratio=0.09)), {}, Score.FAIL),
    "a log ratio lifted by one token": (rl_log(steps(grad=4.0, ratio=0.09, largest=9.0)), {}, Score.PASS),
    "a reward that was there and is gone, with entropy": (rl_log(steps(reward=0.0, entropy=0.02)), {}, Score.FAIL),
    "two signals that last for long": (rl_log([*steps(14), *steps(40, grad=4.0, entropy=0.05)[-3:] * 9]), {}, Score.FAIL),
    "a steady fall of entropy": (rl_log([{**HEALTHY, "policy/policy_entropy": 0.8 - 0.02 * n, "policy/raw_grad_norm": 0.2 if n < 28 else 4.0} for n in range(30)]), {}, Score.PASS),
    "two signals, and recovered since": (rl_log([*steps(14, grad=4.0, entropy=0.05), *steps(3)]), {}, Score.PASS),
    "small numbers of a global denominator": (
        rl_log([{**HEALTHY, "policy/raw_grad_norm": 1e-5 * (1 + 2 * (n % 2)), "policy/tis/log_ratio_abs_mean": 1e-5 * (1 + n % 3)} for n in range(16)]),
        {},
        Score.PASS,
    ),
    "a huge difference of probabilities": (rl_log([{**HEALTHY, "policy/rollout_train_prob_diff_mean": 10.0**n} for n in range(16)]), {}, Score.PASS),
    "outside its bands": (rl_log(all_at(policy__tis__imp_ratio_mean=2.2)), {}, Score.PASS),
    "a loss that is no number": (rl_log([*steps(12), *({**HEALTHY, "policy/policy_loss": math.nan},) * 3]), {}, Score.FAIL),
    "steps skipped in silence": (rl_log(steps(), more=SKIPPED.format(n=1) + SKIPPED.format(n=2)), {}, Score.FAIL),
    "advantages of 0": (rl_log(all_at(loss__avg_raw_advantages_abs=0.0)), {}, Score.FAIL),
    "a correction that is always skipped": (rl_log(all_at(tis__skipped_fraction=1.0)), {}, Score.FAIL),
    "an ablation with two signals": (rl_log(steps(grad=4.0, entropy=0.05)), {"exempt": True}, Score.PASS),
    "an ablation that is no number": (rl_log([*steps(12), *({**HEALTHY, "policy/policy_loss": math.nan},) * 3]), {"exempt": True}, Score.FAIL),
    "nine steps": (rl_log(steps(9, grad=9.0, entropy=0.0)), {}, Score.NOT_APPLICABLE),
    "no metric at all": ("hello\n", {}, Score.NOT_APPLICABLE),
    "supervised, healthy": (sft(*([0.8, 0.9] * 10)), {"bucket": "sft"}, Score.PASS),
    "supervised, an explosion": (sft(*([0.8, 0.9] * 10), 80.0, 900.0), {"bucket": "sft"}, Score.FAIL),
    "supervised, a spike": (sft(*([0.8, 0.9] * 10), 80.0, 0.8), {"bucket": "sft"}, Score.PASS),
    "supervised, no number": (sft(*([0.8, 0.9] * 10), "nan", "nan"), {"bucket": "sft"}, Score.FAIL),
    "trials have no dynamics": (rl_log(steps()), {"bucket": "datagen"}, Score.NOT_APPLICABLE),
    "questions have none": (rl_log(steps()), {"bucket": "eval"}, Score.NOT_APPLICABLE),
}  # fmt: skip


@pytest.mark.parametrize("name", SITUATIONS)
def test_situations_and_their_scores(name: str):
    """RL-2 to RL-5, RL-9, RL-13, RL-14, SFT-4."""
    log, about, expected = SITUATIONS[name]

    score = of(log, **about)

    assert score.result is expected, score.reason
    assert score.result is not Score.FAIL or (score.cause and score.fix and "recover" in score.watch)


def test_without_a_log_there_is_no_judgement():
    """PROBE-3."""
    score = judged(some_case({"log.txt": Failed("Permission denied")}))

    assert score.result is Score.ERROR
    assert score.missing is not None
    assert score.missing.output == "Permission denied"


def test_a_failure_names_its_signals_and_quotes_a_line_for_each():
    score = of(rl_log(steps(grad=4.0, entropy=0.05)))

    assert score.reason.startswith("Grad norm 4 for 2 steps, usually 0.21; entropy 0.05, usually 0.4.")
    assert score.cause == "policy-collapse"
    assert any("raw_grad_norm" in quote.text and quote.line == 14 for quote in score.quotes)
    assert any("policy_entropy" in quote.text and quote.line == 14 for quote in score.quotes)


def test_a_pass_tells_the_halves_of_its_window_and_where_a_step_goes():
    score = of(rl_log(steps()))

    assert "reward 0.5 to 0.5, entropy 0.4 to 0.4" in score.reason
    assert "step 118 s, generation 70 s, training 40 s" in score.reason
    assert (score.facts["train_time_s"], score.facts["entropy"]) == (40.0, 0.4)


def test_a_band_that_is_left_is_told_and_fails_nothing():
    """RL-9: a run may live outside of one."""
    score = of(rl_log(all_at(policy__tis__imp_ratio_mean=2.2)))

    assert "Importance ratio is 2.2, outside its band (0.84 to 1.56)." in score.reason


VALUES = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 2)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(HEALTHY, VALUES)), min_size=8, max_size=24))
def test_whatever_the_numbers_are_it_is_never_hard_and_its_quotes_stand(rows):
    of(rl_log(rows))
