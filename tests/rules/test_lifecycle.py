"""Phase × Sign → Phase: what must hold of every walk through a life."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.lifecycle import Effect, Lifecycle, Phase, Sign, SignRead
from supervisor.rules.lifecycle import CORRECTIONS, DOUBT, ENDS, TABLE, advance, born, diagram
from tests.some import NOON, some_key

SIGNS = st.lists(st.sampled_from(Sign), max_size=30)


def walk(signs, life=None):
    life = life or born(NOON)
    for number, sign in enumerate(signs):
        move = advance(some_key(), life, SignRead(sign, "because"), NOON + timedelta(minutes=number))
        yield move
        life = move.after


@given(SIGNS, st.sampled_from(sorted(DOUBT)))
def test_doubt_moves_no_job_from_any_point_of_any_life(signs, doubt):
    """Doubt moves nothing: POLL-1, POLL-4, FIND-4."""
    life = born(NOON)
    for move in walk(signs):
        life = move.after
    after = advance(some_key(), life, SignRead(doubt, "?"), NOON).after

    assert (after.phase, after.outcome, after.attempt, after.since) == (
        life.phase,
        life.outcome,
        life.attempt,
        life.since,
    )


@given(SIGNS)
def test_cleanup_is_reached_only_through_terminal(signs):
    for move in walk(signs):
        if move.after.phase is Phase.CLEANUP:
            assert move.before.phase in (Phase.TERMINAL, Phase.CLEANUP)


@given(SIGNS)
def test_a_job_ends_only_by_a_sign_that_says_so(signs):
    """Not seen is never the same as not there."""
    for move in walk(signs):
        if move.after.phase is Phase.TERMINAL and move.before.phase is not Phase.TERMINAL:
            assert move.read.sign in ENDS
            assert move.after.outcome is not None


@given(SIGNS)
def test_an_outcome_stands_exactly_while_a_life_is_over(signs):
    for move in walk(signs):
        assert (move.after.outcome is None) == move.after.phase.live


@given(SIGNS)
def test_an_outcome_once_written_changes_only_as_the_corrections_list(signs):
    """A late successor, or an end found after all (CHAIN-1, POLL-4)."""
    for move in walk(signs):
        before, after = move.before, move.after
        if before.phase is Phase.TERMINAL and after.phase is Phase.TERMINAL and before.outcome is not after.outcome:
            assert (before.outcome, move.read.sign) in CORRECTIONS


@given(SIGNS)
def test_only_a_new_attempt_or_being_listed_again_opens_an_ended_life(signs):
    """POLL-4: the second is read of vanished jobs alone (see the test of its sign)."""
    for move in walk(signs):
        if not move.before.phase.live and move.after.phase.live:
            assert move.read.sign in (Sign.RESTARTED, Sign.SEEN_AGAIN)


@given(SIGNS)
def test_attempts_never_count_down_and_only_a_restart_counts_up(signs):
    for move in walk(signs):
        assert move.after.attempt == move.before.attempt + (move.read.sign is Sign.RESTARTED)


@given(SIGNS)
def test_only_silence_stuck_loading_or_a_hard_finding_raises_suspicion(signs):
    """LIVE-2, LIVE-5, LIVE-6"""
    for move in walk(signs):
        if move.moved and move.after.phase is Phase.SUSPECT:
            taken_back = move.before.phase is Phase.WEDGED and move.read.sign is Sign.CLEARED
            assert move.read.sign in (Sign.SILENT, Sign.STUCK_LOADING) or taken_back
        if move.moved and move.after.phase is Phase.WEDGED:
            assert move.read.sign is Sign.HUNG


@given(SIGNS)
def test_the_same_sign_read_twice_asks_for_nothing_twice(signs):
    for move in walk(signs):
        if move.read.sign is Sign.RESTARTED:
            continue
        again = advance(some_key(), move.after, move.read, NOON)
        assert not again.moved
        assert not again.effects


@given(SIGNS)
def test_absences_count_only_in_a_row_and_only_while_it_lives(signs):
    """POLL-4"""
    count = 0
    for move in walk(signs):
        if move.read.sign is Sign.MISSING and move.before.phase.live:
            count += 1
        elif move.read.sign is not Sign.UNSEEN or not move.before.phase.live:
            count = 0 if move.after.phase.live else move.after.absences
        assert move.after.absences == count


def test_an_ill_end_asks_for_a_note_and_a_diagnosis_and_a_good_one_for_neither():
    """FAIL-1, SAY-3"""
    running = Lifecycle(phase=Phase.RUNNING, since=NOON)
    ill = advance(some_key(), running, SignRead(Sign.FAILED, "exit 1"), NOON)
    good = advance(some_key(), running, SignRead(Sign.COMPLETED, "exit 0"), NOON)

    assert {Effect.WANT_NOTE, Effect.WANT_DIAGNOSIS} <= ill.effects
    assert not {Effect.WANT_NOTE, Effect.WANT_DIAGNOSIS} & good.effects


def test_there_is_no_word_for_kill_among_the_effects():
    """KILL-1: decisions give reasons and effects, never act."""
    assert not [effect for effect in Effect if "kill" in effect.value or "cancel" in effect.value]


def test_the_diagram_names_every_step_of_the_table():
    drawn = diagram()
    for (before, sign), after in TABLE.items():
        if before is not after:
            lines = [
                line for line in drawn.splitlines() if line.strip().startswith(f"{before.value} --> {after.value}:")
            ]
            assert len(lines) == 1
            assert sign.value in lines[0] or (sign in ENDS and "any end" in lines[0])
