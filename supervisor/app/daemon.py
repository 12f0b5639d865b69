"""``supervisord``: the long-running daemon. APScheduler rings the bells; the work they call for is this module's own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor import __version__
from supervisor.app.ctl import Parser
from supervisor.model.errors import StoreError, SupervisorError, UsageError

if TYPE_CHECKING:
    from supervisor.app.settings import Settings
    from supervisor.app.sweep import TickDone


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="supervisord",
        description="Watch the configured clusters in the foreground, until SIGTERM.",
        epilog="example: supervisord --config ~/.config/fleet-supervisor/config.toml",
    )
    made.add_argument(
        "--config", metavar="FILE", help="config file (default: $SUPERVISOR_CONFIG, ./config.toml, the user's)"
    )
    made.add_argument("--once", action="store_true", help="one tick, then exit: 0 good, 4 if any cluster was unread")
    made.add_argument("--version", action="version", version=f"fleet-supervisor {__version__}")
    return made


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit codes: 0, 1 failed, 2 usage or config, 4 (``--once``) a cluster was unread."""
    args = parser().parse_args(argv)
    try:
        return asyncio.run(_serve(args.config, once=args.once))
    except UsageError as error:
        print(f"supervisord: {error}", file=sys.stderr)
        return 2
    except SupervisorError as error:
        print(f"supervisord: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"supervisord: {error.filename or 'the system'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


async def _serve(config: str | None, *, once: bool) -> int:
    from supervisor.app.events import set_up
    from supervisor.app.settings import load

    settings, path = load(config)
    set_up(settings.logging.format, settings.logging.level)
    daemon = Daemon(settings, path)
    return await (daemon.once() if once else daemon.serve())


class Daemon:
    """One daemon: its store, its stations, and when they are looked at."""

    def __init__(self, settings: Settings, path: Path) -> None:
        import structlog

        from supervisor.app.alive import name_of
        from supervisor.app.clock import utc_now

        self.log = structlog.get_logger("supervisor.daemon")
        self.settings, self.path, self.clock = settings, path, utc_now
        self.started_at = utc_now()
        self.owner = name_of(self.started_at.timestamp())
        self.next_tick_at: datetime | None = None
        self.trouble: str | None = None
        self.refused: str | None = None
        """Why the newest config is not in force; said until a good one comes."""
        self._tick_wanted = asyncio.Event()
        self._look_wanted = asyncio.Event()
        self._stopping = asyncio.Event()
        self._ticking = asyncio.Lock()

    # -- set-up ----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """The store, upgraded, and all that stands on it. Raises StoreError."""
        from supervisor.app.watchroom import open_watchroom

        self.room = open_watchroom(self.settings, self.clock, self.owner)

    async def once(self) -> int:
        """One tick, the errands, probes and approved kills it leaves; for cron, scripts and tests."""
        self._open()
        try:
            await self._beat()
            longest = max((each.deadline_s for each in self.settings.cluster), default=0)
            done = await self._tick(longest + 30)
            await self.room.run_probes(timedelta(seconds=self.settings.probe.timeout_s + 60))
            await self.room.run_kills(timedelta(seconds=self.settings.approvals.confirm_s), wait=True)
            return 0 if done.all_read else 4
        finally:
            await self.room.close()

    async def serve(self) -> int:
        """Until SIGTERM or SIGINT. A broken database is waited for; a broken config at the start is an error."""
        from apscheduler.schedulers.asyncio import AsyncIOScheduler

        from supervisor.app.service_notify import ServiceNotify

        self.notify = ServiceNotify()
        self._tasks: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        if not await self._opened():
            return 0
        self.scheduler = AsyncIOScheduler(timezone="UTC")
        self._schedule(first=True)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._spawn(self._reload()))
        self.scheduler.start()
        self.notify.ready(f"watching {len(self.settings.cluster)} clusters every {self.settings.interval_s:g} s")
        self.log.info("daemon.started", version=__version__, config=str(self.path), clusters=len(self.settings.cluster))
        for work in (
            *(self._tick_loop, self._look_loop, self._errand_loop, self._probe_loop, self._kill_loop),
            *(self._beat_loop, self._request_loop),
        ):
            self._spawn(self._kept_going(work))
        await self._stopping.wait()
        await self._drain()
        return 0

    async def _opened(self) -> bool:
        """Open the store; one that is locked, full or not yet up is waited for. False: told to stop meanwhile."""
        from supervisor.store.faults import StoreAway, StoreFull, StoreLocked

        while not self._stopping.is_set():
            try:
                self._open()
                await self._beat()
                return True
            except (StoreLocked, StoreFull, StoreAway) as error:
                if isinstance(error, StoreAway) and self.settings.database_url.startswith("sqlite"):
                    raise
                self.log.error("daemon.waiting", reason=str(error))
                self.notify.status(f"waiting for the database: {error}")
                await self._pause(5)
        return False

    def _schedule(self, *, first: bool = False) -> None:
        """The bells. They only ring: what they start is drained by us, since APScheduler cancels what it runs itself."""
        every = self.settings.interval_s
        jitter = min(self.settings.daemon.jitter_s, every / 10)
        now = self.clock()
        first_at = now if first else now + timedelta(seconds=random.uniform(0, jitter))  # noqa: S311 (no secret)
        self.scheduler.add_job(
            self._ring_tick,
            "interval",
            seconds=every,
            jitter=jitter or None,
            next_run_time=first_at,
            id="tick",
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
            replace_existing=True,
        )
        self.scheduler.add_job(
            self._look_wanted.set,
            "interval",
            seconds=max(5.0, self.room.rooms.book.limits.suspect_look.total_seconds()),
            id="look",
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
            replace_existing=True,
        )

    def _ring_tick(self) -> None:
        self._tick_wanted.set()
        job = self.scheduler.get_job("tick")
        self.next_tick_at = job.next_run_time if job else None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- loops -----------------------------------------------------------------------------------------------------

    async def _kept_going(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a loop's one round for ever. A fault is said and the next round comes after a pause; nothing dies quietly."""
        while not self._stopping.is_set():
            try:
                await work()
            except SupervisorError as error:
                self.trouble = str(error)
                self.log.error("daemon.troubled", reason=str(error))
                await self._begun_again()
                await self._pause(5)
            except Exception as error:  # the daemon must outlive any fault of its own, and say it
                self.trouble = f"fault in the supervisor itself: {error!r}"
                self.log.exception("daemon.fault")
                await self._pause(5)

    async def _begun_again(self) -> None:
        """A database file that was taken away is begun anew, empty, and that is said: a monitor must go on watching."""
        path = Path(self.settings.database_url.removeprefix("sqlite:///"))
        if self.settings.database_url.startswith("sqlite:///") and not path.exists():
            with contextlib.suppress(SupervisorError):
                await self.room.begin_anew()
                self.log.error(
                    "database.begun_anew", path=str(path), hint="what it held is gone; restore a backup if there is one"
                )

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), timeout=seconds)

    async def _tick_loop(self) -> None:
        await self._tick_wanted.wait()
        self._tick_wanted.clear()
        try:
            await self._tick()
        except StoreError:
            # Not a whole interval blind because the database was locked for a moment.
            await self._pause(min(30.0, self.settings.interval_s))
            self._tick_wanted.set()
            raise

    async def _tick(self, budget_s: float | None = None) -> TickDone:
        """One tick, its errands, its report."""
        async with self._ticking:
            usual = min(self.settings.daemon.budget_s, max(4.0, self.settings.interval_s * 0.8))
            done = await self.room.tick(budget_s or usual)
            self.trouble = done.trouble or self._own_trouble() or self.refused
            self.log.info(
                "tick.finished",
                tick=done.number,
                took_s=done.took_s,
                clusters=len(done.clusters),
                unread=[each.name for each in done.clusters if each.state not in ("ok", "skipped", "elsewhere")],
                jobs=sum(each.jobs for each in done.clusters),
                moved=sum(1 for each in done.clusters for move in each.moves if move.moved),
                trouble=self.trouble,
            )
            await self._beat()
            await self._ping(done.all_read)
            return done

    def _own_trouble(self) -> str | None:
        """LIVE-8: a disk that is nearly full is told before it stops us."""
        try:
            free = shutil.disk_usage(self.settings.state_dir).free
        except OSError as error:
            return f"the state folder cannot be looked at: {error.strerror or error} ({self.settings.state_dir})"
        return (
            f"only {free // 2**20} MiB free where the state lies ({self.settings.state_dir})"
            if free < 256 * 2**20
            else None
        )

    async def _look_loop(self) -> None:
        """Between ticks: a narrower look at the clusters that hold suspects."""
        await self._look_wanted.wait()
        self._look_wanted.clear()
        if not self._ticking.locked():
            await self.room.look_at_suspects()

    async def _errand_loop(self) -> None:
        await self._pause(5)
        if not self._ticking.locked():
            await self.room.run_errands(timedelta(seconds=60))

    async def _probe_loop(self) -> None:
        """A probe may take minutes: it waits for no tick, and no tick for it."""
        await self._pause(1)
        await self.room.begin_probes()

    async def _kill_loop(self) -> None:
        await self._pause(2)
        await self.room.run_kills(timedelta(seconds=60))

    async def _request_loop(self) -> None:
        await self._pause(1)
        for request in await self.room.open_tick_requests():
            done = await self._tick()
            await self.room.answer_tick(request, done.number)

    async def _beat_loop(self) -> None:
        every = min(15.0, self.notify.watchdog_s or 15.0)
        await self._pause(every)
        self.notify.alive()
        await self._beat()

    async def _beat(self) -> None:
        from supervisor.model.records import Heartbeat

        sign = Heartbeat(
            daemon=self.owner,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            started_at=self.started_at,
            beat_at=self.clock(),
            interval_s=self.settings.interval_s,
            next_tick_at=self.next_tick_at,
            trouble=self.trouble,
        )
        await self.room.beat(sign)

    async def _ping(self, good: bool) -> None:
        """The dead-man's switch is told of good ticks only: its silence is the alarm."""
        url = self.settings.daemon.ping_url
        if not url or not good:
            return
        from supervisor.app.ping import ping

        reason = await asyncio.to_thread(ping, url)
        if reason:
            self.log.warning("ping.failed", reason=reason)

    # -- signals ---------------------------------------------------------------------------------------------------

    async def _reload(self) -> None:
        """SIGHUP: the new config, if it is good; else the old one stays in force, and that is said."""
        from supervisor.app.settings import load

        self.notify.reloading()
        try:
            settings, _ = await asyncio.to_thread(load, str(self.path))
        except SupervisorError as error:
            self.trouble = self.refused = f"the new config was refused, the old one stays: {error}"
            self.log.error("config.refused", reason=str(error))
        else:
            async with self._ticking:
                settings = self._kept(settings)
                self.settings = settings
                await self.room.reconfigure(settings)
                self._schedule()
            self.trouble = self.refused = None
            self.log.info("config.reloaded", clusters=len(settings.cluster), interval_s=settings.interval_s)
        self.notify.ready(f"watching {len(self.settings.cluster)} clusters")
        await self._beat()

    def _kept(self, settings: Settings) -> Settings:
        """``settings`` with what only a restart can change as it was: the store is open, and its files lie where they lie."""
        places = ("database_url", "state_dir", "agent_logs", "logging")
        changed = [name for name in places if getattr(settings, name) != getattr(self.settings, name)]
        if changed:
            self.log.warning("config.kept", settings=changed, hint="these take effect at a restart")
        return settings.model_copy(update={name: getattr(self.settings, name) for name in changed})

    async def _drain(self) -> None:
        """SIGTERM: let a tick that runs finish, within its limit; then say goodbye."""
        self.notify.stopping()
        self.log.info("daemon.stopping")
        self.scheduler.shutdown(wait=False)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ticking.acquire(), timeout=self.settings.daemon.drain_s)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.room.close()
        self.log.info("daemon.stopped")


if __name__ == "__main__":
    sys.exit(main())
