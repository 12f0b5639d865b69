"""Which schemas this program knows, and what it says of any other. A test holds this list and the chain of migrations together."""

from __future__ import annotations

from supervisor.model.errors import NotBegun, SchemaMismatch

REVISIONS = ("0001", "0002", "0003")
"""Oldest first; the last is the one this program works with."""
HEAD = REVISIONS[-1]
VERSION_TABLE = "alembic_version"


def judge(found: str | None, shown: str) -> None:
    """Raises SchemaMismatch unless the database at ``shown`` stands at exactly the schema that this program needs."""
    if found == HEAD:
        return
    if found is None:
        raise NotBegun(f"database {shown} has no schema yet: start supervisord or run 'supervisorctl db upgrade'")
    if found in REVISIONS:
        raise SchemaMismatch(
            f"database {shown} has schema {found}, this program needs {HEAD}: run 'supervisorctl db upgrade'"
        )
    raise SchemaMismatch(
        f"database {shown} has schema {found}, which is newer than this program (it knows up to {HEAD}): "
        "upgrade fleet-supervisor; nothing was read or written"
    )
