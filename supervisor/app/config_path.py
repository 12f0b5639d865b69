"""Where the config file is. Light: ``status`` and ``launch`` come through here before anything heavy is loaded."""

from __future__ import annotations

import os
import sys
import tomllib
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
        if named:
            path = Path(named).expanduser()
            if not path.is_file():
                raise UsageError(f"no config file at {path} (given by {source})")
            return path.resolve()
    places = (Path("config.toml"), user_config_dir() / "config.toml")
    for path in places:
        if path.is_file():
            return path.resolve()
    looked = ", ".join(str(path) for path in places)
    raise UsageError(f"no config file: looked for {looked}; give one by --config or run `supervisorctl init`")


@dataclass(frozen=True, slots=True)
class Places:
    """What the light path needs of a config: where things lie, absolute."""

    config: Path
    state_dir: Path
    database_url: str
    agent_logs: Path
    interval_s: float
    raw: dict[str, Any]
    """The TOML document as it stands, not validated."""


def read_toml(path: Path) -> dict[str, Any]:
    """The document. Raises UsageError with file, line and what is wrong."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def places(given: str | None) -> Places:
    """Where the database and the state lie, with environment overrides, without validating the rest of the config."""
    path = find(given)
    raw = read_toml(path)

    def value(key: str, default: str) -> str:
        found = os.environ.get(f"SUPERVISOR__{key.upper()}", raw.get(key, default))
        if not isinstance(found, str):
            raise UsageError(f"{path}: {key} must be a string, not {found!r}")
        return found

    state = resolved(path.parent, value("state_dir", "state"))
    interval = os.environ.get("SUPERVISOR__INTERVAL_S", raw.get("interval_s", 900))
    try:
        interval_s = float(interval)
    except (TypeError, ValueError):
        raise UsageError(f"{path}: interval_s must be a number of seconds, not {interval!r}") from None
    url = value("database_url", "")
    secret = value("database_url_file", "")
    if not url and secret:
        url = secret_from(resolved(path.parent, secret), "database_url_file")
    return Places(
        config=path,
        state_dir=state,
        database_url=database_url(path.parent, state, url),
        agent_logs=resolved(path.parent, value("agent_logs", "agent_logs")),
        interval_s=interval_s,
        raw=raw,
    )


def resolved(base: Path, value: str | Path) -> Path:
    """``value`` with ``~`` expanded, relative to the config file's folder."""
    return (base / Path(value).expanduser()).absolute()


def secret_from(path: Path, key: str) -> str:
    """The first line of a secret's file. Raises UsageError that names the key and the file, never the content."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{key}: {error}") from error
    if not text:
        raise UsageError(f"{key}: {path} is empty")
    return text.splitlines()[0]


def database_url(base: Path, state: Path, url: str) -> str:
    """The URL with a relative SQLite path made absolute; by default ``supervisor.db`` in the state folder."""
    if not url:
        return f"sqlite:///{state / 'supervisor.db'}"
    if url.startswith("sqlite:///"):
        return f"sqlite:///{resolved(base, url.removeprefix('sqlite:///'))}"
    return url
