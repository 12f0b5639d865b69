"""A real job of Harbor 0.26 with the oracle agent: two solved, one not, one out of time and scored, one without a sandbox."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from supervisor.dialects import follow, summarise
from supervisor.dialects.trials import read_job, read_trial, tally

SAMPLES = Path(__file__).parent / "samples" / "harbor"
TRIALS = [read_trial((SAMPLES / f"{name}.json").read_bytes()) for name in ("t1", "t2", "t3", "t4", "tboom")]


def test_our_figures_over_the_trials_are_those_of_the_job_itself() -> None:
    """EVAL-3, EVAL-4: the trial that ran out of time is scored; the one without a sandbox is not."""
    job = read_job((SAMPLES / "job_result.json").read_bytes())
    figures = tally(TRIALS, job.planned)

    assert (figures.done, figures.mean, figures.scored, figures.exceptions) == (
        job.completed,
        job.mean,
        job.scored,
        job.exceptions,
    )
    assert (figures.passed, figures.scored, figures.mean) == (3, 4, 0.75)


def test_validity_is_as_harbor_itself_computed_it() -> None:
    stated = [
        json.loads((SAMPLES / f"{name}.json").read_text())["reward_valid"] for name in ("t1", "t2", "t3", "t4", "tboom")
    ]

    assert [trial.valid for trial in TRIALS] == stated


def test_a_jobs_own_times_bear_no_zone_and_need_the_clusters_offset() -> None:
    """POLL-10."""
    data = (SAMPLES / "job_result.json").read_bytes()
    naive = datetime.fromisoformat(json.loads(data)["updated_at"])

    assert read_job(data).updated_at is None
    assert read_job(data, timedelta(hours=2)).updated_at == naive.replace(tzinfo=UTC) - timedelta(hours=2)


@pytest.mark.parametrize("name", ["without_terminal", "terminal"])
def test_its_display_gives_trials_and_mean_with_and_without_a_terminal(name: str) -> None:
    """EVAL-1: without a terminal one line at the end, cut off at the width; with one, many redrawn frames."""
    state, _ = follow(None, (SAMPLES / f"{name}.log").read_bytes(), 0)
    summary = summarise(state, "eval", ended=True)

    assert (summary.progress.step, summary.progress.total) == (5, 5)
    assert summary.metrics["mean"] == 0.75
