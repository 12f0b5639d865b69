"""Where a job leaves its trials: told by its config entry, its command line, its log, or Harbor's own defaults. Pure, and the one
place that knows.

The first of these that names a place has it: the setting, the newest word of the log (it is what the program really used),
the command line. Words that only a shell can fill in (``$RUN``) name no place.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence

from supervisor.dialects.line import Line
from supervisor.model.readings import Reading, ReadingKind
from supervisor.model.trials import TrialPlace

NAME = "places"
MARKS = (b"trials_dir", b"trials-dir", b"jobs_dir", b"jobs-dir", b"Results written to ")
LONGEST = 16_000
"""Characters of a line that are searched: a whole configuration may be printed in one."""

_VALUE = r"""["']?\s*(?::|=|\s)\s*["']?([^\s"',;{}()<>]{1,1000})"""
_TRIALS = re.compile(r"(?:^|[\s\"'+.,{(-])trials[_-]dir" + _VALUE)
_JOBS = re.compile(r"(?:^|[\s\"'+.,{(-])jobs[_-]dir" + _VALUE)
_JOB_NAME = re.compile(r"(?:^|[\s\"'+.,{(-])job[_-]name" + _VALUE)
_WRITTEN = re.compile(r"Results written to (\S{1,1000})/result\.json\s*$")
_PROGRAM = re.compile(r"(?:^|/)harbor$")
_LITERAL = re.compile(r"[^$`*?{}\[\]<>|\x00-\x1f]+")


def read(line: Line) -> list[Reading]:
    """What a log line says of where trials go: a printed configuration, a traced command, Harbor's last words."""
    found = told_by(line.body[:LONGEST])
    if found is None:
        return []
    label, where = found
    return [line.reading(ReadingKind.BANNER, NAME, label=label, detail=where)]


def told_by(text: str) -> tuple[str, str] | None:
    """(``trials`` or ``jobs``: what the folder holds; the folder as printed) of a line, where it says so."""
    if (found := _WRITTEN.search(text)) is not None:
        return ("trials", found[1]) if _usable(found[1]) else None
    if (found := _TRIALS.search(text)) is not None and _usable(found[1]):
        return "trials", found[1]
    if (found := _JOBS.search(text)) is not None and _usable(found[1]):
        name = _JOB_NAME.search(text)
        if name is not None and _usable(name[1]) and "/" not in name[1] and name[1] not in ("null", "None"):
            return "trials", posixpath.join(found[1], name[1])
        return "jobs", found[1]
    return None


def place_of(
    command: str | None, workdir: str | None, told: Mapping[str, str] | None = None, setting: str | None = None
) -> TrialPlace | None:
    """Where this job's trials lie, as far as anything says. ``told``: what its log said, by what the folder holds;
    ``setting``: the place that the config gives for it, already filled in."""
    if setting:
        return TrialPlace(setting.rstrip("/") or "/", "trial_stores")
    for label in ("trials", "jobs"):
        if told and label in told and (where := absolute(told[label], workdir)) is not None:
            return TrialPlace(where, "its log", of_jobs=label == "jobs")
    return _from_command(command, workdir) if command else None


def _from_command(command: str, workdir: str | None) -> TrialPlace | None:
    words = _words(command)
    trials = _option(words, "trials_dir")
    if trials is not None and (where := absolute(trials, workdir)) is not None:
        return TrialPlace(where, "trials_dir in its command")
    by_harbor = any(_PROGRAM.search(word) for word in words[:8])
    jobs = _option(words, "jobs_dir", *(("o",) if by_harbor else ()))
    name = _option(words, "job_name")
    said = "jobs_dir in its command"
    if jobs is None and by_harbor and _option(words, "config", "c") is None:
        jobs, said = "jobs", "Harbor's default folder"
    if jobs is not None and (where := absolute(jobs, workdir)) is not None:
        if name is not None and _usable(name) and "/" not in name:
            return TrialPlace(posixpath.join(where, name), said, sure=said != "Harbor's default folder")
        return TrialPlace(where, said, of_jobs=True, sure=said != "Harbor's default folder")
    checkpoints = _option(words, "ckpt_path")
    if checkpoints is not None and (where := absolute(checkpoints, workdir)) is not None:
        return TrialPlace(posixpath.join(posixpath.dirname(where), "trace_jobs"), "beside its ckpt_path", sure=False)
    return None


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _option(words: Sequence[str], *names: str) -> str | None:
    """The last value of an option, however it is spelt: ``--jobs-dir X``, ``--jobs-dir=X``, ``+a.b.jobs_dir=X``."""
    found: str | None = None
    for at, word in enumerate(words):
        head, equals, value = word.partition("=")
        key = head.lstrip("+-").rpartition(".")[2].replace("-", "_")
        if key not in names or (len(key) == 1 and not word.startswith("-")):
            continue
        if equals:
            found = value
        elif word.startswith("-") and at + 1 < len(words) and not words[at + 1].startswith("-"):
            found = words[at + 1]
    return found


def absolute(where: str, workdir: str | None) -> str | None:
    """The place as an absolute path or a URL; None for one that cannot be told from here."""
    where = where.strip("\"'").removeprefix("file://")
    if not _usable(where):
        return None
    if "://" in where:
        return where.rstrip("/")
    if where.startswith(("/", "~/")):
        return posixpath.normpath(where)
    if not workdir or not workdir.startswith("/"):
        return None
    return posixpath.normpath(posixpath.join(workdir, where))


def _usable(where: str) -> bool:
    return _LITERAL.fullmatch(where) is not None and where not in ("null", "None", "~", "/", ".")
