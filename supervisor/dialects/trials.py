"""Harbor's ``result.json`` of a trial and of a job, any version: what counts as a valid outcome follows Harbor's own policy.

A trial's ``config`` may hold keys and addresses: nothing of it is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from supervisor.dialects.malformed import Malformed
from supervisor.dialects.vocabulary import outcome_of
from supervisor.model.readings import Trial, TrialFigures, TrialJob

MOST = 2**53
"""Larger whole numbers are no counts, and no store keeps them exactly."""
LONGEST_NAME = 80
"""Characters of an exception's class name that are kept."""
LARGEST = 64 << 20
"""Bytes of a results file that are taken in; rollout details can make them huge."""


def read_trial(data: bytes, name: str = "") -> Trial:
    """A trial from its ``result.json``; ``name`` (its folder) stands in where the file does not say. Malformed if it is none."""
    document = _object(data)
    if "trial_name" not in document and "task_name" not in document:
        raise Malformed("this is no trial's result: it names neither trial nor task")
    steps = [step for step in _sequence(document.get("step_results")) if isinstance(step, Mapping)]
    infos = [document.get("exception_info"), *(step.get("exception_info") for step in steps)]
    exceptions, valid, groups = _exceptions(info for info in infos if isinstance(info, Mapping))
    reward = _reward(document.get("verifier_result"))
    if reward is None:
        reward = next(
            (got for step in reversed(steps) if (got := _reward(step.get("verifier_result"))) is not None), None
        )
    contexts = [_mapping(document.get("agent_result")), *(_mapping(step.get("agent_result")) for step in steps)]
    started, finished = _time(document.get("started_at")), _time(document.get("finished_at"))
    verifier = _mapping(document.get("verifier"))
    stated = document.get("reward_valid")
    return Trial(
        name=str(document.get("trial_name") or name),
        task=str(document.get("task_name") or ""),
        agent=str(_mapping(document.get("agent_info")).get("name") or ""),
        reward=reward,
        valid=stated if isinstance(stated, bool) else reward is not None and valid,
        exceptions=exceptions,
        groups=groups,
        turns=_sum(_mapping(context.get("metadata")).get("n_episodes") for context in contexts),
        input_tokens=_sum(context.get("n_input_tokens") for context in contexts),
        output_tokens=_sum(context.get("n_output_tokens") for context in contexts),
        started_at=started,
        finished_at=finished,
        took_s=_between(document.get("started_at"), document.get("finished_at")),
        environment_setup_s=_span(document.get("environment_setup")),
        agent_setup_s=_span(document.get("agent_setup")),
        agent_s=_span(document.get("agent_execution")),
        llm_s=_milliseconds(contexts, "api_request_times_msec"),
        tools_s=_milliseconds(contexts, "terminal_interaction_times_msec"),
        verifier_s=_span(document.get("verifier")),
        teardown_s=_teardown(document),
        verifier_late_s=_between(document.get("finished_at"), verifier.get("finished_at")),
    )


def read_job(data: bytes, utc_offset: timedelta | None = None) -> TrialJob:
    """A job from its ``result.json``, older spellings included. Malformed if it is none.

    Harbor writes a job's own times without a zone, by the clock of the machine that runs it: they are None unless
    ``utc_offset`` says by how much that clock is ahead of UTC (POLL-10).
    """
    document = _object(data)
    stats = _mapping(document.get("stats")) or _mapping(document.get("status"))
    if not stats and "n_total_trials" not in document:
        raise Malformed("this is no job's result: it has neither stats nor a number of trials")
    exceptions: dict[str, int] = {}
    weighted, scored = 0.0, 0
    passed, rewarded = 0, 0
    for entry in _mapping(stats.get("evals")).values():
        evals = _mapping(entry)
        for kind, names in _mapping(evals.get("exception_stats")).items():
            name = _class_name(kind)
            exceptions[name] = exceptions.get(name, 0) + len(_sequence(names))
        above, told = _rewarded(evals.get("reward_stats"))
        passed, rewarded = passed + above, rewarded + told
        trials = _count(evals.get("n_trials")) or 0
        mean = next(
            (
                got
                for metric in _sequence(evals.get("metrics"))
                if (got := _number(_mapping(metric).get("mean"))) is not None
            ),
            None,
        )
        if mean is not None and trials:
            weighted, scored = weighted + mean * trials, scored + trials
    return TrialJob(
        planned=_count(document.get("n_total_trials", stats.get("n_total_trials"))),
        completed=_first(stats, "n_completed_trials", "n_trials"),
        errored=_first(stats, "n_errored_trials", "n_errors"),
        running=_first(stats, "n_running_trials"),
        pending=_first(stats, "n_pending_trials"),
        cancelled=_first(stats, "n_cancelled_trials"),
        retries=_first(stats, "n_retries"),
        mean=weighted / scored if scored else None,
        scored=scored or None,
        passed=passed if rewarded else None,
        rewarded=rewarded or None,
        exceptions=exceptions,
        started_at=_time(document.get("started_at"), utc_offset),
        updated_at=_time(document.get("updated_at"), utc_offset),
        finished_at=_time(document.get("finished_at"), utc_offset),
    )


def tally(trials: Iterable[Trial], planned: int | None = None) -> TrialFigures:
    """Figures over trials, one per trial's name: of two results for one name the later one in the sequence counts (a retry).

    ``mean`` and ``scored`` are over valid outcomes, as Harbor counts them; ``exceptions`` over all.
    """
    latest = {trial.name: trial for trial in trials}
    exceptions: dict[str, int] = {}
    for trial in latest.values():
        if trial.exceptions:
            exceptions[trial.exceptions[0]] = exceptions.get(trial.exceptions[0], 0) + 1
    rewards = [trial.reward for trial in latest.values() if trial.valid and trial.reward is not None]
    return TrialFigures(
        done=len(latest),
        planned=planned,
        mean=sum(rewards) / len(rewards) if rewards else None,
        passed=sum(reward > 0 for reward in rewards),
        scored=len(rewards),
        exceptions=exceptions,
    )


def average_turns(trials: Iterable[Trial]) -> float | None:
    """Mean turns of trials that say how many they took; about 1.0 is a dead engine (DATAGEN-2)."""
    turns = [trial.turns for trial in trials if trial.turns is not None]
    return sum(turns) / len(turns) if turns else None


def _exceptions(infos: Iterable[Mapping[str, object]]) -> tuple[tuple[str, ...], bool, tuple[str, ...]]:
    """Class names, whether a reward beside them counts, and their groups. A policy stated in the file overrules ours."""
    names: list[str] = []
    groups: list[str] = []
    valid = True
    for info in infos:
        kind = _class_name(info.get("exception_type"))
        outcome = outcome_of(kind)
        stated = _mapping(info.get("policy")).get("has_valid_reward")
        valid = valid and (stated if isinstance(stated, bool) else outcome.valid)
        names.append(kind)
        groups.append(outcome.group)
    return tuple(names), valid, tuple(groups)


def _class_name(value: object) -> str:
    """A word that can stand in a table and a terminal: a class name holds nothing else."""
    return re.sub(r"[^\w.:-]+", "?", str(value or "unnamed"))[:LONGEST_NAME]


def _reward(result: object) -> float | None:
    rewards = _mapping(_mapping(result).get("rewards"))
    main = _number(rewards.get("reward"))
    return (
        main
        if main is not None
        else next((got for value in rewards.values() if (got := _number(value)) is not None), None)
    )


def _rewarded(stats: object) -> tuple[int, int]:
    """(above 0, all) of the trials that a job's ``reward_stats`` lists under its main reward: value to names of trials."""
    rewards = _mapping(stats)
    main = _mapping(rewards.get("reward") or next(iter(rewards.values()), None))
    above = told = 0
    for value, names in main.items():
        try:
            reward = float(value)
        except ValueError:
            continue
        count = len(_sequence(names))
        above, told = above + (count if reward > 0 else 0), told + count
    return above, told


def _object(data: bytes) -> Mapping[str, object]:
    if len(data) > LARGEST:
        raise Malformed(f"a results file of {len(data)} bytes is above the bound of {LARGEST}")
    try:
        document = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise Malformed("the results file is no whole JSON") from error
    if not isinstance(document, dict):
        raise Malformed("the results file holds no object")
    return document


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _sequence(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if isinstance(value, float) or abs(value) < MOST else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST else None


def _first(stats: Mapping[str, object], *names: str) -> int | None:
    return next((got for name in names if (got := _count(stats.get(name))) is not None), None)


def _sum(values: Iterable[object]) -> int | None:
    counts = [count for value in values if (count := _count(value)) is not None]
    return sum(counts) if counts else None


def _parsed(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None


def _time(value: object, utc_offset: timedelta | None = None) -> datetime | None:
    """An aware time in UTC; None for a naive one whose clock is not known."""
    parsed = _parsed(value)
    if parsed is None:
        return None
    if parsed.tzinfo is None:
        return None if utc_offset is None else (parsed - utc_offset).replace(tzinfo=UTC)
    return parsed.astimezone(UTC)


def _between(start: object, end: object) -> float | None:
    """Seconds from one printed time to another; None where one is missing or their zones can't be compared."""
    first, second = _parsed(start), _parsed(end)
    if first is None or second is None or (first.tzinfo is None) != (second.tzinfo is None):
        return None
    return (second - first).total_seconds()


def _milliseconds(contexts: Iterable[Mapping[str, object]], name: str) -> float | None:
    """Seconds that an agent's own list of times adds up to, over all steps; None where no step has one."""
    lists = [_sequence(_mapping(context.get("metadata")).get(name)) for context in contexts]
    times = [time for each in lists for value in each if (time := _number(value)) is not None and 0 <= time < 1e12]
    return sum(times) / 1000 if times else None


def _teardown(document: Mapping[str, object]) -> float | None:
    """None where a phase began and did not end: then what came after the others was that phase, not a teardown."""
    phases = [
        _mapping(document.get(name)) for name in ("environment_setup", "agent_setup", "agent_execution", "verifier")
    ]
    begun = [phase for phase in phases if phase.get("started_at") is not None]
    gaps = [_between(phase.get("finished_at"), document.get("finished_at")) for phase in begun]
    told = [gap for gap in gaps if gap is not None]
    return max(0.0, min(told)) if told and len(told) == len(gaps) else None


def _span(timing: object) -> float | None:
    return _between(_mapping(timing).get("started_at"), _mapping(timing).get("finished_at"))
