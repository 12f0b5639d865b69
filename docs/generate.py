"""Writes what is generated: `config.example.toml`, `docs/rules.md`, the diagram in README, the samples of service files.

python docs/generate.py           write
python docs/generate.py --check   exit 1 where a file is not as it would be written
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from datetime import date
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from supervisor.app.config_path import Places
from supervisor.app.kinds import KINDS
from supervisor.app.limits import limits_table
from supervisor.app.service import plan
from supervisor.app.settings import BucketSection, ClusterSection, Settings
from supervisor.app.trial_sections import TrialStoreSection
from supervisor.buckets import KINDS as BUCKETS
from supervisor.rules.lifecycle import diagram

ROOT = Path(__file__).resolve().parent.parent
RULE = re.compile(r"\b(?:POLL|FIND|LIVE|BUCKET|CHAIN|FAIL|RL|SFT|DATAGEN|EVAL|NOISE|PROBE|KILL|CLEAN|HERO|SAY)-\d+\b")


def said_of(model: type[BaseModel]) -> dict[str, str]:
    """The docstring under each field, by field, of the model and those it inherits from."""
    said: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if not (isinstance(owner, type) and issubclass(owner, BaseModel)) or owner.__module__.startswith("pydantic"):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, words in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and _is_text(words):
                said[field.target.id] = inspect.cleandoc(words.value.value)
    return said


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def toml(value: Any) -> str:
    """A default as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(toml(each) for each in value) + "]"
    if isinstance(value, date):
        return value.isoformat()
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


SAMPLES: dict[str, str] = {
    "name": '"alpha"',
    "login_nodes": '["login01.example", "login02.example:2222"]',
    "login_user": '"alice"',
    "users": '["alice"]',
    "accounts": '["lab"]',
    "identity_file": '"~/.ssh/id_ed25519"',
    "certificate_file": '"~/.ssh/id_ed25519-cert.pub"',
    "known_hosts": '"~/.ssh/known_hosts"',
    "control_path": '"~/.ssh/master-%C"',
    "quota_command": '"lfs quota -u alice /scratch"',
    "quota_pattern": "'(?P<bytes_used>\\d+) +(?P<bytes_soft>\\d+)'",
    "skip_until": "2026-07-12",
    "skip_reason": '"maintenance"',
    "host": '"alice@box.example"',
    "records": '"~/.local/state/fleet-supervisor/host"',
    "database_url_file": '"database.url"',
    "ping_url_file": '"ping.url"',
    "kubeconfig": '"~/.kube/config"',
    "context": '"east"',
    "selector": '"team=a"',
    "url": '"http://127.0.0.1:10000"',
    "token_file": '"iris.token"',
    "keep_ended_days": "30",
    "jobs": '"eval-*"',
    "place": '"s3://traces/{name}"',
    "endpoint_url": '"https://objects.example"',
    "region": '"us-east-1"',
    "profile": '"traces"',
    "credentials_file": '"~/.aws/credentials"',
    "port_forward": '{ kubeconfig = "~/.kube/config", context = "east", namespace = "iris", service = "iris-controller-svc" }',
    "ca_file": '"ca.pem"',
    "pattern": '"debug-*"',
    "cause": '"silent-hang"',
    "bucket": '"rl"',
    "pods": '{ kubeconfig = "~/.kube/config", context = "east", namespace = "iris" }',
}
"""What stands behind a setting that has no default of its own, or whose default says little."""


def lines_of(model: type[BaseModel], *, skip: tuple[str, ...] = (), commented: bool = True) -> list[str]:
    """Each setting with its words and its default, as comments that can be switched on."""
    lines: list[str] = []
    said = said_of(model)
    for name, field in model.model_fields.items():
        if name in skip:
            continue
        words = said.get(name) or field.description
        if not words:
            raise SystemExit(f"{model.__name__}.{name} has no docstring: say what it is, its unit, and its default")
        lines += _comment(words)
        default = None if field.default is PydanticUndefined else field.default
        shown = SAMPLES.get(name) if default in (None, "", ()) else toml(default)
        lines.append(
            f"{'# ' if commented else ''}{name} = {shown if shown is not None else toml(default if default is not None else '')}"
        )
    return lines


def _comment(words: str) -> list[str]:
    return [f"# {line}".rstrip() for line in textwrap.wrap(" ".join(words.replace("``", "`").split()), 116)]


def example() -> str:
    """`config.example.toml`."""
    parts = [
        "# Every setting of Fleet Supervisor, with its unit and its default. Lines that begin with `# name =` show the default or an",
        "# example: take the mark away and change the value. Each key has an environment override: SUPERVISOR__DATABASE_URL,",
        "# SUPERVISOR__DAEMON__JITTER_S. Unknown keys are errors. Relative paths are relative to this file. Generated by `make docs`.",
        "",
    ]
    tables = ("cluster", "buckets", "limits")
    sections = {
        name: field.annotation
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
    parts += lines_of(Settings, skip=(*tables, *sections))
    common = lines_of(ClusterSection, skip=("name", "kind", "of_kind", "trial_stores"))
    for kind, entry in KINDS.items():
        model = entry.settings()
        parts += [
            "",
            f"# {'-' * 110}",
            *_about(model),
            "[[cluster]]",
            f'name = "{_cluster_name(kind)}"',
            f'kind = "{kind}"',
        ]
        parts += REQUIRED.get(kind, [])
        parts += common if kind == "slurm" else ["# skip_until, skip_reason, no_kill, deadline_s: as above"]
        skip = ("kind", *(line.split(" =")[0] for line in REQUIRED.get(kind, [])))
        shared = _shared(kind, model)
        parts += lines_of(model, skip=(*skip, *shared))
        if shared:
            parts += [f"# {line}" for line in textwrap.wrap(f"{', '.join(shared)}: as above", 116)]
        if kind == "slurm":  # a table of its own goes behind the keys of its cluster
            parts += ["", *_about(TrialStoreSection), "# [[cluster.trial_stores]]", *lines_of(TrialStoreSection)]
    parts += ["", f"# {'-' * 110}", "# Which job names belong to which bucket (BUCKET-1); first match wins."]
    said = said_of(BucketSection)
    for key in ("prefixes", "exempt"):
        parts += [f"# {line}" for line in textwrap.wrap(f"{key}: {' '.join(said[key].split())}", 116)]
    for bucket in BUCKETS:
        parts += [
            f"# [buckets.{bucket.name}]",
            f"# prefixes = {toml(bucket.prefixes) if bucket.prefixes else toml(('other-',))}",
        ]
        parts += [f"# exempt   = {toml(bucket.exempt)}"] if bucket.exempt else []
    parts += ["", f"# {'-' * 110}", "# Thresholds. For one bucket alone: a table [limits.rl] and so on.", "[limits]"]
    for name, entry in limits_table().items():
        parts += [f"# {line}" for line in textwrap.wrap(f"{entry['why']} ({entry['rule']}; {entry['unit']})", 116)]
        own = ", ".join(f"{bucket} {value:g}" for bucket, value in entry.get("bucket", {}).items())
        parts.append(f"# {name} = {entry['default']:g}{f'   # {own}' if own else ''}")
    for name, model in sections.items():
        inner = {key: found for key, field in model.model_fields.items() if (found := _table_in(field.annotation))}
        parts += ["", f"# {'-' * 110}", *_about(model), f"[{name}]", *lines_of(model, skip=tuple(inner))]
        for key, (each, many) in inner.items():
            head = f"# [[{name}.{key}]]" if many else f"[{name}.{key}]"
            parts += ["", *_about(each), head, *lines_of(each)]
    return "\n".join(parts) + "\n"


def _table_in(annotation: Any) -> tuple[type[BaseModel], bool] | None:
    """The model of a setting that is a table of its own, and whether there may be many of it."""
    many = get_origin(annotation) is tuple
    inner = get_args(annotation)[0] if many else annotation
    return (inner, many) if isinstance(inner, type) and issubclass(inner, BaseModel) else None


REQUIRED = {
    "slurm": ['login_nodes = ["login01.example", "login02.example:2222"]'],
    "kubernetes": [],
    "host": [],
    "iris": ['url = "http://127.0.0.1:10000"', 'users = ["alice"]'],
}


def _cluster_name(kind: str) -> str:
    return {"slurm": "alpha", "host": "box", "kubernetes": "east", "iris": "marin"}.get(kind, kind)


def _shared(kind: str, model: type[BaseModel]) -> tuple[str, ...]:
    """Fields that the first kind with the same parent has explained already."""
    if kind == "slurm":
        return ()
    first = KINDS["slurm"].settings()
    said, before = said_of(model), said_of(first)
    return tuple(
        name for name in model.model_fields if name in before and said.get(name) == before[name] and name != "kind"
    )


def _about(model: type[BaseModel]) -> list[str]:
    words = " ".join((model.__dict__.get("__doc__") or "").split()).replace("``", "`")
    return [f"# {line}" for line in textwrap.wrap(words, 116)]


def rules_page() -> str:
    """`docs/rules.md`: each rule id with the files that decide, test and document it."""
    places: dict[str, dict[str, set[str]]] = {}
    files = sorted(path for folder in ("supervisor", "tests") for path in (ROOT / folder).rglob("*.*"))
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in (".py", ".toml") or "/signatures/" in name or "/__pycache__/" in name:
            continue
        for rule in RULE.findall(path.read_text(encoding="utf-8", errors="replace")):
            kind = "tests" if name.startswith("tests/") else "code"
            places.setdefault(rule, {"code": set(), "tests": set()})[kind].add(name)

    def order(rule: str) -> tuple[str, int]:
        family, _, number = rule.partition("-")
        return family, int(number)

    lines = [
        "# Rules and where each lives",
        "",
        "Generated by `make docs`. A rule's id stands in the code that decides it and in the tests that prove it;",
        "`supervisorctl rules` shows the thresholds in force.",
        "",
        "| rule | decided in | proved in |",
        "| --- | --- | --- |",
    ]
    for rule in sorted(places, key=order):
        code = ", ".join(f"`{name.removeprefix('supervisor/')}`" for name in sorted(places[rule]["code"])) or "—"
        tests = ", ".join(f"`{name.removeprefix('tests/')}`" for name in sorted(places[rule]["tests"])) or "—"
        lines.append(f"| {rule} | {code} | {tests} |")
    return "\n".join(lines) + "\n"


MARK = ("<!-- diagram: generated by `make docs` -->", "<!-- end of diagram -->")


def with_diagram(text: str) -> str:
    """README with the state machine drawn from its table."""
    before, _, rest = text.partition(MARK[0])
    _, _, after = rest.partition(MARK[1])
    return f"{before}{MARK[0]}\n```mermaid\n{diagram()}```\n{MARK[1]}{after}"


def service_samples() -> dict[Path, str]:
    """What `supervisorctl install-service` writes, for places as a machine of its own would have them."""
    program = Path("/opt/fleet-supervisor/bin/supervisord")
    where = Places(
        config=Path("/etc/fleet-supervisor/config.toml"),
        state_dir=Path("/var/lib/fleet-supervisor/state"),
        database_url="",
        agent_logs=Path("/var/lib/fleet-supervisor/agent_logs"),
        ended_hours=24,
        raw={},
    )
    folder = ROOT / "deploy"
    return {
        folder / "systemd" / "fleet-supervisor.service": plan(
            where, system=True, platform="linux", program=program
        ).text,
        folder / "systemd" / "user" / "fleet-supervisor.service": plan(
            where, system=False, platform="linux", program=program
        ).text,
        folder / "launchd" / "org.fleet-supervisor.supervisord.plist": plan(
            where, system=False, platform="darwin", program=program
        ).text,
    }


def pages() -> dict[Path, str]:
    """Every generated file with the text that it should hold."""
    readme = ROOT / "README.md"
    return {
        ROOT / "config.example.toml": example(),
        ROOT / "docs" / "rules.md": rules_page(),
        readme: with_diagram(readme.read_text(encoding="utf-8")),
        **service_samples(),
    }


def main() -> int:
    stale = [path for path, text in pages().items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not as it would be generated; run `make docs`")
        return 1 if stale else 0
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
