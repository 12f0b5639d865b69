"""Test 13: a log streamed over asyncssh into the scanner, against ``ssh -c aes128-gcm@openssh.com cat >/dev/null``.

    python -m bench.diagnosis.stream [--mb 100] [--rounds 5]

By turns on one private loopback sshd; median of the ratios of each round, wall time and CPU (of the client's side; sshd
costs both the same). The stream is of 100 MB where nothing else is said: the ratio does not hang on the length once
connections are made, which is outside of the clock. The scanner runs in a process of its own, fed through a pipe: in a
thread beside asyncssh it waits for the interpreter's lock at every match, and the ratio is about 2. Goal: at most 1.6 x the time, the scan with line numbers included.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import multiprocessing
import os
import queue
import shlex
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import asyncssh

from bench.diagnosis import logs
from supervisor.app.packs import prepare
from tests.clusters.shells.private_sshd import SSHD, PrivateSshd

GOAL, FAIL = 1.6, 3.0
CIPHER = "aes128-gcm@openssh.com"
DATA = Path(__file__).parents[2] / "bench" / "data" / "diagnosis"
F_SETPIPE_SZ = 1031
AHEAD = 16 << 20


class Into(asyncssh.SSHClientSession[bytes]):
    """Hands what arrives to a thread that writes it into a pipe, at most `AHEAD` bytes ahead of the scanner."""

    def __init__(self, pipe: int) -> None:
        self._pipe, self._waiting, self._paused = pipe, queue.SimpleQueue[bytes](), False
        self._got = self._written = 0
        self._loop = asyncio.get_running_loop()
        self.ended = self._loop.create_future()
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        threading.Thread(target=self._write, daemon=True).start()

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """See asyncssh."""
        self._channel = chan

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """See asyncssh."""
        self._waiting.put(data)
        self._got += len(data)
        if self._got - self._written > AHEAD and self._channel is not None:
            self._paused = True
            self._channel.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncssh."""
        self._waiting.put(b"")
        self.ended.set_result(exc)

    def _write(self) -> None:
        while data := self._waiting.get():
            view = memoryview(data)
            while view:
                view = view[os.write(self._pipe, view) :]
            self._written += len(data)
            if self._paused and self._got - self._written < AHEAD // 2:
                self._paused = False
                self._loop.call_soon_threadsafe(self._go_on)
        os.close(self._pipe)

    def _go_on(self) -> None:
        if self._channel is not None:
            self._channel.resume_reading()


def scan_when_told(orders: Connection) -> None:
    """The scanning process: for each path of a pipe that it is sent, the bytes and lines that came through it."""
    scanner = prepare().scanner
    orders.send("ready")
    while path := orders.recv():
        with open(path, "rb", buffering=0) as stream:
            reading = scanner.read(path, stream)
        orders.send((reading.bytes, reading.lines))


async def scanned(connection: asyncssh.SSHClientConnection, path: Path, fifo: Path, orders: Connection) -> int:
    """One log, read on the other side and scanned here while it arrives; its bytes."""
    orders.send(str(fifo))
    outlet = os.open(fifo, os.O_WRONLY)
    fcntl.fcntl(outlet, F_SETPIPE_SZ, 1 << 20)
    session = Into(outlet)
    await connection.create_session(
        lambda: session, f"exec cat {shlex.quote(str(path))}", encoding=None, window=8 << 20, max_pktsize=1 << 18
    )
    lost = await session.ended
    if lost is not None:
        raise lost
    size, _lines = orders.recv()
    return int(size)


def timed_ssh(sshd: PrivateSshd, path: Path) -> tuple[float, float]:
    """(wall, CPU) seconds of the system's client; its login, of a few hundredths, is in it."""
    login = ["-p", str(sshd.port), "-l", sshd.user, "-i", str(sshd.key), "-o", f"UserKnownHostsFile={sshd.known_hosts}"]
    argv = ["ssh", "-F", "none", "-c", CIPHER, *login, "127.0.0.1", f"exec cat {shlex.quote(str(path))}"]
    before, start = os.times(), time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def cpu_of(pid: int) -> float:
    """CPU seconds of a process that still runs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measured(sshd: PrivateSshd, path: Path, rounds: int) -> dict[str, float]:
    orders, theirs_end = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=scan_when_told, args=(theirs_end,), daemon=True)
    process.start()
    orders.recv()
    fifo = sshd.folder / "stream"
    os.mkfifo(fifo)
    connection = await asyncssh.connect(
        "127.0.0.1",
        sshd.port,
        config=None,
        username=sshd.user,
        client_keys=[str(sshd.key)],
        known_hosts=str(sshd.known_hosts),
        agent_path=None,
        encryption_algs=[CIPHER],
        compression_algs=["none"],
    )
    pairs = []
    async with connection:
        for _ in range(rounds + 1):
            theirs = timed_ssh(sshd, path)
            start, cpu = time.perf_counter(), time.process_time() + cpu_of(process.pid or 0)
            size = await scanned(connection, path, fifo, orders)
            wall = time.perf_counter() - start
            pairs.append((theirs, (wall, time.process_time() + cpu_of(process.pid or 0) - cpu)))
            assert size == path.stat().st_size
    orders.send("")
    process.join()
    pairs = pairs[1:]
    return {
        "ssh_s": round(statistics.median(wall for (wall, _), _ in pairs), 3),
        "ours_s": round(statistics.median(wall for _, (wall, _) in pairs), 3),
        "ratio": round(statistics.median(ours / theirs for (theirs, _), (ours, _) in pairs), 2),
        "cpu_ratio": round(statistics.median(ours / theirs for (_, theirs), (_, ours) in pairs), 2),
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--mb", type=float, default=100)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    if SSHD is None or shutil.which("ssh") is None:
        print("test 13 not measured: it needs OpenSSH's sshd and ssh on this machine")
        return 0
    path = logs.make(DATA / f"stream-{given.mb:g}.log", given.mb)
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "home").mkdir()
        sshd = PrivateSshd(Path(name), SetEnv=f"HOME={name}/home")
        try:
            result = asyncio.run(measured(sshd, path, given.rounds))
        finally:
            sshd.stop()
    print(json.dumps({"test": 13, "mb": given.mb, **result, "goal": GOAL, "fail": FAIL}))
    return 1 if result["ratio"] > GOAL else 0


if __name__ == "__main__":
    raise SystemExit(main())
