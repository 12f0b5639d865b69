"""Work to be done once: queued with its reason's transaction, claimed under a lease, finished or tried again.

After a crash a claim runs out and somebody claims the errand anew; who carries it out looks at the world first (house, idea 4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from supervisor.model.errors import StoreError
from supervisor.model.job import JobKey
from supervisor.model.records import Errand, ErrandWanted
from supervisor.store import schema
from supervisor.store.bodies import clean, from_json, to_json
from supervisor.store.engine import Database, Row
from supervisor.store.rows import rows_of
from supervisor.store.times import to_us

_COLUMNS = ("kind", "cluster", "job", "payload", "dedupe", "queued_at", "due_at", "tries")


def put_errands(
    db: Database,
    connection: sa.Connection,
    wanted: Iterable[ErrandWanted],
    now: datetime,
    known: Mapping[JobKey, int],
    due_at: datetime | None = None,
) -> int:
    """Queue errands within a transaction; how many were new."""
    wanted = list(wanted)
    if not wanted:
        return 0
    rows = rows_of(db, connection, {one.job for one in wanted if one.job}, known)
    queued, due = to_us(now), to_us(due_at or now)
    values: list[Row] = [
        (
            *(one.kind, one.job.cluster if one.job else None, rows[one.job] if one.job else None),
            *(to_json(one.payload), clean(one.dedupe), queued, due, 0),
        )
        for one in wanted
    ]
    return db.put(connection, "errand", _COLUMNS, values, "ON CONFLICT (dedupe) DO NOTHING")


class Errands:
    """Queue, claim, finish, try again."""

    _db: Database

    def queue_errand(self, wanted: ErrandWanted, now: datetime, *, due_at: datetime | None = None) -> bool:
        """False where the same (``dedupe``) was ever wanted before."""
        with self._db.write(f"queueing a {wanted.kind}") as connection:
            return put_errands(self._db, connection, [wanted], now, {}, due_at) == 1

    def claim_errand(
        self,
        kinds: Sequence[str],
        owner: str,
        now: datetime,
        lease: timedelta,
        *,
        clusters: Sequence[str] | None = None,
    ) -> Errand | None:
        """Take the errand that is due longest; nobody else gets it before ``now + lease``. None where none is due.

        ``clusters``, where given: only errands of jobs there.
        """
        table = schema.errand
        due = (
            sa.select(table)
            .where(table.c.finished_at.is_(None), table.c.due_at <= now, table.c.kind.in_(list(kinds)))
            .order_by(table.c.due_at, table.c.id)
            .limit(1)
        )
        if clusters is not None:
            due = due.where(table.c.cluster.in_(list(clusters)))
        with self._db.read("looking for errands") as connection:
            if connection.execute(due).first() is None:
                return None  # the usual case takes no lock
        with self._db.write("claiming an errand") as connection:
            found = connection.execute(due.with_for_update(skip_locked=True)).first()
            if found is None:
                return None
            claim = (
                sa.update(table)
                .where(table.c.id == found.id, table.c.due_at == found.due_at, table.c.finished_at.is_(None))
                .values(owner=owner, due_at=now + lease, tries=table.c.tries + 1)
            )
            if connection.execute(claim).rowcount != 1:
                return None
        return Errand(
            id=found.id,
            kind=found.kind,
            cluster=found.cluster,
            job_row=found.job,
            payload=from_json(found.payload),
            tries=found.tries + 1,
        )

    def keep_errand(self, errand: int, owner: str, now: datetime, lease: timedelta) -> bool:
        """Make a claim last longer. False where it was lost."""
        return self._settle(errand, owner, {"due_at": now + lease}, "keeping an errand")

    def finish_errand(self, errand: int, owner: str, now: datetime) -> bool:
        """It is done, for ever. False where the claim was lost to another owner, who will look at the world anew."""
        return self._settle(errand, owner, {"finished_at": now, "error": None}, "finishing an errand")

    def fail_errand(self, errand: int, owner: str, now: datetime, *, error: str, retry_at: datetime | None) -> bool:
        """It failed: due again at ``retry_at``, or given up where that is None. False where the claim was lost."""
        values: dict[str, object] = {"error": clean(error), "owner": None}
        values |= {"finished_at": now} if retry_at is None else {"due_at": retry_at}
        return self._settle(errand, owner, values, "putting an errand back")

    def postpone_errand(self, errand: int, owner: str, due_at: datetime) -> bool:
        """It goes on later, and that is no failure. False where the claim was lost."""
        return self._settle(errand, owner, {"owner": None, "due_at": due_at}, "putting an errand off")

    def _settle(self, errand: int, owner: str, values: dict[str, object], doing: str) -> bool:
        table = schema.errand
        mine = (table.c.id == errand, table.c.owner == owner, table.c.finished_at.is_(None))
        with self._db.write(doing) as connection:
            return connection.execute(sa.update(table).where(*mine).values(**values)).rowcount == 1

    def errands_open(self, kind: str | None = None) -> list[Errand]:
        """Errands not finished, oldest first: for people and tests."""
        table = schema.errand
        query = sa.select(table).where(table.c.finished_at.is_(None)).order_by(table.c.id)
        with self._db.read("reading the errands") as connection:
            return [
                Errand(
                    id=row.id,
                    kind=row.kind,
                    cluster=row.cluster,
                    job_row=row.job,
                    payload=from_json(row.payload),
                    tries=row.tries,
                )
                for row in connection.execute(query)
                if kind in (None, row.kind)
            ]

    def next_errand_at(self, kinds: Sequence[str]) -> datetime | None:
        """When the next errand of these kinds is due, claimed ones counted by the end of their lease."""
        table = schema.errand
        query = sa.select(sa.func.min(table.c.due_at, type_=table.c.due_at.type)).where(
            table.c.finished_at.is_(None), table.c.kind.in_(list(kinds))
        )
        with self._db.read("looking for errands") as connection:
            moment = connection.execute(query).scalar()
        if moment is not None and not isinstance(moment, datetime):
            raise StoreError(f"the errands' next time reads as {moment!r}")
        return moment
