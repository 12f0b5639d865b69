"""No healthy run is flagged: the healthy and benign cases of the labelled corpus, through ears and eyes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.dialects import follow, summarise
from tests.detectors.looking import found_in
from tests.diagnosis import corpus

CASES = [case for case in corpus.cases() if case["kind"] in ("healthy", "benign")]
BUCKETS = {"rl": "rl", "sft": "sft", "pretrain": "sft", "eval": "eval", "datagen": "datagen", "infra": "other"}


@pytest.mark.skipif(not CASES, reason="the labelled cases are not beside this repository")
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_no_healthy_or_benign_log_raises_a_flag(case: dict[str, Any]) -> None:
    """RL-5, RL-6, EVAL-3, NOISE-1: what looks bad and is not."""
    bucket = BUCKETS[case["job_type"]]
    log = case["log"].encode()
    state, _ = follow(None, log, 0)

    assert summarise(state, bucket, ended=True) is not None
    assert found_in(case["log"], bucket=bucket, name="train-42") == []


SAMPLES = Path(__file__).parents[1] / "dialects" / "samples"
"""Logs of real programs: transformers' Trainer of two versions, TRL, torch elastic, Ray."""


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.log")), ids=lambda path: path.stem)
def test_real_logs_are_flagged_only_where_their_numbers_are_none(path: Path) -> None:
    """SFT-4, RL-14"""
    bucket = "rl" if "trl" in path.stem or "ray" in path.stem else "sft"
    rules = {finding.rule for finding in found_in(path.read_bytes().decode(), bucket=bucket, name="train-42")}

    assert rules == ({"SFT-4"} if "nan" in path.stem else set())
