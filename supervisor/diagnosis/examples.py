"""Signatures held against single lines, without a scan: for the packs' own examples and for `signatures test`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from supervisor.diagnosis.catalogue import Catalogue, Signature
from supervisor.diagnosis.lines import Line, take_apart

CONFIDENCE_ORDER = {"high": 2, "medium": 1, "low": 0}


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding of `check`."""

    pack: str
    code: str
    text: str
    is_crosstalk: bool = False


def match(signature: Signature, verifier: re.Pattern[bytes], line: Line) -> re.Match[bytes] | None:
    """The entry's match in a line: in its message if the pattern is anchored, else anywhere in it."""
    text = line.text.rstrip()
    if not signature.pattern.at_start:
        found = verifier.search(text)
    else:
        found = verifier.match(text, line.start) or _in_frames(verifier, text)
    if found is None or not all(where.holds(_captured(found, where.group)) for where in signature.where):
        return None
    return found


def _in_frames(verifier: re.Pattern[bytes], text: bytes) -> re.Match[bytes] | None:
    """A bar's redraws share one line with what was printed after them."""
    if b"\r" not in text:
        return None
    for frame in text.split(b"\r"):
        part = take_apart(frame)
        if found := verifier.match(part.text, part.start):
            return found
    return None


def _captured(found: re.Match[bytes], group: str) -> str | None:
    value = found[group]
    return None if value is None else value.decode("latin-1")


def preference(signature: Signature, found: re.Match[bytes]) -> tuple[int, int]:
    """Of several entries that match one line, the one with the greatest preference speaks for it."""
    return CONFIDENCE_ORDER[signature.confidence], found.end() - found.start()


def check(catalogue: Catalogue) -> Iterator[Problem]:
    """Hold every entry against its own examples, its counter-examples and all other entries' examples."""
    verifiers = {signature.code: _anchored(signature) for signature in catalogue.signatures}
    for signature in catalogue.signatures:
        verifier = verifiers[signature.code]
        for example in signature.matches:
            lines = [take_apart(line) for line in example.encode().split(b"\n")]
            hit = next((line for line in lines if match(signature, verifier, line)), None)
            if hit is None:
                yield Problem(signature.pack, signature.code, f"does not match its own example {example!r}")
            else:
                yield from _crosstalk(catalogue, verifiers, signature, hit)
        for spared in signature.spares:
            if any(match(signature, verifier, take_apart(line)) for line in spared.encode().split(b"\n")):
                yield Problem(signature.pack, signature.code, f"matches what it should spare: {spared!r}")


def _crosstalk(
    catalogue: Catalogue, verifiers: dict[str, re.Pattern[bytes]], signature: Signature, line: Line
) -> Iterator[Problem]:
    own = match(signature, verifiers[signature.code], line)
    assert own is not None
    for other in catalogue.signatures:
        if other.code == signature.code or other.code in signature.crosstalk:
            continue
        if not other.pattern.may_match(line.text):
            continue
        found = match(other, verifiers[other.code], line)
        if found and preference(other, found) >= preference(signature, own) and not other.frame:
            text = (
                f"its example is taken by {other.code} ({other.pack}): {line.text.decode('utf-8', 'replace')!r}; "
                "raise this entry's confidence, lower or narrow the other's, or list it under `crosstalk`"
            )
            yield Problem(signature.pack, signature.code, text, is_crosstalk=True)


def _anchored(signature: Signature) -> re.Pattern[bytes]:
    return signature.pattern.verifier()
