"""Writing down one poll of one cluster, whole or not at all, and reading back what is held.

This is the hot path of a tick: jobs that did not change cost nothing here, and those that did go by in bulk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from supervisor.model.errors import StoreError
from supervisor.model.facts import Held
from supervisor.model.job import JobKey, Observation
from supervisor.model.polling import Headroom
from supervisor.model.records import AttemptRecord, ClusterState, ClusterStatus, PollRecord
from supervisor.store import schema
from supervisor.store.bodies import (
    JOB_COLUMNS,
    clean,
    clean_or_none,
    fits,
    held_of,
    job_row,
    observation_of,
    to_json,
    transition_of,
)
from supervisor.store.engine import Database, Row
from supervisor.store.entries import Look, Poll, Step
from supervisor.store.errands import put_errands
from supervisor.store.faults import StaleWrite
from supervisor.store.rows import rows_of
from supervisor.store.times import from_us, to_us, to_us_or_none

_ID, _VERSION, _MARK, _AT, _TICK = (
    JOB_COLUMNS.index(name) for name in ("id", "version", "mark", "changed_at", "changed_tick")
)

_LOOK = "attempt, phase, outcome, state, scheduler_state, scheduler_reason, node_count"
_OWN_RULE = {
    "changed_at": "CASE WHEN job.mark <> excluded.mark THEN excluded.changed_at ELSE job.changed_at END",
    "changed_tick": "CASE WHEN job.mark <> excluded.mark THEN excluded.changed_tick ELSE job.changed_tick END",
    "closed_at": "CASE WHEN excluded.closed_at IS NULL THEN NULL ELSE COALESCE(job.closed_at, excluded.closed_at) END",
}
_NEVER_REWRITTEN = ("id", "cluster", "job_id", "incarnation")
_JOB_CONFLICT = (
    "ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(
        f"{name} = {_OWN_RULE.get(name, f'excluded.{name}')}" for name in JOB_COLUMNS if name not in _NEVER_REWRITTEN
    )
    + " WHERE job.version = excluded.version - 1"
)
_TRANSITION = ("job", "number", "at", "tick", "before", "after", "attempt", "outcome", "sign", "reason", "body")
_ATTEMPT = ("job", "number", "state", "started_at", "ended_at", "exit_code", "signal", "body")
_ATTEMPT_CONFLICT = "ON CONFLICT (job, number) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in _ATTEMPT[2:]
)
_POLL = ("cluster", "at", "tick", "good", "listed", "changed", "reason")
_CLUSTER = tuple(column.name for column in schema.cluster.columns)
_CLUSTER_CONFLICT = "ON CONFLICT (name) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in _CLUSTER[1:]
)
_ERRAND = ("kind", "cluster", "job", "payload", "dedupe", "queued_at", "due_at", "tries")


class Polls:
    """What one poll changes, and what is held."""

    _db: Database

    def record(self, record: PollRecord, *, owner: str | None = None) -> list[Held]:
        """Store all that one poll changed, in one transaction; the changed jobs with row and version as they now stand.

        ``owner``, where given, must hold the cluster's lease. Transitions must belong to jobs in ``record.changed``.
        The same record again, after a failure whose outcome nobody saw, stores nothing twice. Raises StaleWrite, and
        stores nothing, where a job was written by somebody else since it was read, or is known already though its
        ``row`` is None (then see :meth:`known`).
        """
        name, at_us = record.status.name, to_us(record.at)
        with self._db.write(f"storing the poll of {name}") as connection:
            if owner is not None:
                self._check_lease(connection, name, owner)
            if self._db.run(connection, "SELECT 1 FROM poll WHERE cluster = ? AND at = ?", (name, at_us)).first():
                return self._stored_before(connection, record)
            self._put_status(connection, record.status)
            reason = None if record.good else clean_or_none(record.status.reason)
            row: Row = (name, at_us, record.tick, record.good, record.listed, len(record.changed), reason)
            self._db.put(connection, "poll", _POLL, [row])
            held = self._put_jobs(connection, record, at_us)
            rows = {job.key: job.row for job in held if job.row is not None}
            fresh = {job.key for job in record.changed if job.row is None}
            self._put_transitions(connection, record, rows, fresh)
            self._put_attempts(connection, record.attempts, rows)
            put_errands(self._db, connection, record.errands, record.at, rows)
        return held

    def _check_lease(self, connection: sa.Connection, cluster: str, owner: str) -> None:
        held_by = self._db.run(connection, "SELECT owner FROM lease WHERE cluster = ?", (cluster,)).scalar()
        if held_by != owner:
            raise StaleWrite(
                f"{cluster} is polled by {held_by or 'nobody'} now, not by {owner}: its reading was not stored"
            )

    def _put_jobs(self, connection: sa.Connection, record: PollRecord, at_us: int) -> list[Held]:
        changed = record.changed
        if not changed:
            return []
        numbers = iter(self._new_rows(connection, sum(1 for job in changed if job.row is None)))
        rows = [job_row(job, next(numbers) if job.row is None else job.row, record.tick, at_us) for job in changed]
        try:
            written = self._write_jobs(connection, rows)
        except sa.exc.IntegrityError as error:
            raise StaleWrite(f"{record.status.name}: a job of this poll is stored already, though not held") from error
        if written != len(rows):
            behind = f"{len(rows) - written} of {len(rows)} jobs were written by somebody else since they were read"
            raise StaleWrite(f"{record.status.name}: {behind}")
        return [
            job.having(row=row[_ID], version=row[_VERSION])  # as stored
            for job, row in zip(changed, rows, strict=True)
        ]

    def _write_jobs(self, connection: sa.Connection, rows: Sequence[Row]) -> int:
        """Write jobs, and first keep how they looked until now where they look different; how many were written."""
        into = f"INSERT INTO change (job, until, since, tick, {_LOOK})"
        old = ", ".join(f"job.{name}" for name in ("changed_at", "changed_tick", *_LOOK.split(", ")))
        if self._db.is_sqlite:
            keep = f"{into} SELECT job.id, ?, {old} FROM job WHERE id = ? AND mark <> ?"
            past = [(row[_AT], row[_ID], row[_MARK]) for row in rows if row[_VERSION] != 1]
            self._db.run_many(connection, keep, past)
            return self._db.put(connection, "job", JOB_COLUMNS, rows, _JOB_CONFLICT)
        self._db.stage(connection, "job", JOB_COLUMNS, rows)
        keep = f"{into} SELECT job.id, new.changed_at, {old} FROM job JOIN staged_job new ON new.id = job.id"
        connection.exec_driver_sql(f"{keep} WHERE new.mark <> job.mark")
        return self._db.put_staged(connection, "job", JOB_COLUMNS, _JOB_CONFLICT)

    def _new_rows(self, connection: sa.Connection, count: int) -> Iterable[int]:
        """Row numbers for jobs never stored before, handed out beforehand so that they need not be read back."""
        if not count:
            return ()
        if self._db.is_sqlite:  # safe: BEGIN IMMEDIATE holds off every other writer, and jobs are never deleted
            first = (self._db.run(connection, "SELECT MAX(id) FROM job").scalar() or 0) + 1
            return range(first, first + count)
        text = "SELECT nextval(pg_get_serial_sequence('job', 'id')) FROM generate_series(1, ?)"
        return [row[0] for row in self._db.run(connection, text, (count,))]

    def _put_transitions(
        self, connection: sa.Connection, record: PollRecord, rows: dict[JobKey, int], fresh: set[JobKey]
    ) -> None:
        if not record.transitions:
            return
        known = sorted({rows[move.job] for move in record.transitions if move.job in rows and move.job not in fresh})
        text = "SELECT job, MAX(number) FROM transition WHERE job IN (KEYS) GROUP BY job"
        last = {row[0]: row[1] for row in self._db.by_keys(connection, text, (), known)}
        values: list[Row] = []
        for move in record.transitions:
            row = rows.get(move.job)
            if row is None:
                raise StoreError(f"a transition of {move.job.ref} came without its job among the changed ones")
            number = last[row] = last.get(row, 0) + 1
            values.append(
                (
                    *(row, number, to_us(move.at), record.tick, move.before.phase.value, move.after.phase.value),
                    *(move.after.attempt, move.after.outcome.value if move.after.outcome else None),
                    *(move.read.sign.value, clean(move.read.reason), to_json(move)),
                )
            )
        self._db.put(connection, "transition", _TRANSITION, values)

    def _put_attempts(
        self, connection: sa.Connection, attempts: Sequence[AttemptRecord], rows: dict[JobKey, int]
    ) -> None:
        if not attempts:
            return
        found = rows_of(self._db, connection, {one.job for one in attempts}, rows)
        values: dict[tuple[int, int], Row] = {}  # by key: one statement may not touch a row twice
        for one in attempts:
            row, seen = found[one.job], one.observation
            values[row, one.number] = (
                *(row, one.number, seen.state.value, to_us_or_none(seen.started_at), to_us_or_none(seen.ended_at)),
                *(fits(seen.exit_code), fits(seen.signal), to_json(seen)),
            )
        self._db.put(connection, "attempt", _ATTEMPT, list(values.values()), _ATTEMPT_CONFLICT)

    def _stored_before(self, connection: sa.Connection, record: PollRecord) -> list[Held]:
        """The answer to a record that came a second time. Anything but the very same one is refused."""
        known = {
            job.key: job for job in self._known(connection, record.status.name, [job.key for job in record.changed])
        }
        answer = []
        for job in record.changed:
            stored = known.get(job.key)
            if stored is None or stored.version != job.version + 1:
                raise StaleWrite(
                    f"{record.status.name}: another poll with the same time is stored already", (str(job.ref),)
                )
            answer.append(job.having(row=stored.row, version=stored.version))
        return answer

    # ------------------------------------------------------------ what is held

    def held(self, cluster: str, *, ended_after: datetime) -> list[Held]:
        """Jobs of a cluster that live, or whose clean-up is not done, or that were first held as ended after a time."""
        text = (
            "SELECT id, version, body FROM job WHERE cluster = ? AND "
            "(closed_at IS NULL OR closed_at > ? OR phase IN ('terminal', 'cleanup')) ORDER BY id"
        )
        with self._db.read(f"reading the jobs of {cluster}") as connection:
            return [held_of(*row) for row in self._db.run(connection, text, (cluster, to_us(ended_after)))]

    def known(self, cluster: str, keys: Iterable[JobKey]) -> list[Held]:
        """Whatever is stored of these jobs, however long ago they ended."""
        with self._db.read(f"looking up jobs of {cluster}") as connection:
            return self._known(connection, cluster, list(keys))

    def _known(self, connection: sa.Connection, cluster: str, keys: Sequence[JobKey]) -> list[Held]:
        wanted = set(keys)
        text = "SELECT id, version, body FROM job WHERE cluster = ? AND job_id IN (KEYS)"
        ids = sorted({key.id for key in wanted})
        found = (held_of(*row) for row in self._db.by_keys(connection, text, (cluster,), ids))
        return [job for job in found if job.key in wanted]

    def job(self, row: int) -> Held:
        """One job by its row number."""
        with self._db.read(f"reading job row {row}") as connection:
            found = self._db.run(connection, "SELECT id, version, body FROM job WHERE id = ?", (row,)).first()
        if found is None:
            raise StoreError(f"no job has row number {row}")
        return held_of(*found)

    def attempts(self, row: int) -> list[tuple[int, Observation]]:
        """Attempts of a job with what was last seen of each, first one first."""
        with self._db.read(f"reading the attempts of job row {row}") as connection:
            found = self._db.run(connection, "SELECT number, body FROM attempt WHERE job = ? ORDER BY number", (row,))
            return [(number, observation_of(body)) for number, body in found]

    def transitions(self, row: int) -> list[Step]:
        """All steps of a job's life, first one first."""
        return self._steps("reading the steps of a job", "WHERE job = ? ORDER BY number", (row,))

    def transitions_since(self, moment: datetime) -> list[Step]:
        """Steps of all jobs at or after a time, oldest first."""
        return self._steps("reading recent steps", "WHERE at >= ? ORDER BY at, job, number", (to_us(moment),))

    def _steps(self, doing: str, where: str, row: Row) -> list[Step]:
        with self._db.read(doing) as connection:
            found = self._db.run(connection, f"SELECT job, number, tick, body FROM transition {where}", row)
            return [
                Step(job_row=job, number=number, tick=tick, transition=transition_of(body))
                for job, number, tick, body in found
            ]

    def changes(self, row: int) -> list[Look]:
        """How a job looked over time, oldest first; the last one is how it looks now."""
        past = f"SELECT since, until, tick, {_LOOK} FROM change WHERE job = ? ORDER BY until"
        now = f"SELECT changed_at, NULL, changed_tick, {_LOOK} FROM job WHERE id = ?"
        with self._db.read(f"reading the history of job row {row}") as connection:
            found = [*self._db.run(connection, past, (row,)), *self._db.run(connection, now, (row,))]
        names = ("tick", *(name.strip() for name in _LOOK.split(",")))
        return [
            Look(
                since=from_us(one[0]),
                until=None if one[1] is None else from_us(one[1]),
                **dict(zip(names, one[2:], strict=True)),
            )
            for one in found
        ]

    def polls(self, cluster: str, since: datetime) -> list[Poll]:
        """Stored polls of a cluster at or after a time, oldest first."""
        table = schema.poll
        query = sa.select(table).where(table.c.cluster == cluster, table.c.at >= since).order_by(table.c.at)
        with self._db.read(f"reading the polls of {cluster}") as connection:
            return [Poll(**row._mapping) for row in connection.execute(query)]

    # ------------------------------------------------------------ clusters

    def put_status(self, status: ClusterStatus) -> None:
        """Store a cluster's state outside a poll (skipped, not tried)."""
        with self._db.write(f"storing the state of {status.name}") as connection:
            self._put_status(connection, status)

    def _put_status(self, connection: sa.Connection, status: ClusterStatus) -> None:
        room = status.headroom
        row: Row = (
            *(status.name, status.kind, status.state.value, to_us_or_none(status.polled_at)),
            *(to_us_or_none(status.last_good_at), to_us_or_none(status.ended_since), clean_or_none(status.reason)),
            *(clean_or_none(status.hint), status.failed_polls, status.jobs_live),
            *((room.inodes_used, room.inodes_soft, room.bytes_used, room.bytes_soft) if room else (None,) * 4),
            *(status.clock_offset_s, clean_or_none(status.version), clean(status.source), status.took_s),
        )
        self._db.put(connection, "cluster", _CLUSTER, [row], _CLUSTER_CONFLICT)

    def cluster_status(self, name: str) -> ClusterStatus | None:
        """None for a cluster that was never polled."""
        found = self._statuses(schema.cluster.c.name == name)
        return found[0] if found else None

    def cluster_statuses(self) -> list[ClusterStatus]:
        """By name."""
        return self._statuses(sa.true())

    def _statuses(self, where: sa.ColumnElement[bool]) -> list[ClusterStatus]:
        query = sa.select(schema.cluster).where(where).order_by(schema.cluster.c.name)
        with self._db.read("reading the clusters") as connection:
            return [_status(dict(row._mapping)) for row in connection.execute(query)]


def _status(row: dict[str, Any]) -> ClusterStatus:
    room = {name: row.pop(name) for name in ("inodes_used", "inodes_soft", "bytes_used", "bytes_soft")}
    row["headroom"] = Headroom(**room) if any(value is not None for value in room.values()) else None
    row["state"] = ClusterState(row["state"])
    return ClusterStatus(**row)
