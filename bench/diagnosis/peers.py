"""This program and what people use instead, side by side on labelled cases. See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

OURS = f"{sys.executable} -m supervisor.app.diagnose --json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--corpus", required=True, type=Path, help="folder with score.py, inflate.py and dev/cases.jsonl"
    )
    parser.add_argument("--views", default="plain,2:40,folder:40")
    parser.add_argument("--gpualert-python", help="a Python that has PyPI's gpualert")
    options = parser.parse_args()
    runs = {
        "this program": ["--command", OURS],
        "last traceback": ["--peer", "last-error"],
        "grep first": ["--peer", "grep-first"],
    }
    if options.gpualert_python:
        runs["gpualert"] = ["--peer", "gpualert", "--gpualert-python", options.gpualert_python]
    print(f"{'':16} {'view':8} {'category':>9} {'key line':>9} {'macro-F1':>9} {'false alarms':>13} {'missed':>7}")
    for name, arguments in runs.items():
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            argv = [
                sys.executable,
                str(options.corpus / "score.py"),
                "--views",
                options.views,
                "--json",
                report.name,
                "--timeout",
                "120",
            ]
            subprocess.run([*argv, *arguments], check=True, stdout=subprocess.DEVNULL)
            views = json.loads(Path(report.name).read_text("utf-8"))["views"]
        for view, row in views.items():
            line = "-" if row["line_top1"] is None else f"{row['line_top1']:.1%}"
            print(
                f"{name:16} {view:8} {row['accuracy']:9.1%} {line:>9} {row['macro_f1']:9.3f} "
                f"{row['false_alarms']:6} of {row['quiet']:3} {row['faults_missed']:4} of {row['faults']}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
