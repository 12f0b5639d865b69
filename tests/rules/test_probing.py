"""When a job is probed, what its setting is, and what a verdict says of it later."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.findings import Quote
from supervisor.model.job import NO_DETAILS, Details, JobState
from supervisor.model.lifecycle import Lifecycle, Phase
from supervisor.model.probe import Mark, Ruling, Standing
from supervisor.rules.memory import Memory
from supervisor.rules.probing import (
    AGAIN_AFTER_KILL,
    REQUESTED,
    SELDOM,
    SUSPECTED,
    UNTESTED,
    Agenda,
    Judged,
    fresh_flavour,
    hung_by,
    mark_of,
    origin_of,
    progressed,
    setting_of,
    wanted,
)
from tests.some import BOOK, HOUR, LIMITS, MINUTE, NOON, some_held, some_key, some_log, some_observation

TRAIN = "python -m train --config configs/qwen.yaml --lr 1e-6 --seed 1 trainer.experiment_name=a output_dir=/scratch/a"


def a_job(
    command: str | None = TRAIN, name: str = "rl__gsm8k", job: str = "4711", phase: Phase = Phase.RUNNING, **changes
):
    details = Details(command=command) if command else NO_DETAILS
    seen = replace(some_observation(job), name=name, node_count=4)
    return some_held(job, phase, bucket="rl", details=details, observation=seen, **changes)


def a_verdict(ruling: Ruling = Ruling.NO_KILL, at=NOON - MINUTE, **changes):
    values = {
        "id": 7, "job": some_key("4711"), "attempt": 1, "taken_at": at, "ruling": ruling, "passed": False, "wedged": False,
        "cause": "", "reason": "", "quotes": (), "mark": Mark(at=at), "setting": None,
    }  # fmt: skip
    return Standing(**(values | changes))


def asked(held, standing=None, passed=frozenset(), **more):
    return wanted(held, standing, setting_of(held), passed, NOON, LIMITS, **more)


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "again",
    [
        TRAIN.replace("--seed 1", "--seed 77"),
        TRAIN.replace("experiment_name=a", "experiment_name=b").replace(
            "output_dir=/scratch/a", "output_dir=/scratch/b"
        ),
        TRAIN.replace("--lr 1e-6", "--lr 1e-6 --run-name rl-20260701-1200"),
        TRAIN + " --master_port 29501",
    ],
)
def test_a_relaunch_of_the_same_setting_is_known_by_what_it_runs_not_by_its_names(again):
    """RL-10: run names, places, seeds and ports differ from launch to launch."""
    assert setting_of(a_job(again, job="4712", name="rl__other")) == setting_of(a_job())


@pytest.mark.parametrize(
    "changed",
    [
        a_job(TRAIN.replace("1e-6", "2e-6")),
        a_job(TRAIN.replace("qwen.yaml", "llama.yaml")),
        a_job(TRAIN + " --model.name org/model-b"),
        a_job(TRAIN + " model.revision=0123abc"),
        a_job(TRAIN + " --image registry/train:v2"),
        replace(a_job(), observation=replace(a_job().observation, node_count=8)),
        replace(a_job(), bucket="sft"),
    ],
)
def test_config_model_revision_image_and_geometry_make_another_setting(changed):
    """RL-10"""
    assert setting_of(changed) != setting_of(a_job())


def test_an_image_and_a_model_are_told_apart_though_a_run_name_stands_beside_them():
    """RL-10: ``model.name`` says what is trained, ``--name`` what the run is called."""
    first = a_job("train model.name=a --name x")

    assert setting_of(first) == setting_of(a_job("train model.name=a --name y"))
    assert setting_of(first) != setting_of(a_job("train model.name=b --name x"))


def test_a_script_alone_tells_nothing_so_each_launch_is_a_setting_of_its_own():
    """RL-10: what the script does may have changed since."""
    first = a_job("/home/alice/rl.sbatch", first_seen_at=NOON - HOUR)
    later = a_job("/home/alice/rl.sbatch", job="4712", first_seen_at=NOON)

    assert setting_of(first) != setting_of(later)
    assert setting_of(a_job(None, job="1")) != setting_of(a_job(None, job="2"))


def test_the_links_of_a_chain_share_their_setting():
    """RL-10, CHAIN-2"""
    first = a_job("/home/alice/rl.sbatch", first_seen_at=NOON - HOUR)
    link = a_job("/home/alice/rl.sbatch", job="4712", first_seen_at=NOON, predecessor="4711")
    memory = Memory([first, link])

    assert origin_of(memory, link) is first
    assert setting_of(link, origin_of(memory, link)) == setting_of(first)


def test_the_attempts_of_a_job_share_their_setting():
    first = a_job()
    again = replace(first, life=replace(first.life, attempt=2), key=some_key("4711", "2000"))

    assert setting_of(again) == setting_of(first)


@pytest.mark.parametrize(
    ("name", "flavour"),
    [
        ("rl__smoke_a", "smoke"),
        ("debug-rl", "debug"),
        ("rl-smoke-test-2", "smoke"),
        ("rl__debugger", None),
        ("rl__a", None),
    ],
)
def test_smoke_and_debug_are_read_off_the_name_as_words(name, flavour):
    """RL-10"""
    assert fresh_flavour(a_job(name=name)) == flavour


def test_each_smoke_run_is_a_setting_of_its_own():
    """RL-10"""
    assert setting_of(a_job(name="rl__smoke", job="1111")) != setting_of(a_job(name="rl__smoke", job="2222"))


@given(st.text(max_size=300), st.text(max_size=12))
def test_any_command_gives_a_setting_that_stays_the_same(command, job):
    held = a_job(command or None, job=job)

    assert setting_of(held) == setting_of(held)
    assert len(setting_of(held)) == 24


# -- when --------------------------------------------------------------------------------------------------------------


def test_an_rl_job_in_a_new_setting_is_probed_at_every_tick_until_one_passes():
    """RL-10"""
    held = a_job()

    assert asked(held).priority == UNTESTED
    assert asked(held, a_verdict(at=NOON - 15 * MINUTE)) is not None
    assert asked(held, a_verdict(at=NOON - 5 * MINUTE)) is None, "a closer look between ticks is no tick"
    assert asked(held, a_verdict(Ruling.ERROR, at=NOON - 15 * MINUTE)) is not None
    assert asked(held, passed={setting_of(held)}) is None
    assert asked(held, passed=None) is None, "switched off"


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.STARTING, JobState.SUSPENDED, JobState.COMPLETING])
def test_nothing_is_probed_before_it_runs(state):
    held = a_job()

    assert asked(replace(held, observation=replace(held.observation, state=state))) is None


def test_bring_up_is_not_probed_within_its_limit():
    """LIVE-6"""
    assert asked(a_job(phase=Phase.BRING_UP)) is None


@pytest.mark.parametrize("bucket", ["sft", "datagen", "eval", "other"])
def test_only_rl_jobs_are_probed_for_a_new_setting_and_every_bucket_for_suspicion(bucket):
    """RL-10, LIVE-2"""
    assert asked(replace(a_job(), bucket=bucket)) is None
    assert asked(replace(a_job(phase=Phase.SUSPECT), bucket=bucket)).priority == SUSPECTED


def test_a_suspect_is_probed_at_once_and_again_ever_more_rarely():
    """PROBE-14: no job is probed without end."""
    held = a_job(phase=Phase.SUSPECT, life=Lifecycle(phase=Phase.SUSPECT, since=NOON - 6 * HOUR))
    before, just_after = a_verdict(at=NOON - 7 * HOUR), a_verdict(at=held.life.since + MINUTE)

    assert asked(held) is not None
    assert asked(held, before) is not None, "that verdict is of an earlier suspicion"
    assert wanted(held, just_after, "s", None, held.life.since + 2 * MINUTE, LIMITS) is None
    assert wanted(held, just_after, "s", None, held.life.since + 4 * MINUTE, LIMITS) is not None
    assert asked(held, a_verdict(at=NOON - 50 * MINUTE)) is None, "it stands for hours already"
    assert asked(held, a_verdict(Ruling.ERROR, at=NOON - SELDOM)) is not None


def test_a_kill_that_was_not_proposed_is_looked_at_again_but_not_soon():
    held = a_job(phase=Phase.WEDGED, life=Lifecycle(phase=Phase.WEDGED, since=NOON - 60 * HOUR))

    assert asked(held, a_verdict(Ruling.KILL, at=NOON - 2 * HOUR)) is None
    assert asked(held, a_verdict(Ruling.KILL, at=NOON - AGAIN_AFTER_KILL)) is not None


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.SUSPECT, Phase.WEDGED])
def test_nothing_is_probed_while_its_kill_waits_for_a_person(phase):
    assert asked(a_job(phase=phase), proposed=True) is None


def test_a_verdict_of_an_earlier_attempt_is_none_of_this_one():
    held = a_job(phase=Phase.SUSPECT)
    held = replace(held, life=replace(held.life, attempt=2))

    assert asked(held, a_verdict(Ruling.KILL)) is not None
    assert mark_of(held, a_verdict(Ruling.KILL)) == mark_of(held, None)


def test_wanting_twice_is_the_same_as_once_until_a_verdict_came():
    """One in flight per job."""
    held = a_job(phase=Phase.SUSPECT)

    assert mark_of(held, None) == mark_of(held, None)
    assert mark_of(held, a_verdict()) != mark_of(held, None)
    assert REQUESTED < SUSPECTED < UNTESTED


@given(st.integers(0, 10**6), st.sampled_from(Ruling))
def test_a_suspect_of_any_age_is_looked_at_again_within_a_day(age, ruling):
    """Doubt never ends the looking."""
    since = NOON - timedelta(seconds=age)
    held = a_job(phase=Phase.SUSPECT, life=Lifecycle(phase=Phase.SUSPECT, since=since))
    verdict = a_verdict(ruling, at=max(since, NOON - MINUTE))

    assert wanted(held, verdict, "s", None, NOON + AGAIN_AFTER_KILL, LIMITS) is not None


# -- what a verdict says later -----------------------------------------------------------------------------------------

LINE = Quote("log.log", 3, "step 15")


def a_wedge(**changes):
    mark = Mark(at=NOON, step=15, progress_at=NOON - 2 * HOUR)
    return a_verdict(Ruling.KILL, wedged=True, reason="no step for 2 h", quotes=(LINE,), mark=mark, **changes)


STILL = some_log(2 * HOUR, step=15)


def test_a_kill_by_liveness_says_that_the_job_hangs_with_its_quotes():
    """LIVE-5"""
    found = hung_by(a_wedge(), a_job(phase=Phase.SUSPECT), STILL)

    assert found.quotes == (LINE,)
    assert "no step for 2 h" in found.text


@pytest.mark.parametrize(
    "log", [replace(STILL, progress_at=NOON - HOUR), replace(STILL, step=16), some_log(MINUTE, step=15)]
)
def test_progress_since_its_mark_ends_it(log):
    """LIVE-4, KILL-2"""
    assert hung_by(a_wedge(), a_job(phase=Phase.WEDGED), log) is None
    assert progressed(a_wedge().mark, log)


def test_output_without_progress_does_not_end_it():
    """LIVE-3: heartbeats go on."""
    log = replace(STILL, last_output_at=NOON + MINUTE)

    assert hung_by(a_wedge(), a_job(phase=Phase.WEDGED), log) is not None


def test_neither_another_attempt_nor_a_lesser_verdict_hangs():
    held = a_job(phase=Phase.SUSPECT)

    assert hung_by(a_wedge(attempt=2), held, STILL) is None
    assert hung_by(replace(a_wedge(), wedged=False), held, STILL) is None
    assert hung_by(replace(a_wedge(), ruling=Ruling.ERROR), held, STILL) is None
    assert hung_by(None, held, STILL) is None


# -- the agenda --------------------------------------------------------------------------------------------------------


def agreed(agenda, memory, standing=None, now=NOON, asked_for=(), changed=None, passed=frozenset(), proposed=()):
    judged = Judged(standing=standing or {}, proposed=proposed, passed=passed)
    return agenda.errands(memory, changed or {}, asked_for, judged, BOOK, now, 12 * MINUTE)


def test_what_is_wanted_is_queued_once_and_again_only_after_its_verdict():
    """RL-10: one in flight per job."""
    held = a_job()
    memory, agenda = Memory([held]), Agenda()

    (first,) = agreed(agenda, memory)
    assert agreed(agenda, memory, now=NOON + HOUR) == []
    assert agreed(agenda, memory, {held.key: a_verdict(at=NOON + HOUR)}, NOON + HOUR) == []
    (second,) = agreed(agenda, memory, {held.key: a_verdict(at=NOON + HOUR)}, NOON + 2 * HOUR)
    assert first.dedupe != second.dedupe


def test_an_agenda_that_was_lost_wants_the_very_same_errand_again():
    """After a crash: the store keeps it once, by its mark."""
    memory = Memory([a_job(phase=Phase.SUSPECT)])

    assert agreed(Agenda(), memory) == agreed(Agenda(), memory)


def test_suspects_come_before_new_settings():
    memory = Memory([a_job(job="1"), a_job(job="2", phase=Phase.SUSPECT), a_job(job="3")])

    assert [each.job.id for each in agreed(Agenda(), memory)] == ["2", "1", "3"]


def test_a_job_that_became_suspect_by_its_first_reading_is_probed_too():
    """It is not remembered yet."""
    held = a_job(phase=Phase.SUSPECT)

    (errand,) = agreed(Agenda(), Memory(), asked_for={"4711"}, changed={"4711": held})
    assert errand.job == held.key


def test_a_job_that_changed_is_decided_anew():
    held = a_job()
    memory, agenda = Memory([held]), Agenda()
    passed = {setting_of(held)}
    assert agreed(agenda, memory, passed=passed) == []
    suspect = replace(held, life=Lifecycle(phase=Phase.SUSPECT, since=NOON))

    (errand,) = agreed(agenda, memory, passed=passed, changed={"4711": suspect})
    assert errand.payload["priority"] == SUSPECTED


def test_a_kill_that_waits_or_was_denied_is_looked_at_by_the_clock_alone():
    held = a_job(phase=Phase.WEDGED, life=Lifecycle(phase=Phase.WEDGED, since=NOON))
    memory, agenda = Memory([held]), Agenda()
    standing = {held.key: a_verdict(Ruling.KILL, at=NOON - MINUTE)}

    assert agreed(agenda, memory, standing, proposed={(held.key, 1)}) == []
    assert agreed(agenda, memory, standing, NOON + HOUR) == []
    assert len(agreed(agenda, memory, standing, NOON + AGAIN_AFTER_KILL)) == 1


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.SUSPECT])
@pytest.mark.parametrize("passed", [None, frozenset()])
def test_the_agenda_wants_what_the_rule_wants(phase, passed):
    held = a_job(phase=phase)

    alone = wanted(held, None, setting_of(held), passed, NOON, LIMITS)
    assert len(agreed(Agenda(), Memory([held]), passed=passed)) == (alone is not None)
