"""The daemon's own book: ticks with their reports, signs of life, leases on clusters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import sqlalchemy as sa
import zstandard

from supervisor.model.errors import StoreError
from supervisor.model.records import Heartbeat, TickRecord
from supervisor.store import schema
from supervisor.store.bodies import clean, clean_or_none
from supervisor.store.engine import Database
from supervisor.store.entries import Lease
from supervisor.store.times import to_us


class Ticks:
    """Ticks, heartbeats and leases."""

    _db: Database

    # ------------------------------------------------------------ ticks

    def begin_tick(self, now: datetime, daemon: str) -> int:
        """Number of a new tick, greater than every one before."""
        insert = sa.insert(schema.tick).values(daemon=daemon, started_at=now)
        with self._db.write("beginning a tick") as connection:
            key = connection.execute(insert).inserted_primary_key
        assert key is not None
        return int(key[0])

    def finish_tick(self, number: int, now: datetime, report: str, document: str) -> None:
        """Close a tick with what it said to people and to programs (JSON)."""
        table = schema.tick
        with self._db.write(f"finishing tick {number}") as connection:
            started = connection.execute(sa.select(table.c.started_at).where(table.c.number == number)).scalar()
            if started is None:
                raise StoreError(f"there is no tick {number} to finish")
            values = {
                "finished_at": now,
                "took_s": (now - started).total_seconds(),
                "report": _packed(report),
                "document": _packed(document),
            }
            connection.execute(sa.update(table).where(table.c.number == number).values(**values))

    def tick(self, number: int) -> TickRecord | None:
        found = self._ticks(sa.select(schema.tick).where(schema.tick.c.number == number))
        return found[0] if found else None

    def last_tick(self, *, finished: bool = False) -> TickRecord | None:
        """The newest tick; with ``finished``, the newest that came to its end."""
        query = sa.select(schema.tick).order_by(schema.tick.c.number.desc()).limit(1)
        found = self._ticks(query.where(schema.tick.c.finished_at.is_not(None)) if finished else query)
        return found[0] if found else None

    def ticks_of(self, day: date) -> list[TickRecord]:
        """Ticks that began on a UTC day, oldest first."""
        begin = datetime.combine(day, time(), UTC)
        column = schema.tick.c.started_at
        query = sa.select(schema.tick).where(column >= begin, column < begin + timedelta(days=1))
        return self._ticks(query.order_by(schema.tick.c.number))

    def _ticks(self, query: sa.Select[Any]) -> list[TickRecord]:
        with self._db.read("reading the ticks") as connection:
            return [
                TickRecord(
                    number=row.number,
                    started_at=row.started_at,
                    finished_at=row.finished_at,
                    took_s=row.took_s,
                    report=_unpacked(row.report),
                    document=_unpacked(row.document),
                )
                for row in connection.execute(query)
            ]

    # ------------------------------------------------------------ signs of life

    def beat(self, heartbeat: Heartbeat) -> None:
        """Store a daemon's newest sign of life (LIVE-8)."""
        table = schema.heartbeat
        names = (column.name for column in table.columns)
        values = {name: getattr(heartbeat, name) for name in names} | {"trouble": clean_or_none(heartbeat.trouble)}
        insert = self._db.insert(table).values(**values)
        with self._db.write("storing the daemon's sign of life") as connection:
            connection.execute(insert.on_conflict_do_update(index_elements=[table.c.daemon], set_=values))

    def heartbeats(self) -> list[Heartbeat]:
        """Newest sign of life first."""
        query = sa.select(schema.heartbeat).order_by(schema.heartbeat.c.beat_at.desc())
        with self._db.read("reading the daemons' signs of life") as connection:
            return [Heartbeat(**row._mapping) for row in connection.execute(query)]

    def clock_offset(self, now: datetime) -> timedelta:
        """The database server's clock minus ours, to some milliseconds; zero for a file. Leases need clocks that agree."""
        if self._db.is_sqlite:
            return timedelta(0)
        with self._db.read("reading the server's clock") as connection:
            moment: datetime = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
        return moment - now

    # ------------------------------------------------------------ leases

    def take_cluster(self, cluster: str, owner: str, now: datetime, until: datetime) -> bool:
        """Make a cluster ours until a time, or make that last longer. False while somebody else's lease runs.

        Whoever holds the lease is the only one who polls; ``record(owner=…)`` holds a late writer to it.
        """
        return cluster in self.take_clusters([cluster], owner, now, until)

    def take_clusters(self, clusters: Sequence[str], owner: str, now: datetime, until: datetime) -> set[str]:
        """:meth:`take_cluster` for many in one transaction; those that are ours now."""
        take = (
            "INSERT INTO lease (cluster, owner, until) VALUES (?, ?, ?) ON CONFLICT (cluster) DO UPDATE "
            "SET owner = excluded.owner, until = excluded.until WHERE lease.owner = excluded.owner OR lease.until <= ?"
        )
        with self._db.write(f"taking {', '.join(clusters[:3])}{' …' if len(clusters) > 3 else ''}") as connection:
            # In one order everywhere, so that two daemons cannot wait for each other.
            return {
                each
                for each in sorted(clusters)
                if self._db.run(connection, take, (each, owner, to_us(until), to_us(now))).rowcount == 1
            }

    def release_cluster(self, cluster: str, owner: str) -> bool:
        """Give a cluster back. False where it was not ours."""
        table = schema.lease
        mine = sa.delete(table).where(table.c.cluster == cluster, table.c.owner == owner)
        with self._db.write(f"giving {cluster} back") as connection:
            return connection.execute(mine).rowcount == 1

    def disown(self, owner: str, now: datetime) -> None:
        """Take from a daemon that is known to be dead what it held: its clusters, and the errands it was at."""
        with self._db.write(f"taking over from {owner}") as connection:
            self._db.run(connection, "DELETE FROM lease WHERE owner = ?", (owner,))
            free = "UPDATE errand SET owner = NULL, due_at = ? WHERE owner = ? AND finished_at IS NULL"
            self._db.run(connection, free, (to_us(now), owner))

    def owners(self, now: datetime) -> set[str]:
        """Daemons that hold a cluster or an errand at ``now``."""
        text = (
            "SELECT owner FROM lease WHERE until > ? "
            "UNION SELECT owner FROM errand WHERE owner IS NOT NULL AND finished_at IS NULL"
        )
        with self._db.read("reading who holds what") as connection:
            return {str(row[0]) for row in self._db.run(connection, text, (to_us(now),))}

    def leases(self, now: datetime) -> list[Lease]:
        """Leases that run at ``now``, by cluster."""
        query = sa.select(schema.lease).where(schema.lease.c.until > now).order_by(schema.lease.c.cluster)
        with self._db.read("reading the leases") as connection:
            return [Lease(**row._mapping) for row in connection.execute(query)]

    def owned(self, owner: str, now: datetime) -> list[str]:
        """Clusters whose lease this owner holds."""
        return [lease.cluster for lease in self.leases(now) if lease.owner == owner]


def _packed(text: str) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(clean(text).encode())


def _unpacked(data: bytes | None) -> str | None:
    return None if data is None else zstandard.ZstdDecompressor().decompress(data).decode()
