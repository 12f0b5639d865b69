"""``supervisorctl why``: the chain of evidence for a job's present phase."""

from __future__ import annotations

import argparse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "why",
        help="the chain of evidence for a job's present phase",
        description="Why a job is held where it is: what was seen and where, what was ruled out as noise, what would flip it.",
        epilog="example: supervisorctl why rl__gsm8k_a",
    )
    made.add_argument("job", metavar="JOB", help="cluster/id, an id, or a unique part of a name")


def run(args: argparse.Namespace) -> int:
    import json
    import sys

    from supervisor.app.clock import utc_now
    from supervisor.app.commands.picking import holds_on, the_row, verdicts_of
    from supervisor.app.config_path import places
    from supervisor.app.terminal import columns_wide
    from supervisor.reports import history, verdict
    from supervisor.reports.fitting import fitting
    from supervisor.store.light import Light

    with Light.open(places(args.config).database_url) as light:
        job = the_row(light, args.job)
        steps = light.transitions(job.row)
        diagnoses = [json.loads(each) for each in light.diagnoses(job.row)]
        holds, verdicts = holds_on(light, job), verdicts_of(light, job)
    told = [verdict.brief(each, number) for number, each in verdicts[:1]]
    sys.stdout.write(fitting(history.reasons(job, steps, diagnoses, holds, utc_now(), told), columns_wide()))
    return 0
