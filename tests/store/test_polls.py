"""One poll, one transaction: what is written of it, what is refused, and what is read back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.errors import StoreError
from supervisor.model.facts import Held, LogFacts
from supervisor.model.job import JobKey, JobState, Outcome
from supervisor.model.lifecycle import Phase, Sign
from supervisor.model.records import AttemptRecord, ClusterState, ErrandWanted
from supervisor.store.bodies import body_of, held_of
from supervisor.store.faults import StaleWrite
from supervisor.store.store import Store
from tests.some import HOUR, MINUTE, NOON
from tests.store.some import SECOND, attempts, ended, full_job, move, new_job, poll, status

LONG_AGO = NOON - 1000 * HOUR


def unstored(job: Held) -> Held:
    """The job without what the store numbers."""
    return replace(job, row=None, version=0)


# ---------------------------------------------------------------- round trip


def test_a_job_is_read_back_exactly_as_it_was_written(store: Store) -> None:
    """House, idea 6: current state in one table, whole."""
    written = full_job()

    (recorded,) = store.record(poll(written))

    (read,) = store.held("cluster-a", ended_after=LONG_AGO)
    assert read == recorded
    assert unstored(read) == written
    assert (read.row, read.version) == (recorded.row, 1)
    assert store.job(read.row or 0) == read


_times = st.datetimes(timezones=st.just(NOON.tzinfo))  # type: ignore[arg-type]
st.register_type_strategy(type(NOON), _times)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))


@given(st.builds(Held, row=st.just(7), version=st.just(3)))
def test_any_job_survives_its_own_text(job: Held) -> None:
    """Whatever a parser may put into a job comes back: any text, any number, any time."""
    assert held_of(7, 3, body_of(job)) == job


def test_what_could_not_be_read_back_is_not_stored(store: Store) -> None:
    job = new_job()
    wrong = job.having(observation=replace(job.observation, exit_code="1"))  # type: ignore[arg-type]

    with pytest.raises(StoreError, match=r"Held can't be stored: .*exit_code"):
        store.record(poll(wrong))

    assert store.held("cluster-a", ended_after=LONG_AGO) == []


NASTY = {
    "separators": "a|b\x1fc,d;e\tf",
    "newlines": "a\nb\r\nc",
    "quotes": 'it\'s "quoted"; DROP TABLE job; --',
    "escape codes": "\x1b[2J\x1b]0;owned\x07",
    "percent signs": "%s %(name)s ?1 :name",
    "four thousand characters": "x" * 4000,
    "other scripts": "訓練 🚀 ñ",
}


@pytest.mark.parametrize("name", NASTY.values(), ids=NASTY.keys())
def test_a_name_is_only_data(store: Store, name: str) -> None:
    job = new_job(name=name)

    store.record(poll(job, attempts=attempts([job])))

    assert [held.observation.name for held in store.held("cluster-a", ended_after=LONG_AGO)] == [name]
    assert [found.name for found in store.find_jobs(name)] == [name]


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"], ids=["NUL", "half a surrogate pair"])
def test_a_name_that_no_database_holds_does_not_stop_its_cluster(store: Store, name: str) -> None:
    job = new_job(name=name)

    store.record(poll(job, new_job("43"), attempts=attempts([job])))

    assert [found.name for found in store.find_jobs("42")] == ["a\ufffdb" if name == "a\0b" else "a?b"]
    assert len(store.held("cluster-a", ended_after=LONG_AGO)) == 2


def test_a_step_counter_beyond_all_bounds_does_not_stop_its_cluster(store: Store) -> None:
    job = new_job(log=LogFacts(step=10**30, total=10**31))

    store.record(poll(job))

    (held,) = store.held("cluster-a", ended_after=LONG_AGO)
    assert held.log.step == 10**30


def test_the_same_id_on_two_clusters_or_used_again_is_another_job(store: Store) -> None:
    """POLL-11."""
    first, elsewhere = new_job("42"), new_job("42", cluster="cluster-b")
    again = replace(first, key=JobKey("cluster-a", "42", "2000"))

    store.record(poll(first, again))
    store.record(poll(elsewhere, cluster="cluster-b"))

    assert {job.key for job in store.held("cluster-a", ended_after=LONG_AGO)} == {first.key, again.key}
    assert [job.key for job in store.held("cluster-b", ended_after=LONG_AGO)] == [elsewhere.key]


@pytest.mark.parametrize("count", [1, 23, 24, 700])
def test_few_and_many_jobs_are_stored_alike(store: Store, count: int) -> None:
    """The bulk path and the small one write the same."""
    jobs = [new_job(str(number)) for number in range(count)]
    steps = [move(job, Phase.RUNNING)[1] for job in jobs]
    errands = [ErrandWanted("note", job.key, {"n": 1}, f"note {job.key.id}") for job in jobs]

    first = store.record(poll(*jobs, transitions=steps, attempts=attempts(jobs), errands=errands))
    moved = [move(job, Phase.SUSPECT) for job in first]
    second = store.record(
        poll(
            *[job for job, _ in moved],
            at=MINUTE,
            transitions=[step for _, step in moved],
            attempts=attempts(jobs),
            errands=errands,
        )
    )

    assert store.held("cluster-a", ended_after=LONG_AGO) == second
    assert [unstored(job).life.phase for job in second] == [Phase.SUSPECT] * count
    assert len(store.errands_open()) == count
    last = second[-1].row or 0
    assert [step.number for step in store.transitions(last)] == [1, 2]
    assert len(store.attempts(last)) == 1
    assert len(store.changes(last)) == 2


# ---------------------------------------------------------------- writers


def test_the_same_record_again_stores_nothing_twice(store: Store) -> None:
    """A commit whose answer was lost is found out, not repeated."""
    (job,) = store.record(poll(new_job()))
    moved, step = move(job, Phase.SUSPECT)
    record = poll(moved, new_job("43"), at=MINUTE, transitions=[step], errands=[ErrandWanted("note", job.key, {}, "n")])
    first = store.record(record)

    again = store.record(record)

    assert again == first
    assert [one.number for one in store.transitions(job.row or 0)] == [1]
    assert len(store.held("cluster-a", ended_after=LONG_AGO)) == 2
    assert len(store.errands_open()) == 1


def test_another_poll_with_the_time_of_a_stored_one_is_refused(store: Store) -> None:
    store.record(poll(new_job()))

    with pytest.raises(StaleWrite, match="same time"):
        store.record(poll(new_job("43")))


def test_a_stale_writer_is_refused_and_nothing_of_its_poll_is_stored(
    store: Store, open_store: Callable[[], Store]
) -> None:
    """No transition is doubled: who decided on an older state has to decide again."""
    (job,) = store.record(poll(new_job()))
    moved, step = move(job, Phase.SUSPECT)
    open_store().record(poll(moved, at=SECOND, transitions=[step]))

    with pytest.raises(StaleWrite, match="1 of 2 jobs"):
        store.record(poll(moved, new_job("43"), at=MINUTE, transitions=[step], status=status(failed_polls=9)))

    assert [one.number for one in store.transitions(job.row or 0)] == [1]
    assert [held.key.id for held in store.held("cluster-a", ended_after=LONG_AGO)] == ["42"]
    assert [one.at for one in store.polls("cluster-a", NOON)] == [NOON, NOON + SECOND]
    kept = store.cluster_status("cluster-a")
    assert kept is not None
    assert kept.failed_polls == 0


def test_a_job_that_is_stored_but_not_held_is_refused_as_new_and_can_be_looked_up(store: Store) -> None:
    """An end that accounting shows once more, long after the job was forgotten, makes no second life."""
    (job,) = store.record(poll(new_job()))
    (gone,) = store.record(poll(ended(job).having(life=replace(job.life, phase=Phase.DONE)), at=SECOND))
    assert store.held("cluster-a", ended_after=NOON + MINUTE) == []

    with pytest.raises(StaleWrite, match="stored already"):
        store.record(poll(new_job(), new_job("43"), at=MINUTE))

    assert store.known("cluster-a", [job.key, JobKey("cluster-a", "43", "1000")]) == [gone]


def test_a_transition_without_its_job_is_refused_whole(store: Store) -> None:
    _, step = move(new_job("99"), Phase.SUSPECT)

    with pytest.raises(StoreError, match="cluster-a/99"):
        store.record(poll(new_job(), transitions=[step]))

    assert store.held("cluster-a", ended_after=LONG_AGO) == []
    assert store.polls("cluster-a", LONG_AGO) == []


def test_who_lost_the_lease_stores_nothing(store: Store) -> None:
    """Two daemons never poll one cluster at the same time; a late one is held to that."""
    store.take_cluster("cluster-a", "one", NOON, NOON + MINUTE)
    store.take_cluster("cluster-a", "two", NOON + MINUTE, NOON + HOUR)

    with pytest.raises(StaleWrite, match="two"):
        store.record(poll(new_job(), at=2 * MINUTE), owner="one")

    (job,) = store.record(poll(new_job(), at=3 * MINUTE), owner="two")
    assert store.held("cluster-a", ended_after=LONG_AGO) == [job]


def test_a_naive_time_is_refused(store: Store) -> None:
    naive = NOON.replace(tzinfo=None)

    with pytest.raises(StoreError, match="without a time zone"):
        store.record(replace(poll(new_job()), at=naive))
    with pytest.raises(StoreError, match="without a time zone"):
        store.begin_tick(naive, "d")


# ---------------------------------------------------------------- what is kept


def test_steps_are_numbered_in_a_life_and_read_back_with_their_evidence(store: Store) -> None:
    """Decisions are kept for ever (house, idea 6)."""
    job = new_job()
    suspect, first = move(job, Phase.SUSPECT)
    failed, second = move(suspect, Phase.TERMINAL, Sign.FAILED, Outcome.FAILED)

    (held,) = store.record(poll(failed, transitions=[first, second]))
    _, third = move(held, Phase.CLEANUP, Sign.LADDER_STARTED, Outcome.FAILED)
    store.record(poll(held, at=MINUTE, transitions=[third], tick=2))

    steps = store.transitions(held.row or 0)
    assert [(step.number, step.tick, step.transition) for step in steps] == [
        (1, 1, first),
        (2, 1, second),
        (3, 2, third),
    ]
    assert store.transitions_since(NOON) == steps
    assert store.transitions_since(NOON + SECOND) == []


def test_history_has_a_row_only_where_the_state_changed(store: Store) -> None:
    """Unchanged observations are not stored again (house, idea 6)."""
    (job,) = store.record(poll(new_job()))
    (job,) = store.record(poll(job.having(log=LogFacts(step=3, last_output_at=NOON)), at=MINUTE, tick=2))
    slower = replace(job.observation, scheduler_state="COMPLETING", state=JobState.COMPLETING)
    (job,) = store.record(poll(job.having(observation=slower), at=2 * MINUTE, tick=3))

    looks = store.changes(job.row or 0)

    assert [(look.scheduler_state, look.since, look.until, look.tick) for look in looks] == [
        ("RUNNING", NOON, NOON + 2 * MINUTE, 1),
        ("COMPLETING", NOON + 2 * MINUTE, None, 3),
    ]


def test_a_poll_that_changed_nothing_writes_no_job(store: Store) -> None:
    (job,) = store.record(poll(new_job()))

    assert store.record(poll(at=MINUTE, listed=1)) == []

    assert store.held("cluster-a", ended_after=LONG_AGO) == [job]
    assert [(one.listed, one.changed) for one in store.polls("cluster-a", NOON)] == [(1, 1), (1, 0)]


def test_a_failed_poll_leaves_every_job_as_it_was(store: Store) -> None:
    """POLL-1."""
    (job,) = store.record(poll(new_job()))
    away = status(state=ClusterState.UNKNOWN, reason="slurm_load_jobs error: Unable to contact slurm controller")

    store.record(poll(at=MINUTE, good=False, status=away, listed=0))

    assert store.held("cluster-a", ended_after=LONG_AGO) == [job]
    assert store.cluster_status("cluster-a") == away
    assert [(one.good, one.reason) for one in store.polls("cluster-a", NOON + SECOND)] == [(False, away.reason)]


def at_attempt(job: Held, number: int, **seen: object) -> Held:
    observation = replace(job.observation, key=JobKey("cluster-a", job.key.id, f"{number}000"), attempt=number, **seen)  # type: ignore[arg-type]
    return job.having(life=replace(job.life, attempt=number), observation=observation)


@pytest.mark.parametrize("others", [0, 30])
def test_every_attempt_is_kept_for_ever_with_the_last_word_on_it(store: Store, others: int) -> None:
    """The attempt that a job stands at is the job itself; when another follows, it is kept, told of or not."""
    rest = [new_job(f"9{number}") for number in range(others)]
    job, *rest = store.record(poll(new_job(), *rest, attempts=attempts([new_job()])))
    assert store.attempts(job.row or 0) == [(1, job.observation)]

    preempted = replace(job.observation, state=JobState.PREEMPTED, ended_at=NOON)
    told = [AttemptRecord(job=job.key, number=1, observation=preempted), *attempts([at_attempt(job, 2)])]
    second, *rest = store.record(poll(at_attempt(job, 2), *rest, at=MINUTE, attempts=told))
    assert store.attempts(job.row or 0) == [(1, preempted), (2, second.observation)]

    third, *rest = store.record(poll(at_attempt(second, 3), *rest, at=2 * MINUTE))
    assert store.attempts(job.row or 0) == [(1, preempted), (2, second.observation), (3, third.observation)]


def test_an_attempt_that_was_over_before_its_job_was_seen_is_kept(store: Store) -> None:
    """POLL-7: accounting tells of attempts that nobody watched."""
    job = at_attempt(new_job(), 2)
    first = replace(job.observation, state=JobState.NODE_FAILED, ended_at=NOON)

    (held,) = store.record(poll(job, attempts=[AttemptRecord(job=job.key, number=1, observation=first)]))

    assert store.attempts(held.row or 0) == [(1, first), (2, job.observation)]


@pytest.mark.parametrize(
    ("phase", "held"),
    [(Phase.WEDGED, True), (Phase.TERMINAL, True), (Phase.CLEANUP, True), (Phase.DONE, False)],
)
def test_what_lives_or_is_not_done_stays_held(store: Store, phase: Phase, held: bool) -> None:
    job = new_job(phase=phase)
    store.record(poll(job))

    assert [one.key for one in store.held("cluster-a", ended_after=NOON + HOUR)] == ([job.key] if held else [])
    assert [one.key for one in store.held("cluster-a", ended_after=NOON - SECOND)] == [job.key]


def test_the_end_of_a_job_is_dated_once_until_it_runs_again(store: Store) -> None:
    """A later clean-up step does not make an old end a new one; a requeue does take it back."""
    (job,) = store.record(poll(new_job(phase=Phase.TERMINAL)))
    (job,) = store.record(poll(job.having(life=replace(job.life, phase=Phase.DONE)), at=HOUR))
    assert store.held("cluster-a", ended_after=NOON + MINUTE) == []

    (job,) = store.record(poll(job.having(life=replace(job.life, phase=Phase.BRING_UP)), at=2 * HOUR))

    assert store.held("cluster-a", ended_after=NOON + 9 * HOUR) == [job]


def test_an_errand_wanted_twice_is_queued_once_for_ever(store: Store) -> None:
    wanted = ErrandWanted("note", new_job().key, {"outcome": "failed"}, "note cluster-a/42 1000 1")
    store.record(poll(new_job(), errands=[wanted, wanted]))
    errand = store.claim_errand(["note"], "d", NOON, timedelta(minutes=5))
    assert errand is not None
    store.finish_errand(errand.id, "d", NOON)

    store.record(poll(at=MINUTE, errands=[wanted]))

    assert store.errands_open() == []
    assert errand.cluster == "cluster-a"
    assert errand.job_row is not None
    assert errand.payload == {"outcome": "failed"}


# ---------------------------------------------------------------- clusters, finding jobs


def test_a_cluster_is_read_back_as_it_was_written(store: Store) -> None:
    store.put_status(status("cluster-b"))
    store.put_status(
        status("cluster-a", headroom=None, polled_at=None, reason="maintenance", state=ClusterState.SKIPPED)
    )
    store.put_status(status("cluster-b", failed_polls=2))

    assert [one.name for one in store.cluster_statuses()] == ["cluster-a", "cluster-b"]
    assert store.cluster_status("cluster-b") == status("cluster-b", failed_polls=2)
    assert store.cluster_status("cluster-c") is None


def test_a_job_is_found_by_its_full_name_its_id_or_a_part_of_its_name(store: Store) -> None:
    """Contract: ``JOB`` is ``cluster/id``, an id, or a unique part of a name."""
    store.record(poll(new_job("4711", name="rl__gsm8k_A"), new_job("4712", name="rl__gsm8k_B")))
    store.record(poll(new_job("4711", cluster="cluster-b", name="sft__100%"), cluster="cluster-b"))

    def found(text: str) -> list[str]:
        return sorted(f"{one.cluster}/{one.id}" for one in store.find_jobs(text))

    assert found("cluster-a/4711") == ["cluster-a/4711"]
    assert found("4711") == ["cluster-a/4711", "cluster-b/4711"]
    assert found("GSM8K_a") == ["cluster-a/4711"]
    assert found("gsm8k") == ["cluster-a/4711", "cluster-a/4712"]
    assert found("0%") == ["cluster-b/4711"]
    assert found("r_gsm8k") == []
    assert found("471") == []


def test_living_and_then_newer_jobs_are_found_first(store: Store) -> None:
    """An id that was used again means its newest bearer."""
    old, new, live = new_job(), new_job(), new_job()
    old = replace(ended(old), key=JobKey("cluster-a", "42", "1"), first_seen_at=NOON - 3 * HOUR)
    new = replace(ended(new), key=JobKey("cluster-a", "42", "2"), first_seen_at=NOON)
    live = replace(live, key=JobKey("cluster-a", "42", "3"), first_seen_at=NOON - 2 * HOUR)
    rows = {job.row: job.key.incarnation for job in store.record(poll(old, new, live))}

    assert [rows[found.row] for found in store.find_jobs("42")] == ["3", "2", "1"]
