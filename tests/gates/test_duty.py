"""PROBE-12: where trials spend their time, in numbers or not at all."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.dialects.trials import read_trial
from supervisor.gates import duty
from supervisor.model.readings import Trial
from tests.gates.cases import book
from tests.gates.some_trials import trial
from tests.some import NOON

LIMITS = book().limits.gating
MINUTE = timedelta(minutes=1)


def measured(*texts: str) -> duty.DutyCycle:
    found = duty.measure([read_trial(text.encode()) for text in texts], LIMITS)
    assert found is not None
    return found


def test_shares_of_model_tools_and_sandbox_are_medians_over_the_trials_that_tell_them():
    """A trial of 600 s: 4 s of set-up, 590.5 s of agent with 400 s of requests, 5 s of verifier, 0.5 s of teardown."""
    cycle = measured(*(trial(number, llm_s=400) for number in range(9)), trial(9))

    assert (cycle.measured, cycle.of) == (10, 10)
    assert cycle.shares["llm"].count == 9
    assert cycle.shares["llm"].median == pytest.approx(400 / 600)
    assert cycle.shares["tools"].median == pytest.approx(190.5 / 600)
    assert cycle.shares["agent"].median == pytest.approx(590.5 / 600)
    assert cycle.shares["lifecycle"].median == pytest.approx(4.5 / 600)
    assert cycle.churn is False
    assert cycle.facts["llm_share"] == pytest.approx(0.6667)


def test_quantiles_lie_between_the_trials():
    cycle = measured(*(trial(number, setup_s=seconds) for number, seconds in enumerate((1, 2, 3, 4, 40))))

    assert cycle.setup_s is not None
    assert (cycle.setup_s.p10, cycle.setup_s.median, cycle.setup_s.p90, cycle.setup_s.most) == pytest.approx(
        (1.4, 3, 25.6, 40)
    )


@pytest.mark.parametrize(("setup_s", "churn"), [(4, False), (12, True), (90, True)])
def test_churn_is_said_of_a_long_set_up_or_a_large_share_of_it(setup_s: float, churn: bool):
    assert measured(*(trial(number, setup_s=setup_s) for number in range(20))).churn is churn


def test_without_timings_there_is_no_duty_cycle():
    """Numbers or nothing."""
    bare = '{"trial_name": "patch-1__a", "verifier_result": {"rewards": {"reward": 1}}}'

    assert duty.measure([read_trial(bare.encode())], LIMITS) is None
    assert duty.measure([], LIMITS) is None


def test_times_that_cannot_be_compared_measure_nothing():
    """One naive and one aware time; a part longer than the whole."""
    naive = read_trial(trial(1, started_at="2026-07-01T11:00:00").encode())
    odd = Trial(name="patch-2__b", took_s=10.0, environment_setup_s=11.0, agent_s=-3.0)

    assert duty.measure([naive], LIMITS) is None
    found = duty.measure([odd], LIMITS)
    assert found is not None
    assert found.shares == {}


def test_a_verifier_that_ends_after_its_trial_is_a_release_race():
    late = trial(
        1, verifier={"started_at": (NOON - 6 * MINUTE).isoformat(), "finished_at": (NOON - 4 * MINUTE).isoformat()}
    )

    cycle = measured(late, trial(2))

    assert (cycle.races, cycle.raced_of) == (1, 2)


def patterns(*errors: tuple[str | None, int]) -> dict[str, str]:
    """Exception and minutes ago."""
    cycle = measured(
        *(trial(n, error=name, reward=None if name else 1.0, ago=ago * MINUTE) for n, (name, ago) in enumerate(errors))
    )
    return {each.name: each.pattern for each in cycle.errors}


def test_errors_in_one_spell_are_a_spike_and_errors_all_along_a_standing_fault():
    good = [(None, ago) for ago in range(5, 125, 5)]
    spell = [("DaytonaAuthError", ago) for ago in (61, 62, 63, 64)]
    steady = [("VerifierTimeoutError", ago) for ago in range(3, 120, 12)]

    assert patterns(*good, *spell, *steady) == {"DaytonaAuthError": "spike", "VerifierTimeoutError": "steady"}


def test_errors_that_began_just_now_are_no_spike_yet():
    """What is not over is not called transient."""
    assert patterns(*((None, ago) for ago in range(15, 125, 5)), ("DaytonaAuthError", 3), ("DaytonaAuthError", 4)) == {
        "DaytonaAuthError": "recent"
    }


def test_on_too_few_slots_no_pattern_is_named():
    assert patterns((None, 5), ("DaytonaAuthError", 6)) == {"DaytonaAuthError": ""}


def test_an_agents_own_end_is_no_error():
    """RL-6: context overflow and time-outs of agents are scored."""
    assert patterns(*(("AgentTimeoutError", ago) for ago in range(5, 125, 5))) == {}


TRIALS = st.builds(
    Trial,
    name=st.text(max_size=4),
    took_s=st.none() | st.floats(),
    environment_setup_s=st.none() | st.floats(),
    agent_s=st.none() | st.floats(),
    llm_s=st.none() | st.floats(),
    teardown_s=st.none() | st.floats(),
    verifier_late_s=st.none() | st.floats(),
    exceptions=st.lists(st.sampled_from(["A", "B"]), max_size=1).map(tuple),
    finished_at=st.none() | st.integers(0, 10**5).map(lambda seconds: NOON + timedelta(seconds=seconds)),
)


@given(st.lists(TRIALS, max_size=30))
def test_whatever_trials_tell_shares_lie_between_nothing_and_all(trials):
    found = duty.measure(trials, LIMITS)

    for spread in found.shares.values() if found is not None else ():
        assert 0 <= spread.p10 <= spread.median <= spread.p90 <= spread.most <= 1.001
