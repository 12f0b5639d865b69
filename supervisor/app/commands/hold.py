"""``supervisorctl hold``: no action is carried out under a hold; looking goes on (KILL-5)."""

from __future__ import annotations

import argparse
from typing import Any

from supervisor.model.errors import UsageError


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "hold",
        help="carry out no action on a job, a cluster, or anything",
        description="No action is carried out under a hold; looking goes on. Without a target: list the holds.",
        epilog="example: supervisorctl hold --cluster alpha --reason 'storage maintenance'",
    )
    add_target(made)
    made.add_argument("--reason", metavar="TEXT", help="why, for the record (needed to set a hold)")
    made.add_argument("--json", action="store_true", help="the standing holds as JSON")


def add_target(made: argparse.ArgumentParser) -> None:
    target = made.add_mutually_exclusive_group()
    target.add_argument("job", nargs="?", metavar="JOB", help="cluster/id, an id, or a unique part of a name")
    target.add_argument("--cluster", metavar="C", help="every job of one cluster")
    target.add_argument("--all", action="store_true", help="everything")


def scope_of(args: argparse.Namespace, store: Any, where: Any) -> tuple[str, str] | None:
    """(scope, target) that the arguments name; None where they name none. Raises UsageError on an unknown one."""
    if args.all:
        return "all", ""
    if args.cluster is not None:
        from supervisor.app.config_path import clusters_in

        names = [table.get("name") for table in clusters_in(where.raw)]
        if args.cluster not in names:
            raise UsageError(
                f"no cluster {args.cluster!r} in {where.config}; there are {', '.join(map(str, names)) or 'none'}"
            )
        return "cluster", args.cluster
    if args.job is not None:
        from supervisor.app.commands.picking import the_row
        from supervisor.store.light import Light

        with Light.open(where.database_url) as light:
            job = the_row(light, args.job)
        return "job", f"{job.cluster}/{job.id}"
    return None


def run(args: argparse.Namespace) -> int:
    from supervisor.app.asking import asker, opened, print_json
    from supervisor.app.clock import utc_now
    from supervisor.reports.text import moment, plain

    store, where = opened(args)
    with store:
        scope = scope_of(args, store, where)
        if scope is None and args.reason is not None:
            raise UsageError("hold: --reason says why, but not what: name JOB, --cluster C, or --all")
        if scope is not None:
            if not (args.reason or "").strip():
                raise UsageError("hold: --reason is missing: say why, for the record")
            made = store.add_hold(*scope, args.reason, asker(), utc_now())
            print(f"hold {made.id} on {made.target or 'everything'} since {moment(made.since)}: {plain(made.reason)}")
            return 0
        holds = store.holds()
    if args.json:
        rows = [
            {
                "id": h.id,
                "scope": h.scope,
                "target": h.target,
                "reason": h.reason,
                "by": h.by,
                "since": f"{h.since:%Y-%m-%dT%H:%M:%SZ}",
            }
            for h in holds
        ]
        print_json({"holds": rows})
    elif not holds:
        print("no holds")
    else:
        for each in holds:
            print(
                f"{each.id}  {each.target or 'everything'}  since {moment(each.since)} by {plain(each.by)}: {plain(each.reason)}"
            )
    return 0
