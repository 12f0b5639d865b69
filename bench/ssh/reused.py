"""Test 14: a script over the kept connection against the system's ssh through a master connection, on one private sshd.

    python -m bench.ssh.reused [--rounds 7] [--execs 20]

Interleaved rounds in one run; wall time of ``execs`` scripts one after the other, and of as many at once; median of the
ratios of each round. Both go to the same loopback sshd with the same login shell, whose start-up files are empty: they
would cost both the same and more than all else. Goal: at most 0.8 x of ``ssh -S master``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from supervisor.clusters.transports import shell_for
from tests.clusters.shells.private_sshd import PrivateSshd

GOAL, FAIL = 0.8, 1.5


async def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--execs", type=int, default=20)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "home").mkdir()
        (folder / "home").chmod(0o755)
        sshd = PrivateSshd(folder, SetEnv=f"HOME={folder}/home", MaxSessions="100")
        try:
            result = await measured(sshd, given.rounds, given.execs)
        finally:
            sshd.stop()
    print(json.dumps(result))
    return 1 if result["ratio"] > FAIL else 0


async def measured(sshd: PrivateSshd, rounds: int, execs: int) -> dict[str, float]:
    master = ["ssh", "-F", "none", "-S", str(sshd.folder / "master"), "127.0.0.1"]
    login = ["-p", str(sshd.port), "-l", sshd.user, "-i", str(sshd.key), "-o", f"UserKnownHostsFile={sshd.known_hosts}"]
    subprocess.run(
        [*master[:-1], "-M", "-o", "ControlPersist=yes", "-fN", *login, master[-1]],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    shell = shell_for("bench", sshd.node, sshd.settings())

    async def by_ssh() -> None:
        for _ in range(execs):
            subprocess.run([*master, "true"], check=True)

    async def by_us() -> None:
        for _ in range(execs):
            ran = await shell.run("true", limit_s=30)
            assert ran.exit_status == 0

    async def by_ssh_at_once() -> None:
        processes = [subprocess.Popen([*master, "true"]) for _ in range(execs)]
        assert not any(process.wait() for process in processes)

    async def by_us_at_once() -> None:
        done = await asyncio.gather(*(shell.run("true", limit_s=30) for _ in range(execs)))
        assert all(ran.exit_status == 0 for ran in done)

    pairs: dict[str, tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]] = {
        "": (by_ssh, by_us),
        "at_once_": (by_ssh_at_once, by_us_at_once),
    }
    result: dict[str, float] = {"test": 14, "execs": execs}
    try:
        for name, (anchor, ours) in pairs.items():
            taken = [(await clock(anchor), await clock(ours)) for _ in range(rounds + 1)][1:]
            result[f"{name}ssh_ms"] = round(statistics.median(theirs for (theirs, _), _ in taken) / execs * 1000, 2)
            result[f"{name}ours_ms"] = round(statistics.median(mine for _, (mine, _) in taken) / execs * 1000, 2)
            result[f"{name}ratio"] = round(statistics.median(mine / theirs for (theirs, _), (mine, _) in taken), 2)
            result[f"{name}cpu_ratio"] = round(statistics.median(mine / theirs for (_, theirs), (_, mine) in taken), 2)
    finally:
        await shell.close()
        subprocess.run([*master[:-1], "-O", "exit", master[-1]], capture_output=True, check=False)
    return result | {"goal": GOAL, "fail": FAIL}


async def clock(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Wall seconds, and CPU seconds of this process and the programs that it started."""
    began, cpu = time.perf_counter(), os.times()
    await work()
    now = os.times()
    return time.perf_counter() - began, sum(now[:4]) - sum(cpu[:4])


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
