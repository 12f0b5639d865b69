"""``supervisorctl db``: schema and housekeeping."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "db",
        help="schema and housekeeping",
        description="Schema and housekeeping.",
        epilog="example: supervisorctl db check",
    )
    actions = made.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("upgrade", help="bring the schema to this version's; data is kept")
    actions.add_parser("check", help="schema, integrity and size")
    backup = actions.add_parser("backup", help="copy a SQLite database while the daemon runs")
    backup.add_argument("file", type=Path, metavar="FILE")
    actions.add_parser("prune", help="thin old measurements and polls now; decisions stay for ever")


def run(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from supervisor.app.clock import utc_now
    from supervisor.app.config_path import places
    from supervisor.model.errors import SupervisorError
    from supervisor.store.store import Store

    where = places(args.config)
    with Store.open(where.database_url) as store:
        if args.action == "upgrade":
            where.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            steps = store.upgrade()
            print(f"{store.url}: {'upgraded through ' + ', '.join(steps) if steps else 'already at this schema'}")
        elif args.action == "check":
            print(store.check())
        elif args.action == "backup":
            if not args.file.expanduser().parent.is_dir():
                raise SupervisorError(f"db backup: there is no folder {args.file.expanduser().parent}")
            written = store.backup(args.file.expanduser())
            print(f"{args.file}: {written} bytes")
        else:
            from supervisor.app.retention import keep_of
            from supervisor.app.settings import load

            settings, _ = load(args.config)
            store.check_schema()
            gone = store.prune(utc_now(), keep_of(settings))
            print("pruned: " + ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in asdict(gone).items()))
    return 0
