"""Reading the trials that jobs leave in folders and object stores: bounded, one round trip a cluster and tick for all folders
(POLL-6), each result counted once over the whole run, also across restarts of the daemon (EVAL-4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from supervisor.app.fleet import Station
from supervisor.app.trial_settings import access_of, setting_of
from supervisor.clusters.object_store import ObjectStores
from supervisor.dialects.places import place_of
from supervisor.dialects.trial_counts import Count, count, counts_of, same_count
from supervisor.model.errors import ClusterError
from supervisor.model.facts import Followed, Held
from supervisor.model.job import JobState
from supervisor.model.polling import Polled
from supervisor.model.records import LogCursor
from supervisor.model.trials import (
    CURSOR,
    NO_TIME,
    NONE_ENDED,
    RESULT,
    TrialFacts,
    TrialFile,
    TrialPlace,
    TrialRead,
    TrialReader,
    TrialSample,
    TrialsSeen,
    TrialsUnread,
    TrialsWanted,
)

if TYPE_CHECKING:
    from supervisor.app.trial_sections import TrialsSection
    from supervisor.app.writing import Writer

log = structlog.get_logger("supervisor.trials")

LEAVES_TRIALS = ("eval", "datagen", "rl")
"""Buckets whose jobs may leave trials; those of others are read where the config names their place."""
AT_ONCE = 4
"""Object stores asked at once for one cluster."""
NO_WAY = "the files of this kind of cluster cannot be read from here; trials in an object store can"
NODE_OWN = ("/dev/shm/", "/tmp/", "/var/tmp/", "/local/", "/run/")  # noqa: S108 (nothing is written there)
"""Folders that each compute node of a Slurm cluster has for itself."""
NOWHERE = TrialsUnread("nothing tells where its trials lie", "its command, its log, trial_stores in the config")
STORES = ObjectStores()
"""Clients of object stores; kept open for the life of the process."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is remembered of one job's place between looks; all of it can be loaded from the store again."""

    where: str
    state: Mapping[str, object]
    asked_at: datetime | None = None


class Trials:
    """Follows the trials of all clusters."""

    def __init__(self, writer: Writer, limits: TrialsSection, stores: ObjectStores = STORES) -> None:
        self.writer, self.limits, self.stores = writer, limits, stores
        self._known: dict[str, dict[str, _Known]] = {}
        self._facts: dict[str, dict[str, TrialFacts]] = {}

    def facts(self, station: Station) -> Mapping[str, TrialFacts]:
        """What is known of the trials of one cluster's jobs, by job id."""
        return self._facts.get(station.name, {})

    async def load(self, station: Station) -> None:
        """After a start: what was counted of the living jobs before."""
        rows = {held.row: job for job, held in station.memory.items() if held.row is not None and held.life.phase.live}
        cursors = await self.writer.call(lambda store: store.log_cursors_of(set(rows)))
        mine = [each for each in cursors if each.path.startswith(CURSOR)]
        self._known[station.name] = {
            rows[each.job_row]: _Known(each.path.removeprefix(CURSOR), each.state) for each in mine
        }
        self._facts[station.name] = {}

    async def read(
        self, station: Station, reading: Polled, runs: Mapping[str, Followed], now: datetime
    ) -> frozenset[str]:
        """Read what is new of each running job's trials, and once more of one that just ended; ids of jobs with news.

        What could not be read changes no count, and is said with its reason.
        """
        facts = self._facts.setdefault(station.name, {})
        for job in [job for job in facts if job not in station.memory]:
            del facts[job]
        wanted = self._wanted(station, reading, runs)
        if not wanted:
            return frozenset()
        shared = _shared(each for each, _ in wanted.values())
        own = [each for each, _ in wanted.values() if each.job_id not in shared]
        answers = {**await self._answers(station, own, wanted, now), **shared}
        news, cursors = set(), []
        known = self._known.setdefault(station.name, {})
        for job, (asked, held) in wanted.items():
            before = known.get(job, _Known(asked.place.where, {}))
            answer = answers[job]
            state = before.state
            if isinstance(answer, TrialsSeen):
                state = await asyncio.to_thread(count, before.state, answer, now.timestamp())
                if held.row is not None and not same_count(before.state, state):
                    cursors.append(_cursor(held.row, asked.place, state))
            waits = isinstance(answer, TrialsUnread) and answer.reason == NO_TIME
            known[job] = _Known(asked.place.where, state, before.asked_at if waits else now)
            fresh = _facts(asked.place, state, answer, reading.clock_offset)
            old = facts.pop(job, None)
            if fresh is None:
                continue
            facts[job] = fresh
            if old is None or replace(fresh, read_at=old.read_at) != old:
                news.add(job)
                if isinstance(answer, TrialsUnread) and not answer.not_there:
                    log.warning("trials.unread", job=str(held.ref), place=asked.place.where, reason=answer.reason)
        if cursors:
            await self.writer.call(lambda store: store.put_log_cursors(cursors))
        return frozenset(news)

    def _wanted(
        self, station: Station, reading: Polled, runs: Mapping[str, Followed]
    ) -> dict[str, tuple[TrialsWanted, Held]]:
        """What to ask for, those that waited longest first. A place that is another than before is counted anew."""
        known = self._known.setdefault(station.name, {})
        newest = {seen.key.id: seen for seen in (*reading.changed, *reading.ended)}
        found: list[tuple[float, Held, TrialPlace]] = []
        running: set[str] = set()
        for job in station.memory.live:
            held = station.memory[job]
            seen = newest.get(job, held.observation)
            if seen.key.incarnation != held.key.incarnation or (
                seen.state not in (JobState.RUNNING, JobState.COMPLETING) and not seen.state.ended
            ):
                continue
            run = runs.get(job)
            place = chosen_place(station, held, run.summary.places if run is not None else None)
            if place is None:
                continue
            if job in known and known[job].where != place.where:
                del known[job]
            last = known[job].asked_at if job in known else None
            found.append((last.timestamp() if last else 0.0, held, place))
            if not seen.state.ended:
                running.add(job)
        # What a link of a chain left is counted by the link that goes on in the same folder.
        going_on = {place.where for _, held, place in found if held.key.id in running}
        found = [each for each in found if each[1].key.id in running or each[2].where not in going_on]
        found.sort(key=lambda each: each[0])
        share = max(self.limits.bytes_per_result, self.limits.bytes_per_tick // max(1, len(found)))
        return {
            held.key.id: (self._one(held, place, known.get(held.key.id), reading.clock_offset, share), held)
            for _, held, place in found
        }

    def _one(
        self, held: Held, place: TrialPlace, known: _Known | None, offset: timedelta, total_bytes: int
    ) -> TrialsWanted:
        run = Count.load(known.state if known is not None else None)
        began = held.observation.started_at
        return TrialsWanted(
            job_id=held.key.id,
            place=place,
            since_s=run.since_s,
            known=run.known,
            started_s=int((began + offset).timestamp()) if began else 0,
            results=self.limits.results_per_job,
            result_bytes=self.limits.bytes_per_result,
            total_bytes=total_bytes,
            entries=self.limits.entries,
            after=run.after,
        )

    async def _answers(
        self,
        station: Station,
        wanted: Sequence[TrialsWanted],
        asked: Mapping[str, tuple[TrialsWanted, Held]],
        now: datetime,
    ) -> Mapping[str, TrialRead]:
        """Folders by one command, object stores beside it; each wanted one has an answer."""
        gate = asyncio.Semaphore(AT_ONCE)
        limit = self.limits.deadline_s

        async def from_store(each: TrialsWanted) -> tuple[str, TrialRead]:
            async with gate:
                access = access_of(setting_of(station, asked[each.job_id][1]))
                return each.job_id, await self.stores.read(each, access, limit_s=limit)

        folders = [each for each in wanted if not each.place.in_object_store]
        objects = [from_store(each) for each in wanted if each.place.in_object_store]
        from_folders, from_stores = await asyncio.gather(
            read_folders(station, folders, now, limit), asyncio.gather(*objects)
        )
        return {**from_folders, **dict(from_stores)}


def _shared(wanted: Iterable[TrialsWanted]) -> dict[str, TrialRead]:
    """Places that several running jobs name: whose trials are whose is not told, and none is counted for two."""
    jobs: dict[str, list[str]] = {}
    for each in wanted:
        jobs.setdefault(each.place.where, []).append(each.job_id)
    return {
        job: TrialsUnread(f"jobs {', '.join(sorted(those)[:4])} write into it, and whose is whose is not told", where)
        for where, those in jobs.items()
        if len(those) > 1
        for job in those
    }


def chosen_place(station: Station, held: Held, told: Mapping[str, str] | None) -> TrialPlace | None:
    """Where this job's trials are looked for; None where nothing tells, or they are not to be read."""
    setting = setting_of(station, held)
    if setting is not None and not setting.read:
        return None
    place = _filled(setting.place, held) if setting is not None and setting.place else None
    if place is None and held.bucket not in LEAVES_TRIALS:
        return None
    return place_of(held.details.command, held.details.workdir, told, place)


def _filled(place: str, held: Held) -> str | None:
    """None where a part is not known, or would lead elsewhere: names are others' words."""
    values = {
        "name": held.observation.name,
        "id": held.key.id,
        "user": held.observation.user,
        "workdir": held.details.workdir,
    }
    for name, value in values.items():
        mark = "{" + name + "}"
        if mark in place:
            if not value or ".." in value.split("/") or not value.isprintable():
                return None
            place = place.replace(mark, value if name == "workdir" else value.strip("/"))
    return place


async def read_folders(
    station: Station, wanted: Sequence[TrialsWanted], now: datetime, limit_s: float
) -> dict[str, TrialRead]:
    """The backend's answers; one that cannot read files, or fails whole, leaves each unread with its reason."""
    if not wanted:
        return {}
    cluster = station.cluster
    if not isinstance(cluster, TrialReader):
        return {each.job_id: TrialsUnread(NO_WAY, each.place.where) for each in wanted}
    try:
        answers = await asyncio.wait_for(cluster.read_trials(wanted, now), timeout=limit_s)
    except TimeoutError:
        reason = f"no answer within {limit_s:g} s"
    except ClusterError as error:
        reason = error.text
    else:
        missing = TrialsUnread("no answer for it", "")
        return {each.job_id: _told(station, each, answers.get(each.job_id, missing)) for each in wanted}
    return {each.job_id: TrialsUnread(reason, f"ls {each.place.where}") for each in wanted}


def _told(station: Station, asked: TrialsWanted, answer: TrialRead) -> TrialRead:
    """With the likely reason where a login node lacks a folder that only the compute nodes have."""
    absent = isinstance(answer, TrialsUnread) and answer.not_there
    if not absent or station.kind != "slurm" or not asked.place.where.startswith(NODE_OWN):
        return answer
    assert isinstance(answer, TrialsUnread)
    return replace(answer, reason=f"{answer.reason}; it is the compute node's own, which no login node sees")


def _cursor(row: int, place: TrialPlace, state: Mapping[str, object]) -> LogCursor:
    """Counts are kept beside the cursors of the job's logs; nothing of them lies under the log folder."""
    return LogCursor(
        job_row=row,
        path=CURSOR + place.where,
        device=0,
        inode=0,
        offset=0,
        lines=None,
        head="",
        kept="no log",
        kept_from=0,
        kept_from_line=None,
        state=state,
    )


def _facts(place: TrialPlace, state: Mapping[str, object], answer: TrialRead, offset: timedelta) -> TrialFacts | None:
    """None where there is nothing to say: a place that was only likely, and is not there."""
    unread = answer if isinstance(answer, TrialsUnread) else None
    counts = counts_of(state)
    if unread is not None and unread.not_there and not place.sure and counts is None:
        return None
    last = counts.last_end_s if counts is not None else None
    skew = timedelta(0) if place.in_object_store else offset
    run = Count.load(state)
    return TrialFacts(
        place=place,
        where=run.where or place.where,
        counts=counts,
        read_at=datetime.fromtimestamp(run.read_at, UTC) if run.read_at is not None else None,
        last_end_at=datetime.fromtimestamp(last, UTC) - skew if last is not None else None,
        unread=unread,
        clock_offset=skew,
    )


async def sample(station: Station, held: Held, newest: int, limit_bytes: int, now: datetime) -> TrialSample:
    """The newest ``newest`` results of one job, at most ``limit_bytes`` of them, and the job's own result, for an evidence
    folder. Where there are none it says what was asked and what came back."""
    place = chosen_place(station, held, None)
    if place is None or (place.found_in != "trial_stores" and held.run.trials_at):
        told = held.run.trials_at
        setting = setting_of(station, held)
        off = setting is not None and not setting.read
        place = TrialPlace(told, "its latest look") if told and not off else place
    if place is None:
        return TrialSample(place=None, missing=NOWHERE)
    began = held.observation.started_at
    offset = timedelta(seconds=station.status.clock_offset_s if station.status is not None else 0)
    wanted = TrialsWanted(
        job_id=held.key.id,
        place=place,
        started_s=int((began + offset).timestamp()) if began else 0,
        results=newest,
        result_bytes=min(limit_bytes, 4 * 2**20),
        total_bytes=limit_bytes,
        newest=True,
    )
    limit = station.section.deadline_s
    if place.in_object_store:
        answer = await STORES.read(wanted, access_of(setting_of(station, held)), limit_s=limit)
    else:
        answer = (await read_folders(station, [wanted], now, limit))[held.key.id]
    if isinstance(answer, TrialsUnread):
        if answer.not_there and not place.sure:
            return TrialSample(place=None, missing=NOWHERE)
        return TrialSample(place=place, where=place.where, missing=answer)
    return _sampled(place, answer, limit_bytes)


def _sampled(place: TrialPlace, seen: TrialsSeen, limit_bytes: int) -> TrialSample:
    files: list[tuple[str, bytes]] = []
    left_out = 0

    def take(name: str, file: TrialFile) -> None:
        nonlocal left_out, limit_bytes
        if file.data is None or len(file.data) > limit_bytes:
            left_out += 1
            return
        limit_bytes -= len(file.data)
        files.append((name, file.data))

    for each in seen.results:
        take(f"{each.name}/{RESULT}", each)
    if seen.job is not None:
        take(RESULT, seen.job)
    missing = None
    if not files:
        why = NONE_ENDED if not left_out and not seen.too_many else "no result could be taken within the bounds"
        missing = TrialsUnread(why, f"{seen.where}/*/{RESULT}", f"{seen.begun} trials begun, {left_out} left out")
    return TrialSample(
        place=replace(place, where=seen.where, of_jobs=False),
        where=seen.where,
        files=tuple(files),
        begun=seen.begun,
        missing=missing,
        left_out=left_out,
    )
