"""Pieces of logs out of what READ_PIECE printed. Pure: an error text can never come out as log text (FIND-4)."""

from __future__ import annotations

import re

from supervisor.clusters.slurm_text import Part, safe_text
from supervisor.model.logs import LogRead, LogText, LogUnread, LogWanted

NOT_THERE = "no such file, or no way to it"
_HEAD = re.compile(rb"([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+|unknown)")


def read_piece(part: Part, wanted: LogWanted) -> LogRead:
    """One piece. Anything but the announced number of bytes is no piece: the file changed, or the read was cut off."""
    if part.failure is not None:
        return LogUnread(wanted.path, part.failure)
    head, _, data = part.out.partition(b"\n")
    if head.startswith(b"unread "):
        return LogUnread(wanted.path, safe_text(head.removeprefix(b"unread ")))
    found = _HEAD.fullmatch(head)
    if found is None:
        return LogUnread(wanted.path, "the login node did not answer in time")
    size, start, length = int(found[1]), int(found[2]), int(found[3])
    if len(data) != length:
        return LogUnread(wanted.path, f"{len(data)} bytes came where {length} were announced")
    skipped = None if found[4] == b"unknown" else int(found[4])
    return LogText(wanted.path, start, data, size, skipped)
