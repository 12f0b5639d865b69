"""``supervisorctl init``: looks at what this machine knows, asks what it can't, writes a commented config, makes a first tick."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "init",
        help="write a commented config for this machine and make a first tick",
        description="Looks at your ssh config, your kubeconfig and a local Slurm, asks what it can't know, writes a commented"
        " config, and makes a first tick. With --yes nothing is asked: what the options name is taken.",
        epilog="example: supervisorctl init --yes --slurm alpha=alice@login01.example,login02.example --host",
    )
    made.add_argument("--yes", action="store_true", help="ask nothing")
    made.add_argument(
        "--output", metavar="FILE", help="where to write (default: --config, else the user's config folder)"
    )
    made.add_argument("--force", action="store_true", help="write over an existing config")
    made.add_argument(
        "--slurm",
        action="append",
        default=[],
        metavar="NAME=[USER@]NODE[,NODE]",
        help="a Slurm cluster by its login nodes",
    )
    made.add_argument(
        "--kube", action="append", default=[], metavar="CONTEXT", help="a Kubernetes cluster by its kubeconfig context"
    )
    made.add_argument(
        "--iris", action="append", default=[], metavar="NAME=[USER@]URL", help="an iris controller by its address"
    )
    made.add_argument("--host", action="store_true", help="this machine, for `supervisorctl launch`")
    made.add_argument("--interval", type=float, default=900, metavar="S", help="seconds between ticks (default 900)")
    made.add_argument("--no-tick", action="store_true", help="write the config only")


def run(args: argparse.Namespace) -> int:
    import sys

    from supervisor.app.beginning import Found, config_text, iris_from, kubeconfig_named, look, slurm_from
    from supervisor.app.config_path import resolved, user_config_dir
    from supervisor.model.errors import SupervisorError, UsageError

    given = args.output or args.config
    target = resolved(_here(), given) if given else user_config_dir() / "config.toml"
    if target.exists() and not args.force:
        raise UsageError(f"init: {target} is there already; --force writes over it, --output FILE writes elsewhere")
    chosen = Found(
        slurm=[slurm_from(text) for text in args.slurm],
        kube=list(args.kube),
        kubeconfig=kubeconfig_named(),
        iris=[iris_from(text) for text in args.iris],
        host=args.host,
    )
    if not args.yes and not chosen:
        if not sys.stdin.isatty():
            raise UsageError("init: nobody is there to ask; use --yes with --slurm, --kube, --iris or --host")
        chosen = _asked(look())
    text = config_text(chosen, args.interval)
    _must_be_good(text, target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SupervisorError(f"init: {target}: {error.strerror or error}") from error
    print(f"wrote {target}")
    if args.no_tick or not chosen:
        print("next: `supervisorctl check`" if chosen else "add a [[cluster]] table and run `supervisorctl check`")
        return 0
    from supervisor.app.commands import tick

    print("a first tick …\n", flush=True)
    return tick.run(argparse.Namespace(config=str(target), wait=600, json=False))


def _must_be_good(text: str, target: Any) -> None:
    """Nothing is written that would be refused afterwards. Raises UsageError."""
    import tomllib

    from supervisor.app.settings import parse

    parse(tomllib.loads(text), target)


def _here() -> Any:
    from pathlib import Path

    return Path.cwd()


def _asked(found: Any) -> Any:
    """What a person picks of what was found; Enter takes the proposal."""
    from supervisor.app.beginning import Found, iris_from, slurm_from

    chosen = Found(kubeconfig=found.kubeconfig)
    for host in found.ssh_hosts:
        if _yes(f"watch Slurm behind the ssh host {host!r}?", default=False):
            chosen.slurm.append(slurm_from(f"{host}={host}"))
    if found.local_slurm and _yes("this machine has squeue: watch its Slurm from here?", default=True):
        chosen.local_slurm = True
    for context in found.kube:
        if _yes(f"watch the Kubernetes context {context!r}?", default=False):
            chosen.kube.append(context)
    chosen.host = _yes("watch processes started by `supervisorctl launch` on this machine?", default=True)
    while True:
        more = _answer("another Slurm cluster, NAME=[USER@]NODE[,NODE] (Enter: none)? ")
        if not more:
            break
        chosen.slurm.append(slurm_from(more))
    while more := _answer("an iris controller, NAME=[USER@]URL (Enter: none)? "):
        chosen.iris.append(iris_from(more))
    return chosen


def _answer(question: str) -> str:
    from supervisor.model.errors import SupervisorError

    try:
        return input(question).strip()
    except EOFError:
        raise SupervisorError("init: no answer; nothing was written") from None


def _yes(question: str, *, default: bool) -> bool:
    answer = _answer(f"{question} [{'Y/n' if default else 'y/N'}] ").lower()
    return default if not answer else answer.startswith("y")
