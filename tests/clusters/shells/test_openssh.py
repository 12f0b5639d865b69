"""The system's ssh through a master connection that a person opened."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.clusters.openssh import OpensshShell
from supervisor.clusters.transports import shell_for
from supervisor.model.errors import ClusterError, LoginNeedsPerson, TookTooLong
from tests.clusters.shells.private_sshd import PrivateSshd

pytestmark = pytest.mark.lab


class Master:
    """What the person did by hand: a connection that others may use."""

    def __init__(self, sshd: PrivateSshd) -> None:
        self.sshd, self.path = sshd, sshd.folder / "master"
        self.shell = shell_for("box", sshd.node, sshd.settings(transport="openssh", control_path=str(self.path)))
        assert isinstance(self.shell, OpensshShell)

    def open(self) -> None:
        options = [
            "-o",
            f"UserKnownHostsFile={self.sshd.known_hosts}",
            "-i",
            str(self.sshd.key),
            "-p",
            str(self.sshd.port),
        ]
        command = ["ssh", "-F", "none", "-M", "-S", str(self.path), "-o", "ControlPersist=yes", "-fN", *options]
        subprocess.run([*command, "-l", self.sshd.user, "127.0.0.1"], check=True, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        ask = ["ssh", "-F", "none", "-S", str(self.path), "-O", "exit", "127.0.0.1"]
        subprocess.run(ask, capture_output=True, check=False)


@pytest.fixture
def master(sshd: PrivateSshd) -> Iterator[Master]:
    master = Master(sshd)
    yield master
    master.close()


async def test_scripts_run_through_the_master(master: Master) -> None:
    master.open()

    ran = await master.shell.run("echo out; echo err >&2; exit 3", limit_s=30)

    assert (ran.exit_status, ran.stdout, ran.stderr) == (3, b"out\n", b"err\n")


async def test_without_a_master_a_person_is_asked_for_and_no_login_is_tried(master: Master) -> None:
    """A login of ssh's own would ring the person's phone at every poll."""
    with pytest.raises(LoginNeedsPerson) as caught:
        await master.shell.run("true", limit_s=30)

    assert "no master connection answers" in caught.value.text
    assert f"ssh -F none -M -S {master.path} -o ControlPersist=yes -fN" in (caught.value.hint or "")
    assert "Connection from" not in (master.sshd.folder / "sshd.log").read_text()
    assert "Accepted" not in (master.sshd.folder / "sshd.log").read_text()


async def test_a_script_s_own_status_255_is_told_from_ssh_s(master: Master) -> None:
    master.open()

    assert (await master.shell.run("echo out; exit 255", limit_s=30)).exit_status == 255
    assert (await master.shell.run("exit 255", limit_s=30)).exit_status == 255


async def test_a_connection_that_drops_in_mid_answer_gives_no_exit_status(master: Master) -> None:
    """POLL-2."""
    master.open()
    run = asyncio.create_task(master.shell.run("echo part; sleep 30; echo rest", limit_s=60))
    await asyncio.sleep(1.5)
    master.sshd.drop_sessions()

    ran = await run

    assert (ran.exit_status, ran.stdout) == (None, b"part\n")


async def test_a_frozen_server_costs_its_limit_and_no_more(master: Master) -> None:
    """POLL-6."""
    master.open()
    master.sshd.freeze()

    with pytest.raises(TookTooLong):
        await master.shell.run("true", limit_s=1)

    master.sshd.thaw()
    assert (await master.shell.run("echo thawed", limit_s=30)).stdout == b"thawed\n"


async def test_fewer_sessions_than_ours_are_waited_for(master: Master) -> None:
    master.sshd.restart(MaxSessions="2")
    master.open()

    answers = await asyncio.gather(*(master.shell.run(f"sleep 0.2; echo {n}", limit_s=60) for n in range(6)))

    assert [answer.stdout for answer in answers] == [f"{n}\n".encode() for n in range(6)]


async def test_a_master_that_grants_no_session_is_named_as_such(master: Master) -> None:
    master.sshd.restart(MaxSessions="0")
    master.open()

    with pytest.raises(ClusterError, match="refuses more sessions"):
        await master.shell.run("true", limit_s=60)


async def test_closing_leaves_the_person_s_master_alone(master: Master) -> None:
    master.open()
    await master.shell.close()

    assert (await master.shell.run("echo still", limit_s=30)).stdout == b"still\n"
    assert Path(master.path).exists()
