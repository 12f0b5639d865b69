"""Evidence folders as they age: packed after a day, dropped by age and size, never while something in force rests on them."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from supervisor.app.evidence import MANIFEST, open_folder
from supervisor.model.errors import Unproven

log = structlog.get_logger("supervisor.evidence")

PACKED_AFTER = timedelta(days=1)
UNJUDGED = timedelta(hours=1)
"""A folder that no verdict names may be under judgement for so long."""
_WORTH_PACKING = 4096


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What one round did."""

    packed: int = 0
    dropped: int = 0
    bytes_left: int = 0


@dataclass(frozen=True, slots=True)
class _Kept:
    path: Path
    taken_at: datetime
    needed: bool
    files: tuple[tuple[tuple[int, int], int], ...]
    """(device, inode) and size: a file linked from several folders takes its room once."""


def tidy(root: Path, needed: Mapping[str, bool], now: datetime, keep: timedelta, keep_bytes: int) -> Upkeep:
    """Pack and drop. ``needed``: for each folder that a verdict names, whether that is still in force. Blocking."""
    if not root.is_dir():
        return Upkeep()
    packed = dropped = 0
    folders: list[_Kept] = []
    for path in sorted(each for each in root.iterdir() if each.is_dir() and not each.is_symlink()):
        try:
            taken_at = open_folder(path, check=False).taken_at
        except Unproven:
            taken_at = datetime.fromtimestamp(path.stat().st_mtime, tz=now.tzinfo)
            if now - taken_at > PACKED_AFTER and not needed.get(str(path), False):
                dropped += _drop(path)  # what a crash left, and no probe came back to
            continue
        in_force = needed.get(str(path), False)
        if now - taken_at > keep and not in_force:
            dropped += _drop(path)
            continue
        if now - taken_at > PACKED_AFTER and not in_force:
            packed += _pack(path)
        folders.append(_Kept(path, taken_at, in_force, tuple(_files(path))))
    links = Counter(file for each in folders for file, _ in each.files)
    left = sum({file: size for each in folders for file, size in each.files}.values())
    for each in sorted(folders, key=lambda one: one.taken_at):
        if left <= keep_bytes:
            break
        if each.needed or now - each.taken_at < UNJUDGED or not _drop(each.path):
            continue
        dropped += 1
        for file, size in each.files:
            links[file] -= 1
            left -= size if not links[file] else 0
    return Upkeep(packed, dropped, left)


def _files(path: Path) -> Iterator[tuple[tuple[int, int], int]]:
    for each in os.scandir(path):
        told = each.stat(follow_symlinks=False)
        yield (told.st_dev, told.st_ino), told.st_size


def _drop(path: Path) -> bool:
    """The manifest goes first: half a folder is none."""
    try:
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path)
    except OSError as error:
        log.warning("evidence.not_dropped", path=str(path), reason=error.strerror or str(error))
        return False
    return True


def _pack(path: Path) -> bool:
    """Whether anything was packed. Each file is there, plain or packed, at every moment."""
    import zstandard

    did = False
    for each in sorted(path.iterdir()):
        if each.name == MANIFEST or each.suffix in (".zst", ".part") or each.stat().st_size < _WORTH_PACKING:
            continue
        target, part = each.with_name(each.name + ".zst"), each.with_name(each.name + ".zst.part")
        try:
            with each.open("rb") as plain, part.open("wb") as out:
                zstandard.ZstdCompressor(level=6).copy_stream(plain, out)
                out.flush()
                os.fsync(out.fileno())
            part.chmod(0o600)
            part.replace(target)
            each.unlink()
        except OSError as error:
            part.unlink(missing_ok=True)
            log.warning("evidence.not_packed", path=str(each), reason=error.strerror or str(error))
            return did
        did = True
    return did
