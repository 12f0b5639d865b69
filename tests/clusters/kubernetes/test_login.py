"""Credentials: where they come from, that they are read again when they change, and that their end is known (POLL-12)."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import ValidationError

from supervisor.clusters.kubernetes import KubernetesCluster
from supervisor.clusters.kubernetes_login import log_in
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.model.errors import LoginFailed, LoginNeedsPerson
from supervisor.model.logs import LogWanted
from supervisor.model.polling import Polled, Unreached, Watch
from tests.clusters.kubernetes.odd_server import Asked, OddServer

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[OddServer]:
    server = OddServer(tmp_path)
    yield server
    server.end()


def settings_for(file: Path, **settings: Any) -> KubernetesSettings:
    return KubernetesSettings(**({"kubeconfig": file, "request_timeout_s": 3, "login_timeout_s": 5} | settings))


def jwt(ends: datetime) -> str:
    """Shaped as a service account's token; signed by nobody."""
    parts = ({"alg": "RS256"}, {"exp": int(ends.timestamp()), "sub": "system:serviceaccount:train:alice"})
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return f"{coded[0]}.{coded[1]}.c2lnbmF0dXJl"


def plugin(folder: Path, program: str) -> dict[str, Any]:
    """A credential plugin that runs this Python text."""
    file = folder / "plugin.py"
    file.write_text(program)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(file)],
            "interactiveMode": "IfAvailable",
        }
    }


def credential(**status: str) -> str:
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"print({json.dumps(json.dumps(answer))})"


# -- what is wrong with a kubeconfig, in one line ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("apiVersion: [", "is not valid YAML (line "),
        ("just text", "holds no configuration"),
        ("{}", "names no current-context"),
        ("{current-context: west}", "context 'west' is not in"),
        (
            "{current-context: a, contexts: [{name: a, context: {cluster: x, user: u}}]}",
            "cluster 'x' is not in",
        ),
        (
            "{current-context: a, contexts: [{name: a, context: {cluster: x}}], clusters: [{name: x, cluster: {}}]}",
            "names no server",
        ),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_one_clear_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)

    with pytest.raises(LoginFailed) as caught:
        log_in("east", settings_for(file), NOW)

    assert words in caught.value.text
    assert str(file) in caught.value.text
    assert "\n" not in caught.value.text


def test_an_unknown_context_names_those_that_are_there(odd: OddServer) -> None:
    with pytest.raises(LoginFailed) as caught:
        log_in("east", settings_for(odd.kubeconfig(), context="west"), NOW)

    assert caught.value.text.startswith("context 'west' is not in")
    assert caught.value.text.endswith("it has: east")


async def test_a_missing_kubeconfig_is_no_reading_and_a_failed_check(tmp_path: Path) -> None:
    cluster = KubernetesCluster("east", settings_for(tmp_path / "nowhere"))

    reading = await cluster.poll(Watch(), NOW)
    (line,) = await cluster.check(NOW)

    assert isinstance(reading, Unreached)
    assert "does not exist" in reading.reason
    assert (line.what, line.result) == ("credentials", "fail")


def test_files_named_in_a_kubeconfig_lie_beside_it(odd: OddServer) -> None:
    file = odd.kubeconfig({"tokenFile": "secret/token"})
    (file.parent / "secret").mkdir()
    (file.parent / "secret" / "token").write_text("from-the-file")

    login = log_in("east", settings_for(file), NOW)

    assert login.configuration.api_key == {"BearerToken": "Bearer from-the-file"}
    assert (login.namespace, login.source) == ("train", f"context east of {file}")


def test_several_kubeconfigs_are_read_as_one(odd: OddServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    whole = json.loads(odd.kubeconfig().read_text())
    one.write_text(json.dumps({"contexts": whole["contexts"], "current-context": "east"}))
    two.write_text(json.dumps({"clusters": whole["clusters"], "users": whole["users"], "current-context": "west"}))
    monkeypatch.setenv("KUBECONFIG", f"{one}{os.pathsep}{two}")

    login = log_in("east", KubernetesSettings(), NOW)

    assert login.configuration.host == f"http://127.0.0.1:{odd.server_port}"


def test_in_cluster_outside_a_pod_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(LoginFailed, match="no service account to use"):
        log_in("east", KubernetesSettings(in_cluster=True), NOW)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"namespaces": ["Train"]}, "is no namespace"),
        ({"namespaces": ["*", "train"]}, "name none beside it"),
        ({"namespaces": ["train", "train"]}, "may be named once"),
        ({"in_cluster": True, "context": "east"}, "have no meaning beside it"),
        ({"selector": "a=b\n"}, "control characters"),
        ({"page_size": 0}, "greater than or equal to 1"),
        ({"contxt": "east"}, "Extra inputs"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        KubernetesSettings(**settings)


# -- credential plugins ------------------------------------------------------------------------------------------------


def test_a_plugins_token_is_used_and_its_end_is_known(odd: OddServer, tmp_path: Path) -> None:
    file = odd.kubeconfig(plugin(tmp_path, credential(token="made", expirationTimestamp="2026-07-01T13:00:00Z")))

    login = log_in("east", settings_for(file), NOW)

    assert login.configuration.api_key == {"BearerToken": "Bearer made"}
    assert login.expires_at == NOW + timedelta(hours=1)
    assert login.renews_itself
    assert not login.stale(NOW)
    assert login.stale(NOW + timedelta(minutes=59, seconds=30))


def test_a_plugin_is_told_what_the_protocol_says_and_gets_no_terminal(odd: OddServer, tmp_path: Path) -> None:
    program = (
        "import json, os, sys\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "assert info['spec']['interactive'] is False and sys.stdin.read() == ''\n"
        f"{credential(token='made')}\n"
    )

    assert log_in("east", settings_for(odd.kubeconfig(plugin(tmp_path, program))), NOW).renews_itself


@pytest.mark.parametrize(
    ("program", "words", "person"),
    [
        (
            "import sys; sys.exit('\\x1b[31mToken has expired, run: sso login')",
            "Token has expired, run: sso login",
            True,
        ),
        ("import time; time.sleep(60)", "did not end within 0.5 s", True),
        ("print('hello')", "printed no ExecCredential", False),
        ('print(\'{"kind": "ExecCredential", "status": {}}\')', "neither a token nor a certificate", False),
    ],
)
def test_a_plugin_that_fails_says_why_and_holds_nobody_up(
    odd: OddServer, tmp_path: Path, program: str, words: str, person: bool
) -> None:
    began = time.monotonic()
    limit_s = 0.5 if "sleep" in program else 10

    with pytest.raises(LoginFailed) as caught:
        log_in("east", settings_for(odd.kubeconfig(plugin(tmp_path, program)), login_timeout_s=limit_s), NOW)

    assert words in caught.value.text
    assert "\x1b" not in caught.value.text
    assert isinstance(caught.value, LoginNeedsPerson) is person
    assert time.monotonic() - began < 10


def test_a_plugin_that_is_not_installed_is_named_with_its_hint(odd: OddServer) -> None:
    missing = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "no-such-plugin",
        "installHint": "install it",
    }

    with pytest.raises(LoginFailed) as caught:
        log_in("east", settings_for(odd.kubeconfig({"exec": missing})), NOW)

    assert ("no-such-plugin is not there" in caught.value.text, caught.value.hint) == (True, "install it")


async def test_a_refused_token_of_a_plugin_is_made_anew_at_once(odd: OddServer, tmp_path: Path) -> None:
    """An access key that was revoked before its time."""
    count = tmp_path / "count"
    program = (
        "import json, pathlib\n"
        f"file = pathlib.Path({str(count)!r})\n"
        "number = int(file.read_text()) + 1 if file.exists() else 1\n"
        "file.write_text(str(number))\n"
        "print(json.dumps({'kind': 'ExecCredential', 'status': {'token': f'token-{number}'}}))\n"
    )
    good = odd.answers["/version"]

    def version(asked: Asked) -> None:
        if asked.headers["Authorization"] == "Bearer token-1":
            asked.status(401, "Unauthorized", "Unauthorized")
        else:
            good(asked)

    odd.answers["/version"] = version
    cluster = KubernetesCluster("east", settings_for(odd.kubeconfig(plugin(tmp_path, program))))

    reading = await cluster.poll(Watch(), NOW)

    assert isinstance(reading, Polled), reading
    assert odd.tokens[-1] == "Bearer token-2"
    await cluster.close()


# -- rotation and expiry -----------------------------------------------------------------------------------------------


async def test_a_rotated_token_is_used_from_the_next_poll_on(odd: OddServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    cluster = KubernetesCluster("east", settings_for(odd.kubeconfig({"tokenFile": str(token)})))
    await cluster.poll(Watch(), NOW)
    assert set(odd.tokens) == {"Bearer old"}
    odd.tokens.clear()
    token.write_text("brand-new")

    reading = await cluster.poll(Watch(), NOW)

    assert isinstance(reading, Polled), reading
    assert set(odd.tokens) == {"Bearer brand-new"}
    await cluster.close()


async def test_a_kubeconfig_written_anew_is_read_anew(odd: OddServer) -> None:
    file = odd.kubeconfig({"token": "old"})
    cluster = KubernetesCluster("east", settings_for(file))
    await cluster.poll(Watch(), NOW)
    odd.tokens.clear()
    odd.kubeconfig({"token": "brand-new"})

    await cluster.poll(Watch(), NOW)

    assert set(odd.tokens) == {"Bearer brand-new"}
    await cluster.close()


async def test_credentials_that_rotate_under_a_poll_do_not_cut_it(odd: OddServer) -> None:
    file = odd.kubeconfig({"token": "old"})
    cluster = KubernetesCluster("east", settings_for(file))
    good = odd.answers["/api/v1/namespaces/train/pods"]

    def slow(asked: Asked) -> None:
        odd.over.wait(0.5)
        good(asked)

    odd.answers["/api/v1/namespaces/train/pods"] = slow
    poll = asyncio.create_task(cluster.poll(Watch(), NOW))
    while not any("/pods" in path for path in odd.asked):
        await asyncio.sleep(0.01)
    odd.kubeconfig({"token": "brand-new"})
    await cluster.read_logs([LogWanted("job", "pod/train/a/main", 0, 10)], NOW)

    assert isinstance(await poll, Polled)
    assert {"Bearer old", "Bearer brand-new"} == set(odd.tokens)
    await cluster.close()


async def test_closing_a_cluster_hangs_up_what_is_under_way(odd: OddServer) -> None:
    cluster = KubernetesCluster("east", settings_for(odd.kubeconfig()))
    odd.answers["/version"] = lambda asked: odd.over.wait(60) and None
    poll = asyncio.create_task(cluster.poll(Watch(), NOW))
    while "/version" not in odd.asked:
        await asyncio.sleep(0.01)
    began = time.monotonic()

    await cluster.close()

    assert isinstance(await poll, Unreached)
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    ("left", "result", "announced"),
    [
        (timedelta(days=30), "ok", False),
        (timedelta(hours=23), "warn", True),
        (timedelta(minutes=90), "warn", True),
        (timedelta(minutes=-1), "fail", True),
    ],
)
async def test_a_token_that_ends_soon_is_announced(
    odd: OddServer, left: timedelta, result: str, announced: bool
) -> None:
    """POLL-12."""
    cluster = KubernetesCluster("east", settings_for(odd.kubeconfig({"token": jwt(NOW + left)})))

    reading = await cluster.poll(Watch(), NOW)
    (line,) = [line for line in await cluster.check(NOW) if line.what == "credentials"]

    assert isinstance(reading, Polled), reading
    assert line.result == result
    assert f"token ends at {NOW + left:%Y-%m-%dT%H:%M:%SZ}" in line.text
    assert ("its token ends at" in " ".join(reading.problems)) is announced
    await cluster.close()


async def test_an_expired_token_that_is_refused_says_that_it_has_expired(odd: OddServer) -> None:
    """POLL-12: expired reads as unknown with that reason."""
    cluster = KubernetesCluster("east", settings_for(odd.kubeconfig({"token": jwt(NOW - timedelta(hours=1))})))
    odd.answers["/version"] = lambda asked: asked.status(401, "Unauthorized", "Unauthorized")

    reading = await cluster.poll(Watch(), NOW)

    assert isinstance(reading, Unreached)
    assert reading.reason.startswith("its token ended at 2026-07-01T11:00:00Z")
    assert reading.needs_person
    await cluster.close()


def test_a_client_certificates_end_is_known(odd: OddServer) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])
    ends = NOW + timedelta(hours=5)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW - timedelta(days=1)).not_valid_after(ends)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = odd.kubeconfig(
        {
            "client-certificate-data": base64.b64encode(certificate).decode(),
            "client-key-data": base64.b64encode(secret).decode(),
        }
    )
    document = json.loads(file.read_text())
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    file.write_text(json.dumps(document))

    login = log_in("east", settings_for(file), NOW)

    assert (login.expires_at, login.expires_what) == (ends, "client certificate")


async def test_no_secret_stands_in_what_is_said(odd: OddServer) -> None:
    secret = jwt(NOW + timedelta(hours=1))
    cluster = KubernetesCluster("east", settings_for(odd.kubeconfig({"token": secret})))
    odd.answers["/apis/batch/v1/namespaces/train/jobs"] = lambda asked: asked.status(500, "InternalError", "boom")

    reading = await cluster.poll(Watch(), NOW)
    lines = await cluster.check(NOW)

    assert secret not in repr(reading) + repr(lines)
    await cluster.close()
