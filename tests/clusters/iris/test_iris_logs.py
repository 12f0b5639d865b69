"""Reading lines with numbers as if they were a file: whatever the pieces, no gap and no repeat (FIND-3)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.clusters import iris_logs
from supervisor.clusters.iris_calls import Controller
from supervisor.clusters.iris_logs import Bookmark, LogBook, LogPlace
from supervisor.clusters.iris_text import LogEntry, LogsAnswer, Moment
from supervisor.model.logs import LogRead, LogText, LogUnread, LogWanted

SUBMITTED = 1_795_979_162_708
PATH = f"iris:/alice/run/0?since={SUBMITTED}"
KEY = "/alice/run/0:"


@dataclass
class Lines(Controller):
    """A log service that holds these lines, and gives so many in one answer."""

    held: list[LogEntry]
    most: int = 7
    asked: int = field(default=0)

    async def lines(self, source: str, since_ms: int, cursor: int, most: int = 0) -> LogsAnswer:
        self.asked += 1
        found = [one for one in self.held if one.key.startswith(source) and one.seq > cursor]
        return LogsAnswer(cursor, tuple(found[: self.most]))

    async def newest_lines(self, source: str, since_ms: int) -> LogsAnswer:
        found = [one for one in self.held if one.key.startswith(source)]
        return LogsAnswer(0, tuple(found[-self.most :]))


def line(seq: int, text: str, *, at: int = SUBMITTED + 1, key: str = KEY + "0") -> LogEntry:
    return LogEntry(Moment(at), key, seq, text)


def read(book: LogBook, service: Lines, wanted: LogWanted) -> LogRead:
    return asyncio.run(book.read(service, [wanted]))[wanted.job_id, wanted.path]


@pytest.fixture(autouse=True)
def _small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iris_logs, "LINES", 7)


texts = st.lists(st.text(max_size=12), max_size=40)


@given(texts, st.lists(st.integers(0, 30), min_size=1, max_size=30), st.booleans())
def test_pieces_of_any_size_add_up_to_the_log(said: list[str], sizes: list[int], handed_back: bool) -> None:
    """Whether the caller hands bookmarks back, or leaves them to what is remembered here."""
    service = Lines([line(3 * number + 1, text) for number, text in enumerate(said)])
    whole = "".join(text + "\n" for text in said).encode("utf-8", "replace")
    book, got, bookmark = LogBook(), b"", None

    for size in [*sizes, len(whole) + 1]:
        wanted = LogWanted("alice/run", PATH, len(got), size, tail=False, bookmark=bookmark if handed_back else None)
        piece = read(LogBook() if handed_back else book, service, wanted)
        assert isinstance(piece, LogText)
        assert (piece.offset, piece.lines_skipped) == (len(got), 0)
        assert len(piece.data) <= size
        assert piece.size >= len(got) + len(piece.data)
        got, bookmark = got + piece.data, piece.bookmark

    assert got == whole


@given(texts, st.integers(0, 200), st.integers(0, 40))
def test_without_a_bookmark_the_place_is_counted_from_the_beginning(said: list[str], at: int, size: int) -> None:
    """As after a restart of the daemon, where only the offset was kept."""
    service = Lines([line(number + 1, text) for number, text in enumerate(said)])
    whole = "".join(text + "\n" for text in said).encode("utf-8", "replace")
    at = min(at, len(whole))

    piece = read(LogBook(), service, LogWanted("alice/run", PATH, at, size, tail=False))

    assert isinstance(piece, LogText)
    assert (piece.offset, piece.data) == (at, whole[at : at + size])


@given(texts, st.integers(0, 60))
def test_the_newest_part_knows_what_lies_before_it(said: list[str], size: int) -> None:
    service = Lines([line(number + 1, text) for number, text in enumerate(said)])
    whole = "".join(text + "\n" for text in said).encode("utf-8", "replace")
    book = LogBook()

    piece = read(book, service, LogWanted("alice/run", PATH, 0, size))

    assert isinstance(piece, LogText)
    assert piece.offset == max(0, len(whole) - size)
    assert (piece.data, piece.size) == (whole[piece.offset :], len(whole))
    assert piece.lines_skipped == whole[: piece.offset].count(b"\n")
    service.held.append(line(1000, "next"))
    rest = read(book, service, LogWanted("alice/run", PATH, len(whole), 100))
    assert isinstance(rest, LogText)
    assert (rest.offset, rest.data) == (len(whole), b"next\n")


def test_a_flood_is_left_out_and_said_to_be_and_reading_goes_on_after_it() -> None:
    service = Lines([line(number + 1, f"step {number}") for number in range(7 * 70)])
    book = LogBook()

    piece = read(book, service, LogWanted("alice/run", PATH, 0, 20))

    assert isinstance(piece, LogText)
    assert piece.lines_skipped is None
    assert piece.data.endswith(b"step 489\n")
    assert service.asked == 64
    end = piece.offset + len(piece.data)
    service.held.append(line(1000, "next"))
    rest = read(book, service, LogWanted("alice/run", PATH, end, 20))
    assert isinstance(rest, LogText)
    assert (rest.offset, rest.data, rest.lines_skipped) == (end, b"next\n", 0)


def test_lines_of_an_earlier_and_of_a_later_job_of_that_name_are_not_its_own() -> None:
    """POLL-11."""
    later = SUBMITTED + 60_000
    service = Lines([line(1, "before", at=SUBMITTED - 5), line(2, "mine"), line(3, "after", at=later + 1)])
    book = LogBook()
    book.newest = {"alice/run": later}

    piece = read(book, service, LogWanted("alice/run", PATH, 0, 100))
    newest = read(book, service, LogWanted("alice/run", PATH.replace(str(SUBMITTED), str(later)), 0, 100))

    assert isinstance(piece, LogText)
    assert isinstance(newest, LogText)
    assert (piece.data, newest.data) == (b"mine\n", b"after\n")


def test_all_attempts_of_a_task_are_one_log_and_another_tasks_are_not_in_it() -> None:
    service = Lines([line(1, "a"), line(2, "b", key=KEY + "1"), line(3, "no", key="/alice/run/01:0")])

    piece = read(LogBook(), service, LogWanted("alice/run", PATH, 0, 100))

    assert isinstance(piece, LogText)
    assert piece.data == b"a\nb\n"


def test_a_log_that_lost_what_was_read_begins_anew() -> None:
    piece = read(LogBook(), Lines([line(1, "ab")]), LogWanted("alice/run", PATH, 50, 100))

    assert isinstance(piece, LogText)
    assert (piece.size, piece.data, piece.lines_skipped) == (3, b"", None)


@pytest.mark.parametrize(
    "path",
    [
        "iris:/alice/run/0",
        "iris:/alice/run/x?since=5",
        "iris:/alice/run/0?since=5&x",
        "/alice/run/0?since=5",
        "iris:/bob/run/0?since=5",
        "iris:/alice/runner/0?since=5",
        "iris:/alice/../0?since=5",
        "",
    ],
)
def test_what_is_no_path_of_this_jobs_log_is_not_asked_for(path: str) -> None:
    service = Lines([])

    piece = read(LogBook(), service, LogWanted("alice/run", path, 0, 100))

    assert isinstance(piece, LogUnread)
    assert service.asked == 0


@given(st.text(max_size=40) | st.from_regex(r"i1( [0-9]{1,20}){4}", fullmatch=True))
def test_a_bookmark_is_ours_or_none(text: str) -> None:
    mark = Bookmark.parse(text)

    assert mark is None or Bookmark.parse(str(mark)) == mark


def test_a_bookmark_of_another_log_is_none() -> None:
    """Where a job's first task has ended, its log is another task's."""
    service = Lines([line(1, "zero"), line(2, "one", key="/alice/run/1:0")])
    first = read(LogBook(), service, LogWanted("alice/run", PATH, 0, 5))
    assert isinstance(first, LogText)

    other = LogWanted("alice/run", PATH.replace("/0?", "/1?"), 0, 100, bookmark=first.bookmark)
    piece = read(LogBook(), service, other)

    assert isinstance(piece, LogText)
    assert piece.data == b"one\n"
    assert Bookmark.of(other.path, first.bookmark) is None


def test_a_path_names_a_task_of_a_child_as_well() -> None:
    place = LogPlace.parse("iris:/alice/run/child/12?since=5")

    assert place is not None
    assert (place.source, place.since_ms) == ("/alice/run/child/12:", 5)
