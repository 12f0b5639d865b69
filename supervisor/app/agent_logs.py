"""Dated records on disk (SAY-3): written whole or not at all, under names that no job can steer."""

from __future__ import annotations

import os
import re
import tempfile
from datetime import datetime
from pathlib import Path

_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")


class AgentLogs:
    """The folder ``agent_logs``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def append_sweep(self, now: datetime, text: str) -> Path:
        """Add one tick's entry to the day's sweep, by a single write. Raises OSError."""
        path = self.folder / f"{now:%Y-%m-%d}_sweep.md"
        self.folder.mkdir(parents=True, exist_ok=True)
        data = text.encode("utf-8", "backslashreplace")
        line = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            before = os.fstat(line).st_size
            if os.write(line, data) != len(data):
                os.ftruncate(line, before)
                raise OSError(f"{path}: only a part could be written")
            os.fsync(line)
        finally:
            os.close(line)
        return path

    def put(self, now: datetime, cluster: str, job: str, topic: str, text: str) -> Path:
        """One record of its own: ``YYYY-MM-DD_<cluster>-<job>-<topic>.md``, replaced whole if it is there. Raises OSError."""
        name = f"{now:%Y-%m-%d}_{safe_name(cluster)}-{safe_name(job)}-{safe_name(topic)}.md"
        self.folder.mkdir(parents=True, exist_ok=True)
        line, part = tempfile.mkstemp(dir=self.folder, prefix=".part-")
        try:
            with os.fdopen(line, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(part).chmod(0o644)
            Path(part).replace(self.folder / name)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
        return self.folder / name


def safe_name(text: str) -> str:
    """``text`` as a part of a file name: no separators, no dots at its start, bounded."""
    return _UNSAFE.sub("_", text).lstrip(".")[:80] or "_"
