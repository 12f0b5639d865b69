"""Service files: what they say, and that the service managers' own programs take them."""

from __future__ import annotations

import plistlib
import shutil
import subprocess
from pathlib import Path

import pytest

from supervisor.app.config_path import Places
from supervisor.app.service import plan
from supervisor.model.errors import UsageError


def places(folder: Path) -> Places:
    return Places(folder / "config.toml", folder / "state", "", folder / "agent_logs", 24, {})


def values(text: str, key: str) -> list[str]:
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}=")]


@pytest.mark.parametrize("system", [True, False])
def test_the_unit_tells_systemd_when_it_is_ready_and_alive(tmp_path, system):
    made = plan(places(tmp_path), system=system, platform="linux", program=Path("/opt/f/bin/supervisord"), user="alice")

    assert values(made.text, "Type") == ["notify"]
    assert values(made.text, "WatchdogSec") == ["120"]
    assert values(made.text, "ExecStart") == [f"/opt/f/bin/supervisord --config {tmp_path}/config.toml"]
    assert values(made.text, "ExecReload") == ["kill -HUP $MAINPID"]
    assert values(made.text, "User") == (["alice"] if system else [])
    assert values(made.text, "WantedBy") == ["multi-user.target" if system else "default.target"]
    assert "@" not in made.text.replace("@system-service", "").replace("@privileged", "").replace("@resources", "")


def test_the_machines_unit_may_write_its_state_and_records_and_nothing_else(tmp_path):
    made = plan(places(tmp_path), system=True, platform="linux")

    assert values(made.text, "ReadWritePaths") == [f"{tmp_path}/state {tmp_path}/agent_logs"]
    assert values(made.text, "ProtectSystem") == ["strict"]
    assert values(made.text, "CapabilityBoundingSet") == [""]
    assert made.folders == (tmp_path / "state", tmp_path / "agent_logs")


def test_a_users_unit_asks_for_nothing_that_only_the_machines_manager_can_give(tmp_path):
    """A user's manager has no privilege to set up name spaces or drop capabilities: such a unit would not start at all."""
    text = plan(places(tmp_path), system=False, platform="linux").text

    for key in (
        "ProtectSystem",
        "ReadWritePaths",
        "PrivateDevices",
        "ProtectKernelLogs",
        "CapabilityBoundingSet",
        "User",
        "After",
    ):
        assert values(text, key) == [], key
    for key in ("NoNewPrivileges", "RestrictSUIDSGID", "LockPersonality"):
        assert values(text, key) == ["yes"], key


def test_odd_paths_stay_one_word(tmp_path):
    odd = tmp_path / 'a b%h"c'
    text = plan(places(odd), system=True, platform="linux").text

    assert values(text, "ReadWritePaths")[0].startswith(f'"{tmp_path}/a b%%h\\"c/state" "')


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here")
@pytest.mark.parametrize(("system", "most"), [(True, 20), (False, 65)])
def test_systemd_takes_the_unit_and_calls_it_hardened(tmp_path, system, most):
    program = tmp_path / "supervisord"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "fleet-supervisor.service"
    unit.write_text(plan(places(tmp_path / "a b"), system=system, platform="linux", program=program).text)

    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={most}", "--no-pager", unit]
    rated = subprocess.run(command, capture_output=True, text=True, check=False)

    assert "fleet-supervisor.service" not in verified.stderr, verified.stderr
    assert rated.returncode == 0, rated.stdout.splitlines()[-1]


def test_the_launch_agent_is_a_property_list(tmp_path):
    made = plan(places(tmp_path), system=False, platform="darwin", program=Path("/opt/f/bin/supervisord"))
    document = plistlib.loads(made.text.encode())

    assert document["ProgramArguments"] == ["/opt/f/bin/supervisord", "--config", f"{tmp_path}/config.toml"]
    assert document["KeepAlive"] is True
    assert document["ExitTimeOut"] >= 60, "a tick may finish"
    assert Path(document["StandardErrorPath"]).parent in made.folders
    assert made.path.name == f"{document['Label']}.plist"


def test_elsewhere_it_says_that_it_knows_no_service_manager(tmp_path):
    with pytest.raises(UsageError, match="no service manager is known for win32"):
        plan(places(tmp_path), system=False, platform="win32")
    with pytest.raises(UsageError, match="--system is for systemd"):
        plan(places(tmp_path), system=True, platform="darwin")


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def on_linux(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "systemd" / "user" / "fleet-supervisor.service"


def test_print_writes_nothing(config, ask, on_linux):
    answer = ask("--config", config, "install-service", "--print")

    assert answer.code == 0
    assert answer.out.startswith("# Fleet Supervisor.")
    assert not on_linux.exists()


def test_it_writes_the_unit_makes_the_folders_and_says_the_next_steps(config, ask, on_linux):
    """A unit whose folders are not there does not start."""
    answer = ask("--config", config, "install-service")

    assert answer.code == 0
    assert answer.out.startswith(f"wrote {on_linux}\n")
    assert "systemctl --user daemon-reload && systemctl --user enable --now fleet-supervisor" in answer.out
    assert "loginctl enable-linger" in answer.out
    assert (config.parent / "state").is_dir()
    assert (config.parent / "agent_logs").is_dir()
    assert ask("--config", config, "install-service").code == 0, "the same again is no fault"


def test_a_file_of_somebody_else_is_not_written_over(config, ask, on_linux):
    on_linux.parent.mkdir(parents=True)
    on_linux.write_bytes(b"mine \xff")

    refused = ask("--config", config, "install-service")
    forced = ask("--config", config, "install-service", "--force")

    assert refused.code == 2
    assert "is there and differs" in refused.line
    assert forced.code == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--user", "alice"], "--user goes with --system; without it the service is your own"),
        (["--system", "--user", "nobody-of-that-name"], "there is no user 'nobody-of-that-name'"),
    ],
)
def test_a_user_that_cannot_be_is_said(config, ask, on_linux, words, line):
    if "--system" in words and Path("/etc/systemd/system/fleet-supervisor.service").exists():
        pytest.skip("a service is installed on this machine")
    answer = ask("--config", config, "install-service", *words)

    assert answer.code == 2
    assert line in answer.line
    assert not Path("/etc/systemd/system/fleet-supervisor.service").exists()
