"""Gate D: what the run's own numbers do over its last steps (RL-9, RL-12, RL-13, SFT-4). Never a kill by itself: flat is not dying,
and a run may recover. What a regime makes small (RL-4) or huge (RL-5) is no signal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from supervisor.gates import collapse, metrics, said
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, GateScore, Role, Score
from supervisor.model.readings import RunSummary
from supervisor.model.rulebook import Health

GATE, NAME = "D", "dynamics"
OBSERVED = "Ablation observation, not actionable."
KEYS = {
    "rl": ("reward", "entropy", "grad_norm", "tis_log_ratio", "tis_ratio", "policy_loss", "advantage_abs"),
    "sft": ("loss", "grad_norm"),
}
NAMES = {
    "reward": "reward",
    "entropy": "entropy",
    "grad_norm": "grad norm",
    "tis_log_ratio": "mean |log ratio|",
    "tis_ratio": "importance ratio",
    "tis_capped": "capped share",
    "clip_ratio": "clip ratio",
    "log_ratio_max": "largest |log ratio|",
    "policy_loss": "policy loss",
    "final_loss": "final loss",
    "loss": "loss",
    "advantage_abs": "advantage magnitude",
}
TIMERS = (
    ("step_time_s", "step"),
    ("generate_time_s", "generation"),
    ("wait_buffer_time_s", "waiting for rollouts"),
    ("train_time_s", "training"),
    ("sync_time_s", "weight sync"),
)


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing that a metric does. ``quotes`` may be empty: then it is told and proves nothing."""

    key: str
    words: str
    quotes: tuple[Quote, ...]
    cause: str = ""
    fix: str = ""


def judge(case: Case) -> GateScore:
    keys = KEYS.get(case.subject.bucket)
    if keys is None:
        return _not_applicable(f"A job of the bucket {case.subject.bucket} has no training dynamics.")
    if not case.read(Role.LOG):
        return GateScore(
            gate=GATE,
            name=NAME,
            result=Score.ERROR,
            reason="No log of it could be read.",
            missing=said.missing(case, Role.LOG),
        )
    least = case.limits.health.trend_points
    best = metrics.best(case, keys)
    longest = max((len(best[1].series.get(key, ())) for key in keys), default=0) if best is not None else 0
    if best is None or longest < least:
        return _not_applicable(f"Fewer than {least} steps with a metric ({longest}): nothing is judged by a trend yet.")
    file, run = best
    shown = _newest(case, file, run, keys)
    if not shown:
        return GateScore(
            gate=GATE,
            name=NAME,
            result=Score.ERROR,
            reason="No line that shows one of its metrics stands in what was read of its log.",
            missing=said.unusable(case.read(Role.LOG)[0], "it names no metric at the lines where they were read"),
        )
    return _score(case, file, run, keys, shown, longest)


def _score(
    case: Case, file: str, run: RunSummary, keys: Sequence[str], shown: tuple[Quote, ...], steps: int
) -> GateScore:
    health = case.limits.health
    facts = _facts(run, keys)
    told = _table(run, keys) + _timers(run, health, facts)
    words = f"Over its last {min(steps, health.trend_points)} steps: {told}." if told else ""
    broken = [signal for signal in _broken(case, file, run) if signal.quotes]
    signals = _collapse(case, file, run) if case.subject.bucket == "rl" else _explosion(case, file, run)
    signals = [signal for signal in signals if signal.quotes]
    bands = _bands(case, file, run) if case.subject.bucket == "rl" else []
    notes = "".join(f" {signal.words[:1].upper()}{signal.words[1:]}." for signal in bands)
    needed = 2 if case.subject.bucket == "rl" else 1
    watch = "two collapse signals on one step, or a value that is no number"
    score = GateScore(
        gate=GATE,
        name=NAME,
        result=Score.PASS,
        reason=f"{words}{notes}",
        quotes=said.distinct((*shown, *(quote for signal in (*signals, *bands) for quote in signal.quotes)), most=10),
        confidence="high" if steps >= 2 * health.trend_points else "medium",
        watch=watch,
        facts=facts,
    )
    if not broken and len(signals) < needed:
        alone = f" One signal alone: {signals[0].words}." if signals else ""
        return replace(score, reason=f"{words}{alone}{notes}")
    found = broken or signals
    head = "; ".join(signal.words for signal in (*broken, *signals))
    head = f"{head[:1].upper()}{head[1:]}."
    cause = next((signal.cause for signal in found if signal.cause), "policy-collapse" if needed == 2 else "divergence")
    fix = next((signal.fix for signal in found if signal.fix), "") or (
        "go back to the checkpoint before the first signal; lower the learning rate or tighten the clip range"
    )
    failed = replace(
        score,
        result=Score.FAIL,
        reason=f"{head} {words}{notes}",
        quotes=said.distinct((*(quote for signal in (*broken, *signals) for quote in signal.quotes), *shown), most=10),
        cause=cause,
        fix=fix,
        confidence="medium",
        watch=f"{health.recovery_points} steps in a row without two signals would say that it recovers",
    )
    if not case.subject.exempt:
        return failed
    if broken:  # a run that is no number any more is a failure of an ablation too (RL-3)
        return replace(failed, reason=f"{failed.reason} {OBSERVED}")
    return replace(score, reason=f"{head} {OBSERVED} {words}{notes}", quotes=failed.quotes)


# -- what is broken ----------------------------------------------------------------------------------------------------


def _broken(case: Case, file: str, run: RunSummary) -> list[Signal]:
    """Values that are no numbers, optimiser steps that were skipped, advantages of 0: steps go on and teach nothing (RL-14)."""
    health = case.limits.health
    found: list[Signal] = []
    for key in ("policy_loss", "final_loss", "loss", "grad_norm"):
        newest = metrics.newest(run, key, health.streak_points)
        if len(newest) == health.streak_points and not any(math.isfinite(point.value) for point in newest):
            quotes = metrics.quote(case, file, key, *reversed(newest))
            words = f"{NAMES[key]} is no number in its last {len(newest)} steps"
            found.append(
                Signal(
                    key, words, quotes, "nan-loss", "stop, go back to the checkpoint before, and change the numerics"
                )
            )
            break
    longest = max(run.series.values(), key=len, default=())
    since = longest[-min(len(longest), health.trend_points)].offset if longest else 0
    if run.skipped_steps >= health.streak_points and run.last_skip is not None and run.last_skip.said.offset >= since:
        words = f"{run.skipped_steps} optimiser steps were skipped in silence for a gradient that is no number"
        fix = "stop, go back to the checkpoint before, and change the numerics"
        found.append(Signal("skips", words, said.mark(case, file, run.last_skip), "nan-loss", fix))
    advantages = metrics.newest(run, "advantage_abs", health.trend_points)
    if len(advantages) == health.trend_points and all(point.value == 0 for point in advantages):
        words = f"advantages are 0 in its last {len(advantages)} steps: nothing is learnt"
        fix = "look whether every group of rollouts earns the same reward; change the tasks, the group's size or the reward"
        quotes = metrics.quote(case, file, "advantage_abs", *reversed(advantages))
        found.append(Signal("advantage_abs", words, quotes, "rl-no-learning", fix))
    skipped = metrics.newest(run, "tis_skipped", health.trend_points)
    if len(skipped) == health.trend_points and all(point.value >= 0.99 for point in skipped):
        words = "the importance correction is skipped in every batch: the engine returns no log-probabilities"
        quotes = metrics.quote(case, file, "tis_skipped", *reversed(skipped))
        fix = "have the engine return log-probabilities of what it generates, or turn the correction off knowingly"
        found.append(Signal("tis_skipped", words, quotes, "rl-no-learning", fix))
    return found


# -- signals -----------------------------------------------------------------------------------------------------------


def _collapse(case: Case, file: str, run: RunSummary) -> list[Signal]:
    return [
        Signal(sign.key, sign.words, metrics.quote(case, file, sign.key, sign.point, *reversed(run.series[sign.key])))
        for sign in collapse.course(run, case.limits.health).signs
    ]


def _explosion(case: Case, file: str, run: RunSummary) -> list[Signal]:
    """SFT-4: a gradient norm far above the run's own, steps in a row."""
    health = case.limits.health
    points = [point for point in run.series.get("grad_norm", ()) if math.isfinite(point.value)]
    now, before = points[-health.streak_points :], points[: -health.streak_points][-health.trend_points :]
    if len(before) < health.trend_points:
        return []
    usual = median(point.value for point in before)
    bar = max(health.grad_explosion_times * usual, health.grad_explosion_floor)
    if any(point.value <= bar for point in now):
        return []
    words = f"grad norm {now[-1].value:.3g} for {len(now)} steps, usually {usual:.3g}"
    return [Signal("grad_norm", words, metrics.quote(case, file, "grad_norm", now[-1]))]


def _bands(case: Case, file: str, run: RunSummary) -> list[Signal]:
    """RL-9: medians outside the healthy bands. Notes: a run may live outside one, and the log ratio has no lower end (RL-4)."""
    health = case.limits.health
    bands: tuple[tuple[str, float | None, float], ...] = (
        ("tis_ratio", health.tis_ratio_low, health.tis_ratio_high),
        ("tis_capped", None, health.tis_capped_high),
        ("clip_ratio", None, health.clip_ratio_high),
        ("tis_log_ratio", None, health.log_ratio_high),
        ("log_ratio_max", None, health.log_ratio_max_bound),
    )
    found: list[Signal] = []
    for key, low, high in bands:
        points = metrics.newest(run, key, health.trend_points)
        values = metrics.finite(points)
        if len(values) < health.trend_points:
            continue
        usual = median(values)
        if usual > high or (low is not None and usual < low):
            band = f"up to {high:g}" if low is None else f"{low:g} to {high:g}"
            quotes = metrics.quote(case, file, key, *reversed(points))
            found.append(Signal(key, f"{NAMES[key]} is {usual:.3g}, outside its band ({band})", quotes))
    return found


# -- words -------------------------------------------------------------------------------------------------------------


def _newest(case: Case, file: str, run: RunSummary, keys: Sequence[str]) -> tuple[Quote, ...]:
    return said.distinct(
        (quote for key in keys for quote in metrics.quote(case, file, key, *reversed(run.series.get(key, ())))), most=4
    )


def _facts(run: RunSummary, keys: Sequence[str]) -> dict[str, float | int | str | None]:
    facts: dict[str, float | int | str | None] = {"step": run.progress.step}
    for key in keys:
        if points := run.series.get(key):
            facts[key] = metrics.fact(points[-1].value)
    return facts


def _table(run: RunSummary, keys: Sequence[str]) -> str:
    """``reward 0.31 to 0.42, entropy 0.5 to 0.48``: medians of the older and the newer half."""
    parts = []
    for key in keys:
        values = metrics.finite(run.series.get(key, ())[-10:])
        if len(values) >= 4:
            half = len(values) // 2
            parts.append(f"{NAMES[key]} {median(values[:half]):.3g} to {median(values[half:]):.3g}")
    return ", ".join(parts)


def _timers(run: RunSummary, health: Health, facts: dict[str, float | int | str | None]) -> str:
    """Where a step's time goes, by the trainer's own timers; spans may overlap."""
    parts = []
    for key, name in TIMERS:
        values = metrics.finite(metrics.newest(run, key, health.trend_points))
        if values:
            facts[key] = round(median(values), 2)
            parts.append(f"{name} {median(values):.3g} s")
    return f"; {', '.join(parts)}" if parts else ""


def _not_applicable(reason: str) -> GateScore:
    return GateScore(gate=GATE, name=NAME, result=Score.NOT_APPLICABLE, reason=reason)
