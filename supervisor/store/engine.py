"""One database, opened: connections, short transactions, and healing. Both engines take the same SQL from the other files.

A statement is written once, with ``?`` for each parameter. Many rows go by one path: ``executemany`` on SQLite, COPY into
a temporary table and one INSERT … SELECT on PostgreSQL.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from supervisor.model.errors import StoreError
from supervisor.store.address import Address
from supervisor.store.faults import BUSY_S, StoreAway, StoreLocked, fault
from supervisor.store.place import mounts, must_be_local

Row = tuple[object, ...]

STAGE_FROM = 24
"""Rows from which COPY is quicker than single statements on PostgreSQL."""
_POOL = {"pool_size": 8, "max_overflow": 24}
_PAUSE_S = 0.02
KEYS_AT_ONCE = 500
"""Keys in one IN list: SQLite allows 999 parameters in its older builds."""


class Database:
    """Connections to one database. Every failure leaves as a StoreError; a broken connection is not kept."""

    def __init__(self, address: Address, *, read_only: bool = False, busy_s: float = BUSY_S) -> None:
        self.address, self.read_only, self.busy_s = address, read_only, busy_s
        self.is_sqlite = address.path is not None
        self._one_writer = threading.Lock()
        self.duplicate: tuple[type[Exception], ...] = (sa.exc.IntegrityError, sqlite3.IntegrityError)
        """What is raised where a key is taken already."""
        self._faults: tuple[type[Exception], ...] = (
            *(sa.exc.SQLAlchemyError, sqlite3.Error, OSError, OverflowError, UnicodeError),
        )
        if address.path is not None:
            if not read_only:
                must_be_local(Path(address.path), mounts())
            self.engine = self._sqlite_engine()
        else:
            import psycopg

            self._faults = (*self._faults, psycopg.Error)
            self.duplicate = (*self.duplicate, psycopg.IntegrityError)
            self.engine = self._postgresql_engine()

    # ------------------------------------------------------------ transactions

    @contextmanager
    def write(self, doing: str) -> Iterator[sa.Connection]:
        """One transaction that is written whole or not at all. ``doing`` completes the sentence of a failure."""
        if self.read_only:
            raise StoreError(f"database {self.address.shown} was opened to be read only, while {doing}")
        if self.is_sqlite:  # it has one writer: threads of this process queue here instead of sleeping on its lock
            if not self._one_writer.acquire(timeout=4 * self.busy_s):
                raise StoreLocked(f"database {self.address.shown} is held by a slow writer, while {doing}")
            try:
                with self._transaction(doing, writes=True) as connection:
                    yield connection
            finally:
                self._one_writer.release()
        else:
            with self._transaction(doing, writes=True) as connection:
                yield connection

    @contextmanager
    def read(self, doing: str) -> Iterator[sa.Connection]:
        """One consistent picture, not written to."""
        with self._transaction(doing, writes=False) as connection:
            yield connection

    @contextmanager
    def _transaction(self, doing: str, *, writes: bool) -> Iterator[sa.Connection]:
        try:
            with self.engine.connect() as connection:
                if writes:
                    connection = connection.execution_options(writes=True)  # noqa: PLW2901
                with connection.begin():
                    yield connection
        except StoreError:
            raise
        except self._faults as error:
            found = fault(error, self.address.shown, doing)
            if not isinstance(found, StoreLocked):
                self.engine.dispose()  # the next call opens afresh: that is how it heals
            raise found from error

    def close(self) -> None:
        self.engine.dispose()

    # ------------------------------------------------------------ statements

    def sql(self, text: str) -> str:
        """A statement in the driver's own spelling of parameters."""
        return text if self.is_sqlite else text.replace("?", "%s")

    def run(self, connection: sa.Connection, text: str, row: Row = ()) -> sa.CursorResult[*tuple[Any, ...]]:
        return connection.exec_driver_sql(self.sql(text), row)

    def run_many(self, connection: sa.Connection, text: str, rows: Sequence[Row]) -> int:
        """Rows touched by one statement run for each of ``rows``.

        By the driver's own cursor: ten statements a poll, and SQLAlchemy's bookkeeping would cost as much as their work.
        """
        if not rows:
            return 0
        driver: Any = connection.connection.driver_connection
        cursor = driver.cursor()
        try:
            cursor.executemany(self.sql(text), rows)
            return int(cursor.rowcount)
        finally:
            cursor.close()

    def insert(self, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
        """An INSERT that knows ON CONFLICT."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    def put(
        self, connection: sa.Connection, table: str, columns: Sequence[str], rows: Sequence[Row], conflict: str = ""
    ) -> int:
        """Insert many rows the quick way; rows touched. ``conflict`` is an ON CONFLICT clause."""
        if not rows:
            return 0
        names = ", ".join(columns)
        if not self.is_sqlite and len(rows) >= STAGE_FROM:
            self.stage(connection, table, columns, rows)
            return self.put_staged(connection, table, columns, conflict)
        marks = ", ".join("?" * len(columns))
        return self.run_many(connection, f"INSERT INTO {table} ({names}) VALUES ({marks}) {conflict}", rows)

    def stage(self, connection: sa.Connection, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """COPY rows into the temporary table ``staged_<table>``, which this transaction's end empties (PostgreSQL)."""
        names = ", ".join(columns)
        connection.exec_driver_sql(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS staged_{table} ON COMMIT DELETE ROWS AS SELECT {names} FROM {table} WITH NO DATA"
        )
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(f"COPY staged_{table} ({names}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def put_staged(self, connection: sa.Connection, table: str, columns: Sequence[str], conflict: str = "") -> int:
        """Insert what was staged; rows touched (PostgreSQL)."""
        names = ", ".join(columns)
        text = f"INSERT INTO {table} ({names}) SELECT {names} FROM staged_{table} {conflict}"
        return connection.exec_driver_sql(text).rowcount

    def by_keys(self, connection: sa.Connection, text: str, first: Row, keys: Sequence[object]) -> Iterator[Any]:
        """Rows of a statement whose last parameter is ``IN (KEYS)``, asked in as many pieces as it takes."""
        for start in range(0, len(keys), KEYS_AT_ONCE):
            piece = keys[start : start + KEYS_AT_ONCE]
            yield from self.run(
                connection, text.replace("(KEYS)", "(" + ", ".join("?" * len(piece)) + ")"), (*first, *piece)
            )

    # ------------------------------------------------------------ SQLite

    def _sqlite_engine(self) -> sa.Engine:
        # not "rwc": a daemon whose file was taken away must say so, never go on in a new and empty one
        uri = self.address.sqlite_uri("ro" if self.read_only else "rw")
        path = Path(self.address.path or "")

        def connect() -> sqlite3.Connection:
            return sqlite3.connect(
                uri, uri=True, timeout=self.busy_s, isolation_level=None, check_same_thread=False, cached_statements=256
            )

        engine = sa.create_engine("sqlite://", creator=connect, poolclass=QueuePool, hide_parameters=True, **_POOL)

        @event.listens_for(engine, "connect")
        def prepare(connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
            connection.execute("PRAGMA foreign_keys = ON")
            if not self.read_only:
                mode = _begin_log(connection, self.busy_s)
                if mode != "wal":
                    raise StoreAway(f"database {path} can't use a write-ahead log here (it stays in mode {mode!r})")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA journal_size_limit = 67108864")
            status = path.stat()
            entry.info["file"] = (status.st_dev, status.st_ino)

        @event.listens_for(engine, "checkout")
        def same_file(connection: sqlite3.Connection, entry: ConnectionPoolEntry, _: object) -> None:
            try:
                status = path.stat()
            except OSError as error:
                raise sa.exc.DisconnectionError(f"{path} is gone") from error
            if entry.info.get("file") != (status.st_dev, status.st_ino):
                raise sa.exc.DisconnectionError(f"{path} was replaced")

        @event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            writes = connection.get_execution_options().get("writes")
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    # ------------------------------------------------------------ PostgreSQL

    def _postgresql_engine(self) -> sa.Engine:
        wait_ms = int(self.busy_s * 1000)
        options = (
            f"-c lock_timeout={wait_ms} -c statement_timeout=60000 -c idle_in_transaction_session_timeout=60000 "
            f"-c TimeZone=UTC{' -c default_transaction_read_only=on' if self.read_only else ''}"
        )
        return sa.create_engine(
            self.address.sqlalchemy_url,
            pool_pre_ping=True,
            hide_parameters=True,
            **_POOL,
            connect_args={
                "connect_timeout": 5,
                "application_name": "fleet-supervisor",
                "options": options,
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": 20000,
            },
        )


def _begin_log(connection: sqlite3.Connection, busy_s: float) -> str:
    """Turn the write-ahead log on; the mode that the file is then in.

    Of two that do this to a new file at once SQLite refuses one without waiting, so the waiting is done here.
    """
    deadline = time.monotonic() + busy_s
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE_S)
