"""An approved kill, carried out: looked at again, sent once, looked up after (KILL-1 to KILL-6)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from supervisor.app.marks import caps_of
from supervisor.app.sections import StandingSection
from supervisor.app.sweep import Sweeper
from supervisor.model.errors import ClusterError, NotApproved, StoreError
from supervisor.model.job import JobState
from supervisor.model.ports import CancelReceipt
from supervisor.model.probe import Mark, Ruling
from supervisor.model.proposals import ProposalState, Stage
from supervisor.reports.proposals import decided
from tests.scripted import World
from tests.some import HOUR, MINUTE, NOON
from tests.stories.killing import Effects, Scene, a_hung_world, a_scene, cancelled, verdict_on

LATER = timedelta(seconds=61)


def approved_scene(folder, effects=None, **more) -> Scene:
    """A hung job, its verdict, an approval of its kill; not carried out yet."""
    decide = more.pop("decide", {})
    scene = a_scene(folder, a_hung_world(), effects=effects, **more)
    asyncio.run(scene.settle())
    scene.approve(scene.judge(), **decide)
    return scene


def run(scene: Scene, *, wait: bool = False) -> None:
    asyncio.run(scene.carry_out(wait=wait))


# ---------------------------------------------------------------- the straight way


def test_an_approved_kill_is_sent_once_and_confirmed_by_the_scheduler_and_by_what_remains(tmp_path):
    """KILL-3."""
    scene = approved_scene(tmp_path)

    run(scene)
    run(scene)

    ((job, approval),) = scene.sent
    assert (job, approval.id) == (scene.decision().job, 1)
    decision = scene.decision()
    assert (decision.stage, decision.accepted) == (Stage.CONFIRMED, True)
    assert decision.why == "the scheduler says CANCELLED, and nothing of it remains"
    assert decision.approved_at < decision.intended_at < decision.sent_at < decision.finished_at
    assert scene.held().life.outcome == "cancelled"
    assert scene.store.proposal(1).state is ProposalState.DONE
    assert scene.store.errands_open("kill") == []


def test_the_dated_record_says_who_why_on_what_evidence_and_that_nothing_is_started_again(tmp_path):
    """SAY-3: relaunch is recommended with the fix, not done."""
    scene = approved_scene(tmp_path)

    run(scene)

    ((name, text),) = scene.records().items()
    assert name == "2026-07-01_cluster-a-1-kill-1-confirmed.md"
    for words in (
        "# cluster-a/1 rl__hangs: killed",
        "approved: 2026-07-01 12:04:00Z by alice@box: it hangs",
        "cancel: sent once",
        "    step 15/80",
        f"digest: {scene.decision().digest}",
        "- set a timeout",
        "- Relaunch it once that is done; the supervisor starts nothing itself.",
    ):
        assert words in text


def test_the_evidence_is_taken_anew_and_the_job_read_again_before_anything_is_sent(tmp_path):
    """KILL-2, KILL-4."""
    scene = approved_scene(tmp_path)
    polls = scene.clusters[0].polls
    order: list[str] = []
    scene.clusters[0].on_cancel = lambda job, approval: order.append(
        f"sent after {scene.clusters[0].polls - polls} polls, {len(scene.refreshed)} refreshed, {scene.decision().stage}"
    )

    run(scene)

    assert order == ["sent after 2 polls, 1 refreshed, intended"]
    assert scene.store.polls("cluster-a", NOON)[-1].good


def test_in_mode_record_everything_is_done_but_the_sending(tmp_path):
    scene = approved_scene(tmp_path, mode="record", decide={"mode": "record"})

    run(scene)
    run(scene)

    assert (scene.sent, scene.decision().stage, len(scene.refreshed)) == ([], Stage.RECORDED, 1)
    assert scene.held().life.phase.live
    ((name, text),) = scene.records().items()
    assert name.endswith("kill-1-recorded.md")
    assert "would have been killed" in text
    assert "nothing was sent" in text


@pytest.mark.parametrize(("approved", "now"), [("record", "ask"), ("ask", "record")])
def test_what_either_the_approval_or_the_config_means_to_record_is_never_sent(tmp_path, approved, now):
    scene = approved_scene(tmp_path, mode=now, decide={"mode": approved})

    run(scene)

    assert (scene.sent, scene.decision().stage, scene.decision().mode) == ([], Stage.RECORDED, "record")


# ---------------------------------------------------------------- void


def progresses(scene):
    scene.worlds[0].print("1", b"step 16/80\n")


def is_requeued(scene):
    scene.worlds[0].requeue("1")
    scene.worlds[0].start("1")


def bears_another_job(scene):
    scene.worlds[0].jobs.pop("1")
    scene.worlds[0].submit("1", "another")
    scene.worlds[0].start("1")


def is_held(scene):
    scene.store.add_hold("job", "cluster-a/1", "mine", "bob", scene.now)


def is_marked(scene):
    chosen = scene.kills.settings.approvals.model_copy(update={"no_kill": ("rl__*",)})
    scene.kills.settings = scene.kills.settings.model_copy(update={"approvals": chosen})


def waits_again(scene):
    scene.worlds[0].jobs["1"].state = JobState.PENDING


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (progresses, "it progressed since the verdict (step 16"),
        (is_requeued, "attempt 1 is over: the job stands at attempt 2"),
        (is_held, "hold 1 stands on cluster-a/1, by bob: mine"),
        (is_marked, "its name fits the no-kill pattern 'rl__*'"),
        (waits_again, "it does not run: the scheduler says PENDING"),
    ],
)
@pytest.mark.parametrize("when", ["before", "while the evidence is taken"])
def test_an_approval_is_void_and_says_why_where_its_facts_are_gone(tmp_path, what, why, when):
    """KILL-2, KILL-5: also where they go while the evidence is being taken."""
    scene = approved_scene(tmp_path)
    same = scene.kills.refresh

    async def slowly(held):
        verdict = await same(held)
        scene.pass_time(MINUTE)
        what(scene)
        return verdict

    scene.pass_time(MINUTE)
    if when == "before":
        what(scene)
    else:
        scene.kills.refresh = slowly
    run(scene)
    run(scene)

    assert scene.sent == []
    assert scene.decision().stage is Stage.VOID
    assert (scene.decision().why or "").startswith(why)
    assert len(scene.refreshed) == (0 if when == "before" else 1)
    ((name, text),) = scene.records().items()
    assert name.endswith("kill-1-void.md")
    assert why in text
    assert scene.store.errands_open("kill") == []


def test_a_job_that_bears_the_id_now_is_never_the_one_that_was_approved(tmp_path):
    """POLL-11."""
    scene = approved_scene(tmp_path)
    scene.pass_time(MINUTE)
    bears_another_job(scene)

    run(scene)

    assert scene.sent == []
    assert scene.decision().stage is Stage.ENDED_ITSELF
    assert scene.worlds[0].jobs["1"].state is JobState.RUNNING


def test_a_job_that_ended_by_itself_needs_no_cancel(tmp_path):
    scene = approved_scene(tmp_path)
    scene.pass_time(MINUTE)
    scene.worlds[0].end("1", JobState.FAILED, 1)

    run(scene)

    assert (scene.sent, scene.decision().stage) == ([], Stage.ENDED_ITSELF)
    assert scene.decision().why == "it ended by itself: the scheduler says FAILED"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ruling": Ruling.NO_KILL}, "the refreshed evidence says NO-KILL"),
        ({"cause": "nccl-timeout"}, "the refreshed evidence names another cause: nccl-timeout"),
        ({"mark": Mark(at=NOON, step=16)}, "it progressed since the verdict (step 16)"),
    ],
)
def test_refreshed_evidence_that_says_otherwise_voids_it(tmp_path, changes, why):
    scene = approved_scene(tmp_path)

    async def refresh(held):
        return verdict_on(held, scene.now, **changes)

    scene.kills.refresh = refresh
    run(scene)

    assert (scene.sent, scene.decision().stage) == ([], Stage.VOID)
    assert (scene.decision().why or "").startswith(why)


# ---------------------------------------------------------------- in doubt


def test_evidence_that_could_not_be_taken_anew_makes_it_wait_until_the_approval_expires(tmp_path):
    scene = approved_scene(tmp_path)

    async def refresh(held):
        return "srun: error: timed out"

    scene.kills.refresh = refresh
    run(scene)
    assert (scene.sent, scene.decision().stage) == ([], Stage.APPROVED)

    scene.pass_time(HOUR)
    run(scene)

    assert (scene.decision().stage, scene.decision().why) == (Stage.VOID, "the approval expired unused")
    assert list(scene.records()) == ["2026-07-01_cluster-a-1-kill-1-void.md"]


def is_unreachable(scene):
    scene.worlds[0].unreachable = "ssh: connection refused"


def has_no_accounting(scene):
    scene.worlds[0].accounting_up = False
    scene.worlds[0].jobs["1"].listed = False


def is_missing(scene):
    scene.worlds[0].jobs["1"].listed = False
    scene.worlds[0].jobs["1"].in_accounting = False


@pytest.mark.parametrize("what", [is_unreachable, has_no_accounting, is_missing])
def test_a_job_that_can_not_be_seen_is_not_killed_and_the_approval_stands(tmp_path, what):
    """POLL-1: not seen is never the same as not there."""
    scene = approved_scene(tmp_path)
    what(scene)

    run(scene)
    assert (scene.sent, scene.decision().stage) == ([], Stage.APPROVED)

    scene.worlds[0].unreachable, scene.worlds[0].accounting_up = None, True
    scene.worlds[0].jobs["1"].listed = scene.worlds[0].jobs["1"].in_accounting = True
    scene.pass_time(LATER)
    run(scene)
    assert (len(scene.sent), scene.decision().stage) == (1, Stage.CONFIRMED)


def test_only_the_daemon_that_holds_the_cluster_carries_out_its_kills(tmp_path):
    scene = approved_scene(tmp_path)
    asyncio.run(scene.room.writer.call(lambda store: store.release_cluster("cluster-a", "daemon-a")))
    scene.store.take_cluster("cluster-a", "daemon-b", scene.now, scene.now + HOUR)

    run(scene)
    assert (scene.sent, scene.decision().stage) == ([], Stage.APPROVED)

    other = a_scene(tmp_path, *scene.worlds, owner="daemon-b")
    other.pass_time(MINUTE)
    run(other)
    assert (scene.sent, len(other.sent), scene.decision().stage) == ([], 1, Stage.CONFIRMED)


def test_a_lease_lost_while_the_evidence_is_taken_stops_it(tmp_path):
    scene = approved_scene(tmp_path)
    same = scene.kills.refresh

    async def slowly(held):
        verdict = await same(held)
        scene.pass_time(10 * MINUTE)
        assert scene.store.take_cluster("cluster-a", "daemon-b", scene.now, scene.now + HOUR)
        return replace(verdict, taken_at=scene.now)

    scene.kills.refresh = slowly
    run(scene)

    assert (scene.sent, scene.decision().stage) == ([], Stage.APPROVED)


def test_an_errand_lost_to_another_while_the_evidence_is_taken_stops_it(tmp_path):
    scene = approved_scene(tmp_path)
    same = scene.kills.refresh

    async def slowly(held):
        verdict = await same(held)
        scene.pass_time(6 * MINUTE)
        assert scene.store.claim_errand(["kill"], "another", scene.now, HOUR) is not None
        return replace(verdict, taken_at=scene.now)

    scene.kills.refresh = slowly
    run(scene)

    assert (scene.sent, scene.decision().stage) == ([], Stage.APPROVED)


def test_the_caps_make_the_next_one_wait(tmp_path):
    """A cap of kills per tick and day."""
    world = a_hung_world()
    world.submit("2", "rl__hangs_too")
    world.start("2")
    scene = a_scene(tmp_path, world, per_tick=1, per_day=2)
    asyncio.run(scene.settle())
    for job in ("1", "2"):
        scene.approve(scene.judge(job=job))

    run(scene)
    assert [job.id for job, _ in scene.sent] == ["1"]
    assert (scene.decision(2).stage, len(scene.refreshed)) == (Stage.APPROVED, 1)
    full = scene.store.capped("ask", caps_of(scene.kills.settings), scene.now)
    assert full == "1 kill was begun within 900 s, and per_tick allows 1"
    assert f"; it waits, for {full}" in decided(scene.decision(2), full)
    assert "it waits" not in decided(scene.decision(1), full)

    scene.pass_time(16 * MINUTE)
    assert scene.store.capped("ask", caps_of(scene.kills.settings), scene.now) is None
    run(scene)
    assert [job.id for job, _ in scene.sent] == ["1", "2"]


# ---------------------------------------------------------------- after the sending


@pytest.mark.parametrize(
    "raised",
    [
        ClusterError("cluster-a", "Socket timed out on send/recv operation"),
        TimeoutError(),
        RuntimeError("a fault of ours"),
    ],
)
def test_a_cancel_whose_answer_was_lost_is_looked_up_and_never_sent_again(tmp_path, raised):
    """KILL-6: it may have worked."""
    scene = approved_scene(tmp_path, Effects(cancelled, raises=raised))

    run(scene)

    assert (len(scene.sent), scene.decision().stage, scene.decision().accepted) == (1, Stage.CONFIRMED, None)


def test_a_cancel_without_effect_is_unconfirmed_after_a_while_and_a_person_must_look(tmp_path):
    scene = approved_scene(tmp_path, Effects(None))

    run(scene)
    assert scene.decision().stage is Stage.SENT
    scene.pass_time(timedelta(seconds=599))
    run(scene)
    assert scene.decision().stage is Stage.SENT
    scene.pass_time(timedelta(seconds=10))
    run(scene)

    assert (len(scene.sent), scene.decision().stage) == (1, Stage.UNCONFIRMED)
    assert scene.decision().why == "the scheduler says RUNNING still"
    ((name, text),) = scene.records().items()
    assert name.endswith("kill-1-unconfirmed.md")
    assert "A person must look" in text


def test_a_refused_cancel_says_what_the_scheduler_said(tmp_path):
    scene = approved_scene(tmp_path, Effects(None, CancelReceipt(False, "Access/permission denied")))

    run(scene, wait=True)

    assert scene.decision().stage is Stage.UNCONFIRMED
    assert scene.decision().why == "the scheduler says RUNNING still; the cancel was refused: Access/permission denied"


def test_what_remains_of_it_keeps_it_unconfirmed(tmp_path):
    scene = approved_scene(tmp_path, Effects(cancelled, left=("node01: process 4711 python train.py",)))

    run(scene, wait=True)

    assert scene.decision().stage is Stage.UNCONFIRMED
    assert scene.decision().why == "the scheduler says CANCELLED, but node01: process 4711 python train.py"


def test_remains_that_can_not_be_told_are_not_taken_for_none(tmp_path):
    scene = approved_scene(tmp_path, Effects(cancelled, remains_unknown="ssh node01: no route to host"))

    run(scene)
    assert scene.decision().stage is Stage.SENT
    scene.clusters[0].effects.remains_unknown = None
    scene.pass_time(LATER)
    run(scene)

    assert scene.decision().stage is Stage.CONFIRMED


def test_a_cancel_that_takes_its_time_is_waited_for_by_once(tmp_path):
    """``--once`` carries out kills to their end."""
    scene = approved_scene(tmp_path, Effects(None))
    pause = scene.kills.pause

    async def ends_at_the_third_look(seconds):
        await pause(seconds)
        if scene.clusters[0].polls > 4 and scene.worlds[0].jobs["1"].state.live:
            cancelled(scene.worlds[0], "1")

    scene.kills.pause = ends_at_the_third_look
    run(scene, wait=True)

    assert (len(scene.sent), scene.decision().stage) == (1, Stage.CONFIRMED)


def test_a_job_that_its_controller_starts_again_is_confirmed_for_the_attempt_that_was_killed(tmp_path):
    def requeue(world: World, job: str) -> None:
        world.requeue(job, JobState.CANCELLED)
        world.start(job)

    scene = approved_scene(tmp_path, Effects(requeue))
    scene.pass_time(MINUTE)

    run(scene)

    assert (len(scene.sent), scene.decision().stage) == (1, Stage.CONFIRMED)
    assert "attempt 2 of it has begun since" in (scene.decision().why or "")


def test_a_backend_that_knows_that_the_approval_is_for_another_sends_nothing_and_voids_it(tmp_path):
    scene = approved_scene(tmp_path, Effects(None, raises=NotApproved("approval 1 is for another attempt")))

    run(scene)

    assert scene.decision().stage is Stage.VOID
    assert scene.decision().why == "nothing was sent: approval 1 is for another attempt"


def test_a_process_that_slept_between_the_intent_and_the_sending_sends_nothing(tmp_path, monkeypatch):
    scene = approved_scene(tmp_path)
    begin = scene.store.begin_cancel

    def slept(number, **values):
        begun = begin(number, **values)
        scene.pass_time(MINUTE)
        return begun

    monkeypatch.setattr(scene.store, "begin_cancel", slept)
    run(scene)

    assert (scene.sent, scene.decision().stage) == ([], Stage.VOID)
    assert "60 s passed between the intent and the sending" in (scene.decision().why or "")


def test_an_intent_without_a_receipt_is_looked_up_and_never_sent(tmp_path, monkeypatch):
    """KILL-3: what a crash between the two leaves."""
    scene = approved_scene(tmp_path)

    def lost(number, receipt, now):
        raise StoreError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(scene.store, "receipt", lost)
        with pytest.raises(StoreError):
            run(scene)
    assert (len(scene.sent), scene.decision().stage) == (1, Stage.INTENDED)

    scene.pass_time(6 * MINUTE)
    run(scene)

    assert (len(scene.sent), scene.decision().stage) == (1, Stage.CONFIRMED)
    assert "whether the cancel was sent before the daemon ended, or it ended by itself, is not known" in (
        scene.decision().why or ""
    )


def test_a_daemon_that_is_told_to_stop_keeps_the_receipt_of_what_is_on_its_way(tmp_path):
    """SIGTERM ends the loops; a cancel that was begun is not dropped in the middle."""
    scene = approved_scene(tmp_path)
    arrived = asyncio.Event()
    cancel = scene.clusters[0].cancel

    async def slow(job, approval):
        receipt = await cancel(job, approval)
        arrived.set()
        await asyncio.sleep(0.05)
        return receipt

    async def stopped():
        scene.clusters[0].cancel = slow
        work = asyncio.ensure_future(scene.carry_out())
        await arrived.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(stopped())

    assert (len(scene.sent), scene.decision().stage) == (1, Stage.SENT)


@pytest.mark.lab
def test_of_two_daemons_on_one_server_one_carries_it_out(tmp_path, postgres_url):
    """The one that holds the cluster's lease; both are asked at the same moment."""
    world = a_hung_world()
    one, two = (a_scene(tmp_path, world, url=postgres_url, owner=f"daemon-{name}") for name in "ab")
    asyncio.run(one.settle())
    one.approve(one.judge())
    two.clock[0] = one.now + MINUTE

    async def both():
        await asyncio.gather(one.carry_out(), two.carry_out(), one.carry_out(), two.carry_out())

    asyncio.run(both())

    assert (len(one.sent), len(two.sent)) == (1, 0)
    assert one.decision().stage is Stage.CONFIRMED
    for scene in (one, two):
        asyncio.run(scene.room.close())


def test_a_record_that_could_not_be_written_is_written_later(tmp_path, monkeypatch):
    scene = approved_scene(tmp_path)

    def full(*_):
        raise OSError("no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(scene.kills.logs, "put", full)
        run(scene)
    assert (scene.decision().stage, scene.records()) == (Stage.CONFIRMED, {})

    scene.pass_time(LATER)
    run(scene)

    assert (len(scene.sent), len(scene.records())) == (1, 1)
    assert scene.store.errands_open("kill") == []


# ---------------------------------------------------------------- what waits


def test_a_proposal_whose_facts_are_gone_is_withdrawn(tmp_path):
    scene = a_scene(tmp_path, a_hung_world())
    asyncio.run(scene.settle())
    scene.judge()
    scene.pass_time(MINUTE)
    progresses(scene)
    asyncio.run(scene.tick())

    run(scene)

    (proposal,) = scene.store.proposals(*ProposalState)
    assert proposal.state is ProposalState.WITHDRAWN
    assert (proposal.why or "").startswith("it progressed since the verdict (step 16")


def test_one_verdict_that_can_not_be_read_holds_up_no_other(tmp_path):
    world = a_hung_world()
    world.submit("2", "rl__hangs_too")
    world.start("2")
    scene = a_scene(tmp_path, world)
    asyncio.run(scene.settle())
    scene.judge(job="1")
    scene.approve(scene.judge(job="2"))
    with scene.store._db.write("test") as connection:
        connection.exec_driver_sql("UPDATE verdict SET body = '{}' WHERE id = 1")

    run(scene)

    assert [job.id for job, _ in scene.sent] == ["2"]


def test_a_proposal_that_a_new_mark_forbids_is_withdrawn(tmp_path):
    scene = a_scene(tmp_path, a_hung_world())
    asyncio.run(scene.settle())
    scene.judge()
    is_marked(scene)

    run(scene)

    assert [each.why for each in scene.store.proposals(ProposalState.WITHDRAWN)] == [
        "its name fits the no-kill pattern 'rl__*'"
    ]


RULE = StandingSection(name="rl hangs", bucket="rl", pattern="rl__h*", cause="silent-hang")


def test_a_standing_rule_answers_in_the_persons_place(tmp_path):
    """KILL-1: approval names the person, or the standing rule they configured."""
    scene = a_scene(tmp_path, a_hung_world(), standing=(RULE,))
    asyncio.run(scene.settle())
    scene.judge()

    run(scene)

    decision = scene.decision()
    assert (decision.approved_by, decision.stage, len(scene.sent)) == ("standing rule rl hangs", Stage.CONFIRMED, 1)
    assert decision.reason == "silent-hang on rl jobs named rl__h*, at high confidence or more"


def under_a_hold(scene):
    scene.store.add_hold("all", "", "power work", "bob", scene.now)


def less_sure(scene):
    return {"confidence": "medium"}


@pytest.mark.parametrize("what", [under_a_hold, less_sure])
def test_a_standing_rule_does_not_answer_where_it_does_not_speak(tmp_path, what):
    scene = a_scene(tmp_path, a_hung_world(), standing=(RULE,))
    asyncio.run(scene.settle())
    scene.judge(**(what(scene) or {}))

    run(scene)

    assert (scene.sent, scene.store.decisions()) == ([], [])
    assert len(scene.store.proposals()) == 1


def test_two_standing_kills_a_day_need_a_rule_that_allows_two(tmp_path):
    world = a_hung_world()
    world.submit("2", "rl__hangs_too")
    world.start("2")
    scene = a_scene(tmp_path, world, standing=(RULE,))
    asyncio.run(scene.settle())
    scene.judge(job="1")
    scene.judge(job="2")

    run(scene)
    run(scene)

    assert [job.id for job, _ in scene.sent] == ["1"]
    assert [each.job.id for each in scene.store.proposals()] == ["2"]


def test_a_look_tells_what_it_did(tmp_path):
    """What kills rest on: the same visit as a tick's, and its result."""
    scene = a_scene(tmp_path, a_hung_world())
    sweeper: Sweeper = scene.room.sweeper

    (swept,) = asyncio.run(sweeper.look(scene.room.stations, 0))

    assert (swept.name, swept.state, swept.jobs) == ("cluster-a", "ok", 1)
