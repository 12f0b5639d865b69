"""The verdict's table: what gates and restarts add up to, and what they never do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.findings import Quote
from supervisor.model.job import JobState
from supervisor.model.probe import Case, GateScore, Mark, Missing, Restarts, Ruling, Score, Verdict
from supervisor.rules.verdict import CONFIDENCES, JUDGED, TABLE, Opinion, merged, rule, weakest
from tests.gates.cases import Failed, some_case
from tests.some import NOON

LINE = Quote("log.txt", 1, "step 120")
STACK = Quote("stack-n1.txt", 1, "# process 7 python")
MARK = Mark(at=NOON, step=120, total=800)
NAMES = {"A": "liveness", "B": "resources", "C": "rollouts", "D": "dynamics"}


def score(gate: str = "A", result: Score = Score.PASS, **changes: Any) -> GateScore:
    values: dict[str, Any] = {
        "gate": gate,
        "name": NAMES[gate],
        "result": result,
        "reason": f"Gate {gate} says so.",
        "quotes": () if result in (Score.ERROR, Score.NOT_APPLICABLE) else (LINE,),
        "missing": Missing(command="nvidia-smi", output="command not found") if result is Score.ERROR else None,
        "watch": "steps that go on",
    }
    return GateScore(**(values | changes))


def hard(gate: str = "A", **changes: Any) -> GateScore:
    values: dict[str, Any] = {
        "hard": True,
        "cause": "silent-hang",
        "fix": "Look at rank 3 first.",
        "confidence": "high",
    }
    return score(gate, Score.FAIL, **(values | changes))


def a_case(stack: bool = True, **about: Any) -> Case:
    texts = {"log.txt": "step 120\n"}
    texts["stack-n1.txt"] = "# process 7 python\n" if stack else Failed("py-spy: Permission denied")
    return some_case(texts, **about)


def ruled(*scores: GateScore, case: Case | None = None, restarts: Restarts | None = None) -> Verdict:
    return rule(case or a_case(), scores, restarts or Restarts(), evidence="probes/1", mark=MARK)


DOOM = Restarts(
    burned=3,
    allowed=5,
    same_failure=True,
    times=3,
    category="gpu-oom",
    fingerprint="f",
    quotes=(LINE,),
    words="3 of 5 burned",
)

# -- the table ---------------------------------------------------------------------------------------------------------


def test_all_gates_that_pass_or_do_not_apply_keep_the_job():
    verdict = ruled(score("A"), score("B", Score.NOT_APPLICABLE), score("C", confidence="medium"))

    assert (verdict.ruling, verdict.confidence, verdict.passed) == (Ruling.NO_KILL, "medium", True)
    assert verdict.flip_signal == "steps that go on"


def test_one_gate_without_evidence_makes_the_whole_an_error_with_the_command_and_what_was_established():
    """PROBE-3."""
    verdict = ruled(score("A"), score("B", Score.ERROR), hard("C"), restarts=DOOM)

    assert (verdict.ruling, verdict.cause) == (Ruling.ERROR, "")
    assert "Gate A (liveness) passes" in verdict.reasoning
    assert "`nvidia-smi`, which said: command not found" in verdict.next_steps[0]
    assert "install the program" in verdict.next_steps[0]


def test_a_hard_failure_is_a_kill_with_cause_fix_and_what_then():
    """PROBE-5."""
    verdict = ruled(hard("A", wedge=True), score("B"), score("C"))

    assert (verdict.ruling, verdict.cause, verdict.confidence) == (Ruling.KILL, "silent-hang", "high")
    assert verdict.next_steps == (
        "Root cause: silent-hang.",
        "Fix: Look at rank 3 first.",
        "Relaunch with the fix from its last durable checkpoint.",
    )
    assert verdict.flip_signal == "a step beyond 120 before it is carried out"


def test_of_several_hard_failures_the_one_that_names_more_than_a_silence_gives_the_cause():
    verdict = ruled(
        hard("A", wedge=True), hard("B", wedge=True, cause="starvation", fix="Issue more.", confidence="medium")
    )

    assert (verdict.cause, verdict.confidence) == ("starvation", "medium")


def test_a_deterministic_cause_is_held_until_its_fix_has_landed():
    verdict = ruled(score("A"), hard("B", cause="gpu-oom", fix="Halve the micro batch."))

    assert verdict.next_steps[-1].startswith("Hold until the fix has landed")


def test_a_wedge_without_a_stack_dump_is_an_error_of_its_gate():
    """PROBE-5."""
    verdict = ruled(hard("A", wedge=True), score("B"), case=a_case(stack=False))

    assert (verdict.ruling, verdict.gates[0].result) == (Ruling.ERROR, Score.ERROR)
    assert verdict.gates[0].missing == Missing(command="capture stack-n1.txt", output="py-spy: Permission denied")


def test_a_hard_failure_that_is_no_wedge_needs_no_stack_dump():
    assert ruled(score("A"), hard("C"), case=a_case(stack=False)).ruling is Ruling.KILL


def test_restarts_that_repeat_one_failure_are_a_kill_as_doomed_even_while_all_gates_pass():
    """PROBE-6."""
    verdict = ruled(score("A"), score("B"), restarts=DOOM)

    assert (verdict.ruling, verdict.cause) == (Ruling.KILL, "gpu-oom")
    assert "3 of 5 burned" in verdict.reasoning
    assert verdict.next_steps[-1] == "Hold: do not relaunch before that fix has landed."


@pytest.mark.parametrize(
    "changes", [{"quotes": ()}, {"category": None}, {"times": 2}, {"same_failure": False}], ids=lambda c: next(iter(c))
)
def test_what_is_not_proven_to_repeat_is_not_doomed(changes: dict[str, Any]):
    assert ruled(score("A"), restarts=replace(DOOM, **changes)).ruling is Ruling.NO_KILL


def test_a_soft_failure_keeps_the_job_and_says_what_would_flip_it():
    """PROBE-7."""
    verdict = ruled(score("A", Score.FAIL, watch="progress within 15 min"), score("B"))

    assert (verdict.ruling, verdict.confidence, verdict.passed) == (Ruling.NO_KILL, "medium", False)
    assert verdict.flip_signal == "progress within 15 min"


def test_training_dynamics_alone_never_kill():
    """RL-13."""
    verdict = ruled(score("A"), score("B"), score("C"), hard("D"))

    assert (verdict.ruling, verdict.cause) == (Ruling.NO_KILL, "")


def test_without_a_judgement_of_liveness_nothing_is_known():
    assert ruled().ruling is Ruling.ERROR
    assert ruled(score("B"), score("C")).ruling is Ruling.ERROR


def test_an_exempt_job_is_judged_like_any_other_and_said_to_be_an_observation():
    """RL-3, EVAL-4."""
    verdict = ruled(hard("C"), score("A"), case=a_case(exempt=True))

    assert verdict.ruling is Ruling.KILL
    assert "this is an observation" in verdict.reasoning


def test_what_is_new_about_it_is_told():
    assert (
        "; new about it: 64 instead of 32 nodes."
        in ruled(score("A"), case=a_case(fresh_setting="64 instead of 32 nodes")).reasoning
    )


@pytest.mark.parametrize(
    ("output", "repair"),
    [
        ("Error: Operation not permitted (os error 1): process_vm_readv / ptrace", "trace its own processes"),
        ("Permission Denied: Try running again with elevated permissions", "the right to read"),
        ('pods "x" is forbidden: User "bob" cannot create resource "pods/exec" in API group ""', "account the verbs"),
        ("bash: line 1: nvidia-smi: command not found", "install the program"),
        ("srun: error: Unable to create step for job 42: Requested nodes are busy", 'node_access = "ssh"'),
        ("ssh: connect to host n2 port 22: Connection timed out", "whether the node or the cluster answers"),
        ("ssh: connect to host n2 port 22: Connection refused", "reachable"),
        ("cat: /home/alice/out.log: No such file or directory", "correct the path"),
        ("the certificate has expired", "renew the credential"),
        ("no stack was captured", "let a probe onto the job's nodes"),
        ("the file has 4 lines", "take the probe again"),
        ("/state/evidence/a-1-p3: the evidence could not be written: No space left on device", "make room where"),
        ("/state/evidence/a-1-p3: the evidence could not be written: Permission denied", "write there"),
        ("it shows no reward", "another bucket's"),
        ('node_access = "none": compute nodes of this cluster are not looked at', 'node_access = "srun"'),
        ("something else", "run that command by hand"),
    ],
)
def test_a_failed_commands_output_says_what_is_to_be_mended(output: str, repair: str):
    """PROBE-3: so that the next probe gets the evidence."""
    verdict = ruled(score("A", Score.ERROR, missing=Missing(command="look", output=output)))

    assert repair in verdict.next_steps[0]


def test_a_gate_that_knows_what_to_do_about_its_error_says_it_itself():
    verdict = ruled(score("A", Score.ERROR, fix="Probe it once it runs."))

    assert verdict.next_steps[0].endswith("command not found. Probe it once it runs.")


# -- what never happens ------------------------------------------------------------------------------------------------

results = st.sampled_from(Score)


@st.composite
def any_score(draw: st.DrawFn, gate: str) -> GateScore:
    result = draw(results)
    if result is Score.FAIL and draw(st.booleans()):
        return hard(gate, wedge=draw(st.booleans()), confidence=draw(st.sampled_from([*CONFIDENCES, "odd"])))
    return score(gate, result, confidence=draw(st.sampled_from(CONFIDENCES)))


@st.composite
def any_scores(draw: st.DrawFn) -> tuple[GateScore, ...]:
    gates = draw(st.lists(st.sampled_from("ABCD"), unique=True))
    return tuple(draw(any_score(gate)) for gate in sorted(gates))


restarts_of = st.builds(
    Restarts,
    burned=st.none() | st.integers(0, 5),
    same_failure=st.booleans(),
    times=st.integers(0, 5),
    category=st.none() | st.just("gpu-oom"),
    quotes=st.sampled_from([(), (LINE,)]),
)
states = st.sampled_from([JobState.RUNNING, JobState.PENDING, JobState.FAILED])


@given(any_scores(), restarts_of, st.booleans(), states)
def test_the_table_never_lets_doubt_through(
    scores: tuple[GateScore, ...], restarts: Restarts, stack: bool, state: JobState
):
    """PROBE-3, PROBE-5, PROBE-6, RL-13."""
    case = a_case(stack=stack, seen={"state": state})
    verdict = rule(case, scores, restarts, evidence="probes/1", mark=MARK)

    killing = [each for each in scores if each.hard and each.gate in JUDGED]
    if any(each.result is Score.ERROR for each in scores):
        assert verdict.ruling is Ruling.ERROR
    if verdict.ruling is Ruling.KILL:
        doomed = restarts.same_failure and restarts.quotes and state is JobState.RUNNING
        assert killing or doomed
        assert verdict.cause
        assert len(verdict.next_steps) == 3
        assert stack or not any(each.wedge for each in killing)
    else:
        assert verdict.cause == ""
    assert verdict.confidence in CONFIDENCES
    assert verdict.reasoning and verdict.next_steps and verdict.flip_signal
    assert verdict.reasoning.count(".") >= 2 and "{" not in verdict.reasoning
    assert verdict.digest == rule(case, scores, restarts, evidence="probes/1", mark=MARK).digest


def test_the_last_row_always_holds_so_that_some_row_rules():
    assert TABLE[-1].name == "all well"
    assert weakest() == "high"
    assert weakest("high", "perhaps") == "low"


# -- an external judge -------------------------------------------------------------------------------------------------


def opinion(ruling: Ruling, *gates: GateScore, **changes: Any) -> Opinion:
    values: dict[str, Any] = {"judge": "reader", "confidence": "high", "reasoning": "The ranks loop over one batch."}
    return Opinion(**(values | {"ruling": ruling, "gates": gates} | changes))


SOFT = score("A", Score.FAIL)


@pytest.mark.parametrize("lower", [Ruling.ERROR, Ruling.NO_KILL])
def test_an_external_judge_lowers_a_kill_and_its_reason_is_told(lower: Ruling):
    verdict = merged(ruled(hard("A", wedge=True)), opinion(lower), a_case())

    assert (verdict.ruling, verdict.cause) == (lower, "")
    assert "The external judge reader lowered KILL to" in verdict.reasoning
    assert "The ranks loop over one batch." in verdict.reasoning
    assert verdict.judge == "built-in and reader"


def test_an_external_judge_lowers_a_no_kill_to_an_error():
    verdict = merged(ruled(score("A")), opinion(Ruling.ERROR, score("B", Score.ERROR)), a_case())

    assert verdict.ruling is Ruling.ERROR
    assert "`nvidia-smi`" in verdict.next_steps[0]


def test_an_external_judge_whose_quote_does_not_hold_is_an_error_whatever_it_ruled():
    """PROBE-4: `proof.check` has turned its gate into ERROR."""
    assert merged(ruled(SOFT), opinion(Ruling.KILL, score("A", Score.ERROR)), a_case()).ruling is Ruling.ERROR


def test_a_false_quote_of_an_external_judge_is_for_its_author_to_mend():
    """PROBE-4: to take the evidence again would not help."""
    missing = Missing(command="quote log.log:38", output="the file has 14 lines")
    verdict = merged(ruled(SOFT), opinion(Ruling.NO_KILL, score("A", Score.ERROR, missing=missing)), a_case())

    assert "quote log.log:38 that does not hold: the file has 14 lines. Correct the judge" in verdict.next_steps[0]


def test_an_external_judge_never_moves_our_error():
    """PROBE-3."""
    ours = ruled(score("A"), score("B", Score.ERROR))

    for theirs in (opinion(Ruling.KILL, hard("A")), opinion(Ruling.NO_KILL)):
        assert merged(ours, theirs, a_case()).ruling is Ruling.ERROR


def test_an_external_judge_raises_to_kill_where_our_gate_fails_too_and_brings_cause_and_fix():
    verdict = merged(ruled(SOFT), opinion(Ruling.KILL, hard("A", quotes=(STACK,))), a_case())

    assert (verdict.ruling, verdict.cause, verdict.confidence) == (Ruling.KILL, "silent-hang", "medium")
    assert (verdict.gates[0].hard, verdict.gates[0].quotes) == (True, (LINE, STACK))


@pytest.mark.parametrize(
    ("ours", "theirs", "stack"),
    [
        ((score("A"),), hard("A"), True),
        ((SOFT,), hard("B"), True),
        ((score("A"), score("D", Score.FAIL)), hard("D"), True),
        ((SOFT,), score("A", Score.FAIL), True),
        ((SOFT,), hard("A"), False),
        ((score("A"), score("B", Score.FAIL, wedge=True)), hard("B"), False),
        ((replace(SOFT, facts={"against": "process 7 is busy"}),), hard("A"), True),
    ],
    ids=[
        "ours passes",
        "another gate",
        "dynamics",
        "no cause",
        "no stack",
        "a starvation without a stack",
        "seen at work",
    ],
)
def test_an_external_judge_does_not_raise_to_kill_without_our_own_evidence(
    ours: tuple[GateScore, ...], theirs: GateScore, stack: bool
):
    case = a_case(stack=stack)
    verdict = merged(ruled(*ours, case=case), opinion(Ruling.KILL, theirs), case)

    assert (verdict.ruling, verdict.cause) == (Ruling.NO_KILL, "")
    assert "so it stays NO-KILL" in verdict.reasoning


def test_an_external_judges_words_are_bounded_and_kept_on_one_line():
    verdict = merged(ruled(score("A")), opinion(Ruling.NO_KILL, reasoning="a\n\n" + "b" * 5000), a_case())

    assert "\n" not in verdict.reasoning
    assert len(verdict.reasoning) < 1200


@given(any_scores(), any_scores(), st.sampled_from(Ruling), st.booleans())
def test_an_external_judge_never_turns_an_error_nor_kills_without_a_failure_of_ours(
    ours: tuple[GateScore, ...], theirs: tuple[GateScore, ...], ruling: Ruling, stack: bool
):
    case = a_case(stack=stack)
    before = rule(case, ours, Restarts(), evidence="probes/1", mark=MARK)
    after = merged(before, opinion(ruling, *theirs), case)

    if before.ruling is Ruling.ERROR:
        assert after.ruling is Ruling.ERROR
    if after.ruling is Ruling.KILL:
        failing = {each.gate for each in ours if each.result is Score.FAIL and each.quotes} & set(JUDGED)
        assert failing and after.cause
        assert stack or not any(
            each.hard and (each.wedge or each.gate == "A") for each in after.gates if before.ruling is not Ruling.KILL
        )
        assert ruling is Ruling.KILL
    order = [Ruling.ERROR, Ruling.NO_KILL, Ruling.KILL]
    assert after.ruling is not Ruling.KILL or before.ruling is Ruling.KILL or ruling is Ruling.KILL
    assert order.index(after.ruling) <= max(order.index(before.ruling), order.index(ruling))


def test_what_the_verdict_rests_on_is_dated_and_bound():
    verdict = ruled(score("A"), case=a_case(silent_for=timedelta(minutes=2)))

    assert (verdict.taken_at, verdict.mark, verdict.evidence) == (NOON, MARK, "probes/1")
    assert verdict.digest.startswith("sha256:")
