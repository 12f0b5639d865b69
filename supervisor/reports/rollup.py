"""Many jobs of one run in a few words: grids of cells, chunks of a run, restart copies folded (SFT-3, DATAGEN-1)."""

from __future__ import annotations

from supervisor.reports.text import plain, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

COPY = r"(?:[-_.]+(?:r|restart|resume|chain|link|part|try|retry|attempt)[-_.]?\d+)+$"
CHUNK = r"[-_.]+(?:chunk|shard)s?[-_.]?\d+(?:of\d+)?$"
LEAST = 3
"""Distinct cells that make a grid."""
NAMED = 8
"""Running cells that are told of one by one."""


def cell_of(name: str) -> str:
    """The cell that a job works on: its name without what restarts add to it."""
    return _without(COPY, name) or name


def _without(pattern: str, name: str) -> str:
    """Both patterns end in a number: most names need no search, and a cold start no pattern."""
    if not name[-1:].isdigit():
        return name
    import re

    return re.sub(pattern, "", name, flags=re.IGNORECASE)


def stem_of(cell: str, prefixes: Sequence[str]) -> str:
    """What the cells of one grid share: the kind's prefix and the first word behind it."""
    lowered = cell.lower()
    prefix = next((each for each in prefixes if lowered.startswith(each)), "")
    end = min((at for mark in "-_." if (at := cell.find(mark, len(prefix) + 1)) >= 0), default=len(cell))
    return cell[:end]


def copies(jobs: Sequence[Any]) -> tuple[list[Any], dict[Any, int]]:
    """Pending jobs without the restart copies of a cell that is shown already, and how many each row stands for.

    A copy waits for another job of its cell. What is flagged is never folded away.
    """
    seen: dict[tuple[str, str], Any] = {}
    kept: list[Any] = []
    folded: dict[Any, int] = {}
    for job in jobs:
        key = (job.cluster, cell_of(job.name))
        waits = job.predecessor is not None or str(job.scheduler_reason or "").startswith("Dependency")
        if (
            job.phase == "bring_up"
            and job.started_at is None
            and job.worst not in ("fault", "watch")
            and waits
            and key in seen
        ):
            folded[seen[key].row] = folded.get(seen[key].row, 0) + 1
            continue
        seen.setdefault(key, job)
        kept.append(job)
    return kept, folded


def grids(kind: Any, jobs: Sequence[Any], runs: Mapping[Any, Mapping[str, Any]]) -> list[str]:
    """A few lines for each grid among ``jobs``; ``runs`` by row. Counts are of the jobs that are listed."""
    by_stem: dict[str, dict[str, list[Any]]] = {}
    for job in jobs:
        cell = cell_of(job.name)
        by_stem.setdefault(stem_of(cell, kind.prefixes), {}).setdefault(cell, []).append(job)
    lines = []
    for stem, cells in by_stem.items():
        if len(cells) >= LEAST:
            lines += _grid(stem, cells, runs)
    return lines


def _grid(stem: str, cells: Mapping[str, Sequence[Any]], runs: Mapping[Any, Mapping[str, Any]]) -> list[str]:
    running = {cell: job for cell, jobs in cells.items() if (job := _running(jobs)) is not None}
    pending = [
        cell for cell, jobs in cells.items() if cell not in running and any(job.closed_at is None for job in jobs)
    ]
    done = [
        cell
        for cell, jobs in cells.items()
        if cell not in running and cell not in pending and any(job.outcome == "completed" for job in jobs)
    ]
    waiting = sum(job.closed_at is None and job.started_at is None for jobs in cells.values() for job in jobs)
    spare = waiting - len(pending)
    folded = f" ({spare} restart cop{'y' if spare == 1 else 'ies'} folded)" if spare > 0 else ""
    lost = len(cells) - len(running) - len(pending) - len(done)
    ended = f", {lost} ended otherwise" if lost else ""
    tally = f"{len(running)} running, {len(pending)} pending{folded}, {len(done)} done{ended}"
    line = f"grid {plain(stem)}…: {len(cells)} cells: {tally}"
    told = sorted((_left(job, runs.get(job.row, {})), cell, job) for cell, job in running.items())
    pole = told[-1] if told else None
    if pole is not None:
        line += f"; long pole {plain(pole[1])} ({_share(pole[2], runs.get(pole[2].row, {}))})"
    parts = [f"{plain(cell)} {_share(job, runs.get(job.row, {}))}" for _, cell, job in reversed(told)][:NAMED]
    more = f", and {len(told) - NAMED} more" if len(told) > NAMED else ""
    return [line, f"  {', '.join(parts)}{more}"] if len(parts) > 1 else [line]


def _running(jobs: Sequence[Any]) -> Any:
    live = [job for job in jobs if job.closed_at is None and job.started_at is not None]
    return max(live, key=lambda job: job.step or 0) if live else None


def _left(job: Any, run: Mapping[str, Any]) -> tuple[float, int]:
    """Most work left last: by its ETA, else by its share done; one that tells neither is before all."""
    eta = run.get("eta_s")
    if isinstance(eta, (int, float)):
        return (float(eta), job.row)
    return (-1.0, job.row)


def _share(job: Any, run: Mapping[str, Any]) -> str:
    if job.step is None:
        return "no step yet"
    done = f"{job.step / job.total:.0%}" if job.total else f"step {job.step}"
    eta = run.get("eta_s")
    return f"{done}, ETA {span(eta)}" if isinstance(eta, (int, float)) else done


def chunks(jobs: Sequence[Any]) -> list[str]:
    """One line for each run whose chunks are jobs of their own: by their array, or by a chunk's number in the name."""
    runs: dict[str, list[Any]] = {}
    for job in jobs:
        name = _without(CHUNK, cell_of(job.name))
        if name != job.name or job.group:
            runs.setdefault(name, []).append(job)
    lines = []
    for name, mine in runs.items():
        total = sum(max(1, job.group_size) for job in mine)
        if total < 2:
            continue
        done = sum(job.outcome == "completed" for job in mine)
        running = sum(job.closed_at is None and job.started_at is not None for job in mine)
        pending = sum(max(1, job.group_size) for job in mine if job.closed_at is None and job.started_at is None)
        lost = total - done - running - pending
        trials = sum(job.step or 0 for job in mine)
        rest = f", {lost} ended otherwise" if lost > 0 else ""
        tally = f"{done}/{total} done, {running} running, {pending} pending{rest}"
        lines.append(f"chunks of {plain(name)}: {tally}; {trials} trials")
    return lines
