"""What names mean: metrics, bars and trial outcomes, read once from the packaged tables.

``metrics.toml`` and ``outcomes.toml`` are knowledge, shipped with the program; nothing else is read here.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an exception's class bears on a trial."""

    group: str
    valid: bool
    """The trial has a reward that counts."""
    retry: bool


UNKNOWN_OUTCOME = Outcome("unknown", valid=True, retry=True)
"""What Harbor assumes of a class that its policy does not name."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tables of ``metrics.toml``, made ready for look-ups."""

    names: Mapping[str, tuple[str, int]]
    """Printed name to (key, rank); the lowest rank is the most telling."""
    patterns: tuple[tuple[re.Pattern[str], str, int], ...]
    sink_prefixes: frozenset[str]
    buckets: Mapping[str, tuple[str, ...]]
    stands_in: Mapping[str, Mapping[str, tuple[str, ...]]]
    bars: tuple[tuple[str, re.Pattern[str]], ...]
    plain: frozenset[str]


def _table(name: str) -> dict[str, object]:
    return tomllib.loads(resources.files("supervisor.data").joinpath(name).read_text("utf-8"))


@cache
def vocabulary() -> Vocabulary:
    """The packaged vocabulary; read on first use."""
    table: dict[str, object] = _table("metrics.toml")
    names: dict[str, tuple[str, int]] = {}
    patterns: list[tuple[re.Pattern[str], str, int]] = []
    for metric in _rows(table, "metric"):
        key = str(metric["key"])
        listed = [str(name) for name in _list(metric, "names")]
        for rank, name in enumerate(listed):
            names.setdefault(name, (key, rank))
        for rank, pattern in enumerate(_list(metric, "patterns")):
            patterns.append((re.compile(str(pattern)), key, len(listed) + rank))
    buckets = {str(name): tuple(map(str, keys)) for name, keys in _map(table, "buckets").items()}
    stands_in = {
        str(bucket): {str(key): tuple(map(str, others)) for key, others in _items(pairs)}
        for bucket, pairs in _map(table, "stands_in").items()
    }
    bars = tuple((str(bar["role"]), re.compile(str(bar["pattern"]), re.I)) for bar in _rows(table, "bar"))
    return Vocabulary(
        names=names,
        patterns=tuple(patterns),
        sink_prefixes=frozenset(map(str, _list(table, "sink_prefixes"))),
        buckets=buckets,
        stands_in=stands_in,
        bars=bars,
        plain=frozenset(map(str, _list(_map(table, "plain"), "metrics"))),
    )


def _rows(table: Mapping[str, object], name: str) -> list[dict[str, object]]:
    rows = table.get(name, [])
    assert isinstance(rows, list)
    return rows


def _list(table: Mapping[str, object], name: str) -> list[object]:
    value = table.get(name, [])
    assert isinstance(value, list)
    return value


def _map(table: Mapping[str, object], name: str) -> dict[str, list[object]]:
    value = table.get(name, {})
    assert isinstance(value, dict)
    return value


def _items(pairs: object) -> Iterator[tuple[object, list[object]]]:
    assert isinstance(pairs, dict)
    yield from pairs.items()


@lru_cache(maxsize=4096)
def canonical(name: str) -> tuple[str, int] | None:
    """The key of a printed metric name and its rank among that key's names; None for a name that nothing is known of.

    A tracker's own prefix (``train/loss``) is taken off once, if the whole name is not known as it stands.
    """
    words = vocabulary()
    found = words.names.get(name)
    if found is not None:
        return found
    for pattern, key, rank in words.patterns:
        if pattern.fullmatch(name):
            return key, rank
    head, slash, rest = name.partition("/")
    if slash and head in words.sink_prefixes:
        return canonical(rest)
    lower = name.lower()
    return None if lower == name else canonical(lower)


def by_key(metrics: Mapping[str, float]) -> dict[str, float]:
    """Known metrics under their keys; of two names for one key the more telling counts. Takes any number of names."""
    best: dict[str, tuple[int, float]] = {}
    for name, value in metrics.items():
        found = canonical(name)
        if found is not None:
            key, rank = found
            held = best.get(key)
            if held is None or rank < held[0]:
                best[key] = (rank, value)
    return {key: value for key, (_, value) in best.items()}


@cache
def printed_names(key: str) -> tuple[str | re.Pattern[str], ...]:
    """The names under which a key may be printed, most telling first; patterns for those with a varying part."""
    words = vocabulary()
    exact = [name for name, (known, _) in words.names.items() if known == key]
    return (*exact, *(pattern for pattern, known, _ in words.patterns if known == key))


@lru_cache(maxsize=1024)
def bar_role(description: str) -> str:
    """What a progress bar counts; ``""`` for a bar without description, ``other`` for one that no pattern knows."""
    if not description:
        return ""
    for role, pattern in vocabulary().bars:
        if pattern.search(description):
            return role
    return "other"


@cache
def _outcomes() -> tuple[dict[str, Outcome], tuple[tuple[re.Pattern[str], Outcome], ...]]:
    names: dict[str, Outcome] = {}
    patterns: list[tuple[re.Pattern[str], Outcome]] = []
    for row in _rows(_table("outcomes.toml"), "outcome"):
        outcome = Outcome(str(row["group"]), bool(row["valid"]), bool(row["retry"]))
        names.update({str(name): outcome for name in _list(row, "names")})
        patterns.extend((re.compile(str(pattern)), outcome) for pattern in _list(row, "patterns"))
    return names, tuple(patterns)


@lru_cache(maxsize=1024)
def outcome_of(exception: str) -> Outcome:
    """The policy for an exception's class name (RL-6, EVAL-3)."""
    names, patterns = _outcomes()
    known = names.get(exception)
    if known is not None:
        return known
    return next((outcome for pattern, outcome in patterns if pattern.fullmatch(exception)), UNKNOWN_OUTCOME)
