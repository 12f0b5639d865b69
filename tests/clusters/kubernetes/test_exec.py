"""Exec in a container: the channel protocol over a real WebSocket, and what becomes of all that can go wrong on the way."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from supervisor.clusters import kubernetes_exec, node_commands, node_text
from supervisor.clusters.kubernetes_calls import ApiServer, NotAllowed, NotThere, Refused
from supervisor.clusters.kubernetes_exec import Container
from supervisor.clusters.kubernetes_login import log_in
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.clusters.shell import Ran
from supervisor.model.errors import AnswerUnusable, ClusterError, LoginFailed, TookTooLong
from supervisor.model.probe import Role
from tests.clusters.kubernetes.channel_server import ERR, OUT, STATUS, ChannelServer, Session, serving

WHERE = Container("train", "sft-0", "main")
PATH = "/api/v1/namespaces/train/pods/sft-0/exec"


@pytest.fixture
async def far() -> AsyncIterator[ChannelServer]:
    async with serving() as server:
        yield server


async def run(
    far: ChannelServer,
    folder: Path,
    script: str = "echo hello",
    *,
    limit_s: float = 20,
    limit_bytes: int = 10**6,
    where: Container = WHERE,
    **cluster: Any,
) -> Ran:
    settings = KubernetesSettings(kubeconfig=far.kubeconfig(folder, **cluster))
    server = ApiServer("east", log_in("east", settings, datetime.now(UTC)), 5, 2)
    try:
        return await kubernetes_exec.run(server, "east", where, script, limit_s=limit_s, limit_bytes=limit_bytes)
    finally:
        server.close()


def refused(status: int, reason: str, message: str) -> web.Response:
    """A refusal as an API server words it."""
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}
    return web.Response(status=status, text=json.dumps(body), content_type="application/json")


# -- what is run -------------------------------------------------------------------------------------------------------


async def test_a_script_runs_by_sh_in_the_container_that_was_named(far: ChannelServer, tmp_path: Path) -> None:
    ran = await run(far, tmp_path, "echo hello; echo oh >&2; exit 7")

    assert ran == Ran(7, b"hello\n", b"oh\ncommand terminated with non-zero exit code: exit status 7")
    (asked,) = far.asked
    assert asked.path == PATH
    assert asked.query.getall("command") == ["sh", "-s"]
    assert {key: asked.query[key] for key in asked.query if key != "command"} == {
        "container": "main",
        "stdin": "true",
        "stdout": "true",
        "stderr": "true",
    }
    assert asked.headers["Authorization"] == "Bearer first"
    assert asked.headers["Sec-WebSocket-Protocol"] == "v4.channel.k8s.io"


async def test_a_long_script_and_a_long_answer_come_whole(far: ChannelServer, tmp_path: Path) -> None:
    words = "x" * 200_000

    ran = await run(far, tmp_path, f"head -c 300000 /dev/zero | tr '\\0' y\n: {words}")

    assert ran == Ran(0, b"y" * 300_000, b"")


async def test_no_command_of_a_script_can_eat_the_rest_of_it(far: ChannelServer, tmp_path: Path) -> None:
    assert (await run(far, tmp_path, "cat\necho after")).stdout == b"after\n"


async def test_a_script_that_was_cut_off_on_its_way_runs_not_at_all(far: ChannelServer, tmp_path: Path) -> None:
    async def drops(session: Session) -> None:
        message = await session.socket.receive()
        half = message.data[1 : len(message.data) // 2]
        done = subprocess.run(["sh", "-s"], input=half, capture_output=True, check=False)
        await session.say(OUT, done.stdout)
        await session.ended_with(done.returncode)

    far.play = drops

    ran = await run(far, tmp_path, "echo one\n" * 500)

    assert (ran.stdout, ran.exit_status) == (b"", 2)


async def test_names_of_pods_and_containers_steer_nothing(far: ChannelServer, tmp_path: Path) -> None:
    await run(far, tmp_path, where=Container("train", "a/../../nodes?x=1", "c&command=rm"))

    (asked,) = far.asked
    assert asked.raw_path.startswith("/api/v1/namespaces/train/pods/a%2F..%2F..%2Fnodes%3Fx")
    assert asked.query.getall("command") == ["sh", "-s"]
    assert asked.query["container"] == "c&command=rm"


async def test_the_whole_page_of_a_look_goes_through(far: ChannelServer, tmp_path: Path) -> None:
    """PROBE-2: devices, processes and the rest as pieces, or failures with what was put out."""
    asks = [node_commands.devices(), node_commands.gpu_processes()]
    nonce = "0123456789abcdef" * 2

    ran = await run(far, tmp_path, node_commands.script(nonce, asks))
    pieces = node_text.read(ran, nonce, asks, node_text.Look("sft-0", WHERE.way))

    assert [piece.role for piece in pieces] == [Role.DEVICES, Role.GPU_PROCESSES]
    assert b"accelerator devices" in (pieces[0].data or b"")
    assert pieces[0].command.startswith("kubectl exec -i -n train sft-0 -c main -- sh -s: ")


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [(403, "Forbidden", NotAllowed), (404, "NotFound", NotThere), (401, "Unauthorized", LoginFailed),
     (500, "InternalError", Refused), (400, "BadRequest", Refused)],
)  # fmt: skip
async def test_a_refusal_is_told_in_the_servers_own_words(
    far: ChannelServer, tmp_path: Path, status: int, reason: str, kind: type[ClusterError]
) -> None:
    """PROBE-3: the exact output of what failed."""
    far.refusal = refused(status, reason, 'pods "sft-0" is forbidden: User "alice" cannot get resource "pods/exec"')

    with pytest.raises(kind) as told:
        await run(far, tmp_path)

    assert 'User "alice" cannot get resource "pods/exec"' in told.value.text


async def test_a_server_that_sends_us_elsewhere_is_not_followed(far: ChannelServer, tmp_path: Path) -> None:
    """Neither the token nor the script goes to another place."""
    async with serving() as other:
        far.refusal = web.Response(status=302, headers={"Location": f"http://localhost:{other.port}{PATH}"})

        with pytest.raises(AnswerUnusable, match="sends us elsewhere"):
            await run(far, tmp_path)

        assert other.asked == []


async def test_an_answer_that_speaks_another_protocol_is_no_exec(far: ChannelServer, tmp_path: Path) -> None:
    far.refusal = web.Response(status=200, text="<html>please log in</html>")

    with pytest.raises(AnswerUnusable, match=r"speaks no v4\.channel\.k8s\.io"):
        await run(far, tmp_path)


async def test_an_image_without_a_shell_is_told_as_the_kubelet_words_it(far: ChannelServer, tmp_path: Path) -> None:
    said = 'exec: "sh": executable file not found in $PATH: unknown'

    async def no_shell(session: Session) -> None:
        await session.end({"status": "Failure", "reason": "InternalError", "code": 500, "message": said})

    far.play = no_shell

    ran = await run(far, tmp_path)

    assert ran == Ran(None, b"", said.encode())
    asks = [node_commands.devices()]
    (piece,) = node_text.read(ran, "0" * 32, asks, node_text.Look("sft-0", WHERE.way))
    assert piece.failure == said


async def test_what_came_before_the_time_was_up_is_handed_on(far: ChannelServer, tmp_path: Path) -> None:
    began = time.monotonic()

    ran = await run(far, tmp_path, "echo first; sleep 600", limit_s=1)

    assert ran == Ran(None, b"first\n", b"no end of it within 1 s")
    assert time.monotonic() - began < 5


async def test_a_server_that_does_not_answer_costs_its_time_and_no_more(far: ChannelServer, tmp_path: Path) -> None:
    hangs = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.wait_for(hangs.wait(), 30)
        return web.Response()

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "localhost", 0).start()
    far.port = runner.addresses[0][1]

    with pytest.raises(TookTooLong, match=r"within 0\.5 s"):
        await run(far, tmp_path, limit_s=0.5)

    hangs.set()
    await runner.cleanup()


async def test_an_answer_that_never_ends_is_cut_at_its_bound(far: ChannelServer, tmp_path: Path) -> None:
    ran = await run(far, tmp_path, "yes", limit_bytes=5000)

    assert (len(ran.stdout), ran.truncated, ran.exit_status) == (5000, True, None)


async def test_complaints_without_end_fill_no_memory(far: ChannelServer, tmp_path: Path) -> None:
    ran = await run(far, tmp_path, "head -c 3000000 /dev/zero | tr '\\0' e >&2; echo done")

    assert (ran.exit_status, ran.stdout, len(ran.stderr)) == (0, b"done\n", 65536)


async def test_a_connection_that_breaks_off_leaves_what_came_and_no_status(far: ChannelServer, tmp_path: Path) -> None:
    """PROBE-2: half an answer is none, and is never taken for a whole one."""

    async def breaks(session: Session) -> None:
        await session.say(OUT, b"half")
        transport = session.request.transport
        assert transport is not None
        transport.close()

    far.play = breaks

    ran = await run(far, tmp_path)

    assert (ran.exit_status, ran.stdout) == (None, b"half")
    assert b"closed before it said how it ended" in ran.stderr


async def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    far = ChannelServer()
    far.port = 1

    with pytest.raises(ClusterError, match="cannot be reached"):
        await run(far, tmp_path)


@given(st.one_of(st.binary(max_size=60), st.sampled_from([b"{}", b"[]", b'{"status":3}', b'{"status":"Failure"}'])))
def test_however_its_end_is_told_only_success_is_success(told: bytes) -> None:
    status, _ = kubernetes_exec._ended(told)

    assert status is None


@pytest.mark.parametrize("noise", [b"", b"\x09", b"\x04resize", b"\x01", b"\x63text"])
async def test_messages_that_mean_nothing_are_passed_over(far: ChannelServer, tmp_path: Path, noise: bytes) -> None:
    async def noisy(session: Session) -> None:
        await session.socket.send_bytes(noise)
        await session.socket.send_str("text")
        await session.say(OUT, b"a")
        await session.say(ERR, b"b")
        await session.say(STATUS, b'{"status":"Success"}')

    far.play = noisy

    assert await run(far, tmp_path) == Ran(0, b"a", b"b")


# -- who answers -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for ``localhost`` that nobody else trusts, with its key."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,DNS:api.example"]
    made = [*words, *named, "-keyout", str(file), "-out", str(file.with_suffix(".crt"))]
    try:
        subprocess.run(made, check=True, capture_output=True)
    except OSError:
        pytest.skip("no openssl on this machine")
    file.write_text(file.read_text() + file.with_suffix(".crt").read_text())
    return file


async def test_the_certificates_of_the_kubeconfig_are_trusted_and_no_others(certificate: Path, tmp_path: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    trusted = str(certificate.with_suffix(".crt"))
    async with serving(context) as far:
        known = await run(far, tmp_path, **{"certificate-authority": trusted})
        named = await run(far, tmp_path, **{"certificate-authority": trusted, "tls-server-name": "api.example"})
        with pytest.raises(LoginFailed, match="no trusted connection"):
            await run(far, tmp_path)
        with pytest.raises(LoginFailed, match="no trusted connection"):
            await run(far, tmp_path, **{"certificate-authority": trusted, "tls-server-name": "other.example"})

    assert (known.stdout, named.stdout) == (b"hello\n", b"hello\n")


async def test_a_proxy_of_the_kubeconfig_is_gone_through(tmp_path: Path, far: ChannelServer) -> None:
    """As for every other request of the session. The proxy is an HTTP server that gets the whole address."""
    async with serving() as proxy:
        ran = await run(far, tmp_path, **{"proxy-url": f"http://localhost:{proxy.port}"})

    assert ran.stdout == b"hello\n"
    (asked,) = proxy.asked
    assert asked.headers["Host"] == f"localhost:{far.port}"
    assert far.asked == []
