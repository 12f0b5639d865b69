"""A real S3 server on loopback for one test session, in an environment of its own (``make .venv/s3-server.stamp``)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAM = Path(sys.prefix) / "s3-server" / "bin" / "moto_server"


@dataclass
class S3Server:
    url: str

    def request(self, method: str, path: str, data: bytes | None = None) -> bytes:
        """An unsigned request: the server checks no signature unless told to."""
        asked = urllib.request.Request(
            f"{self.url}/{path}", data=data, method=method, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return bytes(answer.read())

    def bucket(self, name: str) -> str:
        self.request("PUT", name)
        return name

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self.request("PUT", f"{bucket}/{key}", data)

    def reset(self) -> None:
        self.request("POST", "moto-api/reset")

    def check_signatures(self, *, on: bool) -> None:
        """On: every request must be allowed by a user's policy, and there is no user."""
        self.request("POST", "moto-api/reset-auth", b"0" if on else b"inf")


@pytest.fixture(scope="session")
def _s3_process() -> Iterator[S3Server]:
    if not PROGRAM.exists():
        pytest.skip("no S3 server here; make .venv/s3-server.stamp installs one")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_"))}
    process = subprocess.Popen(
        [str(PROGRAM), "-H", "127.0.0.1", "-p", str(port)],
        env=clean,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    server = S3Server(f"http://127.0.0.1:{port}")
    try:
        for _ in range(600):
            if process.poll() is not None:
                pytest.skip(f"the S3 server ended at once with {process.returncode}")
            try:
                server.request("GET", "moto-api/data.json")
                break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        else:
            pytest.skip("the S3 server did not answer within a minute")
        yield server
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


@pytest.fixture
def s3(_s3_process: S3Server) -> Iterator[S3Server]:
    """The server, empty."""
    _s3_process.reset()
    yield _s3_process
    _s3_process.check_signatures(on=False)
