"""Anything, in any order: ticks, verdicts, approvals, denials, holds, requeues, reused ids, progress, clocks that step, crashes.

A witness stands at the scheduler's door and looks at each cancel that arrives with eyes of its own: what people said and what
truly is, never what the code under test believes.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from supervisor.app.sections import StandingSection
from supervisor.model.errors import ClusterError, UsageError
from supervisor.model.facts import Held
from supervisor.model.job import JobKey, JobState
from supervisor.model.ports import Approval, CancelReceipt
from supervisor.model.probe import Ruling, Verdict
from supervisor.model.proposals import ProposalState, Stage
from tests.scripted import World
from tests.some import MINUTE
from tests.stories.killing import Scene, a_scene, cancelled, verdict_on

JOBS = ("1", "2", "3")
NAMES = {"1": "rl__debug-1", "2": "rl__train-2", "3": "hero-3"}
PER_TICK, PER_DAY = 1, 2
CRASHES_AFTER = 60
EVENTS = (
    *(
        "progress",
        "requeue",
        "another job of its id",
        "it fails",
        "it completes",
        "unreachable",
        "no accounting",
        "deny",
    ),
    *("hold all", "hold cluster", "hold job", "resume", "mode ask", "mode record", "tick"),
    *("1 min", "5 min", "61 min", "1500 min", "clock -70", "clock -3", "clock 3", "clock 70"),
)
EFFECTS = (*("ends", "ends", "nothing", "refused", "answer lost", "dies before it arrives", "dies after it arrived"),)
ANSWERS = (
    *(
        "as it is",
        "as it is",
        "as it is",
        "fails",
        "progresses meanwhile",
        "is requeued meanwhile",
        "is held meanwhile",
    ),
    "takes ten minutes",
)


class Crash(BaseException):
    """The daemon's process is gone."""


@dataclass
class Said:
    """What people said, and what truly was when a verdict was taken."""

    approved: dict[int, tuple[datetime, datetime, str]] = field(default_factory=dict)
    """By decision: from when, until when, in which mode."""
    steps: dict[int, int] = field(default_factory=dict)
    """By verdict: the job's true step then."""
    holds: set[tuple[str, str]] = field(default_factory=set)
    no_kill: tuple[str, ...] = ("hero-*",)


class Interleavings(RuleBasedStateMachine):
    """One daemon (dying now and then) over one cluster with three jobs."""

    proposals = Bundle("proposals")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="kills-"))
        self.world = World("cluster-a")
        self.step_of: dict[str, int] = {}
        for job in JOBS:
            self.world.submit(job, NAMES[job])
            self.world.pass_time(timedelta(seconds=1))
            self.world.start(job)
            self._print(job)
        self.said = Said()
        self.sent: list[tuple[datetime, Approval]] = []
        self.seen: list[str] = []
        """What the witness saw that must not be."""
        self.mode = "ask"
        self.effect = "ends"
        self.answers = "as it is"
        self.crash_after: int | None = None
        self.boundaries = 0
        self.scene = self._daemon()
        with self._alive():
            asyncio.run(self.scene.settle())

    # -- a daemon and its end --------------------------------------------------------------------------------------

    def _daemon(self) -> Scene:
        scene = a_scene(
            self.folder,
            self.world,
            mode=self.mode,
            per_tick=PER_TICK,
            per_day=PER_DAY,
            confirm_s=120,
            standing=(StandingSection(name="debug", bucket="rl", pattern="*debug*", cause="silent-hang", per_day=1),),
            refresh=self._refreshed,
        )
        scene.clusters[0].on_cancel = self._at_the_door
        run = scene.room.writer.call

        async def call(work: Any) -> Any:
            self._boundary()
            answer = await run(work)
            self._boundary()
            return answer

        scene.room.writer.call = call  # type: ignore[method-assign]
        return scene

    def _boundary(self) -> None:
        if self.crash_after is not None:
            self.boundaries += 1
            if self.boundaries > self.crash_after:
                self.crash_after = None
                raise Crash

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """The daemon works; where it dies, the next one comes."""
        try:
            yield
        except Crash:
            self._closed()
            self.scene = self._daemon()
        finally:
            self.crash_after = None

    def _closed(self) -> None:
        self.scene.room.writer._thread.shutdown(wait=True)
        self.scene.store.close()

    def teardown(self) -> None:
        self._closed()
        shutil.rmtree(self.folder)

    # -- the witness -----------------------------------------------------------------------------------------------

    def _at_the_door(self, job: JobKey, approval: Approval) -> None:
        """Called with each cancel at the moment it reaches the scheduler."""
        try:
            self._witness(job, approval)
        except AssertionError as error:  # the daemon takes what a backend raises for an answer that was lost
            self.seen.append(str(error))
        self.sent.append((self.scene.now, approval))
        self._obey()

    def _witness(self, job: JobKey, approval: Approval) -> None:
        now, store = self.scene.now, self.scene.store
        decision = store.decision(approval.id)
        begins, ends, mode = self.said.approved.get(decision.id, (now, now, "nobody approved it"))
        if decision.approved_by.startswith("standing rule"):
            assert "debug" in NAMES[job.id]
            begins, ends, mode = decision.approved_at, decision.expires_at, decision.mode
        assert (mode, self.mode) == ("ask", "ask"), "sent though something says record"
        assert begins - 6 * MINUTE <= now < ends, "sent outside the time of its approval"
        assert [each.id for _, each in self.sent].count(approval.id) == 0, "sent twice"
        assert decision.stage is Stage.INTENDED, "sent before the intent was written down"
        assert (approval.job, approval.attempt, approval.verdict_digest) == (job, decision.attempt, decision.digest)
        truth = self.world.jobs[job.id]
        assert truth.incarnation == job.incarnation, "sent for another attempt, or another job of its id"
        assert truth.attempt == approval.attempt
        assert self.step_of[job.id] == self.said.steps[decision.verdict], "sent though it progressed since the verdict"
        assert not {("all", ""), ("cluster", "cluster-a"), ("job", f"cluster-a/{job.id}")} & self.said.holds, (
            "sent under a hold"
        )
        assert job.id != "3", "a hero was killed"
        earlier = [at for at, _ in self.sent]
        assert sum(at > now - timedelta(seconds=900) for at in earlier) < PER_TICK, "more than the tick's cap"
        assert sum(at > now - timedelta(hours=24) for at in earlier) < PER_DAY, "more than the day's cap"

    def _obey(self) -> None:
        effects = self.scene.clusters[0].effects
        effects.raises, effects.ends, effects.receipt = None, cancelled, CancelReceipt(True, "")
        if self.effect in ("nothing", "refused"):
            effects.ends = None
            effects.receipt = CancelReceipt(self.effect == "nothing", "")
        if self.effect == "answer lost":
            effects.raises = ClusterError("cluster-a", "Socket timed out")
        if self.effect == "dies before it arrives":
            raise Crash
        if self.effect == "dies after it arrived":
            effects.raises = Crash()

    async def _refreshed(self, held: Held) -> Verdict | str:
        """The evidence taken anew: it tells the truth, or nothing. Meanwhile the world may move on."""
        answers, job = self.answers, held.key.id
        self._boundary()
        if answers == "fails":
            return "srun: error: timed out"
        moved = held.log.step is None or self.step_of.get(job) != held.log.step
        verdict = verdict_on(held, self.scene.now, Ruling.NO_KILL if moved else Ruling.KILL)
        if answers == "progresses meanwhile":
            self._print(job)
        elif answers == "is requeued meanwhile" and self.world.jobs[job].state is JobState.RUNNING:
            self._requeued(job)
        elif answers == "is held meanwhile":
            self.scene.store.add_hold("job", f"cluster-a/{job}", "mine", "bob", self.scene.now)
            self.said.holds.add(("job", f"cluster-a/{job}"))
        elif answers == "takes ten minutes":
            self._pass(timedelta(minutes=10))
            return replace(verdict, taken_at=self.scene.now)
        return verdict

    # -- the world -------------------------------------------------------------------------------------------------

    def _print(self, job: str) -> None:
        it = self.world.jobs[job]
        if it.state is JobState.RUNNING:
            self.world.pass_time(timedelta(seconds=2))
            self.step_of[job] = self.step_of.get(job, 0) + 1
            self.world.print(job, f"step {self.step_of[job]}/80\n".encode())

    def _requeued(self, job: str) -> None:
        self.world.pass_time(timedelta(seconds=2))
        self.world.requeue(job)
        self.world.pass_time(timedelta(seconds=2))
        self.world.start(job)
        self.world.jobs[job].text = b""
        self.step_of[job] = 0
        self._print(job)

    def _pass(self, span: timedelta) -> None:
        self.scene.clock[0] = max(self.scene.now, self.world.now) + span
        self.world.now = self.scene.now

    def _clocks_agree(self) -> None:
        """The world went on by some seconds of its own."""
        self.scene.clock[0] = max(self.scene.now, self.world.now)

    def _reused(self, job: str) -> None:
        """Another job bears its id."""
        self.world.pass_time(timedelta(seconds=2))
        self.world.jobs.pop(job)
        self.world.submit(job, NAMES[job])
        self.world.pass_time(timedelta(seconds=2))
        self.world.start(job)
        self.step_of[job] = 0
        self._print(job)

    def _ends(self, job: str, state: JobState) -> None:
        if self.world.jobs[job].state is JobState.RUNNING:
            self.world.pass_time(timedelta(seconds=2))
            self.world.end(job, state, 1)

    def _disturb(self, what: str, job: str) -> None:
        """One thing that happens, by its name."""
        if what == "progress":
            self._print(job)
        elif what == "requeue" and self.world.jobs[job].state is JobState.RUNNING:
            self._requeued(job)
        elif what == "another job of its id":
            self._reused(job)
        elif what == "it fails":
            self._ends(job, JobState.FAILED)
        elif what == "it completes":
            self._ends(job, JobState.COMPLETED)
        elif what == "unreachable":
            self.world.unreachable = None if self.world.unreachable else "ssh: connection refused"
        elif what == "no accounting":
            self.world.accounting_up = not self.world.accounting_up
        elif what.startswith("hold "):
            scope = what.removeprefix("hold ")
            target = {"all": "", "cluster": "cluster-a", "job": f"cluster-a/{job}"}[scope]
            self.scene.store.add_hold(scope, target, "power work", "bob", self.scene.now)
            self.said.holds.add((scope, target))
        elif what == "resume":
            for scope, target in self.said.holds:
                self.scene.store.lift_holds(scope, target, "bob", self.scene.now)
            self.said.holds.clear()
        elif what.startswith("mode "):
            self.mode = what.removeprefix("mode ")
            chosen = self.scene.kills.settings
            approvals = chosen.approvals.model_copy(update={"mode": self.mode})
            self.scene.kills.settings = chosen.model_copy(update={"approvals": approvals})
        elif what == "deny":
            for proposal in self.scene.store.proposals(ProposalState.OPEN, ProposalState.APPROVED):
                if proposal.job.id == job:
                    self._denied(proposal.id)
        elif what.endswith(" min"):
            self._pass(int(what.removesuffix(" min")) * MINUTE)
        elif what.startswith("clock "):
            self.scene.clock[0] += int(what.removeprefix("clock ")) * MINUTE
            return
        elif what == "tick":
            self._clocks_agree()
            with self._alive():
                asyncio.run(self.scene.tick())
        self._clocks_agree()

    def _denied(self, number: int) -> None:
        try:
            self.scene.store.deny(number, by="bob@box", reason="no", now=self.scene.now)
        except UsageError:
            return
        decision = self.scene.store.decision_of(number)
        if decision is not None:
            self.said.approved.pop(decision.id, None)

    def _judged(self, job: str, ruling: Ruling) -> int:
        """A verdict on the job as it is held; it tells the truth of how far that is, or none is taken."""
        held = self.scene.held(job)
        if held.log.step != self.step_of[job] or held.key.incarnation != self.world.jobs[job].incarnation:
            return 0
        made = self.scene.judge(ruling, job)
        self.said.steps[self.scene.store.verdicts(limit=1)[0].id] = self.step_of[job]
        return made.id if made is not None else 0

    def _approved(self, number: int, minutes: int, mode: str) -> None:
        ends = self.scene.now + minutes * MINUTE
        try:
            proposal = self.scene.store.proposal(number)
            decision = self.scene.approve(proposal, expires_at=ends, mode=mode)
        except UsageError:
            return
        self.said.approved[decision.id] = (self.scene.now, ends, mode)

    # -- what may happen -------------------------------------------------------------------------------------------

    @rule(what=st.sampled_from(EVENTS), job=st.sampled_from(JOBS))
    def anything(self, what: str, job: str) -> None:
        self._disturb(what, job)

    @rule(effect=st.sampled_from(EFFECTS), answers=st.sampled_from(ANSWERS))
    def what_cancels_and_probes_will_do(self, effect: str, answers: str) -> None:
        self.effect, self.answers = effect, answers

    @rule(target=proposals, job=st.sampled_from(JOBS), ruling=st.sampled_from([Ruling.KILL, Ruling.NO_KILL]))
    def judge(self, job: str, ruling: Ruling) -> int:
        return self._judged(job, ruling)

    @rule(number=proposals, minutes=st.sampled_from([2, 60]), mode=st.sampled_from(["ask", "ask", "record"]))
    def approve(self, number: int, minutes: int, mode: str) -> None:
        if number:
            self._approved(number, minutes, mode)

    @rule(number=proposals)
    def deny(self, number: int) -> None:
        if number:
            self._denied(number)

    @rule(crash_after=st.none() | st.integers(0, CRASHES_AFTER), minutes=st.sampled_from([0, 0, 1, 6]))
    def carry_out(self, crash_after: int | None, minutes: int) -> None:
        """``minutes``: after 6 of them the claim of a dead daemon has run out."""
        self._pass(minutes * MINUTE)
        self.crash_after, self.boundaries = crash_after, 0
        with self._alive():
            asyncio.run(self.scene.carry_out())

    @rule(
        jobs=st.sampled_from([("1",), ("2",), ("1", "2"), ("2", "1")]),
        mode=st.sampled_from(["ask", "ask", "ask", "record"]),
        hold=st.sampled_from(["", "", "", "hold all", "hold cluster", "hold job"]),
        between=st.lists(st.sampled_from(EVENTS), max_size=2),
        effect=st.sampled_from(EFFECTS),
        answers=st.sampled_from(ANSWERS),
        crash_after=st.none() | st.integers(0, CRASHES_AFTER),
        after=st.lists(st.sampled_from(EVENTS), max_size=2),
    )
    def a_kill_from_its_verdict_to_its_end(
        self,
        jobs: tuple[str, ...],
        mode: str,
        hold: str,
        between: list[str],
        effect: str,
        answers: str,
        crash_after: int | None,
        after: list[str],
    ) -> None:
        """All the steps in their order, and whatever comes between."""
        for job in jobs:
            if self.world.jobs[job].state.ended:
                self._reused(job)
        job = jobs[0]
        if self.world.unreachable:
            self._disturb("unreachable", job)
        self._disturb("resume", job)
        self._disturb("mode ask", job)
        for _ in range(2):
            self._disturb("16 min", job)
            self._disturb("tick", job)
        for each in jobs:
            number = self._judged(each, Ruling.KILL)
            if number:
                self._approved(number, 60, mode)
        for what in [hold, *between]:
            self._disturb(what, job)
        self.effect, self.answers = effect, answers
        self.carry_out(crash_after, 0)
        for what in after:
            self._disturb(what, job)
        self.carry_out(None, 6)

    # -- what always holds -----------------------------------------------------------------------------------------

    @invariant()
    def the_witness_saw_nothing_wrong(self) -> None:
        """KILL-1, KILL-2, KILL-5: leave, for this attempt, in its time, without progress, hold or mark, within the caps."""
        assert self.seen == []

    @invariant()
    def each_approval_is_used_at_most_once_and_its_stage_says_the_truth(self) -> None:
        sent = [approval.id for _, approval in self.sent]
        assert len(sent) == len(set(sent))
        for decision in self.scene.store.decisions():
            if decision.stage in (Stage.SENT,):
                assert decision.id in sent
            if decision.stage in (Stage.APPROVED, Stage.VOID, Stage.RECORDED, Stage.ENDED_ITSELF):
                assert decision.id not in sent, f"{decision.stage} though a cancel was sent"
            if decision.id in sent:
                assert decision.stage in (Stage.INTENDED, Stage.SENT, Stage.CONFIRMED, Stage.UNCONFIRMED)

    @invariant()
    def nothing_is_lost(self) -> None:
        """Each approval that is not over has its errand, and each proposal that is approved its decision."""
        store = self.scene.store
        open_errands = {each.payload["decision"] for each in store.errands_open("kill")}
        for decision in store.decisions(unfinished=True):
            assert decision.id in open_errands
        for proposal in store.proposals(ProposalState.APPROVED):
            decision = store.decision_of(proposal.id)
            assert decision is not None
            assert not decision.stage.over

    @invariant()
    def an_attempt_has_one_proposal_at_a_time(self) -> None:
        unsettled = [
            (each.job_row, each.attempt)
            for each in self.scene.store.proposals(ProposalState.OPEN, ProposalState.APPROVED)
        ]
        assert len(unsettled) == len(set(unsettled))


@pytest.mark.slow
def test_whatever_happens_in_whatever_order_nothing_is_killed_without_leave() -> None:
    """KILL-1, KILL-2, KILL-3, KILL-5, POLL-11."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        run_state_machine_as_test(
            Interleavings,
            settings=settings(
                max_examples=60,
                stateful_step_count=20,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
    finally:
        structlog.reset_defaults()
