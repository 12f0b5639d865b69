"""The dialects, in order of priority: the first one that understands a line has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from supervisor.dialects import (
    elastic,
    evals,
    harbor,
    hf_trainer,
    iris,
    levanter,
    llamafactory,
    megatron,
    openrlhf,
    plain,
    ray,
    skyrl,
    slime,
    torchtitan,
    tqdm,
    trl,
    verl,
    vllm,
)
from supervisor.dialects.line import Line
from supervisor.model.readings import Reading


class Dialect(Protocol):
    """A module that reads what one program prints."""

    @property
    def NAME(self) -> str: ...

    @property
    def MARKS(self) -> tuple[bytes, ...]:
        """One of these stands in every line that it can read."""
        ...

    def read(self, line: Line) -> list[Reading]:
        """What the line says; empty if it is not this program's. Malformed if it is, and can't be read."""
        ...


DIALECTS: tuple[Dialect, ...] = (
    vllm, skyrl, openrlhf, slime, verl, torchtitan, llamafactory, trl, hf_trainer, megatron, harbor, tqdm, evals,
    levanter, elastic, iris, ray, plain,
)  # fmt: skip
LONG = frozenset({"skyrl", "openrlhf", "slime", "verl", "llamafactory", "trl", "hf_trainer"})
"""Dialects whose lines may be long; the others are shown only a line's beginning."""


def _least(marks: set[bytes]) -> tuple[bytes, ...]:
    """Marks without those that contain another one: finding the shorter finds both."""
    return tuple(sorted(mark for mark in marks if not any(other in mark for other in marks if other != mark)))


MARKS = _least({mark for dialect in DIALECTS for mark in dialect.MARKS})


def readers_of(raw: bytes) -> Iterator[Dialect]:
    """The dialects that may read a line, by its bytes."""
    for dialect in DIALECTS:
        if any(mark in raw for mark in dialect.MARKS):
            yield dialect
