"""``supervisorctl proposals``: kills that wait for a person, their quotes first (KILL-1)."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "proposals",
        help="kills that wait for a person, their quotes first",
        description="Kills that wait for your answer, each with the quotes that speak for it. Nothing is ever cancelled without"
        " an approval.",
        epilog="example: supervisorctl proposals",
    )
    made.add_argument(
        "--all", action="store_true", help="answered, lapsed and withdrawn ones too, with what became of them"
    )
    made.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    import sys

    from supervisor.app.asking import opened, print_json
    from supervisor.app.clock import utc_now
    from supervisor.app.marks import caps_of
    from supervisor.app.settings import load
    from supervisor.model.proposals import ProposalState
    from supervisor.reports import proposals
    from supervisor.store.light import Light

    settings = load(args.config)[0]
    mode, now = settings.approvals.mode, utc_now()
    store, where = opened(args)
    states = tuple(ProposalState) if args.all else (ProposalState.OPEN, ProposalState.APPROVED)
    with store, Light.open(where.database_url) as light:
        found = store.proposals(*states)
        looks = [each.id for each in light.waiting() if each.state == "unconfirmed"]
        found += [store.proposal(number) for number in looks if not args.all]
        entries = {each.id: store.verdict(each.verdict) for each in found}
        decisions = {each.id: store.decision_of(each.id) for each in found}
        holds, full = store.holds(), store.capped(mode, caps_of(settings), now)
    if args.json:
        rows = [proposals.document(each, entries[each.id].verdict, decisions[each.id]) for each in found]
        print_json({"mode": mode, "proposals": rows})
        return 0
    if not found:
        sys.stdout.write("nothing waits for you\n" if not args.all else "nothing was ever proposed\n")
        return 0
    parts = []
    for each in found:
        standing = [hold for hold in holds if hold.target in ("", each.job.cluster, str(each.job.ref))]
        lines = proposals.shown(each, entries[each.id].verdict, standing, mode, now)
        decision = decisions[each.id]
        parts.append("\n".join([*lines, *([proposals.decided(decision, full)] if decision is not None else [])]))
    sys.stdout.write("\n\n".join(parts) + "\n")
    return 0
