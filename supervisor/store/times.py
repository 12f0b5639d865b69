"""Times as they are stored: whole microseconds since 1970, UTC, in a 64-bit integer, alike on every database.

Integers, because they sort, compare and index the same everywhere and cost the light path no parsing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from supervisor.model.errors import StoreError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_US = 86_400_000_000


def to_us(moment: datetime) -> int:
    """Exact; a naive time is refused, since nobody knows when it was."""
    try:
        since = moment - EPOCH
    except TypeError as error:
        raise StoreError(f"a time without a time zone cannot be stored: {moment!r}") from error
    return since.days * DAY_US + since.seconds * 1_000_000 + since.microseconds


def to_us_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else to_us(moment)


def from_us(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def from_us_or_none(us: int | None) -> datetime | None:
    return None if us is None else EPOCH + timedelta(microseconds=us)
