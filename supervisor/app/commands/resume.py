"""``supervisorctl resume``: lift a hold."""

from __future__ import annotations

import argparse
from typing import Any

from supervisor.app.commands.hold import add_target, scope_of
from supervisor.model.errors import UsageError


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "resume",
        help="lift a hold",
        description="Lift the hold on a job, a cluster, or on everything.",
        epilog="example: supervisorctl resume --cluster alpha",
    )
    add_target(made)


def run(args: argparse.Namespace) -> int:
    from supervisor.app.asking import asker, opened
    from supervisor.app.clock import utc_now

    store, where = opened(args)
    with store:
        scope = scope_of(args, store, where)
        if scope is None:
            raise UsageError("resume: say which hold: JOB, --cluster C, or --all")
        lifted = store.lift_holds(*scope, asker(), utc_now())
    name = scope[1] or "everything"
    print(f"lifted the hold on {name}" if lifted else f"there was no hold on {name}")
    return 0 if lifted else 1
