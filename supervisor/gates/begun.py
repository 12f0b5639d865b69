"""Rollouts that nothing has come of yet: normal for an hour where something says positively that they are under way (PROBE-10)."""

from __future__ import annotations

from supervisor.gates import said, sample
from supervisor.gates.sample import Sample
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, GateScore, Missing, Role, Score
from supervisor.model.readings import Mark
from supervisor.model.trials import NONE_ENDED

GATE, NAME = "C", "rollouts"


def none_finished(case: Case, found: Sample) -> GateScore:
    """PROBE-10: for long episodes normal for an hour, where something says positively that they are under way."""
    started, most = case.subject.seen.started_at, case.limits.gating.bring_up_trials_s
    quotes = sample.job_quote(case, found) or _under_way(case)
    told = found.job is not None or (found.told is not None and found.told.done is not None)
    unlisted = not told and any(
        not each.read and not (each.failure or "").startswith(NONE_ENDED) for each in case.of(Role.TRIALS)
    )
    if not quotes or unlisted:
        return error(case, "no trial and no reward is known of, and nothing says that trials are under way")
    if started is None:
        return error(case, "no trial has finished, and when it started is not known", *quotes)
    age = (case.at - started).total_seconds()
    words = f"No trial has finished, {said.span(age)} after its start; up to {said.span(most)} that is normal for long episodes."
    within = age <= most
    return GateScore(
        gate=GATE,
        name=NAME,
        result=Score.PASS if within else Score.FAIL,
        reason=words,
        quotes=quotes,
        confidence="medium",
        early=within,
        watch=f"the first finished trial; none by {said.span(most)} would be a failure"
        if within
        else "the first finished trial, and what its result says",
        facts={"trials": 0, "age_s": round(age)},
    )


def requests(case: Case, found: Sample) -> GateScore | None:
    """An evaluation that asks questions and runs no trials shows how many are answered."""
    has_trials = found.count or found.job is not None or (found.told is not None and found.told.done is not None)
    if case.subject.bucket != "eval" or has_trials or none_ended(case):
        return None
    for file, run in case.runs.items():
        for counter in run.counters:
            quotes = said.mark(case, file, counter.latest) if counter.role == "eval" and counter.done else ()
            if quotes:
                of = f" of {counter.total}" if counter.total is not None else ""
                return GateScore(
                    gate=GATE,
                    name=NAME,
                    result=Score.PASS,
                    reason=f"It runs no trials; {counter.done}{of} of its requests are answered.",
                    quotes=quotes,
                    confidence="medium",
                    watch="a count of answered requests that stands still",
                    facts={"answered": counter.done, "planned": counter.total},
                )
    return None


def none_ended(case: Case) -> bool:
    """Whether the place of its trials was read, and none had ended there."""
    return any((each.failure or "").startswith(NONE_ENDED) for each in case.of(Role.TRIALS))


def _under_way(case: Case) -> tuple[Quote, ...]:
    """The line that says 0 done; else that trials began, or that it still loads."""
    for file, run in case.runs.items():
        marks: list[Mark | None] = [
            counter.latest for counter in run.counters if counter.role in ("trials", "buffer") and counter.done == 0
        ]
        marks += [run.last_trial]
        marks += [counter.latest for counter in run.counters if counter.role in ("trials", "buffer")]
        marks += [timer.open_since for timer in run.timers if timer.open_since is not None]
        if case.subject.bucket != "rl" and run.last_step is None:
            marks.append(run.last_bring_up)  # its engine still loads; of a trainer the first reward must be seen
        for mark in marks:
            if quotes := said.mark(case, file, mark):
                return quotes
    return ()


def error(case: Case, why: str, *quotes: Quote) -> GateScore:
    text = f"{why[:1].upper()}{why[1:]}"
    missing: Missing = said.missing(case, Role.TRIALS, Role.LOG)
    if case.read(Role.LOG) and not any(not each.read for each in case.of(Role.TRIALS)):
        read = next(iter(case.read(Role.LOG)))
        missing = said.unusable(read, "it shows no reward and no trial")
    return GateScore(
        gate=GATE,
        name=NAME,
        result=Score.ERROR,
        reason=text if text.endswith(".") else f"{text}.",
        quotes=quotes,
        missing=missing,
    )
