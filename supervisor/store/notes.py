"""What is learnt of jobs beside their state: how far logs were read, measurements, diagnoses; and which job a person means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from supervisor.model.records import LogCursor
from supervisor.store import schema
from supervisor.store.bodies import clean, clean_or_none, fits, from_json, to_json
from supervisor.store.engine import Database
from supervisor.store.entries import DiagnosisEntry, Incident, JobFound, Measurement
from supervisor.store.search import NEWEST, searches
from supervisor.store.times import from_us_or_none, to_us

_MEASUREMENT = ("job", "metric", "at", "step", "value")
_MEASUREMENT_CONFLICT = "ON CONFLICT (job, metric, at, step) DO UPDATE SET value = excluded.value"
_NO_STEP = -1
_CURSOR = (
    "job",
    "path",
    "device",
    "inode",
    "read_to",
    "lines",
    "head",
    "kept",
    "kept_from",
    "kept_from_line",
    "state",
    "bookmark",
)
_CURSOR_CONFLICT = "ON CONFLICT (job, path) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in _CURSOR[2:]
)
_SHORT = ("category", "confidence", "transience", "summary", "action", "fingerprint", "cause")
_FOUND = ("id", "cluster", "job_id", "name", "phase", "submitted_at", "closed_at")


class Notes:
    """Log cursors, measurements, diagnoses, and finding jobs."""

    _db: Database

    # ------------------------------------------------------------ logs

    def put_log_cursors(self, cursors: Sequence[LogCursor]) -> None:
        """Store how far logs have been read (FIND-3), all in one transaction."""
        rows = [
            (
                *(one.job_row, clean(one.path), str(one.device), str(one.inode), one.offset, one.lines, one.head),
                *(clean(one.kept), one.kept_from, one.kept_from_line, to_json(one.state), clean_or_none(one.bookmark)),
            )
            for one in {(one.job_row, one.path): one for one in cursors}.values()
        ]
        with self._db.write("storing how far logs were read") as connection:
            self._db.put(connection, "log_cursor", _CURSOR, rows, _CURSOR_CONFLICT)

    def put_log_cursor(self, cursor: LogCursor) -> None:
        self.put_log_cursors([cursor])

    def log_cursors(self, row: int) -> list[LogCursor]:
        """Cursors of a job's logs, by path."""
        return self.log_cursors_of([row])

    def log_cursors_of(self, rows: Iterable[int]) -> list[LogCursor]:
        """Cursors of the logs of many jobs."""
        text = f"SELECT {', '.join(_CURSOR)} FROM log_cursor WHERE job IN (KEYS) ORDER BY job, path"
        with self._db.read("reading how far logs were read") as connection:
            return [
                LogCursor(
                    job_row=row.job,
                    path=row.path,
                    device=int(row.device),
                    inode=int(row.inode),
                    offset=row.read_to,
                    lines=row.lines,
                    head=row.head,
                    kept=row.kept,
                    kept_from=row.kept_from,
                    kept_from_line=row.kept_from_line,
                    state=from_json(row.state),
                    bookmark=row.bookmark,
                )
                for row in self._db.by_keys(connection, text, (), list(rows))
            ]

    # ------------------------------------------------------------ measurements

    def put_readings(self, row: int, readings: Sequence[Measurement]) -> None:
        """Store values from one job's output. The same ones again change nothing."""
        self.put_measurements({row: readings})

    def put_measurements(self, measured: Mapping[int, Sequence[Measurement]]) -> None:
        """Store values from the output of many jobs, by row, in one transaction. The same ones again change nothing."""
        every = [(row, one) for row, readings in measured.items() for one in readings]
        if not every:
            return
        with self._db.write("storing measurements") as connection:
            numbers = self._metric_numbers(connection, {one.metric for _, one in every})
            values = {
                (row, one.metric, one.at, one.step): (
                    *(row, numbers[one.metric], to_us(one.at), _NO_STEP if fits(one.step) is None else one.step),
                    None if math.isnan(one.value) else one.value,
                )
                for row, one in every
            }
            self._db.put(connection, "measurement", _MEASUREMENT, list(values.values()), _MEASUREMENT_CONFLICT)

    def _metric_numbers(self, connection: sa.Connection, names: set[str]) -> dict[str, int]:
        table = schema.metric
        values = [{"name": clean(name)} for name in sorted(names)]
        known = sa.select(table.c.name, table.c.id).where(table.c.name.in_([one["name"] for one in values]))
        found = {row.name: row.id for row in connection.execute(known)}
        missing = [one for one in values if one["name"] not in found]
        if missing:
            connection.execute(self._db.insert(table).on_conflict_do_nothing(), missing)
            found = {row.name: row.id for row in connection.execute(known)}
        return {name: found[clean(name)] for name in names}

    def measurements(self, row: int, metric: str, since: datetime) -> list[Measurement]:
        """Values of one metric of one job at or after a time, oldest first; older ones are thinner (see :class:`Keep`)."""
        table, names = schema.measurement, schema.metric
        query = (
            sa.select(table.c.at, table.c.step, table.c.value)
            .join(names, names.c.id == table.c.metric)
            .where(table.c.job == row, names.c.name == metric, table.c.at >= since)
            .order_by(table.c.at, table.c.step)
        )
        with self._db.read(f"reading measurements of job row {row}") as connection:
            return [
                Measurement(
                    metric=metric,
                    at=one.at,
                    value=math.nan if one.value is None else one.value,
                    step=None if one.step == _NO_STEP else one.step,
                )
                for one in connection.execute(query)
            ]

    # ------------------------------------------------------------ diagnoses

    def put_diagnosis(self, row: int, attempt: int, document: Mapping[str, object], now: datetime) -> None:
        """Store the diagnosis of one attempt (in the contract's form), and the newest one, in short, beside the job."""
        table = schema.diagnosis
        values = {
            "at": now,
            "fingerprint": document.get("fingerprint"),
            "category": str(document.get("category") or "none"),
            "document": to_json(document),
        }
        insert = self._db.insert(table).values(job=row, attempt=attempt, **values)
        put = insert.on_conflict_do_update(index_elements=[table.c.job, table.c.attempt], set_=values)
        newest = sa.select(table.c.document).where(table.c.job == row).order_by(table.c.attempt.desc()).limit(1)
        with self._db.write(f"storing the diagnosis of job row {row}") as connection:
            connection.execute(put)
            latest = from_json(connection.execute(newest).scalar_one())
            short = to_json({name: latest.get(name) for name in _SHORT})
            connection.execute(sa.update(schema.job).where(schema.job.c.id == row).values(diagnosis=short))

    def diagnoses(self, row: int) -> list[DiagnosisEntry]:
        """Diagnoses of a job's attempts, first attempt first."""
        query = sa.select(schema.diagnosis).where(schema.diagnosis.c.job == row).order_by(schema.diagnosis.c.attempt)
        with self._db.read(f"reading the diagnoses of job row {row}") as connection:
            return [
                DiagnosisEntry(
                    job_row=one.job,
                    attempt=one.attempt,
                    at=one.at,
                    fingerprint=one.fingerprint,
                    category=one.category,
                    document=from_json(one.document),
                )
                for one in connection.execute(query)
            ]

    def incidents(self, since: datetime, fingerprint: str | None = None) -> list[Incident]:
        """Failures that were diagnosed at or after a time, one for each fingerprint, the newest first (CHAIN-5)."""
        table, job = schema.diagnosis, schema.job
        query = (
            sa.select(table.c.fingerprint, table.c.category, table.c.at, job.c.cluster, job.c.job_id)
            .join(job, job.c.id == table.c.job)
            .where(table.c.fingerprint.is_not(None), table.c.at >= since)
            .order_by(table.c.at.desc(), table.c.job.desc(), table.c.attempt.desc())
        )
        if fingerprint is not None:
            query = query.where(table.c.fingerprint == fingerprint)
        with self._db.read("reading incidents") as connection:
            found: dict[str, list[Any]] = {}
            for row in connection.execute(query):
                found.setdefault(row.fingerprint, []).append(row)
        return [
            Incident(
                fingerprint=name,
                category=rows[0].category,
                times=len(rows),
                first_at=rows[-1].at,
                last_at=rows[0].at,
                jobs=tuple(dict.fromkeys(f"{row.cluster}/{row.job_id}" for row in rows)),
            )
            for name, rows in found.items()
        ]

    # ------------------------------------------------------------ finding jobs

    def find_jobs(self, text: str) -> list[JobFound]:
        """Jobs that a person may mean: by ``cluster/id``, else by id, else by a part of the name.

        Living ones first, then the newest; an id that was used again gives its newest bearer first.
        """
        with self._db.read("looking for a job") as connection:
            for where, row in searches(text):
                found = self._db.run(
                    connection, f"SELECT {', '.join(_FOUND)} FROM job WHERE {where} {NEWEST}", row
                ).all()
                if found:
                    return [
                        JobFound(
                            row=one.id,
                            cluster=one.cluster,
                            id=one.job_id,
                            name=one.name,
                            phase=one.phase,
                            submitted_at=from_us_or_none(one.submitted_at),
                            live=one.closed_at is None,
                        )
                        for one in found
                    ]
        return []
