"""What may be proposed, and whether what was approved may be carried out now. In doubt there is no leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.model.facts import Held
from supervisor.model.findings import Quote
from supervisor.model.job import JobState
from supervisor.model.lifecycle import Lifecycle, Phase
from supervisor.model.logs import LogState
from supervisor.model.probe import GateScore, Mark, Missing, Restarts, Ruling, Score, Verdict
from supervisor.model.proposals import Decision, Marks, Proposal, ProposalState, Refusal, Stage, StandingRule
from supervisor.model.records import Hold
from supervisor.rules.leave import (
    forbidden,
    held_back,
    may_carry_out,
    may_go_on,
    may_propose,
    silence_key,
    still_open,
    which_rule,
)
from tests.some import HOUR, MINUTE, NOON, some_held, some_key, some_log, some_observation

QUOTE = Quote("42.out", 812, "step 15/80")
THEN = NOON - 30 * MINUTE
"""When the verdict was taken."""


def job(**changes: Any) -> Held:
    """Hung since an hour before the verdict."""
    log = some_log(90 * MINUTE, step=15, total=80)
    values: dict[str, Any] = {"life": Lifecycle(phase=Phase.WEDGED, since=THEN), "bucket": "rl", "log": log}
    return some_held(**(values | changes))


def verdict(ruling: Ruling = Ruling.KILL, **changes: Any) -> Verdict:
    hard = ruling is Ruling.KILL
    gate = GateScore(
        gate="A",
        name="liveness",
        result=Score.FAIL,
        reason="no step for 60 min",
        quotes=(QUOTE,),
        hard=hard,
        wedge=hard,
        cause="silent-hang",
        fix="set a timeout",
    )
    values: dict[str, Any] = {
        "job": some_key(),
        "name": "train-42",
        "attempt": 1,
        "taken_at": THEN,
        "ruling": ruling,
        "confidence": "high",
        "gates": (gate,),
        "restarts": Restarts(),
        "cause": "silent-hang" if hard else "",
        "reasoning": "it stands still",
        "next_steps": (),
        "flip_signal": "a step",
        "evidence": "/e",
        "mark": Mark(at=THEN, step=15, total=80, progress_at=NOON - 90 * MINUTE),
    }
    return Verdict(**(values | changes))


def fresh(**changes: Any) -> Verdict:
    return verdict(**({"taken_at": NOON - MINUTE} | changes))


def decision(**changes: Any) -> Decision:
    approved = verdict()
    values: dict[str, Any] = {
        "id": 1,
        "proposal": 1,
        "job": approved.job,
        "job_row": 1,
        "attempt": 1,
        "verdict": 1,
        "digest": approved.digest,
        "approved_by": "alice@box",
        "role": None,
        "reason": "it hangs",
        "approved_at": NOON - 10 * MINUTE,
        "expires_at": NOON + 50 * MINUTE,
        "mode": "ask",
        "stage": Stage.APPROVED,
    }
    return Decision(**(values | changes))


def asked(**changes: Any) -> Refusal | None:
    """May it be carried out now, where nothing but ``changes`` is in the way."""
    values: dict[str, Any] = {
        "decision": decision(),
        "verdict": verdict(),
        "held": job(),
        "fresh": fresh(),
        "holds": (),
        "marks": Marks(),
        "now": NOON,
    }
    return may_carry_out(**(values | changes))


def hold(scope: str, target: str) -> Hold:
    return Hold(id=3, scope=scope, target=target, reason="power work", by="bob", since=NOON)


# ---------------------------------------------------------------- may it be proposed


def test_a_kill_on_a_job_of_ours_may_be_proposed():
    assert may_propose(verdict(), job(), Marks(own={"cluster-a": frozenset({"alice"})})) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"verdict": verdict(Ruling.NO_KILL)}, "the ruling is NO-KILL"),
        ({"exempt": True}, "a tagged ablation or calibration is observed, never acted on"),
        ({"marks": Marks(no_kill_clusters=frozenset({"cluster-a"}))}, "cluster cluster-a is marked no_kill"),
        ({"marks": Marks(no_kill=("hero-*", "TRAIN-4?"))}, "its name fits the no-kill pattern 'TRAIN-4?'"),
        ({"marks": Marks(own={"cluster-a": frozenset({"bob"})})}, "it is a job of alice, not one of ours"),
        ({"held": job(key=some_key(incarnation="2000"))}, "attempt 1 is over: the job stands at attempt 1"),
        ({"held": job(life=Lifecycle(phase=Phase.WEDGED, since=NOON, attempt=2))}, "attempt 1 is over: the job stands at attempt 2"),
        ({"held": job(life=Lifecycle(phase=Phase.TERMINAL, since=NOON))}, "it has ended"),
        ({"held": job(log=some_log(MINUTE, step=16))}, "it progressed since the verdict (step 16, progress at 2026-07-01T11:59:00Z)"),
    ],
)  # fmt: skip
def test_a_kill_is_not_proposed_where_something_speaks_against_it(changes, why):
    """KILL-5, RL-3, EVAL-4."""
    values = {"verdict": verdict(), "held": job(), "marks": Marks()} | changes

    assert may_propose(values["verdict"], values["held"], values["marks"], exempt=values.get("exempt", False)) == why


def test_a_user_who_is_not_known_is_not_one_of_ours():
    unknown = job(observation=some_observation(user=None))

    assert forbidden(unknown, Marks(own={"cluster-a": frozenset({"alice"})})) is not None
    assert forbidden(unknown, Marks(own={"cluster-b": frozenset({"alice"})})) is None


def test_a_proposal_stays_open_while_its_facts_stand():
    assert still_open(verdict(), job()) is None
    assert still_open(verdict(), job(log=some_log(MINUTE, step=16))) is not None
    assert still_open(verdict(), job(life=Lifecycle(phase=Phase.DONE, since=NOON))) == "it has ended"


# ---------------------------------------------------------------- what is silenced


def test_equal_facts_have_one_key_whenever_they_are_found():
    later = verdict(taken_at=NOON, evidence="/f", reasoning="it stands still for longer", confidence="medium")
    later = replace(later, mark=replace(later.mark, at=NOON, log_size=9999))

    assert silence_key(later) == silence_key(verdict())


@pytest.mark.parametrize(
    "other",
    [
        verdict(attempt=2),
        verdict(job=some_key(incarnation="2000")),
        verdict(job=some_key(cluster="cluster-b")),
        verdict(cause="nccl-timeout"),
        verdict(mark=Mark(at=THEN, step=16)),
        verdict(mark=Mark(at=THEN, progress_at=THEN)),
        verdict(gates=()),
        verdict(restarts=Restarts(same_failure=True, fingerprint="9c0f")),
    ],
)
def test_other_facts_have_another_key(other):
    assert silence_key(other) != silence_key(verdict())


# ---------------------------------------------------------------- may it be carried out now


def test_what_stands_as_it_was_approved_may_be_carried_out():
    assert asked() is None
    assert asked(held=job(observation=some_observation(state=JobState.STARTING))) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"decision": decision(stage=Stage.INTENDED)}, "it is intended already"),
        ({"now": NOON + 50 * MINUTE}, "the approval expired at 2026-07-01T12:50:00Z"),
        ({"now": NOON - HOUR}, "the clock stands before the moment of the approval"),
        ({"verdict": verdict(reasoning="other words")}, "verdict 1 does not have the digest that was approved"),
        ({"decision": decision(attempt=2)}, "the approval and its verdict are of different attempts"),
        ({"decision": decision(job=some_key("43"))}, "the approval and its verdict are of different attempts"),
        ({"held": job(key=some_key(incarnation="2000"))}, "attempt 1 is over: the job stands at attempt 1"),
        ({"held": job(life=Lifecycle(phase=Phase.RUNNING, since=NOON, attempt=2))}, "attempt 1 is over: the job stands at attempt 2"),
        ({"held": job(log=some_log(80 * MINUTE, step=16))}, "it progressed since the verdict (step 16, progress at 2026-07-01T10:40:00Z)"),
        ({"held": job(log=some_log(MINUTE, step=15))}, "it progressed since the verdict (step 15, progress at 2026-07-01T11:59:00Z)"),
        ({"marks": Marks(no_kill=("train*",))}, "its name fits the no-kill pattern 'train*'"),
        ({"marks": Marks(no_kill_clusters=frozenset({"cluster-a"}))}, "cluster cluster-a is marked no_kill"),
        ({"marks": Marks(own={"cluster-a": frozenset()})}, "it is a job of alice, not one of ours"),
        ({"holds": (hold("all", ""),)}, "hold 3 stands on everything, by bob: power work"),
        ({"holds": (hold("cluster", "cluster-a"),)}, "hold 3 stands on cluster-a, by bob: power work"),
        ({"holds": (hold("job", "cluster-a/42"),)}, "hold 3 stands on cluster-a/42, by bob: power work"),
        ({"held": job(observation=some_observation(state=JobState.PENDING))}, "it does not run: the scheduler says PENDING"),
        ({"held": job(observation=some_observation(state=JobState.SUSPENDED))}, "it does not run: the scheduler says SUSPENDED"),
        ({"held": job(observation=some_observation(state=JobState.COMPLETING))}, "it does not run: the scheduler says COMPLETING"),
        ({"fresh": fresh(attempt=2)}, "the refreshed evidence is of another attempt"),
        ({"fresh": fresh(ruling=Ruling.NO_KILL)}, "the refreshed evidence says NO-KILL: it stands still"),
        ({"fresh": fresh(cause="nccl-timeout")}, "the refreshed evidence names another cause: nccl-timeout, where silent-hang was approved"),
        ({"fresh": fresh(mark=Mark(at=NOON, step=17))}, "it progressed since the verdict (step 17)"),
    ],
)  # fmt: skip
def test_an_approval_is_void_where_its_facts_are_no_longer_so(changes, why):
    """KILL-2, KILL-5."""
    assert asked(**changes) == Refusal(why, for_good=True)


MISSING = GateScore(
    gate="B",
    name="resources",
    result=Score.ERROR,
    reason="no GPU view",
    missing=Missing(command="nvidia-smi", output="no such program"),
)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"fresh": None}, "its evidence was not refreshed"),
        ({"fresh": verdict()}, "its evidence was not refreshed"),
        ({"fresh": fresh(ruling=Ruling.ERROR, gates=(MISSING,))}, "the refreshed evidence proves nothing: no GPU view"),
        ({"held": job(life=Lifecycle(phase=Phase.WEDGED, since=THEN, absences=1))}, "whether it still runs is not known"),
        ({"held": job(observation=some_observation(state=JobState.UNKNOWN))}, "whether it still runs is not known"),
        ({"held": job(log=some_log(90 * MINUTE, LogState.UNREAD, step=15))},
         "its log could not be read just now, so whether it progressed is not known"),
    ],
)  # fmt: skip
def test_in_doubt_it_waits_and_the_approval_stands(changes, why):
    """PROBE-3, POLL-1: not known is no reason against it, and none for it."""
    assert asked(**changes) == Refusal(why, for_good=False)


def test_what_is_asked_before_the_evidence_is_taken_anew_is_all_the_rest():
    assert may_go_on(decision(), verdict(), job(), (), Marks(), NOON) is None
    assert may_go_on(decision(), verdict(), job(), (hold("all", ""),), Marks(), NOON) is not None


@pytest.mark.parametrize(
    "other", [hold("cluster", "cluster-b"), hold("job", "cluster-a/421"), hold("job", "cluster-a/4")]
)
def test_a_hold_on_something_else_holds_nothing_back(other):
    assert held_back(job(), [other]) is None


# ---------------------------------------------------------------- standing rules


def proposal(**changes: Any) -> Proposal:
    values: dict[str, Any] = {
        "id": 1,
        "job": some_key(),
        "job_row": 1,
        "name": "debug-42",
        "bucket": "rl",
        "attempt": 1,
        "verdict": 1,
        "digest": "sha256:0",
        "cause": "silent-hang",
        "confidence": "high",
        "silence_key": "k",
        "state": ProposalState.OPEN,
        "made_at": NOON,
        "expires_at": NOON + HOUR,
    }
    return Proposal(**(values | changes))


RULE = StandingRule(name="debug hangs", bucket="rl", pattern="debug-*", cause="silent-hang")


def test_a_standing_rule_approves_exactly_what_it_names():
    assert which_rule([RULE], proposal()) == RULE
    assert which_rule([replace(RULE, cluster="cluster-a")], proposal()) is not None
    assert which_rule([replace(RULE, min_confidence="medium")], proposal(confidence="medium")) is not None
    assert which_rule([], proposal()) is None


@pytest.mark.parametrize(
    "other",
    [
        {"name": "train-42"},
        {"bucket": "sft"},
        {"cause": "nccl-timeout"},
        {"confidence": "medium"},
        {"confidence": "certain"},
        {"job": some_key(cluster="cluster-b")},
        {"name": "debug-hero-42"},
        {"name": "debug-HERO"},
    ],
)
def test_a_standing_rule_approves_nothing_else_and_never_a_hero(other):
    assert which_rule([replace(RULE, cluster="cluster-a")], proposal(**other)) is None


def test_a_rule_of_a_confidence_that_is_no_word_approves_nothing():
    assert which_rule([replace(RULE, min_confidence="any")], proposal()) is None
