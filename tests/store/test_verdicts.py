"""Verdicts: stored once, with the proposal that follows, and read back to the byte."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from supervisor.model.errors import StoreError
from supervisor.model.findings import Quote
from supervisor.model.job import Outcome
from supervisor.model.lifecycle import Phase, Sign
from supervisor.model.probe import GateScore, Missing, Restarts, Ruling, Score
from supervisor.model.proposals import ProposalState, Stage
from supervisor.store.light import Light
from supervisor.store.store import Store
from tests.some import HOUR, MINUTE, NOON
from tests.store.some import attempts, ended, move, new_job, poll
from tests.store.verdicts import approved, fine_gate, hung_gate, proposed, put, some_verdict, stored_job


def error_gate() -> GateScore:
    missing = Missing(command="nvidia-smi", output="command not found")
    return GateScore(gate="B", name="resources", result=Score.ERROR, reason="no GPU view", missing=missing)


def requeued(store: Store, job, at=5 * MINUTE):
    """The job's next attempt, as a requeue under the same id gives it."""
    key = replace(job.key, incarnation="2000")
    (later,) = store.record(
        poll(
            job.having(
                key=key,
                life=replace(job.life, attempt=job.life.attempt + 1),
                observation=replace(job.observation, key=key),
            ),
            at=at,
        )
    )
    return later


# ---------------------------------------------------------------- written


def test_a_verdict_is_read_back_to_the_byte(store: Store) -> None:
    """PROBE-4: its digest is taken of it, whatever bytes its quotes hold."""
    job = stored_job(store)
    odd = Quote("a\udce9.out", 3, "loss nan \x00\x1b[31m \ud800 \u2028 é %s ? :x")
    gates = (hung_gate(quotes=(odd,)), error_gate(), replace(fine_gate(), gate="D", facts={"x": math.inf, "n": 2**70}))
    verdict = some_verdict(
        job,
        gates=gates,
        reasoning="ends in \udcff",
        restarts=Restarts(burned=2, allowed=3, same_failure=True, quotes=(odd,)),
    )

    number, _ = put(store, job, verdict)

    entry = store.verdict(number)
    assert (entry.verdict, entry.job, entry.name) == (verdict, job.key, "rl__gsm8k_42")
    assert entry.verdict.digest == verdict.digest


def test_the_same_probe_twice_is_one_verdict_and_one_proposal(store: Store) -> None:
    """A daemon that died after the writing and before it knew writes again."""
    job = stored_job(store)
    first = put(store, job, some_verdict(job))

    again = put(store, job, some_verdict(job), at=NOON + HOUR)

    assert again == first
    assert len(store.verdicts()) == len(store.proposals()) == 1


def test_a_verdict_on_a_job_never_stored_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="no job has row number 7"):
        store.put_verdict(7, some_verdict(new_job()), NOON, silence_key="x")


def test_a_proposal_without_an_end_is_refused_and_its_verdict_with_it(store: Store) -> None:
    job = stored_job(store)

    with pytest.raises(StoreError, match="says when it expires"):
        store.put_verdict(job.row or 0, some_verdict(job), NOON, silence_key="x")

    assert store.verdicts() == []


@pytest.mark.parametrize("ruling", [Ruling.NO_KILL, Ruling.ERROR])
def test_only_a_kill_is_proposed(store: Store, ruling: Ruling) -> None:
    job = stored_job(store)

    number, proposal = put(store, job, some_verdict(job, ruling))

    assert proposal is None
    assert store.verdict(number).no_proposal is None
    assert store.proposals() == []


def test_a_kill_that_the_rules_forbid_is_kept_with_the_reason(store: Store) -> None:
    """KILL-5: rules still recommend; nothing is proposed."""
    job = stored_job(store)

    number, proposal = put(store, job, some_verdict(job), leave="cluster cluster-a is marked no_kill")

    assert (proposal, store.verdict(number).no_proposal) == (None, "cluster cluster-a is marked no_kill")


def test_an_attempt_has_one_proposal_at_a_time(store: Store) -> None:
    job = stored_job(store)
    first = proposed(store, job)

    number, second = put(store, job, some_verdict(job, at=NOON + MINUTE))

    assert second is None
    assert store.verdict(number).no_proposal == f"proposal {first.id} of this attempt waits already"
    assert [each.id for each in store.proposals()] == [first.id]


def test_a_kill_on_other_facts_takes_the_place_of_the_one_that_waits(store: Store) -> None:
    job = stored_job(store)
    first = proposed(store, job)

    second = proposed(store, job, at=NOON + MINUTE, cause="nccl-timeout")

    assert (store.proposal(first.id).state, store.proposal(first.id).why) == (
        ProposalState.WITHDRAWN,
        "a later probe rules on other facts",
    )
    assert [each.id for each in store.proposals()] == [second.id]


def test_a_later_no_kill_withdraws_the_proposal_and_an_error_leaves_it(store: Store) -> None:
    """PROBE-3: an ERROR knows nothing, so it takes nothing back."""
    job = stored_job(store)
    first = proposed(store, job)

    put(store, job, some_verdict(job, Ruling.ERROR, at=NOON + MINUTE, gates=(error_gate(),)))
    assert store.proposal(first.id).state is ProposalState.OPEN
    put(store, job, some_verdict(job, Ruling.NO_KILL, at=NOON + 2 * MINUTE))

    assert store.proposal(first.id).why == "a later probe says NO-KILL"
    assert store.proposals() == []


def test_a_verdict_on_an_attempt_that_is_over_proposes_nothing(store: Store) -> None:
    job = stored_job(store)
    late = some_verdict(job)
    requeued(store, job)

    number, proposal = put(store, job, late)

    assert proposal is None
    assert store.verdict(number).no_proposal == "attempt 1 is over: the job stands at attempt 2"


def test_a_verdict_on_a_job_that_has_ended_proposes_nothing(store: Store) -> None:
    job = stored_job(store)
    store.record(poll(ended(job), at=5 * MINUTE))

    number, proposal = put(store, job, some_verdict(job))

    assert (proposal, store.verdict(number).no_proposal) == (None, "it has ended")


def test_a_verdict_on_the_next_attempt_withdraws_what_waits_for_the_one_before(store: Store) -> None:
    job = stored_job(store)
    first = proposed(store, job)
    later = requeued(store, job)

    put(store, later, some_verdict(later, Ruling.ERROR, gates=(error_gate(),), at=NOON + 6 * MINUTE))

    assert (store.proposal(first.id).state, store.proposal(first.id).why) == (
        ProposalState.WITHDRAWN,
        "attempt 2 began",
    )
    assert store.proposal(first.id).job == job.key


@pytest.mark.parametrize("changed", ["nothing", "a step", "the cause", "the attempt"])
def test_a_denial_silences_equal_facts_until_they_change(store: Store, changed: str) -> None:
    job = stored_job(store)
    first = proposed(store, job)
    store.deny(first.id, by="alice@box", reason="it waits for the data server", now=NOON)
    if changed == "the attempt":
        job = requeued(store, job)
    verdict = some_verdict(job, at=NOON + HOUR)
    if changed == "a step":
        verdict = replace(verdict, mark=replace(verdict.mark, step=16))
    elif changed == "the cause":
        verdict = replace(verdict, cause="nccl-timeout")
    else:
        verdict = replace(verdict, mark=replace(some_verdict(job).mark, at=NOON + HOUR))

    number, proposal = put(store, job, verdict)

    if changed == "nothing":
        assert proposal is None
        assert store.verdict(number).no_proposal == f"equal facts were denied by alice@box (proposal {first.id})"
    else:
        assert proposal is not None


def test_what_was_recorded_is_not_proposed_again(store: Store) -> None:
    """In mode "record" the job lives on, and saying the same every hour would be noise."""
    job = stored_job(store)
    decision = approved(store, proposed(store, job), mode="record")
    with store._db.write("test") as connection:
        connection.exec_driver_sql("UPDATE decision SET stage = 'recorded', finished_at = 0")
        connection.exec_driver_sql("UPDATE proposal SET state = 'done'")

    number, proposal = put(store, job, replace(some_verdict(job), evidence="another folder"))

    assert (decision.stage, proposal) == (Stage.APPROVED, None)
    assert "recorded already" in (store.verdict(number).no_proposal or "")


# ---------------------------------------------------------------- what the next tick reads


def test_standing_is_the_newest_verdict_of_each_living_job(store: Store) -> None:
    first, other, over = stored_job(store, "41"), stored_job(store, "42"), stored_job(store, "43")
    stored_job(store, "44")
    put(store, first, some_verdict(first, Ruling.NO_KILL))
    kill = some_verdict(first, at=NOON + MINUTE)
    number, _ = put(store, first, kill)
    put(store, other, some_verdict(other, Ruling.ERROR, gates=(error_gate(),)))
    put(store, over, some_verdict(over))
    store.record(poll(ended(over), at=30 * MINUTE))

    standing = store.standing("cluster-a")

    assert set(standing) == {first.key, other.key}
    found = standing[first.key]
    assert (found.id, found.job, found.attempt, found.ruling) == (number, first.key, 1, Ruling.KILL)
    assert (found.wedged, found.passed, found.cause, found.setting) == (True, False, "silent-hang", "9c0f")
    assert (found.reason, found.quotes, found.mark) == (hung_gate().reason, hung_gate().quotes, kill.mark)
    assert standing[other.key].reason == "no GPU view"
    assert store.standing("cluster-b") == {}


def test_standing_of_a_requeued_job_is_found_by_its_key_of_now_and_names_the_attempt_judged(store: Store) -> None:
    job = stored_job(store)
    put(store, job, some_verdict(job))
    later = requeued(store, job)

    (found,) = store.standing("cluster-a").values()

    assert set(store.standing("cluster-a")) == {later.key}
    assert (found.job, found.attempt) == (job.key, 1)


def test_an_older_verdict_that_is_stored_late_does_not_stand(store: Store) -> None:
    job = stored_job(store)
    newer, _ = put(store, job, some_verdict(job, Ruling.NO_KILL, at=NOON + HOUR))
    put(store, job, some_verdict(job, Ruling.ERROR, gates=(error_gate(),), at=NOON))

    assert store.standing("cluster-a")[job.key].id == newer


def test_a_poll_keeps_the_verdict_of_the_jobs_it_writes(store: Store) -> None:
    job = stored_job(store)
    number, _ = put(store, job, some_verdict(job))
    suspect, step = move(job, Phase.SUSPECT)

    store.record(poll(suspect, at=30 * MINUTE, transitions=[step]))

    assert store.standing("cluster-a")[job.key].id == number


def test_standing_asks_the_database_through_its_own_index(sqlite_store: Store) -> None:
    """A tick reads it for each cluster: jobs without a verdict cost nothing."""
    from supervisor.store.verdicts import _STANDING

    with sqlite_store._db.read("test") as connection:
        plan = [str(row) for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {_STANDING}", ("cluster-a",))]

    assert any("job_judged" in line for line in plan), plan
    assert not any("SCAN" in line for line in plan), plan


def test_settings_that_passed_are_kept_with_the_first_verdict(store: Store) -> None:
    """RL-10: NO-KILL, and no gate failed."""
    job = stored_job(store)
    put(store, job, some_verdict(job, Ruling.NO_KILL))
    put(store, job, some_verdict(job, Ruling.NO_KILL, at=NOON + MINUTE))
    put(store, job, some_verdict(job, Ruling.NO_KILL, at=NOON + 2 * MINUTE, setting=None))
    soft = hung_gate(hard=False, wedge=False)
    put(store, job, some_verdict(job, Ruling.NO_KILL, at=NOON + 3 * MINUTE, setting="soft", gates=(soft,)))
    put(store, job, some_verdict(job, at=NOON + 4 * MINUTE, setting="killed"))

    assert store.passed_settings() == {"9c0f"}


# ---------------------------------------------------------------- lists


def test_verdicts_are_listed_newest_first_whole(store: Store) -> None:
    one, two = stored_job(store, "41"), stored_job(store, "42")
    numbers = [
        put(store, job, some_verdict(job, at=NOON + number * MINUTE))[0] for number, job in enumerate((one, two, one))
    ]

    assert [each.id for each in store.verdicts()] == numbers[::-1]
    assert [each.id for each in store.verdicts(limit=2)] == numbers[:0:-1]
    assert [each.id for each in store.verdicts(row=one.row)] == [numbers[2], numbers[0]]
    assert [each.proposal is not None for each in store.verdicts()] == [False, True, True]
    with pytest.raises(StoreError, match="there is no verdict 99"):
        store.verdict(99)
    with pytest.raises(StoreError, match="there is no verdict"):
        store.verdict(2**80)


def test_evidence_is_needed_while_something_rests_on_it(store: Store) -> None:
    """A folder is never pruned while a verdict needs it."""
    one, two = stored_job(store, "41"), stored_job(store, "42")
    for job in (one, two):
        put(store, job, some_verdict(job, Ruling.NO_KILL))
        proposed(store, job, at=NOON + MINUTE)
    put(store, two, some_verdict(two, Ruling.NO_KILL, at=NOON + 2 * MINUTE))

    folders = store.evidence_folders()

    needed = {folder for folder, (_, need) in folders.items() if need}
    assert needed == {some_verdict(one, at=NOON + MINUTE).evidence, some_verdict(two, at=NOON + 2 * MINUTE).evidence}
    assert len(folders) == 5
    assert folders[some_verdict(one).evidence] == (NOON, False)


def test_the_scorecard_tells_what_became_of_each_job(store: Store) -> None:
    """Would-be kills that recovered, kept jobs that died, time to detect."""
    job = stored_job(store, "41")
    suspect, step = move(job, Phase.SUSPECT)
    (suspect,) = store.record(poll(suspect, at=-5 * MINUTE, transitions=[step]))
    proposal = proposed(store, suspect)
    decision = approved(store, proposal, mode="record")
    log = replace(suspect.log, step=19, progress_at=NOON + HOUR)
    (ran_on,) = store.record(poll(suspect.having(log=log), at=HOUR))
    kept = stored_job(store, "42")
    put(store, kept, some_verdict(kept, Ruling.NO_KILL, at=NOON + MINUTE))
    over, step = move(kept, Phase.TERMINAL, Sign.FAILED, Outcome.FAILED)
    over = ended(over)
    store.record(poll(over, at=2 * HOUR, transitions=[step], attempts=attempts([over])))

    first, second = store.scorecard(NOON)

    assert (first.job, first.ruling, first.proposal, first.proposal_state) == (job.key, "KILL", proposal.id, "approved")
    assert (first.stage, first.mode, decision.mode) == ("approved", "record", "record")
    assert (first.step_then, first.step_now, first.progress_at) == (15, 19, ran_on.log.progress_at)
    assert (first.attempt, first.attempt_now, first.attempt_state, first.suspect_at) == (1, 1, "running", NOON)
    assert (second.ruling, second.outcome, second.phase, second.attempt_state) == (
        "NO-KILL",
        "failed",
        "terminal",
        "failed",
    )
    assert store.scorecard(NOON + HOUR) == []


def test_the_scorecard_of_an_attempt_that_another_followed_tells_of_that_attempt(store: Store) -> None:
    job = stored_job(store)
    put(store, job, some_verdict(job))
    log = replace(job.log, step=17, progress_at=NOON + MINUTE)
    (job,) = store.record(poll(job.having(log=log), at=100 * MINUTE))
    requeued(store, job, at=101 * MINUTE)

    (row,) = store.scorecard(NOON - HOUR)

    assert (row.attempt, row.attempt_now, row.attempt_state) == (1, 2, "running")
    assert (row.step_now, row.progress_at) == (17, NOON + MINUTE)


def test_alarms_are_counted_by_what_followed(store: Store) -> None:
    def tell(job: str, *phases: Phase) -> None:
        held = stored_job(store, job)
        for number, phase in enumerate(phases):
            moved, step = move(held, phase, outcome=None if phase.live else Outcome.FAILED)
            (held,) = store.record(
                poll(moved, at=HOUR + int(job) * MINUTE + timedelta(seconds=number), transitions=[step])
            )

    tell("1", Phase.SUSPECT, Phase.RUNNING, Phase.SUSPECT, Phase.WEDGED)
    tell("2", Phase.SUSPECT, Phase.WEDGED, Phase.TERMINAL)
    tell("3", Phase.TERMINAL)

    assert store.alarms_since(NOON) == {"raised": 3, "recovered": 1, "ended": 1, "standing": 1}
    assert store.alarms_since(NOON + HOUR)["raised"] == 0


# ---------------------------------------------------------------- the light path says the same


def test_the_light_path_tells_the_same_verdicts_as_the_full_one(store: Store, url: str) -> None:
    living, other, over = stored_job(store, "41"), stored_job(store, "42"), stored_job(store, "43")
    put(store, living, some_verdict(living, Ruling.NO_KILL))
    for job in (living, other, over):
        put(store, job, some_verdict(job, at=NOON + MINUTE))
    store.record(poll(ended(over), at=30 * MINUTE))

    with Light.open(url) as light:
        rows = light.verdicts()
        of_over = light.verdicts([over.row or 0])
        bodies = light.verdict_bodies(living.row or 0)

    full = {each.job_row: each for each in reversed(store.verdicts())}
    assert [one.job for one in rows] == [living.row, other.row]
    for one in (*rows, *of_over):
        entry = full[one.job]
        verdict = entry.verdict
        assert one._asdict() == {
            "job": entry.job_row,
            "id": entry.id,
            "attempt": verdict.attempt,
            "taken_at": verdict.taken_at,
            "ruling": verdict.ruling.value,
            "confidence": verdict.confidence,
            "cause": verdict.cause,
            "passed": verdict.passed,
            "wedged": verdict.wedged,
            "judge": verdict.judge,
            "evidence": verdict.evidence,
            "digest": verdict.digest,
            "reason": verdict.gates[0].reason,
        }
    assert [number for number, _ in bodies] == [each.id for each in store.verdicts(row=living.row)]


def test_the_light_path_tells_what_waits_as_the_full_one_does(store: Store, url: str) -> None:
    one, two, three = stored_job(store, "41"), stored_job(store, "42"), stored_job(store, "43")
    waits, agreed, denied = proposed(store, one), proposed(store, two), proposed(store, three)
    decision = approved(store, agreed)
    store.deny(denied.id, by="alice@box", reason="no", now=NOON)

    with Light.open(url) as light:
        rows = light.waiting()

    full = store.proposals(ProposalState.OPEN, ProposalState.APPROVED)
    assert [one._asdict() for one in rows] == [
        {
            "id": each.id,
            "kind": "kill",
            "job": str(each.job.ref),
            "name": each.name,
            "verdict": each.verdict,
            "cause": each.cause,
            "confidence": each.confidence,
            "state": each.state.value,
            "expires_at": each.expires_at if each.id == waits.id else decision.expires_at,
        }
        for each in full
    ]
