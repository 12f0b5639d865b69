"""Did it start over, die at the same step again, or die by the clock? (RL-14, CHAIN-5, SFT-4)"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise

from supervisor.detectors import quoting
from supervisor.model.facts import Facts, Followed, PastEnd
from supervisor.model.findings import Finding, Quote, Severity
from supervisor.model.job import JobState
from supervisor.model.readings import Mark, Resume

SIGTERM = ("sigterm", "signal 15", "exitcode: -15", "exitcode  : -15")
INCIDENT_S = 120.0
"""Words of many ranks within this time tell of one death."""


FAILURES = frozenset({JobState.FAILED, JobState.OUT_OF_MEMORY, JobState.REQUEUED})
TERM = 15


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """From what the log tells of its attempts, and from how the scheduler says that they ended."""
    yield from _terminated(facts)
    told = [*_from_log(facts)]
    yield from told
    if not any(finding.rule == "CHAIN-5" for finding in told):
        yield from _same_end(facts)


def _from_log(facts: Facts) -> Iterable[Finding]:
    run = facts.followed
    if run is None or facts.held.bucket in ("eval", "datagen"):
        return
    resumes = run.summary.resumes
    yield from _from_scratch(facts, run, resumes)
    yield from _same_step(facts, run, resumes)
    yield from _by_the_clock(facts, run)


def _terminated(facts: Facts) -> Iterable[Finding]:
    """Attempts that a SIGTERM ended after one and the same time."""
    ends = facts.held.past[-3:]
    took = [(end.ended_at - end.started_at).total_seconds() for end in ends if end.ended_at and end.started_at]
    if len(took) < 3 or not all(end.signal == TERM or end.exit_code == 128 + TERM for end in ends):
        return
    least, most = min(took), max(took)
    if least > INCIDENT_S and (most - least) / least <= facts.limits.health.interval_spread:
        text = f"SIGTERM after {most / 60:.0f} min in {len(took)} attempts in a row: a limit or a watchdog, not chance"
        rule = "SFT-4" if facts.held.bucket == "sft" else "CHAIN-5"
        yield Finding(rule, Severity.WATCH, text, tuple(map(_words, ends)), key=f"{rule}/sigterm")


def _same_end(facts: Facts) -> Iterable[Finding]:
    """Attempts in a row that failed with one exit code at one step; without any step, it takes one attempt more."""
    past, least = facts.held.past, facts.limits.health.repeats
    if not past or past[-1].state not in FAILURES or not (past[-1].exit_code or past[-1].signal):
        return
    last, row = past[-1], list[PastEnd]()
    for end in reversed(past):
        if (end.state, end.exit_code, end.signal, end.step) != (last.state, last.exit_code, last.signal, last.step):
            break
        row.append(end)
    if len(row) < least + (last.step is None) or (facts.log.step or 0) > (last.step or 0):
        return
    where = f"at step {last.step}" if last.step is not None else "before any step"
    how = f"signal {last.signal}" if last.signal else f"exit code {last.exit_code}"
    text = (
        f"{len(row)} attempts in a row ended {where} with {how}: deterministic; fix the cause before another relaunch"
    )
    yield Finding("CHAIN-5", Severity.FAULT, text, tuple(map(_words, reversed(row))), key="CHAIN-5/step")


def _words(end: PastEnd) -> Quote:
    how = f" signal {end.signal}" if end.signal else f" exit {end.exit_code}" if end.exit_code is not None else ""
    return Quote("accounting", None, f"{end.words}{how}")


def _from_scratch(facts: Facts, run: Followed, resumes: tuple[Resume, ...]) -> Iterable[Finding]:
    """Steps were behind it, and it counts from 0 again: what it did before is lost unless a person puts it back."""
    if not resumes or resumes[-1].after > 1 or resumes[-1].before < facts.limits.health.restart_loss_steps:
        return
    last = resumes[-1]
    if (run.summary.progress.step or 0) >= last.before:
        return
    rule = "RL-14" if facts.held.bucket == "rl" else "CHAIN-2"
    kept = run.summary.checkpoint_step
    banked = f"; the log announced a checkpoint at step {kept}" if kept else ""
    text = f"started again from step {last.after} after step {last.before}{banked}"
    quotes = quoting.place(run, last.mark)
    if quotes:
        yield Finding(rule, Severity.WATCH, text, quotes, key=f"{rule}/restart")


def _same_step(facts: Facts, run: Followed, resumes: tuple[Resume, ...]) -> Iterable[Finding]:
    """Attempts in a row that ended at one step: what kills it there does so each time."""
    least = facts.limits.health.repeats
    if len(resumes) < least:
        return
    row = resumes[-least:]
    if len({each.before for each in row}) > 1 or (run.summary.progress.step or 0) > row[-1].before:
        return
    times = 0
    for each in reversed(resumes):
        if each.before != row[-1].before:
            break
        times += 1
    quotes = tuple(quote for each in row for quote in quoting.place(run, each.mark))
    if quotes:
        text = f"{times} attempts in a row ended at step {row[-1].before}: deterministic; fix the cause before another relaunch"
        yield Finding("CHAIN-5", Severity.FAULT, text, quotes, key="CHAIN-5/step")


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
    if least > 0 and (most - least) / least <= facts.limits.health.interval_spread:
        text = f"SIGTERM every {most / 60:.0f} min, {len(deaths)} times: a fixed interval is a limit or a watchdog, not chance"
        quotes = tuple(quote for mark in deaths for quote in quoting.place(run, mark))
        if quotes:
            yield Finding("SFT-4", Severity.WATCH, text, quotes, key="SFT-4/interval")
