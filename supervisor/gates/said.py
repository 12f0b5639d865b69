"""Quotes from an evidence folder, as gates write them: a whole line, or the part of it that matters (PROBE-4)."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.model.findings import Quote
from supervisor.model.probe import Case, Exhibit, Missing, Role
from supervisor.model.readings import Mark, Spoken

MOST = 400
"""Characters of a quote: what stands around the part that matters is left out of longer lines."""


def cut(line: str, around: str = "") -> str:
    """At most ``MOST`` characters of a line, so that ``around`` stands among them where the line holds it."""
    if len(line) <= MOST:
        return line
    at = max(0, line.find(around)) if around else 0
    if at + len(around) <= MOST:
        return line[:MOST]
    return line[at : at + MOST]


def quoted(case: Case, file: str, line: int, around: str = "") -> Quote:
    """Line ``line`` (from 1) of a file of the folder, or the part of it that begins near ``around``."""
    return Quote(file, line, cut(case.lines(file)[line - 1], around))


def spoken(case: Case, file: str, said: Spoken | None) -> tuple[Quote, ...]:
    """One quote, or none where its line is not in the folder (an aged mark, a log that was cut)."""
    if said is None or said.line is None:
        return ()
    lines = case.lines(file)
    if not 1 <= said.line <= len(lines):
        return ()
    line, text = lines[said.line - 1], said.text.split("\n", 1)[0]
    if text.strip() and text in line:
        return (Quote(file, said.line, cut(text)),)
    return (Quote(file, said.line, cut(line)),) if line.strip() else ()


def mark(case: Case, file: str, place: Mark | None) -> tuple[Quote, ...]:
    return spoken(case, file, place.said if place is not None else None)


def last_line(case: Case, file: str) -> tuple[Quote, ...]:
    """The newest line that holds anything."""
    lines = case.lines(file)
    for number in range(len(lines), max(0, len(lines) - 2000), -1):
        if lines[number - 1].strip():
            return (Quote(file, number, cut(lines[number - 1])),)
    return ()


def distinct(quotes: Iterable[Quote], most: int = 8) -> tuple[Quote, ...]:
    return tuple(dict.fromkeys(quotes))[:most]


def missing(case: Case, *roles: Role) -> Missing:
    """Which capture of these roles failed, with its command and output (PROBE-3); the first one speaks for them."""
    for role in roles:
        for each in case.of(role):
            if not each.read:
                return Missing(command=each.command or role.value, output=each.failure or "it put out nothing")
    names = " or ".join(role.value for role in roles)
    return Missing(command=f"capture {names}", output=f"no {names} was captured")


def unusable(exhibit: Exhibit, why: str) -> Missing:
    """A capture that came, and does not say what it was asked for."""
    return Missing(command=exhibit.command, output=why)


def span(seconds: float) -> str:
    """A duration in words: ``45 s``, ``12 min``, ``3 h 05 min``."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
