"""Carrying out an approved kill: look again, check, write down the intent, send once, find out what became of it (KILL-1 … 6).

Each step is written down before the next begins, and whoever comes after a crash goes on where the writing ends. One line
divides them: once the intent stands, a cancel may have been sent, and from there on it is only looked up, never sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from supervisor.app.agent_logs import AgentLogs
from supervisor.app.fleet import Station
from supervisor.app.grounds import shaken
from supervisor.app.marks import caps_of, marks_of, standing_rules
from supervisor.app.settings import Settings
from supervisor.app.sweep import Sweeper
from supervisor.app.writing import Writer
from supervisor.model.errors import ClusterError, NotApproved, StoreError, SupervisorError, UsageError
from supervisor.model.facts import Held
from supervisor.model.job import Observation
from supervisor.model.ports import Approval, CancelReceipt
from supervisor.model.probe import Remains, Verdict
from supervisor.model.proposals import Decision, Marks, Proposal, Refusal, Stage
from supervisor.model.records import Errand, Hold
from supervisor.reports.killing import kill_record, topic_of
from supervisor.rules.leave import forbidden, held_back, may_carry_out, may_go_on, still_open, which_rule

log = structlog.get_logger("supervisor.kill")

LEASE = timedelta(minutes=5)
"""After this an errand whose daemon died may be claimed by another; kept alive while it is worked on."""
RETRY = timedelta(seconds=60)
"""How long until something that stood in the way, and may pass, is looked at again."""
LOOK_AGAIN = timedelta(seconds=5)
"""Between two looks at whether a cancel had its effect."""
SEND_WITHIN = timedelta(seconds=30)
"""Between the written intent and the sending; a process that slept in between (suspended, swapped out) sends nothing."""
KIND = "kill"


class Refresh(Protocol):
    """Takes a job's evidence anew and judges it: the verdict, or why there is none. It proposes nothing."""

    async def __call__(self, held: Held) -> Verdict | str: ...


Check = Callable[[Held, Sequence[Hold], Marks, datetime], Refusal | None]
"""A rule of leave, asked of the job as it is now."""


class Kills:
    """Carries out what was approved on the clusters that this daemon holds; looks after what still waits."""

    def __init__(
        self,
        writer: Writer,
        sweeper: Sweeper,
        logs: AgentLogs,
        settings: Settings,
        clock: Callable[[], datetime],
        owner: str,
        refresh: Refresh,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.writer, self.sweeper, self.logs, self.settings = writer, sweeper, logs, settings
        self.clock, self.owner, self.refresh, self.pause = clock, owner, refresh, pause
        self._one_at_a_time = asyncio.Lock()

    async def run(self, stations: Sequence[Station], limit: timedelta, *, wait: bool = False) -> None:
        """Whatever is due, for at most ``limit``; what is left is claimed the next time.

        ``wait``: until what was begun is over, too. A cluster that another daemon holds is that one's affair.
        """
        async with self._one_at_a_time:
            until = self.clock() + limit
            by_name = {each.name: each for each in stations}
            await self._let_go()
            ours = await self._ours(by_name)
            await self._look_after(ours)
            while ours and self.clock() < until:
                errand = await self._claimed(ours)
                if errand is not None:
                    await self._one(errand, by_name)
                elif wait and await self._under_way(ours):
                    await self.pause(LOOK_AGAIN.total_seconds())
                else:
                    return

    async def _ours(self, stations: Mapping[str, Station]) -> list[str]:
        """Clusters with a kill in question whose lease is ours, or could be had."""
        now = self.clock()
        asked = await self.writer.call(lambda store: store.clusters_in_question())
        wanted = [stations[name] for name in asked if name in stations]
        return sorted(await self.sweeper.taken(wanted, now)) if wanted else []

    async def _claimed(self, ours: Sequence[str]) -> Errand | None:
        now = self.clock()
        return await self.writer.call(lambda store: store.claim_errand([KIND], self.owner, now, LEASE, clusters=ours))

    async def _under_way(self, ours: Sequence[str]) -> bool:
        unfinished = await self.writer.call(lambda store: store.decisions(unfinished=True))
        return any(each.job.cluster in ours and each.stage is not Stage.APPROVED for each in unfinished)

    # -- what waits ------------------------------------------------------------------------------------------------

    async def _let_go(self) -> None:
        """What waited too long, wherever it is."""
        now = self.clock()
        for gone in await self.writer.call(lambda store: store.expire_due(now)):
            log.info("proposal.expired", proposal=gone.id, job=str(gone.job.ref), state=gone.state.value)

    async def _look_after(self, ours: Sequence[str]) -> None:
        """Withdraw proposals whose facts are over; standing rules answer the others that they speak for."""
        for proposal in await self.writer.call(lambda store: store.proposals()) if ours else ():
            if proposal.job.cluster not in ours:
                continue
            try:
                await self._answer(proposal)
            except StoreError as error:  # one row that can't be read holds up no other
                log.error("proposal.unread", proposal=proposal.id, job=str(proposal.job.ref), reason=str(error))

    async def _answer(self, proposal: Proposal) -> None:
        held = await self.writer.call(lambda store: store.job(proposal.job_row))
        entry = await self.writer.call(lambda store: store.verdict(proposal.verdict))
        why = still_open(entry.verdict, held) or forbidden(held, marks_of(self.settings))
        now = self.clock()
        if why is not None:
            if await self.writer.call(lambda store: store.withdraw(proposal.id, why, now)):
                log.info("proposal.withdrawn", proposal=proposal.id, job=str(proposal.job.ref), why=why)
            return
        rule = which_rule(standing_rules(self.settings), proposal)
        if rule is None or held_back(held, await self.writer.call(lambda store: store.holds())) is not None:
            return
        chosen = self.settings.approvals
        try:
            decision = await self.writer.call(
                lambda store: store.approve(
                    proposal.id,
                    digest=entry.verdict.digest,
                    by=f"standing rule {rule.name}",
                    reason=f"{rule.cause} on {rule.bucket} jobs named {rule.pattern}, at {rule.min_confidence} confidence or more",
                    mode=chosen.mode,
                    expires_at=now + timedelta(seconds=chosen.expires_s),
                    now=now,
                    per_day=rule.per_day,
                )
            )
        except UsageError as error:
            log.debug("proposal.not_approved", proposal=proposal.id, rule=rule.name, why=str(error))
            return
        log.warning("proposal.approved", proposal=proposal.id, job=str(proposal.job.ref), by=decision.approved_by)

    # -- one approved kill -----------------------------------------------------------------------------------------

    async def _one(self, errand: Errand, stations: Mapping[str, Station]) -> None:
        """As far as it goes now. An errand of an approval is never given up before the approval is used up."""
        number = errand.id
        try:
            async with self._kept(errand):
                again_at = await self._carry(errand, stations)
        except StoreError:
            raise
        except (SupervisorError, OSError) as error:
            again_at, reason = self.clock() + RETRY, str(error)
            now = self.clock()
            log.warning("errand.failed", kind=errand.kind, errand=number, tries=errand.tries, reason=reason)
            await self.writer.call(
                lambda store: store.fail_errand(number, self.owner, now, error=reason, retry_at=again_at)
            )
            return
        if again_at is None:
            done = self.clock()
            await self.writer.call(lambda store: store.finish_errand(number, self.owner, done))
        else:
            await self.writer.call(lambda store: store.postpone_errand(number, self.owner, again_at))

    @asynccontextmanager
    async def _kept(self, errand: Errand) -> AsyncIterator[None]:
        """The claim lasts as long as the work does."""

        async def keep() -> None:
            while True:
                await asyncio.sleep(LEASE.total_seconds() / 3)
                await self.writer.call(lambda store: store.keep_errand(errand.id, self.owner, self.clock(), LEASE))

        keeping = asyncio.ensure_future(keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _carry(self, errand: Errand, stations: Mapping[str, Station]) -> datetime | None:
        """When to go on; None once it is over and recorded."""
        number = int(str(errand.payload["decision"]))
        decision = await self.writer.call(lambda store: store.decision(number))
        station = stations[decision.job.cluster]
        refusal: Refusal | None = None
        if decision.stage is Stage.APPROVED:
            refusal = await self._begin(decision, station, errand)
            decision = await self.writer.call(lambda store: store.decision(number))
        if decision.stage in (Stage.INTENDED, Stage.SENT):
            await self._look_up(decision, station)
            decision = await self.writer.call(lambda store: store.decision(number))
        if not decision.stage.over:
            if refusal is not None:
                log.info("kill.waits", decision=number, job=str(decision.job.ref), why=refusal.why)
            return self.clock() + (RETRY if decision.stage is Stage.APPROVED else LOOK_AGAIN)
        await self._write_record(decision)
        return None

    async def _write_record(self, decision: Decision) -> None:
        """Safe to do twice: its name and its date are the decision's own."""
        held = await self.writer.call(lambda store: store.job(decision.job_row))
        entry = await self.writer.call(lambda store: store.verdict(decision.verdict))
        text = kill_record(decision, entry.verdict, held, decision.finished_at or self.clock())
        when, job = decision.finished_at or self.clock(), decision.job
        path = await asyncio.to_thread(self.logs.put, when, job.cluster, job.id, topic_of(decision), text)
        say = log.error if decision.stage is Stage.UNCONFIRMED else log.warning
        say(
            "kill.over",
            decision=decision.id,
            job=str(job.ref),
            stage=decision.stage.value,
            why=decision.why,
            path=str(path),
        )

    # -- before anything is sent -----------------------------------------------------------------------------------

    async def _begin(self, decision: Decision, station: Station, errand: Errand) -> Refusal | None:
        """Look, take the evidence anew, look again, check, write down the intent, send. What stands in the way is told.

        The look before the evidence spares the cluster a probe where the answer is no already.
        """
        approved = (await self.writer.call(lambda store: store.verdict(decision.verdict))).verdict
        mode = "ask" if self.settings.approvals.mode == decision.mode == "ask" else "record"
        held = await self._cleared(
            decision, station, mode, lambda held, *now: may_go_on(decision, approved, held, *now)
        )
        if isinstance(held, Refusal):
            return held
        if (why := await asyncio.to_thread(shaken, approved)) is not None:
            return await self._refused(
                decision, Refusal(f"the evidence of verdict {decision.verdict} does not bear it: {why}")
            )
        fresh = await self.refresh(held)
        if not isinstance(fresh, Verdict):
            return Refusal(f"its evidence could not be refreshed: {fresh}", for_good=False)
        held = await self._cleared(
            decision, station, mode, lambda held, *now: may_carry_out(decision, approved, held, fresh, *now)
        )
        if isinstance(held, Refusal):
            return held
        now, caps = self.clock(), caps_of(self.settings)
        if not await self.writer.call(lambda store: store.keep_errand(errand.id, self.owner, now, LEASE)):
            return Refusal("another took it over", for_good=False)
        if mode == "record":
            stopped = await self.writer.call(
                lambda store: store.record_only(decision.id, owner=self.owner, caps=caps, now=now)
            )
            return None if stopped is None else await self._refused(decision, stopped)
        begun = await self.writer.call(
            lambda store: store.begin_cancel(decision.id, owner=self.owner, caps=caps, now=now)
        )
        if isinstance(begun, Refusal):
            return await self._refused(decision, begun)
        sending = asyncio.ensure_future(self._send(begun, station, now))
        try:
            await asyncio.shield(sending)
        except (
            asyncio.CancelledError
        ):  # told to stop meanwhile: a cancel on its way is waited for, so that its receipt is kept
            await asyncio.wait([sending], timeout=SEND_WITHIN.total_seconds())
            raise
        return None

    async def _cleared(self, decision: Decision, station: Station, mode: str, check: Check) -> Held | Refusal:
        """The job as it is now, where nothing speaks against its kill; else what does, which may void the approval."""
        held = await self._read_again(decision, station)
        if isinstance(held, Refusal):
            return held
        now, caps = self.clock(), caps_of(self.settings)
        if (held.key, held.life.attempt) == (decision.job, decision.attempt) and not held.life.phase.live:
            why = f"it ended by itself: {_end_of(held.observation)}"
            await self._outcome(decision, Stage.ENDED_ITSELF, why)
            return Refusal(why)
        holds = await self.writer.call(lambda store: store.holds())
        refusal = check(held, holds, marks_of(self.settings), now) or await self.writer.call(
            lambda store: store.would_begin(decision.id, mode, owner=self.owner, caps=caps, now=now)
        )
        return held if refusal is None else await self._refused(decision, refusal)

    async def _read_again(self, decision: Decision, station: Station) -> Held | Refusal:
        """The job as a reading made now says, which is stored as any other (KILL-2)."""
        swept = await self._visited(station)
        if swept is not None:
            return Refusal(f"{station.name} could not be read: {swept}", for_good=False)
        held = await self.writer.call(lambda store: store.job(decision.job_row))
        listed = station.memory.get(held.key.id)
        if held.life.phase.live and (held.key.id not in station.lines or listed is None or listed.key != held.key):
            return Refusal("the reading made now does not list it", for_good=False)
        return held

    async def _visited(self, station: Station) -> str | None:
        """Read a cluster now; why it could not be read."""
        last = await self.writer.call(lambda store: store.last_tick())
        (swept,) = await self.sweeper.look([station], last.number if last is not None else 0)
        return None if swept.state == "ok" else swept.reason or swept.state

    async def _refused(self, decision: Decision, refusal: Refusal) -> Refusal:
        if refusal.for_good:
            now = self.clock()
            await self.writer.call(lambda store: store.void(decision.id, refusal.why, now))
        return refusal

    async def _send(self, approval: Approval, station: Station, intended_at: datetime) -> None:
        """The one place from which a cancel goes out. Whatever it answers, or does not, is written down."""
        cluster = station.cluster
        late = self.clock() - intended_at
        why = None
        if cluster is None or late > SEND_WITHIN or late < -SEND_WITHIN or self.clock() >= approval.expires_at:
            why = f"nothing was sent: {late.total_seconds():.0f} s passed between the intent and the sending"
        else:
            log.warning("kill.sending", decision=approval.id, job=str(approval.job.ref), by=approval.approved_by)
            try:
                receipt = await asyncio.wait_for(
                    cluster.cancel(approval.job, approval), timeout=station.section.deadline_s
                )
            except NotApproved as error:
                why = f"nothing was sent: {error}"
            except TimeoutError:
                receipt = CancelReceipt(None, f"no answer within {station.section.deadline_s:g} s")
            except ClusterError as error:
                receipt = CancelReceipt(None, error.text)
            except Exception as error:  # a fault of ours after the sending must not look like "not sent"
                log.exception("kill.send_broke", decision=approval.id)
                receipt = CancelReceipt(None, f"fault in the supervisor itself: {error!r}")
        now = self.clock()
        if why is not None:
            await self.writer.call(lambda store: store.not_sent(approval, why, now))
        else:
            await self.writer.call(lambda store: store.receipt(approval.id, receipt, now))

    # -- after it may have been sent -------------------------------------------------------------------------------

    async def _look_up(self, decision: Decision, station: Station) -> None:
        """Whether it had its effect: the scheduler says that the attempt ended, and nothing of it remains (KILL-3)."""
        doubt = await self._visited(station)
        held = await self.writer.call(lambda store: store.job(decision.job_row))
        if doubt is not None:
            doubt = f"{station.name} could not be read: {doubt}"
        elif (held.key, held.life.attempt) == (decision.job, decision.attempt) and held.life.phase.live:
            doubt = f"the scheduler says {held.observation.scheduler_state} still"
        else:
            seen = await self._attempt(decision, held)
            remains = await self._remains(station, seen)
            if remains.gone:
                await self._outcome(decision, Stage.CONFIRMED, self._how_it_ended(decision, held, seen))
                return
            doubt = f"{_end_of(seen)}, but "
            doubt += "; ".join(remains.there[:4]) or f"what remains of it is not known: {remains.failure}"
        since = decision.sent_at or decision.intended_at or decision.approved_at
        if self.clock() - since >= timedelta(seconds=self.settings.approvals.confirm_s):
            refused = f"; the cancel was refused: {decision.output}" if decision.accepted is False else ""
            await self._outcome(decision, Stage.UNCONFIRMED, doubt + refused)

    async def _attempt(self, decision: Decision, held: Held) -> Observation:
        """What was last seen of the attempt that was to end."""
        if held.life.attempt == decision.attempt and held.key == decision.job:
            return held.observation
        attempts = await self.writer.call(lambda store: store.attempts(decision.job_row))
        return next((seen for number, seen in attempts if number == decision.attempt), held.observation)

    async def _remains(self, station: Station, seen: Observation) -> Remains:
        if station.cluster is None:
            return Remains(failure=station.broken or "the cluster could not be set up")
        limit = station.section.deadline_s
        try:
            return await asyncio.wait_for(station.cluster.remains(seen, self.clock()), timeout=limit)
        except TimeoutError:
            return Remains(failure=f"no answer within {limit:g} s")
        except ClusterError as error:
            return Remains(failure=error.text)
        except (
            Exception
        ) as error:  # a fault of ours must not pass for "nothing remains", nor stop what else is under way
            log.exception("kill.look_broke", cluster=station.name)
            return Remains(failure=f"fault in the supervisor itself: {error!r}")

    def _how_it_ended(self, decision: Decision, held: Held, seen: Observation) -> str:
        said = f"{_end_of(seen)}, and nothing of it remains"
        if decision.stage is Stage.INTENDED:
            said += "; whether the cancel was sent before the daemon ended, or it ended by itself, is not known"
        if held.life.attempt != decision.attempt:
            said += f"; attempt {held.life.attempt} of it has begun since"
        return said

    async def _outcome(self, decision: Decision, stage: Stage, why: str) -> None:
        now = self.clock()
        await self.writer.call(lambda store: store.outcome(decision.id, stage, why, now))


def _end_of(seen: Observation) -> str:
    """How an attempt that is over ended, as far as anybody told."""
    return f"the scheduler says {seen.scheduler_state}" if seen.state.ended else "it is listed no more"
