"""Kills that wait for a person: the quotes first, then why, then how to answer. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from supervisor.reports.status import iso
from supervisor.reports.text import plain, span


def shown(proposal: Any, verdict: Any, holds: Any, mode: str, now: datetime) -> list[str]:
    """One proposal with its verdict; ``holds`` that stand on its job."""
    ref = str(proposal.job.ref)
    left = (proposal.expires_at - now).total_seconds()
    state = f"lapses in {span(left)}" if proposal.state == "open" else str(proposal.state)
    lines = [
        f"proposal {proposal.id}: kill {plain(ref)} {plain(proposal.name)} ({proposal.bucket}, attempt {proposal.attempt}); {state}"
    ]
    for gate in verdict.gates:
        lines += [
            f"    {plain(quote.file)}:{quote.line}: {plain(quote.text)}"
            for quote in gate.quotes
            if gate.result in ("fail", "error")
        ]
    lines += [f"    {plain(quote.file)}:{quote.line}: {plain(quote.text)}" for quote in verdict.restarts.quotes]
    lines.append(
        f"  verdict {proposal.verdict}, {verdict.confidence} confidence, {plain(verdict.cause)}: {plain(verdict.reasoning)}"
    )
    lines += [f"  next: {plain(step)}" for step in verdict.next_steps[:2]]
    lines.append(f"  would flip it: {plain(verdict.flip_signal)}")
    lines.append(f"  evidence: {plain(verdict.evidence)}")
    lines += [f"  under hold {each.id} ({plain(each.reason)}): nothing is carried out" for each in holds]
    if proposal.state == "open":
        lines.append(f"  answer: supervisorctl approve {proposal.id}   or: supervisorctl deny {proposal.id} --reason R")
        if mode == "record":
            lines.append('  mode = "record": an approval is checked and written down, and no cancel is sent')
    elif proposal.why:
        lines.append(f"  {proposal.state} by {plain(proposal.settled_by or '')}: {plain(proposal.why)}")
    return lines


def decided(decision: Any, full: str | None = None) -> str:
    """What became of an approval, in one line. ``full``: the cap that lets no further kill begin now."""
    waits = f"; it waits, for {full}" if full else ""
    until = f", valid until {iso(decision.expires_at)}{waits}" if decision.stage == "approved" else ""
    why = f": {plain(decision.why)}" if decision.why else ""
    why += "; a person must look, nothing is sent again" if decision.stage == "unconfirmed" else ""
    return f"  approval {decision.id} by {plain(decision.approved_by)} ({plain(decision.reason)}): {decision.stage}{until}{why}"


def document(proposal: Any, verdict: Any, decision: Any) -> dict[str, Any]:
    """One proposal of ``proposals --json``."""
    return {
        "id": proposal.id,
        "kind": "kill",
        "job": str(proposal.job.ref),
        "name": proposal.name,
        "bucket": proposal.bucket,
        "attempt": proposal.attempt,
        "verdict": proposal.verdict,
        "digest": proposal.digest,
        "cause": proposal.cause,
        "confidence": proposal.confidence,
        "state": str(proposal.state),
        "made_at": iso(proposal.made_at),
        "expires_at": iso(proposal.expires_at),
        "settled_at": iso(proposal.settled_at),
        "settled_by": proposal.settled_by,
        "why": proposal.why,
        "quotes": [
            {"gate": gate.gate, "file": quote.file, "line": quote.line, "text": quote.text}
            for gate in verdict.gates
            if gate.result in ("fail", "error")
            for quote in gate.quotes
        ],
        "reasoning": verdict.reasoning,
        "next_steps": list(verdict.next_steps),
        "flip_signal": verdict.flip_signal,
        "evidence": verdict.evidence,
        "approval": None
        if decision is None
        else {
            "id": decision.id,
            "by": decision.approved_by,
            "role": decision.role,
            "reason": decision.reason,
            "approved_at": iso(decision.approved_at),
            "expires_at": iso(decision.expires_at),
            "mode": decision.mode,
            "stage": str(decision.stage),
            "sent_at": iso(decision.sent_at),
            "accepted": decision.accepted,
            "output": decision.output,
            "finished_at": iso(decision.finished_at),
            "why": decision.why,
        },
    }
