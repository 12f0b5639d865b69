"""A log's text, followed and summed up as the daemon does it, laid before the eyes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from supervisor.app.settings import Settings, rulebook
from supervisor.detectors import examine
from supervisor.dialects import excerpt, follow, next_attempt, summarise
from supervisor.model.facts import Facts, Followed
from supervisor.model.findings import Finding
from supervisor.model.lifecycle import Lifecycle, Phase
from supervisor.rules.output import heard, run_facts
from tests.some import HOUR, NOON, some_facts, some_held, some_log, some_observation

BOOK = rulebook(Settings())
FILE = "/home/alice/42.out"


def facts_of(
    *logs: str,
    bucket: str = "rl",
    name: str = "rl__gsm8k_a",
    phase: Phase = Phase.RUNNING,
    seen_at: datetime = NOON - timedelta(minutes=1),
    **changes: object,
) -> Facts:
    """The job's facts after its log was read. Several logs: the files of one chain of attempts, oldest first."""
    state: object = None
    for number, log in enumerate(logs):
        state, _ = follow(next_attempt(state) if number else None, log.encode(), 0, seen_at=seen_at)  # type: ignore[arg-type]
    summary = summarise(state, bucket)  # type: ignore[arg-type]
    limits = BOOK.limits_of(bucket)
    log_facts = heard(some_log(), summary, None, limits.cadence_points)
    held = some_held(bucket=bucket, life=Lifecycle(phase=phase, since=NOON - HOUR), run=run_facts(summary))
    values = {
        "held": held,
        "limits": limits,
        "observation": some_observation(name=name),
        "log": log_facts,
        "run": run_facts(summary),
        "followed": Followed(FILE, summary, excerpt),
    }
    return replace(some_facts(), **(values | changes))  # type: ignore[arg-type]


def found_in(*logs: str, now: datetime = NOON, **changes: object) -> list[Finding]:
    """Findings, after holding each quote of the log against its text (PROBE-4)."""
    findings = list(examine(facts_of(*logs, **changes), now))  # type: ignore[arg-type]
    for finding in findings:
        for quote in finding.quotes:
            if quote.file == FILE:
                assert quote.text, finding
                assert_stands(logs[-1], quote.line, quote.text)
    return findings


def assert_stands(log: str, line: int | None, text: str) -> None:
    """The quoted text stands in the log, in the line that the quote names."""
    assert text in log, text
    if line is not None:
        lines: Sequence[str] = log.split("\n")
        assert text in lines[line - 1], (line, text)


def rules_in(*logs: str, **changes: object) -> set[tuple[str, str]]:
    return {(finding.rule, finding.severity.value) for finding in found_in(*logs, **changes)}  # type: ignore[arg-type]
