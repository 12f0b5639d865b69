"""Situations for the deep probe, put together from a readable table, each with the ruling that a person would expect.

The expectation is told from the table's own labels, and nothing of the program is asked for it.
"""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TABLE: dict[str, list[dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("table.toml").read_text(encoding="utf-8")
)
Piece = dict[str, Any]
HANG_FROM = 2.0
"""Multiple of the allowed silence below which nothing is called a hang."""


@dataclass(frozen=True)
class Scenario:
    """One situation. ``number`` is its job's id."""

    number: int
    work: Piece
    silence: Piece
    truth: Piece
    circumstance: Piece

    @property
    def id(self) -> str:
        return str(1000 + self.number)

    @property
    def name(self) -> str:
        return self.work["job"].format(self.number)

    def __str__(self) -> str:
        parts = (self.work["name"], f"silence {self.silence['name']}", self.truth["name"], self.circumstance["name"])
        return " | ".join(parts)

    @property
    def expected(self) -> str:
        """KILL, NO-KILL or ERROR, by the labels alone."""
        if self.circumstance["makes"] == "error":
            return "ERROR"
        if self.silence["times"] < HANG_FROM:
            return "NO-KILL"
        return self._when_silent()

    def _when_silent(self) -> str:
        still, work = self.truth["still"], self.work
        printed = self.circumstance.get("log", "")
        if still == "blind":
            asleep = self.truth["processes"] == "asleep"
            if asleep and (work["rest"] == "none" or self.circumstance.get("gpu") == "working"):
                return "NO-KILL"  # rest proves nothing there, so no stack is missed
            return "ERROR"
        if still == "stuck":
            return "KILL"
        if still == "rests":
            if self.circumstance.get("gpu") == "working":
                return "NO-KILL"  # something computes
            if printed == "engine-after":
                return "NO-KILL"  # engines work on requests, and it may wait for them
            return "KILL" if work["rest"] == "proof" else "NO-KILL"
        return "NO-KILL"


def scenarios() -> list[Scenario]:
    """Every kind of work at every silence with every truth, in plain circumstances; and every circumstance at a long silence with
    the truths that matter for it."""
    works, silences, truths, circumstances = (TABLE[key] for key in ("work", "silence", "truth", "circumstance"))
    plain, others = circumstances[0], circumstances[1:]
    told = [(work, silence, truth, plain) for work, silence, truth in itertools.product(works, silences, truths)]
    few = [
        truth
        for truth in truths
        if truth["name"] in ("computes", "hangs in a collective, asleep", "rests, a lock named")
    ]
    long = [silence for silence in silences if silence["name"] in ("none", "long")]
    told += [
        (work, silence, truth, other)
        for work, silence, truth, other in itertools.product(works, long, few, others)
        if work["name"] not in other.get("not_for", ())
    ]
    return [Scenario(number, *each) for number, each in enumerate(told)]
