"""What people ask for and are told: requests to the daemon, holds, alerts. ``supervisorctl`` writes here; the daemon answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from supervisor.model.errors import StoreError, UsageError
from supervisor.model.records import Hold
from supervisor.store import schema
from supervisor.store.bodies import clean, from_json, to_json
from supervisor.store.engine import Database
from supervisor.store.entries import Alert, Request

SCOPES = ("all", "cluster", "job")


class Wishes:
    """Requests, holds and alerts."""

    _db: Database

    # ------------------------------------------------------------ requests

    def ask_tick(self, by: str, now: datetime) -> int:
        """Ask the daemon for a tick now; number of the request. One that is still open is asked for once only."""
        return self.ask("tick", by, now)

    def ask(self, kind: str, by: str, now: datetime, payload: Mapping[str, object] | None = None) -> int:
        """Ask the daemon for something; number of the request, or of the same one that is still open."""
        table = schema.request
        wanted = to_json(payload or {})
        same = sa.select(table.c.id).where(
            table.c.answered_at.is_(None), table.c.kind == kind, table.c.payload == wanted
        )
        insert = sa.insert(table).values(kind=kind, asked_by=clean(by), asked_at=now, payload=wanted)
        with self._db.write(f"asking for a {kind}") as connection:
            standing = connection.execute(same).scalar()
            if standing is not None:
                return int(standing)
            key = connection.execute(insert).inserted_primary_key
        assert key is not None
        return int(key[0])

    def open_requests(self, kind: str | None = None) -> list[Request]:
        """Requests without an answer, oldest first."""
        table = schema.request
        query = sa.select(table).where(table.c.answered_at.is_(None)).order_by(table.c.id)
        return self._requests(query if kind is None else query.where(table.c.kind == kind))

    def answer_request(self, number: int, now: datetime, result: str) -> bool:
        """Answer once. False where it has its answer already."""
        table = schema.request
        answer = sa.update(table).where(table.c.id == number, table.c.answered_at.is_(None))
        with self._db.write(f"answering request {number}") as connection:
            return connection.execute(answer.values(answered_at=now, result=clean(result))).rowcount == 1

    def request(self, number: int) -> Request:
        found = self._requests(sa.select(schema.request).where(schema.request.c.id == number))
        if not found:
            raise StoreError(f"there is no request {number}")
        return found[0]

    def _requests(self, query: sa.Select[Any]) -> list[Request]:
        with self._db.read("reading requests") as connection:
            return [Request(**{**row._mapping, "payload": from_json(row.payload)}) for row in connection.execute(query)]

    # ------------------------------------------------------------ holds

    def add_hold(self, scope: str, target: str, reason: str, by: str, now: datetime) -> Hold:
        """Carry out no action there (KILL-5). The same hold again is the one that stands."""
        if scope not in SCOPES:
            raise UsageError(f"a hold is for {', '.join(SCOPES)}, not for {scope!r}")
        if bool(target) == (scope == "all"):
            raise UsageError(f"a hold of scope {scope} {'names no target' if target else 'needs a target'}")
        table = schema.hold
        standing = sa.select(table).where(
            table.c.lifted_at.is_(None), table.c.scope == scope, table.c.target == clean(target)
        )
        insert = sa.insert(table).values(
            scope=scope, target=clean(target), reason=clean(reason), held_by=clean(by), since=now
        )
        with self._db.write("adding a hold") as connection:
            if connection.execute(standing).first() is None:
                connection.execute(insert)
            return _hold(connection.execute(standing).one())

    def lift_holds(self, scope: str, target: str, by: str, now: datetime) -> int:
        """Let actions go on there; how many holds were lifted."""
        table = schema.hold
        standing = (table.c.lifted_at.is_(None), table.c.scope == scope, table.c.target == clean(target))
        return self._lift(sa.and_(*standing), by, now)

    def lift_hold(self, number: int, by: str, now: datetime) -> bool:
        """False where it does not stand (any more)."""
        return self._lift(sa.and_(schema.hold.c.lifted_at.is_(None), schema.hold.c.id == number), by, now) == 1

    def _lift(self, which: sa.ColumnElement[bool], by: str, now: datetime) -> int:
        lift = sa.update(schema.hold).where(which).values(lifted_at=now, lifted_by=clean(by))
        with self._db.write("lifting a hold") as connection:
            return connection.execute(lift).rowcount

    def holds(self) -> list[Hold]:
        """Holds that stand, oldest first."""
        table = schema.hold
        query = sa.select(table).where(table.c.lifted_at.is_(None)).order_by(table.c.id)
        with self._db.read("reading the holds") as connection:
            return [_hold(row) for row in connection.execute(query)]

    # ------------------------------------------------------------ alerts

    def open_alert(self, subject: str, key: str, severity: str, text: str, now: datetime) -> Alert:
        """The one standing alert of this subject and key, opened now or before, with its newest text (SAY-5)."""
        table = schema.alert
        subject, key = clean(subject), clean(key)
        values = {"severity": severity, "text": clean(text)}
        insert = self._db.insert(table).values(subject=subject, key=key, opened_at=now, times_said=0, **values)
        put = insert.on_conflict_do_update(
            index_elements=[table.c.subject, table.c.key], index_where=sa.text("closed_at IS NULL"), set_=values
        )
        standing = sa.select(table).where(table.c.subject == subject, table.c.key == key, table.c.closed_at.is_(None))
        with self._db.write("opening an alert") as connection:
            connection.execute(put)
            return Alert(**connection.execute(standing).one()._mapping)

    def alert_said(self, number: int, now: datetime) -> None:
        """People were told its text as it stands."""
        table = schema.alert
        said = {"last_said_at": now, "last_said_text": table.c.text, "times_said": table.c.times_said + 1}
        with self._db.write("noting that an alert was said") as connection:
            connection.execute(sa.update(table).where(table.c.id == number).values(**said))

    def close_alert(self, number: int, now: datetime) -> bool:
        """It has cleared. False where it was closed before."""
        table = schema.alert
        close = sa.update(table).where(table.c.id == number, table.c.closed_at.is_(None)).values(closed_at=now)
        with self._db.write("closing an alert") as connection:
            return connection.execute(close).rowcount == 1

    def alerts(self, *, closed_after: datetime | None = None) -> list[Alert]:
        """Alerts that stand, oldest first; with ``closed_after``, also those closed since."""
        table = schema.alert
        which: sa.ColumnElement[bool] = table.c.closed_at.is_(None)
        if closed_after is not None:
            which = sa.or_(which, table.c.closed_at > closed_after)
        query = sa.select(table).where(which).order_by(table.c.id)
        with self._db.read("reading the alerts") as connection:
            return [Alert(**row._mapping) for row in connection.execute(query)]


def _hold(row: sa.Row[Any]) -> Hold:
    return Hold(id=row.id, scope=row.scope, target=row.target, reason=row.reason, by=row.held_by, since=row.since)
