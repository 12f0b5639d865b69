"""How much of a log to read next, from what was read before and what is there now (FIND-3). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.model.logs import LogStat, LogState, LogWanted
from supervisor.model.records import LogCursor


@dataclass(frozen=True, slots=True)
class Plan:
    """What to fetch, and whether what was kept before belongs to another file."""

    wanted: LogWanted
    afresh: bool
    """The file was truncated, replaced or rotated: reading starts at its beginning again."""


def plan(job_id: str, stat: LogStat, cursor: LogCursor | None, limit: int) -> Plan | None:
    """None where nothing new is there, or nothing can be read. At most ``limit`` bytes, the newest where more wait."""
    if stat.state is not LogState.READ or stat.size == 0 or limit <= 0:
        return None
    other = cursor is not None and (
        stat.size < cursor.offset
        or (cursor.inode and stat.inode and (stat.inode, stat.device) != (cursor.inode, cursor.device))
    )
    offset = 0 if cursor is None or other else cursor.offset
    if stat.size <= offset:
        return None
    mark = cursor.bookmark if cursor is not None and not other else None
    return Plan(LogWanted(job_id, stat.path, offset, limit, bookmark=mark), afresh=bool(other))


def share(stats: dict[str, LogStat], cursors: dict[str, LogCursor | None], per_job: int, per_tick: int) -> list[Plan]:
    """Plans for all logs that grew, within the tick's own budget: the smallest first, so that one flood starves nobody."""
    plans = [found for job, stat in stats.items() if (found := plan(job, stat, cursors.get(job), per_job)) is not None]
    plans.sort(key=lambda each: min(each.wanted.limit, stats[each.wanted.job_id].size - each.wanted.offset))
    chosen, left = [], per_tick
    for each in plans:
        need = min(each.wanted.limit, stats[each.wanted.job_id].size - each.wanted.offset)
        if need > left:
            break
        chosen.append(each)
        left -= need
    return chosen
