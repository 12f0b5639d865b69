"""Tables that fit, and text that can do nothing (SAY-1)."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from supervisor.reports.status import COLUMNS
from supervisor.reports.table import Column, box, pipe
from supervisor.reports.text import fitted, plain, span, width

ODD = st.text(
    alphabet=st.one_of(
        st.characters(),
        st.sampled_from("日本語한국e\u0301\u200d\ufe0f👩\U0001f1e9\x1b\x07\x9b\u202e\u2028\t\n\r|\udce9\x00"),
    ),
    max_size=40,
)


@given(ODD)
def test_nothing_effective_is_left_of_any_text(text):
    """Escape codes, control characters, direction marks, line separators: visible, never effective; writable everywhere."""
    harmless = plain(text)

    assert not re.search("[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]", harmless)
    harmless.encode("utf-8")
    assert plain(harmless) == harmless


def test_what_was_there_can_still_be_seen():
    assert plain("a\x1b[31mred\x07") == "a\\x1b[31mred\\x07"
    assert plain("two\nlines\tand\rmore") == "two\\nlines\\tand\\rmore"
    assert plain("caf\udce9") == "caf\\xe9"
    assert plain("日本語 é ✓") == "日本語 é ✓"


@given(ODD, st.integers(0, 50))
def test_text_is_fitted_into_exactly_so_many_columns(text, columns):
    assert width(fitted(plain(text), columns)) == columns


def test_a_cut_is_shown_by_an_ellipsis():
    assert fitted("abcdef", 4) == "abc…"
    assert fitted("日本語", 4) == "日… "
    assert fitted("e\u0301" * 5, 3) == "e\u0301e\u0301…"


@given(st.lists(st.lists(ODD, min_size=9, max_size=9), min_size=1, max_size=5), st.integers(60, 220))
def test_no_line_of_a_table_is_wider_than_the_terminal_and_all_are_alike(rows, columns):
    lines = box(COLUMNS, rows, columns).splitlines()

    assert len({width(line) for line in lines}) == 1
    assert width(lines[0]) <= columns
    assert len(lines) == 4 + len(rows)


@given(st.lists(st.lists(ODD, min_size=9, max_size=9), max_size=4), st.integers(1, 60))
def test_however_narrow_the_terminal_a_table_is_made(rows, columns):
    assert len(box(COLUMNS, rows, columns).splitlines()) == 4 + len(rows)


def titles(columns_wide):
    row = ["x" * 60] * len(COLUMNS)
    return box(COLUMNS, [row], columns_wide).splitlines()[1].strip("│").replace("…", "").split("│")


def shown(columns_wide):
    return [title.strip() for title in titles(columns_wide)]


def test_columns_are_dropped_in_the_stated_order_and_the_others_never():
    """Try goes first, then Nodes, Elapsed, Scheduler; Job, Where, Phase, Last output and Flags stay."""
    every = ["Job", "Where", "Phase", "Scheduler", "Elapsed", "Nodes", "Try", "Last output", "Flags"]
    assert shown(None) == every

    gone: list[str] = []
    for columns in range(300, 59, -1):
        now = shown(columns)
        missing = [
            title for title in every if title not in now and not any(title.startswith(cut) for cut in now if cut)
        ]
        for title in missing:
            if title not in gone:
                gone.append(title)

    assert gone == ["Try", "Nodes", "Elapsed", "Scheduler"]


def test_a_column_that_may_go_and_says_nothing_goes_even_where_there_is_room():
    table = box((Column("A"), Column("B", drop=1), Column("C", drop=2)), [["1", "—", "x"], ["2", "", "y"]], None)

    assert table.splitlines()[1] == "│ A │ C │"


def test_tones_colour_whole_rows_and_end_with_them():
    lines = box((Column("A"),), [["1"], ["2"]], None, ["fault", None]).splitlines()

    assert lines[3] == "\x1b[31m│ 1 │\x1b[0m"
    assert lines[4] == "│ 2 │"


def test_right_aligned_cells_end_at_the_right():
    assert box((Column("Wide one", right=True),), [["7"]], None).splitlines()[3] == "│        7 │"


@given(st.lists(ODD, min_size=2, max_size=2))
def test_pipes_hold_whatever_a_cell_says(row):
    """One row stays one row of two cells, in whatever is pasted."""
    lines = pipe((Column("A"), Column("B", right=True)), [row]).splitlines()

    assert lines[:2] == ["| A | B |", "| --- | ---: |"]
    assert len(lines) == 3
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", lines[2])) == 3


def test_durations_are_for_people():
    assert [span(seconds) for seconds in (None, -3, 0, 119, 120, 5399, 5400, 172799, 172800)] == [
        "—", "0 s", "0 s", "119 s", "2 min", "89 min", "1 h 30", "47 h 59", "2 d 0 h",
    ]  # fmt: skip
