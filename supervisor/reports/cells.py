"""Cells of the five tables, made from a stored row; what was not emitted is a dash, never 0 (BUCKET-3)."""

from __future__ import annotations

from supervisor.reports.text import span
from supervisor.reports.trend import direction, sparkline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DASH = "—"


def own(shown: Any, job: Any, run: Mapping[str, Any]) -> str:
    """One cell of a kind's own column."""
    metrics = run.get("metrics") or {}
    if shown.cell == "infra":
        return _infra(run.get("infra") or {})
    if shown.cell == "steps":
        return _steps(job, metrics.get(shown.key) if shown.key else None)
    value = metrics.get(shown.key)
    if shown.cell == "pair":
        whole = metrics.get(shown.of)
        return DASH if value is None else f"{number(value)}/{number(whole)}" if whole is not None else number(value)
    if value is None:
        return DASH
    if shown.cell == "percent":
        return f"{value:.0%}" if isinstance(value, (int, float)) else str(value)
    return str(value) if shown.cell == "word" else number(value)


INFRA = (("tunnel", "tunnel"), ("api_base", "api"), ("engine", "engine"), ("trials", "trials"))
SIGNS = {"ok": "✓", "bad": "✗", "quiet": "…"}


def _infra(told: Mapping[str, str]) -> str:
    """``tunnel✓ api✓ engine✓ 1240× trials…``: what the log tells of; what is bad is said in words (EVAL-1)."""
    words = []
    for key, name in INFRA:
        if key in told:
            sign, _, more = told[key].partition(" ")
            shown = more if sign == "bad" or key == "engine" else ""
            words.append(f"{name}{SIGNS.get(sign, '')} {shown}".rstrip())
    return " ".join(words) or DASH


def _steps(job: Any, counted: object) -> str:
    """``15/80``; for kinds that count trials, what they count where the step says nothing."""
    step = job.step if job.step is not None else int(counted) if isinstance(counted, (int, float)) else None
    if step is None:
        return DASH
    return f"{step}/{job.total}" if job.total else str(step)


def number(value: object) -> str:
    """Short, and of the right size: ``0.619``, ``-0.0040``, ``1.2e-05``, ``8600``, ``NaN``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    size = abs(value)
    if size >= 1000:
        return f"{value:.0f}"
    if size < 0.001:
        return f"{value:.1e}"
    if size < 0.1:
        return f"{value:.4f}"
    return f"{value:.3f}" if size < 10 else f"{value:.1f}"


def trend(kind: Any, run: Mapping[str, Any]) -> str:
    """Sparkline and words of the kind's metric, then what else the log told: the checkpoint, the engine's answers."""
    points = (run.get("series") or {}).get(kind.trend) or []
    words = [f"{sparkline(points)} {direction(points, kind.good, kind.steady)}"] if points else []
    if run.get("checkpoint_step") is not None:
        words.append(f"checkpoint announced at {run['checkpoint_step']}")
    return "; ".join(words) or DASH


def eta(run: Mapping[str, Any]) -> str:
    left = run.get("eta_s")
    return span(left) if isinstance(left, (int, float)) and left > 0 else DASH
