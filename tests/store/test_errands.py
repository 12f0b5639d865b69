"""Work to be done once: claims, leases, second tries."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from supervisor.model.errors import StoreError
from supervisor.model.job import JobKey
from supervisor.model.records import ErrandWanted
from supervisor.store.store import Store
from tests.some import HOUR, MINUTE, NOON
from tests.store.some import SECOND

LEASE = timedelta(minutes=5)


def note(name: str, kind: str = "note") -> ErrandWanted:
    return ErrandWanted(kind, None, {"name": name}, f"{kind} {name}")


def claimed(
    store: Store, owner: str = "one", at: timedelta = timedelta(0), kinds: tuple[str, ...] = ("note",)
) -> str | None:
    errand = store.claim_errand(kinds, owner, NOON + at, LEASE)
    return None if errand is None else str(errand.payload["name"])


def test_what_is_due_longest_is_claimed_first_and_by_one_only(store: Store, open_store: Callable[[], Store]) -> None:
    other = open_store()
    store.queue_errand(note("later"), NOON, due_at=NOON + SECOND)
    store.queue_errand(note("first"), NOON)

    assert claimed(store) == "first"
    assert claimed(other, "two") is None
    assert claimed(other, "two", MINUTE) == "later"
    assert claimed(store, at=MINUTE) is None


def test_only_the_wanted_kinds_are_claimed(store: Store) -> None:
    store.queue_errand(note("a", "probe"), NOON)

    assert claimed(store) is None
    assert claimed(store, kinds=("note", "probe")) == "a"


def test_a_claim_runs_out_and_the_late_owner_can_no_longer_settle_it(store: Store) -> None:
    """After a crash somebody else takes over (house, idea 4)."""
    store.queue_errand(note("a"), NOON)
    first = store.claim_errand(["note"], "one", NOON, LEASE)
    assert first is not None

    second = store.claim_errand(["note"], "two", NOON + LEASE, LEASE)

    assert second is not None
    assert (second.id, second.tries) == (first.id, 2)
    assert not store.finish_errand(first.id, "one", NOON + LEASE)
    assert not store.fail_errand(first.id, "one", NOON + LEASE, error="late", retry_at=NOON)
    assert store.finish_errand(second.id, "two", NOON + LEASE)
    assert not store.finish_errand(second.id, "two", NOON + LEASE)


def test_a_claim_can_be_kept_for_longer(store: Store) -> None:
    store.queue_errand(note("a"), NOON)
    errand = store.claim_errand(["note"], "one", NOON, LEASE)
    assert errand is not None

    assert store.keep_errand(errand.id, "one", NOON + MINUTE, LEASE)

    assert claimed(store, "two", LEASE) is None
    assert claimed(store, "two", LEASE + MINUTE) == "a"
    assert not store.keep_errand(errand.id, "one", NOON + HOUR, LEASE)


def test_a_failed_errand_is_due_again_later_and_can_be_given_up(store: Store) -> None:
    store.queue_errand(note("a"), NOON)
    errand = store.claim_errand(["note"], "one", NOON, LEASE)
    assert errand is not None

    store.fail_errand(errand.id, "one", NOON, error="disk full", retry_at=NOON + HOUR)
    assert store.next_errand_at(["note"]) == NOON + HOUR
    assert claimed(store, at=MINUTE) is None
    assert claimed(store, at=HOUR) == "a"
    store.fail_errand(errand.id, "one", NOON + HOUR, error="disk still full", retry_at=None)

    assert store.errands_open() == []
    assert store.next_errand_at(["note"]) is None
    assert not store.queue_errand(note("a"), NOON + HOUR)


def test_of_many_claimers_at_once_each_errand_has_one(store: Store, open_store: Callable[[], Store]) -> None:
    """SKIP LOCKED where the server has it, one writer where the file has one."""
    names = [f"n{number}" for number in range(12)]
    for name in names:
        store.queue_errand(note(name), NOON)
    stores = [open_store() for _ in range(4)]

    def work(number: int) -> list[str]:
        mine: list[str] = []
        while len(mine) < len(names) and (name := claimed(stores[number], f"owner {number}")) is not None:
            mine.append(name)
        return mine

    with ThreadPoolExecutor(4) as pool:
        taken = [name for mine in pool.map(work, range(4)) for name in mine]
    while (name := claimed(store)) is not None:  # a claimer that lost a race may have gone home early
        taken.append(name)

    assert sorted(taken) == sorted(names)


def test_an_errand_for_a_job_that_was_never_stored_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match=r"cluster-a/1 .*never stored"):
        store.queue_errand(ErrandWanted("note", JobKey("cluster-a", "1", "x"), {}, "d"), NOON)
