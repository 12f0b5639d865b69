"""Deep probes: claim what is wanted, capture, write down, judge, store, tell. Evidence first, and nothing is done to any job.

A probe may take minutes, so it never runs inside a tick. Each step can be cut off anywhere and be done again: evidence without
its manifest is taken anew, a verdict is stored once for each folder, a record is written whole under the verdict's own date.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from supervisor.app.agent_logs import AgentLogs
from supervisor.app.autopsy import scheduler_record
from supervisor.app.casework import case_of, earlier_of, mark_of, subject_of
from supervisor.app.evidence import Evidence, Folder
from supervisor.app.evidence_upkeep import Upkeep, tidy
from supervisor.app.fleet import Station
from supervisor.app.follow import Follower
from supervisor.app.judge import opinion_of
from supervisor.app.marks import marks_of
from supervisor.app.rooms import Rooms
from supervisor.app.settings import Settings
from supervisor.app.taking import TRIALS, TRIALS_OF_A_DUTY_CYCLE, NotProbed, Taking, Wanted, unusable
from supervisor.app.writing import Writer
from supervisor.gates import judge as judge_gates
from supervisor.gates import proof, restarts
from supervisor.model.errors import StoreError, Unproven
from supervisor.model.facts import Held
from supervisor.model.probe import Case, GateScore, Missing, Ruling, Score, Verdict
from supervisor.model.records import Errand, ErrandWanted
from supervisor.reports.verdict import markdown
from supervisor.rules.leave import may_propose, silence_key
from supervisor.rules.probing import origin_of, setting_of, untested
from supervisor.rules.verdict import merged, rule

if TYPE_CHECKING:
    from supervisor.app.packs import Prepared
    from supervisor.store.entries import Request, VerdictEntry

log = structlog.get_logger("supervisor.probes")

KIND = "probe"
LEASE = timedelta(minutes=5)
"""After this an errand whose daemon died may be claimed by another; kept alive while it is worked on."""
ALIVE = timedelta(seconds=60)
"""A daemon without a sign of life for longer is not waited for."""
BROKEN_TRIES = 5
"""After so many tries that a fault of ours ended, a probe is given up."""
REFRESHED = "it refreshes the evidence of an approved kill"


class Probes:
    """Makes probes on the clusters that this daemon holds, a few at a time."""

    def __init__(
        self,
        writer: Writer,
        rooms: Rooms,
        follower: Follower,
        evidence: Evidence,
        logs: AgentLogs,
        settings: Settings,
        clock: Callable[[], datetime],
        owner: str,
    ) -> None:
        self.writer, self.rooms, self.evidence, self.logs = writer, rooms, evidence, logs
        self.taking = Taking(writer, follower, evidence, settings, clock)
        self.settings, self.clock, self.owner = settings, clock, owner
        self.stations: Sequence[Station] = ()
        """As of the latest round; ``refresh`` needs them too."""
        self._running: dict[asyncio.Task[None], tuple[str, int | None]] = {}
        """Probe to its cluster and its job's row."""
        self._refreshed = 0
        self._prepared_for: object = None
        self._prepared: Prepared | None = None
        self._preparing = asyncio.Lock()

    def configure(self, settings: Settings, rooms: Rooms, stations: Sequence[Station]) -> None:
        """A new config: what is under way ends under the old one."""
        self.settings = self.taking.settings = settings
        self.rooms, self.stations = rooms, stations

    # -- what is due -----------------------------------------------------------------------------------------------

    async def round(self, stations: Sequence[Station]) -> int:
        """Take in requests, begin what is due and has room; how many probes are under way after that."""
        self.stations = stations
        await self._requests()
        while len(self._running) < self.settings.probe.at_once:
            errand = await self._claimed()
            if errand is None:
                break
            self._begin(errand)
        return len(self._running)

    async def run(self, stations: Sequence[Station], limit: timedelta) -> None:
        """Whatever is due, for at most ``limit``; then what was begun is given up and claimed again later."""
        try:
            async with asyncio.timeout(limit.total_seconds()):
                while await self.round(stations):
                    await asyncio.wait(set(self._running), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            log.warning("probes.put_off", under_way=len(self._running))
            await self.stop()

    async def stop(self) -> None:
        """Give up what is under way: evidence without a manifest is taken anew by whoever claims it next."""
        going_on = list(self._running)
        for task in going_on:
            task.cancel()
        await asyncio.gather(*going_on, return_exceptions=True)

    async def _requests(self) -> None:
        """What people asked for becomes errands at once, ahead of all others."""
        for request in await self.writer.call(lambda store: store.open_requests(KIND)):
            await self._request(request)

    async def _request(self, request: Request) -> None:
        now, row = self.clock(), request.payload.get("row")
        if not isinstance(row, int) or isinstance(row, bool):
            await self._answer(request.id, "failed: the request names no job")
            return
        try:
            held = await self.writer.call(lambda store: store.job(row))
        except StoreError as error:
            await self._answer(request.id, f"failed: {error}")
            return
        name = held.key.cluster
        if name not in {each.name for each in self.stations}:
            if await self._others(now):
                return  # its cluster may be another daemon's
            await self._answer(request.id, f"failed: cluster {name} is not in the daemon's config")
            return
        if not held.life.phase.live:
            await self._answer(request.id, f"failed: {held.ref} has ended: there is nothing to probe")
            return
        wanted = ErrandWanted(
            KIND, held.key, {"request": request.id, "why": "asked for"}, f"probe/request/{request.id}"
        )
        ahead = now - timedelta(days=1)
        await self.writer.call(lambda store: store.queue_errand(wanted, now, due_at=ahead))

    async def _others(self, now: datetime) -> bool:
        """Whether another daemon shares this store now."""
        beats = await self.writer.call(lambda store: store.heartbeats())
        return any(each.daemon != self.owner and now - each.beat_at < ALIVE for each in beats)

    async def _answer(self, request: object, words: str) -> None:
        if isinstance(request, int):
            now = self.clock()
            await self.writer.call(lambda store: store.answer_request(request, now, words))

    async def _claimed(self) -> Errand | None:
        """The next errand of a cluster that is ours, was read, and has room for one more."""
        now = self.clock()
        busy = [cluster for cluster, _ in self._running.values()]
        most = self.settings.probe.per_cluster
        room = [
            each.name
            for each in self.stations
            if each.loaded and not each.skipped(now) and busy.count(each.name) < most
        ]
        if not room:
            return None
        return await self.writer.call(lambda store: store.claim_errand([KIND], self.owner, now, LEASE, clusters=room))

    def _begin(self, errand: Errand) -> None:
        rows = {row for _, row in self._running.values()}
        task = asyncio.ensure_future(self._one(errand, again=errand.job_row in rows))
        self._running[task] = (errand.cluster or "", errand.job_row)
        task.add_done_callback(lambda done: self._running.pop(done, None))

    # -- one errand ------------------------------------------------------------------------------------------------

    async def _one(self, errand: Errand, *, again: bool) -> None:
        """Do it, or say why not and when it is tried again. ``again``: its job is under a probe already, so it waits."""
        number, owner = errand.id, self.owner
        try:
            if again:
                later = self.clock() + timedelta(seconds=15)
                await self.writer.call(lambda store: store.postpone_errand(number, owner, later))
                return
            async with self._kept(errand):
                said = await self._perform(errand)
            await self._answer(errand.payload.get("request"), said)
            done = self.clock()
            await self.writer.call(lambda store: store.finish_errand(number, owner, done))
        except NotProbed as error:
            now, reason = self.clock(), str(error)
            retry = now + timedelta(seconds=self.settings.probe.retry_s)
            log.warning("errand.failed", kind=KIND, errand=number, tries=errand.tries, reason=reason)
            with contextlib.suppress(StoreError):  # then its lease runs out, and it is claimed again
                await self.writer.call(
                    lambda store: store.fail_errand(number, owner, now, error=reason, retry_at=retry)
                )
        except asyncio.CancelledError:
            with contextlib.suppress(StoreError):  # so that nobody need wait for the lease to run out
                now = self.clock()
                await self.writer.call(lambda store: store.postpone_errand(number, owner, now))
            raise
        except StoreError as error:
            log.error("probe.unstored", errand=number, reason=str(error))
        except Exception as error:  # one probe's fault of ours must end neither the others nor the daemon
            log.exception("probe.broke", errand=number)
            if errand.tries >= BROKEN_TRIES:
                await self._given_up(errand, f"fault in the supervisor itself: {error!r}")

    async def _given_up(self, errand: Errand, why: str) -> None:
        with contextlib.suppress(StoreError):
            now = self.clock()
            await self._answer(errand.payload.get("request"), f"failed: {why}")
            await self.writer.call(
                lambda store: store.fail_errand(errand.id, self.owner, now, error=why, retry_at=None)
            )

    @asynccontextmanager
    async def _kept(self, errand: Errand) -> AsyncIterator[None]:
        """The claim lasts as long as the work does; work whose claim was lost is given up."""
        me = asyncio.current_task()

        async def keep() -> None:
            while True:
                await asyncio.sleep(LEASE.total_seconds() / 3)
                with contextlib.suppress(StoreError):
                    mine = await self.writer.call(
                        lambda store: store.keep_errand(errand.id, self.owner, self.clock(), LEASE)
                    )
                    if not mine and me is not None:
                        log.warning("probe.lost", errand=errand.id)
                        me.cancel()
                        return

        keeping = asyncio.ensure_future(keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _perform(self, errand: Errand) -> str:
        """What came of it, for who asked: ``verdict N``, or ``failed: `` and why there is none."""
        row = errand.job_row
        station = next((each for each in self.stations if each.name == errand.cluster), None)
        if row is None or station is None:
            return "failed: its cluster is not in the daemon's config"
        held = await self.writer.call(lambda store: store.job(row))
        asked = "request" in errand.payload
        mark = f"{held.life.attempt}-p{errand.id}"
        stored = await self._stored(row, self.evidence.name(held.key, mark))
        if stored is None:
            if not held.life.phase.live:
                return f"failed: {held.ref} has ended: there is nothing to probe"
            if errand.payload.get("attempt", held.life.attempt) != held.life.attempt:
                return f"failed: {held.ref} has begun another attempt since"
            last = asked or errand.tries >= self.settings.probe.tries
            trials = TRIALS_OF_A_DUTY_CYCLE if errand.payload.get("duty_cycle") else TRIALS
            number, verdict = await self._probe(Wanted(held, row, station, mark, last, trials))
        else:
            number, verdict = stored.id, stored.verdict
        await self._write_record(row, verdict)
        return f"verdict {number}"

    async def _stored(self, row: int, path: Path) -> VerdictEntry | None:
        """The verdict that was stored on this very folder before a crash cut off what follows."""
        found = await self.writer.call(lambda store: store.verdicts(row=row))
        return next((each for each in found if each.verdict.evidence == str(path)), None)

    async def refresh(self, held: Held) -> Verdict | str:
        """The evidence of a job taken and judged anew, before its approved kill; stored, and never proposed (KILL-2, KILL-4)."""
        station = next((each for each in self.stations if each.name == held.key.cluster), None)
        if station is None or held.row is None:
            return f"{held.ref} is on no cluster that is watched here"
        self._refreshed += 1
        mark = f"{held.life.attempt}-r{self.clock():%Y%m%dT%H%M%S}-{self._refreshed}"
        try:
            _, verdict = await self._probe(Wanted(held, held.row, station, mark, last=True, leave=REFRESHED))
            await self._write_record(held.row, verdict)
        except (NotProbed, Unproven) as error:
            return str(error)
        return verdict

    async def _write_record(self, row: int, verdict: Verdict) -> None:
        """All verdicts of its day on this job, the newest first. Safe to do twice: name and date are the verdict's own (SAY-3)."""
        found, job, day = (
            await self.writer.call(lambda store: store.verdicts(row=row)),
            verdict.job,
            verdict.taken_at.date(),
        )
        text = "\n".join(markdown(each.verdict, each.id) for each in found if each.verdict.taken_at.date() == day)
        try:
            await asyncio.to_thread(self.logs.put, verdict.taken_at, job.cluster, job.id, "verdict", text)
        except OSError as error:
            log.error("record.unwritten", job=str(job.ref), reason=error.strerror or str(error))

    # -- one probe -------------------------------------------------------------------------------------------------

    async def _probe(self, wanted: Wanted) -> tuple[int, Verdict]:
        """Capture, write, judge, store: the verdict with its number. Raises NotProbed where another try may help."""
        held, row, began = wanted.held, wanted.row, self.clock()
        folder = await self.taking.folder(wanted)
        latest = await self.writer.call(lambda store: store.job(row))
        same = (latest.key, latest.life.attempt) == (held.key, held.life.attempt)
        held = latest if same else held  # a reading made meanwhile may tell of progress, or of its end
        try:
            verdict, exempt = await self._judged(held, folder, wanted, over=None if same else latest)
        except StoreError:
            raise
        except (
            Exception
        ) as error:  # touched evidence, or a fault of ours in judging it: neither may pass for "all well"
            why = str(error) if isinstance(error, Unproven) else f"fault in the supervisor itself: {error!r}"
            log.error("evidence.unusable", job=str(held.ref), reason=why, exc_info=not isinstance(error, Unproven))
            folder = unusable(folder.path, held, folder.taken_at, why)
            verdict, exempt = await self._judged(held, folder, wanted, over=None if same else latest)
        now = self.clock()
        leave = wanted.leave or may_propose(verdict, held, marks_of(self.settings), exempt=exempt)
        until = now + timedelta(hours=self.settings.approvals.proposal_hours)
        number, proposal = await self.writer.call(
            lambda store: store.put_verdict(
                row, verdict, now, silence_key=silence_key(verdict), leave=leave, expires_at=until
            )
        )
        log.info(
            "job.probed",
            job=str(held.ref),
            verdict=number,
            ruling=verdict.ruling.value,
            confidence=verdict.confidence,
            proposal=proposal,
            not_proposed=leave,
            took_s=round((now - began).total_seconds(), 3),
        )
        return number, verdict

    # -- judging ---------------------------------------------------------------------------------------------------

    async def _judged(self, held: Held, folder: Folder, wanted: Wanted, over: Held | None) -> tuple[Verdict, bool]:
        """The ruling on a folder, and whether the job is one that is only observed. ``over``: the later attempt, where one began.

        Raises Unproven where the folder is not what was written into it.
        """
        limits = self.rooms.book.limits_of(held.bucket)
        setting = setting_of(held, origin_of(wanted.station.memory, held))
        passed = await self.writer.call(lambda store: store.passed_settings())
        subject = subject_of(held, limits, untested(held, setting, passed))
        earlier = await self._earlier(held, folder, wanted.row)
        prepared = await self._catalogue()

        def work() -> tuple[Case, Verdict]:
            before = earlier_of(earlier.verdict, limits, subject, Path(earlier.verdict.evidence)) if earlier else None
            case = case_of(folder, subject, limits, prepared, scheduler_record(held), before)
            scores = proof.check(case.lines, judge_gates(case))
            repeats = proof.check_restarts(case.lines, restarts.judge(case))
            if over is not None:
                scores = tuple(_overtaken(each, over) for each in scores)
            place, mark = str(folder.path), mark_of(held, case)
            return case, rule(case, scores, repeats, evidence=place, mark=mark, setting=setting)

        case, verdict = await asyncio.to_thread(work)
        judge = self.settings.probe.external
        if judge.command and verdict.ruling is not Ruling.ERROR:  # what lacks evidence nobody can decide (PROBE-3)
            verdict = merged(verdict, await opinion_of(judge, folder, case, verdict), case)
        return verdict, case.subject.exempt

    async def _earlier(self, held: Held, folder: Folder, row: int) -> VerdictEntry | None:
        """The newest verdict on the same attempt before this one."""
        found = await self.writer.call(lambda store: store.verdicts(row=row, limit=8))
        for each in found:
            mine = (each.verdict.job, each.verdict.attempt) == (held.key, held.life.attempt)
            if mine and each.verdict.taken_at < folder.taken_at:
                return each
        return None

    async def _catalogue(self) -> Prepared:
        """The signatures, made ready once for each config."""
        async with self._preparing:
            chosen = self.settings.signatures
            if self._prepared is None or self._prepared_for != chosen:
                from supervisor.app.packs import prepare

                self._prepared = await asyncio.to_thread(prepare, list(chosen.packs), list(chosen.off))
                self._prepared_for = chosen
            return self._prepared

    # -- housekeeping ----------------------------------------------------------------------------------------------

    async def housekeeping(self, now: datetime) -> Upkeep:
        """Pack and drop evidence that nothing in force rests on."""
        quoted = await self.writer.call(lambda store: store.evidence_folders())
        needed = {path: still for path, (_, still) in quoted.items()}
        chosen = self.settings.probe
        return await asyncio.to_thread(
            tidy, self.evidence.root, needed, now, timedelta(days=chosen.keep_days), chosen.keep_bytes
        )


def _overtaken(score: GateScore, over: Held) -> GateScore:
    """Liveness is ERROR where another attempt began while it was probed: nothing was proved of what is gone."""
    if score.gate != "A":
        return score
    told = f"{over.ref}: {over.observation.scheduler_state}, attempt {over.life.attempt}"
    return replace(
        score,
        result=Score.ERROR,
        reason=f"another attempt began while it was probed: {score.reason}",
        missing=Missing(command=f"a reading of {over.key.cluster}", output=told),
        hard=False,
        wedge=False,
        cause="",
        fix="",
    )
