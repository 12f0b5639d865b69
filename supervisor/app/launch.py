"""``supervisorctl launch``: start a process under the host backend, detached, with its own log.

Light on purpose: no event loop, no database, no validation of the whole config. The records are explained in
``supervisor/clusters/waiter.py``, which is the process that this one leaves behind.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.app import config_path
from supervisor.app.clock import utc_now
from supervisor.clusters import waiter
from supervisor.model.errors import SupervisorError, UsageError

_NO_CLUSTER = "host"
"""What stands for the cluster's name where no config names one."""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "launch",
        usage="supervisorctl launch --name N [--cwd D] [--cluster C] [--state-dir D] [--json] -- COMMAND …",
        help="start a process under the host backend, detached, with its own log",
        description="Start COMMAND detached from this terminal, with its own log, and keep a record of it that the"
        " daemon reads: its process, its start, its exit status.",
        epilog="example: supervisorctl launch --name rl__gsm8k --cwd ~/run -- python train.py --lr 1e-6",
    )
    made.add_argument(
        "--name", required=True, help="what the job is called; its prefix tells its bucket (rl__, sft__, …)"
    )
    made.add_argument("--cwd", metavar="D", help="folder to start it in (default: this one)")
    made.add_argument(
        "--cluster", metavar="C", help="which cluster of kind host, where the config has several for this machine"
    )
    made.add_argument("--state-dir", metavar="D", help="state folder, instead of the config's")
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND …", help="the program and its arguments")


def run(args: argparse.Namespace) -> int:
    command = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    cwd = Path(args.cwd or ".").expanduser().absolute()
    _check(command, cwd, args.name)
    where = _where(args)
    with _plainly(where.folder):
        _prepare(where.folder)
        _prune(where)
        job_id, log = _claim(where.folder)
        record = _record(job_id, args.name, command, cwd, log)
        said = _start(where.folder / waiter.LIVE / f"{job_id}.json", record)
    how, _, rest = said.partition(" ")
    job = f"{where.cluster}/{job_id}"
    if how != "started":
        raise SupervisorError(f"{job}: {command[0]} could not be started: {rest or 'its waiter ended at once'}")
    if args.json:
        print(json.dumps({"schema_version": 1, "job": job, "name": args.name, "pid": int(rest), "log": str(log)}))
    else:
        print(f"{job}\nlog: {log}")
    if where.note:
        print(f"supervisorctl: {where.note}", file=sys.stderr)
    return 0


@dataclass(frozen=True, slots=True)
class _Where:
    folder: Path
    cluster: str
    keep_days: float | None = None
    note: str = ""


def _check(command: list[str], cwd: Path, name: str) -> None:
    """Everything that can be seen to be wrong before anything is recorded."""
    if not command:
        raise UsageError(
            "launch: no command: give it after --, as in `supervisorctl launch --name N -- python train.py`"
        )
    if not name.strip():
        raise UsageError("launch: --name is empty")
    if not cwd.is_dir():
        raise UsageError(f"launch: --cwd: there is no folder {cwd}")
    program = command[0]
    if "/" in program:
        path = cwd / Path(program)
        if not path.is_file():
            raise UsageError(f"launch: there is no program {path}")
        if not os.access(path, os.X_OK):
            raise UsageError(f"launch: {path} is not executable")
    elif shutil.which(program) is None:
        raise UsageError(f"launch: command not found: {program}")


def _where(args: argparse.Namespace) -> _Where:
    if args.state_dir:
        return _Where(Path(args.state_dir).expanduser().absolute() / "host", args.cluster or _NO_CLUSTER)
    try:
        places = config_path.places(args.config)
    except UsageError:
        if args.config or os.environ.get("SUPERVISOR_CONFIG") or _default_config_exists():
            raise
        return _without_config(args)
    mine = [table for table in _clusters(places) if table.get("kind") == "host" and not table.get("host")]
    if args.cluster:
        mine = [table for table in mine if table.get("name") == args.cluster]
        if not mine:
            raise UsageError(f'{places.config}: no cluster {args.cluster!r} of kind = "host" for this machine')
    if len(mine) > 1:
        names = ", ".join(str(table.get("name")) for table in mine)
        raise UsageError(f"launch: several clusters are this machine: say which by --cluster ({names})")
    table = mine[0] if mine else {}
    records = table.get("records")
    folder = Path(str(records)).expanduser() if records else places.state_dir / "host"
    keep = table.get("keep_ended_days")
    note = "" if mine else f'nothing watches it: {places.config} has no [[cluster]] with kind = "host"'
    return _Where(
        folder=folder.absolute(),
        cluster=str(table.get("name", _NO_CLUSTER)),
        keep_days=float(keep) if isinstance(keep, int | float) and not isinstance(keep, bool) else None,
        note=note,
    )


def _default_config_exists() -> bool:
    return Path("config.toml").is_file() or (config_path.user_config_dir() / "config.toml").is_file()


def _clusters(places: config_path.Places) -> Iterator[dict[str, Any]]:
    tables = places.raw.get("cluster", [])
    for table in tables if isinstance(tables, list) else []:
        if isinstance(table, dict):
            yield table


def _without_config(args: argparse.Namespace) -> _Where:
    """Where a daemon on another machine looks when its config names no ``records`` for this one."""
    state = os.environ.get("SUPERVISOR__STATE_DIR")
    if state is None:
        from platformdirs import user_state_dir

        state = user_state_dir("fleet-supervisor", appauthor=False)
    return _Where(Path(state).expanduser().absolute() / "host", args.cluster or _NO_CLUSTER)


@contextlib.contextmanager
def _plainly(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        raise SupervisorError(
            f"launch: the records in {folder} cannot be written:{where} {error.strerror or error}"
        ) from error


def _prepare(folder: Path) -> None:
    """The marker file comes last: a folder without it is not yet, or no longer, the folder of records."""
    for part in (waiter.LIVE, waiter.ENDED, waiter.LOGS, waiter.CANCELS):
        (folder / part).mkdir(parents=True, exist_ok=True, mode=0o700)
    marker = folder / "format"
    if not marker.exists():
        folder.chmod(0o700)
        waiter.write_whole(marker, f"{waiter.FORMAT}\n")
    elif (found := marker.read_text(encoding="utf-8", errors="replace").strip()) != str(waiter.FORMAT):
        raise SupervisorError(
            f"launch: {folder} holds records of format {found!r}; this version writes {waiter.FORMAT}"
        )


def _claim(folder: Path) -> tuple[str, Path]:
    """The next number, taken by creating its log: two launches at the same moment get two numbers."""
    taken = [path.stem for part in (waiter.LIVE, waiter.LOGS) for path in (folder / part).iterdir()]
    taken += [path.stem.partition("-")[2] for path in (folder / waiter.ENDED).iterdir()]
    number = max((int(word) for word in taken if word.isascii() and word.isdigit()), default=0) + 1
    while True:
        log = folder / waiter.LOGS / f"{number}.log"
        try:
            os.close(os.open(log, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            number += 1
        else:
            return str(number), log


def _record(job_id: str, name: str, command: list[str], cwd: Path, log: Path) -> dict[str, Any]:
    return {
        "format": waiter.FORMAT,
        "id": job_id,
        "incarnation": uuid.uuid4().hex,
        "name": name,
        "command": command,
        "cwd": str(cwd),
        "user": _user(),
        "host": os.uname().nodename,
        **waiter.here(),
        "launched_at": utc_now().timestamp(),
        "log": str(log),
        "waiter": None,
        "waiter_start": None,
        "pid": None,
        "start": None,
        "started_at": None,
    }


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _start(path: Path, record: dict[str, Any]) -> str:
    """Write the record, leave the waiter behind, and hear from it whether the command began."""
    waiter.write_whole(path, waiter.as_text(record))
    hear, report = os.pipe()
    with os.fdopen(hear, "rb") as answer:
        subprocess.Popen(
            [sys.executable, "-I", "-S", waiter.__file__, str(path), str(report)],
            pass_fds=(report,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        os.close(report)
        return answer.read().decode("utf-8", "replace")


def _prune(where: _Where) -> None:
    """Only where the config says so (``keep_ended_days``): the oldest ends, each with its log."""
    if where.keep_days is None:
        return
    before = utc_now().timestamp() - where.keep_days * 86400
    for path in (where.folder / waiter.ENDED).glob("*-*.json"):
        at, _, job_id = path.stem.partition("-")
        if at.isdigit() and job_id.isdigit() and int(at) < before:
            (where.folder / waiter.LOGS / f"{job_id}.log").unlink(missing_ok=True)
            (where.folder / waiter.CANCELS / job_id).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
