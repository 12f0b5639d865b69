"""Who we are to an API server: kubeconfig, service account or credential plugin, read again whenever one of their files changes.

The official client reads what a kubeconfig says; credential plugins are run here, because they must never prompt, must end in
time, and must say why they failed (the client logs that and goes on without credentials).
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from kubernetes.client.configuration import Configuration
from kubernetes.config import incluster_config, kube_config
from kubernetes.config.config_exception import ConfigException

from supervisor.clusters.kubernetes_objects import plain
from supervisor.clusters.kubernetes_settings import KubernetesSettings
from supervisor.model.errors import LoginFailed, LoginNeedsPerson

_RENEW_BEFORE = timedelta(seconds=60)
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FILES = ("tokenFile", "client-certificate", "client-key")

Stamp = tuple[tuple[str, int, int, int], ...]
"""Path, inode, time and size of each file that the credentials came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Credentials in force, and what they were made of."""

    configuration: Configuration
    namespace: str
    """The context's own; ``default`` where it names none."""
    source: str
    """For people: ``context east of ~/.kube/config``."""
    stamp: Stamp
    expires_at: datetime | None = None
    """UTC; None where nothing says it."""
    expires_what: str = ""
    """``token``, ``client certificate``, ``credentials of the plugin aws``."""
    renews_itself: bool = False
    """A plugin makes new credentials when these end."""
    settings: KubernetesSettings = field(repr=False)

    def stale(self, now: datetime) -> bool:
        """Whether the credentials should be read again: a file has changed, or a plugin's credentials are about to end."""
        if self.renews_itself and self.expires_at is not None and now >= self.expires_at - _RENEW_BEFORE:
            return True
        return _stamp(path for path, *_ in self.stamp) != self.stamp


def log_in(cluster: str, settings: KubernetesSettings, now: datetime) -> Login:
    """Read the credentials; runs a plugin where the kubeconfig names one. Blocks: for a thread.

    Raises LoginFailed, with what is wrong and where; no secret stands in it.
    """
    if settings.in_cluster:
        return _in_cluster(cluster, settings)
    paths = _kubeconfig_paths(settings)
    found = [path for path in paths if path.exists()]
    if not found:
        named = os.pathsep.join(map(str, paths))
        raise LoginFailed(
            cluster, f"kubeconfig {named} does not exist", "set kubeconfig, or in_cluster = true inside a pod"
        )
    return _from_kubeconfig(cluster, settings, found, now)


def _in_cluster(cluster: str, settings: KubernetesSettings) -> Login:
    token, authority = incluster_config.SERVICE_TOKEN_FILENAME, incluster_config.SERVICE_CERT_FILENAME
    configuration = Configuration()
    stamp = _stamp((token, authority))
    try:
        incluster_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        expires = _jwt_expiry(Path(token).read_text(encoding="utf-8").strip())
        namespace = Path(token).with_name("namespace").read_text(encoding="utf-8").strip()
    except (ConfigException, OSError, UnicodeDecodeError) as error:
        raise LoginFailed(
            cluster, f"no service account to use: {error}", "in_cluster = true works inside a pod only"
        ) from error
    return Login(
        configuration=configuration,
        namespace=namespace or "default",
        source="the pod's service account",
        stamp=stamp,
        expires_at=expires,
        expires_what="token of the service account",
        renews_itself=True,
        settings=settings,
    )


def _kubeconfig_paths(settings: KubernetesSettings) -> list[Path]:
    if settings.kubeconfig is not None:
        return [settings.kubeconfig]
    listed = [Path(part).expanduser() for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return listed or [Path("~/.kube/config").expanduser()]


def _from_kubeconfig(cluster: str, settings: KubernetesSettings, paths: list[Path], now: datetime) -> Login:
    sections: dict[str, dict[str, tuple[Any, Path]]] = {"clusters": {}, "contexts": {}, "users": {}}
    current = ""
    for path in paths:
        document = _document(cluster, path)
        current = current or str(document.get("current-context") or "")
        for section, found in sections.items():
            for entry in document.get(section) or ():
                if isinstance(entry, dict) and isinstance(entry.get(section[:-1]), dict):
                    found.setdefault(str(entry.get("name")), (entry[section[:-1]], path))
    where = os.pathsep.join(map(str, paths))
    wanted = settings.context or current
    if not wanted:
        raise LoginFailed(cluster, f"{where} names no current-context", "set context for this cluster")
    context, _ = _entry(cluster, sections, "contexts", wanted, where)
    server, server_path = _entry(cluster, sections, "clusters", str(context.get("cluster")), where)
    user: dict[str, Any] = {}
    user_path = server_path
    if context.get("user"):
        user, user_path = _entry(cluster, sections, "users", str(context["user"]), where)
    server, user = _rooted(server, server_path, ("certificate-authority",)), _rooted(user, user_path, _FILES)
    files = [str(path) for path in paths] + [str(user[key]) for key in _FILES if user.get(key)]
    files += [str(server["certificate-authority"])] if server.get("certificate-authority") else []
    stamp = _stamp(files)
    expires: datetime | None = None
    plugin = user.get("exec")
    if isinstance(plugin, dict) and not (user.get("token") or user.get("tokenFile")):
        credentials = _run_plugin(cluster, plugin, server, user_path.parent, settings.login_timeout_s)
        expires = _time(credentials.get("expirationTimestamp"))
        user = _user_of(cluster, credentials, str(plugin.get("command")))
    configuration = _configuration(cluster, wanted, server, user, where)
    expires, what = _expiry(configuration, user, expires)
    return Login(
        configuration=configuration,
        namespace=str(context.get("namespace") or "default"),
        source=f"context {wanted} of {where}",
        stamp=stamp,
        expires_at=expires,
        expires_what=f"credentials of the plugin {plugin.get('command')}" if isinstance(plugin, dict) else what,
        renews_itself=isinstance(plugin, dict),
        settings=settings,
    )


def _document(cluster: str, path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_YAML)  # noqa: S506  # both are safe ones
    except (OSError, UnicodeDecodeError) as error:
        raise LoginFailed(cluster, f"kubeconfig {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise LoginFailed(cluster, f"kubeconfig {path} is not valid YAML{line}") from None
    if not isinstance(document, dict):
        raise LoginFailed(cluster, f"kubeconfig {path} holds no configuration")
    return document


def _entry(
    cluster: str, sections: Mapping[str, Mapping[str, tuple[Any, Path]]], section: str, name: str, where: str
) -> tuple[dict[str, Any], Path]:
    found = sections[section]
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise LoginFailed(
            cluster,
            f"{section[:-1]} {name!r} is not in {where}; it has: {known}",
            f"set context to one of the {section} there",
        )
    entry, path = found[name]
    return dict(entry), path


def _rooted(entry: dict[str, Any], path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    """Relative files of a kubeconfig lie beside it."""
    return {
        key: str(path.parent / Path(str(value)).expanduser()) if key in keys and value else value
        for key, value in entry.items()
    }


def _run_plugin(
    cluster: str, plugin: dict[str, Any], server: dict[str, Any], folder: Path, limit_s: float
) -> dict[str, Any]:
    """One ExecCredential from the plugin: no terminal, no input, and it is ended when its time is up."""
    command, version = str(plugin.get("command") or ""), str(plugin.get("apiVersion") or "")
    if not command or not version:
        raise LoginFailed(cluster, "the credential plugin of its kubeconfig has no command or no apiVersion")
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = {key: value for key, value in server.items() if key != "extensions"}
        for extension in server.get("extensions") or ():
            if extension.get("name") == "client.authentication.k8s.io/exec":
                spec["cluster"]["config"] = extension.get("extension")
    env = os.environ | {str(item["name"]): str(item["value"]) for item in plugin.get("env") or ()}
    env["KUBERNETES_EXEC_INFO"] = json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": spec})
    argv = [
        str(folder / command) if "/" in command and not command.startswith("/") else command,
        *map(str, plugin.get("args") or ()),
    ]
    try:
        ran = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, env=env, cwd=folder, check=False
        )
    except FileNotFoundError as error:
        raise LoginFailed(
            cluster, f"credential plugin {command} is not there", str(plugin.get("installHint") or "") or None
        ) from error
    except subprocess.TimeoutExpired as error:
        raise LoginNeedsPerson(
            cluster, f"credential plugin {command} did not end within {limit_s:g} s", f"log in with {command} by hand"
        ) from error
    except OSError as error:
        raise LoginFailed(cluster, f"credential plugin {command} could not be run: {error}") from error
    if ran.returncode:
        said = _last_line(ran.stderr)
        raise LoginNeedsPerson(
            cluster,
            f"credential plugin {command} exited {ran.returncode}{': ' + said if said else ''}",
            "log in by hand once",
        )
    try:
        answer = json.loads(ran.stdout)
        status = answer["status"]
        if not isinstance(status, dict) or answer.get("kind") != "ExecCredential":
            raise TypeError("no ExecCredential")
    except (ValueError, KeyError, TypeError) as error:
        raise LoginFailed(cluster, f"credential plugin {command} printed no ExecCredential") from error
    return status


def _user_of(cluster: str, credentials: dict[str, Any], command: str) -> dict[str, Any]:
    if credentials.get("token"):
        return {"token": str(credentials["token"])}
    certificate, key = credentials.get("clientCertificateData"), credentials.get("clientKeyData")
    if certificate and key:
        encoded = [base64.b64encode(str(text).encode()).decode() for text in (certificate, key)]
        return {"client-certificate-data": encoded[0], "client-key-data": encoded[1]}
    raise LoginFailed(cluster, f"credential plugin {command} gave neither a token nor a certificate with its key")


def _configuration(
    cluster: str, context: str, server: dict[str, Any], user: dict[str, Any], where: str
) -> Configuration:
    name = "here"
    document = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": server}],
        "users": [{"name": name, "user": user}],
    }
    configuration = Configuration()
    if not server.get("server"):
        raise LoginFailed(cluster, f"context {context} of {where} names no server")
    try:
        kube_config.load_kube_config_from_dict(document, client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError, ValueError, TypeError, KeyError) as error:
        said = str(error).replace("kube-config/", "").replace("[name=here]", "")
        raise LoginFailed(cluster, f"context {context} of {where} cannot be used: {said[:300]}") from None
    return configuration


def _expiry(configuration: Configuration, user: dict[str, Any], known: datetime | None) -> tuple[datetime | None, str]:
    """The earliest end of what we show the server."""
    ends = [(known, "credentials")] if known is not None else []
    for value in authorization(configuration).values():
        ends += [(end, "token") for end in [_jwt_expiry(value.partition(" ")[2])] if end is not None]
    if configuration.cert_file:
        ends += [
            (end, "client certificate") for end in [_certificate_end(Path(configuration.cert_file))] if end is not None
        ]
    if not ends:
        return None, "client certificate" if user.get("client-certificate") or user.get(
            "client-certificate-data"
        ) else "token"
    return min(ends)


def authorization(configuration: Configuration) -> dict[str, str]:
    """Headers that say who we are; a legacy auth provider of the client renews its token in here."""
    settings: Any = configuration.auth_settings()
    return {str(setting["key"]): str(setting["value"]).strip() for setting in settings.values() if setting.get("value")}


def tls_of(cluster: str, login: Login) -> ssl.SSLContext:
    """What the login trusts and shows, for a client that is not the official one. Blocks: for a thread. Raises LoginFailed."""
    one = login.configuration
    try:
        context = ssl.create_default_context(cafile=one.ssl_ca_cert or None)
        if one.cert_file:
            context.load_cert_chain(one.cert_file, one.key_file)
    except (OSError, ssl.SSLError) as error:
        raise LoginFailed(cluster, f"the certificates of its kubeconfig cannot be used: {plain(str(error))}") from error
    if not one.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _jwt_expiry(token: str) -> datetime | None:
    """``exp`` of a JSON web token; None where it is none, or has none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.fromtimestamp(float(claims["exp"]), UTC)
    except (ValueError, TypeError, KeyError, OverflowError, OSError, binascii.Error):
        return None


def _certificate_end(path: Path) -> datetime | None:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return None


def _time(value: object) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed if parsed.tzinfo else None


def _stamp(paths: Any) -> Stamp:
    stamps = []
    for path in paths:
        try:
            stat = Path(path).stat()
            stamps.append((str(path), stat.st_ino, stat.st_mtime_ns, stat.st_size))
        except OSError:
            stamps.append((str(path), 0, 0, -1))
    return tuple(stamps)


def _last_line(text: bytes) -> str:
    lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    return "".join(letter for letter in lines[-1][:300] if letter.isprintable()) if lines else ""
