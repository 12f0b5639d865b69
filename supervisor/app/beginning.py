"""What ``init`` finds on this machine, and the config that it writes from it."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.model.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_CONTROLLER = re.compile(r"(?:(?P<user>[A-Za-z0-9_.+-]+)@)?(?P<url>https?://[^\s@]+)")


@dataclass(slots=True)
class SlurmFound:
    """One Slurm cluster: its name and login nodes as typed."""

    name: str
    nodes: list[str]
    user: str | None = None


@dataclass(slots=True)
class IrisFound:
    """One iris controller, and whose jobs of it."""

    name: str
    url: str
    user: str


@dataclass(slots=True)
class Found:
    """What is to be watched, or could be."""

    slurm: list[SlurmFound] = field(default_factory=list)
    kube: list[str] = field(default_factory=list)
    kubeconfig: str | None = None
    """Where the contexts stand, if not in ``~/.kube/config``: a daemon that a service manager starts knows no ``$KUBECONFIG``."""
    iris: list[IrisFound] = field(default_factory=list)
    host: bool = False
    local_slurm: bool = False
    ssh_hosts: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is any cluster in it to watch."""
        return bool(self.slurm or self.kube or self.iris or self.host or self.local_slurm)


def slurm_from(text: str) -> SlurmFound:
    """``NAME=[USER@]NODE[,NODE]``. Raises UsageError saying what is allowed."""
    name, equals, nodes = text.partition("=")
    listed = [node.strip() for node in nodes.split(",") if node.strip()]
    if not equals or not _NAME.fullmatch(name) or not listed:
        raise UsageError(f"--slurm {text!r}: allowed is NAME=[USER@]NODE[,NODE], such as alpha=alice@login01.example")
    user, at, first = listed[0].rpartition("@")
    if at:
        listed[0] = first
    return SlurmFound(name, listed, user or None)


def iris_from(text: str) -> IrisFound:
    """``NAME=[USER@]URL``; without a user, this one. Raises UsageError saying what is allowed."""
    name, _, rest = text.partition("=")
    said = _CONTROLLER.fullmatch(rest.strip())
    if said is None or not _NAME.fullmatch(name):
        raise UsageError(f"--iris {text!r}: allowed is NAME=[USER@]URL, such as marin=alice@http://127.0.0.1:10000")
    return IrisFound(name, said["url"], said["user"] or getpass.getuser())


def kubeconfig_named() -> str | None:
    """The one file that ``$KUBECONFIG`` names, absolute; None where it names none or several."""
    named = [each for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    return str(Path(named[0]).expanduser().absolute()) if len(named) == 1 else None


def look() -> Found:
    """Hosts of the ssh config, contexts of the kubeconfig, a local Slurm. Unreadable files are as if they were not there."""
    found = Found(local_slurm=shutil.which("squeue") is not None, kubeconfig=kubeconfig_named())
    try:
        text = (Path.home() / ".ssh" / "config").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0].lower() == "host":
            found.ssh_hosts += [word for word in words[1:] if _NAME.fullmatch(word)]
    try:
        file = Path(found.kubeconfig) if found.kubeconfig else Path.home() / ".kube" / "config"
        kube = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return found
    import yaml  # comes with the kubernetes client

    try:
        contexts = (yaml.safe_load(kube) or {}).get("contexts") or []
        found.kube = [str(each["name"]) for each in contexts if isinstance(each, dict) and "name" in each]
    except (yaml.YAMLError, AttributeError, TypeError):
        found.kube = []
    return found


def config_text(chosen: Found, interval_s: float) -> str:
    """The commented config. Values are written as TOML strings, whatever they hold."""
    lines = [
        "# Fleet Supervisor. Every setting is explained in config.example.toml of the distribution and in `docs/operating.md`.",
        'state_dir  = "state"          # database, cached logs; relative to this file',
        'agent_logs = "agent_logs"     # dated records',
        f"interval_s = {interval_s:g}            # seconds between ticks",
        "",
    ]
    for each in chosen.slurm:
        lines += ["[[cluster]]", f"name = {_toml(each.name)}", 'kind = "slurm"']
        lines += [f"login_nodes = [{', '.join(_toml(node) for node in each.nodes)}]"]
        lines += [
            f"login_user = {_toml(each.user)}" if each.user else '# login_user = "alice"       # default: ssh config\'s'
        ]
        lines += ['# users = ["alice"]          # whose jobs; default: the login user', ""]
    if chosen.local_slurm:
        lines += ["[[cluster]]", 'name = "here"', 'kind = "slurm"', 'transport = "local"', ""]
    for context in chosen.kube:
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", context).strip("-.")[:60] or "kube"
        lines += ["[[cluster]]", f"name = {_toml(name)}", 'kind = "kubernetes"', f"context = {_toml(context)}"]
        lines += [f"kubeconfig = {_toml(chosen.kubeconfig)}"] if chosen.kubeconfig else []
        lines += ['# namespaces = ["train"]', '# selector = "team=a"', ""]
    for controller in chosen.iris:
        lines += ["[[cluster]]", f"name = {_toml(controller.name)}", 'kind = "iris"', f"url = {_toml(controller.url)}"]
        lines += [f"users = [{_toml(controller.user)}]          # whose jobs", '# token_file = "iris.token"']
        lines += ['# pods = { context = "east", namespace = "iris" }   # deep probes look into its tasks there', ""]
    if chosen.host:
        lines += [
            "[[cluster]]",
            'name = "box"',
            'kind = "host"               # processes started by `supervisorctl launch`',
            "",
        ]
    return "\n".join(lines)


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
