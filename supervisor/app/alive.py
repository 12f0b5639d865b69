"""Is a daemon that wrote its name into the store still running? Known only of this machine's; of others nothing is claimed."""

from __future__ import annotations

import os


def name_of(started: float) -> str:
    """This process as an owner of leases: ``host:pid:start``, the start in seconds since 1970."""
    return f"{os.uname().nodename}:{os.getpid()}:{int(started)}"


def gone(owner: str) -> bool:
    """True only where ``owner`` ran on this machine and runs no more; a reused pid is told by its start."""
    host, _, rest = owner.rpartition(":")[0].rpartition(":")
    started = owner.rpartition(":")[2]
    if host != os.uname().nodename or not rest.isdecimal() or not started.isdecimal():
        return False
    return process_gone(int(rest), int(started))


def process_gone(pid: int, started: float) -> bool:
    """True where no process ``pid`` runs here that can be the one that called itself a daemon at ``started``."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    state, began = _state_and_start(pid)
    # A daemon gives its name after it began; a process that began later only bears the same number.
    return state == "Z" or (began is not None and began > started + 60)


def _state_and_start(pid: int) -> tuple[str | None, float | None]:
    """A process's state letter and start, seconds since 1970; None for what this system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 (pathlib is dear to import, and `status` comes by here)
            fields = file.read().rpartition(b")")[2].split()
        with open("/proc/stat", "rb") as file:  # noqa: PTH123
            boot = next(line for line in file if line.startswith(b"btime"))
    except (OSError, StopIteration):
        return _state_elsewhere(pid)
    return fields[0].decode(), int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _state_elsewhere(pid: int) -> tuple[str | None, float | None]:
    """The same where there is no /proc (macOS)."""
    import psutil

    try:
        process = psutil.Process(pid)
        return ("Z" if process.status() == psutil.STATUS_ZOMBIE else "R"), process.create_time()
    except psutil.Error:
        return None, None
