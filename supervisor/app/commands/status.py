"""``supervisorctl status``: the tables, the monitor's own age first. Loads the database's driver and nothing heavier."""

from __future__ import annotations

import argparse
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PHASES = ("bring_up", "running", "suspect", "wedged", "terminal", "cleanup", "done")
BUCKETS = ("rl", "sft", "datagen", "eval", "other")
SHOWN = 400
"""Rows without ``--all``; flagged ones are never among those left out."""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "status",
        help="the tables of all jobs; age of the last tick first",
        description="The tables of all active jobs and of those that ended lately. Exit code: 0 fresh and nothing waits for"
        " you, 3 something is flagged or waits for you, 4 the monitor is stale or dead.",
        epilog="example: supervisorctl status --bucket rl --cluster alpha",
    )
    made.add_argument("job", nargs="*", metavar="JOB", help="cluster/id, an id, or a part of a name")
    made.add_argument("--bucket", action="append", default=[], metavar="B", help=f"one of {', '.join(BUCKETS)}")
    made.add_argument("--cluster", action="append", default=[], metavar="C")
    made.add_argument(
        "--phase",
        action="append",
        type=lambda word: word.replace("-", "_"),  # the tables write bring-up
        default=[],
        metavar="P",
        help=f"one of {', '.join(PHASES)}",
    )
    made.add_argument("--all", action="store_true", help="ended jobs of any age too, and every row")
    made.add_argument("--json", action="store_true", help="the machine-readable twin")
    made.add_argument("--pipe", action="store_true", help="GitHub-style tables, for pasting")
    made.add_argument("--watch", action="store_true", help="again every few seconds, until interrupted")


def run(args: argparse.Namespace) -> int:
    from supervisor.app.config_path import places

    where = places(args.config)
    _check(args, where)
    if args.watch:
        return _watch(args, where)
    text, code = _picture(args, where)
    sys.stdout.write(text)
    sys.stdout.flush()
    return code


def _check(args: argparse.Namespace, where: Any) -> None:
    from supervisor.model.errors import UsageError

    if args.watch and args.json:
        raise UsageError("status: --watch is for people; for a script ask again with --json")
    if args.pipe and args.json:
        raise UsageError("status: --pipe and --json are two forms of the same: choose one")
    clusters = _configured(where)
    for option, given, known in (
        ("--bucket", args.bucket, BUCKETS),
        ("--phase", args.phase, PHASES),
        ("--cluster", args.cluster, clusters),
    ):
        for word in given:
            if word not in known:
                import difflib

                close = difflib.get_close_matches(word, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known) or 'none'}"
                raise UsageError(f"status: {option} {word!r}: no such {option[2:]}; {hint}")


def _configured(where: Any) -> tuple[str, ...]:
    from supervisor.app.config_path import clusters_in

    return tuple(str(table.get("name")) for table in clusters_in(where.raw))


def _picture(args: argparse.Namespace, where: Any) -> tuple[str, int]:
    """The whole answer and its exit code, from one consistent look at the store."""
    import os
    from datetime import timedelta

    from supervisor.app.clock import utc_now
    from supervisor.app.terminal import columns_wide
    from supervisor.buckets import KINDS
    from supervisor.model.errors import NotBegun, SchemaMismatch, StoreError
    from supervisor.reports import status
    from supervisor.reports.fitting import fitting
    from supervisor.reports.monitor import as_known_now, without_removed
    from supervisor.store.light import Light

    now = utc_now()
    try:
        light = Light.open(where.database_url)
    except NotBegun as error:
        return _nothing(args, now, "never", str(error))
    except SchemaMismatch:
        raise
    except StoreError as error:
        # A monitor whose memory cannot be read is a dead one: said as such, and never as "no jobs".
        return _nothing(args, now, "dead", str(error))
    with light:
        summary = as_known_now(without_removed(light.summary(), now, _configured(where)), now)
        gone = _process_gone(summary)
        since = now - timedelta(hours=where.ended_hours)
        every = args.all or any(phase in ("terminal", "cleanup", "done") for phase in args.phase)
        rows = _rows(light, args.job)
        narrow = {"buckets": args.bucket, "clusters": args.cluster, "phases": args.phase, "rows": rows}
        whole = args.all or args.json or bool(rows)
        jobs, hidden = _shown(light, narrow, since, every=every, whole=whole)
        jobs = status.one_row_each(jobs, summary.clusters)
        holds, waiting = light.holds(), light.waiting()
        verdicts = light.verdicts() if args.json else []
    unanswered = sum(each.state != "approved" for each in waiting)
    code = status.exit_code(summary, jobs, now, waiting=unanswered, gone=gone)
    if args.json:
        import json

        document = status.document(summary, jobs, now, gone=gone, waiting=waiting, verdicts=verdicts)
        return json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n", code
    shown = jobs
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    wide = columns_wide()
    unknown = {each.name: each.last_good_at for each in summary.clusters if each.state != "ok"}
    parts = status.head(summary, now, gone=gone, colour=colour)
    parts.append("")
    parts += status.tables(
        shown, now, unknown=unknown, wide=wide, colour=colour, pipes=args.pipe, kinds=KINDS, holds=holds
    )
    if not jobs:
        parts.append(_no_jobs(summary, args))
    parts += status.foot(holds, hidden, waiting)
    return fitting("\n".join(parts) + "\n", wide), code


def _nothing(args: argparse.Namespace, now: Any, state: str, reason: str) -> tuple[str, int]:
    """What can be said without a store. In JSON what is unknown is null, so that nobody counts it as none."""
    from supervisor.reports.status import iso
    from supervisor.reports.text import plain

    if not args.json:
        return f"monitor {state} · {plain(reason)}\n", 4
    import json

    known: list[Any] | None = [] if state == "never" else None
    monitor = {"state": state, "last_tick": None, "next_tick_at": None, "reason": reason}
    document = {"schema_version": 1, "generated_at": iso(now), "monitor": monitor}
    return json.dumps(document | {"clusters": known, "jobs": known, "waiting": known}) + "\n", 4


def _rows(light: Any, words: list[str]) -> list[int]:
    if not words:
        return []
    from supervisor.app.commands.picking import the_row

    return [the_row(light, word).row for word in words]


def _no_jobs(summary: Any, args: argparse.Namespace) -> str:
    r""" "No jobs" is said only where every cluster was read; otherwise it is said what is not known (SAY-4)."""
    unread = [each.name for each in summary.clusters if each.state != "ok"]
    chosen = args.bucket or args.cluster or args.phase
    if summary.last_tick is None or not summary.clusters:
        return "nothing is known yet: no cluster has been read"
    if unread:
        return f"no jobs are known; {', '.join(unread)} could not be read, so there may be some"
    return "no jobs match" if chosen else "no jobs: every cluster was read, and none has any"


def _shown(light: Any, narrow: dict[str, Any], since: Any, *, every: bool, whole: bool) -> tuple[list[Any], int]:
    """Rows to show, and how many more there are: every flagged one, and of the others as many as a person reads."""
    if whole or every:
        return light.jobs(**narrow, ended_after=since, every=every), 0
    flagged = light.jobs(**narrow, worst=("fault", "watch"), ended_after=since)
    rest = light.jobs(**narrow, ended_after=since, limit=SHOWN + 1)
    if len(rest) <= SHOWN:
        return rest, 0
    known = {job.row for job in flagged}
    jobs = flagged + [job for job in rest if job.row not in known][: max(0, SHOWN - len(flagged))]
    return jobs, max(1, light.how_many(since) - len(jobs))


def _process_gone(summary: Any) -> bool:
    """True where the newest daemon ran on this machine and its process is there no more."""
    from supervisor.app.alive import gone

    return bool(summary.heartbeats) and gone(summary.heartbeats[0].daemon)


def _watch(args: argparse.Namespace, where: Any) -> int:
    import time

    while True:
        text, _code = _picture(args, where)
        sys.stdout.write("\x1b[H\x1b[2J\x1b[3J" if sys.stdout.isatty() else "")
        sys.stdout.write(text)
        sys.stdout.flush()
        time.sleep(5)
