"""Log text kept under the state folder: what was read of each job's log, so that nothing read is lost when a job's files go.

A kept file holds one contiguous piece of one log, ``LogCursor.kept_from`` onwards. It may be longer than its cursor says
(a crash came between the two writes): what lies beyond is cut off before the next piece is added.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from supervisor.model.logs import LogStat, LogText
from supervisor.model.records import LogCursor

HEAD = 256


class KeptLogs:
    """The folder of kept text. Names in it are made from numbers and hashes, never from a job's or a file's name."""

    def __init__(self, folder: Path, keep_bytes: int) -> None:
        self.folder, self.keep_bytes = folder, keep_bytes

    def path(self, cursor: LogCursor) -> Path:
        return self.folder / cursor.kept

    def add(self, row: int, stat: LogStat, cursor: LogCursor | None, piece: LogText, *, afresh: bool) -> LogCursor:
        """Append ``piece``; the cursor to store once it is safely written. Raises OSError where the disk refuses."""
        old = cursor
        name = f"{row}-{hashlib.sha256(stat.path.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}.log"
        skipped = piece.lines_skipped
        if cursor is None or afresh or piece.offset != cursor.offset:
            known = 0 if cursor is None or afresh else cursor.lines
            first = None if known is None or skipped is None else known + skipped
            cursor = LogCursor(
                job_row=row,
                path=stat.path,
                device=stat.device,
                inode=stat.inode,
                offset=piece.offset,
                lines=first,
                head="",
                kept=name,
                kept_from=piece.offset,
                kept_from_line=first,
                state=cursor.state if cursor is not None and not afresh else {},
            )
        target = self.path(cursor)
        target.parent.mkdir(parents=True, exist_ok=True)
        if afresh and old is not None:
            self._set_aside(old)
        size = cursor.offset - cursor.kept_from
        if size and not (target.exists() and target.stat().st_size >= size):
            # The kept text was dropped or lost: what is kept begins anew here.
            cursor, size = replace(cursor, kept_from=cursor.offset, kept_from_line=cursor.lines), 0
        with target.open("r+b" if target.exists() else "w+b") as file:
            file.truncate(size)
            file.seek(0, os.SEEK_END)
            file.write(piece.data)
        lines = None if cursor.lines is None else cursor.lines + piece.data.count(b"\n")
        head = cursor.head or (hashlib.sha256(piece.data[:HEAD]).hexdigest() if cursor.kept_from == 0 else "")
        grown = replace(
            cursor,
            offset=piece.offset + len(piece.data),
            lines=lines,
            head=head,
            device=stat.device or cursor.device,
            inode=stat.inode or cursor.inode,
            bookmark=piece.bookmark,
        )
        return self._bounded(grown)

    def _set_aside(self, cursor: LogCursor) -> None:
        """What an earlier attempt printed stays beside what its successor prints, until the next one begins (PROBE-6)."""
        target = self.path(cursor)
        size = cursor.offset - cursor.kept_from
        if not size or not target.exists() or target.stat().st_size < size:
            return  # it was lost, or set aside before a crash
        for stale, _, _ in self.before(cursor):
            stale.unlink(missing_ok=True)
        first = "x" if cursor.kept_from_line is None else str(cursor.kept_from_line)
        target.replace(target.with_name(f"{target.stem}.before-{cursor.kept_from}-{first}"))

    def before(self, cursor: LogCursor) -> list[tuple[Path, int, int | None]]:
        """The text of the attempt before this one, where it was kept apart, with offset and line of its beginning: one or none."""
        target = self.path(cursor)
        found = []
        for path in target.parent.glob(f"{target.stem}.before-*"):
            offset, _, line = path.name.rpartition(".before-")[2].partition("-")
            found.append((path, int(offset), int(line) if line.isdigit() else None))
        return found

    def _bounded(self, cursor: LogCursor) -> LogCursor:
        """Drop the older half, at a line's end, when more than allowed is kept."""
        target = self.path(cursor)
        size = cursor.offset - cursor.kept_from
        if size <= self.keep_bytes:
            return cursor
        drop = size - self.keep_bytes // 2
        fresh = target.with_suffix(".part")
        with target.open("rb") as old, fresh.open("wb") as new:
            gone = old.read(drop)
            rest_of_line = old.readline()
            lines = gone.count(b"\n") + rest_of_line.count(b"\n")
            while block := old.read(2**20):
                new.write(block)
        fresh.replace(target)
        first = None if cursor.kept_from_line is None else cursor.kept_from_line + lines
        return replace(cursor, kept_from=cursor.kept_from + drop + len(rest_of_line), kept_from_line=first)

    def text(self, cursor: LogCursor) -> bytes:
        """All that is kept of it."""
        with self.path(cursor).open("rb") as file:
            return file.read(cursor.offset - cursor.kept_from)

    def tail(self, cursor: LogCursor, size: int = 8192) -> bytes:
        """The last ``size`` bytes of what is kept."""
        length = cursor.offset - cursor.kept_from
        with self.path(cursor).open("rb") as file:
            file.seek(max(0, length - size))
            return file.read(min(size, length))

    def forget_older(self, before: datetime) -> None:
        """Drop kept text that nothing was added to since ``before``: its job ended long ago, or prints nothing."""
        if not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            if path.stat().st_mtime < before.timestamp():
                path.unlink(missing_ok=True)
