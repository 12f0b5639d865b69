"""The dated record of one job's end or suspicion: fact first, short, each claim with its quote (SAY-3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from supervisor.model.facts import Held
from supervisor.model.lifecycle import Phase, Transition
from supervisor.model.secrets import scrubbed
from supervisor.reports.text import moment, plain

LAST_LINES = 20
_WIDE = 400


def ending_record(
    held: Held,
    steps: Sequence[Transition],
    diagnosis: Mapping[str, Any],
    tails: Mapping[str, bytes],
    unread: Mapping[str, str],
    now: datetime,
) -> str:
    """Markdown. ``diagnosis``: the contract's document; ``tails``: last bytes of each log; ``unread``: why others are not."""
    seen, life = held.observation, held.life
    how = life.outcome.value.replace("_", " ") if life.outcome else life.phase.value.replace("_", " ")
    lines = [f"# {plain(str(held.ref))} {plain(seen.name)}: {how}", ""]
    facts = [
        ("recorded", moment(now)),
        ("scheduler says", plain(" ".join(filter(None, (seen.scheduler_state, _not_none(seen.reason)))))),
        ("exit code", None if seen.exit_code is None else str(seen.exit_code)),
        ("signal", str(seen.signal) if seen.signal else None),
        ("attempt", str(life.attempt)),
        ("submitted", moment(seen.submitted_at) if seen.submitted_at else None),
        ("started", moment(seen.started_at) if seen.started_at else None),
        ("ended", moment(seen.ended_at) if seen.ended_at else None),
        (
            "nodes",
            plain(", ".join(seen.nodes[:8]) + (f" and {len(seen.nodes) - 8} more" if len(seen.nodes) > 8 else "")),
        ),
        ("successor", plain(held.successor) if held.successor else None),
        ("last output", moment(held.log.last_output_at) if held.log.last_output_at else None),
    ]
    lines += [f"- {name}: {value}" for name, value in facts if value]
    hang = next((step for step in reversed(steps) if step.after.phase is Phase.WEDGED), None)
    if life.phase is Phase.WEDGED and hang is not None:
        lines += ["", "## Why it is held to hang", "", *_hang(hang, plain(str(held.ref)))]
        if isinstance(diagnosis.get("cause"), dict):
            lines += ["", "## What its logs name", "", *_cause(diagnosis)]
    else:
        lines += ["", "## Cause", "", *_cause(diagnosis)]
    lines += ["", "## Last lines", ""]
    for path, tail in tails.items():
        lines += [f"`{_tick_free(path)}`", "", *_quoted(tail), ""]
    for path, reason in unread.items():
        lines += [f"⚠ not read: `{_tick_free(path)}`: {plain(reason)}", ""]
    if not tails and not unread:
        lines += ["⚠ no log of it is known", ""]
    lines += ["## How it came here", ""]
    lines += [
        f"- {moment(step.at)} {step.before.phase.value} → {step.after.phase.value}"
        f"{f' ({step.after.outcome.value})' if step.after.outcome else ''}: {plain(step.read.reason)}"
        for step in steps
    ]
    return "\n".join(lines) + "\n"


def _hang(step: Transition, ref: str) -> list[str]:
    """What found it to hang, with its quotes: logs alone seldom name the cause of a silence."""
    quotes = [quote for each in step.read.evidence for quote in each.quotes]
    shown = [f"    {plain(quote.file)}:{quote.line}: {plain(scrubbed(quote.text))[:_WIDE]}" for quote in quotes]
    todo = (
        f"What to do: `supervisorctl why {ref}` shows the verdict whole, `supervisorctl proposals` what waits for you."
    )
    return [plain(step.read.reason), *(["", *shown] if shown else []), "", todo]


def _cause(diagnosis: Mapping[str, Any]) -> list[str]:
    category, cause = diagnosis.get("category"), diagnosis.get("cause")
    sure = f"{diagnosis.get('confidence')} confidence, {diagnosis.get('transience')}"
    words = [f"**{category}** ({sure}): {plain(str(diagnosis.get('summary') or ''))}"]
    if isinstance(cause, dict):
        at = cause.get("line")
        words += [
            "",
            f"`{_tick_free(str(cause.get('file')))}`{f', line {at}' if at else ''}:",
            "",
            *_quoted(str(cause.get("text", "")).encode("utf-8", "surrogateescape")),
        ]
    elif category in ("none", "unread"):
        words += ["", "⚠ no line in the logs names a cause."]
    if diagnosis.get("action"):
        words += ["", f"What to do: {plain(str(diagnosis['action']))}"]
    return words


def _quoted(text: bytes) -> list[str]:
    """The last lines as an indented block: nothing in them can end it or be taken for Markdown."""
    shown = text.decode("utf-8", "backslashreplace").splitlines()[-LAST_LINES:]
    return [f"    {plain(scrubbed(line))[:_WIDE]}" for line in shown] or ["    (empty)"]


def _not_none(reason: str | None) -> str | None:
    return None if reason in (None, "None") else reason


def _tick_free(text: str) -> str:
    return plain(text).replace("`", "'")
