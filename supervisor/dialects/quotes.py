"""Which part of a long line to keep for a metric: a quote that does not show the value proves nothing (PROBE-2)."""

from __future__ import annotations

from supervisor.dialects.vocabulary import canonical, printed_names
from supervisor.model.readings import Reading, Spoken

SHORT = 480
"""Characters of a line that are kept whole."""
BEFORE, AFTER = 24, 72
"""Characters kept around a metric's printed name in a longer one."""
MOST = 48
"""Parts kept of one reading."""


def parts_of(reading: Reading) -> list[Spoken]:
    """The reading's lines, long ones cut down to the parts that show known metrics. Each part stands in the file as it is."""
    if all(len(spoken.text) <= SHORT for spoken in reading.said):
        return list(reading.said[:MOST])
    kept: list[Spoken] = []
    names = [name for name in reading.metrics if canonical(name) is not None]
    for spoken in reading.said:
        text = spoken.text
        if len(text) <= SHORT:
            kept.append(spoken)
            continue
        spans = sorted(
            (max(0, at - BEFORE), at + len(name) + AFTER) for name in names if (at := _place(text, name)) >= 0
        )
        for start, stop in _merged(spans) or [(0, SHORT)]:
            kept.append(Spoken(spoken.offset + len(text[:start].encode()), spoken.line, text[start:stop]))
    return kept[:MOST]


def excerpt(said: tuple[Spoken, ...], key: str, width: int = 240) -> Spoken | None:
    """The part of a quoted line around a metric's printed name, as it stands in the file; None where no line bears it."""
    for spoken in said:
        at = shows(spoken.text, key)
        if at >= 0:
            start = max(0, min(at - width // 4, len(spoken.text) - width))
            text = spoken.text[start : start + width]
            return Spoken(spoken.offset + len(spoken.text[:start].encode()), spoken.line, text)
    return None


def shows(text: str, key: str) -> int:
    """Where a text names a metric, by any of its printed names; -1 where it does not."""
    for name in printed_names(key):
        at = (
            _place(text, name)
            if isinstance(name, str)
            else -1
            if (found := name.search(text)) is None
            else found.start()
        )
        if at >= 0:
            return at
    return -1


def _place(text: str, name: str) -> int:
    """The name as a dict's key where it stands so, else as a word."""
    for quoted in (f"'{name}'", f'"{name}"'):
        at = text.find(quoted)
        if at >= 0:
            return at
    at = text.find(name)
    while at > 0 and (text[at - 1].isalnum() or text[at - 1] in "_/"):
        at = text.find(name, at + 1)
    return at


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, stop in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged
