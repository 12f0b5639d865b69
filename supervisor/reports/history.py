"""``show`` and ``why``: one job whole, and the chain of evidence for where it is held. Pure text from stored rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from supervisor.model.secrets import scrubbed
from supervisor.reports.cells import number
from supervisor.reports.status import elapsed_s
from supervisor.reports.text import moment, plain, span

FLIPS = {
    "bring_up": "it moves on when its first progress is seen, or when the scheduler says that it ended",
    "running": "it becomes suspect when its log is read and silent beyond its cadence; it ends when scheduler or accounting say so",
    "suspect": "new progress in its log heals it; a hard finding that it hangs makes it wedged",
    "wedged": "new progress in its log heals it; its end, told by scheduler or accounting, closes it",
    "terminal": "a new attempt under the same id, or being listed after it vanished, opens it; a late successor or end"
    " corrects its outcome",
    "cleanup": "it is done when every step of its clean-up is",
    "done": "a new attempt under the same id opens it again",
}
"""What would change the phase, in plain words, as the table of the state machine has it."""

NOTHING: Mapping[str, Any] = {}


def shown(
    job: Any,
    attempts: Sequence[Any],
    steps: Sequence[Any],
    diagnoses: Sequence[Mapping[str, Any]],
    held: Mapping[str, Any],
    now: datetime,
    seen: Mapping[str, Any] = NOTHING,
    verdicts: Sequence[Sequence[str]] = (),
    holds: Sequence[Any] = (),
) -> str:
    """One job whole. ``held``: what is remembered beside the row (workdir, command, paths). ``seen``: its latest observation.
    ``verdicts``: the newest first, each as the lines of ``reports.verdict.brief``.
    """
    count = counts(seen)
    lines = [f"{plain(job.name)}  {job.cluster}/{plain(job.id)}", ""]
    facts: list[tuple[str, str | None]] = [
        ("phase", f"{job.phase}{f' ({job.outcome})' if job.outcome else ''} since {moment(job.since)}"),
        ("scheduler", plain(" ".join(filter(None, (job.scheduler_state, _word(job.scheduler_reason)))))),
        (
            "exit",
            f"code {job.exit_code}{f', signal {job.signal}' if job.signal else ''}"
            if job.exit_code is not None
            else None,
        ),
        ("bucket", job.bucket),
        ("user", plain(job.user or "") or None),
        ("attempt", str(job.attempt)),
        ("failures", _burned(count["restarts"])),
        ("preemptions", _burned(count["preemptions"])),
        ("tasks", _tasks(count["tasks"])),
        ("submitted", moment(job.submitted_at)),
        ("started", moment(job.started_at)),
        ("ended", moment(job.ended_at) if job.ended_at else None),
        ("elapsed", _elapsed(job, now)),
        ("partition", plain(" ".join(filter(None, (job.partition, job.account))))),
        ("nodes", plain(", ".join(json.loads(job.nodes))) if job.nodes else str(job.node_count or "") or None),
        ("group", f"{plain(job.group)}, {job.group_size} tasks in this record" if job.group else None),
        ("follows", plain(job.predecessor) if job.predecessor else None),
        ("goes on as", plain(job.successor) if job.successor else None),
        ("log", _log(job, now)),
        ("not understood", _not_understood(job)),
        ("trials", _trials(job)),
        ("work directory", plain(str(held.get("workdir") or "")) or None),
        ("command", plain(str(held.get("command") or "")) or None),
        ("progress", f"step {job.step}{f' of {job.total}' if job.total else ''}" if job.step is not None else None),
        ("metrics", _metrics(job)),
    ]
    lines += [f"  {name:<15}{value}" for name, value in facts if value]
    flags = json.loads(job.flags) if job.flags else []
    if flags:
        lines += ["", "flags"]
        for flag in flags:
            since = moment(datetime.fromisoformat(flag["since"]))
            lines.append(f"  {flag['severity']:<6}{flag['rule']} since {since}: {plain(flag['text'])}")
            lines += [f"        {_quote(quote)}" for quote in flag.get("quotes", ())]
    if attempts:
        lines += ["", "attempts"]
        lines += [f"  {_attempt(each)}" for each in attempts]
    for each in diagnoses[-1:]:
        lines += ["", "diagnosis", *(f"  {line}" for line in diagnosis_lines(each))]
    if verdicts:
        lines += ["", "verdicts", *(f"  {line}" for each in verdicts for line in each)]
    if holds:
        lines += ["", *_held(holds)]
    lines += ["", "life"]
    lines += [f"  {_step(step)}" for step in steps]
    return "\n".join(lines) + "\n"


def counts(seen: Mapping[str, Any]) -> dict[str, dict[str, int | None] | None]:
    """What an observation counts, of a stored one's text: restarts and preemptions burned and allowed, tasks by state; None
    where the scheduler does not say."""

    def of(name: str, keys: Mapping[str, int | None]) -> dict[str, int | None] | None:
        told = seen.get(name)
        return None if told is None else {key: told.get(key, absent) for key, absent in keys.items()}

    budget = {"burned": 0, "allowed": None}
    return {
        "restarts": of("burn", budget),
        "preemptions": of("preemptions", budget),
        "tasks": of("tasks", {"total": 0, "running": 0, "pending": 0, "ended": 0}),
    }


def _held(holds: Sequence[Any]) -> list[str]:
    return [f"under hold {each.id}: {plain(each.reason)}" for each in holds]


def reasons(
    job: Any,
    steps: Sequence[Any],
    diagnoses: Sequence[Mapping[str, Any]],
    holds: Sequence[Any],
    now: datetime,
    verdicts: Sequence[Sequence[str]] = (),
) -> str:
    """Why it is held where it is: the step that brought it there with its evidence, what was ruled out, what would flip it."""
    lines = [
        f"{plain(job.name)}  {job.cluster}/{plain(job.id)}: {job.phase}{f' ({job.outcome})' if job.outcome else ''}",
        "",
    ]
    for step in steps[-3:]:
        lines.append(_step(step))
        for evidence in json.loads(step.body).get("read", {}).get("evidence", ()):
            lines.append(f"    {plain(str(evidence.get('source')))}: {plain(str(evidence.get('text')))}")
            lines += [f"      {_quote(quote)}" for quote in evidence.get("quotes") or ()]
    lines.append("")
    if job.closed_at is None:
        lines.append(f"now: the scheduler says {plain(job.scheduler_state)}; log: {_log(job, now) or 'none known'}")
    flags = json.loads(job.flags) if job.flags else []
    lines += [f"flagged: {flag['rule']} {plain(flag['text'])}" for flag in flags]
    for each in diagnoses[-1:]:
        lines += ["", *diagnosis_lines(each)]
        for out in each.get("ruled_out", ())[:6]:
            lines.append(f"  ruled out: {plain(str(out.get('category')))}: {plain(str(out.get('why')))}")
            lines.append(f"    {_quote(out)}")
        for noise in each.get("noise", ())[:6]:
            lines.append(
                f"  noise: {noise['count']} × {plain(str(noise['signature']))}: {plain(str(noise.get('why') or ''))}"
            )
    for verdict in verdicts[:1]:
        lines += ["", *verdict]
    lines += ["", f"what would flip it: {FLIPS[job.phase]}", *_held(holds)]
    return "\n".join(lines) + "\n"


def diagnosis_lines(document: Mapping[str, Any]) -> list[str]:
    """A diagnosis in a few lines: category, the exact line, what to do, what is missing."""
    sure = f"{document.get('confidence')} confidence, {document.get('transience')}"
    lines = [f"{document.get('category')} ({sure}): {plain(str(document.get('summary') or ''))}"]
    cause = document.get("cause")
    if isinstance(cause, dict):
        lines.append(f"  {_quote(cause)}")
    if document.get("action"):
        lines.append(f"  to do: {plain(str(document['action']))}")
    lines += [f"  missing: {plain(str(each))}" for each in document.get("missing", ())]
    return lines


def _quote(quote: Mapping[str, Any]) -> str:
    at = f":{quote['line']}" if quote.get("line") else ""
    return f"{plain(str(quote.get('file')))}{at}: {plain(scrubbed(str(quote.get('text'))))[:400]}"


def _step(step: Any) -> str:
    outcome = f" ({step.outcome})" if step.outcome else ""
    return f"{moment(step.at)}  {step.before} → {step.after}{outcome}  {step.sign}: {plain(step.reason)}"


def _elapsed(job: Any, now: datetime) -> str | None:
    if not job.started_at:
        return None
    return span(elapsed_s(job, now)) + (f" of {span(job.time_limit_s)}" if job.time_limit_s else "")


def _attempt(each: Any) -> str:
    how = f", exit {each.exit_code}" if each.exit_code is not None else ""
    how += f", signal {each.signal}" if each.signal else ""
    until = f" to {moment(each.ended_at)}" if each.ended_at else ""
    began = f"from {moment(each.started_at)}" if each.started_at else "not started"
    return f"{each.number}  {each.state}{how}  {began}{until}"


def _burned(budget: Mapping[str, int | None] | None) -> str | None:
    """Nothing of a budget that was never touched and has no bound."""
    if budget is None or (not budget["burned"] and not budget["allowed"]):
        return None
    return f"{budget['burned']}" + (f" of {budget['allowed']} allowed" if budget["allowed"] is not None else "")


def _tasks(tasks: Mapping[str, int | None] | None) -> str | None:
    if tasks is None or tasks["total"] == 1:
        return None
    states = ", ".join(f"{tasks[word]} {word}" for word in ("running", "pending", "ended") if tasks[word])
    return f"{tasks['total']}" + (f": {states}" if states else "")


def _metrics(job: Any) -> str | None:
    """Newest values under the contract's keys."""
    told = (json.loads(job.metrics) if job.metrics else {}).get("metrics") or {}
    return ", ".join(f"{key} {plain(number(value))}" for key, value in told.items()) or None


def _trials(job: Any) -> str | None:
    """Where its trials lie, and why they were not read at the latest look."""
    run = json.loads(job.metrics) if job.metrics else {}
    if not run.get("trials_at"):
        return None
    why = run.get("trials_unread")
    return plain(run["trials_at"] + (f" (not read: {why})" if why else ""))


UNREAD = {
    "malformed": "metric lines that broke off or are no JSON",
    "oversized": "lines above 256 KiB",
    "undecodable": "lines that are no text",
    "not_numbers": "values of metrics that are no numbers",
    "gaps": "pieces never read",
    "unclosed": "printed blocks without an end",
}


def _not_understood(job: Any) -> str | None:
    """What its log bore and could not be read."""
    told = (json.loads(job.metrics) if job.metrics else {}).get("not_understood") or {}
    return ", ".join(f"{count} {UNREAD.get(kind, kind)}" for kind, count in told.items()) or None


def _log(job: Any, now: datetime) -> str | None:
    if job.log_path is None:
        return None
    age = (
        f"last output {span((now - job.last_output_at).total_seconds())} ago"
        if job.last_output_at
        else "no output seen"
    )
    state = (
        "" if job.log_state == "read" else f"; {job.log_state}{f': {plain(job.log_reason)}' if job.log_reason else ''}"
    )
    return f"{plain(job.log_path)} ({age}{state})"


def _word(reason: str | None) -> str | None:
    return None if reason in (None, "None") else reason
