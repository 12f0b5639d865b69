"""Do trainer and rollouts agree, and is little clipped? Medians over the last steps against the healthy bands (RL-9)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from statistics import median

from supervisor.detectors import quoting
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Severity


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    """Notes: a run may live outside a band. There is no lower end for the log ratio (RL-4)."""
    run = facts.followed
    if facts.held.bucket != "rl" or run is None:
        return
    health = facts.limits.health
    bands: tuple[tuple[str, str, float | None, float, str], ...] = (
        ("tis_ratio", "mean importance ratio", health.tis_ratio_low, health.tis_ratio_high, ""),
        ("tis_capped", "capped share of importance ratios", None, health.tis_capped_high, ""),
        ("clip_ratio", "clip ratio", None, health.clip_ratio_high, "learning rate and clip range disagree"),
        ("tis_log_ratio", "mean |log ratio|", None, health.log_ratio_high, ""),
        ("log_ratio_max", "largest |log ratio|", None, health.log_ratio_max_bound, ""),
    )
    for key, name, low, high, meaning in bands:
        points = run.summary.series.get(key, ())[-health.trend_points :]
        values = quoting.finite(points)
        if len(values) < health.trend_points:
            continue
        usual = median(values)
        if (low is None or usual >= low) and usual <= high:
            continue
        band = f"{low:g} to {high:g}" if low is not None else f"up to {high:g}"
        outside = [point for point in reversed(points) if point.value > high or (low is not None and point.value < low)]
        quotes = quoting.value(run, key, *outside)
        if quotes:
            text = f"{name} is {'above' if usual > high else 'below'} its healthy band ({band}) over the last {len(values)} steps"
            yield Finding("RL-9", Severity.NOTE, f"{text}: {meaning}" if meaning else text, quotes, key=f"RL-9/{key}")
