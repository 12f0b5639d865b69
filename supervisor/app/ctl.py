"""``supervisorctl``: finds the command, loads only its module, and turns errors into one clear line.

Exit codes: 0 good; 1 it failed; 2 wrong use or config; ``status`` also 3 (something is flagged or waits) and 4 (stale or dead).
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from supervisor import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

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
    "probe": ("supervisor.app.commands.probe", "ask for a deep probe of a job; with --now wait for its verdict"),
    "verdict": ("supervisor.app.commands.verdict", "verdicts of the deep probe: the list, or one in its fixed form"),
    "proposals": ("supervisor.app.commands.proposals", "kills that wait for a person, their quotes first"),
    "approve": ("supervisor.app.commands.approve", "approve one proposed kill, after its verdict was shown"),
    "deny": ("supervisor.app.commands.deny", "refuse one proposed kill"),
    "scorecard": ("supervisor.app.commands.scorecard", "how the tool's own verdicts and alarms turned out"),
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


class Parser(argparse.ArgumentParser):
    """Errors of usage are one line that names the nearest thing known, on standard error, with status 2."""

    own: Mapping[str, Parser] = {}
    """Parsers of the commands in it."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **{"allow_abbrev": False, **named})

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`\n")

    def spelling(self, word: str) -> str:
        """`` (did you mean '--bucket'?)`` where an option of this parser is near."""
        import difflib

        close = difflib.get_close_matches(word.partition("=")[0], self._option_string_actions, n=1)
        return f" (did you mean {close[0]!r}?)" if close else ""


def build(commands: list[str]) -> Parser:
    """The parser with the given commands' own parsers in it."""
    made = Parser(
        prog="supervisorctl",
        description="Ask the fleet supervisor, and tell it what you want.",
        epilog="example: supervisorctl status --bucket rl",
    )
    made.add_argument(
        "--config", metavar="FILE", help="config file (default: $SUPERVISOR_CONFIG, ./config.toml, the user's)"
    )
    made.add_argument("--version", action="version", version=f"fleet-supervisor {__version__}")
    subparsers = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    made.own = subparsers.choices
    for command in commands:
        import_module(COMMANDS[command][0]).add_parser(subparsers)
    return made


def parsed(command: str, words: list[str]) -> argparse.Namespace:
    """The arguments of ``command``. Ends the program with status 2 and one line where they are wrong."""
    made = build([command])
    args, unknown = made.parse_known_args(words)
    if unknown:
        own = made.own[command]
        word = next((each for each in unknown if each.startswith("-")), unknown[0])
        own.error(f"unknown {'option' if word.startswith('-') else 'argument'} {word!r}{own.spelling(word)}")
    return args


def command_in(words: list[str]) -> str | None:
    """The first word that is no option and no option's value."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == "--config":
            skip = True
        elif not word.startswith("-"):
            return word
    return None


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``supervisorctl``. However it ends, what a person sees is one clear line and never a traceback."""
    _open_ends()
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader had enough (`| head`). Nothing may be flushed into that pipe again when the interpreter ends.
        _drop(sys.stdout)
        return 141
    except OSError as error:
        _drop(sys.stdout)
        where = f" {error.filename}" if error.filename else ""
        print(f"supervisorctl:{where} {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _run(words: list[str]) -> int:
    command = command_in(words)
    if command is None:
        return _no_command(words)
    if command not in COMMANDS:
        import difflib

        close = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(sorted(COMMANDS))}"
        print(f"supervisorctl: no such command: {command!r}{hint}", file=sys.stderr)
        return 2
    from supervisor.model.errors import SupervisorError, UsageError

    try:
        return int(import_module(COMMANDS[command][0]).run(parsed(command, words)))
    except UsageError as error:
        _say(error)
        return 2
    except SupervisorError as error:
        _say(error)
        return 1


def _say(error: Exception) -> None:
    """One line, whatever a scheduler, a server or a file put into it."""
    from supervisor.reports.text import plain

    print(f"supervisorctl: {plain(str(error))}", file=sys.stderr)


def _open_ends() -> None:
    """Closed standard streams read as empty and swallow; a letter that the terminal's encoding lacks becomes a mark."""
    import os

    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 (pathlib is dear to import)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        change = getattr(stream, "reconfigure", None)
        if change is not None:
            change(errors="replace" if stream is sys.stdout else "backslashreplace")


def _drop(stream: Any) -> None:
    """Let what is still buffered for ``stream`` go nowhere."""
    import os

    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return


def _no_command(words: list[str]) -> int:
    if "--version" in words:
        print(f"fleet-supervisor {__version__}")
        return 0
    wrong = [word for word in words if word.startswith("-") and word.partition("=")[0] not in _OWN_OPTIONS]
    if wrong:
        made = build([])
        made.error(f"unknown option {wrong[0]!r}{made.spelling(wrong[0])}")
    if words[-1:] == ["--config"]:
        build([]).error("--config needs a FILE")
    wide = max(map(len, COMMANDS))
    print("usage: supervisorctl [--config FILE] COMMAND …\n\nAsk the fleet supervisor, and tell it what you want.\n")
    for command, (_module, line) in COMMANDS.items():
        print(f"  {command.ljust(wide)}  {line}")
    print("\n`supervisorctl COMMAND --help` says more, with an example. A first minute: `supervisorctl demo`.")
    return 0 if {"-h", "--help"} & set(words) else 2


_OWN_OPTIONS = ("-h", "--help", "--version", "--config")

if __name__ == "__main__":
    sys.exit(main())
