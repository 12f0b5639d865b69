"""What lies under a request: connections that whoever waits can hang up, and an answer's bytes, read into memory that is there."""

from __future__ import annotations

import http.client
import socket
import threading
from dataclasses import dataclass, field
from typing import Any

import urllib3

_STEP = 2**18
"""Bytes by which memory is asked for; an API server does not announce the length of a long list."""


@dataclass(slots=True, eq=False)
class Line:
    """One request under way, so that whoever waits for it can hang up."""

    connection: Any = None
    body: http.client.HTTPResponse | None = None
    """The answer's own stream, of the last one that came: before it, a proxy may have answered."""
    hung_up: threading.Event = field(default_factory=threading.Event)

    def hang_up(self) -> None:
        self.hung_up.set()
        sock = getattr(self.connection, "sock", None)
        if isinstance(sock, socket.socket):
            try:
                # The base method: SSLSocket's own would drop its TLS state under the reading thread.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                return


on_this_thread = threading.local()
"""``line``: the request that this thread is carrying out."""


class _Body(http.client.HTTPResponse):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        on_this_thread.line.body = self


class _Http(urllib3.connection.HTTPConnection):
    response_class = _Body

    def request(self, *args: Any, **kwargs: Any) -> None:
        on_this_thread.line.connection = self
        super().request(*args, **kwargs)


class _Https(urllib3.connection.HTTPSConnection):
    response_class = _Body

    def request(self, *args: Any, **kwargs: Any) -> None:
        on_this_thread.line.connection = self
        super().request(*args, **kwargs)


class HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Http


class HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Https


class Room:
    """Memory for answers that are read one after the other. It is asked for once; a later answer lies where the one before lay."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def fill(self, body: http.client.HTTPResponse, most_bytes: int) -> memoryview | None:
        """A whole body, in here until the next one; None where it is longer than that. Raises IncompleteRead and OSError."""
        expected = body.length
        if expected is not None and expected > most_bytes:
            return None
        size = 0
        while size != expected:
            if size >= len(self._memory):
                self._grow(size, expected or 2 * size)
            got = body.readinto(memoryview(self._memory)[size:])
            size += got
            if size > most_bytes:
                return None
            if not got:
                if expected is not None:
                    raise http.client.IncompleteRead(b"", expected - size)
                break
        return memoryview(self._memory)[:size]

    def _grow(self, used: int, wanted: int) -> None:
        """Room for a little more than ``wanted``: the next page of a list is seldom of the very same length."""
        memory = bytearray((wanted // _STEP + 1) * _STEP)
        memory[:used] = memoryview(self._memory)[:used]
        self._memory = memory
