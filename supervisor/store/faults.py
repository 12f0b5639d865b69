"""What a database said, as one clear line, and what a person can do about it. Standard library only: the light path says it too."""

from __future__ import annotations

from supervisor.model.errors import StoreError


class StoreLocked(StoreError):
    """Another process holds the database; later it may well work."""


class StoreFull(StoreError):
    """No room is left where the database lies."""


class StoreReadOnly(StoreError):
    """The database can be read, not written."""


class StoreBroken(StoreError):
    """The database is damaged, or is not one."""


class StoreAway(StoreError):
    """The file is missing or can't be opened, or the server doesn't answer."""


class Misplaced(StoreError):
    """SQLite on a network file system, where its locks and shared memory can't be trusted."""


class StaleWrite(StoreError):
    """Somebody else wrote first: what was to be stored rests on an older state, so all of it was refused.

    The caller reads what is held anew and decides again. ``jobs`` are those known to be in the way.
    """

    def __init__(self, text: str, jobs: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.jobs = jobs


BUSY_S = 5.0
"""How long a statement waits for another process's lock before it gives up."""

# SQLite's primary result codes (the low byte of the extended ones), sqlite.org/rescode.html
_BUSY, _LOCKED, _READONLY, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _NOTADB = 5, 6, 8, 10, 11, 13, 14, 26

_SQLITE: dict[int, tuple[type[StoreError], str]] = {
    _BUSY: (StoreLocked, "is locked by another process"),
    _LOCKED: (StoreLocked, "is locked by another statement of this process"),
    _READONLY: (StoreReadOnly, "is read-only for this user: check the owner and mode of the file and its folder"),
    _IOERR: (StoreBroken, "could not be read or written (input/output error): check the disk"),
    _CORRUPT: (StoreBroken, "is damaged: stop the daemon, keep a copy of the file, and restore a backup"),
    _FULL: (StoreFull, "could not be written: the disk is full"),
    _CANTOPEN: (StoreAway, "can't be opened: the file or its folder is missing or closed to this user"),
    _NOTADB: (StoreBroken, "is not an SQLite database: check database_url, or restore a backup"),
}

# SQLSTATE codes and classes, PostgreSQL documentation, appendix A
_POSTGRESQL: dict[str, tuple[type[StoreError], str]] = {
    "53100": (StoreFull, "could not be written: the server's disk is full"),
    "53300": (StoreAway, "takes no more connections (max_connections)"),
    "25006": (StoreReadOnly, "is read-only (a standby, or default_transaction_read_only)"),
    "42501": (StoreReadOnly, "refuses this user: a privilege is missing"),
    "55P03": (StoreLocked, "is locked by another session"),
    "57014": (StoreLocked, "took too long, the statement was cancelled"),
    "40P01": (StoreLocked, "saw a deadlock with another session"),
    "40001": (StoreLocked, "saw a conflict with another session"),
    "3D000": (StoreAway, "has no such database: create it (createdb) or correct database_url"),
    "28": (StoreAway, "refused the login: check user, password and pg_hba.conf"),
    "57": (StoreAway, "was shut down or restarted"),
    "08": (StoreAway, "closed the connection"),
    "XX": (StoreBroken, "is damaged or failed inside"),
}

_NO_SPACE = "no space left on device"


def fault(error: BaseException, shown: str, doing: str) -> StoreError:
    """One clear line for what a driver raised; ``doing`` says what was going on, for example ``storing the poll of vista``."""
    original = getattr(error, "orig", None) or error
    from supervisor.model.secrets import scrubbed  # a driver repeats the URL that it could not read

    first = scrubbed(" ".join(str(original).split()))[:300]
    kind, text = _read(original, first)
    said = f" ({first})" if first and kind is not StoreLocked else ""
    return kind(f"database {shown} {text}, while {doing}{said}")


def _read(error: BaseException, first: str) -> tuple[type[StoreError], str]:
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int) and code & 0xFF in _SQLITE:
        return _SQLITE[code & 0xFF]
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        known = _POSTGRESQL.get(state) or _POSTGRESQL.get(state[:2])
        if known:
            return known
    lowered = first.lower()
    if _NO_SPACE in lowered:
        return StoreFull, "could not be written: the disk is full"
    if "no such table" in lowered or "no such column" in lowered or state in ("42P01", "42703"):
        return StoreBroken, "lacks a table or column of this program's schema: run 'supervisorctl db check'"
    if type(error).__module__.startswith("psycopg") and state is None:
        return StoreAway, "doesn't answer"
    return StoreError, "refused a statement"
