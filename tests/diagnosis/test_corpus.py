"""The figures that the diagnosis is held to, on the labelled cases; the misses are printed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from supervisor.app.diagnose import find_sources, read_source
from supervisor.app.diagnose_view import as_document
from supervisor.app.packs import Prepared
from supervisor.diagnosis.diagnose import diagnose
from tests.diagnosis import corpus

CASES = corpus.cases()
needs_corpus = pytest.mark.skipif(not CASES, reason="the labelled cases are not beside this repository")


def judged(view: str, cases: list[dict[str, Any]], prepared: Prepared) -> list[dict[str, Any]]:
    score, inflate = corpus.tools()
    rows = []
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            if view == "plain":
                path = f"{folder}/job.log"
                Path(path).write_text(case["log"] + "\n", "utf-8", newline="\n")
                line = case["log"].split("\n").index(case["key_line"]) + 1
                also = [{"text": text} for text in case.get("also_key_lines", [])]
                truth = {"file": "job.log", "line": line, "text": case["key_line"], "also": also}
            else:
                size = 2.0 if view == "folder" else float(view)
                truth = inflate.inflate(case, size, 0, folder, folder=view == "folder")
                path = truth["path"]
            answer = diagnose([read_source(source, prepared) for source in find_sources([path])], prepared.catalogue)
            document = as_document(answer)
            cause = document["cause"] or {}
            breaches = ["the quote does not stand in the file"] if cause and not score.stands(path, cause) else []
            given = score.Answer(
                category=document["category"],
                transience=document["transience"],
                text=cause.get("text"),
                file=cause.get("file"),
                line=cause.get("line"),
                bad=breaches,
            )
            rows.append(score.judge(case, truth, given))
    return rows


def told(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        if not row["strict"]:
            lines.append(f"{row['id']}: said {row['got']}, is {row['truth']}")
        elif row["fault"] and not row["line"]:
            lines.append(f"{row['id']}: line {str(row['answer_line'])[:90]!r}, is {row['key_line'][:90]!r}")
    return "\n".join(lines)


@needs_corpus
@pytest.mark.parametrize("view", ["plain", "2", "folder"])
@pytest.mark.slow
def test_category_and_key_line_are_right_and_nothing_healthy_is_called_a_fault(view: str, shipped: Prepared):
    """At least 95 % right categories and 92 % exact key lines, no false alarm, every quote byte for byte."""
    rows = judged(view, CASES, shipped)
    score, _ = corpus.tools()
    summary = score.summary(rows)
    print(
        f"\n{view}: category {summary['accuracy']:.1%}, key line {summary['line_top1']:.1%}, "
        f"transience {summary['transience']:.1%}\n{told(rows)}"
    )

    assert summary["accuracy"] >= 0.95
    assert summary["line_top1"] >= 0.92
    assert summary["transience"] >= 0.85
    assert summary["false_alarms"] == 0
    assert [row["id"] for row in rows if row["bad"]] == []


@needs_corpus
@pytest.mark.slow
def test_a_sample_inside_50_mb_gives_the_same_answers(shipped: Prepared):
    rows = judged("50", CASES[5::27], shipped)
    print(told(rows))

    assert all(row["lenient"] for row in rows)
