"""Kinds of work. One file says all about one kind; its name stands in the list here, in the order of the reports."""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.buckets import datagen, evaluation, other, rl, sft
from supervisor.model.rulebook import Kind

KINDS: tuple[Kind, ...] = (rl.KIND, sft.KIND, datagen.KIND, evaluation.KIND, other.KIND)
BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}


def bucket_of(name: str, prefixes: Mapping[str, tuple[str, ...]]) -> str:
    """The first bucket that has a prefix of ``name`` (BUCKET-1); ``other`` where none has. Case does not matter."""
    lowered = name.lower()
    for kind in KINDS:
        for prefix in prefixes.get(kind.name, kind.prefixes):
            if lowered.startswith(prefix.lower()):
                return kind.name
    return other.KIND.name
