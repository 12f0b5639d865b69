"""Work that a tick leaves: rows claimed under a lease, done once, found again after a crash (house, idea 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import structlog

from supervisor.app.agent_logs import AgentLogs
from supervisor.app.autopsy import Autopsy
from supervisor.app.fleet import Station
from supervisor.app.follow import Follower
from supervisor.app.kept import KeptLogs
from supervisor.app.retention import keep_of
from supervisor.app.settings import Settings
from supervisor.app.writing import Writer
from supervisor.model.errors import StoreError, SupervisorError
from supervisor.model.records import Errand

log = structlog.get_logger("supervisor.errands")

LEASE = timedelta(minutes=5)
"""After this an errand whose daemon died may be claimed by another."""
AT_ONCE = 2
"""Errands done at the same time: a diagnosis uses a core."""
TRIES = 5
HOUSEKEEPING = timedelta(hours=1)


class Errands:
    """Claims what is due and does it."""

    def __init__(
        self,
        writer: Writer,
        follower: Follower,
        kept: KeptLogs,
        logs: AgentLogs,
        settings: Settings,
        clock: Callable[[], datetime],
        owner: str,
    ) -> None:
        self.writer, self.kept, self.settings, self.clock, self.owner = writer, kept, settings, clock, owner
        self.autopsy = Autopsy(writer, follower, kept, logs, settings)
        self._swept_at: datetime | None = None

    async def run(self, stations: Sequence[Station], limit: timedelta) -> None:
        """Whatever is due, for at most ``limit``; what is left is claimed the next time."""
        until = self.clock() + limit
        await asyncio.gather(*(self._work(stations, until) for _ in range(AT_ONCE)))

    async def _work(self, stations: Sequence[Station], until: datetime) -> None:
        while self.clock() < until:
            errand = await self._claimed(self.clock())
            if errand is None:
                return
            await self._one(errand, stations)

    async def _claimed(self, now: datetime) -> Errand | None:
        return await self.writer.call(lambda store: store.claim_errand(["autopsy"], self.owner, now, LEASE))

    async def _one(self, errand: Errand, stations: Sequence[Station]) -> None:
        """Do it, or say why not and when it is tried again. It is safe to do twice."""
        number = errand.id
        try:
            await self.autopsy.perform(errand, {each.name: each for each in stations}, self.clock())
        except StoreError:
            raise
        except (SupervisorError, OSError) as error:
            now, reason = self.clock(), str(error)
            retry = now + timedelta(minutes=errand.tries) if errand.tries < TRIES else None
            log.warning("errand.failed", kind=errand.kind, errand=number, tries=errand.tries, reason=reason)
            await self.writer.call(
                lambda store: store.fail_errand(number, self.owner, now, error=reason, retry_at=retry)
            )
        else:
            done = self.clock()
            await self.writer.call(lambda store: store.finish_errand(number, self.owner, done))

    async def housekeeping(self, now: datetime) -> bool:
        """Once an hour: thin what has aged, and forget the kept text of jobs that ended long ago. False where it is too early."""
        if self._swept_at is not None and now - self._swept_at < HOUSEKEEPING:
            return False
        self._swept_at = now
        keep = keep_of(self.settings)
        await self.writer.call(lambda store: store.prune(now, keep))
        before = now - timedelta(days=self.settings.logs.keep_days)
        await asyncio.to_thread(self.kept.forget_older, before)
        return True
