"""The dialects, in order of priority: the first one that understands a line has it."""

from __future__ import annotations

import re
from typing import Any, Protocol

import re2

from supervisor.dialects import (
    elastic,
    evals,
    harbor,
    hf_trainer,
    infra,
    iris,
    levanter,
    llamafactory,
    megatron,
    nemo_rl,
    openrlhf,
    places,
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
    vllm, skyrl, openrlhf, slime, verl, torchtitan, llamafactory, trl, hf_trainer, megatron, nemo_rl, harbor, tqdm, evals,
    levanter, elastic, iris, ray, plain, places, infra,
)  # fmt: skip
LONG = frozenset({"skyrl", "openrlhf", "slime", "verl", "llamafactory", "trl", "hf_trainer"})
"""Dialects whose lines may be long; the others are shown only a line's beginning."""


def _sieve() -> Any:
    """Matches from the first mark in a line to the line's end: one pass in a linear-time engine, whatever the marks."""
    marks = sorted({mark for dialect in DIALECTS for mark in dialect.MARKS})
    return re2.compile(b"(?:" + b"|".join(re.escape(mark) for mark in marks) + b")[^\n]*")


def _who() -> Any:
    """Tells in one pass whose marks a line bears."""
    found = re2.Set.SearchSet()
    for dialect in DIALECTS:
        found.Add(b"|".join(re.escape(mark) for mark in dialect.MARKS))
    found.Compile()
    return found


SIEVE = _sieve()
_WHO = _who()


def readers_of(raw: bytes) -> list[Dialect]:
    """The dialects that may read a line, by its bytes, in order of priority."""
    return [DIALECTS[place] for place in sorted(_WHO.Match(raw) or ())]
