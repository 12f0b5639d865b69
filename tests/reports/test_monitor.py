"""Is the monitor itself well? (LIVE-8)"""

from __future__ import annotations

from datetime import timedelta

import pytest

from supervisor.reports.monitor import monitor_state
from supervisor.reports.status import document, exit_code, head
from supervisor.store.light import Summary
from tests.reports.rows import a_beat, a_cluster, a_job, a_summary, a_tick
from tests.some import HOUR, MINUTE, NOON


def test_a_fresh_tick_of_a_daemon_that_lives_is_ok():
    assert monitor_state(a_summary(a_cluster()), NOON) == ("ok", None)


def test_before_any_tick_it_is_never():
    empty = Summary([], None, None, [])

    assert monitor_state(empty, NOON)[0] == "never"
    assert exit_code(empty, [], NOON) == 4
    assert document(empty, [], NOON)["monitor"]["last_tick"] is None


@pytest.mark.parametrize(
    ("summary", "gone", "state", "reason"),
    [
        (a_summary(beats=[a_beat(beat_at=NOON - timedelta(seconds=61))]), False, "dead", "gave no sign for a while; its last sign of life was 61 s ago"),
        (a_summary(), True, "dead", "does not run any more; its last sign of life was 5 s ago"),
        (a_summary(tick=a_tick(24 * MINUTE)), False, "late", "the last tick finished 24 min ago; one is due every 15 min"),
        (a_summary(beats=[a_beat(trouble="only 3 MiB free")]), False, "late", "only 3 MiB free"),
        (
            a_summary(a_cluster(state="unknown", failed_polls=2, reason="no answer")),
            False, "late", "alpha unread in 2 polls: no answer",
        ),
        (a_summary(beats=[], tick=a_tick(24 * MINUTE)), False, "dead", "the last tick finished 24 min ago"),
        (a_summary(beats=[a_beat(next_tick_at=None, beat_at=NOON - HOUR)], tick=a_tick(24 * MINUTE)), False, "dead", "finished 24 min ago"),
    ],
)  # fmt: skip
def test_a_monitor_that_is_not_well_says_why_and_exits_4(summary, gone, state, reason):
    found, why = monitor_state(summary, NOON, gone)

    assert found == state
    assert reason in why
    assert exit_code(summary, [], NOON, gone=gone) == 4
    assert head(summary, NOON, gone=gone)[0].startswith(f"monitor {state} · ")


def test_one_unread_poll_is_no_fault_of_the_monitor():
    assert monitor_state(a_summary(a_cluster(state="unknown", failed_polls=1)), NOON)[0] == "ok"


def test_ticks_from_cron_are_judged_by_their_age_alone():
    """`supervisord --once` keeps no schedule and gives no signs of life in between."""
    from_cron = a_summary(
        a_cluster(), beats=[a_beat(next_tick_at=None, beat_at=NOON - 10 * MINUTE)], tick=a_tick(10 * MINUTE)
    )

    assert monitor_state(from_cron, NOON) == ("ok", None)


@pytest.mark.parametrize(("worst", "code"), [(None, 0), ("note", 0), ("watch", 3), ("fault", 3)])
def test_what_is_flagged_makes_3(worst, code):
    assert exit_code(a_summary(a_cluster()), [a_job(), a_job(row=2, worst=worst)], NOON) == code


def test_what_waits_for_a_person_makes_3():
    assert exit_code(a_summary(a_cluster()), [], NOON, waiting=1) == 3


def test_a_dead_daemon_promises_no_next_tick():
    """A dead daemon's plan is none."""
    told = document(a_summary(), [], NOON, gone=True)["monitor"]

    assert (told["state"], told["next_tick_at"]) == ("dead", None)
    assert "next" not in head(a_summary(), NOON, gone=True)[0]


def test_a_cluster_that_was_removed_does_not_keep_the_monitor_late():
    """POLL-1: it was unread, and is not asked any more; another daemon's is; jobs that lived there are not forgotten."""
    from supervisor.reports.monitor import without_removed

    old = NOON - 24 * HOUR
    summary = a_summary(
        a_cluster(name="kept", state="unknown", polled_at=old),
        a_cluster(name="theirs", polled_at=NOON),
        a_cluster(name="gone", state="unknown", polled_at=old, failed_polls=9, jobs_live=0),
        a_cluster(name="left", state="unknown", polled_at=old, failed_polls=9, jobs_live=2),
    )

    shown = without_removed(summary, NOON, ["kept"])

    assert [each.name for each in shown.clusters] == ["kept", "theirs", "left"]
    assert "not in the config any more" in shown.clusters[2].reason
    assert monitor_state(shown, NOON, False)[0] == "ok"


def test_a_cluster_that_nobody_reads_any_more_is_not_shown_as_ok():
    """POLL-1, LIVE-1: renamed or removed in the config, or held up for two intervals."""
    from supervisor.reports.monitor import as_known_now

    summary = a_summary(
        a_cluster(name="kept", last_good_at=NOON), a_cluster(name="gone", last_good_at=NOON - 24 * HOUR)
    )

    shown = as_known_now(summary, NOON)

    assert [(each.name, each.state) for each in shown.clusters] == [("kept", "ok"), ("gone", "unknown")]
    assert "nobody reads it" in shown.clusters[1].reason
