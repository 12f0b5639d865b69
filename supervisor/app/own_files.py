"""A job's own folders beyond its log, as its command line and its output name them: where its checkpoints and session logs lie."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator

from supervisor.dialects.places import absolute
from supervisor.model.facts import Followed, Held

MOST = 4
_CHECKPOINTS = frozenset(
    {"ckpt_path", "ckpt_dir", "ckpts_dir", "checkpoint_dir", "checkpoints_dir", "checkpoint_path", "save_dir"}
    | {"default_local_dir", "save", "save_path", "output_dir"}
)
_SESSIONS = frozenset({"temp_dir", "ray_temp_dir", "ray_tmpdir", "_temp_dir", "session_dir"})
_STEP = re.compile(r"(/[^\s\"',;()<>\[\]{}|]{1,1000}?)/(?:global_step_?|checkpoint-|step[-_]?|iter_)\d{1,12}\b")


def checkpoint_dirs(held: Held, run: Followed | None) -> tuple[str, ...]:
    """Folders that hold its checkpoints: the newest one its log named, then those of its command line."""
    found: list[str] = []
    mark = run.summary.last_checkpoint if run is not None else None
    if mark is not None and (named := _STEP.search(mark.said.text)) is not None:
        found += _usable([named[1]], None)
    found += _usable(_options(held.details.command, _CHECKPOINTS), held.details.workdir)
    return tuple(dict.fromkeys(found))[:MOST]


def session_dirs(held: Held) -> tuple[str, ...]:
    """Folders with its workers' own logs, where its command says so; backends know the usual one."""
    places = _usable(_options(held.details.command, _SESSIONS), held.details.workdir)
    return tuple(dict.fromkeys(posixpath.join(place, "session_latest", "logs") for place in places))[:MOST]


def _usable(places: list[str] | Iterator[str], workdir: str | None) -> list[str]:
    found = (absolute(place, workdir) for place in places)
    return [place for place in found if place is not None and place.startswith("/") and place.isprintable()]


def _options(command: str | None, names: frozenset[str]) -> Iterator[str]:
    """Values of options by name, the last first, however they are spelt: ``--save-dir X``, ``a.b.save_dir=X``, ``SAVE_DIR=X``."""
    try:
        words = shlex.split(command or "")
    except ValueError:
        words = (command or "").split()
    found: list[str] = []
    for at, word in enumerate(words):
        head, equals, value = word.partition("=")
        key = head.lstrip("+-").rpartition(".")[2].replace("-", "_").lower()
        if key not in names:
            continue
        if equals:
            found.append(value)
        elif word.startswith("-") and at + 1 < len(words) and not words[at + 1].startswith("-"):
            found.append(words[at + 1])
    return reversed(found)
