"""``supervisord`` as a process of its own, with real signals, over processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

BOX = '[[cluster]]\nname = "box"\nkind = "host"\n'


def ctl(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "supervisor.app.ctl", "--config", str(config), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def until(holds: Callable[[], Any], what: str, seconds: float = 40) -> Any:
    """What ``holds`` gives once it is true; looked at again and again by its own clock, bounded."""
    ends = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < ends, f"not within {seconds} s: {what}"
        time.sleep(0.1)
    return found


class Daemon:
    """One ``supervisord`` and its log."""

    def __init__(self, config: Path, log: str = "supervisord.log", **environment: str) -> None:
        self.config, self.log = config, config.with_name(log)
        command = [sys.executable, "-m", "supervisor.app.daemon", "--config", str(config)]
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **environment})

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        return [event for line in lines if line.startswith("{") and (event := json.loads(line))["event"] == name]

    def saw(self, name: str, count: int = 1, **fields: object) -> list[dict[str, Any]]:
        """The events of that name, once there are so many that bear the fields."""

        def found() -> list[dict[str, Any]]:
            assert self.process.poll() is None or name == "daemon.stopped", self.log.read_text()[-2000:]
            mine = [event for event in self.events(name) if fields.items() <= event.items()]
            return mine if len(mine) >= count else []

        return until(found, f"{count} × {name} {fields}; {self.log.read_text()[-1500:]}")

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, seconds: float = 40) -> int:
        return self.process.wait(timeout=seconds)


@contextmanager
def daemon(config: Path, log: str = "supervisord.log", **environment: str) -> Iterator[Daemon]:
    running = Daemon(config, log, **environment)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(f"interval_s = 900\n[daemon]\njitter_s = 0\n{BOX}")
    return path


# -- signals -----------------------------------------------------------------------------------------------------------


def test_sigterm_lets_a_tick_finish_and_gives_the_leases_back(config, tmp_path):
    """A poll takes two seconds here, since the shell is slow; the signal comes in its midst, and its reading is stored."""
    shell = tmp_path / "slow" / "sh"
    shell.parent.mkdir()
    shell.write_text('#!/bin/sh\ntouch "$0.begun"\nsleep 2\nexec /bin/sh "$@"\n')
    shell.chmod(0o755)
    with daemon(config, PATH=f"{shell.parent}:{os.environ['PATH']}") as running:
        until(shell.with_name("sh.begun").exists, "the poll has begun")
        running.tell(signal.SIGTERM)
        assert running.ended() == 0
        order = [event["event"] for event in map(json.loads, running.log.read_text().splitlines())]
        assert order.index("daemon.stopping") < order.index("cluster.polled") < order.index("tick.finished")
        assert order[-1] == "daemon.stopped"
        assert running.events("cluster.polled")[0]["state"] == "ok"
    with daemon(config, "second.log") as second:
        assert second.saw("tick.finished")[0]["unread"] == []
        assert second.saw("cluster.polled", state="ok"), "the lease was free at once"


def test_sigint_ends_it_too(config):
    with daemon(config) as running:
        running.saw("tick.finished")
        running.tell(signal.SIGINT)
        assert running.ended() == 0


def test_sighup_takes_a_good_config(config):
    with daemon(config) as running:
        running.saw("tick.finished")
        config.write_text(f'interval_s = 60\n[daemon]\njitter_s = 0\n{BOX}[[cluster]]\nname = "box-2"\nkind = "host"\n')
        running.tell(signal.SIGHUP)

        reloaded = running.saw("config.reloaded")[0]
        assert (reloaded["clusters"], reloaded["interval_s"]) == (2, 60)
        running.saw("cluster.polled", cluster="box-2")
        document = json.loads(ctl(config, "status", "--json").stdout)
        assert {each["name"] for each in document["clusters"]} == {"box", "box-2"}


def test_sighup_refuses_a_bad_config_keeps_the_old_one_and_goes_on_saying_so(config):
    """Until a good one comes: an operator who looks an hour later must still learn that the file is not what runs."""
    with daemon(config) as running:
        running.saw("tick.finished")
        good = config.read_text()
        config.write_text("intervall_s = 5\n")
        running.tell(signal.SIGHUP)
        refused = running.saw("config.refused")[0]
        assert "intervall_s: unknown key; did you mean 'interval_s'?" in refused["reason"]

        config.write_text(good)
        assert ctl(config, "tick").returncode in (0, 4)
        status = ctl(config, "status")
        assert status.returncode == 4
        assert "the new config was refused, the old one stays" in " ".join(status.stdout.split())

        running.tell(signal.SIGHUP)
        running.saw("config.reloaded")
        until(lambda: ctl(config, "status").returncode == 0, "the trouble is over")


def test_sighup_does_not_move_the_database_under_a_running_daemon(config, tmp_path):
    """Else its report would be read from another database than its ticks are written to."""
    with daemon(config) as running:
        running.saw("tick.finished")
        config.write_text(f'database_url = "sqlite:///other.db"\n{config.read_text()}')
        running.tell(signal.SIGHUP)

        assert running.saw("config.kept")[0]["settings"] == ["database_url"]
        running.saw("tick.finished", 2)
        assert not (tmp_path / "other.db").exists()


# -- systemd -----------------------------------------------------------------------------------------------------------


def test_systemd_hears_ready_watchdog_reloading_and_stopping(config, tmp_path):
    address = tmp_path / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(address))
        heard.settimeout(40)
        words: list[str] = []

        def hear(word: str) -> str:
            while True:
                words.append(heard.recv(4096).decode())
                if word in words[-1]:
                    return words[-1]

        with daemon(config, NOTIFY_SOCKET=str(address), WATCHDOG_USEC="2000000") as running:
            assert "STATUS=watching 1 clusters every 900 s" in hear("READY=1")
            hear("WATCHDOG=1")
            running.tell(signal.SIGHUP)
            assert "MONOTONIC_USEC=" in hear("RELOADING=1")
            hear("READY=1")
            running.tell(signal.SIGTERM)
            hear("STOPPING=1")
            assert running.ended() == 0


# -- once, and tick ----------------------------------------------------------------------------------------------------


def once(config: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "supervisor.app.daemon", "--config", str(config), "--once"]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def test_once_ends_with_0_where_all_was_read_and_4_where_a_cluster_was_not(config):
    good = once(config)
    text = config.read_text()
    config.write_text(
        f'{text}[[cluster]]\nname = "away"\nkind = "slurm"\nlogin_nodes = ["127.0.0.1:1"]\nssh_config = false\nagent = false\n'
    )
    bad = once(config)
    config.write_text("x")
    wrong = once(config)

    assert (good.returncode, bad.returncode, wrong.returncode) == (0, 4, 2)
    assert wrong.stderr.count("\n") == 1
    config.write_text(text)
    assert ctl(config, "status").stdout.startswith("monitor ok · tick 2 "), "no daemon is due between ticks of cron"


def test_a_state_folder_that_cannot_be_made_is_one_line_and_exit_1(config, tmp_path):
    (tmp_path / "file").write_text("")
    config.write_text(f'state_dir = "file/state"\n{config.read_text()}')

    for done in (once(config), ctl(config, "tick")):
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1, done.stderr
        assert "file/state" in done.stderr


def test_tick_is_made_by_the_daemon_where_one_runs_and_by_itself_where_none_does(config):
    alone = ctl(config, "tick")
    assert alone.returncode == 0
    assert alone.stdout.startswith("## ")
    assert "tick 1 " in alone.stdout.splitlines()[0]

    with daemon(config) as running:
        running.saw("tick.finished")
        asked = ctl(config, "tick", "--json")
        assert asked.returncode == 0
        number = json.loads(asked.stdout)["monitor"]["last_tick"]["number"]
        running.saw("tick.finished", tick=number)
        running.tell(signal.SIGTERM)
        running.ended()

    again = ctl(config, "tick")
    assert again.returncode == 0
    assert f"tick {number + 1} " in again.stdout.splitlines()[0]


# -- the monitor's own state -------------------------------------------------------------------------------------------


def test_a_killed_daemon_is_said_dead_at_once_on_its_own_machine(config):
    """LIVE-8: its process is looked for; nobody waits for a minute of silence."""
    with daemon(config) as running:
        running.saw("tick.finished")
        until(lambda: ctl(config, "status").returncode == 0, "status is fresh")
        running.tell(signal.SIGKILL)
        running.ended()

        status = ctl(config, "status")
        assert status.returncode == 4
        assert status.stdout.startswith("monitor dead · ")
        assert "does not run any more" in status.stdout


def test_status_before_and_after_a_failed_job(config):
    """Exit 0, then 3: a job that ended other than well asks for a look."""
    with daemon(config) as running:
        running.saw("tick.finished")
        assert ctl(config, "status").returncode == 0
        assert (
            ctl(
                config, "launch", "--name", "rl__bad", "--", sys.executable, "-c", "raise ValueError('bad batch')"
            ).returncode
            == 0
        )

        def told() -> dict[str, Any] | None:
            ctl(config, "tick")
            jobs = json.loads(ctl(config, "status", "--json").stdout)["jobs"]
            return next((job for job in jobs if job["name"] == "rl__bad" and job["outcome"] and job["diagnosis"]), None)

        job = until(told, "the failed process is diagnosed")
        assert (job["phase"], job["outcome"], job["exit_code"]) == ("terminal", "failed", 1)
        assert job["diagnosis"]["cause"]["text"] == "ValueError: bad batch"
        records = [path.name for path in (config.parent / "agent_logs").iterdir()]
        assert any(name.endswith("_sweep.md") for name in records)
        assert any("failed" in name for name in records)
        status = ctl(config, "status")
        assert status.returncode == (3 if job["flags"] else 0)


def test_a_locked_database_is_waited_for_and_the_daemon_heals(config):
    """No action, no crash: it says what it waits for, and ticks when the lock is gone."""
    assert once(config).returncode == 0
    lock = sqlite3.connect(config.parent / "state" / "supervisor.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    with daemon(config) as running:
        assert "is locked" in running.saw("daemon.waiting")[0]["reason"]
        lock.rollback()
        lock.close()
        running.saw("tick.finished")
        running.tell(signal.SIGTERM)
        assert running.ended() == 0


# -- two daemons -------------------------------------------------------------------------------------------------------


def test_two_daemons_on_one_postgresql_share_the_clusters_and_poll_none_twice_at_once(tmp_path, postgres_url):
    """Leases: what one holds the other leaves alone; what a killed one held is taken over."""
    text = f'interval_s = 5\ndatabase_url = "{postgres_url}"\n[daemon]\njitter_s = 0\nlease_s = 10\n'
    text += "".join(f'[[cluster]]\nname = "box-{number}"\nkind = "host"\ndeadline_s = 5\n' for number in range(3))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(text)
    with daemon(tmp_path / "one" / "config.toml") as one:
        one.saw("tick.finished")
        with daemon(tmp_path / "two" / "config.toml") as two:
            two.saw("tick.finished", 2)
            one.saw("tick.finished", 3)
            polled = [{event["cluster"] for event in each.events("cluster.polled")} for each in (one, two)]
            assert polled[0] | polled[1] == {"box-0", "box-1", "box-2"}
            assert polled[0] & polled[1] == set(), "each cluster has one daemon"
            one.tell(signal.SIGKILL)
            one.ended()
            for number in range(3):
                two.saw("cluster.polled", cluster=f"box-{number}", state="ok")
            two.tell(signal.SIGTERM)
            assert two.ended() == 0
