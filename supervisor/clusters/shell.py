"""A place where a POSIX shell script can be run, over whatever transport.

A script goes in on standard input of ``sh -s``, so that no login shell's quoting rules touch it. Every value in a script
passes through :func:`quoted`. A transport never prompts, and says how a run ended instead of raising where the far side
only dropped the line.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Protocol

STDERR_LIMIT = 64 * 2**10
"""Bytes of standard error kept of one run."""


def quoted(value: str) -> str:
    """One shell word that means exactly ``value``. Every value that reaches a remote shell passes here.

    Raises ValueError for NUL, which no argument can hold.
    """
    if "\0" in value:
        raise ValueError("a shell argument cannot hold a NUL byte")
    return shlex.quote(value)


def whole(script: str) -> bytes:
    """``script`` as it goes down the line: run only if it arrived to its last byte, and with nothing on its standard input.

    A shell runs what it reads as it comes. Cut off in the middle, ``kill -TERM -- -1234`` would be ``kill -TERM -- -1``;
    inside braces a script without its end is a syntax error. And no command in it can eat the rest of the script.
    """
    return f"{{\n{script}\n}} </dev/null\n".encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Ran:
    """How a script ended. Only ``exit_status == 0`` is success; None means the connection dropped first."""

    exit_status: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    """More came on standard output than the limit allowed: the rest was thrown away and the script was ended.

    Then ``exit_status`` is None. Standard error is kept up to ``STDERR_LIMIT`` and what follows is dropped silently."""


class Shell(Protocol):
    """One far (or near) side, kept open and healed between runs."""

    @property
    def place(self) -> str:
        """For people: ``alice@login01:22`` or ``this machine``."""
        ...

    async def run(self, script: str, *, limit_s: float, limit_bytes: int = 64 * 2**20) -> Ran:
        """Run ``script`` by ``sh -s``. Raises ClusterError subclasses: LoginFailed, LoginNeedsPerson, TookTooLong.

        A connection found dead is opened again once before the run; a run that has started is never repeated here.
        """
        ...

    async def close(self) -> None: ...
