"""What the eyes report: findings with quotes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding asks of a person."""

    NOTE = "note"
    WATCH = "watch"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Quote:
    """A line that stands in a file: no claim without one. ``line`` counts from 1; None where it is not known yet."""

    file: str
    line: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule says of one job now. ``key`` keeps it one flag over time, even while its text moves on (SAY-5)."""

    rule: str
    severity: Severity
    text: str
    quotes: tuple[Quote, ...] = ()
    key: str = ""

    @property
    def identity(self) -> str:
        return self.key or self.rule


@dataclass(frozen=True, slots=True)
class Flag:
    """A finding that stands, since when."""

    finding: Finding
    since: datetime
