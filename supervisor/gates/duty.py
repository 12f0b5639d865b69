"""What trials spend their time on, from their own timings: numbers or nothing (PROBE-12).

A sawtooth of running requests is no proof of sandbox churn; these shares are. Durations are seconds, shares from 0 to 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from supervisor.model.readings import Trial
from supervisor.model.rulebook import Gating

SLOT = timedelta(minutes=10)
SLOTS_TO_JUDGE = 3
"""Slots with trials that ended in them, before a rate over time is called a spike or steady."""
SPIKE = 0.8
"""Share of all errors of a kind within one slot, or two neighbours, from which they are a spike."""
STEADY = 0.5
"""Share of the slots in which a kind must appear to be a standing fault."""
MOST_KINDS = 32


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one measure, over the trials that tell it."""

    count: int
    median: float
    p10: float
    p90: float
    most: float


@dataclass(frozen=True, slots=True)
class ErrorsOverTime:
    """One kind of exception, in slots of ten minutes by when its trials ended."""

    name: str
    group: str
    count: int
    slots: int
    """In which it appears."""
    of_slots: int
    """In which any trial ended."""
    pattern: str
    """``spike`` (transient: trials ended without it since), ``recent`` (as concentrated, and not over), ``steady`` (a standing
    fault), ``scattered``; empty on too few slots to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DutyCycle:
    """What the trials spent their time on, and how they failed over time."""

    measured: int
    """Trials that tell how long they took."""
    of: int
    shares: Mapping[str, Spread]
    """Of a trial's whole time: ``agent`` (model and tools together), ``llm``, ``tools``, ``setup``, ``teardown``, ``lifecycle``
    (both), ``verifier``. A share that no trial tells is absent."""
    took_s: Spread | None
    setup_s: Spread | None
    teardown_s: Spread | None
    races: int
    """Trials whose verifier ended after them: a release race, expected to be 0."""
    raced_of: int
    """Trials that tell both times."""
    errors: tuple[ErrorsOverTime, ...] = field(default=())
    """Most frequent first; without the expected ends of an agent (RL-6)."""
    churn: bool | None = None
    """Set-up and teardown take too large a share, or set-up has a long tail; None where no trial tells either."""

    @property
    def spikes(self) -> tuple[ErrorsOverTime, ...]:
        return tuple(each for each in self.errors if each.pattern == "spike")

    @property
    def standing(self) -> tuple[ErrorsOverTime, ...]:
        return tuple(each for each in self.errors if each.pattern == "steady")

    @property
    def facts(self) -> dict[str, float | int | str | None]:
        """The medians and tails, flat, for a gate's facts."""
        told: dict[str, float | int | str | None] = {"duty_trials": self.measured, "release_races": self.races}
        for name, spread in self.shares.items():
            told[f"{name}_share"] = round(spread.median, 4)
            told[f"{name}_share_p10"] = round(spread.p10, 4)
            told[f"{name}_share_p90"] = round(spread.p90, 4)
            told[f"{name}_share_most"] = round(spread.most, 4)
        if self.setup_s is not None:
            told["setup_p90_s"] = round(self.setup_s.p90, 2)
        if self.teardown_s is not None:
            told["teardown_p90_s"] = round(self.teardown_s.p90, 2)
        return told


def measure(trials: Iterable[Trial], limits: Gating) -> DutyCycle | None:
    """None where no trial tells how long it took. Of two results of one name the first counts: they come newest first."""
    named: dict[str, Trial] = {}
    for trial in trials:
        named.setdefault(trial.name, trial)
    known = list(named.values())
    timed = [trial for trial in known if trial.took_s is not None and 0 < trial.took_s < math.inf]
    if not timed:
        return None
    shares = {name: spread for name, part in _PARTS.items() if (spread := _spread(_shares(timed, part))) is not None}
    setup = _spread(_told(timed, lambda trial: trial.environment_setup_s))
    lifecycle = shares.get("lifecycle") or shares.get("setup")
    churn = None
    if lifecycle is not None or setup is not None:
        churn = (lifecycle is not None and lifecycle.median > limits.lifecycle_share_high) or (
            setup is not None and setup.p90 > limits.setup_tail_s
        )
    late = _told(known, lambda trial: trial.verifier_late_s)
    return DutyCycle(
        measured=len(timed),
        of=len(known),
        shares=shares,
        took_s=_spread(_told(timed, lambda trial: trial.took_s)),
        setup_s=setup,
        teardown_s=_spread(_told(timed, lambda trial: trial.teardown_s)),
        races=sum(seconds > 0 for seconds in late),
        raced_of=len(late),
        errors=errors_over_time(known),
        churn=churn,
    )


Part = Callable[[Trial], float | None]


def _lifecycle(trial: Trial) -> float | None:
    """Only of trials that tell both: half of it would pass for the whole."""
    if trial.environment_setup_s is None or trial.teardown_s is None:
        return None
    return trial.environment_setup_s + trial.teardown_s


def _tools(trial: Trial) -> float | None:
    """As the agent tells it; else what its requests leave of its time. Requests at the same time can add up to more."""
    if trial.tools_s is not None:
        return trial.tools_s
    if trial.agent_s is None or trial.llm_s is None or trial.llm_s > trial.agent_s:
        return None
    return trial.agent_s - trial.llm_s


_PARTS: Mapping[str, Part] = {
    "llm": lambda trial: trial.llm_s,
    "tools": _tools,
    "agent": lambda trial: trial.agent_s,
    "setup": lambda trial: trial.environment_setup_s,
    "teardown": lambda trial: trial.teardown_s,
    "lifecycle": _lifecycle,
    "verifier": lambda trial: trial.verifier_s,
}


def _told(trials: Iterable[Trial], part: Part) -> list[float]:
    return [value for trial in trials if (value := part(trial)) is not None and math.isfinite(value)]


def _shares(trials: Iterable[Trial], part: Part) -> list[float]:
    """Clocks that ran backwards, and parts longer than the whole, measure nothing."""
    return [
        value / trial.took_s
        for trial in trials
        if trial.took_s and (value := part(trial)) is not None and 0 <= value <= trial.took_s * 1.001
    ]


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    ordered = sorted(values)
    return Spread(
        count=len(ordered),
        median=_quantile(ordered, 0.5),
        p10=_quantile(ordered, 0.1),
        p90=_quantile(ordered, 0.9),
        most=ordered[-1],
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Linear between the neighbours."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def errors_over_time(trials: Iterable[Trial]) -> tuple[ErrorsOverTime, ...]:
    """Each trial's own exception, by the slot in which it ended; trials of unknown end are left out."""
    slots: set[int] = set()
    kinds: dict[tuple[str, str], Counter[int]] = {}
    for trial in trials:
        if trial.finished_at is None:
            continue
        slot = int(trial.finished_at.timestamp() // SLOT.total_seconds())
        slots.add(slot)
        if trial.exceptions:
            group = trial.groups[0] if trial.groups else "unknown"
            if group != "expected":
                kinds.setdefault((trial.exceptions[0], group), Counter())[slot] += 1
    found = [
        ErrorsOverTime(name, group, count.total(), len(count), len(slots), _pattern(count, slots))
        for (name, group), count in kinds.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.count, each.name))[:MOST_KINDS])


def _pattern(count: Counter[int], slots: set[int]) -> str:
    if len(slots) < SLOTS_TO_JUDGE:
        return ""
    if len(count) >= SLOTS_TO_JUDGE and len(count) >= STEADY * len(slots):
        return "steady"
    top = max(count, key=lambda slot: count[slot] + count.get(slot + 1, 0))
    if count.total() < 2 or count[top] + count.get(top + 1, 0) < SPIKE * count.total():
        return "scattered"
    return "spike" if max(slots) > max(count) else "recent"
