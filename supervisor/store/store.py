"""The store: everything that is remembered, behind one class."""

from __future__ import annotations

from types import TracebackType

from supervisor.store.address import Address
from supervisor.store.cancels import Cancels
from supervisor.store.engine import Database
from supervisor.store.errands import Errands
from supervisor.store.faults import BUSY_S
from supervisor.store.notes import Notes
from supervisor.store.polls import Polls
from supervisor.store.proposals import Proposals
from supervisor.store.recording import Recording
from supervisor.store.ticks import Ticks
from supervisor.store.upkeep import Upkeep
from supervisor.store.verdicts import Verdicts
from supervisor.store.wishes import Wishes


class Store(Recording, Polls, Ticks, Errands, Wishes, Notes, Verdicts, Proposals, Cancels, Upkeep):
    """One database: an SQLite file, or PostgreSQL.

    Synchronous, for any thread; each call is one short transaction. Every failure is a StoreError with one clear line, and
    nothing that was being written then counts; the next call tries afresh, so the store is well again as soon as its
    database is. All times are UTC and aware.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    @classmethod
    def open(cls, url: str, *, read_only: bool = False, busy_s: float = BUSY_S) -> Store:
        """Nothing is read or made yet: see :meth:`upgrade` and :meth:`check_schema`.

        ``busy_s``: seconds that a statement waits for another process's lock.

        Raises StoreError on a URL of another kind, and on a file on a network file system.
        """
        return cls(Database(Address(url), read_only=read_only, busy_s=busy_s))

    @property
    def url(self) -> str:
        """Where it is, for people: without a password."""
        return self._db.address.shown

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
