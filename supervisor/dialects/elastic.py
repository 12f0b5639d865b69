"""torch elastic's launcher: which ranks it saw fail. Its summary echoes a death and never explains it (FIND-7)."""

from __future__ import annotations

import re

from supervisor.dialects.line import Line
from supervisor.model.readings import Reading, ReadingKind

NAME = "elastic"
MARKS = (b"exitcode", b"closing signal SIG", b"death signal")
_FAILED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
_SUMMARY = re.compile(r"exitcode +: (-?\d+) \(pid: (\d+)\)(?: +\((SIG\w+)\))?")


def read(line: Line) -> list[Reading]:
    text = line.text
    if (found := _FAILED.search(text)) is not None:
        metrics = {"exitcode": float(found[1]), "local_rank": float(found[2]), "pid": float(found[3])}
        return [line.reading(ReadingKind.BANNER, NAME, label="rank_failed", detail=found[2], metrics=metrics)]
    if (found := _SUMMARY.search(text)) is not None:
        metrics = {"exitcode": float(found[1]), "pid": float(found[2])}
        return [line.reading(ReadingKind.BANNER, NAME, label="rank_failed", detail=found[3] or "", metrics=metrics)]
    if "closing signal SIG" in text or "death signal" in text:
        return [line.reading(ReadingKind.BANNER, NAME, label="stopping")]
    return []
