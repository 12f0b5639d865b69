"""Words to systemd, where it listens (``$NOTIFY_SOCKET``): READY, WATCHDOG, STATUS, RELOADING, STOPPING. Elsewhere nothing."""

from __future__ import annotations

import os
import socket
import time


class ServiceNotify:
    """The socket that systemd names. A refused word is dropped: the daemon's work does not hang on it."""

    def __init__(self, address: str | None = None) -> None:
        named = address if address is not None else os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + named[1:] if named.startswith("@") else named

    @property
    def watched(self) -> bool:
        """Whether systemd expects signs of life from this very process."""
        return bool(os.environ.get("WATCHDOG_USEC")) and os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(
            os.getpid()
        )

    @property
    def watchdog_s(self) -> float | None:
        """Half of what systemd allows between two signs of life, seconds."""
        return int(os.environ["WATCHDOG_USEC"]) / 2e6 if self.watched else None

    def ready(self, status: str) -> None:
        self._say(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        self._say(f"STATUS={status}")

    def alive(self) -> None:
        self._say("WATCHDOG=1")

    def reloading(self) -> None:
        self._say(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._say("STOPPING=1")

    def _say(self, words: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.connect(self._address)
                line.sendall(words.encode())
        except OSError:
            return
