"""``kind = "kubernetes"``: jobs of one API server, read by lists, followed by UID.

Requests of one poll, whatever the number of jobs: one page per ``page_size`` objects for pods, for each kind of record that the
cluster has, and for Kueue's workloads, each per namespace; discovery at most every ten minutes; two per job that is gone
(at most 100 jobs); events of at most 20 Jobs that lost pods; one per running job for its newest log line (at most ``log_looks``).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from supervisor.clusters import kubernetes_calls as calls
from supervisor.clusters.kubernetes_calls import ApiServer, Conflicts, NotAllowed, NotThere, Refused, path_of
from supervisor.clusters.kubernetes_check import ANNOUNCED, checks
from supervisor.clusters.kubernetes_events import end_of, events_of, lost_pods
from supervisor.clusters.kubernetes_jobs import Folded, Listing, Owned, fold, parts_of
from supervisor.clusters.kubernetes_lists import Lister, Read, Served, record_path
from supervisor.clusters.kubernetes_login import Login
from supervisor.clusters.kubernetes_logs import look, read_log
from supervisor.clusters.kubernetes_session import Clock, Session
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.clusters.kubernetes_states import JobRead, log_path, needs_events, read_job
from supervisor.clusters.owners import BY_WORD, ITEMS
from supervisor.clusters.pods import Pod, PodRead
from supervisor.model.errors import ClusterError, LoginFailed, LoginNeedsPerson, NotApproved, TookTooLong
from supervisor.model.job import JobKey, JobState, Observation
from supervisor.model.logs import LogRead, LogStat, LogState, LogText, LogUnread, LogWanted
from supervisor.model.polling import Check, Polled, Reading, Unreached, Watch
from supervisor.model.ports import Approval, CancelReceipt

_MOST_LOOKED_UP = 100
_MOST_WITH_EVENTS, _MOST_LOST_PODS = 20, 10
_LATE = timedelta(seconds=60)
"""Ends are looked for this long before the last good look: finished at that moment, they may not have been listed yet."""
_MOST_PLACES = 4096
_UNCERTAIN = "left as it was"


class KubernetesCluster:
    """One API server under one context."""

    def __init__(self, name: str, settings: KubernetesSettings) -> None:
        self._name, self._settings = name, settings
        self._session = Session(name, settings)
        self._doomed: dict[JobKey, Observation] = {}
        """Jobs that were being deleted when last seen, as they will have ended once they are gone."""
        self._places: dict[str, tuple[int, str]] = {}
        """Offset and bookmark of the last piece of each log, for callers that do not hand bookmarks back."""

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
        jobs = self._fold(read, watch)
        await self._remember_lost_pods(server, jobs)
        reads = self._read(jobs, clock)
        listing = read.listing
        missing = {key.id: key for key in watch.live.values() if key.id not in reads}
        found, uncertain = await self._look_up(server, served, missing, read)
        if found.pods or found.owned:
            listing = Listing(
                pods=[*listing.pods, *found.pods],
                owned=[*listing.owned, *found.owned],
                workloads=listing.workloads,
                whole=listing.whole,
                unread=listing.unread,
            )
            mine = None if read.selected is None else read.selected | {key.incarnation for key in missing.values()}
            reads = self._read(self._fold(Read(listing=listing, selected=mine), watch), clock) | reads
        lines, changed, ended = self._sorted(reads, watch, clock)
        for job_id in uncertain:
            lines[job_id] = watch.lines.get(job_id, _UNCERTAIN)
        ended += await self._ends_of_the_gone(server, watch, missing, reads, uncertain, clock)
        logs = await self._look_at_logs(server, reads, watch, clock)
        await self._empty_namespaces(server, read)
        read.problems += self._expiry_note(server.login, now)
        at = clock.ours()
        return Polled(
            cluster=self._name,
            at=at,
            lines=lines,
            changed=[clock.corrected(one) for one in changed],
            ended=[clock.corrected(one) for one in ended],
            logs=logs,
            clock_offset=clock.offset,
            version=served.release,
            problems=tuple(read.problems),
            took=at - now,
            source=server.host,
        )

    def _fold(self, read: Read, watch: Watch) -> dict[str, Folded]:
        jobs = fold(self._name, read.listing, watch.live)
        if read.selected is None:
            return jobs
        return {job_id: job for job_id, job in jobs.items() if not read.selected.isdisjoint(job.members())}

    def _read(self, jobs: Mapping[str, Folded], clock: Clock) -> dict[str, JobRead]:
        limit, theirs = timedelta(seconds=self._settings.terminating_limit_s), clock.theirs()
        return {job_id: read_job(job, theirs, limit) for job_id, job in jobs.items()}

    async def _remember_lost_pods(self, server: ApiServer, jobs: Mapping[str, Folded]) -> None:
        """What events tell of the first pods of Jobs that had others before; a bounded number of Jobs and pods."""
        for job in [job for job in jobs.values() if needs_events(job)][:_MOST_WITH_EVENTS]:
            present = [pod.metadata.name for pod in job.pods]
            job.lost = await lost_pods(server, job.namespace, job.key.incarnation, present, _MOST_LOST_PODS)

    def _sorted(
        self, reads: Mapping[str, JobRead], watch: Watch, clock: Clock
    ) -> tuple[dict[str, Any], list[Observation], list[Observation]]:
        """What is listed, what of it is new, and what has ended since the last good look (POLL-7)."""
        lines: dict[str, Any] = {}
        changed, ended = [], []
        since = watch.ended_since - _LATE if watch.ended_since is not None else None
        since = since or clock.ours() - timedelta(seconds=self._settings.first_look_back_s)
        for job_id, one in reads.items():
            seen = one.observation
            ended += [past for past in one.past if past.ended_at is not None and past.ended_at - clock.offset >= since]
            if seen.state.ended:
                if watch.live.get(job_id) == seen.key or seen.ended_at is None or seen.ended_at - clock.offset >= since:
                    ended.append(seen)
                continue
            lines[job_id] = fingerprint(seen)
            if watch.lines.get(job_id) != lines[job_id]:
                changed.append(seen)
            if one.doomed is not None:
                self._doomed[seen.key] = replace(seen, state=one.doomed, details=None)
            else:
                self._doomed.pop(seen.key, None)
        return lines, changed, ended

    async def _ends_of_the_gone(
        self,
        server: ApiServer,
        watch: Watch,
        missing: Mapping[str, JobKey],
        reads: Mapping[str, JobRead],
        uncertain: Mapping[str, str],
        clock: Clock,
    ) -> list[Observation]:
        """Jobs that are gone, and whose end is known all the same: from events, or because their deletion was seen.

        Of the others nothing is said: they are absent, and the rule for that decides (POLL-5).
        """
        ends = []
        for key in missing.values():
            if key.id in reads or key.id in uncertain:
                continue
            last, parts = self._doomed.get(key), parts_of(key.id)
            told = await events_of(server, parts[0], uid=key.incarnation.partition("@")[0]) if parts is not None else ()
            end = end_of(told)
            if last is not None and (end is None or last.state is not JobState.CANCELLED):
                ends.append(
                    replace(last, ended_at=clock.theirs(), reason=f"{last.reason or 'it was deleted'}; it is gone now")
                )
            elif end is not None:
                blank = last or Observation(
                    key=key, name=key.id.split("/")[-1], user=None, state=end.state, scheduler_state=end.word
                )
                reason = f"its record is gone; {end.reason}"
                ends.append(replace(blank, state=end.state, scheduler_state=end.word, reason=reason, ended_at=end.at))
        for key in [key for key in self._doomed if key.id not in reads and key.id not in uncertain]:
            del self._doomed[key]
        return ends

    async def _look_up(
        self, server: ApiServer, served: Served, missing: Mapping[str, JobKey], read: Read
    ) -> tuple[Listing, dict[str, str]]:
        """Ask once for each job that was there and is not listed. Only the API server's own NotFound proves it gone (POLL-5)."""
        asked = list(missing.values())[:_MOST_LOOKED_UP]
        uncertain = {
            key.id: f"more than {_MOST_LOOKED_UP} jobs are gone at once"
            for key in list(missing.values())[_MOST_LOOKED_UP:]
        }
        answers = await asyncio.gather(*(self._still_there(server, served, key) for key in asked))
        pods: list[Pod] = []
        owned: list[Owned] = []
        for key, answer in zip(asked, answers, strict=True):
            if isinstance(answer, str):
                uncertain[key.id] = answer
            elif isinstance(answer, Pod):
                pods.append(answer)
            elif isinstance(answer, Owned):
                owned.append(answer)
        if uncertain:
            first = next(iter(uncertain))
            more = f" (and {len(uncertain) - 1} more)" if len(uncertain) > 1 else ""
            read.problems.append(
                f"{first}{more} is not listed, and whether it is gone is not known: {uncertain[first]}; {_UNCERTAIN}"
            )
        return Listing(pods=pods, owned=owned), uncertain

    async def _still_there(self, server: ApiServer, served: Served, key: JobKey) -> Pod | Owned | str | None:
        """Its object, if the very same is still there; None if it is gone; else why that is not known."""
        path = self._path_of(served, key)
        if path is None:
            return None
        word = key.id.split("/")[1]
        decoder: msgspec.json.Decoder[Any] = _POD if word == "pod" else ITEMS[word]
        try:
            found = await server.get(path, read=lambda answer: decoder.decode(answer.data))
        except NotThere as error:
            return None if error.positive else error.text
        except ClusterError as error:
            return error.text
        except ValueError:
            return "its record cannot be read"
        if found.metadata.uid != key.incarnation:
            return None
        return found if isinstance(found, Pod) else Owned(BY_WORD[word], found)

    def _path_of(self, served: Served, key: JobKey) -> str | None:
        """Where a job's own object is; None where it has none that we can ask for."""
        parts = parts_of(key.id)
        if parts is None:
            return None
        namespace, word, name = parts
        if word == "pod":
            return path_of(calls.POD, namespace=namespace, name=name)
        return record_path(served, BY_WORD[word], namespace, name) if word in BY_WORD else None

    async def _look_at_logs(
        self, server: ApiServer, reads: Mapping[str, JobRead], watch: Watch, clock: Clock
    ) -> dict[str, LogStat]:
        """Newest line of each running job's log, in turn where there are more than ``log_looks`` of them."""
        running = sorted(
            job_id
            for job_id, one in reads.items()
            if one.observation.state is JobState.RUNNING and one.main is not None
        )
        most = self._settings.log_looks
        if len(running) > most > 0:
            turn = int(clock.ours().timestamp()) // 60 * most % len(running)
            running = (running + running)[turn : turn + most]
        pods = {job_id: reads[job_id].main for job_id in running[:most]}
        limit_s = self._settings.log_looks_timeout_s
        tasks = {
            job_id: asyncio.create_task(look(server, pod, self._bookmark(job_id, pod, watch), clock.offset, limit_s))
            for job_id, pod in pods.items()
            if pod is not None
        }
        if not tasks:
            return {}
        _, late = await asyncio.wait(tasks.values(), timeout=limit_s)
        for task in late:
            task.cancel()
        return {
            job_id: task.result() if task not in late else _late(pods[job_id], limit_s)
            for job_id, task in tasks.items()
        }

    def _bookmark(self, job_id: str, pod: PodRead, watch: Watch) -> str | None:
        return watch.bookmarks.get(job_id) or self._places.get(log_path(pod), (0, None))[1]

    async def _empty_namespaces(self, server: ApiServer, read: Read) -> None:
        """An API server lists a namespace that does not exist as an empty one."""
        for name in read.empty:
            try:
                await server.get(path_of(calls.NAMESPACE, name=name), read=lambda answer: answer)
            except NotThere as error:
                if error.positive:
                    read.problems.append(f"namespace {name} does not exist")
            except ClusterError:
                continue

    def _expiry_note(self, login: Login, now: datetime) -> list[str]:
        """POLL-12."""
        ends = login.expires_at
        if ends is None or login.renews_itself or ends - now > ANNOUNCED:
            return []
        return [f"its {login.expires_what} ends at {ends:%Y-%m-%dT%H:%M:%SZ}"]

    # -- logs ----------------------------------------------------------------------------------------------------------

    async def read_logs(self, wanted: Sequence[LogWanted], now: datetime) -> Mapping[tuple[str, str], LogRead]:
        try:
            server = await self._session.connected(now)
        except ClusterError as error:
            return {(one.job_id, one.path): LogUnread(one.path, error.text) for one in wanted}
        reads = await asyncio.gather(*(read_log(server, self._name, one, self._remembered(one)) for one in wanted))
        for one, read in zip(wanted, reads, strict=True):
            if isinstance(read, LogText) and read.bookmark is not None:
                self._places.pop(one.path, None)
                self._places[one.path] = (read.offset + len(read.data), read.bookmark)
        for path in list(self._places)[: max(0, len(self._places) - _MOST_PLACES)]:
            del self._places[path]
        return {(one.job_id, one.path): read for one, read in zip(wanted, reads, strict=True)}

    def _remembered(self, wanted: LogWanted) -> str | None:
        offset, bookmark = self._places.get(wanted.path, (-1, ""))
        return bookmark if offset == wanted.offset else None

    # -- cancel --------------------------------------------------------------------------------------------------------

    async def cancel(self, job: JobKey, approval: Approval) -> CancelReceipt:
        """Delete the job's owner, if it still has this UID; what it owns goes first. The next poll sees what is left."""
        if approval.job != job or job.cluster != self._name:
            raise NotApproved(f"approval {approval.id} is for {approval.job.ref}, not for {job.ref} as it is now")
        now = approval.expires_at  # no clock here; credentials that hold until then hold now
        try:
            server = await self._session.connected(now)
            served = await self._session.served(server, now)
            targets = await self._targets(server, served, job)
            if isinstance(targets, str):
                return CancelReceipt(False, targets)
            said = [await self._deleted(server, path, uid) for path, uid in targets]
        except (Conflicts, NotAllowed) as error:
            return CancelReceipt(False, error.text)
        except NotThere as error:
            return CancelReceipt(False if error.positive else None, error.text)
        except (LoginFailed, Refused) as error:
            known = isinstance(error, LoginFailed) or error.status < 500
            return CancelReceipt(False if known else None, error.text)
        except ClusterError as error:
            return CancelReceipt(None, error.text)
        return CancelReceipt(True, "; ".join(said))

    async def _deleted(self, server: ApiServer, path: str, uid: str) -> str:
        await server.delete(path, uid)
        return f"deletion of {path} with UID {uid} was accepted"

    async def _targets(self, server: ApiServer, served: Served, job: JobKey) -> list[tuple[str, str]] | str:
        """Path and UID of each object to delete, or why nothing can be."""
        path = self._path_of(served, job)
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
        return [
            (path_of(calls.POD, namespace=parts[0], name=pod.metadata.name), pod.metadata.uid) for pod in group.pods
        ]

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


_POD = msgspec.json.Decoder(Pod)


def fingerprint(seen: Observation) -> str:
    """Equal for equal observations, in every process."""
    return hashlib.blake2b(msgspec.json.encode(seen), digest_size=12).hexdigest()


def _late(pod: Any, limit_s: float) -> LogStat:
    return LogStat(log_path(pod), LogState.UNREAD, reason=f"its newest line did not come within {limit_s:g} s")
