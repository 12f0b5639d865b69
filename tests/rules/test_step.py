"""Stories of jobs over many readings: what follows, and what never does, also when a reading fails or a step is run again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.buckets import bucket_of
from supervisor.detectors import examine
from supervisor.model.job import JobState, Outcome
from supervisor.model.lifecycle import Phase, Sign
from supervisor.model.polling import Polled
from supervisor.rules.memory import Memory
from supervisor.rules.step import step
from tests.scripted import World
from tests.some import BOOK, HOUR, MINUTE, NOON, some_held, some_observation, some_polled


class Watcher:
    """What the daemon does with readings, without the daemon: memory, lines, and a record of all moves."""

    def __init__(self, world: World) -> None:
        self.world, self.memory, self.lines, self.since = world, Memory(), {}, None
        self.moves, self.errands, self.rows = [], {}, 0

    def look(self, **spoilt):
        reading = self.world.read(self.memory.watch(self.lines, self.since), **spoilt)
        if not isinstance(reading, Polled):
            return None
        now = self.world.now
        steps = step(self.memory, reading, BOOK, lambda name: bucket_of(name, {}), examine, now)
        again = step(self.memory, reading, BOOK, lambda name: bucket_of(name, {}), examine, now)
        assert again == steps, "a step run again after a crash gives the same"
        for held in steps.changed.values():
            self.rows += held.row is None
            self.memory.put(held if held.row is not None else replace(held, row=self.rows))
        self.memory.forget(now - timedelta(days=3))
        known = {held.key for held in (*steps.changed.values(), *steps.retired)}
        assert {move.job for move in steps.transitions} <= known, "each move belongs to a job that is written with it"
        self.lines, self.since = reading.lines, reading.at if reading.ends_read else self.since
        self.moves += steps.transitions
        for errand in steps.errands:
            self.errands.setdefault(errand.dedupe, errand)
        return steps

    def life(self, job):
        return self.memory[job].life

    def flags(self, job):
        return {flag.finding.rule: flag.finding for flag in self.memory[job].flags}


def running(world, *jobs):
    for job in jobs:
        world.submit(job)
        world.start(job)
    watcher = Watcher(world)
    watcher.look()
    world.pass_time()
    for job in jobs:
        world.print(job)
    watcher.look()
    return watcher


def test_a_job_is_followed_from_the_queue_to_its_end():
    world = World()
    world.submit("42")
    watcher = Watcher(world)
    watcher.look()
    assert watcher.life("42").phase is Phase.BRING_UP

    world.pass_time()
    world.start("42")
    watcher.look()
    assert watcher.life("42").phase is Phase.BRING_UP, "running is no proof of progress (LIVE-1)"

    world.pass_time()
    world.print("42")
    watcher.look()
    assert watcher.life("42").phase is Phase.RUNNING

    world.pass_time()
    world.end("42", JobState.COMPLETED, 0)
    watcher.look()
    assert (watcher.life("42").phase, watcher.life("42").outcome) == (Phase.TERMINAL, Outcome.COMPLETED)
    assert not watcher.errands


def test_a_failed_job_is_terminal_with_its_exit_code_and_asks_for_its_autopsy_once():
    """FAIL-1, POLL-4"""
    world = World()
    watcher = running(world, "42")
    world.end("42", JobState.FAILED, 3)
    watcher.look()
    watcher.look()

    assert watcher.memory["42"].observation.exit_code == 3
    assert watcher.flags("42")["FAIL-1"].text == "failed (exit code 3)"
    assert [errand.kind for errand in watcher.errands.values()] == ["autopsy"]


def test_a_failed_reading_changes_no_job():
    """POLL-1"""
    world = World()
    watcher = running(world, "42")
    before = dict(watcher.memory)
    world.unreachable = "slurm_load_jobs error: Socket timed out on send/recv operation"
    for _ in range(20):
        world.pass_time(HOUR)
        watcher.look()

    assert watcher.memory == before


def test_a_job_that_left_the_queue_while_accounting_is_down_stays_where_it_is():
    """POLL-4: and is judged by what accounting says when it is back."""
    world = World()
    watcher = running(world, "42")
    world.accounting_up = False
    world.end("42", JobState.FAILED, 1)
    for _ in range(10):
        world.pass_time()
        watcher.look()
    assert watcher.life("42").phase is Phase.RUNNING
    assert watcher.flags("42")["POLL-4"].text.startswith("not listed, and accounting could not be asked")

    world.accounting_up = True
    watcher.look()
    assert watcher.life("42").outcome is Outcome.FAILED


def test_a_job_in_neither_list_vanishes_at_the_third_good_reading_and_not_before():
    """POLL-4: K = 2 further good readings."""
    world = World()
    watcher = running(world, "42")
    world.end("42", JobState.FAILED, 1)
    phases = []
    for _ in range(4):
        world.pass_time()
        watcher.look(lag=frozenset({"42"}))
        phases.append(watcher.life("42").phase)

    assert phases == [Phase.RUNNING, Phase.RUNNING, Phase.TERMINAL, Phase.TERMINAL]
    assert watcher.life("42").outcome is Outcome.VANISHED

    watcher.look()
    assert watcher.life("42").outcome is Outcome.FAILED, "accounting that lagged corrects it"


def test_a_requeued_job_is_the_same_job_with_another_attempt():
    """POLL-11: the submit time changes, the job does not."""
    world = World()
    watcher = running(world, "42")
    world.pass_time()
    world.requeue("42", JobState.NODE_FAILED)
    watcher.look()
    assert watcher.life("42").phase is Phase.BRING_UP
    assert watcher.life("42").attempt == 2
    assert watcher.life("42").outcome is None

    world.pass_time()
    world.start("42")
    world.pass_time()
    world.print("42")
    watcher.look()
    watcher.look()
    assert watcher.life("42").phase is Phase.RUNNING


def test_an_attempt_that_came_and_went_between_two_readings_is_counted():
    world = World()
    watcher = running(world, "42")
    world.pass_time()
    world.requeue("42")
    world.pass_time()
    world.start("42")
    world.pass_time()
    world.end("42", JobState.FAILED, 1)
    watcher.look()

    assert watcher.life("42").attempt == 2
    assert watcher.life("42").outcome is Outcome.FAILED


def test_a_reused_id_is_another_job():
    """POLL-11"""
    world = World()
    watcher = running(world, "42")
    world.pass_time()
    world.end("42", JobState.COMPLETED, 0)
    old = world.jobs.pop("42")
    watcher.look()
    world.pass_time(HOUR)
    world.submit("42", name="another")
    steps = watcher.look()

    assert watcher.memory["42"].observation.name == "another"
    assert watcher.life("42").attempt == 1
    assert watcher.life("42").phase is Phase.BRING_UP
    assert steps.retired and steps.retired[0].life.outcome is Outcome.VANISHED, (
        "its record went before its end was told"
    )
    assert steps.retired[0].key.incarnation == old.incarnation


def test_a_timed_out_link_names_its_successor():
    """CHAIN-1: the dependency is forgotten by the scheduler once satisfied, not by us."""
    world = World()
    world.submit("42")
    world.start("42")
    world.submit("43", after="42")
    watcher = Watcher(world)
    watcher.look()
    world.pass_time(HOUR)
    world.end("42", JobState.TIMED_OUT)
    watcher.look()

    assert watcher.life("42").outcome is Outcome.HANDED_ON
    assert watcher.memory["42"].successor == "43"
    assert watcher.memory["43"].predecessor == "42"
    assert watcher.flags("42")["CHAIN-1"].text == "time limit; goes on as 43"
    assert not watcher.errands


def test_a_timed_out_job_that_nobody_follows_is_a_fault():
    """CHAIN-4"""
    world = World()
    watcher = running(world, "42")
    world.end("42", JobState.TIMED_OUT)
    watcher.look()

    assert watcher.life("42").outcome is Outcome.TIMED_OUT
    assert "CHAIN-4" in watcher.flags("42")


def test_a_successor_that_shows_itself_late_corrects_the_outcome():
    """CHAIN-1"""
    world = World()
    watcher = running(world, "42")
    world.end("42", JobState.TIMED_OUT)
    watcher.look()
    world.submit("43", after="42")
    watcher.look()

    assert watcher.life("42").outcome is Outcome.HANDED_ON
    assert watcher.memory["42"].successor == "43"


def test_a_job_seen_only_in_accounting_is_listed_as_ended():
    """POLL-7: it came and went while nobody looked."""
    world = World()
    watcher = Watcher(world)
    world.submit("7")
    world.start("7")
    world.pass_time()
    world.end("7", JobState.FAILED, 1)
    world.pass_time(timedelta(days=2))
    watcher.look()

    assert (watcher.life("7").phase, watcher.life("7").outcome) == (Phase.TERMINAL, Outcome.FAILED)


def test_silence_makes_suspect_and_new_output_heals():
    """LIVE-2"""
    world = World()
    watcher = running(world, "42")
    world.pass_time(16 * MINUTE)
    watcher.look()
    assert watcher.life("42").phase is Phase.SUSPECT
    assert "silent since" in watcher.flags("42")["LIVE-2"].text

    world.print("42")
    watcher.look()
    assert watcher.life("42").phase is Phase.RUNNING
    assert "LIVE-2" not in watcher.flags("42")


def test_a_job_that_nothing_happened_to_is_examined_again_when_its_silence_is_over_the_limit():
    """LIVE-2: by time alone, though its line and its log did not change."""
    world = World()
    watcher = running(world, "42")
    world.pass_time(MINUTE)
    assert not watcher.look().changed, "unchanged jobs cost no step"
    world.pass_time(15 * MINUTE)
    assert watcher.look().changed["42"].life.phase is Phase.SUSPECT


def test_a_job_pending_for_long_is_told_and_nothing_else():
    """LIVE-7"""
    world = World()
    world.submit("42")
    watcher = Watcher(world)
    watcher.look()
    assert not watcher.flags("42")
    world.pass_time(31 * MINUTE)
    watcher.look()
    assert watcher.flags("42")["LIVE-7"].severity == "note"
    assert watcher.life("42").phase is Phase.BRING_UP


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["start", "print", "end", "fail", "timeout", "requeue", "vanish", "submit", "wait"]),
        st.sampled_from(["1", "2", "3"]),
        st.sampled_from(["good", "good", "unreachable", "accounting_down", "lag", "skip"]),
    ),
    max_size=25,
)


def play(events):
    """The events on a world, with a reading after each; yields after each reading."""
    world = World()
    for job in "123":
        world.submit(job)
    watcher = Watcher(world)
    for what, job, how in events:
        world.pass_time()
        it = world.jobs[job]
        live = it.state.live
        if what == "start" and it.state is JobState.PENDING:
            world.start(job)
        elif what == "print" and it.state is JobState.RUNNING:
            world.print(job)
        elif what in ("end", "fail", "timeout") and it.state is JobState.RUNNING:
            ended = {"end": JobState.COMPLETED, "fail": JobState.FAILED, "timeout": JobState.TIMED_OUT}[what]
            world.end(job, ended, 1 if what == "fail" else 0)
        elif what == "requeue" and it.state is JobState.RUNNING:
            world.requeue(job)
        elif what == "vanish" and it.state.ended:
            it.listed = False
        elif what == "submit" and not live:
            continue
        if how == "skip":
            continue
        world.unreachable = "Unable to contact slurm controller" if how == "unreachable" else None
        world.accounting_up = how != "accounting_down"
        watcher.look(lag=frozenset("123") if how == "lag" else frozenset())
        yield world, watcher
    world.unreachable, world.accounting_up = None, True
    for _ in range(4):
        world.pass_time(3 * MINUTE)
        watcher.look()
    yield world, watcher


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_no_job_that_lives_is_ever_held_as_ended(events):
    """POLL-1, POLL-3, POLL-4: whatever readings fail, lag or are skipped."""
    for world, watcher in play(events):
        for job, held in watcher.memory.items():
            if world.jobs[job].state.live:
                assert held.life.phase.live, (job, held.life, world.jobs[job])


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_once_all_is_read_again_every_job_stands_as_it_truly_is(events):
    """Nothing missed, nothing invented: phase, outcome, attempt."""
    *_, (world, watcher) = play(events)
    words = {
        JobState.COMPLETED: Outcome.COMPLETED,
        JobState.FAILED: Outcome.FAILED,
        JobState.TIMED_OUT: Outcome.TIMED_OUT,
    }
    for job, it in world.jobs.items():
        life = watcher.life(job)
        assert life.outcome is words.get(it.state), (life, it)
        assert life.attempt == it.attempt


@settings(max_examples=100, deadline=None)
@given(EVENTS)
def test_every_move_has_a_reason_and_every_end_its_evidence(events):
    """No claim without its quote."""
    *_, (_world, watcher) = play(events)
    for move in watcher.moves:
        assert move.read.reason
        if move.read.sign not in (Sign.MISSING, Sign.UNSEEN) and move.after.phase is Phase.TERMINAL:
            assert move.read.evidence


def test_a_job_whose_record_was_asked_for_and_is_not_there_vanishes_at_once():
    """POLL-5: on Kubernetes and iris one confirming question is enough; on Slurm accounting lags, and two further readings are."""
    world = World()
    watcher = running(world, "42", "43")
    world.end("42", JobState.FAILED, 1)
    world.end("43", JobState.FAILED, 1)
    reading = world.read(watcher.memory.watch(watcher.lines, watcher.since), lag=frozenset({"42", "43"}))
    steps = step(
        watcher.memory, replace(reading, gone=frozenset({"42"})), BOOK, lambda name: "other", examine, world.now
    )

    assert steps.changed["42"].life.outcome is Outcome.VANISHED
    assert steps.changed["43"].life.phase is Phase.RUNNING


def test_a_job_held_as_vanished_that_is_listed_again_lives_again_whatever_its_log_does():
    """POLL-4: accounting and queue that lied together do not bury a running job."""
    world = World()
    watcher = running(world, "42", "43")
    for job in ("42", "43"):
        world.jobs[job].listed = False
    for _ in range(3):
        world.pass_time()
        watcher.look()
    assert watcher.life("42").outcome is Outcome.VANISHED

    world.pass_time(20 * MINUTE)
    world.print("43")
    for job in ("42", "43"):
        world.jobs[job].listed = True
    watcher.look()
    watcher.look()
    assert (watcher.life("42").phase, watcher.life("42").outcome) == (Phase.SUSPECT, None), "its log is silent"
    assert (watcher.life("43").phase, watcher.life("43").outcome) == (Phase.RUNNING, None)


def test_an_end_that_tells_little_takes_nothing_away_from_what_was_known():
    """POLL-4: what accounting or a lifecycle record leaves out did not cease to be so."""
    seen = some_observation(partition="gpu", time_limit=HOUR, nodes=("node01",), node_count=1, account="lab")
    memory = Memory([some_held(observation=seen)])
    told = some_observation(
        state=JobState.FAILED, user=None, submitted_at=None, started_at=None, nodes=(), node_count=None, exit_code=3
    )

    steps = step(memory, some_polled(ended=[told]), BOOK, lambda *_: "other", lambda *_: (), NOON)

    after = steps.changed["42"].observation
    assert (after.state, after.exit_code) == (JobState.FAILED, 3)
    kept = ("user", "submitted_at", "started_at", "partition", "time_limit", "account", "nodes", "node_count")
    assert {name: getattr(after, name) for name in kept} == {name: getattr(seen, name) for name in kept}
