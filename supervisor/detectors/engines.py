"""Was there an engine behind the traces? (DATAGEN-2)"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from supervisor.detectors import quoting
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Severity

NEVER = "never consolidate"


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """Turns near 1 over enough trials; or requests that only fail. A share of agent timeouts is normal on hard sets."""
    run = facts.followed
    if facts.held.bucket != "datagen" or run is None:
        return
    health, summary = facts.limits.health, run.summary
    turns = summary.latest.get("avg_turns")
    trials = summary.trials.done or summary.progress.step or 0
    if turns is not None and turns.value <= health.dead_engine_turns and trials >= health.dead_engine_trials:
        text = f"avg_turns is near 1 (at most {health.dead_engine_turns:g}): agents had no engine to talk to; {NEVER}"
        quotes = quoting.value(run, "avg_turns", turns)
        if quotes:
            yield Finding("DATAGEN-2", Severity.FAULT, text, quotes, key="DATAGEN-2/turns")
            return
    engine = summary.engine
    failed = quoting.spoken(run, engine.last_failed)
    if engine.failed >= health.trials_to_judge and not engine.answered and failed:
        text = f"the engine has answered no request, and failed {health.trials_to_judge} or more; {NEVER}"
        yield Finding("DATAGEN-2", Severity.FAULT, text, failed, key="DATAGEN-2/failed")
        return
    broken = summary.trials.counted("api")
    done = summary.trials.done or 0
    if done >= health.trials_to_judge and broken >= 0.95 * done and summary.trials.exact:
        worst = summary.trials.worst("api")
        quotes = quoting.spoken(run, summary.trials.said.get(worst))
        if quotes:
            text = f"nearly every trial failed to reach the model ({worst}): a dead engine; {NEVER}"
            yield Finding("DATAGEN-2", Severity.FAULT, text, quotes, key="DATAGEN-2/trials")
