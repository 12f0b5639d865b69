"""Signature packs from disk, compiled once and kept in the user's cache.

The cache saves the half second that reading packs and compiling patterns takes. It is optional: what can't be read,
is damaged or was made by another version, library or processor is made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.diagnosis import catalogue as catalogue_module
from supervisor.diagnosis import patterns as patterns_module
from supervisor.diagnosis.catalogue import Catalogue, Signature, Where, load
from supervisor.diagnosis.patterns import Pattern
from supervisor.model.errors import UsageError

if TYPE_CHECKING:
    from supervisor.diagnosis.engines import Engine
    from supervisor.diagnosis.scan import Scanner

_OLD_FILES_KEPT = 9


@dataclass(frozen=True)
class Prepared:
    """A catalogue with its engine and scanner. The scanner is one thread's at a time: hold `lock` while it reads."""

    catalogue: Catalogue
    scanner: Scanner
    lock: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)


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
    """Shipped packs plus the user's, minus the entries switched off, with all their examples."""
    return _without(load([*shipped(), *from_paths(own)], strict=strict), off)


def _without(whole: Catalogue, off: Iterable[str]) -> Catalogue:
    try:
        return whole.without(off) if (off := list(off)) else whole
    except KeyError as error:
        raise UsageError(str(error.args[0])) from error


def prepare(
    own: Iterable[Path] = (), off: Iterable[str] = (), engine: str = "auto", *, cached: bool = True
) -> Prepared:
    """Load packs and compile them. `engine`: auto, hyperscan or re2. Raises `UsageError` and `PackError`."""
    from supervisor.diagnosis.scan import Scanner

    packs = [*shipped(), *from_paths(own)]
    off = sorted(set(off))
    key = _key(packs, off)
    folder = cache_folder() if cached else None
    whole = _load_catalogue(folder, key)
    if whole is None:
        full = _without(load(packs, strict=False), off)
        _save(folder, f"{key}.json", json.dumps([_to_row(entry) for entry in full.signatures]).encode())
        whole = full
    return Prepared(whole, Scanner(whole, _compiler(whole, engine, folder, key)))


def _compiler(
    whole: Catalogue, wanted: str, folder: Path | None, key: str
) -> Callable[[str, list[Pattern], frozenset[int]], Engine]:
    """Makes engines, from the cache where it has them; all of one kind."""
    from supervisor.diagnosis.engines import EngineUnavailable, HyperscanEngine, Re2Engine, self_test

    errors: list[str] = []

    def hyperscan(what: str, patterns: list[Pattern], once: frozenset[int]) -> Engine:
        name = f"{key}.{what}.{_machine()}.{HyperscanEngine.library_version()}.hs"
        dumped = _read(folder, name)
        if dumped is not None:
            with contextlib.suppress(EngineUnavailable):
                return HyperscanEngine(patterns, once, dumped)
        built = HyperscanEngine(patterns, once)
        self_test(built, patterns, whole, once)
        _save(folder, name, built.dump())
        return built

    def compiled(what: str, patterns: list[Pattern], once: frozenset[int]) -> Engine:
        if wanted in ("auto", "hyperscan") and not errors:
            try:
                return hyperscan(what, patterns, once)
            except EngineUnavailable as error:
                errors.append(str(error))
        if wanted in ("auto", "re2"):
            try:
                return Re2Engine(patterns, once)
            except EngineUnavailable as error:
                errors.append(str(error))
        raise UsageError(f"no scan engine works here: {'; '.join(errors)}")

    return compiled


def _key(packs: Sequence[tuple[str, str]], off: Sequence[str]) -> str:
    """Changes with any pack, with what is switched off, and with the code that reads packs."""
    digest = hashlib.sha256(repr((sys.version_info[:2], off)).encode())
    for module in (catalogue_module, patterns_module):
        with contextlib.suppress(OSError):
            digest.update(Path(str(module.__file__)).read_bytes())
    for name, text in packs:
        digest.update(f"\0{name}\0{text}".encode())
    return digest.hexdigest()[:24]


def cache_folder() -> Path | None:
    """A folder that only this user can write; None where there is none to be had."""
    base = os.environ.get("XDG_CACHE_HOME") or ("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    folder = Path(base).expanduser() / "fleet-supervisor" / "signatures"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = folder.stat()
    except (OSError, RuntimeError):
        return None
    owned = not hasattr(os, "getuid") or info.st_uid == os.getuid()
    return folder if owned and not info.st_mode & 0o022 else None


def _machine() -> str:
    """The processor, because compiled databases hold code paths for it."""
    flags = platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").split("\n\n", 1)[0].splitlines()
        flags += "".join(line for line in lines if line.startswith(("flags", "Features", "model name")))
    return hashlib.sha256(flags.encode()).hexdigest()[:12]


def _read(folder: Path | None, name: str) -> bytes | None:
    """A cached file whose checksum is right."""
    if folder is None:
        return None
    try:
        whole = (folder / name).read_bytes()
    except OSError:
        return None
    checksum, data = whole[:32], whole[32:]
    return data if hashlib.sha256(data).digest() == checksum else None


def _save(folder: Path | None, name: str, data: bytes | None) -> None:
    """Write whole or not at all, and drop the oldest files of other versions. Failing costs only time."""
    if folder is None or data is None:
        return
    with contextlib.suppress(OSError):
        temporary = folder / f".{os.getpid()}.{name}"
        temporary.write_bytes(hashlib.sha256(data).digest() + data)
        temporary.replace(folder / name)
        old = sorted(folder.glob("*.*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in old[_OLD_FILES_KEPT:]:
            path.unlink(missing_ok=True)


def _to_row(entry: Signature) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name in Signature.__dataclass_fields__:
        value = getattr(entry, name)
        if name in ("matches", "spares", "crosstalk", "source"):
            continue
        if isinstance(value, frozenset):
            value = sorted(value)
        elif name == "pattern":
            value = [value.text, value.engine, value.caseless, value.at_start, value.at_end, value.groups]
            value.append([anchor.decode("latin-1") for anchor in entry.pattern.anchors])
        elif name == "where":
            value = [[test.group, test.relation, test.bound] for test in entry.where]
        row[name] = value
    return row


def _from_row(row: dict[str, Any]) -> Signature:
    text, engine, caseless, at_start, at_end, groups, anchors = row["pattern"]
    row["pattern"] = Pattern(
        text, engine, caseless, at_start, at_end, tuple(groups), tuple(anchor.encode("latin-1") for anchor in anchors)
    )
    row["where"] = tuple(Where(group, relation, bound) for group, relation, bound in row["where"])
    for name in ("with_", "unless", "healed_by", "explains"):
        row[name] = frozenset(row[name])
    return Signature(**row)


def _load_catalogue(folder: Path | None, key: str) -> Catalogue | None:
    data = _read(folder, f"{key}.json")
    if data is None:
        return None
    try:
        entries = tuple(_from_row(row) for row in json.loads(data))
    except (ValueError, KeyError, TypeError):
        return None
    return Catalogue(entries, digest=key)
