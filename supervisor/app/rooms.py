"""The pure rooms, wired for use: one rulebook, one set of eyes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from supervisor.buckets import bucket_of
from supervisor.detectors import examine
from supervisor.model.rulebook import Rulebook
from supervisor.rules.step import Examine


@dataclass(frozen=True, slots=True)
class Rooms:
    """What a tick asks: the rulebook in force, which bucket a name belongs to, and the detectors."""

    book: Rulebook
    bucket_of: Callable[..., str]
    examine: Examine


def rooms(book: Rulebook) -> Rooms:
    """The rooms under ``book``."""
    return Rooms(book=book, bucket_of=lambda name, *more: bucket_of(name, book.prefixes, *more), examine=examine)
