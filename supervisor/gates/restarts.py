"""Restarts burned, and whether they repeat one failure: then a further attempt is doomed (PROBE-6, CHAIN-5)."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.gates.said import cut
from supervisor.model.findings import Quote
from supervisor.model.job import JobState
from supervisor.model.probe import Case, PastAttempt, Restarts

PASSING = frozenset({"preempted", "walltime", "cancelled", "node-fail", "evicted", "none", "unread"})
"""Causes of ends that say nothing of the program: the clock, a person, other work or the machine ended it."""


def judge(case: Case) -> Restarts:
    """``case.past`` is oldest first. The same failure counts over the newest attempts in a row, told by their fingerprint."""
    row = _same(case.past)
    newest = row[-1] if row else None
    shows = newest is not None and any(cause.fingerprint == newest.fingerprint for cause in case.causes.values())
    times = len(row) + shows
    beyond = newest is not None and _beyond(case, row)
    quotes = tuple(_quotes(case, row))
    same = newest is not None and len(row) >= case.limits.gating.doomed_repeats and bool(quotes) and not beyond
    burn = case.subject.burn
    attempts = sum(each.name.startswith("attempt ") for each in case.past)  # links of a chain burn no restart
    burned = burn.burned if burn is not None else attempts or None
    allowed = burn.allowed if burn is not None else None
    return Restarts(
        burned=burned,
        allowed=allowed,
        same_failure=same,
        times=times,
        category=newest.category if newest else None,
        fingerprint=newest.fingerprint if newest else None,
        quotes=quotes,
        words=_words(case, row, burned, allowed, beyond),
    )


def _same(past: tuple[PastAttempt, ...]) -> tuple[PastAttempt, ...]:
    """The newest attempts in a row that ended by one failure, oldest first; none where the newest has no fingerprint."""
    if not past or not _failed(past[-1]):
        return ()
    row: list[PastAttempt] = []
    for each in reversed(past):
        if not _failed(each) or each.fingerprint != past[-1].fingerprint:
            break
        row.append(each)
    return tuple(reversed(row))


def _failed(end: PastAttempt) -> bool:
    return bool(end.fingerprint) and end.state is not JobState.COMPLETED and end.category not in PASSING


def _beyond(case: Case, row: tuple[PastAttempt, ...]) -> bool:
    """This attempt has come further than any of those: what stopped them did not stop it."""
    steps = [each.step for each in row if each.step is not None]
    now = [case.subject.log.step, *(run.progress.step for run in case.runs.values())]
    reached = max((step for step in now if step is not None), default=None)
    return bool(steps) and reached is not None and reached > max(steps)


def _quotes(case: Case, row: Iterable[PastAttempt]) -> Iterable[Quote]:
    for each in row:
        if each.quote is not None and each.quote.line is not None and each.quote.text.strip():
            yield Quote(each.quote.file, each.quote.line, cut(each.quote.text))


def _words(case: Case, row: tuple[PastAttempt, ...], burned: int | None, allowed: int | None, beyond: bool) -> str:
    if not burned and not case.past:
        return "none" if allowed is None else f"none of {allowed} burned"
    count = f"{burned or 0} of {allowed} burned" if allowed is not None else f"{burned or 0} burned"
    if len(row) > 1:
        at = {each.step for each in row}
        where = f" at step {row[-1].step}" if len(at) == 1 and row[-1].step is not None else ""
        further = ", and this attempt has come further" if beyond else ""
        return (
            f"{count}; the last {len(row)} ended by the same failure, {row[-1].category or 'unnamed'}{where}{further}"
        )
    if case.past:
        newest = case.past[-1]
        how = newest.category or (
            newest.state.value.replace("_", " ") if newest.state else "in a way that is not known"
        )
        return f"{count}; {newest.name} ended: {how}; no failure repeats"
    return f"{count}; how they ended is not known"
