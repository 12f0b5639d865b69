"""``supervisorctl show``: one job whole."""

from __future__ import annotations

import argparse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "show",
        help="one job whole: attempts, phases with reasons, findings, quotes",
        description="One job whole: attempts, phases with reasons, findings, quotes, diagnosis, verdicts.",
        epilog="example: supervisorctl show alpha/4711 --plot reward entropy",
    )
    made.add_argument("job", metavar="JOB", help="cluster/id, an id, or a unique part of a name")
    made.add_argument("--json", action="store_true")
    made.add_argument(
        "--plot", nargs="+", metavar="METRIC", help="draw these metrics over the steps: reward, loss, grad_norm …"
    )
    made.add_argument("--png", metavar="FILE", help="with --plot: into a file instead (needs matplotlib)")


def _check(args: argparse.Namespace) -> None:
    from supervisor.model.errors import UsageError

    if args.png and not args.plot:
        raise UsageError("show: --png goes with --plot METRIC…")
    if args.json and args.plot:
        raise UsageError("show: --plot is for people; the newest values stand in --json under job.metrics")


def run(args: argparse.Namespace) -> int:
    import json
    import shutil
    import sys

    from supervisor.app.clock import utc_now
    from supervisor.app.commands.picking import holds_on, the_row, verdicts_of
    from supervisor.app.config_path import places
    from supervisor.app.terminal import columns_wide
    from supervisor.reports import history, status, verdict
    from supervisor.reports.fitting import fitting
    from supervisor.store.light import Light

    url = places(args.config).database_url
    _check(args)
    with Light.open(url) as light:
        job = the_row(light, args.job)
        attempts, steps = light.attempts(job.row), light.transitions(job.row)
        diagnoses = [json.loads(each) for each in light.diagnoses(job.row)]
        body = json.loads(light.body(job.row))
        holds, verdicts = holds_on(light, job), verdicts_of(light, job)
    held, seen = body.get("details") or {}, body["observation"]
    now = utc_now()
    if args.plot:
        from supervisor.app.commands.plot import drawn

        live, wide = sys.stdout.isatty(), shutil.get_terminal_size((100, 24)).columns
        sys.stdout.write(drawn(url, job, job.log_path or held.get("log_path"), args.plot, args.png, wide, live))
        return 0
    if args.json:
        document = {
            "schema_version": 1,
            "job": status.job_document(job, now),
            "details": held,
            **history.counts(seen),
            "attempts": [
                {
                    "number": each.number,
                    "state": each.state,
                    "started_at": status.iso(each.started_at),
                    "ended_at": status.iso(each.ended_at),
                    "exit_code": each.exit_code,
                    "signal": each.signal,
                }
                for each in attempts
            ],
            "life": [
                {
                    "at": status.iso(step.at),
                    "tick": step.tick,
                    "before": step.before,
                    "after": step.after,
                    "attempt": step.attempt,
                    "outcome": step.outcome,
                    "sign": step.sign,
                    "reason": step.reason,
                    "evidence": json.loads(step.body).get("read", {}).get("evidence", []),
                }
                for step in steps
            ],
            "diagnoses": diagnoses,
            "verdicts": [verdict.document(each, number) for number, each in verdicts],
            "holds": [{"id": each.id, "target": each.target, "reason": each.reason} for each in holds],
        }
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        told = [verdict.brief(each, number) for number, each in verdicts[:3]]
        text = history.shown(job, attempts, steps, diagnoses, held, now, seen, told, holds)
        sys.stdout.write(fitting(text, columns_wide()))
    return 0
