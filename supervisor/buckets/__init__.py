"""Kinds of work. One file says all about one kind; its name stands in the list here, in the order of the reports."""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.buckets import datagen, evaluation, other, rl, sft
from supervisor.model.kinds import Kind

KINDS: tuple[Kind, ...] = (rl.KIND, sft.KIND, datagen.KIND, evaluation.KIND, other.KIND)
BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}
_BREAKS = str.maketrans(dict.fromkeys("/.:-_", " "))


def bucket_of(
    name: str, prefixes: Mapping[str, tuple[str, ...]], command: str | None = None, speaks: str | None = None
) -> str:
    """The kind of work that a job is (BUCKET-1). Case does not matter; first match wins, in this order:

    a prefix of its name, or of the part behind its last slash, or a ``tag__`` within it (``exp3-rl__…``); a word of its name that
    says it is none of the four; a run tag as a whole word; what its command starts; what its dialects speak for. ``other`` where
    nothing tells.
    """
    lowered = name.lower()
    known = [(kind, tuple(each.lower() for each in prefixes.get(kind.name, kind.prefixes))) for kind in KINDS]
    for part in _parts(lowered):
        for kind, mine in known:
            if part.startswith(mine):
                return kind.name
    for kind, mine in known:
        if any(f"{mark}{prefix}" in lowered for prefix in mine if prefix.endswith("__") for mark in "-_."):
            return kind.name
    words = set(lowered.translate(_BREAKS).split())
    for kind in (other.KIND, *KINDS):
        if not words.isdisjoint(kind.words):
            return kind.name
    started = (command or "").lower()
    for kind in KINDS:
        if any(each in started for each in kind.commands):
            return kind.name
    return speaks if speaks is not None and speaks in BY_NAME else other.KIND.name


def _parts(name: str) -> tuple[str, ...]:
    """The name, and what stands behind its last slash (iris: ``/alice/rl__…``)."""
    last = name.rsplit("/", 1)[-1]
    return (name,) if last == name else (name, last)
