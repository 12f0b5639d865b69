"""Does it train on anything? All-failed rollout batches come back as zeros, and steps go on (RL-14)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from supervisor.detectors import quoting
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Severity


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    run = facts.followed
    if facts.held.bucket != "rl" or run is None:
        return
    summary, least = run.summary, facts.limits.health.trend_points
    said = quoting.place(run, summary.last_all_failed)
    # Groups dropped as stale are waited for anew; only a batch of failures is trained on.
    if summary.all_failed_batches and said and "fail" in said[0].text.lower():
        lately = quoting.recent(summary, summary.last_all_failed, least)
        text = "a rollout batch failed whole and came back as zeros: the step trained on nothing"
        yield Finding("RL-14", Severity.WATCH if lately else Severity.NOTE, text, said, key="RL-14/failed")
    newest = summary.series.get("advantage_abs", ())[-least:]
    if len(newest) == least and all(point.value == 0 for point in newest):
        text = f"advantages are 0 in the last {least} steps: nothing is learnt"
        quotes = quoting.value(run, "advantage_abs", *reversed(newest))
        if quotes:
            yield Finding("RL-14", Severity.WATCH, text, quotes, key="RL-14/advantage")
