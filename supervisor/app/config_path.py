"""Where the config file is. Light: ``status`` and ``launch`` come through here before anything heavy is loaded."""

from __future__ import annotations

import os
import sys
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.model.errors import UsageError


def user_config_dir() -> Path:
    """The user's own config folder, by the system's habit."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "fleet-supervisor"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "fleet-supervisor"


def find(given: str | None) -> Path:
    """The config file: ``--config``, ``$SUPERVISOR_CONFIG``, ``./config.toml``, the user's config folder.

    Raises UsageError naming the places that were looked at.
    """
    for source, named in (("--config", given), ("$SUPERVISOR_CONFIG", os.environ.get("SUPERVISOR_CONFIG"))):
        if named == "" and source == "--config":
            raise UsageError("--config names no file: it is empty")
        if named:
            return _given(resolved(Path(), named, source), source)
    places = (Path("config.toml"), user_config_dir() / "config.toml")
    for path in places:
        with suppress(OSError):
            if path.is_file():
                return path.resolve()
    looked = ", ".join(str(path) for path in places)
    raise UsageError(f"no config file: looked for {looked}; give one by --config or run `supervisorctl init`")


def _given(path: Path, source: str) -> Path:
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder, not a config file (given by {source})")
        if not path.is_file():
            raise UsageError(f"no config file at {path} (given by {source})")
        return path.resolve()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error} (given by {source})") from error


@dataclass(frozen=True, slots=True)
class Places:
    """What the light path needs of a config: where things lie, absolute."""

    config: Path
    state_dir: Path
    database_url: str
    agent_logs: Path
    ended_hours: float
    """How long an ended job stays in ``status`` without ``--all``."""
    raw: dict[str, Any]
    """The TOML document as it stands, not validated."""


def read_toml(path: Path) -> dict[str, Any]:
    """The document. Raises UsageError with file, line and what is wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}: not TOML: line {line} holds a byte that is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not TOML: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: not TOML: nested too deeply") from error


PREFIX = "SUPERVISOR__"
"""What names of settings in the environment begin with, in capitals or not."""


def from_environment() -> dict[str, str]:
    """Settings that the environment names, by their key in capitals without the prefix: ``DAEMON__JITTER_S``."""
    found = ((name.upper(), value) for name, value in os.environ.items())
    return {name.removeprefix(PREFIX): value for name, value in found if name.startswith(PREFIX)}


def places(given: str | None) -> Places:
    """Where the database and the state lie, with environment overrides, without validating the rest of the config."""
    path = find(given)
    raw = read_toml(path)
    environment = from_environment()

    def value(key: str, default: str) -> str:
        found = environment.get(key.upper(), raw.get(key, default))
        if not isinstance(found, str):
            raise UsageError(f"{path}: {key}: must be a string in quotes")
        return found

    state = resolved(path.parent, value("state_dir", "state"), "state_dir")
    url = value("database_url", "")
    secret = value("database_url_file", "")
    if not url and secret:
        url = secret_from(resolved(path.parent, secret, "database_url_file"), "database_url_file")
    reports = raw.get("reports")
    hours = reports.get("ended_hours", ENDED_HOURS) if isinstance(reports, dict) else ENDED_HOURS
    return Places(
        config=path,
        state_dir=state,
        database_url=database_url(path, state, url),
        agent_logs=resolved(path.parent, value("agent_logs", "agent_logs"), "agent_logs"),
        ended_hours=_hours(environment.get("REPORTS__ENDED_HOURS", hours), path),
        raw=raw,
    )


ENDED_HOURS = 24.0
MOST_HOURS = 876_000.0
"""A hundred years: as good as for ever, and no overflow in any arithmetic of times."""


def _hours(value: Any, path: Path) -> float:
    try:
        hours = float(value)
    except (TypeError, ValueError):
        hours = 0.0
    if isinstance(value, bool) or not 0 < hours <= MOST_HOURS:
        raise UsageError(f"{path}: reports.ended_hours: must be a number above 0, at most {MOST_HOURS:g}")
    return hours


def clusters_in(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """The ``[[cluster]]`` tables of a document that nobody has checked."""
    tables = raw.get("cluster", [])
    return [table for table in tables if isinstance(table, dict)] if isinstance(tables, list) else []


def resolved(base: Path, value: str | Path, key: str = "path") -> Path:
    """``value`` with ``~`` expanded, relative to the config file's folder. Raises UsageError where it can be no path."""
    if "\0" in str(value):
        raise UsageError(f"{key}: a path can't hold a NUL character")
    try:
        return (base / Path(value).expanduser()).absolute()
    except RuntimeError as error:
        raise UsageError(f"{key}: {value}: {error}") from error


def secret_from(path: Path, key: str) -> str:
    """The first line of a secret's file. Raises UsageError that names the key and the file, never the content."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"{key}: {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{key}: {path} is not UTF-8 text") from error
    if not text:
        raise UsageError(f"{key}: {path} is empty")
    return text.splitlines()[0]


def database_url(config: Path, state: Path, url: str) -> str:
    """The URL with a relative SQLite path made absolute; by default ``supervisor.db`` in the state folder.

    Raises UsageError, which never repeats the URL: it may hold a password.
    """
    if not url:
        return f"sqlite:///{state / 'supervisor.db'}"
    if url.startswith("sqlite:///"):
        name = url.removeprefix("sqlite:///")
        if not name or name == ":memory:" or name.endswith("/"):
            raise UsageError(f"{config}: database_url: names no file; allowed: sqlite:///PATH")
        return f"sqlite:///{resolved(config.parent, name, 'database_url')}"
    if not url.startswith("postgresql+psycopg://"):
        raise UsageError(f"{config}: database_url: must begin with sqlite:/// or postgresql+psycopg://")
    return url
