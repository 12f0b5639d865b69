"""Thresholds in force: the defaults of ``data/limits.toml``, a bucket's own, and what the config sets."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from supervisor.app.complaints import nearest
from supervisor.buckets import BY_NAME
from supervisor.model.rulebook import Gating, Health

WHOLE = (
    "absences_to_call_gone",
    "cadence_points",
    *(field.name for kind in (Health, Gating) for field in dataclasses.fields(kind) if field.type == "int"),
)
"""Limits that count things."""


def limits_table() -> Mapping[str, Mapping[str, Any]]:
    """``data/limits.toml``: each threshold with default, unit, rule and reason."""
    return tomllib.loads(resources.files("supervisor.data").joinpath("limits.toml").read_text(encoding="utf-8"))


def limits_in_force(given: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Thresholds by bucket ("" for all): the defaults, their bucket defaults, and what the config sets.

    Raises ValueError naming the key and the nearest known one.
    """
    table = limits_table()
    every = {name: float(entry["default"]) for name, entry in table.items()}
    own: dict[str, dict[str, float]] = {bucket: {} for bucket in BY_NAME}
    for name, entry in table.items():
        for bucket, value in entry.get("bucket", {}).items():
            own[bucket][name] = float(value)
    per_bucket = {bucket: value for bucket, value in given.items() if isinstance(value, dict)}
    common = {name: value for name, value in given.items() if not isinstance(value, dict)}
    for name in common:
        if name in BY_NAME:
            raise ValueError(f"limits.{name}: must be a table, [limits.{name}]")
        if name not in table:
            raise ValueError(f"limits.{name}: no such limit{nearest(name, [*table, *BY_NAME])}")
    every |= {name: _number(name, value) for name, value in common.items()}
    for bucket, values in per_bucket.items():
        if bucket not in BY_NAME:
            raise ValueError(f"limits.{bucket}: no such bucket{nearest(bucket, [*BY_NAME, *table])}")
        for name, value in values.items():
            if name not in table:
                raise ValueError(f"limits.{bucket}.{name}: no such limit{nearest(name, table)}")
            own[bucket][name] = _number(f"{bucket}.{name}", value)
    # A limit that the config sets for all outweighs a built-in one of a bucket, but not one that the config sets for it.
    return {
        "": every,
        **{
            b: every | {n: v for n, v in own[b].items() if n not in common or n in per_bucket.get(b, {})}
            for b in BY_NAME
        },
    }


def _number(name: str, value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
        raise ValueError(f"limits.{name}: must be a number above 0")
    if name.rpartition(".")[2] in WHOLE and value != int(value):
        raise ValueError(f"limits.{name}: must be a whole number, at least 1")
    return float(value)
