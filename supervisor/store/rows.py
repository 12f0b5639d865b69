"""Jobs by their keys: their row numbers, at which other tables point, and what is stored of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from supervisor.model.errors import StoreError
from supervisor.model.facts import Held
from supervisor.model.job import JobKey
from supervisor.store.bodies import held_of
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


def known_jobs(db: Database, connection: sa.Connection, cluster: str, keys: Sequence[JobKey]) -> list[Held]:
    """Whatever is stored of these jobs of one cluster."""
    wanted = set(keys)
    text = "SELECT id, version, body FROM job WHERE cluster = ? AND job_id IN (KEYS)"
    found = (held_of(*row) for row in db.by_keys(connection, text, (cluster,), sorted({key.id for key in wanted})))
    return [job for job in found if job.key in wanted]
