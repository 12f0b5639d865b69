"""The far end of a port-forward: what a kubelet does with the WebSocket that an API server hands on (``v4.channel.k8s.io``)."""

from __future__ import annotations

import asyncio

from aiohttp import WSMsgType, web

PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERRORS = b"\0", b"\1"


class PortForwarder:
    """Joins a WebSocket to a port of this machine."""

    def __init__(self) -> None:
        self.port = 0
        self.drops = False
        """Connections are dropped once they are asked something."""
        self.sockets: set[web.WebSocketResponse] = set()

    async def forward(self, request: web.Request, port: int) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        self.sockets.add(socket)
        number = port.to_bytes(2, "little")
        await socket.send_bytes(_DATA + number)
        await socket.send_bytes(_ERRORS + number)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError as error:
            await socket.send_bytes(_ERRORS + f"error forwarding port {port}: {error}".encode())
            return socket
        back = asyncio.create_task(self._back(reader, socket))
        async for message in socket:
            assert message.type is WSMsgType.BINARY
            assert message.data[:1] == _DATA
            if self.drops:
                break
            writer.write(message.data[1:])
            await writer.drain()
        back.cancel()
        writer.close()
        self.sockets.discard(socket)
        return socket

    async def close(self) -> None:
        for socket in list(self.sockets):
            await socket.close()

    @staticmethod
    async def _back(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
        while data := await reader.read(1000):
            await socket.send_bytes(_DATA + data)
        await socket.close()
