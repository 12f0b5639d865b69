"""How a verdict turned out: what then became of its job, in one word (``supervisorctl scorecard``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median
from typing import Protocol


class Judged(Protocol):
    """A stored verdict with what then became of the attempt that it judged."""

    @property
    def ruling(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def attempt_now(self) -> int: ...
    @property
    def taken_at(self) -> datetime: ...
    @property
    def stage(self) -> str | None: ...
    @property
    def outcome(self) -> str | None: ...
    @property
    def attempt_state(self) -> str | None: ...
    @property
    def step_then(self) -> int | None: ...
    @property
    def step_now(self) -> int | None: ...
    @property
    def progress_at(self) -> datetime | None: ...
    @property
    def progress_then(self) -> datetime | None: ...


class Turned(StrEnum):
    """How one verdict turned out."""

    RIGHT = "right"
    """KILL: it never moved again and ended. NO-KILL: it progressed or completed."""
    WRONG = "wrong"
    """KILL: it progressed or completed after it: a would-be false kill. NO-KILL: it died without ever moving again."""
    CARRIED_OUT = "carried_out"
    """It was ended on this verdict, so nobody knows what would have become of it."""
    OPEN = "open"
    """Its attempt lives, and has not moved since."""
    UNKNOWN = "unknown"
    """It ended, and nothing tells how; or the verdict was ERROR, which claims nothing."""


_ENDED_WELL = frozenset({"completed", "handed_on"})
_DIED = frozenset({"failed", "cancelled", "timed_out", "out_of_memory", "node_failed", "preempted", "requeued"})


def turned(row: Judged) -> Turned:
    """Of its own attempt only: what a later attempt does says nothing of this verdict."""
    if row.ruling == "ERROR":
        return Turned.UNKNOWN
    if row.stage == "confirmed":
        return Turned.CARRIED_OUT
    lived = row.ruling == "NO-KILL"
    if moved_since(row) or _end_of(row) in _ENDED_WELL:
        return Turned.RIGHT if lived else Turned.WRONG
    end = _end_of(row)
    if end in _DIED:
        return Turned.WRONG if lived else Turned.RIGHT
    return Turned.OPEN if end is None else Turned.UNKNOWN


def moved_since(row: Judged) -> bool:
    """Whether its attempt progressed after the verdict: a later step, or progress seen later."""
    if row.attempt_now != row.attempt:
        return False
    if row.step_now is not None and row.step_then is not None:
        return row.step_now > row.step_then
    return row.progress_at is not None and row.progress_at > row.taken_at


def _end_of(row: Judged) -> str | None:
    """How the attempt ended; None while it lives."""
    if row.attempt_now == row.attempt:
        return row.outcome
    return row.attempt_state or "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """All verdicts of one ruling."""

    ruling: str
    count: int
    turned: dict[Turned, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorecard:
    """How the tool's own verdicts turned out."""

    tallies: tuple[Tally, ...]
    would_be_false_kills: tuple[Judged, ...]
    kept_and_died: tuple[Judged, ...]
    detect_s: tuple[float, ...]
    """From its last progress to the first KILL on each attempt, seconds, ascending."""

    @property
    def detect_median_s(self) -> float | None:
        return median(self.detect_s) if self.detect_s else None


def scorecard(rows: Iterable[Judged], key: str = "job") -> Scorecard:
    """``rows`` oldest first. Of an attempt that was judged NO-KILL several times only the last counts as kept or lost."""
    rows = list(rows)
    by_ruling: dict[str, dict[Turned, int]] = {"KILL": {}, "NO-KILL": {}, "ERROR": {}}
    last: dict[object, Judged] = {}
    took: dict[object, timedelta] = {}
    wrong: list[Judged] = []
    killed = {(getattr(row, key), row.attempt) for row in rows if row.stage == "confirmed"}
    for row in rows:
        how = turned(row)
        if (getattr(row, key), row.attempt) in killed and row.ruling != "ERROR" and not moved_since(row):
            how = Turned.CARRIED_OUT  # its end was our doing, and proves no verdict on that attempt right or wrong
        counts = by_ruling.setdefault(row.ruling, {})
        counts[how] = counts.get(how, 0) + 1
        attempt = (getattr(row, key), row.attempt)
        last[attempt] = row
        if row.ruling == "KILL":
            if how is Turned.WRONG:
                wrong.append(row)
            if row.progress_then is not None:
                took.setdefault(attempt, row.taken_at - row.progress_then)
    lost = [
        row
        for attempt, row in last.items()
        if row.ruling == "NO-KILL" and attempt not in killed and turned(row) is Turned.WRONG
    ]
    return Scorecard(
        tallies=tuple(
            Tally(ruling=ruling, count=sum(counts.values()), turned=counts) for ruling, counts in by_ruling.items()
        ),
        would_be_false_kills=tuple(wrong),
        kept_and_died=tuple(lost),
        detect_s=tuple(sorted(max(0.0, each.total_seconds()) for each in took.values())),
    )
