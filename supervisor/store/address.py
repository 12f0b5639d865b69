"""Where a store is: a database URL, taken apart without any library, so that the light path can use it too."""

from __future__ import annotations

import os

from supervisor.model.errors import StoreError

SQLITE = "sqlite:///"
POSTGRESQL = ("postgresql+psycopg://", "postgresql://", "postgres://")


class Address:
    """One database. ``shown`` is its name for people: no password in it."""

    __slots__ = ("dsn", "path", "shown")

    def __init__(self, url: str) -> None:
        self.path: str | None = None
        """Absolute path of the SQLite file; None for PostgreSQL."""
        self.dsn = ""
        """What libpq takes; empty for SQLite."""
        if url.startswith(SQLITE):
            name = url[len(SQLITE) :].partition("?")[0]
            if not name or name == ":memory:":
                raise StoreError(f"database_url {url!r} names no file; allowed: sqlite:///PATH")
            self.path = os.path.abspath(name)  # noqa: PTH100  pathlib costs more than the whole reading
            self.shown = self.path
            return
        for scheme in POSTGRESQL:
            if url.startswith(scheme):
                self.dsn = "postgresql://" + url[len(scheme) :]
                self.shown = "postgresql://" + url[len(scheme) :].partition("?")[0].rpartition("@")[2]
                return
        scheme = url.partition(":")[0]
        raise StoreError(
            f"database_url begins with {scheme!r}; allowed: sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME"
        )

    @property
    def sqlalchemy_url(self) -> str:
        """For PostgreSQL only; SQLite is opened by path."""
        return "postgresql+psycopg://" + self.dsn[len("postgresql://") :]

    def sqlite_uri(self, mode: str) -> str:
        """``mode``: ``ro``, ``rw`` or ``rwc``, as SQLite spells them, or ``immutable``."""
        assert self.path is not None
        quoted = self.path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        return f"file:{quoted}?mode=ro&immutable=1" if mode == "immutable" else f"file:{quoted}?mode={mode}"
