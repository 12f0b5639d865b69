"""Is the reward shaped? Read off whether reward times rollouts is whole (RL-7). Pure."""

from __future__ import annotations

from supervisor.model.readings import RunSummary

LEAST = 3
"""Steps that must agree."""


def regime(summary: RunSummary) -> str | None:
    """``unshaped`` where the sum of a step's rewards is whole, ``shaped`` where it is not; None where it can't be told.

    It can't where the number of rollouts was not printed, or where the reward was printed with too few digits to tell.
    """
    rollouts: dict[int | None, float] = {
        point.step: point.value for point in summary.series.get("effective_samples", ()) if point.step is not None
    }
    whole = fractional = 0
    for point in summary.series.get("reward", ()):
        count = rollouts.get(point.step)
        if count is None or not abs(point.value) < 1e9 or not 0 < count < 1e6:
            continue
        total = point.value * count
        slack = count * 0.5 * 10.0 ** -_digits(point.value) + 1e-6
        if slack > 0.1 or point.value == 0:
            continue
        if abs(total - round(total)) <= slack:
            whole += 1
        else:
            fractional += 1
    if whole + fractional < LEAST:
        return None
    if fractional == 0:
        return "unshaped"
    return "shaped" if fractional >= LEAST or whole == 0 else None


def _digits(value: float) -> int:
    """Digits behind the point that the value was printed with; a float keeps those of its shortest form."""
    text = repr(value)
    if "e" in text:
        return 15
    return len(text.partition(".")[2])
