"""Rollouts of reinforcement learning without trials: rewards, banked steps, timings, generated tokens (RL-11); and what makes
any such run learn from nothing (RL-14)."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.gates import banked, metrics, said, sample
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, GateScore, Role, Score
from supervisor.model.readings import RunSummary

GATE, NAME = "C", "rollouts"
CAUSE = "rl-no-learning"
LATE = 3.0
"""Times the usual steps between saves from which no save says that saving stopped."""
NOTHING = 1.0
"""Generated tokens, on average, up to which the engine generates nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """How it comes that nothing is learnt."""

    words: str
    quotes: tuple[Quote, ...]
    fix: str
    lasting: bool
    """It held over the steps that a judgement needs, and no reward was ever above 0 in a log that was read from its start."""


def judge(case: Case) -> GateScore:
    best = metrics.best(case, ("reward", "pass_at_n"))
    if best is None:
        return _no_reward(case)
    file, run = best
    key = "reward" if run.series.get("reward") else "pass_at_n"
    points = run.series[key]
    quotes = metrics.quote(case, file, key, *reversed(points))
    if not quotes:
        return _error(case, "no line that shows a reward stands in what was read of its log")
    bank = banked.of(case)
    facts, words = _told(case, run, bank)
    more = [*quotes]
    for shown in ("response_length", "step_time_s"):
        more += metrics.quote(case, file, shown, *reversed(run.series.get(shown, ())))
    if bank is not None and bank.quote is not None:
        more.append(bank.quote)
    newest = points[-1]
    at = f" at step {newest.step}" if newest.step is not None else ""
    head = f"It has no trials by design. Newest average reward {newest.value:g}{at}, over {len(points)} steps.{words}"
    facts["reward"] = metrics.fact(newest.value)
    mechanism = no_signal(case)
    if mechanism is not None:
        return _failed(f"{mechanism.words} {head}", mechanism.quotes, facts, mechanism.fix, mechanism.lasting)
    if (late := _late(run, bank)) is not None:
        fix = "look at the checkpoint folder's space and quota, and at what its last save said; save by hand where the trainer can"
        return _failed(f"{late} {head}", tuple(more), facts, fix, hard=False, cause="checkpoints-stand-still")
    zero = not any(point.value > 0 for point in points)
    if zero and len(points) >= case.limits.health.trend_points:
        fix = "read some rollouts whole: is the task within reach, is the answer cut off, does the verifier see it"
        return _failed(f"No reward is above 0 over {len(points)} steps. {head}", tuple(more), facts, fix, hard=False)
    unread = tuple(banked.unread(case))
    if unread:
        head += " Its checkpoints could not be listed."
    if zero:
        head += " No reward is above 0 yet, on too few steps to judge by."
    return GateScore(
        gate=GATE,
        name=NAME,
        result=Score.PASS,
        reason=head,
        quotes=said.distinct(more),
        confidence="medium" if unread or zero or len(points) < case.limits.health.streak_points else "high",
        early=zero,
        watch="rewards that fall to 0, or steps without a new checkpoint",
        facts=facts,
    )


def no_signal(case: Case) -> Mechanism | None:
    """Rollouts that fail whole or hold no token, on the steps that a judgement needs. Uniform rewards alone are no such thing."""
    health = case.limits.health
    best = metrics.best(case, ("reward",))
    if best is None:
        return None
    file, run = best
    points = run.series["reward"]
    zero = len(points) >= health.trend_points and not any(point.value > 0 for point in points)
    mark = run.last_all_failed
    if run.all_failed_batches >= health.streak_points and mark is not None and "fail" in mark.said.text.lower():
        late = points[-min(len(points), health.trend_points)].offset
        if zero and mark.said.offset >= late:
            return Mechanism(
                words=f"{run.all_failed_batches} rollout batches failed whole and came back as zeros, and it trains on them.",
                quotes=said.mark(case, file, mark) + metrics.quote(case, file, "reward", *reversed(points)),
                fix="repair what fails each rollout, as named beside the batch, then relaunch: these steps taught nothing",
                lasting=run.all_failed_batches >= health.trend_points // 2 and sample.whole(case, file),
            )
    lengths = metrics.newest(run, "response_length", health.trend_points)
    if zero and len(lengths) >= health.trend_points and all(point.value <= NOTHING for point in lengths):
        return Mechanism(
            words=f"The engine generates nothing: at most {max(point.value for point in lengths):g} tokens on average.",
            quotes=metrics.quote(case, file, "response_length", *reversed(lengths))
            + metrics.quote(case, file, "reward", *reversed(points)),
            fix="generate one answer from the weights as they were synchronised; repair the synchronisation or the stop tokens",
            lasting=sample.whole(case, file),
        )
    return None


def _no_reward(case: Case) -> GateScore:
    """Also before the first step: what nothing was seen of proves no setting (RL-10)."""
    if not case.read(Role.LOG):
        return _error(case, "no log of it could be read")
    stepped = any(run.last_step is not None for run in case.runs.values())
    return _error(case, "its log shows steps and no reward" if stepped else "its log shows no step and no reward yet")


def _told(case: Case, run: RunSummary, bank: banked.Banked | None) -> tuple[dict[str, float | int | str | None], str]:
    facts: dict[str, float | int | str | None] = {"step": run.progress.step}
    words = ""
    for key, name, unit in (
        ("step_time_s", "a step takes", " s"),
        ("response_length", "answers have", " tokens on average"),
    ):
        points = run.series.get(key, ())
        if points:
            facts[key] = metrics.fact(points[-1].value)
            words += f"; {name} {points[-1].value:g}{unit}"
    if bank is not None:
        facts["banked_step"] = bank.step
        words += f"; banked: step {bank.step}" if bank.step is not None else "; nothing is banked yet"
        if bank.doubtful is not None:
            words += f" (a save of step {bank.doubtful} is under way or failed)"
    return facts, f" {words[2:3].upper()}{words[3:]}." if words else ""


def _late(run: RunSummary, bank: banked.Banked | None) -> str | None:
    """Saves that came regularly and come no more while steps go on."""
    step = run.progress.step
    if bank is None or bank.step is None or bank.interval is None or step is None:
        return None
    behind = step - bank.step
    if behind <= LATE * bank.interval:
        return None
    return (
        f"Steps go on without a new checkpoint: step {step}, banked {bank.step}, usually every {bank.interval:g} steps."
    )


def _failed(
    reason: str,
    quotes: tuple[Quote, ...],
    facts: dict[str, float | int | str | None],
    fix: str,
    hard: bool,
    cause: str = CAUSE,
) -> GateScore:
    return GateScore(
        gate=GATE,
        name=NAME,
        result=Score.FAIL,
        reason=reason,
        quotes=said.distinct(quotes),
        hard=hard,
        cause=cause,
        fix=fix,
        confidence="high" if hard else "medium",
        watch="a step with a reward above 0" if cause == CAUSE else "a new checkpoint",
        facts=facts,
    )


def _error(case: Case, why: str) -> GateScore:
    missing = said.missing(case, Role.LOG)
    if read := case.read(Role.LOG):
        missing = said.unusable(read[0], "it shows no reward")
    return GateScore(gate=GATE, name=NAME, result=Score.ERROR, reason=f"{why[:1].upper()}{why[1:]}.", missing=missing)
