"""How a verdict turned out, told from what became of the attempt that it judged (the scorecard)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pytest

from supervisor.rules.hindsight import Turned, scorecard, turned
from tests.some import HOUR, MINUTE, NOON


@dataclass(frozen=True)
class Row:
    ruling: str = "KILL"
    job: str = "cluster-a/42"
    attempt: int = 1
    attempt_now: int = 1
    taken_at: datetime = NOON
    stage: str | None = None
    outcome: str | None = None
    attempt_state: str | None = None
    step_then: int | None = 20
    step_now: int | None = 20
    progress_then: datetime | None = NOON - 10 * MINUTE
    progress_at: datetime | None = NOON - 10 * MINUTE


@pytest.mark.parametrize(
    ("row", "how"),
    [
        (Row(), Turned.OPEN),
        (Row(outcome="failed"), Turned.RIGHT),
        (Row(outcome="timed_out"), Turned.RIGHT),
        (Row(outcome="completed"), Turned.WRONG),
        (Row(step_now=21), Turned.WRONG),
        (Row(step_now=21, outcome="failed"), Turned.WRONG),
        (Row(step_then=None, step_now=None, progress_at=NOON + MINUTE), Turned.WRONG),
        (Row(stage="confirmed", outcome="cancelled"), Turned.CARRIED_OUT),
        (Row(stage="recorded", outcome="cancelled"), Turned.RIGHT),
        (Row(stage="void", step_now=21), Turned.WRONG),
        (Row(attempt_now=2, attempt_state="failed", step_now=90), Turned.RIGHT),
        (Row(attempt_now=2, step_now=90), Turned.UNKNOWN),
        (Row(outcome="vanished"), Turned.UNKNOWN),
        (Row("NO-KILL"), Turned.OPEN),
        (Row("NO-KILL", step_now=21), Turned.RIGHT),
        (Row("NO-KILL", outcome="completed"), Turned.RIGHT),
        (Row("NO-KILL", outcome="failed"), Turned.WRONG),
        (Row("NO-KILL", outcome="failed", step_now=21), Turned.RIGHT),
        (Row("ERROR", outcome="failed"), Turned.UNKNOWN),
    ],
)  # fmt: skip
def test_what_became_of_the_judged_attempt_decides(row, how):
    """KILL is right only where it never moved again; what a later attempt does says nothing of it."""
    assert turned(row) is how


def test_the_scorecard_lists_would_be_false_kills_and_kept_jobs_that_died():
    rows = [
        Row("NO-KILL", job="a/1"),
        Row("NO-KILL", job="a/2", taken_at=NOON - HOUR, outcome="failed"),
        Row("KILL", job="a/2", outcome="failed"),
        Row("NO-KILL", job="a/3", outcome="failed"),
        Row("KILL", job="a/4", step_now=30),
        Row("ERROR", job="a/5"),
    ]

    card = scorecard(rows)

    assert [each.job for each in card.would_be_false_kills] == ["a/4"]
    assert [each.job for each in card.kept_and_died] == ["a/3"]  # of a/2 the last verdict saw it
    assert {each.ruling: each.count for each in card.tallies} == {"KILL": 2, "NO-KILL": 3, "ERROR": 1}
    assert card.detect_median_s == 600


def test_time_to_detect_counts_the_first_kill_of_each_attempt():
    rows = [
        Row(taken_at=NOON),
        Row(taken_at=NOON + HOUR),
        Row(attempt=2, attempt_now=2, progress_then=NOON - 20 * MINUTE),
    ]

    assert scorecard(rows).detect_s == (600.0, 1200.0)


def test_an_empty_record_has_no_median():
    card = scorecard([])

    assert card.detect_median_s is None
    assert sum(each.count for each in card.tallies) == 0


def test_a_kill_that_was_carried_out_proves_no_verdict_on_that_attempt_right_or_wrong():
    """The second look before a cancel says KILL too, and an earlier one said NO-KILL: the end that we made is no proof of either."""
    ended = {"outcome": "cancelled"}
    rows = [
        Row("NO-KILL", **ended),
        Row("KILL", stage="confirmed", **ended),
        Row("KILL", **ended),
        Row("KILL", attempt=2, attempt_now=2, **ended),
        Row("NO-KILL", step_then=10, **ended),
    ]

    counted = {each.ruling: each.turned for each in scorecard(rows).tallies}

    assert counted["KILL"] == {Turned.CARRIED_OUT: 2, Turned.RIGHT: 1}
    assert counted["NO-KILL"] == {Turned.CARRIED_OUT: 1, Turned.RIGHT: 1}
    assert scorecard(rows).kept_and_died == ()
