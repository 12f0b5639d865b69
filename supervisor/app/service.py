"""The service file for this machine: what it says and how it is started."""

from __future__ import annotations

import os
import plistlib
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from supervisor.app.config_path import Places
from supervisor.model.errors import UsageError

LABEL = "org.fleet-supervisor.supervisord"


NETWORK = "After=network-online.target\nWants=network-online.target\n"

MACHINE = """\
# Only the machine's own service manager can give these; a user's manager would refuse to start with them.
ReadWritePaths=@WRITABLE@
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RemoveIPC=yes
CapabilityBoundingSet=
AmbientCapabilities=
"""
"""``ProtectProc`` and ``PrivateUsers`` stay off: ``kind = "host"`` reads who owns which process."""


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """Where it goes, its text, and what to do next, line by line."""

    path: Path
    text: str
    steps: tuple[str, ...]
    folders: tuple[Path, ...]
    """What it writes into; these must be there before it starts."""
    user: str | None = None
    """Whose folders they must be; None: the user's who installs it."""


def plan(where: Places, *, system: bool, platform: str, program: Path | None = None, user: str = "") -> ServiceFile:
    """The file for this platform. Raises UsageError where neither systemd nor launchd can be meant.

    ``program``: ``supervisord``; by default the one beside this Python. ``user``: who runs it with ``system``.
    """
    program = program or Path(sys.executable).with_name("supervisord")
    if platform == "darwin":
        if system:
            raise UsageError("install-service: --system is for systemd; on macOS the agent runs for this user")
        return _launchd(where, program)
    if platform.startswith("linux"):
        return _systemd(where, program, system=system, user=user or "fleet-supervisor")
    raise UsageError(f"install-service: no service manager is known for {platform}; run supervisord under your own")


def _systemd(where: Places, program: Path, *, system: bool, user: str) -> ServiceFile:
    template = resources.files("supervisor.data").joinpath("fleet-supervisor.service").read_text(encoding="utf-8")
    folders = tuple(dict.fromkeys((where.state_dir, where.agent_logs)))
    writable = " ".join(_escaped(path) for path in folders)
    text = (
        template.replace("@NETWORK@", NETWORK if system else "")
        .replace("@MACHINE@", MACHINE if system else "")
        .replace("@PROGRAM@", _escaped(program))
        .replace("@CONFIG@", _escaped(where.config))
        .replace("@WRITABLE@", writable)
        .replace("@TARGET@", "multi-user.target" if system else "default.target")
        .replace("@USER@", f"User={user}\n" if system else "")
    )
    if system:
        return ServiceFile(
            Path("/etc/systemd/system/fleet-supervisor.service"),
            text,
            (
                "Start it, now and at every boot:",
                "  systemctl daemon-reload && systemctl enable --now fleet-supervisor",
                "See how it is: systemctl status fleet-supervisor · journalctl -u fleet-supervisor · supervisorctl status",
                "After a change of the config: systemctl reload fleet-supervisor",
            ),
            folders,
            user,
        )
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return ServiceFile(
        base / "systemd" / "user" / "fleet-supervisor.service",
        text,
        (
            "Start it, now and at every login:",
            "  systemctl --user daemon-reload && systemctl --user enable --now fleet-supervisor",
            "Keep it running while you are logged out:",
            "  loginctl enable-linger",
            "See how it is: systemctl --user status fleet-supervisor · journalctl --user -u fleet-supervisor",
            "After a change of the config: systemctl --user reload fleet-supervisor",
        ),
        folders,
    )


def _escaped(path: Path) -> str:
    """A path as one word of a unit file: systemd's own quoting, `%` doubled."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if any(letter in text for letter in " \t'\"") else text


def _launchd(where: Places, program: Path) -> ServiceFile:
    log = str(where.state_dir / "supervisord.log")
    document = {
        "Label": LABEL,
        "ProgramArguments": [str(program), "--config", str(where.config)],
        "RunAtLoad": True,
        "KeepAlive": True,
        "ProcessType": "Background",
        "ExitTimeOut": 60,
        "StandardOutPath": log,
        "StandardErrorPath": log,
        "WorkingDirectory": str(where.config.parent),
    }
    path = Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    return ServiceFile(
        path,
        plistlib.dumps(document).decode(),
        (
            "Start it, now and at every login:",
            f"  launchctl bootstrap gui/$(id -u) {path}",
            f"See how it is: launchctl print gui/$(id -u)/{LABEL} · tail -f {log} · supervisorctl status",
            f"After a change of the config: launchctl kill HUP gui/$(id -u)/{LABEL}",
        ),
        tuple(dict.fromkeys((where.state_dir, where.agent_logs))),
    )
