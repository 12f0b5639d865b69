"""Getting in over SSH without ever asking anybody, and saying afterwards why it did not work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncssh

from supervisor.clusters.certificate import certificate_expiry
from supervisor.clusters.login_settings import LoginNode, LoginSettings
from supervisor.model.errors import ClusterError, LoginFailed, LoginNeedsPerson, TookTooLong

_FIRST_CIPHER = "aes128-gcm@openssh.com"
"""With hardware AES it moves a log in three quarters of the time of OpenSSH's default."""
_SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")
_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")
_AUTH_ORDER = ("gssapi-with-mic", "hostbased", "publickey", "keyboard-interactive", "password")
_MOST_JUMPS = 8


class Login:
    """One attempt to get in, which never asks anybody anything, and can tell afterwards why it failed."""

    def __init__(
        self, cluster: str, node: LoginNode, settings: LoginSettings, clock: Callable[[], datetime] | None
    ) -> None:
        self._cluster, self._node, self._settings, self._clock = cluster, node, settings, clock

    async def open(self) -> list[asyncssh.SSHClientConnection]:
        """The connection last, the jump hosts that carry it before it."""
        return await self._open(self._node, None, _MOST_JUMPS)

    async def _open(
        self, node: LoginNode, over: asyncssh.SSHClientConnection | None, jumps_left: int
    ) -> list[asyncssh.SSHClientConnection]:
        if not jumps_left:
            raise LoginFailed(self._cluster, f"ssh config leads from one jump host to the next without end ({node})")
        witness = _Witness()
        options: asyncssh.SSHClientConnectionOptions | None = None
        under: list[asyncssh.SSHClientConnection] = []
        try:
            options = await self._options(node, witness)
            known_hosts = self._known_hosts(options, node)
            if over is None and isinstance(options.tunnel, str):
                # asyncssh would open it by itself, with host keys checked as ssh config says, which may be not at all.
                for jump in options.tunnel.split(","):
                    under += await self._open(LoginNode.parse(jump), over, jumps_left - 1)
                    over = under[-1]
            connection = await asyncssh.connect(
                node.host,
                node.port or (),
                options=options,
                config=None,
                known_hosts=list(map(str, known_hosts)) or b"",
                tunnel=over or (),
            )
        except BaseException as error:
            for opened in reversed(under):
                opened.abort()
            if isinstance(error, asyncssh.Error | OSError | ValueError):
                raise self._explained(error, node, witness, options) from error
            raise
        return [*under, connection]

    async def _options(self, node: LoginNode, witness: _Witness) -> asyncssh.SSHClientConnectionOptions:
        settings = self._settings
        given: dict[str, Any] = {}
        if node.user:
            given["username"] = node.user
        if node.port:
            given["port"] = node.port
        if settings.identity_file is not None:
            given |= {"client_keys": [str(settings.identity_file)], "ignore_encrypted": True}
        if settings.certificate_file is not None:
            given["client_certs"] = [str(settings.certificate_file)]
        if settings.known_hosts is not None:
            given["known_hosts"] = [str(settings.known_hosts)]
        if not settings.agent:
            given["agent_path"] = None
        config: Any = ()
        if settings.ssh_config is not True:
            config = None if settings.ssh_config is False else [str(settings.ssh_config)]
        options: asyncssh.SSHClientConnectionOptions = await asyncssh.SSHClientConnectionOptions.construct(
            client_factory=lambda: witness,
            host=node.host,
            config=config,
            encryption_algs=f"^{_FIRST_CIPHER}",
            preferred_auth=list(_AUTH_ORDER),
            connect_timeout=settings.connect_timeout_s + settings.login_timeout_s,
            login_timeout=settings.login_timeout_s,
            keepalive_interval=settings.keepalive_s,
            keepalive_count_max=settings.keepalive_misses,
            agent_forwarding=False,
            **given,
        )
        return options

    def _known_hosts(self, options: asyncssh.SSHClientConnectionOptions, node: LoginNode) -> list[Path]:
        """Files of trusted host keys that exist. None at all means that nothing is trusted."""
        named: Any = options.known_hosts
        if named is None:
            # asyncssh takes "UserKnownHostsFile none" for leave to check nothing. There is no such leave here.
            raise LoginFailed(
                self._cluster,
                f"ssh config turns the check of host keys off for {node}",
                hint="set known_hosts for this cluster, or mend UserKnownHostsFile in ssh config",
            )
        given = self._settings.known_hosts
        if given is not None and not given.is_file():
            raise LoginFailed(self._cluster, f"known_hosts: there is no file {given}")
        files = [Path(str(name)).expanduser() for name in named]
        return [file for file in files or [Path.home() / ".ssh/known_hosts", _SYSTEM_KNOWN_HOSTS] if file.is_file()]

    def _explained(
        self,
        error: Exception,
        node: LoginNode,
        witness: _Witness,
        options: asyncssh.SSHClientConnectionOptions | None,
    ) -> ClusterError:
        said = printable(str(error)) or type(error).__name__
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return self._host_key_refused(said, node, options)
        if isinstance(error, asyncssh.PermissionDenied):
            return self._key_refused(node, witness, options)
        if isinstance(error, TimeoutError):
            limit = self._settings.connect_timeout_s + self._settings.login_timeout_s
            return TookTooLong(self._cluster, f"the login at {node}", limit)
        if isinstance(error, asyncssh.ConnectionLost) and "imeout" in said:
            return TookTooLong(self._cluster, f"the login at {node}", self._settings.login_timeout_s)
        if isinstance(error, FileNotFoundError | PermissionError) and error.filename:
            return LoginFailed(self._cluster, f"{error.filename} cannot be read: {error.strerror}")
        if isinstance(error, OSError):
            return LoginFailed(self._cluster, f"{node} cannot be reached: {said}")
        if isinstance(error, asyncssh.KeyExchangeFailed):
            return LoginFailed(
                self._cluster,
                f"{node} and we have no algorithm in common: {said}",
                hint=f"if its host key changed its kind, log in once by hand: ssh {node.host}",
            )
        if isinstance(error, asyncssh.Error):
            hint = None
            if "too many authentication failures" in said.lower():
                hint = "too many keys were offered: set identity_file, and agent = false"
            return LoginFailed(self._cluster, f"{node} broke off the login: {said}", hint=hint)
        return LoginFailed(self._cluster, f"ssh config or a key for {node} is unusable: {said}")

    def _host_key_refused(
        self, said: str, node: LoginNode, options: asyncssh.SSHClientConnectionOptions | None
    ) -> LoginFailed:
        files = [str(file) for file in self._known_hosts(options, node)] if options is not None else []
        where = ", ".join(files) or "no known_hosts file"
        if options is not None and files:
            port = options.port if options.port != 22 else None
            host = options.host_key_alias or options.host
            known = asyncssh.match_known_hosts(files, host, "", port)
            if known[2] and "revoked" in said.lower():
                return LoginFailed(self._cluster, f"the host key of {node} is revoked ({where})")
            if known[0]:
                return LoginFailed(
                    self._cluster,
                    f"the host key of {node} is not the one in {where}: a new key, or somebody in between",
                    hint=f"ask the site whether the key changed; only then: ssh-keygen -R {_known_name(host, port)}"
                    f" -f {files[0]}, and log in once by hand",
                )
        return LoginFailed(
            self._cluster,
            f"the host key of {node} is not known ({where})",
            hint=f"log in once by hand and compare the fingerprint: ssh {_by_hand(node)}",
        )

    def _key_refused(
        self, node: LoginNode, witness: _Witness, options: asyncssh.SSHClientConnectionOptions | None
    ) -> LoginFailed:
        said = f" ({witness.banner})" if witness.banner else ""
        for path in filter(None, (self._settings.certificate_file, *self._key_files(options))):
            with contextlib.suppress(OSError, ValueError):
                ends = certificate_expiry(path)
                if ends is not None and self._clock is not None and ends <= self._clock():
                    return LoginNeedsPerson(
                        self._cluster,
                        f"the certificate for {path} ended at {ends.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
                        hint="get a new certificate from your site",
                    )
        if witness.wants_person:
            return LoginNeedsPerson(
                self._cluster,
                f"{node} asks for {witness.wants_person}, which only a person can give{said}",
                hint='open a master connection by hand and set transport = "openssh" with control_path',
            )
        for path in self._key_files(options):
            if _needs_passphrase(path):
                return LoginNeedsPerson(
                    self._cluster,
                    f"the key {path} has a passphrase and no ssh-agent offers it; {node} took no other key",
                    hint=f"ssh-add {path}, in the session whose SSH_AUTH_SOCK the daemon has",
                )
        offered = ", ".join(str(path) for path in self._key_files(options)) or "no key file"
        agent = "and keys of the ssh-agent" if options is not None and options.agent_path else "no ssh-agent"
        also = f"; it would also take {witness.alternatives} from a person" if witness.alternatives else ""
        return LoginFailed(
            self._cluster,
            f"{node} refused every key as user {options.username if options else node.user} ({offered}; {agent}){also}{said}",
            hint=f"try by hand: ssh -v {_by_hand(node)}",
        )

    def _key_files(self, options: asyncssh.SSHClientConnectionOptions | None) -> list[Path]:
        if self._settings.identity_file is not None:
            return [self._settings.identity_file]
        named: Any = options.config.get("IdentityFile", ()) if options is not None else ()
        paths = [Path(str(name)).expanduser() for name in named] or [Path.home() / ".ssh" / n for n in _DEFAULT_KEYS]
        return [path for path in paths if path.is_file()]


class _Witness(asyncssh.SSHClient):
    """Answers every question of the server with nothing, and remembers that it was asked.

    Keys come first in our order. A question for a password or a code before our keys have run out means that the keys
    were good and more is wanted, or that keys are not taken at all; after they ran out it is only an alternative.
    """

    def __init__(self) -> None:
        self._keys_ran_out = False
        self._asked: list[str] = []
        self.banner = ""

    @property
    def wants_person(self) -> str:
        return "" if self._keys_ran_out else " or ".join(self._asked)

    @property
    def alternatives(self) -> str:
        return " or ".join(self._asked)

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.banner = printable(msg)[:300]

    def public_key_auth_requested(self) -> None:
        self._keys_ran_out = True

    def kbdint_auth_requested(self) -> None:
        self._asked.append("a second factor or a password (keyboard-interactive)")

    def password_auth_requested(self) -> None:
        self._asked.append("a password")


def _needs_passphrase(path: Path) -> bool:
    try:
        asyncssh.read_private_key(path)
    except asyncssh.KeyEncryptionError:
        return True
    except asyncssh.KeyImportError as error:
        return "assphrase" in str(error)
    except OSError:
        return False
    return False


def _known_name(host: str, port: int | None) -> str:
    return f"'[{host}]:{port}'" if port else host


def _by_hand(node: LoginNode) -> str:
    port = f"-p {node.port} " if node.port else ""
    return f"{port}{node.user + '@' if node.user else ''}{node.host}"


def printable(text: str) -> str:
    """One line without control characters: what a server says is data."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
