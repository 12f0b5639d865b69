"""The dated record of an end or a hang."""

from __future__ import annotations

from dataclasses import replace

from supervisor.model.findings import Quote
from supervisor.model.lifecycle import Evidence, Lifecycle, Phase, Sign, SignRead, Transition
from supervisor.reports.ending import ending_record
from tests.some import HOUR, NOON, some_held

SILENT_LOGS = {
    "category": "none",
    "confidence": "low",
    "transience": "unknown",
    "summary": "nothing says why",
    "cause": None,
}


def test_a_wedge_tells_what_found_it_and_not_that_its_logs_name_nothing() -> None:
    """SAY-3, LIVE-5"""
    held = some_held(phase=Phase.WEDGED, life=Lifecycle(phase=Phase.WEDGED, since=NOON))
    quote = Quote("stack-n1.txt", 10, "#0 nccl_wait")
    read = SignRead(Sign.HUNG, "verdict 6: 79 s without progress", (Evidence("probe", "PROBE-9", (quote,)),))
    before = replace(held.life, phase=Phase.SUSPECT, since=NOON - HOUR)
    step = Transition(job=held.key, before=before, after=held.life, read=read, at=NOON)

    told = ending_record(held, [step], SILENT_LOGS, {}, {}, NOON)

    assert (
        "## Why it is held to hang\n\nverdict 6: 79 s without progress\n\n    stack-n1.txt:10: #0 nccl_wait\n" in told
    )
    assert "**none**" not in told
    assert f"`supervisorctl why {held.ref}`" in told


def test_an_end_tells_its_cause() -> None:
    """SAY-3"""
    held = some_held(phase=Phase.TERMINAL, life=Lifecycle(phase=Phase.TERMINAL, since=NOON))

    told = ending_record(held, [], SILENT_LOGS, {}, {}, NOON)

    assert "## Cause\n\n**none** (low confidence, unknown): nothing says why" in told
