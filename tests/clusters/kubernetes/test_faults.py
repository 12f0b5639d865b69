"""POLL-1: trouble with the real API server changes no job."""

from __future__ import annotations

import asyncio
import http.client
import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from supervisor.clusters import kubernetes_calls as calls
from supervisor.clusters.kubernetes_calls import ApiServer, Outdated, path_of
from supervisor.clusters.kubernetes_login import log_in
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.model.logs import LogUnread, LogWanted
from supervisor.model.polling import Polled, Unreached
from tests.clusters.kubernetes.conftest import Eyes, MakeEyes
from tests.kube_lab import KubeLab, pod

pytestmark = pytest.mark.lab


def ran(lab: KubeLab, eyes: Eyes, *names: str) -> None:
    for name in names:
        lab.create(eyes.namespace, pod(name, "running"))
    for name in names:
        lab.until_phase(eyes.namespace, name, "Running")


async def test_stopping_the_api_server_between_two_polls_changes_no_job(kube_lab: KubeLab, eyes: Eyes) -> None:
    ran(kube_lab, eyes, "a")
    before = await eyes.poll()

    with kube_lab.stopped():
        reading = await eyes.look()
        logs = await eyes.cluster.read_logs([LogWanted("a", f"pod/{eyes.namespace}/a/main", 0, 100)], eyes.now())
        (line,) = await eyes.cluster.check(eyes.now())

    assert isinstance(reading, Unreached)
    assert "connection refused" in reading.reason
    assert all(isinstance(piece, LogUnread) for piece in logs.values())
    assert (line.what, line.result) == ("reach", "fail")
    after = await eyes.poll()
    assert after.lines == before.lines
    assert (list(after.changed), list(after.ended)) == ([], [])


async def test_a_hanging_api_server_costs_the_deadline_and_no_more(kube_lab: KubeLab, eyes_of: MakeEyes) -> None:
    """POLL-6: the client's own retries would make four times of it."""
    eyes = eyes_of(request_timeout_s=1.5, poll_timeout_s=4)
    ran(kube_lab, eyes, "a")
    await eyes.poll()

    with kube_lab.paused():
        began = time.monotonic()
        reading = await eyes.look()
        took = time.monotonic() - began

    assert isinstance(reading, Unreached)
    assert "did not answer within 1.5 s" in reading.reason
    assert took < 2.5
    assert isinstance(await eyes.look(), Polled)


async def test_a_user_without_rights_is_told_in_the_servers_words(eyes_of: MakeEyes) -> None:
    eyes = eyes_of(context="nobody")

    reading = await eyes.look()
    lines = {line.what: line for line in await eyes.cluster.check(eyes.now())}

    assert isinstance(reading, Unreached)
    assert 'pods is forbidden: User "nobody" cannot list resource "pods"' in reading.reason
    assert reading.hint
    assert lines[f"namespace {eyes.namespace}"].result == "fail"


async def test_a_viewer_can_be_everything_that_a_poll_needs(kube_lab: KubeLab, eyes_of: MakeEyes) -> None:
    eyes = eyes_of(context="viewer")
    ran(kube_lab, eyes, "a")

    reading = await eyes.poll()
    for _ in range(60):  # a controller of the lab gathers a viewer's rights some seconds after the kinds were made
        if not reading.problems:
            break
        await asyncio.sleep(0.5)
        reading = await eyes.poll()

    assert list(reading.lines) == [eyes.id("pod", "a")]
    assert reading.problems == ()
    assert {line.result for line in await eyes.cluster.check(eyes.now())} == {"ok"}


async def test_a_client_certificate_is_a_credential_like_any_other(kube_lab: KubeLab, eyes_of: MakeEyes) -> None:
    eyes = eyes_of(context="cert-admin")
    ran(kube_lab, eyes, "a")

    assert list((await eyes.poll()).lines) == [eyes.id("pod", "a")]
    (line,) = [line for line in await eyes.cluster.check(eyes.now()) if line.what == "credentials"]
    assert "client certificate ends at" in line.text


async def test_a_token_that_the_server_does_not_know_is_no_empty_cluster(
    kube_lab: KubeLab, eyes_of: MakeEyes, tmp_path
) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "kubeconfig"
    file.write_text(kube_lab.kubeconfig.read_text().replace(kube_lab.facts["KUBE_LAB_TOKEN"], "of-yesterday"))

    reading = await eyes_of(kubeconfig=file).look()

    assert isinstance(reading, Unreached)
    assert "401" in reading.reason
    assert "of-yesterday" not in reading.reason


async def test_an_authority_that_did_not_sign_the_server_is_not_trusted(
    kube_lab: KubeLab, eyes_of: MakeEyes, tmp_path
) -> None:  # type: ignore[no-untyped-def]
    text = kube_lab.kubeconfig.read_text()
    file = tmp_path / "kubeconfig"
    lines = [part for part in text.splitlines() if "certificate-authority-data" not in part]
    server = f'  cluster: {{server: "{kube_lab.facts["KUBE_LAB_SERVER"]}"}}'
    lines.insert(lines.index("- name: kube-lab") + 1, server)
    file.write_text("\n".join(lines))

    reading = await eyes_of(kubeconfig=file).look()

    assert isinstance(reading, Unreached)
    assert "no trusted connection" in reading.reason


async def test_every_namespace_is_one_list(kube_lab: KubeLab, eyes_of: MakeEyes) -> None:
    eyes = eyes_of(namespaces=("*",))
    ran(kube_lab, eyes, "a")

    assert eyes.id("pod", "a") in (await eyes.poll()).lines


async def test_two_namespaces_are_one_cluster_and_one_forbidden_makes_it_unknown(
    kube_lab: KubeLab, eyes_of: MakeEyes
) -> None:
    """A reading that lacks a part of what is configured would make that part look empty."""
    other = kube_lab.namespace()
    eyes = eyes_of()
    both = eyes_of(namespaces=(eyes.namespace, other))
    ran(kube_lab, eyes, "a")
    kube_lab.create(other, pod("b", "running"))
    kube_lab.until_phase(other, "b", "Running")

    assert sorted((await both.poll()).lines) == sorted([eyes.id("pod", "a"), f"{other}/pod/b"])
    kube_lab.clear(other)


# -- lists that grow old -----------------------------------------------------------------------------------------------


async def test_a_list_that_is_compacted_in_the_middle_is_outdated_and_never_short(
    kube_lab: KubeLab, eyes: Eyes
) -> None:
    """POLL-2."""
    ran(kube_lab, eyes, "a", "b")
    settings = KubernetesSettings(kubeconfig=kube_lab.kubeconfig)
    server = ApiServer("east", log_in("east", settings, datetime.now(UTC)), 5, 1)
    path = path_of(calls.PODS, namespace=eyes.namespace)
    first = await server.get(path, {"limit": "1"}, read=lambda answer: json.loads(answer.data))
    ran(kube_lab, eyes, "c")
    kube_lab.lab("compact")

    with pytest.raises(Outdated, match="410"):
        await server.get(path, {"limit": "1", "continue": first["metadata"]["continue"]}, read=lambda answer: answer)
    server.close()


async def test_a_poll_during_which_history_is_thrown_away_is_whole_or_none(
    kube_lab: KubeLab, eyes_of: MakeEyes
) -> None:
    eyes = eyes_of(page_size=1)
    names = [f"p{n}" for n in range(12)]
    ran(kube_lab, eyes, *names)
    over = threading.Event()

    def throw_away() -> None:
        path = f"/api/v1/namespaces/{eyes.namespace}/pods/p0"
        number = 0
        while not over.is_set():
            number += 1
            kube_lab.merge(path, {"metadata": {"labels": {"number": str(number)}}})
            _compact(kube_lab)

    thread = threading.Thread(target=throw_away, daemon=True)
    thread.start()
    try:
        readings = [await eyes.look() for _ in range(10)]
    finally:
        over.set()
        thread.join(10)

    for reading in readings:
        if isinstance(reading, Polled):
            assert sorted(reading.lines) == sorted(eyes.id("pod", name) for name in names)
        else:
            assert "no longer kept" in reading.reason


def _compact(lab: KubeLab) -> None:
    where = urlsplit(lab.facts["KUBE_LAB_ETCD"])

    def call(path: str, body: object) -> dict[str, dict[str, str]]:
        connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=10)
        try:
            connection.request("POST", path, json.dumps(body))
            answer: dict[str, dict[str, str]] = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()

    revision = call("/v3/kv/range", {"key": "AA=="})["header"]["revision"]
    call("/v3/kv/compaction", {"revision": revision})


# -- proxies -----------------------------------------------------------------------------------------------------------


class Tunnels(BaseHTTPRequestHandler):
    """A proxy that opens tunnels, and says which."""

    server: TunnelServer

    def do_CONNECT(self) -> None:
        self.server.asked.append(self.path)
        if self.server.refuses:
            self.send_error(403)
            return
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as beyond:
            self.send_response(200)
            self.end_headers()
            ends = {self.connection: beyond, beyond: self.connection}
            while True:
                for one in select.select(list(ends), [], [])[0]:
                    data = one.recv(65536)
                    if not data:
                        return
                    ends[one].sendall(data)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


class TunnelServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Tunnels)
        self.asked: list[str] = []
        self.refuses = False


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[TunnelServer]:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    server = TunnelServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


async def test_a_cluster_behind_a_proxy_is_read_through_a_tunnel_and_a_proxy_that_refuses_is_named(
    kube_lab: KubeLab, eyes: Eyes, eyes_of: MakeEyes, proxy: TunnelServer, tmp_path: Path
) -> None:
    """POLL-1: the answer to CONNECT comes before the API server's, and is not taken for it."""
    ran(kube_lab, eyes, "a")
    document = yaml.safe_load(kube_lab.kubeconfig.read_text())
    for each in document["clusters"]:
        each["cluster"]["proxy-url"] = f"http://127.0.0.1:{proxy.server_port}"
    behind = tmp_path / "kubeconfig"
    behind.write_text(yaml.safe_dump(document))
    through = eyes_of(kubeconfig=behind)

    read = await through.poll()
    proxy.refuses = True
    refused = await eyes_of(kubeconfig=behind).look()

    assert list(read.lines) == [eyes.id("pod", "a")]
    assert set(proxy.asked) == {urlsplit(kube_lab.facts["KUBE_LAB_SERVER"]).netloc}
    assert isinstance(refused, Unreached)
    assert "403" in refused.reason
