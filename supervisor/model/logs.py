"""Log files as the supervisor sees them: never an empty text for a failed read (FIND-4)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class LogState(StrEnum):
    """Words of the contract for ``log.state``."""

    READ = "read"
    UNREAD = "unread"
    """The read failed: nothing is known of its silence."""
    ABSENT = "absent"
    """The place was looked at and no file is there."""
    NONE = "none"
    """The job has no log that we know of (yet)."""


@dataclass(frozen=True, slots=True)
class LogStat:
    """Size and time of a log, without its text. ``modified_at`` is corrected by the cluster's clock offset."""

    path: str
    state: LogState
    size: int = 0
    modified_at: datetime | None = None
    device: int = 0
    inode: int = 0
    reason: str | None = None
    """Why it is not READ."""


@dataclass(frozen=True, slots=True)
class LogWanted:
    """A piece of a log to fetch: at most ``limit`` bytes from ``offset``.

    With ``tail`` and more than ``limit`` bytes waiting, the newest ``limit`` bytes are fetched instead, and the lines
    left out before them are counted, so that line numbers stay true.
    """

    job_id: str
    path: str
    offset: int
    limit: int
    tail: bool = True
    bookmark: str | None = None
    """The one that came with the piece before this offset, handed back as it was; None where there was none.

    Where logs are streams without byte offsets (pods), it is what makes the next piece begin exactly where the last ended."""


@dataclass(frozen=True, slots=True)
class LogText:
    """Bytes of a log. ``lines_skipped``: newlines between the wanted offset and ``offset``; None where not counted."""

    path: str
    offset: int
    data: bytes
    size: int
    lines_skipped: int | None = 0
    bookmark: str | None = None
    """Opaque; to be kept beside the offset that follows this piece, and handed back. None where offsets suffice."""


@dataclass(frozen=True, slots=True)
class LogUnread:
    """A fetch that failed; it is not silence (FIND-4)."""

    path: str
    reason: str


LogRead = LogText | LogUnread
