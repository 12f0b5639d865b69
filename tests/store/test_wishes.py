"""What people ask for and are told."""

from __future__ import annotations

import pytest

from supervisor.model.errors import StoreError, UsageError
from supervisor.store.store import Store
from tests.some import HOUR, MINUTE, NOON


def test_a_request_is_answered_once(store: Store) -> None:
    number = store.ask_tick("alice", NOON)
    assert [(one.id, one.kind, one.asked_by) for one in store.open_requests("tick")] == [(number, "tick", "alice")]
    assert store.open_requests("probe") == []

    assert store.answer_request(number, NOON + MINUTE, "tick 7")
    assert not store.answer_request(number, NOON + HOUR, "tick 8")

    answered = store.request(number)
    assert (answered.answered_at, answered.result) == (NOON + MINUTE, "tick 7")
    assert store.open_requests() == []


def test_a_request_that_is_still_open_is_not_made_twice(store: Store) -> None:
    first = store.ask_tick("alice", NOON)

    assert store.ask_tick("bob", NOON + MINUTE) == first
    assert store.ask("probe", "bob", NOON, {"job": 3}) != store.ask("probe", "bob", NOON, {"job": 4})
    store.answer_request(first, NOON, "done")
    assert store.ask_tick("bob", NOON + MINUTE) != first


def test_an_unknown_request_is_an_error(store: Store) -> None:
    with pytest.raises(StoreError, match="no request 99"):
        store.request(99)


def test_a_hold_stands_until_it_is_lifted(store: Store) -> None:
    """KILL-5."""
    everything = store.add_hold("all", "", "quiet weekend", "alice", NOON)
    one = store.add_hold("cluster", "cluster-a", "maintenance", "alice", NOON)
    again = store.add_hold("cluster", "cluster-a", "other words", "bob", NOON + HOUR)

    assert again == one
    assert store.holds() == [everything, one]
    assert store.lift_holds("cluster", "cluster-a", "bob", NOON + HOUR) == 1
    assert store.lift_holds("cluster", "cluster-a", "bob", NOON + HOUR) == 0
    assert store.lift_hold(everything.id, "bob", NOON + HOUR)
    assert not store.lift_hold(everything.id, "bob", NOON + HOUR)
    assert store.holds() == []


@pytest.mark.parametrize(("scope", "target"), [("world", "x"), ("all", "x"), ("cluster", "")])
def test_a_hold_of_nothing_or_of_an_unknown_scope_is_refused(store: Store, scope: str, target: str) -> None:
    with pytest.raises(UsageError):
        store.add_hold(scope, target, "r", "alice", NOON)


def test_the_same_alert_is_one_alert_until_it_clears(store: Store) -> None:
    """SAY-5: said once, repeated when it changes, closed when it clears."""
    first = store.open_alert("cluster-a/42", "silence", "watch", "silent for 31 min", NOON)
    store.alert_said(first.id, NOON)
    again = store.open_alert("cluster-a/42", "silence", "fault", "silent for 46 min", NOON + MINUTE)

    assert (again.id, again.opened_at, again.times_said) == (first.id, NOON, 1)
    assert (again.severity, again.text, again.last_said_text) == ("fault", "silent for 46 min", "silent for 31 min")
    assert again.last_said_at == NOON
    assert store.alerts() == [again]

    assert store.close_alert(first.id, NOON + HOUR)
    assert not store.close_alert(first.id, NOON + HOUR)
    assert store.alerts() == []
    assert [one.closed_at for one in store.alerts(closed_after=NOON)] == [NOON + HOUR]
    assert store.open_alert("cluster-a/42", "silence", "watch", "silent again", NOON + 2 * HOUR).id != first.id
