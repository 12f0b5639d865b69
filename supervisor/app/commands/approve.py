"""``supervisorctl approve``: a person's leave for one kill, once, after reading what speaks for it (KILL-1)."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "approve",
        help="approve one proposed kill, after its verdict was shown",
        description="Show a proposal's verdict, ask for confirmation, and write down your approval: for this attempt of this job"
        " and this verdict, once, for a while. Just before the cancel everything is looked at again; what no longer holds"
        " voids it. Without a terminal the answer is read from standard input.",
        epilog="example: supervisorctl approve 3 --reason 'hangs in the first all-reduce, seen with py-spy'",
    )
    made.add_argument(
        "id", type=int, metavar="ID", help="number of the proposal, as `supervisorctl proposals` shows it"
    )
    made.add_argument("--reason", metavar="R", default="", help="why, for the record")
    made.add_argument("--yes", "-y", action="store_true", help="you have read it: do not ask")


def run(args: argparse.Namespace) -> int:
    import sys
    from datetime import timedelta

    from supervisor.app.asking import asker, opened
    from supervisor.app.clock import utc_now
    from supervisor.app.grounds import shaken
    from supervisor.app.marks import caps_of
    from supervisor.app.settings import load
    from supervisor.model.errors import UsageError
    from supervisor.model.proposals import ProposalState
    from supervisor.reports.text import plain
    from supervisor.reports.verdict import form

    settings = load(args.config)[0]
    approvals = settings.approvals
    store, _where = opened(args)
    with store:
        proposal = store.proposal(args.id)
        entry = store.verdict(proposal.verdict)
        waits = proposal.state is ProposalState.OPEN  # of what does not, the store says why it can't be approved
        if waits and (why := shaken(entry.verdict)) is not None:
            raise UsageError(
                f"approve: the evidence of verdict {entry.id} does not bear it any more: {plain(why)};"
                f" deny proposal {args.id}, then `supervisorctl probe {plain(str(proposal.job.ref))}` looks anew"
            )
        if waits:
            _not_held(store, proposal)
        if waits and not args.yes:
            sys.stdout.write(form(entry.verdict, entry.id) + "\n")
            if not _confirmed(str(proposal.job.ref), proposal.job.id):
                print("supervisorctl: approve: nothing was approved", file=sys.stderr)
                return 1
        now = utc_now()
        decision = store.approve(
            args.id,
            digest=entry.verdict.digest,
            by=asker(),
            reason=args.reason.strip() or f"read verdict {entry.id}",
            mode=approvals.mode,
            expires_at=now + timedelta(seconds=approvals.expires_s),
            now=now,
        )
        print(
            f"approved: {plain(str(proposal.job.ref))} {plain(proposal.name)}, attempt {proposal.attempt}; approval {decision.id},"
            f" valid until {decision.expires_at:%Y-%m-%dT%H:%M:%SZ}"
        )
        if approvals.mode == "record":
            print('mode is "record": it is checked and written down, and no cancel is sent')
        full = store.capped(approvals.mode, caps_of(settings), now)
        print(_who_acts(store, now) if full is None else f"not now: {full}; it waits until its time is over")
    return 0


def _not_held(store: Any, proposal: Any) -> None:
    """KILL-5: said before anybody reads a whole verdict for nothing. Raises UsageError."""
    from supervisor.model.errors import UsageError
    from supervisor.reports.text import plain

    ref = str(proposal.job.ref)
    for each in store.holds():
        if each.target in ("", proposal.job.cluster, ref):
            lift = {"all": "--all", "cluster": f"--cluster {each.target}"}.get(each.scope, plain(each.target))
            raise UsageError(
                f"approve: {plain(ref)} is under hold {each.id}: {plain(each.reason)}; `supervisorctl resume {lift}` lifts it"
            )


def _confirmed(ref: str, job: str) -> bool:
    """True where the person answers yes, or with the job's own id. No answer is no."""
    import sys

    from supervisor.reports.text import plain

    sys.stdout.write(f"End {plain(ref)}? Type yes or its id: ")
    sys.stdout.flush()
    answer = sys.stdin.readline().strip()
    if not sys.stdin.isatty():
        sys.stdout.write("\n")
    return answer.lower() in ("y", "yes") or answer in (job, ref)


def _who_acts(store: Any, now: Any) -> str:
    from datetime import timedelta

    from supervisor.app.alive import gone

    beats = store.heartbeats()
    if any(now - each.beat_at < timedelta(seconds=60) and not gone(each.daemon) for each in beats):
        return "the daemon looks once more and acts on it now; `supervisorctl proposals --all` tells how it went"
    return "no daemon runs: the next `supervisorctl tick` or `supervisord --once` before then acts on it"
