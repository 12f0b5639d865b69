"""What ran out of memory: of a device by the log's own cause, of the host by the kernel's count (PROBE-9)."""

from __future__ import annotations

from dataclasses import replace

from supervisor.gates import devices, said
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, GateScore, Score

FIXES = {
    "host-oom": "see which process was killed, then give more memory or start fewer workers; it may have been a bystander",
    "gpu-oom": "shrink the batch, the length or the memory share; unchanged it fails again",
}


def found(case: Case) -> tuple[str, tuple[Quote, ...], str]:
    """What ran out of memory in this attempt: the kernel's count, and what the log says below its newest progress."""
    kills = [group for group in devices.memory(case) if group.oom_kills and group.kills_quote is not None]
    if kills:
        count = sum(group.oom_kills or 0 for group in kills)
        quotes = tuple(group.kills_quote for group in kills[:2] if group.kills_quote is not None)
        return f"The kernel killed {count} of its processes for memory of the host.", quotes, "host-oom"
    for file, cause in case.causes.items():
        if cause.category not in ("gpu-oom", "host-oom") or not cause.quotes:
            continue
        run = case.runs.get(file)
        newest = run.last_progress.said.line if run is not None and run.last_progress is not None else None
        if newest is None or (cause.quotes[0].line or 0) > newest:
            kind = "of a device" if cause.category == "gpu-oom" else "of the host"
            return f"Memory {kind} ran out, and no progress came after it.", cause.quotes[:1], cause.category
    return "", (), ""


def added(case: Case, score: GateScore) -> GateScore:
    """A lack of memory is a failure of its own, and no death by itself: what was killed may be a bystander."""
    words, quotes, cause = found(case)
    if not words:
        return score
    whole = said.distinct((*quotes, *score.quotes), most=12)
    if score.result is Score.ERROR or score.hard:
        return replace(score, reason=f"{score.reason} {words}", quotes=whole)
    return replace(
        score,
        result=Score.FAIL,
        reason=f"{words} {score.reason}",
        quotes=whole,
        cause=cause,
        fix=FIXES[cause],
        confidence="medium",
    )
