"""Is each quote where it says it is, byte for byte? Ours and an external judge's alike (PROBE-4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from supervisor.gates.said import MOST
from supervisor.model.findings import Quote
from supervisor.model.probe import GateScore, Missing, Restarts, Score

Lines = Callable[[str], Sequence[str]]
"""As ``Case.lines``: raises KeyError, ValueError or OSError for a file that is not in the folder."""


def untrue(lines: Lines, quote: Quote) -> Missing | None:
    """Why a quote does not hold, with what stands in its place; None where it holds."""
    said = f"quote {quote.file}:{quote.line}"
    if not quote.text.strip():
        return Missing(command=said, output="the quote is empty")
    if _outside(quote.file):
        return Missing(command=said, output="the file is not inside the evidence folder")
    try:
        found = lines(quote.file)
    except (KeyError, ValueError, OSError):
        return Missing(command=said, output="there is no such file in the evidence folder")
    line = quote.line
    if line is None or isinstance(line, bool) or not 1 <= line <= len(found):
        return Missing(command=said, output=f"the file has {len(found)} lines")
    if quote.text not in found[line - 1]:
        return Missing(command=said, output=found[line - 1][:MOST] or "the line is empty")
    return None


def _outside(file: str) -> bool:
    path = PurePosixPath(file)
    return (
        not file or "\0" in file or "\\" in file or path.is_absolute() or ".." in path.parts or str(path) in (".", "..")
    )


def check(lines: Lines, scores: Iterable[GateScore]) -> tuple[GateScore, ...]:
    """The scores, each with a quote that does not hold turned into ERROR. Quotes that hold stay, as what was established."""
    return tuple(_checked(lines, score) for score in scores)


def _checked(lines: Lines, score: GateScore) -> GateScore:
    false = [(quote, why) for quote in score.quotes if (why := untrue(lines, quote)) is not None]
    if not false:
        return score
    quotes = {quote for quote, _ in false}
    return replace(
        score,
        result=Score.ERROR,
        reason=f"A quote is not in the evidence, so this does not count: {score.reason}",
        quotes=tuple(quote for quote in score.quotes if quote not in quotes),
        missing=false[0][1],
        hard=False,
        wedge=False,
        cause="",
        fix="",
    )


def check_restarts(lines: Lines, restarts: Restarts) -> Restarts:
    """``restarts`` without quotes that do not hold; without any left, nothing is said of a repeated failure."""
    kept = tuple(quote for quote in restarts.quotes if untrue(lines, quote) is None)
    if len(kept) == len(restarts.quotes):
        return restarts
    return replace(restarts, quotes=kept, same_failure=restarts.same_failure and bool(kept))
