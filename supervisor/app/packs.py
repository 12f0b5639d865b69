"""Signature packs from disk: those that come with the program, and the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from supervisor.diagnosis.catalogue import Catalogue, load
from supervisor.model.errors import UsageError


def shipped() -> list[tuple[str, str]]:
    """The packs in supervisor/data/signatures, by name."""
    folder = files("supervisor.data") / "signatures"
    packs = [item for item in folder.iterdir() if item.name.endswith(".toml")]
    return [(pack.name, pack.read_text("utf-8")) for pack in sorted(packs, key=lambda pack: pack.name)]


def from_paths(paths: Iterable[Path]) -> list[tuple[str, str]]:
    """Packs of the user's own: files, or folders of `*.toml`. Raises `UsageError` for what can't be read."""
    packs = []
    for path in paths:
        found = sorted(path.glob("*.toml")) if path.is_dir() else [path]
        if not found:
            raise UsageError(f"{path}: holds no *.toml signature pack")
        for pack in found:
            try:
                packs.append((str(pack), pack.read_text("utf-8")))
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{pack}: this signature pack can't be read: {error}") from error
    return packs


def catalogue(own: Iterable[Path] = (), off: Iterable[str] = ()) -> Catalogue:
    """Shipped packs plus the user's, minus the entries switched off."""
    whole = load([*shipped(), *from_paths(own)])
    off = list(off)
    try:
        return whole.without(off) if off else whole
    except KeyError as error:
        raise UsageError(str(error.args[0])) from error
