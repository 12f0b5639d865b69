"""``supervisorctl deny``: a proposed kill is refused, and stays silent until its facts change."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "deny",
        help="refuse one proposed kill",
        description="Refuse a proposed kill. The same facts are not proposed again; new ones are.",
        epilog="example: supervisorctl deny 3 --reason 'it writes a very large checkpoint'",
    )
    made.add_argument(
        "id", type=int, metavar="ID", help="number of the proposal, as `supervisorctl proposals` shows it"
    )
    made.add_argument("--reason", metavar="R", required=True, help="why, for the record")


def run(args: argparse.Namespace) -> int:
    from supervisor.app.asking import asker, opened
    from supervisor.app.clock import utc_now
    from supervisor.model.errors import UsageError
    from supervisor.reports.text import plain

    if not args.reason.strip():
        raise UsageError("deny: --reason is empty: say why, for the record")
    store, _where = opened(args)
    with store:
        denied = store.deny(args.id, by=asker(), reason=args.reason.strip(), now=utc_now())
    print(
        f"denied: {plain(str(denied.job.ref))} {plain(denied.name)}, attempt {denied.attempt};"
        " it is proposed again only if its facts change"
    )
    return 0
