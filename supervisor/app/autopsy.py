"""Why did it die: fetch its last words, diagnose, store, and write the dated record. Safe to do twice (FAIL-1, FIND-6, SAY-3)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from supervisor.app.agent_logs import AgentLogs
from supervisor.app.fleet import Station
from supervisor.app.follow import Follower
from supervisor.app.kept import KeptLogs
from supervisor.app.settings import Settings
from supervisor.app.writing import Writer
from supervisor.detectors.repeats import judged
from supervisor.model.facts import Held
from supervisor.model.job import Outcome
from supervisor.model.logs import LogUnread
from supervisor.model.records import Errand, ErrandWanted, LogCursor
from supervisor.model.trials import CURSOR
from supervisor.reports.ending import ending_record

if TYPE_CHECKING:
    from supervisor.model.diagnosis import Diagnosis, SchedulerRecord

log = structlog.get_logger("supervisor.autopsy")

LATE_WORDS = timedelta(minutes=10)
"""After this an ended job's logs are looked at once more."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Kept text of one log, and where in that log it begins."""

    path: str
    """The log's own."""
    kept: Path
    offset: int
    line: int | None


class Autopsy:
    """One job's end (or suspicion), looked into."""

    def __init__(self, writer: Writer, follower: Follower, kept: KeptLogs, logs: AgentLogs, settings: Settings) -> None:
        self.writer, self.follower, self.kept, self.logs, self.settings = writer, follower, kept, logs, settings
        self._local = threading.local()

    async def perform(self, errand: Errand, stations: Mapping[str, Station], now: datetime) -> None:
        """Raises OSError where the record cannot be written, StoreError where the result cannot be stored; both are retried."""
        row = errand.job_row
        if row is None:
            return
        held = await self.writer.call(lambda store: store.job(row))
        over = errand.payload.get("attempt")
        if isinstance(over, int) and over < held.life.attempt:
            await self._earlier(held, row, over, now)
            return
        station = stations.get(held.key.cluster)
        before_it = await self.writer.call(lambda store: store.log_cursors(row))
        known = {each.path: each.offset for each in before_it if not each.path.startswith(CURSOR)}
        cursors, unread = await self._words(station, held, row, now)
        again = bool(errand.payload.get("again"))
        if again and {each.path: each.offset for each in cursors} == known:
            return
        pieces = [self._of_attempt(cursor) for cursor in cursors]
        diagnosis = await asyncio.to_thread(self._diagnose, held, pieces, unread)
        before = await self._before(held, row, station)
        document = judged(self._document(diagnosis, pieces), before)
        await self.writer.call(lambda store: store.put_diagnosis(row, held.life.attempt, document, now))
        log.info("job.diagnosed", job=str(held.ref), category=diagnosis.category, confidence=diagnosis.confidence)
        if not again and not held.life.phase.live:
            await self._look_again(errand, held, row, now)
        if errand.payload.get("note"):
            tails = {cursor.path: self._tail(cursor) for cursor in cursors}
            reasons = {each.path: each.reason for each in unread}
            steps = await self.writer.call(lambda store: store.transitions(row))
            text = ending_record(held, [step.transition for step in steps], document, tails, reasons, now)
            topic = held.life.outcome.value if held.life.outcome else held.life.phase.value
            path = await asyncio.to_thread(self.logs.put, now, held.key.cluster, held.key.id, topic, text)
            log.info("record.written", job=str(held.ref), path=str(path))

    async def _earlier(self, held: Held, row: int, attempt: int, now: datetime) -> None:
        """An attempt that another followed: from what it printed and was kept, and how the scheduler says it ended (PROBE-6)."""
        cursors = await self.writer.call(lambda store: store.log_cursors(row))
        told = dict(await self.writer.call(lambda store: store.attempts(row))).get(attempt)
        now_printed = (held.details.log_path, held.details.err_path)
        own = [each for each in cursors if each.path not in now_printed and self.kept.path(each).exists()]
        pieces = [self._of_attempt(each, earlier=held.life.attempt - attempt) for each in own or cursors]
        ended = held.having(observation=told) if told is not None else held
        diagnosis = await asyncio.to_thread(self._diagnose, ended, pieces, [])
        before = [
            (f"attempt {each.attempt}", each.document)
            for each in await self.writer.call(lambda store: store.diagnoses(row))
            if each.attempt < attempt
        ]
        document = judged(self._document(diagnosis, pieces), before)
        await self.writer.call(lambda store: store.put_diagnosis(row, attempt, document, now))
        log.info("job.diagnosed", job=str(held.ref), attempt=attempt, category=diagnosis.category)

    def _of_attempt(self, cursor: LogCursor, *, earlier: int = 0) -> Piece:
        """The kept text that an attempt printed: set aside when its successor's began anew, else what both printed into."""
        for path, offset, line in self.kept.before(cursor) if earlier == 1 else ():
            return Piece(cursor.path, path, offset, line)
        return Piece(cursor.path, self.kept.path(cursor), cursor.kept_from, cursor.kept_from_line)

    async def _look_again(self, errand: Errand, held: Held, row: int, now: datetime) -> None:
        """Last lines may reach the login node late: look once more, and diagnose anew only if there is more to read."""
        mark = f"autopsy/again/{row}/{held.life.attempt}/{held.life.phase.value}/{held.life.outcome or ''}"
        wanted = ErrandWanted("autopsy", held.key, {**errand.payload, "again": True}, mark)
        await self.writer.call(lambda store: store.queue_errand(wanted, now, due_at=now + LATE_WORDS))

    async def _before(self, held: Held, row: int, station: Station | None) -> list[tuple[str, Mapping[str, Any]]]:
        """Diagnoses of the same run's earlier attempts, and of the link of the chain before it."""
        found: list[tuple[str, Mapping[str, Any]]] = []
        for each in await self.writer.call(lambda store: store.diagnoses(row)):
            if each.attempt < held.life.attempt:
                found.append((f"attempt {each.attempt}", each.document))
        parent = station.memory.get(held.predecessor) if station is not None and held.predecessor else None
        if parent is not None and parent.row is not None:
            link = parent.row
            told = await self.writer.call(lambda store: store.diagnoses(link))
            found += [(str(parent.ref), each.document) for each in told]
        return found

    async def _words(
        self, station: Station | None, held: Held, row: int, now: datetime
    ) -> tuple[list[LogCursor], list[LogUnread]]:
        if station is None:
            kept = await self.writer.call(lambda store: store.log_cursors(row))
            return [each for each in kept if not each.path.startswith(CURSOR)], []
        return await self.follower.last_words(station, held, now)

    def _tail(self, cursor: LogCursor) -> bytes:
        try:
            return self.kept.tail(cursor)
        except FileNotFoundError:
            return b""

    def _diagnose(self, held: Held, pieces: list[Piece], unread: list[LogUnread]) -> Diagnosis:
        """Blocking: runs in a thread. Kept text is named by the log's own path, so that quotes point at the real file."""
        from supervisor.app.diagnose import Source, diagnose_files

        sources = []
        read = set()
        for piece in pieces:
            if piece.kept.exists():
                sources.append(Source(name=piece.path, path=str(piece.kept)))
                read.add(piece.path)
        sources += [Source(name=each.path, refused=each.reason) for each in unread if each.path not in read]
        return diagnose_files(sources, scheduler_record(held), self._prepared())

    def _prepared(self) -> Any:
        """The catalogue and its engine, made once for each thread that uses them."""
        chosen = self.settings.signatures
        if getattr(self._local, "made_for", None) != chosen:
            from supervisor.app.packs import prepare

            self._local.prepared = prepare(list(chosen.packs), list(chosen.off))
            self._local.made_for = chosen
        return self._local.prepared

    def _document(self, diagnosis: Diagnosis, pieces: list[Piece]) -> dict[str, Any]:
        """The contract's document, its lines and offsets those of the real log though only a part of it is kept."""
        from supervisor.app.diagnose_view import as_document

        document = as_document(diagnosis)
        begins = {piece.path: (piece.offset, piece.line) for piece in pieces}
        for quote in (document.get("cause"), *document.get("echoes", ()), document.get("progress")):
            if not isinstance(quote, dict) or quote.get("file") not in begins:
                continue
            offset, line = begins[quote["file"]]
            if offset and "offset" in quote:
                quote["offset"] += offset
            if offset and quote.get("line") is not None:
                quote["line"] = None if line is None else quote["line"] + line
        return document


def scheduler_record(held: Held) -> SchedulerRecord:
    """What the scheduler says of the end, in the words that the diagnosis takes."""
    from supervisor.model.diagnosis import SchedulerRecord

    seen, outcome = held.observation, held.life.outcome
    return SchedulerRecord(
        state=seen.scheduler_state,
        exit_code=seen.exit_code,
        signal=seen.signal,
        oom_killed=True if outcome is Outcome.OUT_OF_MEMORY else None,
        reason=seen.reason if seen.reason not in (None, "None") else None,
        nodes_lost=seen.nodes if outcome is Outcome.NODE_FAILED else (),
        has_successor=outcome is Outcome.HANDED_ON,
    )
