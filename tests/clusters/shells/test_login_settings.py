from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from supervisor.clusters.certificate import certificate_expiry
from supervisor.clusters.login_settings import LoginNode, LoginSettings
from tests.clusters.shells.private_sshd import new_key


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("login01", LoginNode("login01")),
        ("login02.example:2222", LoginNode("login02.example", None, 2222)),
        ("alice@login01", LoginNode("login01", "alice")),
        ("alice@login01.example:22", LoginNode("login01.example", "alice", 22)),
        ("fe80::1%eth0", LoginNode("fe80::1%eth0")),
        ("alice@[2001:db8::7]:2222", LoginNode("2001:db8::7", "alice", 2222)),
        ("[2001:db8::7]", LoginNode("2001:db8::7")),
    ],
)
def test_a_login_node_is_user_host_and_port(text: str, node: LoginNode) -> None:
    assert LoginNode.parse(text) == node
    assert LoginNode.parse(str(node)) == node or ":" in node.host


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-oProxyCommand=x",
        "a b",
        "a:",
        "a:0",
        "a:65536",
        "a:x",
        "@a",
        "-l@a",
        "[::1",
        "[::1]x",
        "a\nb",
        "a;b",
        "$(a)",
        "a:²",
    ],
)
def test_what_could_be_an_option_or_a_command_is_no_login_node(text: str) -> None:
    with pytest.raises(ValueError, match=r"allowed|port"):
        LoginNode.parse(text)


@given(st.text())
def test_any_text_is_a_node_or_a_clear_refusal(text: str) -> None:
    try:
        node = LoginNode.parse(text)
    except ValueError:
        return
    assert not node.host.startswith("-")
    assert node.host.isprintable()


def test_login_user_fills_in_where_the_node_names_none() -> None:
    settings = LoginSettings(login_user="alice")

    assert settings.node("login01:2222") == LoginNode("login01", "alice", 2222)
    assert settings.node("bob@login01") == LoginNode("login01", "bob")


def test_paths_are_relative_to_the_configuration_s_folder() -> None:
    settings = LoginSettings.model_validate(
        {"identity_file": "keys/a", "known_hosts": "~/k"}, context={"folder": "/etc/x"}
    )

    assert settings.identity_file == Path("/etc/x/keys/a")
    assert settings.known_hosts == Path.home() / "k"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"transport": "openssh"}, "needs control_path"),
        ({"control_path": "/tmp/x"}, 'used by transport = "openssh" only'),
        ({"transport": "telnet"}, "asyncssh"),
        ({"login_timeout_s": 0}, "greater than 0"),
        ({"identity": "x"}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_reason(values: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        LoginSettings.model_validate(values)


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_the_end_of_a_certificate_is_read_beside_its_key(tmp_path: Path, kind: str) -> None:
    """POLL-12."""
    key = certified(tmp_path, "20260101000000Z:20260701123456Z", kind)

    assert certificate_expiry(key) == datetime(2026, 7, 1, 12, 34, 56, tzinfo=UTC)
    assert certificate_expiry(Path(f"{key}-cert.pub")) == datetime(2026, 7, 1, 12, 34, 56, tzinfo=UTC)


def test_a_certificate_for_ever_and_a_key_without_one_have_no_end(tmp_path: Path) -> None:
    assert certificate_expiry(certified(tmp_path, "always:forever")) is None
    assert certificate_expiry(new_key(tmp_path / "bare")) is None
    assert certificate_expiry(tmp_path / "nowhere") is None


def test_a_garbled_certificate_is_said_to_be_garbled(tmp_path: Path) -> None:
    certificate = Path(f"{certified(tmp_path, 'always:forever')}-cert.pub")
    kind, blob = certificate.read_text().split()[:2]
    for bad in ("", "hello", f"{kind}", f"{kind} !!!", f"{kind} {blob[:40]}", f"ssh-new{kind} {blob}"):
        certificate.write_text(bad)
        with pytest.raises(ValueError, match=r"certificate"):
            certificate_expiry(certificate)


def certified(folder: Path, validity: str, kind: str = "ed25519") -> Path:
    authority, key = new_key(folder / "authority"), new_key(folder / "certified", kind=kind)
    subprocess.run(
        ["ssh-keygen", "-q", "-s", authority, "-I", "alice", "-n", "alice", "-V", validity, f"{key}.pub"], check=True
    )
    return key
