"""Reading logs, cancelling, checking: what is known after each, and what is not."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from supervisor.clusters.shell import Ran
from supervisor.clusters.slurm import receipt
from supervisor.clusters.slurm_settings import SlurmSettings
from supervisor.clusters.slurm_text import Answer, Part
from supervisor.model.errors import LoginFailed, NotApproved, TookTooLong
from supervisor.model.job import JobKey
from supervisor.model.logs import LogText, LogUnread, LogWanted
from supervisor.model.polling import Polled, Watch
from supervisor.model.ports import Approval, Cluster
from tests.clusters.slurm.login import TAKEN, ScriptedLogin, cluster_of, key

JOB = key("9", "1795988954")


def leave(job: JobKey = JOB) -> Approval:
    return Approval(
        id=3, job=job, attempt=1, verdict_digest="sha256:0", approved_by="alice", expires_at=TAKEN + timedelta(hours=1)
    )


def test_it_is_a_cluster(login: ScriptedLogin) -> None:
    cluster = cluster_of(login)

    assert isinstance(cluster, Cluster)
    assert (cluster.name, cluster.kind) == ("alpha", "slurm")


# -- logs --------------------------------------------------------------------------------------------------------------


class Pieces(ScriptedLogin):
    """A login node that gives each piece of a log in turn, as READ_PIECE prints it."""

    def __init__(self, *runs: list[bytes] | Exception) -> None:
        super().__init__()
        self.runs = list(runs)

    async def run(self, script: str, *, limit_s: float, limit_bytes: int = 64 * 2**20) -> Ran:
        self.scripts.append(script)
        given = self.runs.pop(0)
        if isinstance(given, Exception):
            raise given
        mark = script.partition("mark=")[2].partition("#")[0].strip("'").encode() + b"#"
        parts = [b"\n%b begin piece\n%b\n%b said piece\n\n%b end piece 0" % (mark, out, mark, mark) for out in given]
        return Ran(0, b"".join(parts) + b"\n%b whole\n" % mark, b"")


def wanted(path: str = "/a.out", job: str = "9") -> LogWanted:
    return LogWanted(job, path, offset=0, limit=100)


async def test_all_pieces_come_in_one_command() -> None:
    login = Pieces([b"5 0 5 0\nab\x00\n\xff", b"unread permission denied"], [b"9 0 0 0\n"])

    found = await cluster_of(login).read_logs([wanted("/a.out"), wanted("/b.out")], TAKEN)

    assert found["9", "/a.out"] == LogText("/a.out", 0, b"ab\x00\n\xff", 5, 0)
    assert found["9", "/b.out"] == LogText("/b.out", 0, b"", 9, 0)
    assert len(login.scripts) == 2, "one for all, and one retry for the piece that failed"


async def test_a_read_that_fails_twice_is_unread_and_never_empty() -> None:
    """FIND-4"""
    login = Pieces([b"unread permission denied"], [b"unread permission denied"])

    found = await cluster_of(login).read_logs([wanted()], TAKEN)

    assert found == {("9", "/a.out"): LogUnread("/a.out", "permission denied")}


@pytest.mark.parametrize("out", [b"", b"5 0 5 0\nabc", b"5 0 5 0\nabcdefg", b"cat: /a.out: Stale file handle\n"])
async def test_a_piece_that_is_not_what_was_announced_is_unread(out: bytes) -> None:
    found = await cluster_of(Pieces([out], [out])).read_logs([wanted()], TAKEN)

    assert isinstance(found["9", "/a.out"], LogUnread)


async def test_another_login_node_is_tried_for_logs() -> None:
    dead, alive = Pieces(TookTooLong("alpha", "login0", 20)), Pieces([b"2 0 2 0\nok"])

    found = await cluster_of(dead, alive).read_logs([wanted()], TAKEN)

    assert found["9", "/a.out"] == LogText("/a.out", 0, b"ok", 2, 0)


async def test_paths_that_are_no_paths_are_never_sent() -> None:
    login = Pieces()

    found = await cluster_of(login).read_logs([wanted("a.out"), wanted("/a\0b")], TAKEN)

    assert all(isinstance(one, LogUnread) for one in found.values())
    assert login.scripts == []


# -- cancel ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [key("9", "1"), key("10", "1795988954"), JobKey("beta", "9", "1795988954")])
async def test_nothing_is_cancelled_with_leave_for_another_attempt(login: ScriptedLogin, other: JobKey) -> None:
    """KILL-1"""
    with pytest.raises(NotApproved):
        await cluster_of(login).cancel(JOB, leave(other))
    with pytest.raises(NotApproved):
        await cluster_of(login).cancel(other, leave(JOB))

    assert login.scripts == []


def cancelled(status: int, said: str = "") -> Answer:
    return Answer((Part("read", 0, b"9\x1f1795988954\x1fRUNNING\x1f\n", ""), Part("cancel", status, b"", said)))


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        (cancelled(0), True),
        (cancelled(1, "scancel: error: Kill job error on job id 9: Access/permission denied"), False),
        (cancelled(1, "scancel: error: Kill job error on job id 9: Job/step already completing or completed"), False),
        (cancelled(8, "scancel: error: Kill job error on job id 9: Unable to contact slurm controller"), None),
        (cancelled(140, "scancel: error: Kill job error on job id 9: Socket timed out on send/recv operation"), None),
        (cancelled(0, "scancel: error: Socket timed out on send/recv operation"), None),
        (cancelled(124), None),
        (Answer((Part("read", 1, b"slurm_load_jobs error: Invalid job id specified\n", ""),)), False),
        (Answer((Part("read", 0, b"9\x1f1795999999\x1fRUNNING\x1f\n", ""),)), False),
        (Answer(()), False),
    ],
)
def test_what_is_known_after_a_cancel(answer: Answer, accepted: bool | None) -> None:
    """KILL-6: a cancel that failed may have worked."""
    assert receipt(answer, JOB).accepted is accepted


@pytest.mark.parametrize(
    ("raised", "accepted"),
    [(LoginFailed("alpha", "login1 refused the key"), False), (TookTooLong("alpha", "the command", 60), None)],
)
async def test_a_cancel_that_was_cut_off_may_have_worked(
    login: ScriptedLogin, raised: Exception, accepted: bool | None
) -> None:
    login.raises = raised

    assert (await cluster_of(login).cancel(JOB, leave())).accepted is accepted


async def test_a_cancel_goes_through_another_login_node_only_where_nothing_was_sent(login: ScriptedLogin) -> None:
    """KILL-3"""
    other = ScriptedLogin(name="login2")
    login.raises = LoginFailed("alpha", "login1 refused the key")
    await cluster_of(login, other).cancel(JOB, leave())
    assert len(other.scripts) == 1

    login.raises = TookTooLong("alpha", "the command", 60)
    await cluster_of(login, other).cancel(JOB, leave())
    assert len(other.scripts) == 1


async def test_a_cancel_whose_connection_dropped_may_have_worked(login: ScriptedLogin) -> None:
    login.spoil = lambda _, whole: Ran(None, whole[:10], b"")

    assert (await cluster_of(login).cancel(JOB, leave())).accepted is None


# -- check, credentials, settings --------------------------------------------------------------------------------------


async def test_check_names_each_login_node_and_what_answers(login: ScriptedLogin) -> None:
    dead = ScriptedLogin(name="login0", raises=LoginFailed("alpha", "login0 refused the key", hint="try ssh login0"))

    checks = await cluster_of(dead, login).check(TAKEN)

    assert [(one.what, one.result) for one in checks] == [
        ("login0", "fail"),
        ("login1", "ok"),
        ("login1", "ok"),
        ("login1", "ok"),
    ]
    assert checks[0].hint == "try ssh login0"
    assert "Slurm 22.05.8" in checks[2].text


async def test_check_says_what_of_slurm_does_not_answer_and_what_its_clock_says(login: ScriptedLogin) -> None:
    login.status, login.said = (
        {"ended": 1},
        {"ended": "sacct: error: Problem talking to the database: Connection refused"},
    )
    login.at = TAKEN + timedelta(hours=2)

    checks = await cluster_of(login).check(TAKEN)

    assert [one.text for one in checks if one.result == "fail"] == [
        "sacct: sacct: error: Problem talking to the database: Connection refused"
    ]
    assert [one.text for one in checks if one.result == "warn"] == [
        "its clock is +7200 s off ours; times are corrected by that"
    ]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key with a certificate that ends 2026-07-02 12:00 UTC, made by the real ssh-keygen."""
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("ca", "id"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    words = ["ssh-keygen", "-q", "-s", str(folder / "ca"), "-I", "alice", "-V", "20260701000000:20260702120000"]
    subprocess.run([*words, str(folder / "id.pub")], check=True, env={"TZ": "UTC", "PATH": "/usr/bin:/bin"})
    return folder / "id"


@pytest.mark.parametrize(
    ("now", "result", "told"),
    [
        (datetime(2026, 7, 1, 6, tzinfo=UTC), "ok", False),
        (datetime(2026, 7, 1, 13, tzinfo=UTC), "warn", True),
        (datetime(2026, 7, 2, 10, 30, tzinfo=UTC), "warn", True),
        (datetime(2026, 7, 2, 13, tzinfo=UTC), "fail", True),
    ],
)
async def test_a_certificate_is_spoken_of_before_it_ends(
    login: ScriptedLogin, certified: Path, now: datetime, result: str, told: bool
) -> None:
    """POLL-12"""
    cluster = cluster_of(replace(login, at=now), identity_file=certified)

    check = (await cluster.check(now))[-1]
    reading = await cluster.poll(Watch(), now)

    assert (check.what, check.result) == ("certificate", result)
    assert isinstance(reading, Polled)
    assert any("certificate" in problem for problem in reading.problems) is told


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "login_nodes is missing"),
        ({"login_nodes": ("l1",), "users": ("alice,bob",)}, "users"),
        ({"login_nodes": ("l1",), "user": ("alice",)}, "user"),
        ({"login_nodes": ("l1",), "quota_command": "lfs quota"}, "go together"),
        ({"login_nodes": ("l1",), "quota_command": "q", "quota_pattern": "("}, "not a regular expression"),
        ({"login_nodes": ("l1",), "quota_command": "q", "quota_pattern": "(?P<files>x)"}, "named groups"),
        ({"login_nodes": ("l1",), "queue_timeout_s": 0}, "queue_timeout_s"),
        ({"login_nodes": ("l1",), "slurm_bin": "bin"}, "slurm_bin"),
    ],
)
def test_settings_that_can_not_work_are_refused(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        SlurmSettings(**given)  # type: ignore[arg-type]


def test_a_daemon_on_the_login_node_needs_no_login() -> None:
    (shell,) = SlurmSettings(transport="local").shells("alpha")

    assert shell.place == "this machine"


def test_every_login_node_has_a_shell_of_its_own() -> None:
    settings = SlurmSettings(login_nodes=("alice@l1", "l2:2222"), login_user="bob")

    assert [shell.place for shell in settings.shells("alpha")] == ["alice@l1", "bob@l2:2222"]
