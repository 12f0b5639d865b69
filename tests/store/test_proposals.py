"""Approvals: one person, one reason, one attempt, one use (KILL-1, KILL-3)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from supervisor.model.errors import StoreError, UsageError
from supervisor.model.facts import Held
from supervisor.model.ports import Approval, CancelReceipt
from supervisor.model.proposals import Caps, Decision, ProposalState, Refusal, Stage
from supervisor.store.light import Light
from supervisor.store.store import Store
from tests.some import HOUR, MINUTE, NOON
from tests.store.some import SECOND, ended, poll
from tests.store.verdicts import approved, proposed, put, some_verdict, stored_job

CAPS = Caps(per_tick=10, tick=15 * MINUTE, per_day=10)
OWNER = "daemon-a"


def requeued(store: Store, job: Held) -> Held:
    key = replace(job.key, incarnation="2000")
    life, seen = replace(job.life, attempt=job.life.attempt + 1), replace(job.observation, key=key)
    (later,) = store.record(poll(job.having(key=key, life=life, observation=seen), at=50 * MINUTE))
    return later


def ready(store: Store, job: str = "42", **changes: Any) -> tuple[Held, Decision]:
    """An approved kill on a cluster that is ours."""
    held = stored_job(store, job)
    decision = approved(store, proposed(store, held), **changes)
    assert store.take_cluster("cluster-a", OWNER, NOON, NOON + 24 * HOUR)
    return held, decision


def begin(store: Store, decision: Decision, at: timedelta = MINUTE, **changes: Any) -> Approval | Refusal:
    return store.begin_cancel(decision.id, **({"owner": OWNER, "caps": CAPS, "now": NOON + at} | changes))


# ---------------------------------------------------------------- approving


def test_an_approval_says_who_why_until_when_and_for_what(store: Store) -> None:
    """KILL-1."""
    job = stored_job(store)
    proposal = proposed(store, job)

    decision = approved(store, proposal)

    assert (decision.job, decision.job_row, decision.attempt) == (job.key, job.row, 1)
    assert (decision.proposal, decision.verdict, decision.digest) == (proposal.id, proposal.verdict, proposal.digest)
    assert (decision.approved_by, decision.reason) == ("alice@box", "it hangs")
    assert (decision.approved_at, decision.expires_at) == (NOON, NOON + HOUR)
    assert (decision.mode, decision.stage) == ("ask", Stage.APPROVED)
    assert decision.role == (None if store._db.is_sqlite else "supervisor")
    settled = store.proposal(proposal.id)
    assert (settled.state, settled.settled_by, settled.settled_at) == (ProposalState.APPROVED, "alice@box", NOON)
    assert store.decision_of(proposal.id) == decision
    (errand,) = store.errands_open("kill")
    assert (errand.payload, errand.job_row, errand.cluster) == ({"decision": decision.id}, job.row, "cluster-a")


def expired(store: Store, job: Held) -> dict[str, Any]:
    return {"now": NOON + 24 * HOUR, "expires_at": NOON + 25 * HOUR}


def at_once(store: Store, job: Held) -> dict[str, Any]:
    return {"expires_at": NOON}


def of_another_attempt(store: Store, job: Held) -> None:
    requeued(store, job)


def has_ended(store: Store, job: Held) -> None:
    store.record(poll(ended(job), at=50 * MINUTE))


def held_all(store: Store, job: Held) -> None:
    store.add_hold("all", "", "power work", "bob", NOON)


def held_cluster(store: Store, job: Held) -> None:
    store.add_hold("cluster", "cluster-a", "power work", "bob", NOON)


def held_job(store: Store, job: Held) -> None:
    store.add_hold("job", "cluster-a/42", "mine", "bob", NOON)


def other_digest(store: Store, job: Held) -> dict[str, Any]:
    return {"digest": "sha256:0"}


def tampered(store: Store, job: Held) -> None:
    with store._db.write("test") as connection:
        connection.exec_driver_sql("UPDATE verdict SET body = replace(body, 'stood at step', 'sat at step')")


def without_reason(store: Store, job: Held) -> dict[str, Any]:
    return {"reason": "  "}


def in_no_known_mode(store: Store, job: Held) -> dict[str, Any]:
    return {"mode": "auto"}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (expired, r"proposal 1 \(cluster-a/42\) expired at 2026-07-02T12:00:00Z"),
        (at_once, "an approval that expires at once allows nothing"),
        (of_another_attempt, "is for attempt 1, and the job stands at attempt 2"),
        (has_ended, "the job has ended"),
        (held_all, "hold 1 stands on everything, by bob: power work"),
        (held_cluster, "hold 1 stands on cluster-a, by bob: power work"),
        (held_job, "hold 1 stands on cluster-a/42, by bob: mine"),
        (other_digest, "with digest sha256:[0-9a-f]{64}, not on sha256:0"),
        (tampered, "as it is stored does not have its digest"),
        (without_reason, "names who gives it and why"),
        (in_no_known_mode, "mode ask or record, not for 'auto'"),
    ],
)
def test_what_can_not_be_approved_says_why_in_one_sentence_and_nothing_is_written(
    store: Store, spoil: Callable[[Store, Held], dict[str, Any] | None], words: str
) -> None:
    job = stored_job(store)
    proposal = proposed(store, job)
    changes = spoil(store, job)

    with pytest.raises(UsageError, match=words) as refused:
        approved(store, proposal, **(changes or {}))

    assert "\n" not in str(refused.value)
    assert (store.decisions(), store.errands_open("kill")) == ([], [])
    assert store.proposal(proposal.id).state is ProposalState.OPEN


def test_a_proposal_is_approved_once(store: Store) -> None:
    proposal = proposed(store, stored_job(store))
    approved(store, proposal)

    with pytest.raises(UsageError, match=r"is approved by alice@box at 2026-07-01T12:00:00Z"):
        approved(store, proposal)
    with pytest.raises(UsageError, match="there is no proposal 9"):
        approved(store, replace(proposal, id=9))

    assert len(store.decisions()) == 1


def test_a_hold_on_something_else_is_no_hold_on_this(store: Store) -> None:
    proposal = proposed(store, stored_job(store))
    store.add_hold("cluster", "cluster-b", "x", "bob", NOON)
    store.add_hold("job", "cluster-a/421", "x", "bob", NOON)
    store.add_hold("all", "", "x", "bob", NOON)
    store.lift_holds("all", "", "bob", NOON)

    assert approved(store, proposal).stage is Stage.APPROVED


def test_a_standing_rule_gives_no_more_than_it_may_in_a_day(store: Store) -> None:
    one, two = stored_job(store, "41"), stored_job(store, "42")
    by = "standing rule debug hangs"
    approved(store, proposed(store, one), by=by, per_day=1)
    second = proposed(store, two)

    with pytest.raises(UsageError, match=f"{by} gave 1 approvals within 24 h, of 1 it may give"):
        approved(store, second, at=NOON + 23 * HOUR, by=by, per_day=1)

    put(store, two, some_verdict(two, at=NOON + 20 * HOUR, cause="nccl-timeout"), at=NOON + 20 * HOUR)
    (third,) = store.proposals()
    assert approved(store, third, at=NOON + 25 * HOUR, by=by, per_day=1).approved_by == by


def test_of_many_who_approve_at_once_one_does(store: Store, open_store: Callable[[], Store]) -> None:
    proposal = proposed(store, stored_job(store))
    stores = [open_store() for _ in range(4)]

    def one(number: int) -> int:
        try:
            approved(stores[number], proposal, by=f"user{number}@box")
        except UsageError:
            return 0
        return 1

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(one, range(4))) == 1
    assert len(store.decisions()) == len(store.errands_open("kill")) == 1


# ---------------------------------------------------------------- other answers


def test_a_denial_is_written_down(store: Store) -> None:
    proposal = proposed(store, stored_job(store))

    denied = store.deny(proposal.id, by="alice@box", reason="it waits for data", now=NOON + MINUTE)

    assert (denied.state, denied.settled_by, denied.why) == (ProposalState.DENIED, "alice@box", "it waits for data")
    with pytest.raises(UsageError, match="is denied by alice@box at 2026-07-01T12:01:00Z: it waits for data"):
        approved(store, proposal)
    with pytest.raises(UsageError, match="is denied by alice@box"):
        store.deny(proposal.id, by="bob@box", reason="no", now=NOON)
    with pytest.raises(UsageError, match="needs a reason"):
        store.deny(proposal.id, by="bob@box", reason="", now=NOON)
    with pytest.raises(UsageError, match="there is no proposal 9"):
        store.deny(9, by="bob@box", reason="no", now=NOON)


def test_a_denial_after_the_approval_voids_it_while_nothing_was_begun(store: Store) -> None:
    _, decision = ready(store)

    store.deny(decision.proposal, by="bob@box", reason="wait", now=NOON + MINUTE)

    after = store.decision(decision.id)
    assert (after.stage, after.why) == (Stage.VOID, "denied by bob@box after its approval: wait")
    assert store.proposal(decision.proposal).state is ProposalState.DENIED
    assert begin(store, decision) == Refusal("it is void already")


def test_what_is_being_carried_out_can_not_be_denied(store: Store) -> None:
    _, decision = ready(store)
    begin(store, decision)

    with pytest.raises(UsageError, match="its kill is being carried out already"):
        store.deny(decision.proposal, by="bob@box", reason="wait", now=NOON + MINUTE)

    assert store.decision(decision.id).stage is Stage.INTENDED


def test_a_proposal_is_withdrawn_once_and_only_while_it_waits(store: Store) -> None:
    job = stored_job(store)
    proposal = proposed(store, job)

    assert store.withdraw(proposal.id, "it progressed", NOON)
    assert not store.withdraw(proposal.id, "again", NOON)
    assert store.proposal(proposal.id).why == "it progressed"
    _, decision = ready(store, "43")
    assert not store.withdraw(decision.proposal, "too late", NOON)


def test_what_nobody_answers_or_uses_expires(store: Store) -> None:
    waits = proposed(store, stored_job(store, "41"))
    _, unused = ready(store, "42")
    _, begun = ready(store, "43")
    begin(store, begun)

    assert store.expire_due(NOON + 59 * MINUTE) == []
    assert [each.id for each in store.expire_due(NOON + HOUR)] == [unused.proposal]
    assert [each.id for each in store.expire_due(NOON + 24 * HOUR)] == [waits.id]

    assert (store.decision(unused.id).stage, store.decision(unused.id).why) == (
        Stage.VOID,
        "the approval expired unused",
    )
    assert store.decision(begun.id).stage is Stage.INTENDED
    assert store.proposal(waits.id).state is ProposalState.EXPIRED
    assert store.expire_due(NOON + 48 * HOUR) == []


# ---------------------------------------------------------------- carrying out


def test_the_approval_handed_out_is_the_stored_one_and_it_is_handed_out_once(store: Store) -> None:
    """KILL-3: the intent is written before the leave is given."""
    job, decision = ready(store)

    approval = begin(store, decision)

    assert approval == Approval(
        id=decision.id,
        job=job.key,
        attempt=1,
        verdict_digest=decision.digest,
        approved_by="alice@box",
        expires_at=decision.expires_at,
    )
    assert (store.decision(decision.id).stage, store.decision(decision.id).intended_at) == (
        Stage.INTENDED,
        NOON + MINUTE,
    )
    assert begin(store, decision) == Refusal("it is intended already")


def test_of_many_that_begin_at_once_one_gets_the_approval(store: Store, open_store: Callable[[], Store]) -> None:
    _, decision = ready(store)
    stores = [open_store() for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda one: begin(one, decision), stores))

    assert sum(isinstance(each, Approval) for each in got) == 1


def begun_late(store: Store, job: Held) -> dict[str, Any]:
    return {"now": NOON + HOUR}


def by_another_daemon(store: Store, job: Held) -> dict[str, Any]:
    return {"owner": "daemon-b"}


def after_the_lease(store: Store, job: Held) -> None:
    store.release_cluster("cluster-a", OWNER)


@pytest.mark.parametrize(
    ("spoil", "refusal"),
    [
        (begun_late, Refusal("the approval expired at 2026-07-01T13:00:00Z")),
        (of_another_attempt, Refusal("the approval is for attempt 1, and the job stands at attempt 2")),
        (has_ended, Refusal("the job has ended")),
        (held_all, Refusal("hold 1 stands on everything, by bob: power work")),
        (held_cluster, Refusal("hold 1 stands on cluster-a, by bob: power work")),
        (held_job, Refusal("hold 1 stands on cluster-a/42, by bob: mine")),
        (tampered, Refusal("verdict 1 as it is stored does not have the digest that was approved")),
        (by_another_daemon, Refusal("cluster-a is held by daemon-a now, not by daemon-b", for_good=False)),
        (after_the_lease, Refusal("cluster-a is held by nobody now, not by daemon-a", for_good=False)),
    ],
)
@pytest.mark.parametrize("mode", ["ask", "record"])
def test_nothing_is_begun_where_anything_speaks_against_it(
    store: Store, spoil: Callable[[Store, Held], dict[str, Any] | None], refusal: Refusal, mode: str
) -> None:
    """KILL-2, KILL-5: asked once more in the very transaction that writes the intent."""
    job, decision = ready(store, mode=mode)
    values: dict[str, Any] = {"owner": OWNER, "caps": CAPS, "now": NOON + MINUTE} | (spoil(store, job) or {})

    assert store.would_begin(decision.id, mode, **values) == refusal
    steps = {"ask": store.begin_cancel, "record": store.record_only}
    assert steps[mode](decision.id, **values) == refusal

    assert store.decision(decision.id) == decision


def test_what_was_approved_in_mode_record_can_never_be_sent(store: Store) -> None:
    """Whoever approved it knew that nothing would be sent; a changed config does not change what they meant."""
    _, decision = ready(store, mode="record")

    assert begin(store, decision) == Refusal("it was approved in mode 'record', in which nothing is sent")

    assert store.record_only(decision.id, owner=OWNER, caps=CAPS, now=NOON + MINUTE) is None
    recorded = store.decision(decision.id)
    assert (recorded.stage, recorded.mode, recorded.sent_at) == (Stage.RECORDED, "record", None)
    assert store.proposal(decision.proposal).state is ProposalState.DONE


def test_what_was_approved_in_mode_ask_may_be_recorded_only(store: Store) -> None:
    _, decision = ready(store)

    assert store.record_only(decision.id, owner=OWNER, caps=CAPS, now=NOON + MINUTE) is None

    assert (store.decision(decision.id).stage, store.decision(decision.id).mode) == (Stage.RECORDED, "record")
    assert begin(store, decision) == Refusal("it is recorded already")


def test_no_more_are_begun_than_the_caps_allow(store: Store) -> None:
    decisions = [ready(store, str(number), expires_at=NOON + 72 * HOUR)[1] for number in range(41, 46)]
    caps = Caps(per_tick=1, tick=15 * MINUTE, per_day=2)

    def begun(number: int, at: timedelta) -> Approval | Refusal:
        return begin(store, decisions[number], at=at, caps=caps)

    assert isinstance(begun(0, MINUTE), Approval)
    assert begun(1, 15 * MINUTE) == Refusal("1 kill was begun within 900 s, and per_tick allows 1", for_good=False)
    assert begun(1, -HOUR) == Refusal("1 kill was begun within 900 s, and per_tick allows 1", for_good=False)
    assert isinstance(begun(1, 16 * MINUTE), Approval)
    assert begun(2, HOUR) == Refusal("2 kills were begun within 24 h, and per_day allows 2", for_good=False)
    assert store.record_only(decisions[3].id, owner=OWNER, caps=caps, now=NOON + HOUR) is None
    assert store.take_cluster("cluster-a", OWNER, NOON + HOUR, NOON + 72 * HOUR)
    assert isinstance(begun(2, 25 * HOUR), Approval)


def test_caps_hold_for_all_that_begin_at_once(store: Store, open_store: Callable[[], Store]) -> None:
    """Two daemons, each with an approval of its own, count each other's."""
    decisions = [ready(store, str(number))[1] for number in range(41, 45)]
    stores = [open_store() for _ in decisions]
    caps = Caps(per_tick=1, tick=15 * MINUTE, per_day=5)

    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda pair: begin(*pair, caps=caps), zip(stores, decisions, strict=True)))

    assert sum(isinstance(each, Approval) for each in got) == 1


def test_receipt_and_outcome_are_written_once_and_in_order(store: Store) -> None:
    _, decision = ready(store)
    assert not store.receipt(decision.id, CancelReceipt(True, ""), NOON)
    assert not store.outcome(decision.id, Stage.CONFIRMED, "gone", NOON)
    begin(store, decision)

    assert store.receipt(decision.id, CancelReceipt(None, "Socket timed out\n" + "x" * 9000), NOON + 2 * MINUTE)
    assert not store.receipt(decision.id, CancelReceipt(True, ""), NOON + 3 * MINUTE)
    sent = store.decision(decision.id)
    assert (sent.stage, sent.sent_at, sent.accepted) == (Stage.SENT, NOON + 2 * MINUTE, None)
    assert (sent.output or "").startswith("Socket timed out")
    assert len(sent.output or "") == 4000
    assert store.proposal(decision.proposal).state is ProposalState.APPROVED

    assert store.outcome(decision.id, Stage.CONFIRMED, "CANCELLED, and nothing remains", NOON + 4 * MINUTE)
    assert not store.outcome(decision.id, Stage.UNCONFIRMED, "no", NOON + 5 * MINUTE)
    over = store.decision(decision.id)
    assert (over.stage, over.finished_at) == (Stage.CONFIRMED, NOON + 4 * MINUTE)
    assert over.why == "CANCELLED, and nothing remains"
    assert store.proposal(decision.proposal).state is ProposalState.DONE
    assert store.decisions(unfinished=True) == []


@pytest.mark.parametrize("accepted", [True, False, None])
def test_a_receipt_tells_yes_no_and_unknown_apart(store: Store, accepted: bool | None) -> None:
    """KILL-6."""
    _, decision = ready(store)
    begin(store, decision)
    store.receipt(decision.id, CancelReceipt(accepted, "\0"), NOON)

    assert store.decision(decision.id).accepted is accepted


def test_nothing_that_may_have_been_sent_is_void_or_ended_by_itself(store: Store) -> None:
    _, decision = ready(store)
    begin(store, decision)

    assert not store.void(decision.id, "no", NOON)
    assert not store.outcome(decision.id, Stage.ENDED_ITSELF, "no", NOON)
    assert store.outcome(decision.id, Stage.UNCONFIRMED, "it runs still", NOON)


def test_a_kill_that_is_not_confirmed_waits_for_a_look_for_as_long_as_its_attempt_lives(store: Store, url: str) -> None:
    """KILL-3: it is not sent again, so a person must know."""
    held, decision = ready(store)
    begin(store, decision)
    store.outcome(decision.id, Stage.UNCONFIRMED, "it runs still", NOON)

    with Light.open(url) as light:
        (told,) = light.waiting()
    store.record(poll(ended(held), at=5 * MINUTE))
    with Light.open(url) as light:
        after = light.waiting()

    assert (told.id, told.state) == (decision.proposal, "unconfirmed")
    assert after == []


def test_a_newer_proposal_takes_the_place_of_a_kill_that_is_not_confirmed(store: Store, url: str) -> None:
    held, decision = ready(store)
    begin(store, decision)
    store.outcome(decision.id, Stage.UNCONFIRMED, "it runs still", NOON)
    later = proposed(store, requeued(store, held))

    with Light.open(url) as light:
        assert [(each.id, each.state) for each in light.waiting()] == [(later.id, "open")]


def test_whoever_holds_the_approval_can_say_that_nothing_was_sent(store: Store) -> None:
    _, decision = ready(store)
    approval = begin(store, decision)
    assert isinstance(approval, Approval)

    assert store.not_sent(approval, "the process slept", NOON)

    assert store.decision(decision.id).stage is Stage.VOID
    assert not store.receipt(decision.id, CancelReceipt(True, ""), NOON)


def test_a_void_approval_says_why_and_is_used_up(store: Store) -> None:
    """KILL-2."""
    _, decision = ready(store)

    assert store.void(decision.id, "it progressed since the verdict", NOON + MINUTE)

    assert store.decision(decision.id).why == "it progressed since the verdict"
    assert store.proposal(decision.proposal).state is ProposalState.DONE
    assert begin(store, decision) == Refusal("it is void already")
    assert not store.void(decision.id, "again", NOON)
    with pytest.raises(StoreError, match="sent is no outcome"):
        store.outcome(decision.id, Stage.SENT, "", NOON)
    with pytest.raises(StoreError, match="there is no decision 9"):
        store.decision(9)


def test_a_job_may_be_proposed_again_after_its_approval_was_used_up(store: Store) -> None:
    job, decision = ready(store)
    store.void(decision.id, "its evidence was not refreshed", NOON)

    again = proposed(store, job, at=NOON + HOUR)

    assert [each.id for each in store.proposals_of(job.row or 0)] == [decision.proposal, again.id]


# ---------------------------------------------------------------- errands


def test_an_errand_can_be_claimed_for_some_clusters_only_and_be_put_off(store: Store) -> None:
    """Only the daemon that holds a cluster carries out its kills."""
    _, decision = ready(store)

    assert store.claim_errand(["kill"], OWNER, NOON, MINUTE, clusters=["cluster-b"]) is None
    errand = store.claim_errand(["kill"], OWNER, NOON, MINUTE, clusters=["cluster-b", "cluster-a"])
    assert errand is not None
    assert errand.payload == {"decision": decision.id}
    assert store.postpone_errand(errand.id, OWNER, NOON + 5 * SECOND)
    assert not store.postpone_errand(errand.id, OWNER, NOON)
    assert store.claim_errand(["kill"], OWNER, NOON + SECOND, MINUTE) is None
    again = store.claim_errand(["kill"], OWNER, NOON + 5 * SECOND, MINUTE)
    assert again is not None
    assert again.tries == 2


def test_no_two_parts_of_the_store_share_a_name() -> None:
    """It is one class of many parts, and a name used twice would hide one of the two."""
    parts = Store.__mro__[1:-1]
    seen: dict[str, str] = {}
    twice = []
    for part in parts:
        for name in vars(part):
            if name.startswith("__"):
                continue
            if name in seen:
                twice.append(f"{name}: {seen[name]} and {part.__name__}")
            seen[name] = part.__name__

    assert twice == []
