"""Does it fail the same way again? Then it is deterministic, and another relaunch is one more loss (CHAIN-5).

The one place that decides so, for flags and for diagnoses. Three witnesses, the surest first: what the log tells of its own
attempts, how the scheduler says that they ended, and the fingerprints of their diagnoses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from supervisor.detectors import quoting
from supervisor.model.facts import Facts, PastEnd
from supervisor.model.findings import Finding, Severity
from supervisor.model.job import JobState

RULE = "CHAIN-5"
"""The flag's key too: a job repeats one failure at a time."""
TERM = 15
ADVICE = "deterministic; fix the cause before another relaunch"
FAILURES = frozenset({JobState.FAILED, JobState.OUT_OF_MEMORY, JobState.REQUEUED})


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """One finding at most."""
    found = _same_step(facts) or _same_end(facts)
    if found is not None:
        yield found


def judged(document: Mapping[str, Any], before: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """``document``, a diagnosis in the contract's form, seen beside those of earlier attempts and links of the same run.

    ``before``: where each was (``attempt 1``, ``alpha/4711``) and its document. An equal fingerprint proves the repeat; a
    diagnosis that found nothing has none, and repeats nothing.
    """
    mark = document.get("fingerprint")
    same = [where for where, earlier in before if mark and earlier.get("fingerprint") == mark]
    if not same:
        return dict(document)
    reason = f"the same failure as in {', '.join(same)}: it repeats, so it will not pass by itself ({RULE})"
    return {
        **document,
        "transience": "deterministic",
        "reasons": [*document.get("reasons", ()), reason],
        "repeats": same,
        "action": f"Do not relaunch unchanged. {document.get('action') or ''}".strip(),
    }


def _same_step(facts: Facts) -> Finding | None:
    """Attempts in a row whose log ended at one step: what kills it there does so each time."""
    run, least = facts.followed, facts.limits.health.repeats
    if run is None or facts.held.bucket in ("eval", "datagen"):
        return None
    resumes = run.summary.resumes
    if len(resumes) < least:
        return None
    row = resumes[-least:]
    if len({each.before for each in row}) > 1 or (run.summary.progress.step or 0) > row[-1].before:
        return None
    times = 0
    for each in reversed(resumes):
        if each.before != row[-1].before:
            break
        times += 1
    quotes = tuple(quote for each in row for quote in quoting.place(run, each.mark))
    if not quotes:
        return None
    text = f"{times} attempts in a row ended at step {row[-1].before}: {ADVICE}"
    return Finding(RULE, Severity.FAULT, text, quotes, key=RULE)


def _same_end(facts: Facts) -> Finding | None:
    """Attempts in a row that failed with one exit code at one step; without any step, it takes one attempt more."""
    past, least = facts.held.past, facts.limits.health.repeats
    if not past or past[-1].state not in FAILURES or not (past[-1].exit_code or past[-1].signal):
        return None
    if past[-1].signal == TERM or past[-1].exit_code == 128 + TERM:
        return None  # somebody else ended it: a limit, a preemption; whether at a fixed time is ``restarts``' to ask
    last, row = past[-1], list[PastEnd]()
    for end in reversed(past):
        if (end.state, end.exit_code, end.signal, end.step) != (last.state, last.exit_code, last.signal, last.step):
            break
        row.append(end)
    if len(row) < least + (last.step is None) or (facts.log.step or 0) > (last.step or 0):
        return None
    where = f"at step {last.step}" if last.step is not None else "before any step"
    how = f"signal {last.signal}" if last.signal else f"exit code {last.exit_code}"
    text = f"{len(row)} attempts in a row ended {where} with {how}: {ADVICE}"
    return Finding(RULE, Severity.FAULT, text, tuple(map(quoting.ended, reversed(row))), key=RULE)
