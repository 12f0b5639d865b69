"""The far end of an exec: an API server that hands a WebSocket of ``v4.channel.k8s.io`` on to a kubelet, as a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

PROTOCOL = "v4.channel.k8s.io"
IN, OUT, ERR, STATUS = b"\0", b"\1", b"\2", b"\3"

Play = Callable[["Session"], Awaitable[None]]


class Session:
    """One exec: what was asked, and the socket."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        self.request, self.socket = request, socket
        self.given = b""

    async def say(self, channel: bytes, data: bytes) -> None:
        await self.socket.send_bytes(channel + data)

    async def end(self, status: dict[str, Any]) -> None:
        await self.say(STATUS, json.dumps({"metadata": {}} | status).encode())
        await self.socket.close()

    async def ended_with(self, code: int) -> None:
        """The status as a kubelet words it."""
        if code == 0:
            await self.end({"status": "Success"})
            return
        await self.end(
            {
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": f"command terminated with non-zero exit code: exit status {code}",
                "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
            }
        )

    async def run(self) -> None:
        """A real shell at the other end, as in a container."""
        command = self.request.query.getall("command")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        assert process.stdin is not None
        feeding = asyncio.create_task(self._feed(process.stdin))
        await asyncio.gather(self._pump(OUT, process.stdout), self._pump(ERR, process.stderr))
        code = await process.wait()
        feeding.cancel()
        await self.ended_with(code)

    async def _feed(self, stdin: asyncio.StreamWriter) -> None:
        async for message in self.socket:
            if message.type is WSMsgType.BINARY and message.data[:1] == IN:
                self.given += message.data[1:]
                with contextlib.suppress(ConnectionError):
                    stdin.write(message.data[1:])
                    await stdin.drain()

    async def _pump(self, channel: bytes, stream: asyncio.StreamReader | None) -> None:
        assert stream is not None
        while data := await stream.read(1000):
            await self.say(channel, data)


class ChannelServer:
    """Answers every exec in the way of ``play``, or with ``refusal`` where that is set."""

    def __init__(self) -> None:
        self.play: Play = Session.run
        self.refusal: web.Response | None = None
        self.sessions: list[Session] = []
        self.asked: list[web.Request] = []
        self.port = 0
        self.scheme = "http"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        if self.refusal is not None:
            return self.refusal
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        session = Session(request, socket)
        self.sessions.append(session)
        with contextlib.suppress(ConnectionError):
            await self.play(session)
        return socket

    def kubeconfig(self, folder: Path, **cluster: Any) -> Path:
        file = folder / "kubeconfig"
        server = {"server": f"{self.scheme}://localhost:{self.port}"} | cluster
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "east",
            "contexts": [{"name": "east", "context": {"cluster": "odd", "user": "alice"}}],
            "clusters": [{"name": "odd", "cluster": server}],
            "users": [{"name": "alice", "user": {"token": "first"}}],
        }
        file.write_text(json.dumps(body))
        return file


@contextlib.asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[ChannelServer]:
    server = ChannelServer()
    app = web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "localhost", 0, ssl_context=tls)
    await site.start()
    server.port = runner.addresses[0][1]
    server.scheme = "https" if tls is not None else "http"
    try:
        yield server
    finally:
        await runner.cleanup()
