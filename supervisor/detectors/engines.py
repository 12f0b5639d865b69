"""Was there an engine behind the traces? (DATAGEN-2)"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from statistics import mean

from supervisor.detectors import quoting, trials
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Quote, Severity

NEVER = "never consolidate"


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """Turns near 1 over enough trials; or requests that only fail. A share of agent timeouts is normal on hard sets."""
    if facts.held.bucket != "datagen":
        return
    run, health = facts.followed, facts.limits.health
    quotes = _near_one(facts)
    if quotes:
        text = f"avg_turns is near 1 (at most {health.dead_engine_turns:g}): agents had no engine to talk to; {NEVER}"
        yield Finding("DATAGEN-2", Severity.FAULT, text, quotes, key="DATAGEN-2/turns")
        return
    engine = run.summary.engine if run is not None else None
    failed = quoting.spoken(run, engine.last_failed) if run is not None and engine is not None else ()
    if engine is not None and engine.failed >= health.trials_to_judge and not engine.answered and failed:
        text = f"the engine has answered no request, and failed {health.trials_to_judge} or more; {NEVER}"
        yield Finding("DATAGEN-2", Severity.FAULT, text, failed, key="DATAGEN-2/failed")
        return
    told = trials.tallied(facts)
    done = told.figures.done or 0 if told is not None else 0
    if told is not None and told.figures.exact and done >= health.trials_to_judge:
        worst, quotes = told.worst("api")
        if told.figures.counted("api") >= 0.95 * done and quotes:
            text = f"nearly every trial failed to reach the model ({worst}): a dead engine; {NEVER}"
            yield Finding("DATAGEN-2", Severity.FAULT, text, quotes, key="DATAGEN-2/trials")


def _near_one(facts: Facts) -> tuple[Quote, ...]:
    """Of the run as its log sums it up, or of its trials as they lie there: all that were counted, or the newest."""
    run, health = facts.followed, facts.limits.health
    turns = run.summary.latest.get("avg_turns") if run is not None else None
    if run is not None and turns is not None and turns.value <= health.dead_engine_turns:
        done = run.summary.trials.done or run.summary.progress.step or 0
        if done >= health.dead_engine_trials and (quotes := quoting.value(run, "avg_turns", turns)):
            return quotes
    counts = trials.counts(facts)
    if counts is None:
        return ()
    newest = [each.turns for each in trials.newest(facts) if each.turns is not None]
    for average, of in ((counts.avg_turns, counts.turns_of), (mean(newest) if newest else None, len(newest))):
        if average is not None and average <= health.dead_engine_turns and of >= health.dead_engine_trials:
            return quoting.counted(facts, "turns")
    return ()
