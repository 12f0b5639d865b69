"""Verdicts as texts and back, to the byte: a digest is taken of them, and an approval stands on the digest.

The JSON is ASCII, so that quotes of any bytes survive: what was no UTF-8 in a log is half a surrogate pair here, and a database
takes none in plain text.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from supervisor.model.errors import StoreError
from supervisor.model.findings import Quote
from supervisor.model.job import JobKey
from supervisor.model.probe import Mark, Verdict
from supervisor.store.lean import Lean

_lean = Lean(Verdict)


class _Part(msgspec.Struct, frozen=True, gc=False):
    """What the next tick's rules need of a verdict beside its columns."""

    job: JobKey
    mark: Mark
    quotes: tuple[Quote, ...] = ()


def verdict_body(verdict: Verdict) -> str:
    return _ascii(_lean(verdict))


def verdict_of(number: int, text: str) -> Verdict:
    """Raises StoreError on a body that this program can't read."""
    try:
        return msgspec.convert(json.loads(text), Verdict)
    except (ValueError, msgspec.ValidationError) as error:
        raise StoreError(f"verdict {number} can't be read back: {error}") from error


def standing_body(verdict: Verdict) -> str:
    decisive = verdict.decisive
    quotes = decisive.quotes if decisive is not None else verdict.restarts.quotes
    return _ascii(_Part(verdict.job, verdict.mark, quotes))


def standing_of(number: int, text: str) -> tuple[JobKey, Mark, tuple[Quote, ...]]:
    """Key of the attempt that was judged, how far it was, and the deciding quotes."""
    try:
        part = msgspec.convert(json.loads(text), _Part)
    except (ValueError, msgspec.ValidationError) as error:
        raise StoreError(f"verdict {number} can't be read back: {error}") from error
    return part.job, part.mark, part.quotes


def reason_of(verdict: Verdict) -> str:
    """One sentence: why it ruled as it did."""
    decisive = verdict.decisive
    if decisive is not None:
        return decisive.reason
    return f"restarts: {verdict.restarts.words}" if verdict.restarts.same_failure else verdict.reasoning


def _ascii(value: Any) -> str:
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=True, separators=(",", ":"))
