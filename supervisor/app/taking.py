"""Taking the evidence of one job: ask its backend within bounds, add what the store knows, write it down (PROBE-1, PROBE-14).

What was asked for and did not come is in the folder too, with the command and its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from supervisor.app.casework import PAST, Ended, papers_of
from supervisor.app.evidence import MANIFEST, Evidence, EvidenceUnwritten, Folder, open_folder
from supervisor.app.fleet import Station
from supervisor.app.follow import Follower
from supervisor.app.own_files import checkpoint_dirs, session_dirs
from supervisor.app.settings import Settings
from supervisor.app.trials import LEAVES_TRIALS, sample
from supervisor.app.writing import Writer
from supervisor.model.errors import ClusterError, SupervisorError, Unproven
from supervisor.model.facts import Held
from supervisor.model.job import JobState
from supervisor.model.lifecycle import Phase
from supervisor.model.probe import Captured, CaptureWanted, Exhibit, Role

log = structlog.get_logger("supervisor.taking")

FRESH = timedelta(minutes=10)
"""Evidence that a crash left whole and unjudged is judged if it is not older; else it is taken anew."""
TRIALS = 48
"""Newest results of trials that are looked into."""
TRIALS_OF_A_DUTY_CYCLE = 384
"""The same, where shares of their time are asked for (PROBE-12)."""


class NotProbed(SupervisorError):
    """Nothing could be asked of its cluster, or nothing be written down: another try may help."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One probe to be made."""

    held: Held
    row: int
    station: Station
    mark: str
    """What its folder is told apart by."""
    last: bool
    """No further try: what could not be asked becomes the verdict ERROR."""
    trials: int = TRIALS
    leave: str | None = None
    """Why a kill of it is not to be proposed, whatever it finds."""


class Taking:
    """Takes evidence."""

    def __init__(
        self, writer: Writer, follower: Follower, evidence: Evidence, settings: Settings, clock: Callable[[], datetime]
    ) -> None:
        self.writer, self.follower, self.evidence = writer, follower, evidence
        self.settings, self.clock = settings, clock

    async def folder(self, wanted: Wanted) -> Folder:
        """The folder, whole: what a crash left of it if that is recent, else taken now."""
        held, path = wanted.held, self.evidence.name(wanted.held.key, wanted.mark)
        if (path / MANIFEST).exists():
            with contextlib.suppress(Unproven):
                folder = await asyncio.to_thread(open_folder, path)
                if self.clock() - folder.taken_at < FRESH:
                    return folder
        now = self.clock()
        try:
            await asyncio.to_thread(self.evidence.begin, path)
            captured = await self._captured(wanted, now)
            papers, past = papers_of(await self._past(wanted.station, held, wanted.row))
            took_s = round((self.clock() - now).total_seconds(), 3)
            facts: dict[str, Any] = {"past": past, "name": held.observation.name, "took_s": took_s}
            key, attempt = held.key, held.life.attempt
            return await asyncio.to_thread(self.evidence.write, path, key, attempt, now, captured, papers, facts)
        except EvidenceUnwritten as error:
            log.error("evidence.unwritten", job=str(held.ref), reason=str(error))
            if not wanted.last:
                raise NotProbed(str(error)) from error
            return unusable(path, held, now, str(error))

    async def _captured(self, wanted: Wanted, now: datetime) -> list[Captured]:
        """What the backend brings, each failure said. Raises NotProbed where nothing could be asked and a try is left."""
        held, station, limits = wanted.held, wanted.station, self.settings.probe
        if station.cluster is None:
            return self._nothing(wanted, "open the cluster", station.broken or "it could not be set up")
        followed = held.log.stat.path if held.log.stat is not None else None
        asked = CaptureWanted(
            seen=held.observation,
            details=held.details,
            log_paths=(followed,) if followed else (),
            checkpoint_dirs=checkpoint_dirs(held, self.follower.runs(station).get(held.key.id)),
            session_dirs=session_dirs(held),
            may_hold=held.life.phase in (Phase.SUSPECT, Phase.WEDGED),
            live=held.observation.state is JobState.RUNNING,
            nodes_most=limits.nodes_most,
            log_bytes=limits.log_bytes,
            time_s=limits.timeout_s * 0.9,
        )
        try:
            async with asyncio.timeout(limits.timeout_s):
                captured = list(await station.cluster.capture(asked, now))
                return captured + await self._trials(wanted, asked, now)
        except TimeoutError:
            return self._nothing(wanted, "capture", f"not whole within {limits.timeout_s:g} s")
        except ClusterError as error:
            return self._nothing(wanted, "capture", error.text)
        except NotProbed:
            raise
        except Exception as error:  # a fault of ours in a backend is a capture that failed, and is said as one
            log.exception("probe.capture_broke", job=str(held.ref))
            return self._nothing(wanted, "capture", f"fault in the supervisor itself: {error!r}")

    def _nothing(self, wanted: Wanted, command: str, failure: str) -> list[Captured]:
        if not wanted.last:
            raise NotProbed(f"{wanted.held.ref}: {failure}")
        command = f"{command} of {wanted.held.ref}"
        return [Captured(role=role, command=command, failure=failure) for role in (Role.RECORD, Role.LOG, Role.STACK)]

    async def _trials(self, wanted: Wanted, asked: CaptureWanted, now: datetime) -> list[Captured]:
        """The newest trials' results, where the job leaves any and its place can be read from here."""
        if wanted.held.bucket not in LEAVES_TRIALS:
            return []
        size = asked.piece_bytes * max(1, wanted.trials // TRIALS)
        found = await sample(wanted.station, wanted.held, wanted.trials, size, now)
        if found.missing is not None:
            told = found.missing
            return [Captured(role=Role.TRIALS, command=told.asked, failure=f"{told.reason}\n{told.output}".strip())]
        return [
            Captured(
                role=Role.TRIALS, command=f"read {name} below {found.where}", source=f"{found.where}/{name}", data=data
            )
            for name, data in found.files
        ]

    async def _past(self, station: Station, held: Held, row: int) -> list[Ended]:
        """Earlier attempts, oldest first; of a chain also the links before, newest end of each."""
        found: list[Ended] = []
        link, seen = held, {held.key.id}
        while link.predecessor and link.predecessor not in seen and len(found) < PAST:
            parent = station.memory.get(link.predecessor)
            if parent is None or parent.row is None:
                break
            seen.add(parent.key.id)
            found = [*await self._ends(parent, parent.row, str(parent.ref), parent.life.attempt + 1), *found]
            link = parent
        return [*found, *await self._ends(held, row, "", held.life.attempt)]

    async def _ends(self, held: Held, row: int, name: str, before: int) -> list[Ended]:
        told = await self.writer.call(lambda store: store.diagnoses(row))
        documents: Mapping[int, Mapping[str, object]] = {each.attempt: each.document for each in told}
        attempts = dict(await self.writer.call(lambda store: store.attempts(row)))
        ends = []
        for number in sorted({*documents, *attempts}):
            seen = attempts.get(number)
            if number < before and (number in documents or (seen is not None and seen.state.ended)):
                called = f"{name} attempt {number}" if name and before > 2 else name or f"attempt {number}"
                ends.append(Ended(name=called, seen=seen, document=documents.get(number)))
        return ends


def unusable(path: Path, held: Held, now: datetime, why: str) -> Folder:
    """Evidence that cannot be used: each capture of it failed, and ``why`` says by what."""
    roles = (Role.RECORD, Role.LOG, Role.STACK)
    exhibits = tuple(
        Exhibit(role=role, command=f"evidence in {path}", taken_at=now, took_s=0.0, failure=why, first_line=None)
        for role in roles
    )
    return Folder(path, held.key, held.life.attempt, now, exhibits)
