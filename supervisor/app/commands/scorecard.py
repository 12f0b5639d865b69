"""``supervisorctl scorecard``: how the tool's own verdicts and alarms turned out."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "scorecard",
        help="how the tool's own verdicts and alarms turned out",
        description="Each verdict compared with what then became of its job: would-be kills that recovered, kept jobs that died,"
        ' time to detect. Read it before you leave `mode = "record"`.',
        epilog="example: supervisorctl scorecard --days 30",
    )
    made.add_argument("--days", type=float, default=30, metavar="N", help="how far back (default 30)")
    made.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    import sys
    from datetime import timedelta

    from supervisor.app.asking import opened, print_json
    from supervisor.app.clock import utc_now
    from supervisor.app.terminal import columns_wide
    from supervisor.model.errors import UsageError
    from supervisor.reports import scorecard
    from supervisor.rules.hindsight import scorecard as scored

    if not 0 < args.days <= 36500:
        raise UsageError("scorecard: --days must be above 0 and at most 36500")
    since = utc_now() - timedelta(days=args.days)
    store, _where = opened(args)
    with store:
        card, alarms = scored(store.scorecard(since)), store.alarms_since(since)
    if args.json:
        print_json(scorecard.document(card, alarms, since))
    else:
        sys.stdout.write(scorecard.shown(card, alarms, since, columns_wide()))
    return 0
