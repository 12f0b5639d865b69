"""Why engines have nothing to do: three causes, measured, never guessed (PROBE-8).

Dispatch bound by its own processor; generation held back because training is the slow phase; or requests that are issued and not
scheduled. Sandboxes are not among them: what trials spend on those is measured elsewhere (PROBE-12).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median

from supervisor.gates import metrics, processes, said
from supervisor.gates.engines import Subscription
from supervisor.gates.processes import Part
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, Missing, Role
from supervisor.model.readings import RunSummary

READ_LINES = 20_000
TRAINING_BOUND = 0.5
"""Share of a step that training takes from which it is the slow phase, where rollouts are hardly waited for."""
WAITED = 0.1
"""Share of a step spent waiting for rollouts up to which they are hardly waited for."""
FEW = 0.5
"""Share of the trials under way up to which requests are few."""

_STALE = re.compile(r"max_staleness_steps=|stale and discarded|[Dd]iscarding stale group")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One of the three, if it could be measured. ``holds``: it explains the starvation."""

    name: str
    words: str
    quotes: tuple[Quote, ...]
    holds: bool
    cause: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starvation:
    """What was measured, and what would have been needed."""

    found: tuple[Measured, ...]
    missing: tuple[str, ...]
    lacks: Missing | None
    """Set where what was measured does not explain it and not all was."""

    @property
    def cause(self) -> Measured | None:
        return next((each for each in self.found if each.holds), None)

    @property
    def words(self) -> str:
        parts = [each.words for each in self.found] + [f"not measured: {', '.join(self.missing)}"] * bool(self.missing)
        text = "; ".join(parts)
        return f"{text[:1].upper()}{text[1:]}." if text else ""

    @property
    def quotes(self) -> tuple[Quote, ...]:
        return said.distinct(quote for each in self.found for quote in each.quotes)


def measure(case: Case, subscription: Subscription) -> Starvation:
    checks = {
        "processor use of the rollout coordinators": _dispatch(case),
        "training against rollouts by the trainer's timers": _staleness(case) if case.subject.bucket == "rl" else None,
        "requests issued against scheduled": _issued(case, subscription),
    }
    if case.subject.bucket != "rl":
        checks.pop("training against rollouts by the trainer's timers")
    found = tuple(each for each in checks.values() if each is not None)
    missing = tuple(name for name, each in checks.items() if each is None)
    lacks = None
    if missing and not any(each.holds for each in found):
        lacks = _lacking(case, missing)
    return Starvation(found=found, missing=missing, lacks=lacks)


def _lacking(case: Case, names: tuple[str, ...]) -> Missing:
    for role in (Role.PROCESSES, Role.LOG):
        if any(not each.read for each in case.of(role)) or not case.of(role):
            return said.missing(case, role)
    return Missing(command="; ".join(names), output="neither the processes nor the log that were captured tell it")


def _dispatch(case: Case) -> Measured | None:
    """One coordinator at a whole core cannot hand out more, whatever the engines could take."""
    views = processes.of(case)
    everyone = processes.everyone(views)
    chosen = [each for each in everyone if each.part is Part.COORDINATOR]
    name = "coordinator"
    if not chosen:
        chosen, name = [each for each in everyone if each.part is Part.DRIVER], "driver"
    known = [each for each in chosen if each.cpu_share is not None]
    if not known:
        return None
    top = max(known, key=lambda each: each.cpu_share or 0.0)
    percent = 100 * (top.cpu_share or 0.0)
    bound = percent >= case.limits.gating.coordinator_busy_percent
    count = f"{len(known)} {name}{'s' if len(known) != 1 else ''}"
    return Measured(
        name="dispatch",
        words=f"{count}, the busiest at {percent:.0f} % of a core",
        quotes=(top.quote,),
        holds=bound,
        cause="dispatch-bound",
        fix=f"run more rollout coordinators (num_coordinators) than the {len(known)} that are at their limit; "
        "more trials at once would not help",
    )


def _staleness(case: Case) -> Measured | None:
    """Training is the slow phase: generation waits for it by design, and more rollouts would go stale."""
    best = metrics.best(case, ("train_time_s", "step_time_s", "wait_buffer_time_s"))
    lines = _stale_lines(case)
    if best is None:
        return None
    file, run = best
    train, step, wait = (_usual(run, key) for key in ("train_time_s", "step_time_s", "wait_buffer_time_s"))
    if train is None or step is None or step <= 0:
        return None
    waited = wait if wait is not None else _usual(run, "generate_time_s")
    if waited is None:
        return None
    holds = train >= TRAINING_BOUND * step and waited <= WAITED * step
    quotes = tuple(
        quote
        for key in ("train_time_s", "wait_buffer_time_s", "generate_time_s")
        for quote in metrics.quote(case, file, key, *reversed(run.series.get(key, ())))
    )
    more = f"; {len(lines)} lines tell of stale rollouts" if lines else ""
    return Measured(
        name="staleness",
        words=f"of a step of {step:.3g} s training takes {train:.3g} s and rollouts are waited for {waited:.3g} s{more}",
        quotes=(*quotes, *lines[-1:]),
        holds=holds,
        cause="training-bound",
        fix="make training faster or give it more devices, or allow more staleness (max_staleness_steps); "
        "engines rest because rollouts are ahead",
    )


def _usual(run: RunSummary, key: str) -> float | None:
    values = metrics.finite(metrics.newest(run, key, 5))
    return median(values) if values else None


def _stale_lines(case: Case) -> tuple[Quote, ...]:
    found = []
    for exhibit in case.read(Role.LOG):
        file = exhibit.file or ""
        lines = case.lines(file)
        for number in range(max(0, len(lines) - READ_LINES), len(lines)):
            if "stale" in lines[number] and _STALE.search(lines[number][:4096]):
                found.append(Quote(file, number + 1, said.cut(lines[number], "stale")))
    return tuple(found)


def _issued(case: Case, subscription: Subscription) -> Measured | None:
    """Trials under way against requests in the engines: where most trials ask for nothing, the engines are not the limit."""
    for file, run in case.runs.items():
        under_way = run.trials.running
        buffer = next((each for each in run.counters if each.role == "buffer" and each.total), None)
        mark = run.last_trial
        if not under_way and buffer is not None and buffer.total is not None:
            under_way, mark = buffer.total - buffer.done, buffer.latest
        quotes = said.mark(case, file, mark)
        if under_way <= 0 or not quotes:
            continue
        asked = subscription.running + subscription.waiting
        holds = asked <= FEW * under_way
        return Measured(
            name="issued",
            words=f"{under_way} rollouts are under way and {asked:g} requests are in the engines",
            quotes=quotes,
            holds=holds,
            cause="under-subscribed",
            fix="raise the trials at once (n_concurrent_trials = 2 × num_parallel_generation_workers + 32, both together) until "
            "requests wait, and look what the trials under way do instead of asking",
        )
    return None
