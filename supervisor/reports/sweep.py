"""The sweep's entry: the tables, then what was done, what is flagged, and what waits for a person (SAY-2, SAY-5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from supervisor.model.lifecycle import Transition
from supervisor.reports import status
from supervisor.reports.text import moment, plain


@dataclass(frozen=True, slots=True)
class Said:
    """An alert to say in this entry: newly opened, changed, due again, or closed."""

    subject: str
    text: str
    severity: str
    why: str
    """``new``, ``changed``, ``reminder``, ``cleared``"""


def entry(
    summary: Any,
    jobs: Sequence[Any],
    moves: Sequence[Transition],
    said: Sequence[Said],
    holds: Sequence[Any],
    number: int,
    now: datetime,
    took_s: float,
    trouble: str | None,
    kinds: Sequence[Any] = (),
    incidents: Sequence[Any] = (),
    waiting: Sequence[Any] = (),
) -> str:
    """Markdown with the box-drawn tables in a fenced block; plain text, no colour. ``kinds``: as for ``status.tables``;
    ``incidents``: failures that struck more than once, each said once with its jobs (CHAIN-5).
    """
    unknown = {each.name: each.last_good_at for each in summary.clusters if each.state != "ok"}
    lines = [f"## {moment(now)} tick {number} ({took_s:g} s)", ""]
    lines += [f"⚠ {plain(trouble)}", ""] if trouble else []
    lines += [line.strip() and f"- {line.strip()}" for line in status.head(summary, now)[1:]]
    tables = status.tables(jobs, now, unknown=unknown, wide=None, colour=False, pipes=False, kinds=kinds)
    if tables:
        lines += ["", "```text", *tables, "```"]
    elif unknown:
        lines += ["", f"No jobs are known; {', '.join(unknown)} could not be read, so there may be some."]
    else:
        lines += ["", "No jobs."]
    lines += ["", "**Done**", ""]
    moved = [move for move in moves if move.moved or move.after.outcome is not move.before.outcome]
    lines += [_moved(move) for move in moved] or ["- nothing moved"]
    lines += ["", "**Flagged**", ""]
    lines += [f"- {each.why}: {plain(each.subject)}: {plain(each.text)}" for each in said] or ["- nothing new"]
    if incidents:
        lines += ["", "**Incidents**", ""]
        lines += [_incident(each) for each in incidents]
    lines += ["", "**Waiting for you**", ""]
    asked = [f"- {status.waits(each)}" for each in waiting]
    asked += [f"- hold {each.id} on {each.target or 'everything'}: {plain(each.reason)}" for each in holds]
    lines += asked or ["- nothing"]
    return "\n".join(lines) + "\n\n"


def _incident(each: Any) -> str:
    jobs = ", ".join(plain(job) for job in each.jobs[:8])
    more = f" and {len(each.jobs) - 8} more" if len(each.jobs) > 8 else ""
    return f"- {plain(each.category)}, {each.times} times since {moment(each.first_at)}: {jobs}{more}"


def _moved(move: Transition) -> str:
    outcome = f" ({move.after.outcome.value})" if move.after.outcome else ""
    attempt = f", attempt {move.after.attempt}" if move.after.attempt != move.before.attempt else ""
    return (
        f"- {plain(str(move.job.ref))}: {move.before.phase.value} → {move.after.phase.value}{outcome}{attempt}: "
        f"{plain(move.read.reason)}"
    )
