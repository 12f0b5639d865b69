"""``supervisorctl tick``: a tick now. A running daemon makes it; without one it is made here, under the same leases."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "tick",
        help="ask for a tick now, wait, print its report",
        description="Ask the daemon for a tick now, wait for it, and print its report. Without a daemon the tick is made by this"
        " command itself. Exit code: 0 good, 4 if a cluster was unread.",
        epilog="example: supervisorctl tick",
    )
    made.add_argument(
        "--wait", type=float, default=600, metavar="S", help="longest wait for the daemon, seconds (default 600)"
    )
    made.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    import asyncio
    from datetime import timedelta

    from supervisor.app.alive import gone
    from supervisor.app.asking import asker
    from supervisor.app.clock import utc_now
    from supervisor.app.events import set_up
    from supervisor.app.settings import load
    from supervisor.model.errors import UsageError
    from supervisor.store.store import Store

    if not 0 < args.wait <= 86400:
        raise UsageError("tick: --wait must be from 0 to 86400 seconds")
    settings, path = load(args.config)
    set_up(settings.logging.format, "warning")
    settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with Store.open(settings.database_url) as store:
        store.upgrade()
        now = utc_now()
        alive = [
            beat for beat in store.heartbeats() if beat.next_tick_at and now - beat.beat_at < timedelta(seconds=45)
        ]
        if alive and not gone(alive[0].daemon):
            number = _asked(store, asker(), args.wait)
        else:
            from supervisor.app.daemon import Daemon

            asyncio.run(Daemon(settings, path).once())
            last = store.last_tick(finished=True)
            number = last.number if last else 0
        return _printed(store, number, args.json)


def _asked(store: Any, by: str, wait_s: float) -> int:
    """The number of the tick that the daemon made for us. Raises SupervisorError if it makes none in time."""
    import sys
    import time

    from supervisor.app.clock import utc_now
    from supervisor.model.errors import SupervisorError

    request = store.ask_tick(by, utc_now())
    began, told = time.monotonic(), False
    while time.monotonic() - began < wait_s:
        answered = store.request(request)
        if answered.answered_at is not None:
            return int(answered.result)
        if not told and time.monotonic() - began > 1:
            print("waiting for the daemon's tick …", file=sys.stderr)
            told = True
        time.sleep(0.2)
    raise SupervisorError(f"the daemon made no tick within {wait_s:g} s; see `supervisorctl status` and its own log")


def _printed(store: Any, number: int, as_json: bool) -> int:
    import json

    record = store.tick(number)
    document = json.loads(record.document) if record and record.document else {}
    print(
        json.dumps(document)
        if as_json
        else (record.report if record and record.report else f"tick {number}: no report")
    )
    return 4 if any(each["state"] == "unknown" for each in document.get("clusters", ())) else 0
