"""The labelled cases, where they are laid beside the repository or named by DIAGNOSIS_CORPUS."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PLACES = (os.environ.get("DIAGNOSIS_CORPUS", ""), str(ROOT.parent / "shared" / "corpus"))


def folder() -> Path | None:
    """The folder with `score.py`, `inflate.py` and `dev/cases.jsonl`."""
    return next((Path(place) for place in PLACES if place and (Path(place) / "dev" / "cases.jsonl").is_file()), None)


def cases() -> list[dict[str, Any]]:
    """All labelled cases; empty where the corpus is not here."""
    place = folder()
    if place is None:
        return []
    text = (place / "dev" / "cases.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def tools() -> tuple[Any, Any]:
    """The corpus' own `score` and `inflate` modules."""
    place = folder()
    assert place is not None
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
    import inflate  # type: ignore[import-not-found]
    import score  # type: ignore[import-not-found]

    return score, inflate
