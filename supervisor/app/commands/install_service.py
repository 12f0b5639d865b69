"""``supervisorctl install-service``: write and explain the systemd unit or launchd plist."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "install-service",
        help="write and explain the systemd unit or launchd plist",
        description="Write the service file for this user (or, with --system, for the machine) and say how to start it. Nothing is"
        " started by itself.",
        epilog="example: supervisorctl install-service && systemctl --user enable --now fleet-supervisor",
    )
    made.add_argument(
        "--system", action="store_true", help="a unit for the machine instead of this user (systemd, as root)"
    )
    made.add_argument(
        "--user", metavar="U", help="who runs it with --system (default: who called sudo, else fleet-supervisor)"
    )
    made.add_argument("--print", action="store_true", dest="show", help="print the file, write nothing")
    made.add_argument("--force", action="store_true", help="write over an existing file")


def run(args: argparse.Namespace) -> int:
    import os
    import sys

    from supervisor.app.config_path import places
    from supervisor.app.service import plan
    from supervisor.model.errors import SupervisorError, UsageError

    made = plan(
        places(args.config),
        system=args.system,
        platform=sys.platform,
        user=args.user or os.environ.get("SUDO_USER", ""),
    )
    if args.show:
        print(made.text, end="")
        return 0
    if args.user and not args.system:
        raise UsageError("install-service: --user goes with --system; without it the service is your own")
    if made.path.exists() and made.path.read_text(encoding="utf-8", errors="replace") != made.text and not args.force:
        raise UsageError(
            f"install-service: {made.path} is there and differs; --force writes over it, --print shows ours"
        )
    try:
        for folder in made.folders:
            _provide(folder, made.user)
        made.path.parent.mkdir(parents=True, exist_ok=True)
        made.path.write_text(made.text, encoding="utf-8")
    except LookupError:
        raise UsageError(
            f"install-service: there is no user {made.user!r}: create one, or name another by --user"
        ) from None
    except OSError as error:
        raise SupervisorError(f"install-service: {error.filename or made.path}: {error.strerror or error}") from error
    print(f"wrote {made.path}\n")
    print("\n".join(made.steps))
    return 0


def _provide(folder: Any, user: str | None) -> None:
    """The folder, owned by who will write into it. Raises LookupError where there is no such user, OSError."""
    import shutil

    fresh = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if user is not None and fresh:
        shutil.chown(folder, user)
