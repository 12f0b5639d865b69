"""Writing down one poll of one cluster, whole or not at all.

This is the hot path of a tick: jobs that did not change cost nothing here, and those that did go by in bulk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

import sqlalchemy as sa

from supervisor.model.errors import StoreError
from supervisor.model.facts import Held
from supervisor.model.job import JobKey
from supervisor.model.records import ClusterStatus, PollRecord
from supervisor.store import schema
from supervisor.store.bodies import (
    JOB_COLUMNS,
    as_stored,
    attempt_body,
    clean,
    clean_or_none,
    fits,
    job_row,
    transition_body,
)
from supervisor.store.engine import Database, Row
from supervisor.store.errands import put_errands
from supervisor.store.faults import StaleWrite
from supervisor.store.rows import known_jobs, rows_of
from supervisor.store.times import to_us, to_us_or_none

_PLACE = {name: place for place, name in enumerate(JOB_COLUMNS)}
_ID, _VERSION, _MARK, _AT, _NUMBER = (_PLACE[name] for name in ("id", "version", "mark", "changed_at", "attempt"))

LOOK = "attempt, phase, outcome, state, scheduler_state, scheduler_reason, node_count"
"""What ``change`` keeps of a job."""
_KEEP_LOOK = (
    f"INSERT INTO change (job, until, since, tick, {LOOK}) SELECT job.id, %s, job.changed_at, job.changed_tick, "
    + ", ".join(f"job.{name}" for name in LOOK.split(", "))
    + " FROM job"
)
_ATTEMPT = ("job", "number", "state", "started_at", "ended_at", "exit_code", "signal", "body")
_ATTEMPT_CONFLICT = "ON CONFLICT (job, number) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in _ATTEMPT[2:]
)
_KEEP_ATTEMPT = (
    f"INSERT INTO attempt ({', '.join(_ATTEMPT)}) SELECT job.id, job.attempt, job.state, job.started_at, job.ended_at, "
    "job.exit_code, job.signal, job.body FROM job"
)
_TRANSITION = ("job", "number", "at", "tick", "before", "after", "attempt", "outcome", "sign", "reason", "body")
_POLL = ("cluster", "at", "tick", "good", "listed", "changed", "reason")
_CLUSTER = tuple(column.name for column in schema.cluster.columns)
_CLUSTER_CONFLICT = "ON CONFLICT (name) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in _CLUSTER[1:]
)

# A job that is stored already. The columns of its indexes are written by statements of their own, only where they change:
# SQLite rewrites the entries of each index that an UPDATE names, changed or not.
_FIXED = ("id", "cluster", "job_id", "incarnation")
_SHOWN, _COUNTED = ("name", "bucket", "closed_at"), ("phase", "worst")
_DATED = ("changed_at", "changed_tick")
_PLAIN = tuple(name for name in JOB_COLUMNS if name not in (*_FIXED, *_SHOWN, *_COUNTED, *_DATED))
_UPDATE = (
    "UPDATE job SET "
    + ", ".join(f"{name} = ?" for name in _PLAIN)
    + "".join(f", {name} = CASE WHEN mark <> ? THEN ? ELSE {name} END" for name in _DATED)
    + " WHERE id = ? AND version = ? - 1"
)
_UPDATE_FROM = [*_PLAIN, *("mark", "changed_at", "mark", "changed_tick"), *("id", "version")]
_UPDATE_ROW = itemgetter(*[_PLACE[name] for name in _UPDATE_FROM])
_SHOW = (
    "UPDATE job SET name = ?, bucket = ?, closed_at = CASE WHEN ? IS NULL THEN NULL ELSE COALESCE(closed_at, ?) END "
    "WHERE id = ? AND (name <> ? OR bucket <> ? OR (closed_at IS NULL) <> (? IS NULL))"
)
_SHOW_ROW = itemgetter(*[_PLACE[name] for name in (*_SHOWN, "closed_at", "id", *_SHOWN)])
_COUNT = "UPDATE job SET phase = ?, worst = ? WHERE id = ? AND (phase <> ? OR worst IS NOT ?)"
_COUNT_ROW = itemgetter(*[_PLACE[name] for name in (*_COUNTED, "id", *_COUNTED)])
# A requeued job keeps its row, and its key is that of the attempt that it stands at now.
_REBORN = "UPDATE job SET incarnation = ? WHERE id = ? AND incarnation <> ?"
_REBORN_ROW = itemgetter(*[_PLACE[name] for name in ("incarnation", "id", "incarnation")])

# The same on PostgreSQL, which compares indexed values by itself: new and known jobs in one statement.
_OWN_RULE = {
    **{name: f"CASE WHEN job.mark <> excluded.mark THEN excluded.{name} ELSE job.{name} END" for name in _DATED},
    "closed_at": "CASE WHEN excluded.closed_at IS NULL THEN NULL ELSE COALESCE(job.closed_at, excluded.closed_at) END",
}
_JOB_CONFLICT = (
    "ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{name} = {_OWN_RULE.get(name, f'excluded.{name}')}" for name in JOB_COLUMNS if name not in _FIXED[:3])
    + " WHERE job.version = excluded.version - 1"
)


class Recording:
    """What one poll changes."""

    _db: Database

    def record(self, record: PollRecord, *, owner: str | None = None) -> list[Held]:
        """Store all that one poll changed, in one transaction; the changed jobs with row and version as they now stand.

        ``owner``, where given, must hold the cluster's lease. Transitions must belong to jobs in ``record.changed``.
        The same record again, after a failure whose outcome nobody saw, stores nothing twice. Raises StaleWrite, and
        stores nothing, where a job was written by somebody else since it was read, or is known already though its
        ``row`` is None (then see :meth:`Store.known`).
        """
        name, at_us = record.status.name, to_us(record.at)
        with self._db.write(f"storing the poll of {name}") as connection:
            if owner is not None:
                self._check_lease(connection, name, owner)
            reason = None if record.good else clean_or_none(record.status.reason)
            row: Row = (name, at_us, record.tick, record.good, record.listed, len(record.changed), reason)
            if not self._db.put(connection, "poll", _POLL, [row], "ON CONFLICT (cluster, at) DO NOTHING"):
                return self._stored_before(connection, record)
            self._put_status(connection, record.status)
            held = self._put_jobs(connection, record, at_us)
            rows = {job.key: job.row for job in held if job.row is not None}
            self._put_transitions(connection, record, rows)
            self._put_attempts(connection, record, rows)
            put_errands(self._db, connection, record.errands, record.at, rows)
        return held

    def _check_lease(self, connection: sa.Connection, cluster: str, owner: str) -> None:
        held_by = self._db.run(connection, "SELECT owner FROM lease WHERE cluster = ?", (cluster,)).scalar()
        if held_by != owner:
            raise StaleWrite(
                f"{cluster} is polled by {held_by or 'nobody'} now, not by {owner}: its reading was not stored"
            )

    def _stored_before(self, connection: sa.Connection, record: PollRecord) -> list[Held]:
        """The answer to a record that came a second time. Anything but the very same one is refused."""
        name = record.status.name
        known = {job.key: job for job in known_jobs(self._db, connection, name, [job.key for job in record.changed])}
        answer = []
        for job in record.changed:
            stored = known.get(job.key)
            if stored is None or stored.version != job.version + 1:
                raise StaleWrite(f"{name}: another poll with the same time is stored already", (str(job.ref),))
            answer.append(as_stored(job, stored.row, stored.version))
        return answer

    # ------------------------------------------------------------ jobs

    def _put_jobs(self, connection: sa.Connection, record: PollRecord, at_us: int) -> list[Held]:
        changed = record.changed
        if not changed:
            return []
        numbers = iter(self._new_rows(connection, sum(1 for job in changed if job.row is None)))
        rows = [job_row(job, next(numbers) if job.row is None else job.row, record.tick, at_us) for job in changed]
        try:
            written = self._write_jobs(connection, rows)
        except self._db.duplicate as error:
            raise StaleWrite(f"{record.status.name}: a job of this poll is stored already, though not held") from error
        if written != len(rows):
            behind = f"{len(rows) - written} of {len(rows)} jobs were written by somebody else since they were read"
            raise StaleWrite(f"{record.status.name}: {behind}")
        return [as_stored(job, row[_ID], row[_VERSION]) for job, row in zip(changed, rows, strict=True)]

    def _write_jobs(self, connection: sa.Connection, rows: Sequence[Row]) -> int:
        """Write jobs, having kept what is over: how they looked, and attempts that another follows; how many were written."""
        if not self._db.is_sqlite:
            self._db.stage(connection, "job", JOB_COLUMNS, rows)
            staged = "JOIN staged_job new ON new.id = job.id"
            connection.exec_driver_sql(f"{_KEEP_LOOK % 'new.changed_at'} {staged} WHERE new.mark <> job.mark")
            connection.exec_driver_sql(f"{_KEEP_ATTEMPT} {staged} WHERE new.attempt <> job.attempt {_ATTEMPT_CONFLICT}")
            return self._db.put_staged(connection, "job", JOB_COLUMNS, _JOB_CONFLICT)
        fresh = [row for row in rows if row[_VERSION] == 1]
        known = [row for row in rows if row[_VERSION] != 1]
        looks = [(row[_AT], row[_ID], row[_MARK]) for row in known]
        self._db.run_many(connection, f"{_KEEP_LOOK % '?'} WHERE id = ? AND mark <> ?", looks)
        later = [(row[_ID], row[_NUMBER]) for row in known if row[_NUMBER] != 1]
        self._db.run_many(connection, f"{_KEEP_ATTEMPT} WHERE id = ? AND attempt <> ? {_ATTEMPT_CONFLICT}", later)
        written = self._db.run_many(connection, _UPDATE, [_UPDATE_ROW(row) for row in known])
        self._db.run_many(connection, _SHOW, [_SHOW_ROW(row) for row in known])
        self._db.run_many(connection, _COUNT, [_COUNT_ROW(row) for row in known])
        self._db.run_many(connection, _REBORN, [_REBORN_ROW(row) for row in known if row[_NUMBER] != 1])
        return written + self._db.put(connection, "job", JOB_COLUMNS, fresh)

    def _new_rows(self, connection: sa.Connection, count: int) -> Iterable[int]:
        """Row numbers for jobs never stored before, handed out beforehand so that they need not be read back."""
        if not count:
            return ()
        if self._db.is_sqlite:  # safe: BEGIN IMMEDIATE holds off every other writer, and jobs are never deleted
            first = (self._db.run(connection, "SELECT MAX(id) FROM job").scalar() or 0) + 1
            return range(first, first + count)
        text = "SELECT nextval(pg_get_serial_sequence('job', 'id')) FROM generate_series(1, ?)"
        return [row[0] for row in self._db.run(connection, text, (count,))]

    # ------------------------------------------------------------ what belongs to jobs

    def _put_transitions(self, connection: sa.Connection, record: PollRecord, rows: Mapping[JobKey, int]) -> None:
        if not record.transitions:
            return
        try:
            moved = [rows[move.job] for move in record.transitions]
        except KeyError as error:
            raise StoreError(
                f"a transition of {error.args[0].ref} came without its job among the changed ones"
            ) from error
        text = "SELECT job, MAX(number) FROM transition WHERE job IN (KEYS) GROUP BY job"
        last = {row[0]: row[1] for row in self._db.by_keys(connection, text, (), sorted(set(moved)))}
        values: list[Row] = []
        for row, move in zip(moved, record.transitions, strict=True):
            number = last[row] = last.get(row, 0) + 1
            outcome = move.after.outcome
            values.append(
                (
                    *(row, number, to_us(move.at), record.tick, str(move.before.phase), str(move.after.phase)),
                    *(move.after.attempt, None if outcome is None else str(outcome)),
                    *(str(move.read.sign), clean(move.read.reason), transition_body(move)),
                )
            )
        self._db.put(connection, "transition", _TRANSITION, values)

    def _put_attempts(self, connection: sa.Connection, record: PollRecord, rows: Mapping[JobKey, int]) -> None:
        """Attempts other than the one that a job stands at: that one is the job itself, until another follows."""
        if not record.attempts:
            return
        standing = {job.key: job for job in record.changed}
        over = []
        for one in record.attempts:
            job = standing.get(one.job)
            if job is None or job.life.attempt != one.number or job.observation != one.observation:
                over.append(one)
        found = rows_of(self._db, connection, {one.job for one in over}, rows)
        values: dict[tuple[int, int], Row] = {}  # by key: one statement may not touch a row twice
        for one in over:
            row, seen = found[one.job], one.observation
            values[row, one.number] = (
                *(row, one.number, str(seen.state), to_us_or_none(seen.started_at), to_us_or_none(seen.ended_at)),
                *(fits(seen.exit_code), fits(seen.signal), attempt_body(seen)),
            )
        self._db.put(connection, "attempt", _ATTEMPT, list(values.values()), _ATTEMPT_CONFLICT)

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
