"""Rows as the store's light path reads them, with values that say little."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from supervisor.store.light import ClusterRow, HeartbeatRow, HoldRow, JobRow, Summary, TickRow
from tests.some import NOON

SECOND = timedelta(seconds=1)


def a_job(**changes: Any) -> JobRow:
    values = dict.fromkeys(JobRow._fields) | {
        "row": 1, "cluster": "alpha", "id": "4711", "name": "rl__gsm8k_a", "bucket": "rl", "attempt": 1, "phase": "running",
        "since": NOON, "state": "running", "scheduler_state": "RUNNING", "group_size": 1, "log_state": "none",
    }  # fmt: skip
    return JobRow(**{**values, **changes})


def a_cluster(**changes: Any) -> ClusterRow:
    values = dict.fromkeys(ClusterRow._fields) | {
        "name": "alpha", "kind": "slurm", "state": "ok", "last_good_at": NOON - 2 * SECOND, "failed_polls": 0, "jobs_live": 7,
        "clock_offset_s": 0.0, "source": "",
    }  # fmt: skip
    return ClusterRow(**{**values, **changes})


def a_beat(**changes: Any) -> HeartbeatRow:
    values = {
        "daemon": "box:7:1", "host": "box", "pid": 7, "version": "0", "started_at": NOON - timedelta(hours=1),
        "beat_at": NOON - 5 * SECOND, "interval_s": 900.0, "next_tick_at": NOON + timedelta(minutes=14), "trouble": None,
    }  # fmt: skip
    return HeartbeatRow(**{**values, **changes})


def a_tick(age: timedelta = 2 * SECOND, number: int = 9) -> TickRow:
    return TickRow(number, "box:7:1", NOON - age - SECOND, NOON - age, 0.4)


def a_summary(*clusters: ClusterRow, beats: list[HeartbeatRow] | None = None, tick: TickRow | None = None) -> Summary:
    return Summary([a_beat()] if beats is None else beats, tick or a_tick(), None, list(clusters))


def a_hold(**changes: Any) -> HoldRow:
    values = {"id": 3, "scope": "cluster", "target": "alpha", "reason": "maintenance", "by": "alice@box", "since": NOON}
    return HoldRow(**{**values, **changes})
