"""Proposals, approvals, denials, verdicts and the scorecard, as a person calls them (KILL-1)."""

from __future__ import annotations

import io
import json
from datetime import timedelta

import pytest

from supervisor.app.clock import utc_now
from supervisor.model.findings import Quote
from supervisor.model.probe import GateScore, Mark, Missing, Restarts, Ruling, Score, Verdict
from supervisor.rules.leave import silence_key
from supervisor.store.store import Store
from tests.app.asked import ask, config, seed, seeded  # noqa: F401  fixtures

LINE = "step 25/100 loss=0.0800"


def a_verdict(job, attempt: int = 1, ruling: Ruling = Ruling.KILL, minutes: float = 1, **changes) -> Verdict:
    at = utc_now() - timedelta(minutes=minutes)
    quote = Quote("job.log", 812, LINE)
    a = GateScore(
        gate="A", name="liveness", result=Score.FAIL, reason="no progress for 40 min", quotes=(quote,), hard=True, wedge=True,
        cause="silent-hang", fix="restart it",
    )  # fmt: skip
    passed = GateScore(gate="A", name="liveness", result=Score.PASS, reason="it moves", quotes=(quote,))
    lost = GateScore(
        gate="A",
        name="liveness",
        result=Score.ERROR,
        reason="no log",
        missing=Missing(command="tail job.log", output="denied"),
    )
    gate = {Ruling.KILL: a, Ruling.NO_KILL: passed, Ruling.ERROR: lost}[ruling]
    values = {
        "job": job, "name": "rl__alpha", "attempt": attempt, "taken_at": at, "ruling": ruling, "confidence": "high", "gates": (gate,),
        "restarts": Restarts(), "cause": "silent-hang" if ruling is Ruling.KILL else "", "reasoning": "It stands still.",
        "next_steps": ("Take it down.",), "flip_signal": "a new step", "evidence": "/state/evidence/1", "mark": Mark(at=at, step=25),
    }  # fmt: skip
    return Verdict(**(values | changes))


@pytest.fixture
def proposed(seeded):  # noqa: F811
    """The config with a store in which the kill of cluster-a/1 is proposed; number of verdict and proposal."""
    url = f"sqlite:///{seeded.parent / 'supervisor.db'}"
    with Store.open(url) as store:
        held = next(each for each in store.held("cluster-a", ended_after=utc_now()) if each.key.id == "1")
        verdict = a_verdict(held.key)
        store.put_verdict(
            held.row, verdict, utc_now(), silence_key=silence_key(verdict), expires_at=utc_now() + timedelta(hours=1)
        )
    return seeded


def test_proposals_show_the_quotes_first(ask, proposed):  # noqa: F811
    """KILL-1: what speaks for it comes before what it asks for."""
    told = ask("--config", proposed, "proposals")

    assert told.code == 0
    head, quote, *rest = told.out.splitlines()
    assert head.startswith("proposal 1: kill cluster-a/1 rl__alpha (rl, attempt 1); lapses in ")
    assert quote.strip() == f"job.log:812: {LINE}"
    assert any("supervisorctl approve 1" in line for line in rest)
    assert any('mode = "record"' in line for line in rest)


def test_status_tells_what_waits_and_exits_3(ask, proposed):  # noqa: F811
    told = ask("--config", proposed, "status")
    document = json.loads(ask("--config", proposed, "status", "--json").out)
    (waiting,) = document["waiting"]

    assert "proposal 1 waits for you: kill cluster-a/1 rl__alpha (silent-hang, high confidence, verdict 1)" in told.out
    assert (waiting["id"], waiting["kind"], waiting["job"], waiting["verdict"]) == (1, "kill", "cluster-a/1", 1)
    assert waiting["expires_at"].endswith("Z")
    ruled = {job["id"]: job["verdict"] for job in document["jobs"] if job["cluster"] == "cluster-a"}
    assert (ruled["1"]["id"], ruled["1"]["ruling"], ruled["1"]["cause"]) == (1, "KILL", "silent-hang")
    assert ruled["2"] is None


@pytest.mark.parametrize("answer", ["yes\n", "y\n", "1\n", "cluster-a/1\n"])
def test_approve_asks_and_writes_down_who_and_until_when(ask, proposed, monkeypatch, answer):  # noqa: F811
    """KILL-1: it names the person and expires; after it nothing waits for a person any more."""
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))

    told = ask("--config", proposed, "approve", "1", "--reason", "seen with py-spy")

    assert told.code == 0, told.err
    assert "VERDICT" in told.out
    assert LINE in told.out
    (row,) = json.loads(ask("--config", proposed, "proposals", "--json").out)["proposals"]
    assert (row["state"], row["approval"]["stage"], row["approval"]["reason"]) == (
        "approved",
        "approved",
        "seen with py-spy",
    )
    assert "@" in row["approval"]["by"]
    assert json.loads(ask("--config", proposed, "status", "--json").out)["waiting"] == []


@pytest.mark.parametrize("answer", ["", "\n", "no\n", "17\n"])
def test_anything_but_a_clear_yes_approves_nothing(ask, proposed, monkeypatch, answer):  # noqa: F811
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))

    told = ask("--config", proposed, "approve", "1")

    assert (told.code, told.line) == (1, "supervisorctl: approve: nothing was approved")
    (row,) = json.loads(ask("--config", proposed, "proposals", "--json").out)["proposals"]
    assert (row["state"], row["approval"]) == ("open", None)


def test_an_approval_is_given_once(ask, proposed):  # noqa: F811
    """KILL-1: one use."""
    first, second = (ask("--config", proposed, "approve", "1", "--yes") for _ in range(2))

    assert first.code == 0
    assert second.code == 2
    assert "proposal 1" in second.line


def test_what_was_answered_already_is_not_asked_again(ask, proposed, monkeypatch):  # noqa: F811
    ask("--config", proposed, "deny", "1", "--reason", "a big checkpoint")
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))

    told = ask("--config", proposed, "approve", "1")

    assert (told.code, told.out) == (2, "")
    assert "is denied by" in told.line


def test_touched_evidence_is_not_approved(ask, proposed, monkeypatch):  # noqa: F811
    """PROBE-4: it says what was touched, and what to do; nothing is written down."""
    monkeypatch.setattr(
        "supervisor.app.grounds.shaken",
        lambda verdict: "/state/evidence/1/log.log: its content is not what was captured",
    )

    told = ask("--config", proposed, "approve", "1", "--yes")

    assert (told.code, told.out) == (2, "")
    assert "log.log: its content is not what was captured" in told.line
    (row,) = json.loads(ask("--config", proposed, "proposals", "--json").out)["proposals"]
    assert (row["state"], row["approval"]) == ("open", None)


def test_deny_needs_a_reason_and_silences_the_facts(ask, proposed):  # noqa: F811
    bare, blank = ask("--config", proposed, "deny", "1"), ask("--config", proposed, "deny", "1", "--reason", " ")
    told = ask("--config", proposed, "deny", "1", "--reason", "a big checkpoint")

    assert (bare.code, blank.code, told.code) == (2, 2, 0)
    assert "only if its facts change" in told.out
    assert ask("--config", proposed, "proposals").out == "nothing waits for you\n"
    (row,) = json.loads(ask("--config", proposed, "proposals", "--all", "--json").out)["proposals"]
    assert (row["state"], row["why"]) == ("denied", "a big checkpoint")


@pytest.mark.parametrize(
    "words", [("approve", "7"), ("approve", "7", "--yes"), ("deny", "7", "--reason", "x"), ("verdict", "7")]
)
def test_a_number_that_is_not_there_is_one_clear_line(ask, proposed, words):  # noqa: F811
    told = ask("--config", proposed, *words)

    assert told.code in (1, 2)
    assert "7" in told.line


def test_no_approval_under_a_hold(ask, proposed):  # noqa: F811
    """KILL-5: holds are absolute."""
    ask("--config", proposed, "hold", "--cluster", "cluster-a", "--reason", "maintenance")

    told = ask("--config", proposed, "approve", "1", "--yes")

    assert told.code == 2
    assert "maintenance" in told.line
    assert "`supervisorctl resume --cluster cluster-a` lifts it" in told.line
    assert "under hold" in ask("--config", proposed, "proposals").out


def test_a_verdict_in_its_form_its_json_and_the_list(ask, proposed):  # noqa: F811
    """PROBE-13: the contract's keys."""
    form = ask("--config", proposed, "verdict", "1")
    one = json.loads(ask("--config", proposed, "verdict", "1", "--json").out)
    every = json.loads(ask("--config", proposed, "verdict", "--json").out)["verdicts"]
    listing = ask("--config", proposed, "verdict")

    assert "VERDICT: KILL" in form.out
    assert {"schema_version", "id", "job", "attempt", "taken_at", "ruling", "confidence", "digest", "gates", "restarts",
            "reasoning", "next_steps", "flip_signal", "evidence"} <= set(one)  # fmt: skip
    assert one["digest"].startswith("sha256:")
    assert [each["id"] for each in every] == [1]
    assert "cluster-a/1" in listing.out


def test_show_and_why_tell_the_verdict(ask, proposed):  # noqa: F811
    shown, why = ask("--config", proposed, "show", "cluster-a/1"), ask("--config", proposed, "why", "cluster-a/1")

    assert "KILL, silent-hang (high confidence)" in shown.out
    assert LINE in why.out
    assert [
        each["id"] for each in json.loads(ask("--config", proposed, "show", "cluster-a/1", "--json").out)["verdicts"]
    ] == [1]


def test_the_scorecard_compares_verdicts_with_what_became_of_the_jobs(ask, proposed):  # noqa: F811
    told = ask("--config", proposed, "scorecard")
    card = json.loads(ask("--config", proposed, "scorecard", "--json").out)

    assert told.code == 0
    assert card["verdicts"]["KILL"]["count"] == 1
    assert card["verdicts"]["KILL"]["open"] == 1
    assert card["would_be_false_kills"] == []
    assert set(card["alarms"]) == {"raised", "recovered", "ended", "standing"}


def test_a_probe_is_asked_for_once_and_of_living_jobs_only(ask, seeded):  # noqa: F811
    first, again = (ask("--config", seeded, "probe", "cluster-a/1") for _ in range(2))
    ended = ask("--config", seeded, "probe", "cluster-a/2")
    nobody = ask("--config", seeded, "probe", "cluster-a/99")

    assert first.code == again.code == 0
    assert "request 1" in first.out
    assert "request 1" in again.out
    assert (ended.code, nobody.code) == (2, 2)
    assert "has ended" in ended.line


def test_a_kill_that_was_not_proposed_says_why(ask, seeded):  # noqa: F811
    """KILL-5: rules still recommend; nothing is proposed, and that is said."""
    url = f"sqlite:///{seeded.parent / 'supervisor.db'}"
    with Store.open(url) as store:
        held = next(each for each in store.held("cluster-a", ended_after=utc_now()) if each.key.id == "1")
        verdict = a_verdict(held.key)
        store.put_verdict(held.row, verdict, utc_now(), silence_key=silence_key(verdict), leave="cluster-a is no-kill")

    assert ask("--config", seeded, "verdict", "1").out.endswith("Not proposed: cluster-a is no-kill\n")
    assert json.loads(ask("--config", seeded, "verdict", "1", "--json").out)["not_proposed"] == "cluster-a is no-kill"
