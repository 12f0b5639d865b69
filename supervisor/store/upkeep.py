"""Keeping the database well: its schema, backups, thinning with age, and a look at its health."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from supervisor.model.errors import SchemaMismatch, StoreError
from supervisor.store import schema
from supervisor.store.engine import Database, Row
from supervisor.store.entries import Keep, Pruned
from supervisor.store.faults import BUSY_S, StoreBroken, fault
from supervisor.store.revisions import HEAD, REVISIONS, VERSION_TABLE, judge
from supervisor.store.times import DAY_US, to_us

_HOUR_US = 3_600_000_000
_UPGRADE_LOCK = 0x666C656574  # any number, the same for every daemon


class Upkeep:
    """Schema, backup, prune, check."""

    _db: Database

    # ------------------------------------------------------------ schema

    def revision(self) -> str | None:
        """Revision of the schema; None where the database has none yet."""
        with self._db.read("reading the schema's revision") as connection:
            return self._revision(connection)

    def _revision(self, connection: sa.Connection) -> str | None:
        if not sa.inspect(connection).has_table(VERSION_TABLE):
            return None
        found = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()
        return None if found is None else str(found)

    def check_schema(self) -> None:
        """Raises SchemaMismatch, which says what to do, unless the schema is exactly the one this program needs."""
        path = self._db.address.path
        if path is not None and not Path(path).exists():
            judge(None, self._db.address.shown)
        judge(self.revision(), self._db.address.shown)

    def upgrade(self) -> list[str]:
        """Bring the schema to this program's, all or nothing; the revisions that were applied.

        Makes the file where there is none. Raises SchemaMismatch on a database newer than the program. Of several
        daemons that do this at once, one does and the others find it done.
        """
        self._make_file()
        with self._db.write("upgrading the schema") as connection:
            if not self._db.is_sqlite:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})")
            found = self._revision(connection)
            if found == HEAD:
                return []
            if found is not None and found not in REVISIONS:
                judge(found, self._db.address.shown)
            if found is None:
                self._must_be_empty(connection)
            _alembic_upgrade(connection)
            judge(self._revision(connection), self._db.address.shown)
        return list(REVISIONS[REVISIONS.index(found) + 1 :] if found else REVISIONS)

    def _must_be_empty(self, connection: sa.Connection) -> None:
        strangers = sorted(set(sa.inspect(connection).get_table_names()) & set(schema.metadata.tables))
        if strangers:
            raise SchemaMismatch(
                f"database {self._db.address.shown} holds tables of another program ({', '.join(strangers[:3])}): "
                "point database_url at an empty database"
            )

    def _make_file(self) -> None:
        path = self._db.address.path
        if path is None or Path(path).exists():
            return
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o640))  # not for the eyes of other users
        except OSError as error:
            raise fault(error, self._db.address.shown, "making the database file") from error

    # ------------------------------------------------------------ backup

    def backup(self, target: str | Path) -> int:
        """A consistent copy of an SQLite store while the daemon goes on; bytes written. The target must not exist."""
        if self._db.address.path is None:
            raise StoreError(
                f"database {self._db.address.shown} is a PostgreSQL database: back it up with pg_dump (pg_dump --format=custom)"
            )
        path = Path(target).absolute()
        if path.exists():
            raise StoreError(f"backup {path} exists already: name a new file")
        part = path.with_name(path.name + ".part")
        try:
            source = sqlite3.connect(self._db.address.sqlite_uri("ro"), uri=True, timeout=BUSY_S)
            with closing(source), closing(sqlite3.connect(part)) as copy:
                source.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")  # one file, nothing beside it
            with part.open("rb") as done:
                os.fsync(done.fileno())
            part.rename(path)
        except (sqlite3.Error, OSError) as error:
            part.unlink(missing_ok=True)
            raise fault(error, self._db.address.shown, f"backing up to {path}") from error
        return path.stat().st_size

    # ------------------------------------------------------------ health

    def check(self) -> str:
        """One line on what was found in order. Raises StoreBroken with the first fault, SchemaMismatch on another schema."""
        self.check_schema()
        with self._db.read("checking the database") as connection:
            if self._db.is_sqlite:
                found = [row[0] for row in connection.exec_driver_sql("PRAGMA integrity_check(5)")]
                if found != ["ok"]:
                    raise StoreBroken(
                        f"database {self._db.address.shown} is damaged: {found[0]}; stop the daemon, keep a copy, restore a backup"
                    )
                orphans = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
                if orphans:
                    raise StoreBroken(
                        f"database {self._db.address.shown}: {len(orphans)} rows belong to jobs that are not there "
                        f"(first in table {orphans[0][0]})"
                    )
            counts = {
                name: connection.exec_driver_sql(f"SELECT COUNT(*) FROM {name}").scalar_one()
                for name in ("job", "transition", "change", "measurement")
            }
        held = ", ".join(f"{count} {name}s" for name, count in counts.items())
        return f"schema {HEAD}, sound; {held}"

    # ------------------------------------------------------------ prune

    def prune(self, now: datetime, keep: Keep = Keep()) -> Pruned:  # noqa: B008  frozen
        """Let go of what has aged (house, idea 6); never of transitions, attempts, errands, holds, alerts,
        diagnoses, verdicts, proposals or decisions."""

        def before(age: timedelta) -> int:
            return to_us(now - age)

        whole, hourly = before(keep.measurements_whole), before(keep.measurements_hourly)
        thin = (
            "DELETE FROM measurement WHERE at >= ? AND at < ? AND EXISTS (SELECT 1 FROM measurement later "
            "WHERE later.job = measurement.job AND later.metric = measurement.metric AND later.at > measurement.at "
            "AND later.at < (measurement.at / ? + 1) * ?)"
        )
        gone: dict[str, list[tuple[str, Row]]] = {
            "measurements": [
                (thin, (hourly, whole, _HOUR_US, _HOUR_US)),
                (thin, (-(2**62), hourly, DAY_US, DAY_US)),
            ],
            "polls": [("DELETE FROM poll WHERE at < ?", (before(keep.polls),))],
            "changes": [("DELETE FROM change WHERE until < ?", (before(keep.changes),))],
            "tick_reports": [
                (
                    "UPDATE tick SET report = NULL, document = NULL WHERE document IS NOT NULL AND (started_at < ? OR "
                    "(started_at < ? AND EXISTS (SELECT 1 FROM tick later WHERE later.started_at > tick.started_at "
                    "AND later.document IS NOT NULL AND later.started_at < (tick.started_at / ? + 1) * ?)))",
                    (before(keep.ticks_daily), before(keep.ticks_whole), DAY_US, DAY_US),
                )
            ],
            "heartbeats": [("DELETE FROM heartbeat WHERE beat_at < ?", (before(keep.heartbeats),))],
            "requests": [("DELETE FROM request WHERE answered_at < ?", (before(keep.requests),))],
        }
        counted: dict[str, int] = {}
        for what, statements in gone.items():  # a transaction each: the daemon's own writes get in between
            with self._db.write(f"pruning {what.replace('_', ' ')}") as connection:
                counted[what] = sum(self._db.run(connection, text, row).rowcount for text, row in statements)
        if self._db.is_sqlite:
            with self._db.read("pruning") as connection:
                connection.exec_driver_sql("PRAGMA optimize")
        return Pruned(**counted)


def _alembic_upgrade(connection: sa.Connection) -> None:
    from alembic import command  # dear to import, and rarely needed
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "supervisor.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
