"""The kept connection, against a real sshd on loopback."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from supervisor.clusters.ssh import AsyncsshShell
from supervisor.clusters.transports import shell_for
from supervisor.model.errors import ClusterError, LoginFailed, LoginNeedsPerson, TookTooLong
from tests.clusters.shells.private_sshd import PrivateSshd, new_key

pytestmark = pytest.mark.lab
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def shell_at(sshd: PrivateSshd, **changes: object) -> AsyncsshShell:
    shell = shell_for("box", sshd.node, sshd.settings(**changes), lambda: NOON)
    assert isinstance(shell, AsyncsshShell)
    return shell


@pytest.fixture
async def shell(sshd: PrivateSshd) -> AsyncIterator[AsyncsshShell]:
    shell = shell_at(sshd)
    yield shell
    await shell.close()


async def refusal(shell: AsyncsshShell, limit_s: float = 30) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        await shell.run("true", limit_s=limit_s)
    await shell.close()
    return caught.value


def logins(sshd: PrivateSshd) -> int:
    return (sshd.folder / "sshd.log").read_text().count("Accepted publickey")


async def test_many_scripts_share_one_login(sshd: PrivateSshd, shell: AsyncsshShell) -> None:
    answers = await asyncio.gather(*(shell.run(f"echo {n}", limit_s=60) for n in range(30)))

    assert [answer.stdout for answer in answers] == [f"{n}\n".encode() for n in range(30)]
    assert logins(sshd) == 1


async def test_output_and_errors_and_status_come_back_apart(shell: AsyncsshShell) -> None:
    ran = await shell.run("echo out; echo err >&2; exit 3", limit_s=30)

    assert (ran.exit_status, ran.stdout, ran.stderr) == (3, b"out\n", b"err\n")


async def test_a_script_killed_by_a_signal_did_not_succeed(shell: AsyncsshShell) -> None:
    assert (await shell.run("kill -9 $$", limit_s=30)).exit_status == 128 + 9


async def test_output_is_bounded_and_what_follows_still_works(shell: AsyncsshShell) -> None:
    ran = await shell.run("yes", limit_s=30, limit_bytes=1_000_000)

    assert (len(ran.stdout), ran.truncated, ran.exit_status) == (1_000_000, True, None)
    assert (await shell.run("echo next", limit_s=30)).stdout == b"next\n"


async def test_a_large_answer_comes_whole(shell: AsyncsshShell) -> None:
    ran = await shell.run("head -c 20000000 /dev/zero", limit_s=60)

    assert (len(ran.stdout), ran.exit_status) == (20_000_000, 0)


async def test_a_large_script_goes_whole(shell: AsyncsshShell) -> None:
    ran = await shell.run("\n".join(f"echo {n}" for n in range(40_000)), limit_s=60)

    assert ran.stdout.splitlines()[-1] == b"39999"


async def test_a_connection_found_dead_is_opened_again(sshd: PrivateSshd, shell: AsyncsshShell) -> None:
    await shell.run("true", limit_s=30)
    sshd.drop_sessions()

    assert (await shell.run("echo again", limit_s=30)).stdout == b"again\n"
    assert logins(sshd) == 2


async def test_a_connection_that_drops_in_mid_answer_gives_no_exit_status(
    sshd: PrivateSshd, shell: AsyncsshShell
) -> None:
    """POLL-2: a missing status is a failure, and a script that has started is not sent again."""
    run = asyncio.create_task(shell.run("echo part; sleep 30; echo rest", limit_s=60))
    await _until(lambda: logins(sshd) == 1)
    await asyncio.sleep(1)
    sshd.drop_sessions()

    ran = await run

    assert (ran.exit_status, ran.stdout) == (None, b"part\n")
    assert logins(sshd) == 1


async def test_a_script_over_its_limit_is_given_up_and_the_connection_stays(
    sshd: PrivateSshd, shell: AsyncsshShell, tmp_path: Path
) -> None:
    with pytest.raises(TookTooLong):
        await shell.run(f"echo $$ > {tmp_path}/pid; sleep 61; echo late > {tmp_path}/late", limit_s=2)

    assert (await shell.run("echo next", limit_s=30)).stdout == b"next\n"
    assert logins(sshd) == 1


async def test_a_frozen_server_costs_its_limit_and_no_more_and_heals(sshd: PrivateSshd, shell: AsyncsshShell) -> None:
    """POLL-6."""
    await shell.run("true", limit_s=30)
    sshd.freeze()
    started = time.monotonic()

    with pytest.raises(TookTooLong, match="within 1 s"):
        await shell.run("true", limit_s=1)
    assert time.monotonic() - started < 3

    sshd.thaw()
    assert (await shell.run("echo thawed", limit_s=30)).stdout == b"thawed\n"


async def test_a_session_that_freezes_is_noticed_by_the_keepalive(sshd: PrivateSshd) -> None:
    shell = shell_at(sshd, keepalive_s=0.5, keepalive_misses=2)
    await shell.run("true", limit_s=30)
    run = asyncio.create_task(shell.run("echo part; sleep 60", limit_s=60))
    await asyncio.sleep(0.5)
    sshd.freeze()

    assert (await asyncio.wait_for(run, 20)).exit_status is None
    await shell.close()


@pytest.mark.parametrize("most", ["1", "3"])
async def test_fewer_sessions_than_ours_are_waited_for_and_nobody_is_cut_off(sshd: PrivateSshd, most: str) -> None:
    sshd.restart(MaxSessions=most)
    shell = shell_at(sshd)

    answers = await asyncio.gather(*(shell.run(f"sleep 0.05; echo {n}", limit_s=60) for n in range(12)))

    assert [answer.stdout for answer in answers] == [f"{n}\n".encode() for n in range(12)]
    await shell.close()


async def test_sessions_held_by_leftover_processes_are_got_around_by_a_second_connection(sshd: PrivateSshd) -> None:
    """sshd counts a session until its process has ended, also one that was given up."""
    sshd.restart(MaxSessions="1")
    shell = shell_at(sshd)
    with pytest.raises(TookTooLong):
        await shell.run("trap '' TERM HUP PIPE; sleep 5", limit_s=1.5)

    assert (await shell.run("echo through", limit_s=30)).stdout == b"through\n"
    await shell.close()


async def test_a_server_that_grants_no_session_at_all_is_named_as_such(sshd: PrivateSshd) -> None:
    sshd.restart(MaxSessions="0")

    error = await refusal(shell_at(sshd))

    assert "grants no session" in error.text
    assert "MaxSessions" in (error.hint or "")


async def test_an_unknown_host_key_is_refused_and_the_file_named(sshd: PrivateSshd, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")

    error = await refusal(shell_at(sshd, known_hosts=empty))

    assert isinstance(error, LoginFailed)
    assert "is not known" in error.text
    assert str(empty) in error.text
    assert f"ssh -p {sshd.port}" in (error.hint or "")


async def test_a_changed_host_key_is_told_from_an_unknown_one(sshd: PrivateSshd, tmp_path: Path) -> None:
    sshd.trust(new_key(tmp_path / "other"))

    error = await refusal(shell_at(sshd))

    assert isinstance(error, LoginFailed)
    assert f"is not the one in {sshd.known_hosts}" in error.text
    assert "ssh-keygen -R" in (error.hint or "")


async def test_a_missing_known_hosts_file_is_named(sshd: PrivateSshd, tmp_path: Path) -> None:
    error = await refusal(shell_at(sshd, known_hosts=tmp_path / "nowhere"))

    assert f"there is no file {tmp_path}/nowhere" in error.text


async def test_a_refused_key_is_named(sshd: PrivateSshd, tmp_path: Path) -> None:
    stranger = new_key(tmp_path / "stranger")

    error = await refusal(shell_at(sshd, identity_file=stranger))

    assert type(error) is LoginFailed
    assert str(stranger) in error.text
    assert "ssh -v" in (error.hint or "")


async def test_a_missing_key_file_is_named(sshd: PrivateSshd, tmp_path: Path) -> None:
    error = await refusal(shell_at(sshd, identity_file=tmp_path / "nowhere"))

    assert f"{tmp_path}/nowhere cannot be read" in error.text


async def test_a_key_with_a_passphrase_needs_a_person_and_never_prompts(sshd: PrivateSshd, tmp_path: Path) -> None:
    locked = new_key(tmp_path / "locked", passphrase="open sesame")

    error = await refusal(shell_at(sshd, identity_file=locked))

    assert isinstance(error, LoginNeedsPerson)
    assert f"ssh-add {locked}" in (error.hint or "")


async def test_a_key_with_a_passphrase_works_from_an_agent(
    sshd: PrivateSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("ssh-agent") is None:
        pytest.skip("no ssh-agent on this machine")
    locked = new_key(tmp_path / "locked", passphrase="open sesame")
    shutil.copy(f"{locked}.pub", sshd.folder / "authorized_keys")
    socket_path = sshd.folder / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket_path)], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket_path))
        await _until(socket_path.exists)
        unlocked = tmp_path / "unlocked"
        shutil.copy(locked, unlocked)
        unlocked.chmod(0o600)
        subprocess.run(["ssh-keygen", "-q", "-p", "-P", "open sesame", "-N", "", "-f", unlocked], check=True)
        subprocess.run(["ssh-add", "-q", unlocked], check=True)
        shell = shell_at(sshd, identity_file=locked, agent=True)

        assert (await shell.run("echo in", limit_s=30)).stdout == b"in\n"
        await shell.close()
    finally:
        agent.terminate()
        agent.wait()


async def test_a_second_factor_after_a_good_key_needs_a_person(sshd: PrivateSshd) -> None:
    sshd.restart(PasswordAuthentication="yes", AuthenticationMethods="publickey,password")

    error = await refusal(shell_at(sshd))

    assert isinstance(error, LoginNeedsPerson)
    assert "a password" in error.text
    assert 'transport = "openssh"' in (error.hint or "")


async def test_a_password_offered_beside_a_refused_key_is_still_a_refused_key(
    sshd: PrivateSshd, tmp_path: Path
) -> None:
    sshd.restart(PasswordAuthentication="yes")

    error = await refusal(shell_at(sshd, identity_file=new_key(tmp_path / "stranger")))

    assert type(error) is LoginFailed
    assert "would also take a password" in error.text


@pytest.mark.parametrize(("ends", "kind"), [("20260701110000Z", LoginNeedsPerson), ("20280701110000Z", LoginFailed)])
async def test_a_refused_certificate_that_has_ended_is_said_to_have_ended(
    sshd: PrivateSshd, tmp_path: Path, ends: str, kind: type[LoginFailed]
) -> None:
    """POLL-12."""
    key = _certified(sshd, tmp_path, validity=f"20200101000000Z:{ends}")

    error = await refusal(shell_at(sshd, identity_file=key))

    assert type(error) is kind
    assert ("ended at 2026-07-01T11:00:00Z" in error.text) == (kind is LoginNeedsPerson)


async def test_a_certificate_beside_the_key_opens_the_door(sshd: PrivateSshd, tmp_path: Path) -> None:
    authority = new_key(tmp_path / "authority")
    sshd.restart(TrustedUserCAKeys=f"{authority}.pub")
    key = _certified(sshd, tmp_path, validity="always:forever", authority=authority)
    shell = shell_at(sshd, identity_file=key)

    assert (await shell.run("echo in", limit_s=30)).stdout == b"in\n"
    await shell.close()


async def test_the_user_s_ssh_config_gives_name_port_user_and_jump_host(sshd: PrivateSshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host front\n HostName 127.0.0.1\n Port {sshd.port}\n User {sshd.user}\n"
        f"Host behind\n HostName 127.0.0.1\n Port {sshd.port}\n User {sshd.user}\n ProxyJump front\n"
        f"Host *\n IdentityFile {sshd.key}\n UserKnownHostsFile {sshd.known_hosts}\n"
    )
    settings = sshd.settings(ssh_config=config, login_user=None, identity_file=None, known_hosts=None)
    shell = AsyncsshShell("box", settings.node("behind"), settings)

    assert (await shell.run("echo in", limit_s=30)).stdout == b"in\n"
    assert logins(sshd) == 2
    await shell.close()


@pytest.mark.parametrize(
    "line", ["UserKnownHostsFile none", "UserKnownHostsFile /dev/null", "StrictHostKeyChecking no"]
)
async def test_no_line_of_ssh_config_turns_the_check_of_host_keys_off(
    sshd: PrivateSshd, tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = tmp_path / "config"
    config.write_text(f"Host *\n {line}\n")

    assert isinstance(await refusal(shell_at(sshd, ssh_config=config, known_hosts=None)), LoginFailed)


async def test_the_host_key_of_a_jump_host_is_checked_too(sshd: PrivateSshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host front\n HostName 127.0.0.1\n Port {sshd.port}\n UserKnownHostsFile none\n"
        f"Host behind\n HostName 127.0.0.1\n Port {sshd.port}\n ProxyJump front\n"
        f" UserKnownHostsFile {sshd.known_hosts}\n"
    )
    settings = sshd.settings(ssh_config=config, known_hosts=None)

    error = await refusal(AsyncsshShell("box", settings.node("behind"), settings))

    assert "turns the check of host keys off for front" in error.text


async def test_jump_hosts_in_a_circle_end(sshd: PrivateSshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host a\n ProxyJump b\nHost b\n ProxyJump a\n")
    settings = sshd.settings(ssh_config=config)

    assert "without end" in (await refusal(AsyncsshShell("box", settings.node("a"), settings))).text


async def test_a_closed_port_is_said_plainly(sshd: PrivateSshd) -> None:
    sshd.stop()

    error = await refusal(shell_at(sshd))
    sshd.start()

    assert isinstance(error, LoginFailed)
    assert "cannot be reached" in error.text


async def test_a_server_that_takes_the_connection_and_says_nothing_is_given_up(sshd: PrivateSshd) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        settings = sshd.settings(connect_timeout_s=0.5, login_timeout_s=0.5)
        shell = AsyncsshShell("box", settings.node(f"127.0.0.1:{silent.getsockname()[1]}"), settings)

        assert isinstance(await refusal(shell), TookTooLong)


async def test_all_who_wait_share_one_failed_login(sshd: PrivateSshd, tmp_path: Path) -> None:
    shell = shell_at(sshd, identity_file=new_key(tmp_path / "stranger"))

    results: list[Any] = await asyncio.gather(
        *(shell.run("true", limit_s=30) for _ in range(10)), return_exceptions=True
    )
    await shell.close()

    assert all(isinstance(result, LoginFailed) for result in results)
    refused = "Connection closed by authenticating user"
    await _until(lambda: refused in (sshd.folder / "sshd.log").read_text())
    assert (sshd.folder / "sshd.log").read_text().count(refused) == 1


async def test_the_fast_cipher_is_agreed_on(sshd: PrivateSshd) -> None:
    sshd.restart(LogLevel="DEBUG")
    shell = shell_at(sshd)
    await shell.run("true", limit_s=30)
    await shell.close()

    assert "kex: client->server cipher: aes128-gcm@openssh.com" in (sshd.folder / "sshd.log").read_text()


async def test_a_server_s_words_reach_no_terminal_as_they_are(sshd: PrivateSshd, tmp_path: Path) -> None:
    banner = tmp_path / "banner"
    banner.write_text("\x1b[2Jpassword expired\r\n")
    sshd.restart(Banner=str(banner))

    error = await refusal(shell_at(sshd, identity_file=new_key(tmp_path / "stranger")))

    assert "password expired" in str(error)
    assert str(error).isprintable()


def _certified(sshd: PrivateSshd, folder: Path, *, validity: str, authority: Path | None = None) -> Path:
    authority = authority or new_key(folder / "authority")
    key = new_key(folder / "certified")
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "alice", "-n", sshd.user, "-V", validity, f"{key}.pub"]
    subprocess.run(sign, check=True, env={"TZ": "UTC", "PATH": "/usr/bin:/bin:/usr/local/bin"})
    return key


async def _until(condition: Any, within: timedelta = timedelta(seconds=20)) -> None:
    deadline = time.monotonic() + within.total_seconds()
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.02)
