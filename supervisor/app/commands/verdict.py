"""``supervisorctl verdict``: what deep probes ruled, in the fixed form (PROBE-13)."""

from __future__ import annotations

import argparse
from typing import Any

LISTED = 40
"""Verdicts in the list, newest first, where none is named and no --all is given."""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "verdict",
        help="verdicts of the deep probe: the list, or one in its fixed form",
        description="Verdicts of the deep probe. Without an ID: the list, newest first. With one: its fixed form, or the"
        " contract's JSON.",
        epilog="example: supervisorctl verdict 9",
    )
    made.add_argument("id", nargs="?", type=int, metavar="ID")
    made.add_argument("--job", metavar="JOB", help="only this job's: cluster/id, an id, or a unique part of a name")
    made.add_argument("--all", action="store_true", help=f"every one, not only the newest {LISTED}")
    made.add_argument("--json", action="store_true", help="one whole, or all whole, newest first")


def run(args: argparse.Namespace) -> int:
    import json
    import sys

    from supervisor.app.asking import opened, print_json
    from supervisor.app.clock import utc_now
    from supervisor.app.terminal import columns_wide
    from supervisor.model.errors import UsageError
    from supervisor.reports import verdict
    from supervisor.reports.text import plain

    if args.id is not None and (args.job or args.all):
        raise UsageError("verdict: an ID names one; --job and --all are for the list")
    store, where = opened(args)
    with store:
        if args.id is not None:
            entry = store.verdict(args.id)
            if args.json:
                sys.stdout.write(json.dumps(_document(entry)) + "\n")
            else:
                sys.stdout.write(verdict.form(entry.verdict, entry.id).rstrip("\n") + "\n")
                if entry.no_proposal:
                    sys.stdout.write(f"Not proposed: {plain(entry.no_proposal)}\n")
            return 0
        row = _row(args.job, where) if args.job else None
        found = store.verdicts(row=row, limit=None if args.all or args.json else LISTED)
    if args.json:
        print_json({"verdicts": [_document(each) for each in found]})
    elif not found:
        sys.stdout.write("no verdict yet; `supervisorctl probe JOB` asks for one\n")
    else:
        sys.stdout.write(verdict.listing(found, utc_now(), columns_wide()).rstrip("\n") + "\n")
    return 0


def _document(entry: Any) -> dict[str, Any]:
    """The contract's, with what came of a KILL: its proposal, or why there is none."""
    from supervisor.reports.verdict import document

    return document(entry.verdict, entry.id) | {"proposal": entry.proposal, "not_proposed": entry.no_proposal}


def _row(job: str, where: Any) -> int:
    from supervisor.app.commands.picking import the_row
    from supervisor.store.light import Light

    with Light.open(where.database_url) as light:
        return the_row(light, job).row
