"""What an earlier attempt printed stays until the one after the next begins (PROBE-6), also over a crash between two writes."""

from __future__ import annotations

import pytest

from supervisor.app.kept import KeptLogs
from supervisor.model.logs import LogStat, LogState, LogText

PATH = "/home/alice/out.log"
STAT = LogStat(PATH, LogState.READ)


@pytest.fixture
def kept(tmp_path):
    return KeptLogs(tmp_path / "logs", 1000)


def piece(data: bytes, offset: int = 0, skipped: int | None = 0) -> LogText:
    return LogText(PATH, offset, data, offset + len(data), skipped)


def test_a_log_begun_anew_sets_the_text_before_it_aside(kept):
    first = kept.add(1, STAT, None, piece(b"one\n"), afresh=False)
    second = kept.add(1, STAT, first, piece(b"two\n"), afresh=True)

    ((path, offset, line),) = kept.before(second)
    assert (path.read_bytes(), offset, line) == (b"one\n", 0, 0)
    assert kept.text(second) == b"two\n"


def test_only_the_attempt_before_is_kept_apart(kept):
    cursor = None
    for text in (b"one\n", b"two\n", b"three\n"):
        cursor = kept.add(1, STAT, cursor, piece(text), afresh=cursor is not None)

    ((path, _, _),) = kept.before(cursor)
    assert path.read_bytes() == b"two\n"


def test_where_its_beginning_was_dropped_it_still_says_where_it_begins(kept):
    first = kept.add(1, STAT, None, piece(b"x\n" * 400, 5000, None), afresh=False)
    second = kept.add(1, STAT, first, piece(b"two\n"), afresh=True)
    ((_, offset, line),) = kept.before(second)

    assert (offset, line) == (5000, None)


def test_beginning_anew_twice_after_a_crash_does_not_lose_the_older_text(kept):
    """The first time the cursor was not stored any more."""
    first = kept.add(1, STAT, None, piece(b"a long first attempt\n"), afresh=False)
    kept.add(1, STAT, first, piece(b"two\n"), afresh=True)
    again = kept.add(1, STAT, first, piece(b"two\n"), afresh=True)

    ((path, _, _),) = kept.before(again)
    assert path.read_bytes() == b"a long first attempt\n"
    assert kept.text(again) == b"two\n"


def test_growth_sets_nothing_aside(kept):
    first = kept.add(1, STAT, None, piece(b"one\n"), afresh=False)
    second = kept.add(1, STAT, first, piece(b"two\n", 4), afresh=False)

    assert kept.before(second) == []
    assert kept.text(second) == b"one\ntwo\n"
