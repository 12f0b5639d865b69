"""The dated record of an approved kill: every way it can come out, and nothing in it that a job could steer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.model.findings import Quote
from supervisor.model.proposals import Decision, Stage
from supervisor.reports.killing import kill_record, topic_of
from tests.some import HOUR, MINUTE, NOON, some_held, some_key, some_observation
from tests.stories.killing import verdict_on


def decision(stage: Stage, **changes) -> Decision:
    values = {
        "id": 7,
        "proposal": 3,
        "job": some_key(),
        "job_row": 1,
        "attempt": 1,
        "verdict": 9,
        "digest": "sha256:0",
        "approved_by": "alice@box",
        "role": "alice",
        "reason": "it hangs",
        "approved_at": NOON,
        "expires_at": NOON + HOUR,
        "mode": "ask",
        "stage": stage,
        "finished_at": NOON + 5 * MINUTE,
        "why": "so it was",
    }
    return Decision(**(values | changes))


def told(stage: Stage, held=None, verdict=None, **changes) -> str:
    held = held or some_held()
    return kill_record(decision(stage, **changes), verdict or verdict_on(held, NOON), held, NOON + 5 * MINUTE)


SENT = {"intended_at": NOON + MINUTE, "sent_at": NOON + 2 * MINUTE}


@pytest.mark.parametrize(
    ("stage", "changes", "title", "cancel", "last"),
    [
        (Stage.CONFIRMED, SENT | {"accepted": True}, "killed", "sent once, answered 2026-07-01 12:02:00Z: taken", "Relaunch it"),
        (Stage.CONFIRMED, SENT | {"accepted": None, "output": "Socket timed out"}, "killed",
         "not known whether it was taken (Socket timed out)", "Relaunch it"),
        (Stage.CONFIRMED, {"intended_at": NOON}, "killed", "it may have been sent: no receipt is known", "Relaunch it"),
        (Stage.UNCONFIRMED, SENT | {"accepted": False, "output": "denied"}, "its kill is not confirmed", "refused (denied)",
         "Look at the job by hand"),
        (Stage.RECORDED, {"intended_at": NOON, "mode": "record"}, "would have been killed", "nothing was sent", "Relaunch it"),
        (Stage.VOID, {}, "not killed", "nothing was sent", "the approval is used up"),
        (Stage.ENDED_ITSELF, {}, "ended before its kill", "nothing was sent", "the approval is used up"),
    ],
)  # fmt: skip
def test_a_record_says_what_was_done_and_what_to_do(stage, changes, title, cancel, last):
    """SAY-3, KILL-3, KILL-6."""
    text = told(stage, **changes)

    assert text.startswith(f"# cluster-a/42 train-42: {title}\n")
    assert f"- cancel: {cancel}" in text or cancel in text
    assert "- approved: 2026-07-01 12:00:00Z by alice@box (database role alice): it hangs" in text
    assert last in text.rpartition("## What to do")[2]
    assert ("A person must look" in text) == (stage is Stage.UNCONFIRMED)


def test_its_name_is_the_approvals_own():
    assert topic_of(decision(Stage.ENDED_ITSELF)) == "kill-7-ended-itself"


def test_text_of_others_steers_neither_a_terminal_nor_the_page():
    held = some_held(observation=some_observation(name="x\x1b[2J\n# all is well"))
    verdict = verdict_on(held, NOON)
    evil = Quote("a`b\x1b.out", 3, "loss\x1b[31m \n## Verdict\n")
    gates = (replace(verdict.gates[0], quotes=(evil,)),)

    text = told(Stage.VOID, held, replace(verdict, gates=gates, reasoning="\r\n- forged"), why="\x07\n- forged")

    assert "\x1b" not in text
    assert "\x07" not in text
    assert [line for line in text.splitlines() if line.startswith(("# ", "## "))] == [
        text.splitlines()[0],
        "## Verdict 9: KILL, high confidence",
        "## What to do",
    ]
    assert "\n- forged" not in text


def test_each_thing_to_do_is_said_once():
    held = some_held()
    verdict = verdict_on(held, NOON)
    fixed = replace(verdict.gates[0], fix="Look at rank 3 first.")
    steps = ("Root cause: silent-hang.", "Fix: Look at rank 3 first.", "Relaunch with the fix.")

    text = told(Stage.CONFIRMED, held, replace(verdict, gates=(fixed,), next_steps=steps), **SENT)

    assert text.count("Look at rank 3 first.") == 1
