"""Gate A: does the work go on? The record's state, the age of its newest progress, and, where it stands, what its processes do.

Silence alone never kills (LIVE-5): a hard failure needs processes that positively stand still, no benign explanation, and
stacks taken while they lived (PROBE-5).
"""

from __future__ import annotations

from datetime import timedelta

from supervisor.gates import hang, progress, said
from supervisor.gates.record import Standing, Told, told
from supervisor.model.findings import Quote
from supervisor.model.job import JobState
from supervisor.model.probe import Case, GateScore, Missing, Role, Score

GATE, NAME = "A", "liveness"

_NOT_RUNNING = {
    Standing.ENDED: ("it ended while it was probed", "Nothing is to be mended: its end has a diagnosis of its own."),
    Standing.OTHER: (
        "its record is of another attempt: it was started again while it was probed",
        "Probe the attempt that runs now.",
    ),
    Standing.WAITING: ("it does not run: nothing of it can be probed", "Probe it once it runs."),
    Standing.UNKNOWN: ("its record does not say clearly whether it runs", ""),
}
"""Why nothing is judged, and what to do about it."""


def judge(case: Case) -> GateScore:
    record = _record(case)
    if isinstance(record, GateScore):
        return record
    logs = progress.logs(case)
    if not logs:
        return _error("no log of it could be read", said.missing(case, Role.LOG), record.quote)
    stand = progress.stand(case, logs)
    allowed = case.limits.bring_up_limit if stand.bring_up else case.subject.silence_allowed
    quotes = said.distinct((record.quote, *stand.quotes))
    if stand.age is None:
        return _error(
            "when it last made progress is not known",
            said.unusable(
                stand.log.exhibit, "no line of it tells when the newest progress was, and no earlier look did"
            ),
            *quotes,
        )
    facts: dict[str, float | int | str | None] = {
        "silent_s": round(stand.age.total_seconds()),
        "allowed_s": round(allowed.total_seconds()),
        "step": stand.step,
        "total": stand.total,
    }
    if stand.age <= allowed:
        fault = hang.signature(case, stand)
        shown = f" Its log shows {fault.cause.category} after that." if fault is not None else ""
        return GateScore(
            gate=GATE,
            name=NAME,
            result=Score.PASS,
            reason=_alive(record, stand, allowed) + shown,
            quotes=said.distinct((*quotes, *(fault.cause.quotes[:2] if fault is not None else ()))),
            confidence="high" if fault is None else "medium",
            early=stand.bring_up,
            watch=f"no progress for more than {said.span(allowed.total_seconds())}",
            facts=facts,
        )
    return _silent(case, record, stand, allowed, facts)


def _record(case: Case) -> Told | GateScore:
    """The state as its own record has it, or the error that none is known."""
    exhibits = case.read(Role.RECORD)
    if not exhibits:
        return _error("its record could not be read", said.missing(case, Role.RECORD))
    for each in exhibits:
        if each.file is not None and (found := told(each.file, case.lines(each.file), case.subject.key)) is not None:
            standing, word, seen = found.standing, found.word, case.subject.seen
            if standing not in _NOT_RUNNING and seen.state.ended:  # read again after the record was
                standing, word = Standing.ENDED, f"the newest reading says {seen.scheduler_state}, its record {word}"
            if standing not in _NOT_RUNNING:
                return found
            why, todo = _NOT_RUNNING[standing]
            return _error(f"{why} ({word})", said.unusable(each, found.quote.text), found.quote, fix=todo)
    first = next(iter(case.lines(exhibits[0].file or "")), "")
    return _error("its record names no state", said.unusable(exhibits[0], said.cut(first) or "it is empty"))


def _alive(record: Told, stand: progress.Stand, allowed: timedelta) -> str:
    age, most = said.span(stand.age.total_seconds() if stand.age else 0), said.span(allowed.total_seconds())
    if stand.bring_up:
        return f"Its record says {record.word}, and it has {stand.words} {age} after its start; {most} are allowed."
    if stand.moved:
        return f"Its record says {record.word}, and it progressed since the last look ({stand.words})."
    return f"Its record says {record.word}, and {stand.words} is {age} old; {most} of silence are allowed."


def _silent(
    case: Case, record: Told, stand: progress.Stand, allowed: timedelta, facts: dict[str, float | int | str | None]
) -> GateScore:
    """Beyond its allowance: a soft failure, unless it is positively shown to hang."""
    assert stand.age is not None
    goes_on, beats = progress.noise(case, stand.log)
    quotes = (record.quote, *stand.quotes, *beats)
    since = f"its start ({stand.words})" if stand.bring_up else stand.words
    silent, most = said.span(stand.age.total_seconds()), said.span(allowed.total_seconds())
    reason = f"Its record says {record.word}, but {silent} have passed since {since}; {most} are allowed"
    reason += f", and {goes_on}." if goes_on else "."
    hang_from = allowed * case.limits.gating.hang_multiple
    if record.standing is Standing.SUSPENDED or case.subject.seen.state is JobState.SUSPENDED:
        return _soft(f"{reason} It is suspended.", quotes, "progress after it is resumed", facts, "it is suspended")
    if stand.unsure:
        return _soft(f"{reason} But {stand.unsure}.", quotes, "its log at the next look", facts, stand.unsure)
    if stand.age < hang_from:
        begins = f"a hang is called from {said.span(hang_from.total_seconds())} on"
        watch = f"progress; without any by {said.span(hang_from.total_seconds())} of silence its processes decide"
        return _soft(f"{reason} A{begins[1:]}.", quotes, watch, facts, begins)
    return _from_hang(hang.judge(case, stand), reason, quotes, facts)


def _from_hang(
    found: hang.Hang, reason: str, quotes: tuple[Quote, ...], facts: dict[str, float | int | str | None]
) -> GateScore:
    whole = said.distinct((*quotes, *found.quotes), most=12)
    if found.missing is not None:
        return _error(f"{found.words} {reason}", found.missing, *whole)
    if not found.proven:
        return _soft(f"{reason} {found.words}", whole, found.watch, facts, found.against)
    return GateScore(
        gate=GATE,
        name=NAME,
        result=Score.FAIL,
        reason=f"{reason} {found.words}",
        quotes=whole,
        hard=True,
        wedge=True,
        cause=found.cause,
        fix=found.fix,
        confidence=found.confidence,
        watch="any progress: a step, a moved counter, a finished trial",
        facts=facts,
    )


def _soft(
    reason: str,
    quotes: tuple[Quote, ...],
    watch: str,
    facts: dict[str, float | int | str | None],
    against: str,
) -> GateScore:
    """``against``: what speaks against a hang; empty where it is merely not proven."""
    return GateScore(
        gate=GATE,
        name=NAME,
        result=Score.FAIL,
        reason=reason,
        quotes=said.distinct(quotes, most=12),
        confidence="medium",
        watch=watch,
        facts=facts | ({"against": against} if against else {}),
    )


def _error(reason: str, missing: Missing, *quotes: Quote, fix: str = "") -> GateScore:
    """``fix``: what to do, where the failed command's output does not tell it."""
    text = reason[:1].upper() + reason[1:]
    text = text if text.endswith(".") else f"{text}."
    return GateScore(gate=GATE, name=NAME, result=Score.ERROR, reason=text, quotes=quotes, missing=missing, fix=fix)
