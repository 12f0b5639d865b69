"""Starts one command, waits for its end, and writes down how it ended. It outlives whoever launched it.

Run as a program by itself (``python -I -S waiter.py RECORD REPORT_FD``), on nothing but the standard library, so that it
stays small and starts fast. A record goes through these files of the records folder, each written whole or not at all:

- ``live/7.json`` by the launcher, before anything runs; again by the waiter with the process id, before the command runs;
- ``ended/1782907200-7.json`` by the waiter at the end (the number in front is the time of the end), then ``live/7.json`` goes.

The command starts only after its process id is safely on disk: no process ever runs that no record knows.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

FORMAT = 1
"""Version of the records, in each of them and in the folder's file ``format``."""
LIVE, ENDED, LOGS, CANCELS = "live", "ended", "logs", "cancels"
NEVER_EXECUTED = 127

MARK = "FLEET_SUPERVISOR_LAUNCH"
"""Stands in the command's environment with the record's own id, so that what leaves its session is known for its own."""

_KEEP_TRYING_S = 24 * 3600
_FOLDER_STAYS_AWAY_S = 600
_IGNORED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGPIPE", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGUSR1", "SIGUSR2")


def write_whole(path: Path, text: str) -> None:
    """Atomically and durably: after a crash the file has its old content or the new, and after the return the new."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def as_text(record: dict[str, Any]) -> str:
    """One key per line, pure ASCII, so that a shell script finds the process id in it without a JSON parser."""
    return json.dumps(record, indent=1) + "\n"


def here() -> dict[str, str]:
    """What tells this machine, this boot and this process namespace from others. The poll's script asks the same."""
    return {"machine": _machine(), "boot": _boot(), "pid_namespace": _pid_namespace()}


def start_of(pid: int) -> str:
    """When a process started, in a form that only serves to compare: clock ticks since boot on Linux, a date elsewhere.

    Empty for a process that is not there.
    """
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # The program's name, in parentheses, may hold spaces and parentheses; the fields after it never do.
            return stat.read_bytes().rpartition(b")")[2].split()[19].decode("ascii")
        except (OSError, IndexError):
            return ""
    return " ".join(_said("ps", "-o", "lstart=", "-p", str(pid)).split())


def _boot() -> str:
    return _first_line("/proc/sys/kernel/random/boot_id") or _said("sysctl", "-n", "kern.bootsessionuuid").strip()


def _machine() -> str:
    if found := _first_line("/etc/machine-id"):
        return found
    if sys.platform == "darwin":
        for line in _said("ioreg", "-rd1", "-c", "IOPlatformExpertDevice").splitlines():
            if "IOPlatformUUID" in line:
                return line.split('"')[-2]
    return os.uname().nodename


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").split("\n", 1)[0].strip()
    except OSError:
        return ""


def _said(*command: str) -> str:
    import subprocess

    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout
    return ""


def _clock() -> float:
    return time.time()  # noqa: TID251 - a process of its own, that nobody can hand the time in to


def main(record_path: Path, report: int) -> None:
    os.set_inheritable(report, False)  # else the launcher would wait for the command's end
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    record: dict[str, Any] = json.loads(record_path.read_text(encoding="ascii"))
    go, refused, pid = _fork(record)
    record |= {"pid": pid, "start": start_of(pid), "started_at": _clock()}
    record |= {"waiter": os.getpid(), "waiter_start": start_of(os.getpid())}
    write_whole(record_path, as_text(record))
    os.write(go, b"g")
    os.close(go)
    with os.fdopen(refused, "rb") as reasons:
        reason = reasons.read().decode("utf-8", "replace")
    _tell(report, f"refused {reason}" if reason else f"started {pid}")
    os.chdir("/")
    _, status = os.waitpid(pid, 0)
    _write_end(record_path, record, status, reason)


def _tell(report: int, text: str) -> None:
    """The launcher may be gone; the command runs all the same."""
    with contextlib.suppress(OSError):
        os.write(report, text.encode("utf-8", "replace"))
    os.close(report)


def _fork(record: dict[str, Any]) -> tuple[int, int, int]:
    """A child that waits for a byte before it becomes the command: (where to give it, where it says why not, its pid)."""
    go_read, go_write = os.pipe()
    refused_read, refused_write = os.pipe()
    log = os.open(record["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    pid = os.fork()
    if pid == 0:
        _become(record, go_read, go_write, refused_write, log)
    for handle in (go_read, refused_write, log):
        os.close(handle)
    return go_write, refused_read, pid


def _become(record: dict[str, Any], go_read: int, go_write: int, refused_write: int, log: int) -> None:
    try:
        os.setsid()
        os.close(go_write)
        if os.read(go_read, 1) != b"g":
            os._exit(NEVER_EXECUTED)
        for name in _IGNORED:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.chdir(record["cwd"])
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        command = record["command"]
        os.environ[MARK] = record["incarnation"]
        os.execvp(command[0], command)  # noqa: S606 - starting the person's command is what this is for
    except OSError as error:
        os.write(refused_write, (error.strerror or str(error)).encode("utf-8", "replace"))
    finally:
        os._exit(NEVER_EXECUTED)


def _write_end(record_path: Path, record: dict[str, Any], status: int, reason: str) -> None:
    ended_at = _clock()
    code = os.waitstatus_to_exitcode(status)
    record |= {"ended_at": ended_at, "exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None}
    if reason:
        record |= {"exit_code": None, "error": reason}
    folder = record_path.parent.parent
    record |= _cancelled(folder, record, ended_at)
    ended = folder / ENDED / f"{int(ended_at)}-{record['id']}.json"
    pause = 1.0
    while True:
        try:
            write_whole(ended, as_text(record))
            record_path.unlink(missing_ok=True)
            sync_folder(record_path.parent)
            return
        except OSError as error:
            # A full disk or an unmounted one comes back; the exit status is known here and nowhere else. A folder that
            # stays away was deleted, and nobody is left to tell.
            deleted = isinstance(error, FileNotFoundError)
            if _clock() - ended_at > (_FOLDER_STAYS_AWAY_S if deleted else _KEEP_TRYING_S):
                raise
            time.sleep(pause)
            pause = min(60.0, pause * 2)


def _cancelled(folder: Path, record: dict[str, Any], ended_at: float) -> dict[str, Any]:
    """Whether this end was asked for: the mark that a cancel leaves before it sends its signal."""
    try:
        incarnation, approval, at = (folder / CANCELS / record["id"]).read_text(encoding="ascii").split()
        if incarnation == record["incarnation"] and int(at) <= ended_at:
            return {"cancelled_at": int(at), "approval": int(approval)}
    except (OSError, ValueError):
        return {}
    return {}


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]))
    except (OSError, ValueError, KeyError) as error:
        # The launcher reads this from the pipe's other end, if it still listens.
        with contextlib.suppress(OSError):
            os.write(int(sys.argv[2]), f"failed {error}".encode("utf-8", "replace"))
        sys.exit(errno.EIO)
