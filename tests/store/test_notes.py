"""What is learnt of jobs beside their state."""

from __future__ import annotations

import math

from supervisor.model.records import LogCursor
from supervisor.store.entries import Measurement
from supervisor.store.store import Store
from tests.some import HOUR, MINUTE, NOON
from tests.store.some import new_job, poll


def row_of(store: Store, job: str = "42") -> int:
    (held,) = store.record(poll(new_job(job), at=int(job) * MINUTE))
    return held.row or 0


def cursor(row: int, path: str, offset: int) -> LogCursor:
    return LogCursor(
        job_row=row,
        path=path,
        device=66306,
        inode=2**64 - 1,
        offset=offset,
        lines=None,
        head="9c0f",
        kept="cluster-a-42.log",
        kept_from=0,
        kept_from_line=1,
        state={"dialect": "skyrl", "step": [1, None]},
    )


def test_how_far_a_log_was_read_is_remembered(store: Store) -> None:
    """FIND-3; inode numbers may use all 64 bits."""
    first, second = row_of(store), row_of(store, "43")
    store.put_log_cursor(cursor(first, "/a.out", 10))
    store.put_log_cursors([cursor(first, "/a.out", 20), cursor(first, "/a.err", 5), cursor(second, "/b.out", 1)])

    assert store.log_cursors(first) == [cursor(first, "/a.err", 5), cursor(first, "/a.out", 20)]
    assert [one.path for one in store.log_cursors_of([first, second])] == ["/a.err", "/a.out", "/b.out"]


def test_measurements_are_kept_by_metric_and_the_same_again_changes_nothing(store: Store) -> None:
    row = row_of(store)
    values = [
        Measurement("reward", NOON, 0.5, 14),
        Measurement("reward", NOON, 0.619, 15),
        Measurement("loss", NOON + MINUTE, math.nan),
        Measurement("grad_norm", NOON + MINUTE, math.inf, 10**30),
    ]

    store.put_readings(row, values)
    store.put_readings(row, values)
    store.put_readings(row, [])

    assert store.measurements(row, "reward", NOON) == values[:2]
    assert store.measurements(row, "reward", NOON + MINUTE) == []
    (loss,) = store.measurements(row, "loss", NOON)
    assert math.isnan(loss.value)
    assert loss.step is None
    (norm,) = store.measurements(row, "grad_norm", NOON)
    assert norm.value == math.inf


def test_a_diagnosis_is_kept_for_each_attempt_and_its_like_are_found(store: Store) -> None:
    """CHAIN-5: identical failures that repeat are told by their fingerprint."""
    first, second = row_of(store), row_of(store, "43")
    document = {"category": "nccl-timeout", "fingerprint": "9c0f", "cause": {"line": 812}, "summary": "…"}
    store.put_diagnosis(first, 1, document, NOON)
    store.put_diagnosis(first, 2, document | {"summary": "again"}, NOON + MINUTE)
    store.put_diagnosis(second, 1, document, NOON + HOUR)
    store.put_diagnosis(second, 2, {"category": "none", "fingerprint": None}, NOON + HOUR)
    store.put_diagnosis(second, 2, {"category": "oom", "fingerprint": "77"}, NOON + HOUR)

    assert [(one.attempt, one.document) for one in store.diagnoses(first)] == [
        (1, document),
        (2, document | {"summary": "again"}),
    ]
    incidents = {one.fingerprint: one for one in store.incidents(NOON)}
    assert (incidents["9c0f"].times, incidents["9c0f"].jobs) == (3, ("cluster-a/43", "cluster-a/42"))
    assert (incidents["9c0f"].first_at, incidents["9c0f"].last_at) == (NOON, NOON + HOUR)
    assert [one.times for one in store.incidents(NOON + MINUTE, "9c0f")] == [2]
    assert incidents["77"].times == 1
