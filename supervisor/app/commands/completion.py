"""``supervisorctl completion``: a completion script for bash, zsh or tcsh."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "completion",
        help="print a completion script for your shell",
        description="Print a completion script for your shell.",
        epilog="example: supervisorctl completion bash > ~/.local/share/bash-completion/completions/supervisorctl",
    )
    made.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def run(args: argparse.Namespace) -> int:
    import shtab

    from supervisor.app.ctl import COMMANDS, build

    print(shtab.complete(build(list(COMMANDS)), shell=args.shell))
    return 0
