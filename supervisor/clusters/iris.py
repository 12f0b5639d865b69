"""``kind = "iris"``: jobs of one iris controller, read from its records (POLL-5), never from its command line.

Requests of one poll, whatever the number of jobs: one page per 499 jobs of each user, children and recently ended ones counted
in; one (per 500) for jobs that are not listed any more; two per 5,000 tasks of jobs that are new, changed or wait, or, where our
role may not query, two for each such job (at most ``detail_looks``); where ``pods`` is set and any job is new, changed or waits,
one per 500 pods and one for Kueue's workloads; one per running job for its newest log line (at most ``log_looks``).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from supervisor.clusters.iris_calls import PAGE, Controller, NotAllowed, NotThere, Way
from supervisor.clusters.iris_capture import IrisProbe
from supervisor.clusters.iris_check import checks
from supervisor.clusters.iris_clock import Clock
from supervisor.clusters.iris_details import DetailBook
from supervisor.clusters.iris_forward import Forward
from supervisor.clusters.iris_jobs import Folded, fingerprint, first_log, fold, main_log, path_of, read_job
from supervisor.clusters.iris_logs import LogBook, LogPlace
from supervisor.clusters.iris_pods import PodBook, enriched
from supervisor.clusters.iris_settings import IrisSettings
from supervisor.clusters.iris_text import JobStatus
from supervisor.clusters.iris_token import Token, read_token
from supervisor.model.errors import (
    AnswerUnusable,
    ClusterError,
    LoginFailed,
    LoginNeedsPerson,
    NotApproved,
    TookTooLong,
)
from supervisor.model.job import JobKey, Observation
from supervisor.model.logs import LogRead, LogStat, LogUnread, LogWanted
from supervisor.model.polling import Check, Polled, Reading, Unreached, Watch
from supervisor.model.ports import Approval, CancelReceipt
from supervisor.model.probe import Captured, CaptureWanted, Remains

_MOST_JOBS, _MOST_PASSES = 200_000, 3
_LATE = timedelta(seconds=60)
"""Ends are looked for this long before the last good look: what ended at that moment may not have been listed yet."""
_OWED = "-owed"
"""End of a fingerprint whose job's tasks are still to be asked for."""


class IrisCluster:
    """One controller, by its address or through a port-forward of our own."""

    def __init__(self, name: str, settings: IrisSettings) -> None:
        self._name, self._settings = name, settings
        self._forward = Forward(name, settings.port_forward) if settings.port_forward is not None else None
        self._details = DetailBook(name, settings.detail_looks)
        self._owed: set[JobKey] = set()
        """Ended jobs that were told of without their tasks."""
        self._logs = LogBook()
        self._pods = PodBook(name, settings.pods, settings.request_timeout_s) if settings.pods is not None else None

    @property
    def name(self) -> str:
        return self._name

    @property
    def kind(self) -> str:
        return "iris"

    async def close(self) -> None:
        if self._forward is not None:
            await self._forward.close()
        if self._pods is not None:
            self._pods.close()

    # -- the way there -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _reached(self, now: datetime) -> AsyncIterator[tuple[Controller, Token | None]]:
        """The controller, under the token that stands in the file now. A token that ended is named as the reason."""
        settings = self._settings
        token = None
        if settings.token_file is not None:
            token = await asyncio.to_thread(read_token, self._name, settings.token_file)
        way = await self._way(token, now)
        try:
            async with Controller(self._name, way, settings.request_timeout_s, settings.connections) as controller:
                yield controller, token
        except LoginFailed as error:
            ended = token is not None and token.expires_at is not None and token.expires_at <= now
            if ended and not isinstance(error, LoginNeedsPerson):
                assert token is not None
                raise LoginNeedsPerson(self._name, f"{token.note(now)}; {error.text}", error.hint) from error
            raise
        except ClusterError as error:
            why = self._forward.trouble if self._forward is not None else None
            if why is None:
                raise
            raise ClusterError(self._name, f"{error.text} ({why})", error.hint) from error

    async def _way(self, token: Token | None, now: datetime) -> Way:
        settings = self._settings
        headers: dict[str, str] = {settings.token_header: f"Bearer {token.text}"} if token is not None else {}
        if self._forward is not None:
            socket = await self._forward.open(now)
            return Way("http://iris", headers, self._forward.shown, socket=socket)
        assert settings.url is not None
        tls = None
        if settings.ca_file is not None:
            try:
                tls = ssl.create_default_context(cafile=str(settings.ca_file))
            except (OSError, ssl.SSLError) as error:
                raise LoginFailed(self._name, f"ca_file {settings.ca_file} cannot be used: {error}") from error
        near = urlsplit(settings.url).hostname in ("localhost", "127.0.0.1", "::1")
        return Way(settings.url, headers, settings.url, tls=tls, proxies=not near)

    # -- poll ----------------------------------------------------------------------------------------------------------

    async def poll(self, watch: Watch, now: datetime) -> Reading:
        clock = Clock(now)
        try:
            async with asyncio.timeout(self._settings.poll_timeout_s), self._reached(now) as (controller, token):
                return await self._poll(controller, token, watch, now, clock)
        except TimeoutError:
            error: ClusterError = TookTooLong(self._name, "the whole poll", self._settings.poll_timeout_s)
        except ClusterError as caught:
            error = caught
        person = isinstance(error, LoginNeedsPerson)
        return Unreached(cluster=self._name, at=clock.ours(), reason=error.text, hint=error.hint, needs_person=person)

    async def _poll(
        self, controller: Controller, token: Token | None, watch: Watch, now: datetime, clock: Clock
    ) -> Polled:
        listed = await asyncio.gather(*(self._list(controller, user) for user in self._settings.users))
        clock.heard(controller.date)
        jobs = fold((one for some in listed for one in some), self._settings.users)
        self._logs.newest = {job_id: job.root.submitted_at.epoch_ms for job_id, job in jobs.items()}
        problems = []
        missing = [job_id for job_id in watch.live if job_id not in jobs]
        there = await self._still_there(controller, missing, next(iter(jobs), None))
        if there:
            problems.append(f"{_few(there)} not listed, though still there; left as it was")
        wanted = self._worth_details(jobs, watch, clock, now)
        self._details.forget_others(jobs)
        trouble = await self._details.give(controller, wanted)
        problems += [trouble] if trouble else []
        trouble = await self._ask_pods(wanted, now)
        problems += [trouble] if trouble else []
        lines, changed, ended, running = self._sorted(jobs, wanted, watch, clock, now)
        lines |= {job_id: watch.lines.get(job_id, "not listed") for job_id in there}
        logs = await self._look_at_logs(controller, running, watch, clock)
        problems += _unread(logs)
        note = token.note(clock.ours()) if token is not None else None
        problems += [note] if note else []
        at = clock.ours()
        return Polled(
            cluster=self._name,
            at=at,
            lines=lines,
            changed=[clock.corrected(one) for one in changed],
            ended=[clock.corrected(one) for one in ended],
            gone=frozenset(missing) - there,
            logs=logs,
            clock_offset=clock.offset,
            problems=tuple(problems),
            took=at - now,
            source=controller.shown,
        )

    async def _list(self, controller: Controller, user: str) -> list[JobStatus]:
        """All jobs of one user, in pages that overlap by one job; raises on anything less.

        Jobs that come while it goes on are appended, and so seen. A record that is pruned meanwhile moves those behind it up,
        across the edge of a page: the overlap shows it, and the listing begins again.
        """
        for _ in range(_MOST_PASSES):
            found = await self._pages(controller, user)
            if found is not None:
                return found
        raise AnswerUnusable(self._name, f"the list of {user}'s jobs changed {_MOST_PASSES} times while it was read")

    async def _pages(self, controller: Controller, user: str) -> list[JobStatus] | None:
        """One pass; None where jobs moved from page to page meanwhile."""
        found: list[JobStatus] = []
        while True:
            offset = max(len(found) - 1, 0)
            page = await controller.jobs(user, offset)
            if found and (not page.jobs or page.jobs[0].job_id != found[-1].job_id):
                return None
            found[offset:] = page.jobs
            if not page.has_more:
                if len(found) < page.total_count:
                    said = f"{page.total_count} jobs of {user} announced, {len(found)} listed"
                    raise AnswerUnusable(self._name, f"ListJobs contradicts itself: {said}")
                return found
            if len(page.jobs) < 2:
                raise AnswerUnusable(self._name, "ListJobs contradicts itself: more jobs announced, and none listed")
            if offset > _MOST_JOBS:
                raise AnswerUnusable(self._name, f"more than {_MOST_JOBS} jobs of {user}")

    async def _still_there(self, controller: Controller, missing: list[str], known: str | None) -> set[str]:
        """Which of the jobs that are not listed the controller has all the same (POLL-5).

        Leaving a job out is its word that it is gone, where it knows ``known``; where it lists none at all, one of them is asked
        for by itself, and only ``not_found`` counts.
        """
        if not missing:
            return set()
        if known is None:
            try:
                await controller.job(path_of(missing[0]))
            except NotThere as error:
                if not error.positive:
                    raise
        there: set[str] = set()
        for some in _chunks(missing, PAGE - 1):
            asked = [path_of(job_id) for job_id in ([known] if known is not None else []) + some]
            states = await controller.states(asked)
            if known is not None and path_of(known) not in states:
                raise AnswerUnusable(self._name, f"GetJobState leaves out {known}, which ListJobs lists")
            there |= {job_id for job_id in some if path_of(job_id) in states}
        return there

    def _worth_details(
        self, jobs: Mapping[str, Folded], watch: Watch, clock: Clock, now: datetime
    ) -> dict[str, Folded]:
        """Jobs whose tasks are needed: ended since the last good look, new, changed, or waiting."""
        ended = {job_id: job for job_id, job in jobs.items() if job.root.ended and self._told(job, watch, clock, now)}
        live = {job_id: job for job_id, job in jobs.items() if not job.root.ended}
        fresh = {
            job_id: job
            for job_id, job in live.items()
            if not job.unsettled and fingerprint(job) != watch.lines.get(job_id)
        }
        return ended | fresh | {job_id: job for job_id, job in live.items() if job.unsettled}

    def _told(self, job: Folded, watch: Watch, clock: Clock, now: datetime) -> bool:
        """Whether an ended job is still to be told of (POLL-7)."""
        key, ended_at = job.key(self._name), job.root.finished_at
        if watch.live.get(job.id) == key or key in self._owed or ended_at is None:
            return True
        since = now - timedelta(seconds=self._settings.first_look_back_s)
        if watch.ended_since is not None:
            since = watch.ended_since - _LATE
        return ended_at.epoch_ms / 1000 - clock.offset.total_seconds() >= since.timestamp()

    def _sorted(
        self, jobs: Mapping[str, Folded], wanted: Mapping[str, Folded], watch: Watch, clock: Clock, now: datetime
    ) -> tuple[dict[str, Hashable], list[Observation], list[Observation], dict[str, str]]:
        """What is listed, what of it is new, what has ended, and the log of each that runs."""
        lines: dict[str, Hashable] = {}
        changed: list[Observation] = []
        ended: list[Observation] = []
        running: dict[str, str] = {}
        owed: set[JobKey] = set()
        for job_id, job in jobs.items():
            root = job.root
            if root.ended:
                if job_id in wanted:
                    read = read_job(self._name, job)
                    ended += [*read.past, read.observation]
                    if job.tasks is None:
                        owed.add(read.observation.key)
                continue
            if root.task_state_counts.get("running", 0):
                running[job_id] = main_log(job) or _known_log(job, watch) or first_log(root)
            line = fingerprint(job)
            if job_id in wanted and (job.tasks is None or job.config is None):
                line += _OWED
            lines[job_id] = line
            if line != watch.lines.get(job_id):
                read = read_job(self._name, job)
                changed.append(read.observation)
                ended += read.past
        self._owed = owed
        return lines, changed, ended, running

    async def _ask_pods(self, wanted: Mapping[str, Folded], now: datetime) -> str | None:
        """Add what pods say to the tasks that are looked at; without them the controller's word stands alone, which is said."""
        jobs = [job for job in wanted.values() if job.tasks]
        if self._pods is None or not jobs:
            return None
        try:
            pods = await self._pods.read(now)
        except ClusterError as error:
            return f"pods could not be asked: {error.text}"
        for job in jobs:
            job.tasks = enriched(job.tasks or (), pods)
        return None

    # -- logs ----------------------------------------------------------------------------------------------------------

    async def _look_at_logs(
        self, controller: Controller, running: Mapping[str, str], watch: Watch, clock: Clock
    ) -> dict[str, LogStat]:
        """Newest line of each running job's log, in turn where there are more than ``log_looks`` (LIVE-1)."""
        most, names = self._settings.log_looks, sorted(running)
        if len(names) > most > 0:
            turn = int(clock.ours().timestamp()) // 60 * most % len(names)
            names = (names + names)[turn : turn + most]
        paths = {job_id: running[job_id] for job_id in names[:most]}
        limit_s = self._settings.log_looks_timeout_s
        return await self._logs.look(controller, paths, watch.bookmarks, clock.offset, limit_s)

    async def read_logs(self, wanted: Sequence[LogWanted], now: datetime) -> Mapping[tuple[str, str], LogRead]:
        try:
            async with self._reached(now) as (controller, _):
                return await self._logs.read(controller, wanted)
        except ClusterError as error:
            return {(one.job_id, one.path): LogUnread(one.path, error.text) for one in wanted}

    # -- cancel --------------------------------------------------------------------------------------------------------

    async def cancel(self, job: JobKey, approval: Approval) -> CancelReceipt:
        """End the job and what runs below it, if it is still the one that was meant (KILL-1, KILL-2)."""
        if approval.job != job or job.cluster != self._name:
            raise NotApproved(f"approval {approval.id} is for {approval.job.ref}, not for {job.ref} as it is now")
        path, sent = path_of(job.id), False
        if path.split("/")[1] not in self._settings.users:
            return CancelReceipt(False, f"nothing was sent: {job.ref} is not a watched user's")
        now = approval.expires_at  # There is no clock here; a token that ended is refused by the controller itself.
        try:
            async with self._reached(now) as (controller, _):
                told = (await controller.job(path)).job
                if told.incarnation != job.incarnation:
                    return CancelReceipt(False, f"nothing was sent: another job bears the name {job.ref} now")
                if told.ended:
                    return CancelReceipt(False, f"nothing was sent: {job.ref} has ended already ({told.word})")
                sent = True
                await controller.terminate(path, job, approval)
        except (NotAllowed, LoginFailed) as error:
            return CancelReceipt(False, error.text)
        except NotThere as error:
            return CancelReceipt(None if sent and not error.positive else False, error.text)
        except ClusterError as error:
            text = error.text if sent else f"nothing was sent: {error.text}"
            return CancelReceipt(None if sent else False, text)
        return CancelReceipt(True, f"TerminateJob of {path}, submitted at {job.incarnation} ms, was accepted")

    # -- probe ---------------------------------------------------------------------------------------------------------

    async def capture(self, wanted: CaptureWanted, now: datetime) -> Sequence[Captured]:
        async with self._reached(now) as (controller, _):
            return await IrisProbe(cluster=self._name, controller=controller, pods=self._pods).capture(wanted, now)

    async def remains(self, seen: Observation, now: datetime) -> Remains:
        limit_s = self._settings.poll_timeout_s
        try:
            async with asyncio.timeout(limit_s), self._reached(now) as (controller, _):
                return await IrisProbe(cluster=self._name, controller=controller, pods=self._pods).remains(seen, now)
        except TimeoutError:
            return Remains(failure=TookTooLong(self._name, "what remains", limit_s).text)
        except ClusterError as error:
            return Remains(failure=error.text)

    # -- check ---------------------------------------------------------------------------------------------------------

    async def check(self, now: datetime) -> Sequence[Check]:
        limit_s = self._settings.poll_timeout_s
        clock = Clock(now)
        try:
            async with asyncio.timeout(limit_s), self._reached(now) as (controller, token):
                lines = await checks(controller, token, self._settings.users, now)
                clock.heard(controller.date)
        except TimeoutError:
            return [Check("reach", "fail", f"no whole answer within {limit_s:g} s")]
        except ClusterError as error:
            return [Check("credentials" if isinstance(error, LoginFailed) else "reach", "fail", error.text, error.hint)]
        lines += await self._check_pods(now)
        if clock.offset:
            text = f"its clock is {clock.offset.total_seconds():+.0f} s off ours; times are corrected by that"
            lines.append(Check("clock", "warn", text))
        return lines

    async def _check_pods(self, now: datetime) -> list[Check]:
        if self._pods is None:
            return []
        try:
            found = await self._pods.read(now)
        except ClusterError as error:
            return [Check("pods", "fail", error.text, error.hint)]
        return [Check("pods", "ok", f"{len(found)} pods of its tasks are listed")]


def _known_log(job: Folded, watch: Watch) -> str | None:
    """The log that was told of before, if it is this job's and no earlier one's of its name."""
    place = LogPlace.parse(watch.logs.get(job.id, ""))
    return place.path if place is not None and place.since_ms == job.root.submitted_at.epoch_ms else None


def _unread(logs: Mapping[str, LogStat]) -> Iterator[str]:
    """One line for all logs that could not be read."""
    reasons = [stat.reason for stat in logs.values() if stat.reason]
    if reasons:
        yield f"{len(reasons)} of {len(logs)} logs unread: {reasons[0]}"


def _few(names: Iterable[str]) -> str:
    first, *more = sorted(names)
    return f"{first} is" if not more else f"{first} and {len(more)} more are"


def _chunks(names: Sequence[str], size: int) -> Iterator[list[str]]:
    for at in range(0, len(names), size):
        yield list(names[at : at + size])
