"""``supervisorctl report``: the tables and actions of a past tick."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "report",
        help="the tables and actions of a past tick",
        description="The tables and actions of a past tick; by default the last one.",
        epilog="example: supervisorctl report --date 2026-07-01",
    )
    which = made.add_mutually_exclusive_group()
    which.add_argument("--date", metavar="YYYY-MM-DD", help="every report of that day (UTC) that is still kept")
    which.add_argument("--tick", type=int, metavar="N", help="the report of tick N")
    made.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    import json
    from datetime import date

    from supervisor.app.asking import opened
    from supervisor.model.errors import SupervisorError, UsageError

    if args.tick is not None and not 0 < args.tick < 2**31:
        raise UsageError("report: --tick must be the number of a tick, from 1")
    day = None
    if args.date is not None:
        try:
            day = date.fromisoformat(args.date)
        except ValueError:
            raise UsageError(f"report: --date {args.date!r}: must be a day such as 2026-07-01") from None
    store, _where = opened(args)
    with store:
        if day is not None:
            found = store.ticks_of(day)
        else:
            one = store.tick(args.tick) if args.tick is not None else store.last_tick(finished=True)
            found = [one] if one is not None else []
    kept = [record for record in found if record.report]
    if not kept:
        what = f"on {args.date}" if day else f"of tick {args.tick}" if args.tick is not None else "yet"
        raise SupervisorError(f"no report {what} is kept{'; those ticks had theirs thinned out' if found else ''}")
    if args.json:
        print(json.dumps([json.loads(record.document) for record in kept if record.document]))
    else:
        print("\n".join(record.report or "" for record in kept), end="")
    return 0
