"""Row numbers of jobs: what other tables point at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sqlalchemy as sa

from supervisor.model.errors import StoreError
from supervisor.model.job import JobKey
from supervisor.store.engine import Database


def rows_of(
    db: Database, connection: sa.Connection, keys: Iterable[JobKey], known: Mapping[JobKey, int]
) -> dict[JobKey, int]:
    """Row number of each of ``keys``; those in ``known`` are not looked up. Raises StoreError on a job never stored."""
    found = dict(known)
    for key in sorted(set(keys) - found.keys()):
        text = "SELECT id FROM job WHERE cluster = ? AND job_id = ? AND incarnation = ?"
        row = db.run(connection, text, (key.cluster, key.id, key.incarnation)).scalar()
        if row is None:
            raise StoreError(f"{key.ref} (incarnation {key.incarnation}) was never stored, so nothing can belong to it")
        found[key] = row
    return found
