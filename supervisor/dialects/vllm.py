"""vLLM engines: the statistics line of any version (key and value, never by position), the per-step summary, waits.

An idle engine prints nothing, so a silent one is idle or dead, and its last line shows the time before.
"""

from __future__ import annotations

import re

import re2

from supervisor.dialects.line import Line
from supervisor.model.readings import Reading, ReadingKind

NAME = "vllm"
MARKS = (b" throughput: ", b"vLLM Stats", b"memory broadcast block")
ACCESS = {
    b'HTTP/1.1" 200': "answered",
    b'HTTP/1.1" 401': "refused_auth",
    b'HTTP/1.1" 403': "refused_auth",
    b'HTTP/1.1" 500': "failed",
    b'HTTP/1.1" 502': "failed",
    b'HTTP/1.1" 503': "failed",
    b'HTTP/1.1" 504': "failed",
}
"""Access lines are counted in the bytes, not read one by one: a busy server prints little else."""
ASKED = re2.compile(rb'("GET [^"\n]*" )[25]\d\d')
"""Looks at the server's health, models or metrics; only a refusal of them says something."""

_ENGINE = re.compile(r"Engine (\d{1,6}):|\b(\d{1,6}) Engines Aggregated:")
_FIELD = re.compile(
    r"([A-Za-z][A-Za-z0-9 _/()-]*?): *(-?[\d.]+(?:[eE][-+]?\d+)?|nan|inf) *(%|[A-Za-z/]+)?(?=,|$|\.$|\. )"
)
_SUMMARY = re.compile(r"vLLM Stats \(step (\d+)\): (.*)$")
_SUMMARY_FIELD = re.compile(r"\b(\w{1,40})(?:\(([\w/]{1,40})\))?=([\d.]{1,24}(?:/[\d.]{1,24})*)")
_WAIT = re.compile(r"No available shared memory broadcast block found ?in (\d+) second", re.I)
_NAMES = {
    "avg prompt throughput": "prompt_tps",
    "avg generation throughput": "generation_tps",
    "running": "running",
    "waiting": "waiting",
    "pending": "waiting",
    "swapped": "swapped",
    "deferred": "deferred",
    "prefix cache hit rate": "prefix_hit_pct",
    "external prefix cache hit rate": "external_prefix_hit_pct",
    "mm cache hit rate": "mm_hit_pct",
    "preemptions": "preemptions",
    "corrupted": "corrupted",
}


def read(line: Line) -> list[Reading]:
    text = line.text
    if (found := _WAIT.search(text)) is not None:
        return [line.reading(ReadingKind.HEARTBEAT, NAME, label="shm_broadcast", elapsed_s=float(found[1]))]
    if (found := _SUMMARY.search(text)) is not None:
        return [
            line.reading(
                ReadingKind.ENGINE, NAME, label="summary", step=int(found[1]), metrics=_summary(found[2][:2000])
            )
        ]
    if "Running:" not in text:
        return []
    start = text.find("Avg prompt throughput")
    if start < 0:
        return []
    engine = _ENGINE.search(text)
    metrics = {_name(name): float(value) for name, value, _ in _FIELD.findall(text[start : start + 2000])}
    label = "" if engine is None else engine[1] or f"all {engine[2]}"
    return [line.reading(ReadingKind.ENGINE, NAME, label=label, metrics=metrics)]


def _name(printed: str) -> str:
    known = printed.strip().lower()
    if known.endswith(" kv cache usage"):
        return "kv_cache_pct" if not known.startswith("cpu ") else "cpu_kv_cache_pct"
    return _NAMES.get(known, known.replace(" ", "_"))


def _summary(text: str) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for name, parts, values in _SUMMARY_FIELD.findall(text):
        names = parts.split("/") if parts else [""]
        for part, value in zip(names, values.split("/"), strict=False):
            if value.count(".") <= 1 and value.strip("."):
                metrics[f"{name}_{part}" if part else name] = float(value)
    return metrics
