"""The light way to read: what ``supervisorctl status`` and ``show`` need, by the database's driver alone.

Nothing heavy is imported, not even ``typing``: the whole reading costs less than one such import. A test holds it to say
the same as the full store.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

from supervisor.model.errors import NotBegun
from supervisor.store.address import Address
from supervisor.store.faults import StoreBroken, fault
from supervisor.store.light_rows import (
    AlertRow,
    AttemptRow,
    ClusterRow,
    CountRow,
    HeartbeatRow,
    HoldRow,
    JobRow,
    StepRow,
    Summary,
    TickRow,
    VerdictRow,
    WaitingRow,
)
from supervisor.store.revisions import VERSION_TABLE, judge
from supervisor.store.search import ATTEMPTS, NEWEST, searches
from supervisor.store.times import EPOCH, to_us

__all__ = [
    "AlertRow",
    "AttemptRow",
    "ClusterRow",
    "CountRow",
    "HeartbeatRow",
    "HoldRow",
    "JobRow",
    "Light",
    "StepRow",
    "Summary",
    "TickRow",
    "VerdictRow",
    "WaitingRow",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WAIT_S = 2.0
"""How long to wait for another process's lock: a person is waiting, too."""
_READONLY, _CANTOPEN = 8, 14  # SQLite's result codes
_COLUMN = {"row": "id", "id": "job_id", "user": "user_name", "group": "group_id"}
_JOB = ", ".join(_COLUMN.get(name, name) for name in JobRow._fields)
_VERDICT = ", ".join(f"v.{name}" for name in VerdictRow._fields)


class Light:
    """One consistent picture of the store, taken at the first question; open it anew for a newer one.

    Reads beside a writing daemon, and what a killed one left behind. Every failure is a StoreError with one clear line.
    """

    def __init__(self, address: Address, connection: Any) -> None:
        self._shown, self._is_sqlite, self._connection = address.shown, address.path is not None, connection

    @classmethod
    def open(cls, url: str, *, busy_s: float = WAIT_S) -> Light:
        """Raises StoreError where there is no database, SchemaMismatch where its schema isn't this program's."""
        address = Address(url)
        light = cls(address, _sqlite(address, busy_s) if address.path is not None else _postgresql(address))
        try:
            light._check_schema()
        except BaseException:
            light.close()
            raise
        return light

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Light:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_schema(self) -> None:
        there = "sqlite_master WHERE name = ?" if self._is_sqlite else "pg_tables WHERE tablename = ?"
        if not self._rows(f"SELECT 1 FROM {there}", (VERSION_TABLE,)):
            judge(None, self._shown)
        found = self._rows(f"SELECT version_num FROM {VERSION_TABLE}")
        judge(found[0][0] if found else None, self._shown)

    # ------------------------------------------------------------ questions

    def summary(self) -> Summary:
        """Signs of life, the last tick, and each cluster by name."""
        ticks = f"SELECT {', '.join(TickRow._fields)} FROM tick WHERE "
        done = self._read(TickRow, ticks + "finished_at IS NOT NULL ORDER BY number DESC LIMIT 1")
        after = done[0].number if done else 0
        running = self._read(
            TickRow, ticks + "finished_at IS NULL AND number > ? ORDER BY number DESC LIMIT 1", (after,)
        )
        return Summary(
            self._read(HeartbeatRow, f"SELECT {', '.join(HeartbeatRow._fields)} FROM heartbeat ORDER BY beat_at DESC"),
            done[0] if done else None,
            running[0] if running else None,
            self._read(ClusterRow, f"SELECT {', '.join(ClusterRow._fields)} FROM cluster ORDER BY name"),
        )

    def counts(self) -> list[CountRow]:
        """Jobs by bucket, phase and worst flag, from an index alone."""
        return self._read(CountRow, "SELECT bucket, phase, worst, COUNT(*) FROM job GROUP BY bucket, phase, worst")

    def jobs(
        self,
        *,
        buckets: Sequence[str] = (),
        clusters: Sequence[str] = (),
        phases: Sequence[str] = (),
        rows: Sequence[int] = (),
        worst: Sequence[str] = (),
        ended_after: datetime | None = None,
        every: bool = False,
        limit: int | None = None,
    ) -> list[JobRow]:
        """Living jobs by bucket, cluster and name, then ended ones, the newest first.

        Ended ones are those first held as ended after ``ended_after``, all of them with ``every``, else none. ``rows``
        names jobs by row number (see :meth:`find`), living or ended; ``worst`` severities of the worst flag. ``limit`` cuts the
        whole list.
        """
        narrow: str = ""
        values: list[object] = []
        for name, wanted in (
            ("bucket", buckets),
            ("cluster", clusters),
            ("phase", phases),
            ("id", rows),
            ("worst", worst),
        ):
            if wanted:
                narrow += f" AND {name} IN ({', '.join('?' * len(wanted))})"
                values.extend(wanted)
        text = f"SELECT {_JOB} FROM job WHERE group_size > 0 AND closed_at "
        cut = "" if limit is None else f" LIMIT {int(limit)}"
        found = self._read(JobRow, f"{text} IS NULL{narrow} ORDER BY bucket, cluster, name, id{cut}", tuple(values))
        after = -(2**62) if every or rows else None if ended_after is None else to_us(ended_after)
        if after is None or (limit is not None and len(found) >= limit):
            return found
        cut = "" if limit is None else f" LIMIT {int(limit) - len(found)}"
        order = "ORDER BY closed_at DESC, bucket, cluster, name, id"
        return found + self._read(JobRow, f"{text} > ?{narrow} {order}{cut}", (after, *values))

    def how_many(self, ended_after: datetime) -> int:
        """Living jobs and those first held as ended after then, from an index alone."""
        recent = (
            "SELECT (SELECT COUNT(*) FROM job WHERE closed_at IS NULL) + (SELECT COUNT(*) FROM job WHERE closed_at > ?)"
        )
        return int(self._rows(recent, (to_us(ended_after),))[0][0])

    def find(self, text: str) -> list[JobRow]:
        """Jobs that a JOB argument may mean: by ``cluster/id``, else id, else part of the name; living and newest first."""
        for where, row in searches(text):
            found = self._read(JobRow, f"SELECT {_JOB} FROM job WHERE {where} {NEWEST}", row)
            if found:
                return found
        return []

    def body(self, row: int) -> str:
        """All that is held of a job, JSON."""
        found = self._rows("SELECT body FROM job WHERE id = ?", (row,))
        if not found:
            raise StoreBroken(f"no job has row number {row} in database {self._shown}")
        return str(found[0][0])

    def transitions(self, row: int) -> list[StepRow]:
        """Steps of a job's life, first one first."""
        columns = ", ".join(StepRow._fields)
        return self._read(StepRow, f"SELECT {columns} FROM transition WHERE job = ? ORDER BY number", (row,))

    def attempts(self, row: int) -> list[AttemptRow]:
        """Attempts of a job, first one first."""
        columns = ", ".join(AttemptRow._fields)
        return self._read(AttemptRow, f"SELECT {columns} FROM ({ATTEMPTS}) AS every ORDER BY number", (row, row))

    def diagnoses(self, row: int) -> list[str]:
        """Diagnoses of a job's attempts, first attempt first; the contract's documents, JSON."""
        return [
            str(one[0]) for one in self._rows("SELECT document FROM diagnosis WHERE job = ? ORDER BY attempt", (row,))
        ]

    def verdicts(self, rows: Sequence[int] = ()) -> list[VerdictRow]:
        """The newest verdict of each living job that has one, by job; of the jobs ``rows`` alone where they are named."""
        text = f"SELECT {_VERDICT} FROM job j JOIN verdict v ON v.id = j.verdict WHERE j.verdict IS NOT NULL AND "
        which = f"j.id IN ({', '.join('?' * len(rows))})" if rows else "j.closed_at IS NULL"
        found = self._read(VerdictRow, f"{text}{which} ORDER BY j.id", tuple(rows))
        return [one._replace(passed=bool(one.passed), wedged=bool(one.wedged)) for one in found]

    def verdict_bodies(self, row: int) -> list[tuple[int, str]]:
        """Numbers of all verdicts of a job with the whole of each, JSON, newest first."""
        found = self._rows("SELECT id, body FROM verdict WHERE job = ? ORDER BY id DESC", (row,))
        return [(int(one[0]), str(one[1])) for one in found]

    def waiting(self) -> list[WaitingRow]:
        """What waits for a person, or was approved and is not carried out yet, oldest first.

        A kill that was not confirmed waits for a person's own look, for as long as that attempt lives and nothing newer was
        proposed of it. ``expires_at`` of an approved one is that of its approval.
        """
        text = (
            "SELECT p.id, 'kill' AS kind, j.cluster || '/' || j.job_id AS job, j.name, p.verdict, p.cause, p.confidence, "
            "CASE WHEN d.stage = 'unconfirmed' THEN 'unconfirmed' ELSE p.state END AS state, "
            "COALESCE(d.expires_at, p.expires_at) AS expires_at FROM proposal p JOIN job j ON j.id = p.job "
            "LEFT JOIN decision d ON d.proposal = p.id WHERE p.state IN ('open', 'approved') OR (d.stage = 'unconfirmed' "
            "AND j.closed_at IS NULL AND j.attempt = d.attempt AND j.incarnation = d.incarnation "
            "AND NOT EXISTS (SELECT 1 FROM proposal q WHERE q.job = p.job AND q.id > p.id)) ORDER BY p.id"
        )
        return self._read(WaitingRow, text)

    def holds(self) -> list[HoldRow]:
        """Holds that stand, oldest first."""
        columns = "id, scope, target, reason, held_by, since"
        return self._read(HoldRow, f"SELECT {columns} FROM hold WHERE lifted_at IS NULL ORDER BY id")

    def alerts(self) -> list[AlertRow]:
        """Alerts that stand, oldest first."""
        columns = ", ".join(AlertRow._fields)
        return self._read(AlertRow, f"SELECT {columns} FROM alert WHERE closed_at IS NULL ORDER BY id")

    # ------------------------------------------------------------ the driver

    def _read(self, kind: Any, text: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Rows as ``kind``, its times made aware again."""
        names = kind._fields
        times = [at for at, name in enumerate(names) if name.endswith("_at") or name in ("since", "at")]
        make, answer = kind._make, []
        for found in self._rows(text, values):
            row = list(found)
            for at in times:
                if row[at] is not None:
                    row[at] = EPOCH + timedelta(0, 0, row[at])
            answer.append(make(row))
        return answer

    def _rows(self, text: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with _Said(self._shown):
            cursor = self._connection.execute(text if self._is_sqlite else text.replace("?", "%s"), values)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


class _Said:
    """Driver errors leave as StoreErrors."""

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is None:
            return
        if isinstance(error, sqlite3.Error) or type(error).__module__.startswith("psycopg"):
            raise fault(error, self._shown, "reading it") from error


def _sqlite(address: Address, busy_s: float) -> Any:
    path = address.path or ""
    if not os.path.exists(path):  # noqa: PTH110  pathlib is dear to import
        raise NotBegun(f"database {path} isn't there: start supervisord, or correct database_url")
    try:
        return _connected(address, "ro", busy_s)
    except sqlite3.Error as error:
        # a folder closed to us can't take the log's index; without a log the file alone is the whole truth
        log = path + "-wal"
        no_log = not os.path.exists(log) or os.path.getsize(log) == 0  # noqa: PTH110, PTH202
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in (_READONLY, _CANTOPEN) or not no_log:
            raise fault(error, address.shown, "opening it to read") from error
    try:
        return _connected(address, "immutable", busy_s)
    except sqlite3.Error as error:
        raise fault(error, address.shown, "opening it to read") from error


def _connected(address: Address, mode: str, busy_s: float) -> Any:
    connection = sqlite3.connect(address.sqlite_uri(mode), uri=True, timeout=busy_s, isolation_level=None)
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _postgresql(address: Address) -> Any:
    import psycopg

    try:
        connection = psycopg.connect(address.dsn, connect_timeout=5, application_name="supervisorctl", autocommit=True)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    except psycopg.Error as error:
        raise fault(error, address.shown, "opening it to read") from error
    return connection
