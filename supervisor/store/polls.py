"""Reading back what polls wrote: jobs as they are held, their steps, attempts and history, and the clusters."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from supervisor.model.errors import StoreError
from supervisor.model.facts import Held
from supervisor.model.job import JobKey, Observation
from supervisor.model.polling import Headroom
from supervisor.model.records import ClusterState, ClusterStatus
from supervisor.store import schema
from supervisor.store.bodies import attempt_of, held_of, transition_of
from supervisor.store.engine import Database, Row
from supervisor.store.entries import Look, Poll, Step
from supervisor.store.recording import LOOK
from supervisor.store.rows import known_jobs
from supervisor.store.search import ATTEMPTS
from supervisor.store.times import from_us, to_us


class Polls:
    """What is held, and how it came to be so."""

    _db: Database

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
            return known_jobs(self._db, connection, cluster, list(keys))

    def job(self, row: int) -> Held:
        """One job by its row number."""
        with self._db.read(f"reading job row {row}") as connection:
            found = self._db.run(connection, "SELECT id, version, body FROM job WHERE id = ?", (row,)).first()
        if found is None:
            raise StoreError(f"no job has row number {row}")
        return held_of(*found)

    def attempts(self, row: int) -> list[tuple[int, Observation]]:
        """Attempts of a job with what was last seen of each, first one first; the last is the one it stands at."""
        with self._db.read(f"reading the attempts of job row {row}") as connection:
            found = self._db.run(
                connection, f"SELECT number, body FROM ({ATTEMPTS}) AS every ORDER BY number", (row, row)
            )
            return [(number, attempt_of(body)) for number, body in found]

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
        past = f"SELECT since, until, tick, {LOOK} FROM change WHERE job = ? ORDER BY until"
        now = f"SELECT changed_at, NULL, changed_tick, {LOOK} FROM job WHERE id = ?"
        with self._db.read(f"reading the history of job row {row}") as connection:
            found = [*self._db.run(connection, past, (row,)), *self._db.run(connection, now, (row,))]
        names = ("tick", *(name.strip() for name in LOOK.split(",")))
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
