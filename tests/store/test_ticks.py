"""The daemon's own book: ticks, signs of life, leases."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from supervisor.model.errors import StoreError
from supervisor.model.records import ErrandWanted, Heartbeat
from supervisor.store.store import Store
from tests.some import HOUR, MINUTE, NOON
from tests.store.some import SECOND

DAY = timedelta(days=1)


def test_a_tick_is_kept_with_what_it_said(store: Store) -> None:
    first = store.begin_tick(NOON, "host:1")
    second = store.begin_tick(NOON + MINUTE, "host:1")

    store.finish_tick(first, NOON + 6 * SECOND, "┌─┐ ☃", '{"schema_version": 1}')

    assert second > first
    kept = store.tick(first)
    assert kept is not None
    assert (kept.took_s, kept.report, kept.document) == (6.0, "┌─┐ ☃", '{"schema_version": 1}')
    assert store.last_tick(finished=True) == kept
    unfinished = store.last_tick()
    assert unfinished is not None
    assert (unfinished.number, unfinished.finished_at, unfinished.report) == (second, None, None)
    assert store.tick(second + 1) is None


def test_ticks_are_found_by_their_utc_day(store: Store) -> None:
    numbers = [store.begin_tick(NOON + shift, "d") for shift in (-DAY, -12 * HOUR, timedelta(0), 12 * HOUR)]

    assert [tick.number for tick in store.ticks_of(NOON.date())] == numbers[1:3]


def test_an_unknown_tick_can_not_be_finished(store: Store) -> None:
    with pytest.raises(StoreError, match="no tick 7"):
        store.finish_tick(7, NOON, "", "{}")


def test_the_newest_sign_of_life_of_each_daemon_is_kept(store: Store) -> None:
    """LIVE-8."""
    beat = Heartbeat(
        daemon="box:7:1",
        host="box",
        pid=7,
        version="0.1.0",
        started_at=NOON,
        beat_at=NOON,
        interval_s=900,
        next_tick_at=None,
    )
    later = replace(beat, beat_at=NOON + MINUTE, next_tick_at=NOON + HOUR, trouble="disk 97 % full")
    other = replace(beat, daemon="box:8:1", pid=8, beat_at=NOON + SECOND)

    for one in (beat, later, other):
        store.beat(one)

    assert store.heartbeats() == [later, other]


def test_a_cluster_has_one_owner_until_its_lease_runs_out(store: Store, open_store: Callable[[], Store]) -> None:
    """Two daemons on one database share the clusters, and never poll one at the same time."""
    other = open_store()
    assert store.take_cluster("cluster-a", "one", NOON, NOON + MINUTE)
    assert not other.take_cluster("cluster-a", "two", NOON + 59 * SECOND, NOON + HOUR)
    assert other.take_cluster("cluster-b", "two", NOON, NOON + MINUTE)
    assert store.take_cluster("cluster-a", "one", NOON + 30 * SECOND, NOON + 2 * MINUTE)
    assert store.owned("one", NOON + MINUTE) == ["cluster-a"]
    assert store.owned("two", NOON + MINUTE) == []

    assert other.take_cluster("cluster-a", "two", NOON + 2 * MINUTE, NOON + HOUR)
    assert not store.release_cluster("cluster-a", "one")
    assert other.release_cluster("cluster-a", "two")
    assert store.take_cluster("cluster-a", "one", NOON + 2 * MINUTE, NOON + HOUR)


def test_what_a_dead_daemon_held_is_free_at_once(store: Store) -> None:
    """Its process is known to be gone: nobody waits for its lease to run out."""
    store.take_cluster("cluster-a", "dead", NOON, NOON + HOUR)
    store.take_cluster("cluster-b", "alive", NOON, NOON + HOUR)
    store.queue_errand(ErrandWanted("note", None, {}, "n"), NOON)
    assert store.claim_errand(["note"], "dead", NOON, HOUR) is not None
    assert store.owners(NOON) == {"dead", "alive"}

    store.disown("dead", NOON + MINUTE)

    assert store.owners(NOON + MINUTE) == {"alive"}
    assert store.take_clusters(["cluster-a", "cluster-b"], "next", NOON + MINUTE, NOON + HOUR) == {"cluster-a"}
    assert store.claim_errand(["note"], "next", NOON + MINUTE, HOUR) is not None


def test_of_many_takers_at_once_one_gets_the_cluster(store: Store, open_store: Callable[[], Store]) -> None:
    stores = [open_store() for _ in range(6)]

    def take(number: int) -> bool:
        return stores[number].take_cluster("cluster-a", f"owner {number}", NOON, NOON + MINUTE)

    with ThreadPoolExecutor(6) as pool:
        took = list(pool.map(take, range(6)))

    assert sum(took) == 1
    assert [lease.owner for lease in store.leases(NOON)] == [f"owner {took.index(True)}"]


def test_the_clock_of_a_server_on_this_machine_agrees_with_ours(store: Store) -> None:
    """Leases need clocks that agree; for a file there is only one clock."""
    from datetime import UTC, datetime

    assert abs(store.clock_offset(datetime.now(UTC))) < timedelta(seconds=60)
