"""Prose that fits a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.reports.fitting import fitting
from supervisor.reports.text import width, wrapped


@given(text=st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=200), columns=st.integers(8, 120))
def test_no_line_is_wider_than_asked_for_and_no_word_is_lost(text: str, columns: int) -> None:
    lines = wrapped(text, columns, "  ")

    assert all(width(line) <= columns or len(line.strip()) == 1 for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_what_is_drawn_stays_and_prose_is_broken_at_spaces() -> None:
    """SAY-1"""
    table = "┌" + "─" * 60 + "┐"
    told = fitting(f"{table}\nflagged: grad norm is NaN since step 49; nothing is done\n", 30)

    assert told.split("\n") == [table, "flagged: grad norm is NaN", "    since step 49; nothing is", "    done", ""]
    assert fitting("a " * 90, None) == "a " * 90


def test_a_line_in_one_tone_keeps_it_on_each_part() -> None:
    told = fitting("\x1b[31mmonitor dead: the last tick finished long ago\x1b[0m", 24)

    assert all(line.startswith("\x1b[31m") and line.endswith("\x1b[0m") for line in told.split("\n"))
    assert len(told.split("\n")) == 3
