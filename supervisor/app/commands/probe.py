"""``supervisorctl probe``: ask for a deep probe of one job. It looks and rules; it never acts (PROBE-14)."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "probe",
        help="ask for a deep probe of a job; with --now wait for its verdict",
        description="Ask for a deep probe: evidence is captured, gates are judged over it, and a verdict follows. It changes"
        " nothing on the cluster. With --now: wait for the verdict and print it; without a daemon the probe is made by"
        " this command itself.",
        epilog="example: supervisorctl probe alpha/4711 --now",
    )
    made.add_argument("job", metavar="JOB", help="cluster/id, an id, or a unique part of a name")
    made.add_argument("--now", action="store_true", help="wait for the verdict and print it")
    made.add_argument("--duty-cycle", action="store_true", help="measure the trials' time shares too (PROBE-12)")
    made.add_argument(
        "--wait", type=float, default=900, metavar="S", help="with --now: longest wait, seconds (default 900)"
    )
    made.add_argument("--json", action="store_true", help="with --now: the verdict as JSON")


def run(args: argparse.Namespace) -> int:
    import asyncio

    from supervisor.app.alive import gone
    from supervisor.app.asking import asker
    from supervisor.app.clock import utc_now
    from supervisor.app.commands.picking import the_row
    from supervisor.app.events import set_up
    from supervisor.app.settings import load
    from supervisor.model.errors import UsageError
    from supervisor.reports.text import plain
    from supervisor.store.light import Light
    from supervisor.store.store import Store

    if not 0 < args.wait <= 86400:
        raise UsageError("probe: --wait must be from 0 to 86400 seconds")
    if args.json and not args.now:
        raise UsageError("probe: --json goes with --now; `supervisorctl verdict --json` shows those that are there")
    settings, path = load(args.config)
    set_up(settings.logging.format, "warning")
    with Light.open(settings.database_url) as light:
        job = the_row(light, args.job)
    if job.closed_at is not None:
        raise UsageError(
            f"probe: {job.cluster}/{plain(job.id)} has ended; `supervisorctl show {job.cluster}/{plain(job.id)}` tells how"
        )
    payload = {"cluster": job.cluster, "id": job.id, "row": job.row, "duty_cycle": bool(args.duty_cycle)}
    with Store.open(settings.database_url) as store:
        store.check_schema()
        now = utc_now()
        request = store.ask("probe", asker(), now, payload)
        beats = [each for each in store.heartbeats() if (now - each.beat_at).total_seconds() < 60]
        alive = any(not gone(each.daemon) for each in beats)
        if not args.now:
            when = "the daemon makes it now" if alive else "no daemon runs: the next tick makes it"
            print(f"probe of {job.cluster}/{plain(job.id)} {plain(job.name)} asked for (request {request}); {when}")
            return 0
        if not alive:
            from supervisor.app.daemon import Daemon

            asyncio.run(Daemon(settings, path).once())
        return _told(store, request, args)


def _told(store: Any, request: int, args: argparse.Namespace) -> int:
    """Wait for the answer, then print the verdict. Raises SupervisorError where there is none."""
    import json
    import sys
    import time

    from supervisor.model.errors import SupervisorError
    from supervisor.reports import verdict
    from supervisor.reports.text import plain

    began, told = time.monotonic(), False
    while (answer := store.request(request)).answered_at is None:
        if time.monotonic() - began > args.wait:
            raise SupervisorError(
                f"no verdict within {args.wait:g} s; it is still asked for: see `supervisorctl verdict` later"
            )
        if not told and time.monotonic() - began > 1:
            print("waiting for the probe …", file=sys.stderr)
            told = True
        time.sleep(0.2)
    word, _, number = answer.result.partition(" ")
    if word != "verdict":
        raise SupervisorError(f"the probe gave no verdict: {plain(answer.result)}")
    entry = store.verdict(int(number))
    if args.json:
        sys.stdout.write(json.dumps(verdict.document(entry.verdict, entry.id)) + "\n")
    else:
        sys.stdout.write(verdict.form(entry.verdict, entry.id).rstrip("\n") + "\n")
    return 0
