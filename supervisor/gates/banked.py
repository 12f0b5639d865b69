"""How far a run has banked its work: complete checkpoints by number, as their folders were listed (RL-8, RL-11).

A folder of the newest step without the trainer's own marker may be a save under way, or one that failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from supervisor.model.findings import Quote
from supervisor.model.probe import Case, Role

QUOTED = 400
_ENTRY = re.compile(r"(\d{1,12}) (\d{1,18}) (directory|file|link|other) (.+)$")
_STEP = re.compile(r"(?:global_step|checkpoint|step|iter)[-_a-z]*?[-_]?(\d{1,12})(?:-of-\d+|\.\w+)?", re.I)
_WHOLE = re.compile(r"\d{1,12}")
_NAMED = re.compile(r"(?:global_step|checkpoint|step|iter\w*)\D{0,4}(\d{1,12})", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Banked:
    """What the listed folders hold."""

    steps: tuple[int, ...]
    """Complete ones, ascending by number: ``global_step_100`` comes after ``global_step_20``."""
    doubtful: int | None
    """A newer one that no marker or content proves complete."""
    interval: float | None
    """Steps between saves, the median; None on fewer than three."""
    quote: Quote | None
    """Of the highest complete one; of the statement that there is none."""

    @property
    def step(self) -> int | None:
        return self.steps[-1] if self.steps else None


@dataclass(slots=True)
class _Folder:
    """One listed folder."""

    path: str
    steps: dict[int, tuple[str, Quote]] = field(default_factory=dict)
    entries: int = 0
    marked: int | None = None


def of(case: Case) -> Banked | None:
    """None where no folder of checkpoints was read."""
    folders: list[_Folder] = []
    statements: list[Quote] = []
    for exhibit in case.read(Role.CHECKPOINTS):
        if exhibit.file is not None:
            _read(case.lines(exhibit.file), exhibit.file, folders, statements)
    if not folders and not statements:
        return None
    held = {folder.path: folder.entries for folder in folders}
    complete: dict[int, Quote] = {}
    doubtful: int | None = None
    for folder in folders:
        for step, (path, quote) in folder.steps.items():
            if _complete(folder, step, held.get(path)):
                complete[step] = quote
            else:
                doubtful = max(step, doubtful or 0)
    steps = tuple(sorted(complete))
    gaps = [after - before for before, after in pairwise(steps)]
    return Banked(
        steps=steps,
        doubtful=doubtful if doubtful is not None and (not steps or doubtful > steps[-1]) else None,
        interval=median(gaps) if len(gaps) >= 2 else None,
        quote=complete[steps[-1]] if steps else next(iter(statements), None),
    )


def _complete(folder: _Folder, step: int, entries: int | None) -> bool:
    """By the trainer's marker where it has one; else the newest by what stands in it, and older ones by being older."""
    if folder.marked is not None:
        return step <= folder.marked
    if entries is not None:
        return entries > 0
    return step < max(folder.steps)


def _read(lines: Sequence[str], file: str, folders: list[_Folder], statements: list[Quote]) -> None:
    """Any text; lines under no folder say nothing."""
    at: _Folder | None = None
    marker = False
    for number, line in enumerate(lines, 1):
        quote = Quote(file, number, line[:QUOTED])
        if line.startswith("# dir "):
            at, marker = _Folder(line[6:].rstrip("/")), False
            folders.append(at)
            statements.append(quote)
        elif line.startswith("# absent "):
            at, marker = None, False
            statements.append(quote)
        elif line.startswith("# marker "):
            path = line[9:].rsplit("/", 1)[0]
            at, marker = next((each for each in folders if each.path == path), None), True
        elif line.startswith("#"):
            marker = False
        elif at is not None and marker:
            number_said = _marked(line)
            if number_said is not None:
                at.marked = max(number_said, at.marked or 0)
                marker = False
        elif at is not None and (entry := _ENTRY.match(line)) is not None:
            at.entries += 1
            step = _STEP.fullmatch(entry[4])
            if step is not None and entry[3] == "directory":
                at.steps[int(step[1])] = (f"{at.path}/{entry[4]}", quote)


def _marked(text: str) -> int | None:
    """The step that a marker's content names: a bare number, or the name of a checkpoint."""
    if _WHOLE.fullmatch(text.strip()):
        return int(text)
    found = _NAMED.search(text)
    return int(found[1]) if found is not None else None


def unread(case: Case) -> Iterable[str]:
    """Failures of listings that were asked for."""
    return (each.failure or "it put out nothing" for each in case.of(Role.CHECKPOINTS) if not each.read)
