"""An API server that answers as it is told, for answers that the real one cannot be brought to give: a real socket, plain HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Answer = Callable[["Asked"], None]


class Asked(BaseHTTPRequestHandler):
    """One request; an answer is given by its methods, or by writing to ``wfile``."""

    protocol_version = "HTTP/1.1"
    server: OddServer

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        self.server.asked.append(self.path)
        self.server.tokens.append(str(self.headers.get("Authorization")))
        answer = self.server.answers.get(where.path)
        if answer is None:
            self.status(404, "NotFound", f"{where.path} is not there")
        else:
            answer(self)

    do_DELETE = do_GET

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""

    def say(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def json(self, status: int, thing: Any, **headers: str) -> None:
        self.say(status, json.dumps(thing).encode(), **headers)

    def status(self, code: int, reason: str, message: str, **headers: str) -> None:
        """An error as the API server words it."""
        thing = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}
        self.json(code, thing, **headers)


class OddServer(ThreadingHTTPServer):
    """Answers by path. What is asked, and with which credentials, is kept."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.tokens: list[str] = []
        self.over = threading.Event()
        self.folder = folder
        self.list_of("Pod", "/api/v1/namespaces/train/pods", [])
        self.list_of("Job", "/apis/batch/v1/namespaces/train/jobs", [])
        self.answers["/version"] = lambda asked: asked.json(200, {"gitVersion": "v1.33.1"})
        self.answers["/apis"] = lambda asked: asked.json(200, {"kind": "APIGroupList", "groups": []})
        self.answers["/api/v1/namespaces/train"] = lambda asked: asked.json(200, {"kind": "Namespace"})
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is what some tests are about."""

    def list_of(self, kind: str, path: str, items: list[Any], resume: str = "") -> None:
        thing = {"kind": f"{kind}List", "metadata": {"resourceVersion": "7", "continue": resume}, "items": items}
        self.answers[path] = lambda asked: asked.json(200, thing)

    def end(self) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()

    def kubeconfig(self, user: dict[str, Any] | None = None, **context: str) -> Path:
        """A kubeconfig that leads here."""
        file = self.folder / "kubeconfig"
        given = {"cluster": "odd", "user": "alice", "namespace": "train"} | context
        file.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "east",
                    "contexts": [{"name": "east", "context": given}],
                    "clusters": [{"name": "odd", "cluster": {"server": f"http://127.0.0.1:{self.server_port}"}}],
                    "users": [{"name": "alice", "user": user or {"token": "first"}}],
                }
            )
        )
        return file
