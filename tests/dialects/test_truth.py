"""The labelled corpus, read: step, total, last metrics and whether work had begun, held against labels read by hand."""

from __future__ import annotations

from typing import Any

import pytest

from bench.readings import truth

CASES = truth.cases()
LABELS = truth.labels()


@pytest.mark.skipif(not CASES, reason="the labelled cases are not beside this repository")
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_a_labelled_log_is_read_as_a_person_reads_it(case: dict[str, Any]) -> None:
    """BUCKET-3, SFT-1, RL-12: what a log does not say is not there, and what it says is read exactly."""
    assert list(truth.faults(case, LABELS.get(case["id"], {}))) == []


@pytest.mark.skipif(not CASES, reason="the labelled cases are not beside this repository")
def test_each_label_is_of_a_log_that_is_there() -> None:
    assert set(LABELS) <= {case["id"] for case in CASES}
