"""A real sshd of the test's own on a loopback port, with its own keys, started and ended by process id."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from supervisor.clusters.login_settings import LoginSettings

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/sbin")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def new_key(path: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)
    return path


class PrivateSshd:
    """``alice`` of these tests is whoever runs them: sshd without root lets nobody else in."""

    def __init__(self, folder: Path, **config: str) -> None:
        assert SSHD is not None
        self.folder, self.port, self.user = folder, free_port(), getpass.getuser()
        folder.chmod(0o755)
        self.host_key = new_key(folder / "host_key")
        self.key = new_key(folder / "user_key")
        self.known_hosts = folder / "known_hosts"
        (folder / "authorized_keys").write_bytes(Path(f"{self.key}.pub").read_bytes())
        self.trust(self.host_key)
        self._config = {
            "ListenAddress": "127.0.0.1",
            "HostKey": str(self.host_key),
            "AuthorizedKeysFile": str(folder / "authorized_keys"),
            "PidFile": "none",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "yes",
            "StrictModes": "no",
            "UsePAM": "no",
            **config,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def trust(self, host_key: Path) -> None:
        kind, blob = Path(f"{host_key}.pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {blob}\n")

    def start(self) -> None:
        assert SSHD is not None
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        file = self.folder / "sshd_config"
        file.write_text("".join(f"{key} {value}\n" for key, value in {"Port": str(self.port), **self._config}.items()))
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(file)], stderr=log, start_new_session=True)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise AssertionError((self.folder / "sshd.log").read_text())

    def restart(self, **config: str) -> None:
        self.stop()
        self._config |= config
        self.start()

    def stop(self) -> None:
        if self._process is not None:
            self.drop_sessions()
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def sessions(self) -> list[int]:
        """Process ids of the servers of open connections, parents before children."""
        assert self._process is not None
        found, layer = [], [self._process.pid]
        while layer:
            layer = [pid for parent in layer for pid in _children(parent) if _name(pid).startswith("sshd")]
            found += layer
        return found

    def drop_sessions(self) -> None:
        for pid in reversed(self.sessions()):
            _send(pid, signal.SIGCONT)
            _send(pid, signal.SIGKILL)

    def freeze(self) -> None:
        """The listener and all open connections stop to answer; the kernel still takes in what is sent."""
        assert self._process is not None
        for pid in (self._process.pid, *self.sessions()):
            _send(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        for pid in (self._process.pid, *self.sessions()):
            _send(pid, signal.SIGCONT)

    def settings(self, **changes: object) -> LoginSettings:
        """Settings under which the developer's own ssh set-up plays no part."""
        values: dict[str, object] = {
            "login_user": self.user,
            "identity_file": self.key,
            "known_hosts": self.known_hosts,
            "ssh_config": False,
            "agent": False,
        }
        return LoginSettings.model_validate(values | changes)

    @property
    def node(self) -> str:
        return f"127.0.0.1:{self.port}"


def _send(pid: int, which: signal.Signals) -> None:
    try:
        os.kill(pid, which)
    except ProcessLookupError:
        return


def _children(pid: int) -> list[int]:
    out = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, check=True, text=True).stdout
    return [int(line.split()[0]) for line in out.splitlines() if int(line.split()[1]) == pid]


def _name(pid: int) -> str:
    out = subprocess.run(["ps", "-o", "comm=", "-p", str(pid)], capture_output=True, check=False, text=True).stdout
    return Path(out.strip()).name
