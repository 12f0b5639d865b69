"""Are the readings of the labelled corpus right: step, total, last metrics, and whether work had begun? Goal: all of them.

    python -m bench.readings.truth [--corpus DIR]

The labels were read by hand from each log (``bench/readings/labels.toml``); the corpus lies beside the repository or
where ``DIAGNOSIS_CORPUS`` says. Logs of infrastructure alone bear no readings and are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from supervisor.dialects import follow, summarise

ROOT = Path(__file__).parents[2]
LABELS = Path(__file__).parent / "labels.toml"
PLACES = (os.environ.get("DIAGNOSIS_CORPUS", ""), str(ROOT.parent / "shared" / "corpus"))
KINDS = {"rl": "rl", "sft": "sft", "pretrain": "sft", "eval": "eval", "datagen": "datagen"}
ASPECTS = ("step", "total", "metrics", "begun")


def cases(place: str | None = None) -> list[dict[str, Any]]:
    """The labelled logs that are about work; empty where the corpus is not here."""
    for folder in (place,) if place else PLACES:
        file = Path(folder) / "dev" / "cases.jsonl" if folder else None
        if file is not None and file.is_file():
            read = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
            return [case for case in read if case["job_type"] in KINDS]
    return []


def labels() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(LABELS.read_text("utf-8"))


def faults(case: Mapping[str, Any], label: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(aspect, what was read and what stands there) of each aspect that was read wrong."""
    state, _ = follow(None, case["log"].encode(), 0)
    summary = summarise(state, KINDS[case["job_type"]], ended=True)
    progress = summary.progress
    for aspect, got in (("step", progress.step), ("total", progress.total)):
        if got != label.get(aspect):
            yield aspect, f"read {got}, printed {label.get(aspect)}"
    wanted = label.get("metrics", {})
    wrong = {
        key: (summary.metrics.get(key), wanted.get(key))
        for key in {*wanted, *summary.metrics}
        if not _same(summary.metrics.get(key), wanted.get(key))
    }
    if wrong:
        yield "metrics", ", ".join(f"{key} read {got}, printed {value}" for key, (got, value) in sorted(wrong.items()))
    begun = summary.last_progress is not None
    if begun != label.get("begun", False):
        yield "begun", f"read {begun}, printed {label.get('begun', False)}"


def _same(got: object, wanted: object) -> bool:
    if isinstance(got, float) and isinstance(wanted, float) and math.isnan(got) and math.isnan(wanted):
        return True
    return got == wanted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", help="the folder that holds dev/cases.jsonl")
    args = parser.parse_args()
    found = cases(args.corpus)
    if not found:
        print("truth: the labelled corpus is not here; nothing was measured", file=sys.stderr)
        return 2 if args.corpus else 0
    known = labels()
    wrong = dict.fromkeys(ASPECTS, 0)
    for case in found:
        for aspect, text in faults(case, known.get(case["id"], {})):
            wrong[aspect] += 1
            print(f"{case['id']}: {aspect}: {text}")
    for aspect, count in wrong.items():
        print(f"{aspect}: {len(found) - count} of {len(found)} right")
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
