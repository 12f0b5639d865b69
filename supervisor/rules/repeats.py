"""The same failure again: on the same job it is deterministic, whatever the line alone would say (CHAIN-5). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def judged(document: Mapping[str, Any], before: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """``document``, a diagnosis in the contract's form, seen beside those of earlier attempts and links of the same run.

    ``before``: where each was (``attempt 1``, ``alpha/4711``) and its document. An equal fingerprint proves the repeat; a
    diagnosis that found nothing has none, and repeats nothing.
    """
    mark = document.get("fingerprint")
    same = [where for where, earlier in before if mark and earlier.get("fingerprint") == mark]
    if not same:
        return dict(document)
    reason = f"the same failure as in {', '.join(same)}: it repeats, so it will not pass by itself (CHAIN-5)"
    return {
        **document,
        "transience": "deterministic",
        "reasons": [*document.get("reasons", ()), reason],
        "repeats": same,
        "action": f"Do not relaunch unchanged. {document.get('action') or ''}".strip(),
    }
