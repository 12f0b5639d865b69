"""The shell of this machine: for a daemon on a login node, and for processes that run beside it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from supervisor.clusters.shell import STDERR_LIMIT, Ran, whole
from supervisor.model.errors import LoginFailed, TookTooLong

_PIECE = 64 * 2**10
_GRACE_S = 2.0
"""Between asking a process group to end and ending it."""


class LocalShell:
    """Scripts run here, each in a session of its own, so that a script that hangs is ended with all it started."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    @property
    def place(self) -> str:
        return "this machine"

    async def run(self, script: str, *, limit_s: float, limit_bytes: int = 64 * 2**20) -> Ran:
        try:
            return await captured(("sh", "-s"), whole(script), limit_s=limit_s, limit_bytes=limit_bytes)
        except TimeoutError:
            raise TookTooLong(self._cluster, "the command on this machine", limit_s) from None
        except OSError as error:
            raise LoginFailed(self._cluster, f"no shell could be started on this machine: {error}") from error

    async def close(self) -> None:
        """Nothing is kept open between runs."""


async def captured(argv: Sequence[str], given: bytes, *, limit_s: float, limit_bytes: int) -> Ran:
    """Run a program with ``given`` on its standard input and keep a bounded part of what it prints.

    Raises TimeoutError after ``limit_s``, and the OSError of a program that can't be started. A run that is given up is
    ended with its whole process group. A death by signal N reads as exit status 128 + N, as shells have it.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise OSError("no pipes to the program")
    ended = False
    try:
        async with asyncio.timeout(limit_s), asyncio.TaskGroup() as both:
            both.create_task(_feed(process.stdin, given))
            errors = both.create_task(_kept(process.stderr, STDERR_LIMIT))
            out, truncated = await _kept(process.stdout, limit_bytes, stop_when_over=True)
            if truncated:
                _signal_group(process.pid, signal.SIGKILL)
                await _kept(process.stdout, 0)  # what was on its way: an unread pipe would stay open
            status = await process.wait()
        ended = True
    finally:
        if not ended:
            await _end(process, process.stdout, process.stderr)
    if truncated:
        return Ran(None, out, errors.result()[0], truncated=True)
    return Ran(status if status >= 0 else 128 - status, out, errors.result()[0])


async def _feed(stdin: asyncio.StreamWriter, given: bytes) -> None:
    # A program that ends before it has read everything has said so by its exit status.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stdin.write(given)
        await stdin.drain()
    stdin.close()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await stdin.wait_closed()


async def _kept(stream: asyncio.StreamReader, limit: int, *, stop_when_over: bool = False) -> tuple[bytes, bool]:
    kept = bytearray()
    over = False
    while piece := await stream.read(_PIECE):
        room = limit - len(kept)
        kept += piece[:room]
        if len(piece) > room:
            over = True
            if stop_when_over:
                break
    return bytes(kept), over


async def _end(process: asyncio.subprocess.Process, *pipes: asyncio.StreamReader) -> None:
    """End the group of a run that was given up. Waits a little for it and its pipes, and never longer."""
    for which in (signal.SIGTERM, signal.SIGKILL):
        _signal_group(process.pid, which)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await asyncio.gather(*(_kept(pipe, 0) for pipe in pipes))
                await process.wait()
                return


def _signal_group(leader: int, which: signal.Signals) -> None:
    """The group bears its leader's number for as long as any of it lives. macOS answers EPERM for a group of zombies."""
    if leader > 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, which)
