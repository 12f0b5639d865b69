"""The dated record of one approved kill, however it came out: what was done, who allowed it, on what evidence (SAY-3, KILL-1)."""

from __future__ import annotations

from datetime import datetime

from supervisor.model.facts import Held
from supervisor.model.findings import Quote
from supervisor.model.probe import Verdict
from supervisor.model.proposals import Decision, Stage
from supervisor.model.secrets import scrubbed
from supervisor.reports.text import moment, plain

_WIDE = 400
_TITLES = {
    Stage.CONFIRMED: "killed",
    Stage.RECORDED: "would have been killed",
    Stage.UNCONFIRMED: "its kill is not confirmed",
    Stage.ENDED_ITSELF: "ended before its kill",
    Stage.VOID: "not killed",
}


def topic_of(decision: Decision) -> str:
    """Last part of the record's file name: one record for each approval."""
    return f"kill-{decision.id}-{decision.stage.value.replace('_', '-')}"


def kill_record(decision: Decision, verdict: Verdict, held: Held, now: datetime) -> str:
    """Markdown. ``held``: the job as it is held now."""
    title = _TITLES.get(decision.stage, decision.stage.value)
    lines = [f"# {plain(str(decision.job.ref))} {plain(held.observation.name)}: {title}", ""]
    if decision.stage is Stage.UNCONFIRMED:
        lines += ["⚠ A person must look: the cancel counts as sent, and it is not sent again.", ""]
    by = f"{plain(decision.approved_by)}{f' (database role {plain(decision.role)})' if decision.role else ''}"
    facts = [
        ("recorded", moment(now)),
        ("why", plain(decision.why or "")),
        ("attempt", str(decision.attempt)),
        ("approved", f"{moment(decision.approved_at)} by {by}: {plain(decision.reason)}"),
        ("approval", f"{decision.id} of proposal {decision.proposal}, until {moment(decision.expires_at)}"),
        ("mode", decision.mode),
        ("begun", moment(decision.intended_at) if decision.intended_at else None),
        ("cancel", _cancel(decision)),
        ("over", moment(decision.finished_at) if decision.finished_at else None),
        ("scheduler says", plain(held.observation.scheduler_state)),
        ("job stands at", f"attempt {held.life.attempt}, {held.life.phase.value}"),
    ]
    lines += [f"- {name}: {value}" for name, value in facts if value]
    lines += ["", f"## Verdict {decision.verdict}: {verdict.ruling.value}, {plain(verdict.confidence)} confidence", ""]
    lines += [f"**{plain(verdict.cause)}**: {plain(verdict.reasoning)}", ""]
    for quote in _quotes(verdict):
        lines += [f"`{_tick_free(quote.file)}`{f', line {quote.line}' if quote.line else ''}:", ""]
        lines += [f"    {plain(scrubbed(quote.text))[:_WIDE]}", ""]
    lines += [f"- digest: {decision.digest}", f"- evidence: `{_tick_free(verdict.evidence)}`"]
    lines += [f"- would have flipped it: {plain(verdict.flip_signal)}", "", "## What to do", ""]
    lines += _next(decision, verdict)
    return "\n".join(lines) + "\n"


def _cancel(decision: Decision) -> str | None:
    if decision.intended_at is None or decision.stage in (Stage.RECORDED, Stage.VOID):
        return "nothing was sent"
    if decision.sent_at is None:
        return "it may have been sent: no receipt is known"
    word = {True: "taken", False: "refused", None: "not known whether it was taken"}[decision.accepted]
    said = plain(scrubbed(decision.output or ""))[:_WIDE]
    return f"sent once, answered {moment(decision.sent_at)}: {word}{f' ({said})' if said else ''}"


def _quotes(verdict: Verdict) -> tuple[Quote, ...]:
    decisive = verdict.decisive
    own = decisive.quotes if decisive is not None else ()
    return (*own, *verdict.restarts.quotes)[:6]


def _next(decision: Decision, verdict: Verdict) -> list[str]:
    if decision.stage is Stage.UNCONFIRMED:
        return ["- Look at the job by hand; a new kill needs a new verdict and a new approval."]
    if decision.stage in (Stage.VOID, Stage.ENDED_ITSELF):
        return ["- Nothing: the approval is used up. If it hangs still, the next probe says so."]
    decisive = verdict.decisive
    fix = decisive.fix if decisive is not None else ""
    told = not fix or any(fix in step for step in verdict.next_steps)
    steps = verdict.next_steps if told else (fix, *verdict.next_steps)
    return [
        *(f"- {plain(step)}" for step in steps),
        "- Relaunch it once that is done; the supervisor starts nothing itself.",
    ]


def _tick_free(text: str) -> str:
    return plain(text).replace("`", "'")
