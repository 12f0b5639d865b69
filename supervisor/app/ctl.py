"""``supervisorctl``: finds the command, loads only its module, and turns errors into one clear line.

Exit codes: 0 good; 1 it failed; 2 wrong use or config; ``status`` also 3 (something is flagged or waits) and 4 (stale or dead).
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from supervisor import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("supervisor.app.commands.init", "write a commented config for this machine and make a first tick"),
    "check": ("supervisor.app.commands.check", "config, credentials, clusters, database, disk: one line each"),
    "status": ("supervisor.app.commands.status", "the tables of all jobs; age of the last tick first"),
    "tick": ("supervisor.app.commands.tick", "ask for a tick now, wait, print its report"),
    "show": ("supervisor.app.commands.show", "one job whole: attempts, phases with reasons, findings, quotes"),
    "why": ("supervisor.app.commands.why", "the chain of evidence for a job's present phase"),
    "report": ("supervisor.app.commands.report", "the tables and actions of a past tick"),
    "diagnose": ("supervisor.app.diagnose", "root cause of a log file or folder; needs no daemon and no config"),
    "signatures": ("supervisor.app.signatures", "the catalogue of log signatures"),
    "hold": ("supervisor.app.commands.hold", "no action is carried out under a hold; looking goes on"),
    "resume": ("supervisor.app.commands.resume", "lift a hold"),
    "rules": ("supervisor.app.commands.rules", "rule ids, thresholds in force, signature packs loaded"),
    "db": ("supervisor.app.commands.db", "schema and housekeeping: upgrade, check, backup, prune"),
    "launch": ("supervisor.app.launch", "start a process under the host backend, detached, with its own log"),
    "demo": ("supervisor.app.demo", "a first minute with real processes on this machine"),
    "install-service": (
        "supervisor.app.commands.install_service",
        "write and explain the systemd unit or launchd plist",
    ),
    "completion": ("supervisor.app.commands.completion", "print a completion script for your shell"),
}
"""Command: its module and its line of help."""


def build(commands: list[str]) -> argparse.ArgumentParser:
    """The parser with the given commands' own parsers in it."""
    made = argparse.ArgumentParser(
        prog="supervisorctl",
        description="Ask the fleet supervisor, and tell it what you want.",
        epilog="example: supervisorctl status --bucket rl",
    )
    made.add_argument(
        "--config", metavar="FILE", help="config file (default: $SUPERVISOR_CONFIG, ./config.toml, the user's)"
    )
    made.add_argument("--version", action="version", version=f"fleet-supervisor {__version__}")
    subparsers = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        import_module(COMMANDS[command][0]).add_parser(subparsers)
    return made


def command_in(argv: list[str]) -> str | None:
    """The first word that is no option and no option's value."""
    skip = False
    for word in argv:
        if skip:
            skip = False
        elif word == "--config":
            skip = True
        elif not word.startswith("-"):
            return word
    return None


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``supervisorctl``."""
    words = sys.argv[1:] if argv is None else argv
    command = command_in(words)
    if command is not None and command not in COMMANDS:
        import difflib

        close = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(sorted(COMMANDS))}"
        print(f"supervisorctl: no such command: {command!r}{hint}", file=sys.stderr)
        return 2
    if command is None:
        return _no_command(words)
    from supervisor.model.errors import SupervisorError, UsageError

    try:
        args = build([command]).parse_args(words)
        return int(import_module(COMMANDS[command][0]).run(args))
    except UsageError as error:
        print(f"supervisorctl: {error}", file=sys.stderr)
        return 2
    except SupervisorError as error:
        print(f"supervisorctl: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except KeyboardInterrupt:
        return 130


def _no_command(words: list[str]) -> int:
    if "--version" in words:
        print(f"fleet-supervisor {__version__}")
        return 0
    wide = max(map(len, COMMANDS))
    print("usage: supervisorctl [--config FILE] COMMAND …\n\nAsk the fleet supervisor, and tell it what you want.\n")
    for command, (_module, line) in COMMANDS.items():
        print(f"  {command.ljust(wide)}  {line}")
    print("\n`supervisorctl COMMAND --help` says more, with an example. A first minute: `supervisorctl demo`.")
    return 0 if {"-h", "--help"} & set(words) else 2


if __name__ == "__main__":
    sys.exit(main())
