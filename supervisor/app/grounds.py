"""Does what a verdict rests on still stand? Asked before a person approves its kill, and before the kill is carried out."""

from __future__ import annotations

from pathlib import Path

from supervisor.app.evidence import MANIFEST, open_folder
from supervisor.gates import proof
from supervisor.model.errors import Unproven
from supervisor.model.probe import Verdict


def shaken(verdict: Verdict) -> str | None:
    """Why its evidence does not bear it any more, in words: a file was touched, a quote stands there no more (PROBE-4).

    None where it does, and where the folder is not on this machine: then the second look before the cancel stands alone.
    Blocking: it reads the folder.
    """
    path = Path(verdict.evidence)
    if not path.is_dir():
        return None
    try:
        folder = open_folder(path)
        if (folder.job, folder.attempt) != (verdict.job, verdict.attempt):
            return f"{path / MANIFEST}: it is of {folder.job.ref}, attempt {folder.attempt}"
        for quote in (*(each for score in verdict.gates for each in score.quotes), *verdict.restarts.quotes):
            if (false := proof.untrue(folder.lines, quote)) is not None:
                return f"{path}: {false.command} does not hold: {false.output}"
    except Unproven as error:
        return str(error)
    return None
