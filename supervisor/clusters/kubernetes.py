"""``kind = "kubernetes"``: jobs of one API server, read by lists, followed by UID.

Requests of one poll, whatever the number of jobs: one page per ``page_size`` objects for pods, for each kind of record that the
cluster has, and for Kueue's workloads, each per namespace; discovery at most every ten minutes; two to five per job that is
gone (at most 100 jobs); events of at most 20 Jobs that lost pods; one per running job for its newest log line (at most
``log_looks``).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from supervisor.clusters import kubernetes_calls as calls
from supervisor.clusters.kubernetes_absence import LastSeen, look_up, object_path
from supervisor.clusters.kubernetes_attempts import needs_events
from supervisor.clusters.kubernetes_calls import ApiServer, Conflicts, NotAllowed, NotThere, Refused, path_of
from supervisor.clusters.kubernetes_capture import KubernetesProbe
from supervisor.clusters.kubernetes_check import ANNOUNCED, checks
from supervisor.clusters.kubernetes_events import lost_pods
from supervisor.clusters.kubernetes_jobs import Folded, Listing, fold, parts_of
from supervisor.clusters.kubernetes_lists import Lister, Read, Served
from supervisor.clusters.kubernetes_login import Login
from supervisor.clusters.kubernetes_logs import LogBook
from supervisor.clusters.kubernetes_session import Clock, Session
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.clusters.kubernetes_states import JobRead, read_job
from supervisor.model.errors import ClusterError, LoginFailed, LoginNeedsPerson, NotApproved, TookTooLong
from supervisor.model.job import JobKey, Observation
from supervisor.model.logs import LogRead, LogUnread, LogWanted
from supervisor.model.polling import Check, Polled, Reading, Unreached, Watch
from supervisor.model.ports import Approval, CancelReceipt
from supervisor.model.probe import Captured, CaptureWanted, Remains

_MOST_WITH_EVENTS, _MOST_LOST_PODS = 20, 10
_LATE = timedelta(seconds=60)
"""Ends are looked for this long before the last good look: what ended at that moment may not have been listed yet."""
_UNCERTAIN = "not known"


class KubernetesCluster:
    """One API server under one context."""

    def __init__(self, name: str, settings: KubernetesSettings) -> None:
        self._name, self._settings = name, settings
        self._session = Session(name, settings)
        self._last_seen = LastSeen()
        self._log_book = LogBook(name)

    @property
    def name(self) -> str:
        return self._name

    @property
    def kind(self) -> str:
        return "kubernetes"

    # -- poll ----------------------------------------------------------------------------------------------------------

    async def poll(self, watch: Watch, now: datetime) -> Reading:
        clock = Clock(now)
        try:
            async with asyncio.timeout(self._settings.poll_timeout_s):
                return await self._session.run(now, lambda server: self._poll(server, watch, now, clock))
        except TimeoutError:
            error: ClusterError = TookTooLong(self._name, "the whole poll", self._settings.poll_timeout_s)
        except ClusterError as caught:
            error = caught
        person = isinstance(error, LoginNeedsPerson)
        return Unreached(cluster=self._name, at=clock.ours(), reason=error.text, hint=error.hint, needs_person=person)

    async def _poll(self, server: ApiServer, watch: Watch, now: datetime, clock: Clock) -> Polled:
        served = await self._session.served(server, now)
        await server.get(calls.VERSION, read=clock.heard)
        lister = Lister(self._name, server, served, self._settings.page_size)
        read = await lister.read(self._session.namespaces(server.login), self._settings.selector)
        reads = await self._jobs(server, read, watch, clock)
        missing = [key for key in watch.live.values() if key.id not in reads]
        found = await look_up(server, served, missing)
        if found.pods or found.owned:
            # Still there, though not listed: it lost its labels, or was made anew by its list's age. It is as it says itself.
            more = Listing(pods=found.pods, owned=found.owned)
            reads = await self._jobs(server, Read(listing=more), watch, clock) | reads
        read.problems += [found.problem] if found.problem is not None else []
        gone = [key for key in missing if key.id not in reads and key.id not in found.uncertain]
        # Another UID bears the name: that one is gone too (POLL-11).
        gone += [key for key in watch.live.values() if key.id in reads and reads[key.id].observation.key != key]
        lines, changed, ended = self._sorted(reads, watch, clock)
        lines |= {job_id: watch.lines.get(job_id, _UNCERTAIN) for job_id in found.uncertain}
        ended += await self._last_seen.ends(server, gone, clock.theirs())
        self._last_seen.note(reads.values(), [key for key in watch.live.values() if key not in gone])
        logs = await self._log_book.look(server, reads, watch, clock, self._settings)
        await self._note_what_is_odd(server, read, now)
        at = clock.ours()
        return Polled(
            cluster=self._name,
            at=at,
            lines=lines,
            changed=[clock.corrected(one) for one in changed],
            ended=[clock.corrected(one) for one in ended],
            gone=frozenset(key.id for key in gone if key.id not in reads),
            logs=logs,
            clock_offset=clock.offset,
            version=served.release,
            problems=tuple(read.problems),
            took=at - now,
            source=server.host,
        )

    async def _jobs(self, server: ApiServer, read: Read, watch: Watch, clock: Clock) -> dict[str, JobRead]:
        """What is listed, as jobs. Of batch Jobs that had other pods before, events are asked what became of these."""
        jobs: Mapping[str, Folded] = await asyncio.to_thread(fold, self._name, read.listing, watch.live)
        if read.selected is not None:
            chosen = read.selected
            jobs = {job_id: job for job_id, job in jobs.items() if not chosen.isdisjoint(job.members())}
        for job in [job for job in jobs.values() if needs_events(job)][:_MOST_WITH_EVENTS]:
            present = [pod.metadata.name for pod in job.pods]
            job.lost = await lost_pods(server, job.namespace, job.key.incarnation, present, _MOST_LOST_PODS)
        limit, theirs = timedelta(seconds=self._settings.terminating_limit_s), clock.theirs()
        return await asyncio.to_thread(lambda: {name: read_job(job, theirs, limit) for name, job in jobs.items()})

    def _sorted(
        self, reads: Mapping[str, JobRead], watch: Watch, clock: Clock
    ) -> tuple[dict[str, Hashable], list[Observation], list[Observation]]:
        """What is listed, what of it is new, and what has ended since the last good look (POLL-7)."""
        lines: dict[str, Hashable] = {}
        changed: list[Observation] = []
        ended: list[Observation] = []
        since = clock.ours() - timedelta(seconds=self._settings.first_look_back_s)
        if watch.ended_since is not None:
            since = watch.ended_since - _LATE
        for job_id, one in reads.items():
            seen = one.observation
            ended += [past for past in one.past if past.ended_at is not None and past.ended_at - clock.offset >= since]
            if seen.state.ended:
                when = seen.ended_at or seen.submitted_at
                if watch.live.get(job_id) == seen.key or when is None or when - clock.offset >= since:
                    ended.append(seen)
                continue
            lines[job_id] = fingerprint(seen)
            if watch.lines.get(job_id) != lines[job_id]:
                changed.append(seen)
        return lines, changed, ended

    async def _note_what_is_odd(self, server: ApiServer, read: Read, now: datetime) -> None:
        """Namespaces that do not exist, which the API server lists as empty ones; credentials that end soon (POLL-12)."""
        for name in read.empty:
            try:
                await server.get(path_of(calls.NAMESPACE, name=name), read=lambda answer: answer)
            except NotThere as error:
                if error.positive:
                    read.problems.append(f"namespace {name} does not exist")
            except ClusterError:
                # To read namespaces is a right that few have.
                continue
        read.problems += _expiry_note(server.login, now)

    # -- logs ----------------------------------------------------------------------------------------------------------

    async def read_logs(self, wanted: Sequence[LogWanted], now: datetime) -> Mapping[tuple[str, str], LogRead]:
        try:
            server = await self._session.connected(now)
        except ClusterError as error:
            return {(one.job_id, one.path): LogUnread(one.path, error.text) for one in wanted}
        return await self._log_book.read(server, wanted)

    # -- cancel --------------------------------------------------------------------------------------------------------

    async def cancel(self, job: JobKey, approval: Approval) -> CancelReceipt:
        """Delete the job's owner, if it still has this UID; what it owns goes first. The next poll sees what is left."""
        if approval.job != job or job.cluster != self._name:
            raise NotApproved(f"approval {approval.id} is for {approval.job.ref}, not for {job.ref} as it is now")
        now = approval.expires_at  # There is no clock here: credentials that hold until then hold now.
        try:
            server = await self._session.connected(now)
            targets = await self._targets(server, await self._session.served(server, now), job)
            if isinstance(targets, str):
                return CancelReceipt(False, targets)
            for path, uid in targets:
                await server.delete(path, uid)
        except (Conflicts, NotAllowed, LoginFailed) as error:
            return CancelReceipt(False, error.text)
        except NotThere as error:
            return CancelReceipt(False if error.positive else None, error.text)
        except Refused as error:
            return CancelReceipt(False if error.status < 500 else None, error.text)
        except ClusterError as error:
            return CancelReceipt(None, error.text)
        self._last_seen.deleted(job, f"deleted by approval {approval.id}")
        said = "; ".join(f"deletion of {path} with UID {uid} was accepted" for path, uid in targets)
        return CancelReceipt(True, said)

    async def _targets(self, server: ApiServer, served: Served, job: JobKey) -> list[tuple[str, str]] | str:
        """Path and UID of each object to delete, or why nothing can be."""
        path = object_path(served, job)
        if path is not None:
            return [(path, job.incarnation)]
        parts = parts_of(job.id)
        if parts is None or parts[1] != "podgroup":
            return f"{job.id} is of a kind that this version cannot delete"
        lister = Lister(self._name, server, served, self._settings.page_size)
        pods = await lister.pods(parts[0], f"kueue.x-k8s.io/pod-group-name={parts[2]}")
        pods = pods or await lister.pods(parts[0], f"scheduling.x-k8s.io/pod-group={parts[2]}")
        group = fold(self._name, Listing(pods=pods), {job.id: job}).get(job.id)
        if group is None or group.key != job:
            return f"no pod of {job.id} as it was is there"
        named = [(path_of(calls.POD, namespace=parts[0], name=pod.metadata.name), pod) for pod in group.pods]
        return [(path, pod.metadata.uid) for path, pod in named]

    # -- probe ---------------------------------------------------------------------------------------------------------

    async def capture(self, wanted: CaptureWanted, now: datetime) -> Sequence[Captured]:
        async def work(server: ApiServer) -> Sequence[Captured]:
            return await (await self._probe(server, now)).capture(wanted, now)

        return await self._session.run(now, work)

    async def remains(self, seen: Observation, now: datetime) -> Remains:
        async def work(server: ApiServer) -> Remains:
            return await (await self._probe(server, now)).remains(seen, now)

        try:
            async with asyncio.timeout(self._settings.poll_timeout_s):
                return await self._session.run(now, work)
        except TimeoutError:
            return Remains(failure=TookTooLong(self._name, "what remains", self._settings.poll_timeout_s).text)
        except ClusterError as error:
            return Remains(failure=error.text)

    async def _probe(self, server: ApiServer, now: datetime) -> KubernetesProbe:
        return KubernetesProbe(
            cluster=self._name,
            server=server,
            served=await self._session.served(server, now),
            page_size=self._settings.page_size,
            terminating_limit=timedelta(seconds=self._settings.terminating_limit_s),
        )

    # -- check ---------------------------------------------------------------------------------------------------------

    async def check(self, now: datetime) -> Sequence[Check]:
        limit_s = self._settings.poll_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._session.run(now, lambda server: checks(self._session, server, self._name, now))
        except TimeoutError:
            return [Check("reach", "fail", f"no whole answer within {limit_s:g} s")]
        except ClusterError as error:
            return [Check("credentials" if isinstance(error, LoginFailed) else "reach", "fail", error.text, error.hint)]

    async def close(self) -> None:
        self._session.close()


def fingerprint(seen: Observation) -> str:
    """Equal for equal observations, in every process."""
    return hashlib.blake2b(msgspec.json.encode(seen), digest_size=12).hexdigest()


def _expiry_note(login: Login, now: datetime) -> list[str]:
    ends = login.expires_at
    if ends is None or login.renews_itself or ends - now > ANNOUNCED:
        return []
    return [f"its {login.expires_what} ends at {ends:%Y-%m-%dT%H:%M:%SZ}"]


__all__ = ["KubernetesCluster", "fingerprint"]
