"""``supervisorctl check``: config, credentials, clusters, database, disk, clock: one line each, with what to do."""

from __future__ import annotations

import argparse
from typing import Any

MARK = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "check",
        help="config, credentials, clusters, database, disk: one line each",
        description="Config, credentials and their expiry, each cluster's reachability and version, database, disk, clock.",
        epilog="example: supervisorctl check",
    )
    made.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    import asyncio

    from supervisor.app.asking import print_json
    from supervisor.app.checks import all_checks
    from supervisor.app.settings import load
    from supervisor.reports.text import plain

    settings, path = load(args.config)
    lines = asyncio.run(all_checks(settings, path))
    if args.json:
        print_json({"checks": [{"what": c.what, "result": c.result, "text": c.text, "hint": c.hint} for c in lines]})
    else:
        for line in lines:
            hint = f"\n      → {plain(line.hint)}" if line.hint else ""
            print(f"{MARK.get(line.result, line.result)}  {plain(line.what)}: {plain(line.text)}{hint}")
    return 1 if any(line.result == "fail" for line in lines) else 0
