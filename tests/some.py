"""Some values to start from: a test writes out only what matters to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from supervisor.app.settings import Settings, rulebook
from supervisor.model.facts import Facts, Held, LogFacts, Seen
from supervisor.model.job import JobKey, JobState, Observation
from supervisor.model.lifecycle import Lifecycle, Phase
from supervisor.model.logs import LogStat, LogState
from supervisor.model.polling import Polled
from supervisor.model.rulebook import Limits, Rulebook

NOON = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

LIMITS = Limits(
    silence_floor=timedelta(seconds=900),
    silence_multiple=5,
    bring_up_limit=HOUR,
    pending_notice=30 * MINUTE,
    absences_to_call_gone=2,
    suspect_look=timedelta(seconds=150),
    cadence_points=8,
    timeout_slack=2 * MINUTE,
    health=rulebook(Settings()).limits.health,
    gating=rulebook(Settings()).limits.gating,
)
BOOK = Rulebook(limits=LIMITS)


def some_key(job: str = "42", incarnation: str = "1000", cluster: str = "cluster-a") -> JobKey:
    return JobKey(cluster, job, incarnation)


def some_observation(
    job: str = "42", state: JobState = JobState.RUNNING, incarnation: str = "1000", **changes: Any
) -> Observation:
    values: dict[str, Any] = {
        "key": some_key(job, incarnation),
        "name": f"train-{job}",
        "user": "alice",
        "state": state,
        "scheduler_state": state.value.upper(),
        "submitted_at": NOON - 2 * HOUR,
        "started_at": None if state is JobState.PENDING else NOON - HOUR,
        "ended_at": NOON if state.ended else None,
    }
    return Observation(**(values | changes))


def some_held(job: str = "42", phase: Phase = Phase.RUNNING, **changes: Any) -> Held:
    values: dict[str, Any] = {
        "key": some_key(job),
        "life": Lifecycle(phase=phase, since=NOON - HOUR),
        "bucket": "other",
        "observation": some_observation(job),
        "row": 1,
        "first_seen_at": NOON - HOUR,
    }
    return Held(**(values | changes))


def some_log(age: timedelta = MINUTE, state: LogState = LogState.READ, **changes: Any) -> LogFacts:
    at = NOON - age
    stat = LogStat("/home/alice/out.log", state, size=100, modified_at=at, inode=7)
    values: dict[str, Any] = {"stat": stat, "last_output_at": at, "progress_at": at}
    return LogFacts(**(values | changes))


def some_facts(**changes: Any) -> Facts:
    values: dict[str, Any] = {
        "held": some_held(),
        "seen": Seen.LISTED,
        "limits": LIMITS,
        "observation": some_observation(),
        "log": some_log(),
    }
    return Facts(**(values | changes))


def some_polled(*listed: Observation, at: datetime = NOON, **changes: Any) -> Polled:
    """A good reading that lists just these; all of them new or changed."""
    values: dict[str, Any] = {
        "cluster": "cluster-a",
        "at": at,
        "lines": {seen.key.id: f"{seen}" for seen in listed},
        "changed": listed,
    }
    return Polled(**(values | changes))
