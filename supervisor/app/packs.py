"""Signature packs from disk: those that come with the program, and the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.diagnosis.catalogue import Catalogue, load
from supervisor.model.errors import UsageError

if TYPE_CHECKING:
    from supervisor.diagnosis.scan import Scanner


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


def catalogue(own: Iterable[Path] = (), off: Iterable[str] = (), *, strict: bool = False) -> Catalogue:
    """Shipped packs plus the user's, minus the entries switched off."""
    whole = load([*shipped(), *from_paths(own)], strict=strict)
    off = list(off)
    try:
        return whole.without(off) if off else whole
    except KeyError as error:
        raise UsageError(str(error.args[0])) from error


@dataclass(frozen=True)
class Prepared:
    """A catalogue with its engine and scanner; for one thread at a time."""

    catalogue: Catalogue
    scanner: Scanner


def prepare(own: Iterable[Path] = (), off: Iterable[str] = (), engine: str = "auto") -> Prepared:
    """Load packs and compile them. `engine`: auto, hyperscan or re2. Raises `UsageError` and `PackError`."""
    from supervisor.diagnosis.engines import EngineUnavailable, HyperscanEngine, Re2Engine
    from supervisor.diagnosis.scan import Scanner, patterns_of

    whole = catalogue(own, off)
    patterns, once, _ = patterns_of(whole)
    errors = []
    for name, build in (("hyperscan", HyperscanEngine), ("re2", Re2Engine)):
        if engine in ("auto", name):
            try:
                return Prepared(whole, Scanner(whole, build(patterns, once)))
            except EngineUnavailable as error:
                errors.append(str(error))
    raise UsageError(f"no scan engine works here: {'; '.join(errors)}")
