"""Did it start over, or die by the clock? (RL-14, CHAIN-2, SFT-4)"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise

from supervisor.detectors import quoting
from supervisor.model.facts import Facts, Followed
from supervisor.model.findings import Finding, Severity
from supervisor.model.readings import Mark, Resume

SIGTERM = ("sigterm", "signal 15", "exitcode: -15", "exitcode  : -15")
INTERVAL = "SFT-4/interval"
"""The flag's key, whoever tells of the deaths."""
INCIDENT_S = 120.0
"""Words of many ranks within this time tell of one death."""


TERM = 15
LIMIT_SLACK = 0.1
"""Share of its time limit by which an attempt that the limit ended may differ: a warning comes some minutes before."""


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """From what the log tells of its attempts, and from how the scheduler says that they ended."""
    by_the_clock = [*_terminated(facts)]
    yield from by_the_clock
    run = facts.followed
    if run is None or facts.held.bucket in ("eval", "datagen"):
        return
    yield from _from_scratch(facts, run, run.summary.resumes)
    if not by_the_clock:
        yield from _by_the_clock(facts, run)


def _terminated(facts: Facts) -> Iterable[Finding]:
    """Attempts that a SIGTERM ended after one and the same time, where that is not their own time limit (CHAIN-1)."""
    ends = facts.held.past[-3:]
    took = [(end.ended_at - end.started_at).total_seconds() for end in ends if end.ended_at and end.started_at]
    if len(took) < 3 or not all(end.signal == TERM or end.exit_code == 128 + TERM for end in ends):
        return
    least, most = min(took), max(took)
    if _at_its_limit(facts, most):
        return
    if least > INCIDENT_S and (most - least) / least <= facts.limits.health.interval_spread:
        text = f"SIGTERM after {most / 60:.0f} min in {len(took)} attempts in a row: a limit or a watchdog, not chance"
        yield Finding("SFT-4", Severity.WATCH, text, tuple(map(quoting.ended, ends)), key=INTERVAL)


def _at_its_limit(facts: Facts, took: float) -> bool:
    limit = facts.observation.time_limit
    return limit is not None and abs(took - limit.total_seconds()) <= LIMIT_SLACK * limit.total_seconds()


def _from_scratch(facts: Facts, run: Followed, resumes: tuple[Resume, ...]) -> Iterable[Finding]:
    """Steps were behind it, and it counts from 0 again: what it did before is lost unless a person puts it back."""
    if not resumes or resumes[-1].after > 1 or resumes[-1].before < facts.limits.health.restart_loss_steps:
        return
    last = resumes[-1]
    if (run.summary.progress.step or 0) >= last.before or last.before == run.summary.progress.total:
        return  # made up for, or it was through and another stage begins
    rule = "RL-14" if facts.held.bucket == "rl" else "CHAIN-2"
    kept = run.summary.checkpoint_step
    banked = f"; the log announced a checkpoint at step {kept}" if kept else ""
    text = f"started again from step {last.after} after step {last.before}{banked}"
    quotes = quoting.place(run, last.mark)
    if quotes:
        yield Finding(rule, Severity.WATCH, text, quotes, key=f"{rule}/restart")


def _by_the_clock(facts: Facts, run: Followed) -> Iterable[Finding]:
    """SIGTERM again and again at one interval: a limit somewhere, not chance. Only from one log that several attempts share."""
    deaths: list[Mark] = []
    for mark in run.summary.failures:
        if mark.clock_s is None or not any(word in mark.said.text.lower() for word in SIGTERM):
            continue
        if not deaths or mark.clock_s - (deaths[-1].clock_s or 0.0) > INCIDENT_S:
            deaths.append(mark)
    if len(deaths) < 3:
        return
    clocks = [mark.clock_s or 0.0 for mark in deaths]
    between = [after - before for before, after in pairwise(clocks)]
    least, most = min(between), max(between)
    if least > 0 and not _at_its_limit(facts, most) and (most - least) / least <= facts.limits.health.interval_spread:
        text = f"SIGTERM every {most / 60:.0f} min, {len(deaths)} times: a fixed interval is a limit or a watchdog, not chance"
        quotes = tuple(quote for mark in deaths for quote in quoting.place(run, mark))
        if quotes:
            yield Finding("SFT-4", Severity.WATCH, text, quotes, key=INTERVAL)
