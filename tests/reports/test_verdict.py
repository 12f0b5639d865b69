"""A verdict as people and programs read it (PROBE-13, SAY-3, contract)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.findings import Quote
from supervisor.model.job import JobKey
from supervisor.model.probe import GateScore, Mark, Missing, Restarts, Ruling, Score, Verdict
from supervisor.reports import verdict as report
from tests.some import NOON

STATE = Quote("record.txt", 1, "JobState=RUNNING Reason=None")
STEP = Quote("log.txt", 812, "step 120 loss 0.4")


def a_verdict(**changes: Any) -> Verdict:
    values: dict[str, Any] = {
        "job": JobKey("alpha", "4711", "1000"),
        "name": "rl__gsm8k_a",
        "attempt": 2,
        "taken_at": NOON,
        "ruling": Ruling.KILL,
        "confidence": "high",
        "gates": (
            GateScore(
                gate="A",
                name="liveness",
                result=Score.FAIL,
                reason="Its 8 ranks wait for each other.",
                quotes=(STATE, STEP),
                hard=True,
                wedge=True,
                cause="silent-hang",
                fix="Begin with rank 3.",
            ),
            GateScore(
                gate="B",
                name="resources",
                result=Score.ERROR,
                reason="No view of its devices.",
                missing=Missing(command="nvidia-smi", output="nvidia-smi: command not found"),
            ),
            GateScore(gate="C", name="rollouts", result=Score.NOT_APPLICABLE, reason="Supervised training has none."),
        ),
        "restarts": Restarts(burned=1, allowed=3, words="1 of 3 burned; no failure repeats"),
        "cause": "silent-hang",
        "reasoning": "Attempt 2 is RUNNING at step 120. Gate A fails hard.",
        "next_steps": ("Root cause: silent-hang.", "Fix: Begin with rank 3.", "Relaunch with the fix."),
        "flip_signal": "a step beyond 120",
        "evidence": "probes/alpha-4711-9",
        "mark": Mark(at=NOON, step=120),
    }
    return Verdict(**(values | changes))


def test_the_printed_form_has_all_its_parts_in_their_order():
    """PROBE-13."""
    text = report.form(a_verdict(), 9)

    parts = ["PROBE 9: alpha/4711 rl__gsm8k_a, attempt 2", "VERDICT: KILL", "confidence: high", "Evidence read"]
    parts += ["Restarts: 1 of 3 burned", "Gate A (liveness):", "Gate B (resources):", "Gate C (rollouts):"]
    parts += ["REASONING: ", "NEXT STEPS:", "Flips it: a step beyond 120", "Digest: sha256:"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "  A  log.txt:812: step 120 loss 0.4\n" in text
    assert "    command: nvidia-smi\n    output:  nvidia-smi: command not found\n" in text
    assert "  B  nothing\n" in text


def test_brief_says_the_ruling_the_gate_that_decides_and_its_quotes_first():
    lines = report.brief(a_verdict(), 9)

    assert lines[0] == "probe 9: KILL, silent-hang (high confidence), 2026-07-01 12:00:00Z"
    assert lines[1] == "  gate A (liveness) fail: Its 8 ranks wait for each other."
    assert lines[2:] == ["  record.txt:1: JobState=RUNNING Reason=None", "  log.txt:812: step 120 loss 0.4"]
    assert 2 <= len(report.brief(a_verdict(gates=(), ruling=Ruling.ERROR))) <= 6


def test_brief_of_a_doomed_job_shows_how_its_earlier_attempts_ended():
    restarts = Restarts(burned=3, same_failure=True, times=3, quotes=(STEP,), words="3 burned; the last 3 ended alike")
    passed = GateScore(gate="A", name="liveness", result=Score.PASS, reason="It steps.", quotes=(STATE,))

    lines = report.brief(a_verdict(restarts=restarts, gates=(passed,), cause="gpu-oom"), 9)

    assert lines[1:] == ["  restarts: 3 burned; the last 3 ended alike", "  log.txt:812: step 120 loss 0.4"]


def test_the_document_is_the_contracts():
    document = report.document(a_verdict(), 9)

    assert json.loads(json.dumps(document)) == document
    assert {
        key: document[key] for key in ("schema_version", "id", "job", "attempt", "taken_at", "ruling", "confidence")
    } == {
        "schema_version": 1,
        "id": 9,
        "job": "alpha/4711",
        "attempt": 2,
        "taken_at": "2026-07-01T12:00:00Z",
        "ruling": "KILL",
        "confidence": "high",
    }
    assert document["digest"] == a_verdict().digest
    first, second, third = document["gates"]
    assert (first["gate"], first["name"], first["result"]) == ("A", "liveness", "fail")
    assert first["quotes"][1] == {"file": "log.txt", "line": 812, "text": "step 120 loss 0.4"}
    assert second["missing"] == {"command": "nvidia-smi", "output": "nvidia-smi: command not found"}
    assert (third["result"], third["quotes"], third["missing"]) == ("not_applicable", [], None)
    restarts = document["restarts"]
    assert (restarts["burned"], restarts["allowed"], restarts["same_failure"]) == (1, 3, False)
    assert {"reasoning", "next_steps", "flip_signal", "evidence"} <= document.keys()


@dataclass
class Entry:
    id: int
    job: JobKey
    name: str
    verdict: Verdict
    stored_at: datetime


def test_verdicts_are_listed_as_a_table_with_their_gates_at_a_glance():
    entry = Entry(9, a_verdict().job, "rl__gsm8k_a", a_verdict(), NOON)

    table = report.listing([entry], NOON + timedelta(minutes=5))

    assert table.startswith("┌")
    for word in ("alpha/4711", "KILL", "A fail B error C n/a", "silent-hang", "5 min ago"):
        assert word in table


# -- what others wrote -------------------------------------------------------------------------------------------------

EVIL = "x\x1b[2J\x9b31m\r\n\u202e`<script>|[a](b)"


def evil() -> Verdict:
    quote = Quote(EVIL, 3, EVIL)
    score = GateScore(
        gate="A",
        name="liveness",
        result=Score.ERROR,
        reason=EVIL,
        quotes=(quote,),
        missing=Missing(command=EVIL, output=EVIL),
        cause=EVIL,
        fix=EVIL,
    )
    return a_verdict(
        name=EVIL,
        gates=(score,),
        reasoning=EVIL,
        next_steps=(EVIL,),
        flip_signal=EVIL,
        evidence=EVIL,
        cause=EVIL,
        judge=EVIL,
        restarts=Restarts(words=EVIL, quotes=(quote,), same_failure=True),
    )


def assert_harmless(text: str) -> None:
    assert not any(letter in text for letter in "\x1b\x9b\r\u202e\x00")
    text.encode("utf-8")


def test_nothing_that_others_wrote_reaches_a_terminal_with_effect():
    verdict = evil()
    entry = Entry(9, verdict.job, EVIL, verdict, NOON)

    for text in (
        report.form(verdict, 9),
        report.markdown(verdict, 9),
        report.listing([entry], NOON),
        *report.brief(verdict),
    ):
        assert_harmless(text)


def test_in_the_dated_record_words_of_others_are_no_markdown():
    """SAY-3: quotes and outputs stand in indented blocks, everything else has its marks taken."""
    lines = report.markdown(evil(), 9).splitlines()

    for line in lines:
        if "script" in line:
            assert line.startswith("    ") or "<script>" not in line, line
    assert lines[0].startswith("# alpha/4711 ")


def test_the_dated_record_marks_what_is_unproven():
    """SAY-3: an unproven claim is marked."""
    text = report.markdown(a_verdict(), 9)

    assert "### ⚠ B resources: error" in text
    assert "    $ nvidia-smi\n    nvidia-smi: command not found\n" in text
    assert "    log.txt:812\n        step 120 loss 0.4\n" in text


@given(st.text(st.characters(codec=None), max_size=40))
def test_no_text_breaks_any_form(text: str):
    quote = Quote(text, 1, text or "x")
    score = GateScore(gate="A", name="liveness", result=Score.FAIL, reason=text, quotes=(quote,), watch=text)
    verdict = replace(a_verdict(), name=text, gates=(score,), reasoning=text, next_steps=(text,), evidence=text)

    for made in (report.form(verdict), report.markdown(verdict), *report.brief(verdict)):
        assert_harmless(made)
    json.dumps(report.document(verdict))


def test_the_duty_cycle_is_told_in_numbers_where_trials_told_them():
    """PROBE-12: median, 10th and 90th percentile, most; and nothing where no trial did."""
    facts = {
        "duty_trials": 40,
        "release_races": 0,
        "llm_share": 0.89,
        "llm_share_p10": 0.7,
        "llm_share_p90": 0.95,
        "llm_share_most": 0.97,
    }
    told = replace(a_verdict(), gates=(replace(a_verdict().gates[0], facts=facts),))

    assert "time of 40 trials: median, 10th and 90th percentile, most" in report.form(told)
    assert " 89.0 %   70.0 %   95.0 %   97.0 %" in report.form(told)
    assert "time of" not in report.form(a_verdict())
