"""The five tables: each kind's own columns, its trend, jobs that still fill apart, and roll-ups below (RL-1 to EVAL-1, BUCKET-3).

Fitting: in a narrow terminal columns go in the order of their ``drop``, highest first: pass@N and LR, Try, Nodes, Scheduler,
Flags, Elapsed, ETA, Where, Infra, Trend, Phase. Job, the metrics and Last output never go, and no number is cut. Where Flags is
gone, what is flagged is told whole in lines below the table. Where even the numbers have no room, each job becomes a few lines.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from supervisor.reports import cells, rollup, status
from supervisor.reports.table import Column, box, kept, pipe, stacked, too_narrow
from supervisor.reports.text import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

UNKNOWN = Mapping[str, "datetime | None"]
REGIMES = {"shaped": "shaped reward", "unshaped": "unshaped reward", None: "reward regime not told"}
NARROW = 160
"""Columns of a terminal below which words that the title implies are left out."""
STANDING = ("suspect", "wedged")
"""Phases in which the rate of before tells nothing of an end to come."""
TOLD = 20
"""Flagged jobs told below a table that has no room for flags."""
LAST = (
    Column("Last output", right=True, least=6, most=14),
    Column("Phase", least=8, most=18, drop=1),
    Column("Where", least=8, most=28, drop=3),
    Column("ETA", right=True, least=6, most=12, drop=4),
    Column("Elapsed", right=True, least=7, most=20, drop=5),
    Column("Scheduler", least=8, most=34, drop=7),
    Column("Nodes", least=4, most=22, drop=8),
    Column("Try", right=True, least=3, most=4, drop=9),
    Column("Flags", least=40, most=90, drop=6),
)
JOB = Column("Job", least=12, most=48)
TREND = Column("Trend", least=20, most=60, drop=2)


def by_kind(
    kind: Any,
    jobs: Sequence[Any],
    now: datetime,
    *,
    unknown: UNKNOWN,
    wide: int | None,
    colour: bool,
    pipes: bool,
    held: Collection[str] = (),
) -> list[str]:
    """A kind's tables, already in the order of their rows. ``kind`` has columns of its own; ``held`` as in ``phase_of``."""
    runs = {job.row: json.loads(job.metrics) if job.metrics else {} for job in jobs}
    live = [job for job in jobs if job.closed_at is None]
    filling = [job for job in live if not _emitted(job, runs[job.row])]
    rest = {job.row for job in filling}
    speaking = [job for job in jobs if job.row not in rest]
    shape = _Shape(kind, runs, now, unknown, wide, colour, pipes, held)
    parts: list[str] = []
    for words, mine in _regimes(kind, speaking, runs):
        parts.append(f"{kind.title} ({status.count(mine)}){f', {words}' if words else ''}")
        parts += shape.table(mine)
    if filling:
        shown, copies = rollup.copies(filling)
        parts.append(f"{kind.title}, filling ({status.count(filling)}): no metrics yet")
        parts += shape.filling(shown, copies)
    below = rollup.grids(kind, jobs, runs) if kind.grid else []
    if kind.name == "datagen":
        below += rollup.chunks(jobs)
    return [*parts, *below, ""] if below else parts


def _emitted(job: Any, run: Mapping[str, Any]) -> bool:
    """Whether anything of its work was printed yet."""
    return bool(run.get("metrics")) or (job.step or 0) > 0


def _regimes(kind: Any, jobs: Sequence[Any], runs: Mapping[Any, Mapping[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Runs of different reward regimes are not compared in one column (RL-7)."""
    if not jobs:
        return []
    told: dict[str | None, list[Any]] = {}
    for job in jobs:
        told.setdefault(runs[job.row].get("regime"), []).append(job)
    if not kind.regimes or not any(told.keys()):
        return [("", list(jobs))]
    return [(words, told[regime]) for regime, words in REGIMES.items() if regime in told]


class _Shape:
    """How one kind's rows are drawn for one reader."""

    def __init__(
        self,
        kind: Any,
        runs: Mapping[Any, Mapping[str, Any]],
        now: datetime,
        unknown: UNKNOWN,
        wide: int | None,
        colour: bool,
        pipes: bool,
        held: Collection[str] = (),
    ) -> None:
        self.kind, self.runs, self.now, self.unknown = kind, runs, now, unknown
        self.wide, self.colour, self.pipes, self.held = wide, colour, pipes, held

    def table(self, jobs: Sequence[Any]) -> list[str]:
        told = [[cells.own(each, job, self.runs[job.row]) for each in self.kind.columns] for job in jobs]
        own = [
            Column(
                each.title,
                right=each.cell not in ("word", "infra"),
                least=min(9, max(6, *(len(mine[at]) for mine in told))),  # a title may be cut, a number not
                most=56 if each.cell == "infra" else 18,
                drop=each.drop,
            )
            for at, each in enumerate(self.kind.columns)
        ]
        rows = []
        for job, mine in zip(jobs, told, strict=True):
            run = self.runs[job.row]
            rows.append((status.named(job), *mine, cells.trend(self.kind, run), *self._last(job, cells.eta(run))))
        return self._drawn([JOB, *own, TREND, *LAST], rows, jobs)

    def filling(self, jobs: Sequence[Any], copies: Mapping[Any, int]) -> list[str]:
        own = [Column(each.title, right=True, least=4, most=14) for each in self.kind.columns[:2]]
        rows = []
        for job in jobs:
            spare = copies.get(job.row, 0)
            name = status.named(job) + (f" +{spare} restart cop{'y' if spare == 1 else 'ies'}" if spare else "")
            rows.append((name, *(cells.DASH for _ in own), *self._last(job, cells.DASH)))
        return self._drawn([JOB, *own, *LAST], rows, jobs)

    def _last(self, job: Any, eta: str) -> tuple[str, ...]:
        phase, where = status.phase_of(job, self.unknown, self.held), f"{job.cluster}/{job.id}"
        tries = str(job.attempt) if job.attempt > 1 else cells.DASH
        last = status.last_output(job, self.now)
        return (
            last.removesuffix(" ago") if self.wide is not None and self.wide < NARROW else last,
            phase,
            where,
            eta if job.closed_at is None and job.phase not in STANDING else cells.DASH,
            status.elapsed(job, self.now),
            status.scheduler(job),
            status.nodes(job),
            tries,
            status.remarks(job),
        )

    def _drawn(self, columns: Sequence[Column], rows: Sequence[Sequence[str]], jobs: Sequence[Any]) -> list[str]:
        if self.pipes:
            return [pipe(columns, rows)]
        tones = [status.tone(job) for job in jobs] if self.colour else ()
        if self.wide is not None and too_narrow(columns, rows, self.wide):
            return [stacked(columns, rows, self.wide, tones)]
        drawn = [box(columns, rows, self.wide, tones)]
        if "Flags" not in kept(columns, rows, self.wide):
            flagged = [job for job in jobs if job.worst in ("fault", "watch")]
            lines = [
                f"  {plain(job.name)} ({job.cluster}/{plain(job.id)}): {plain(status.remarks(job))}" for job in flagged
            ]
            if len(lines) > TOLD:
                lines[TOLD:] = [f"  and {len(lines) - TOLD} more flagged"]
            drawn += [*lines, ""] if lines else []
        return drawn
