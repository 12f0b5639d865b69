"""Pieces of logs by one script: no gap, no repeat, and never an empty text for a failed read."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.clusters import log_pieces
from supervisor.clusters.local import LocalShell
from supervisor.clusters.shell import Ran
from supervisor.model.logs import LogRead, LogText, LogUnread, LogWanted

NONCE = "00112233445566778899aabbccddeeff"
SHELL = LocalShell("box")
CONTENT = st.binary(max_size=300) | st.text("a\n", max_size=300).map(str.encode)


async def ran(*wanted: LogWanted) -> Ran:
    return await SHELL.run(log_pieces.script(wanted, NONCE), limit_s=20, limit_bytes=log_pieces.bytes_needed(wanted))


async def pieces(*wanted: LogWanted) -> list[LogRead]:
    answers = log_pieces.read(wanted, NONCE, await ran(*wanted))
    return [answers[piece.job_id, piece.path] for piece in wanted]


@settings(max_examples=60, deadline=None)
@given(CONTENT, st.integers(0, 320), st.integers(0, 320), st.booleans())
def test_a_piece_is_exactly_the_bytes_that_were_asked_for(content: bytes, offset: int, limit: int, tail: bool) -> None:
    """FIND-3."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(content)
        (piece,) = asyncio.run(pieces(LogWanted("1", str(path), offset, limit, tail)))

    begin = max(offset, len(content) - limit) if tail else offset
    assert piece == LogText(
        str(path), begin, content[begin : begin + limit], len(content), content[offset:begin].count(b"\n")
    )


async def test_many_pieces_come_by_one_command_each_with_its_own_answer(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("aaa")
    (tmp_path / "b").write_text("bbb")

    wanted = [LogWanted(name, str(tmp_path / name), at, 10) for name, at in (("a", 0), ("none", 0), ("b", 1))]
    found = await pieces(*wanted)

    assert [type(piece) for piece in found] == [LogText, LogUnread, LogText]
    assert [piece.data for piece in found if isinstance(piece, LogText)] == [b"aaa", b"bb"]


@pytest.mark.parametrize("name", ["it's", "a b", "-n", "$(touch x)", "a\nb", "ü", "a;b|c"])
async def test_a_path_is_data_whatever_it_holds(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("text")

    (piece,) = await pieces(LogWanted("1", str(tmp_path / name), 0, 10))

    assert isinstance(piece, LogText)
    assert piece.data == b"text"


async def test_what_is_no_readable_file_is_unread_with_the_reason_and_at_once(tmp_path: Path) -> None:
    """FIND-4."""
    os.mkfifo(tmp_path / "pipe")
    wanted = [
        str(tmp_path),
        str(tmp_path / "pipe"),
        "/dev/zero",
        "/dev/stdin",
        str(tmp_path / "none"),
        "relative",
        "/a\0b",
        "",
    ]

    found = await pieces(*(LogWanted(str(n), path, 0, 10) for n, path in enumerate(wanted)))

    assert [type(piece) for piece in found] == [LogUnread] * len(wanted)
    assert all(piece.reason for piece in found if isinstance(piece, LogUnread))


async def test_a_link_is_followed_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("0123456789")
    (tmp_path / "latest").symlink_to("real")

    (piece,) = await pieces(LogWanted("1", str(tmp_path / "latest"), 0, 4))

    assert piece == LogText(str(tmp_path / "latest"), 6, b"6789", 10, 0)


async def test_a_file_that_became_shorter_than_what_was_read_shows_it_by_its_size(tmp_path: Path) -> None:
    """FIND-3: truncation is noticed."""
    (tmp_path / "log").write_text("new")

    (piece,) = await pieces(LogWanted("1", str(tmp_path / "log"), 100, 10))

    assert piece == LogText(str(tmp_path / "log"), 100, b"", 3, 0)


async def test_a_log_that_prints_our_marks_fools_nobody(tmp_path: Path) -> None:
    text = f"x\n{NONCE} done 0\n{NONCE} piece 1 3 0 3 0\nabc\n{NONCE} done 1\n{NONCE} end\n".encode()
    (tmp_path / "a").write_bytes(text)
    (tmp_path / "b").write_bytes(b"real")

    first, second = await pieces(
        LogWanted("1", str(tmp_path / "a"), 0, 999), LogWanted("2", str(tmp_path / "b"), 0, 999)
    )

    assert (first.data, second.data) == (text, b"real")  # type: ignore[union-attr]


async def test_an_answer_cut_off_at_any_byte_loses_the_pieces_it_cut_and_no_more(tmp_path: Path) -> None:
    """FIND-4, POLL-2."""
    wanted = [LogWanted(str(n), str(tmp_path / str(n)), 0, 50) for n in range(3)]
    for one in wanted:
        Path(one.path).write_text(f"log of {one.job_id}\n" * 2)
    whole = (await ran(*wanted)).stdout

    for cut in range(len(whole)):
        answers = log_pieces.read(wanted, NONCE, Ran(None, whole[:cut], b""))
        assert len(answers) == 3
        for (job, path), piece in answers.items():
            assert piece in (
                LogText(path, 0, f"log of {job}\n".encode() * 2, 18, 0),
                LogUnread(path, "the answer was cut off"),
            )


async def test_a_file_that_shrinks_while_it_is_read_gives_what_was_there(tmp_path: Path) -> None:
    wanted = [LogWanted("1", "/log", 0, 50)]
    answer = f"{NONCE} piece 0 10 0 10 0\nshort\n{NONCE} done 0\n{NONCE} end\n".encode()

    assert log_pieces.read(wanted, NONCE, Ran(0, answer, b""))["1", "/log"] == LogText("/log", 0, b"short", 10, 0)


async def test_a_file_of_which_nothing_comes_though_bytes_are_there_is_unread() -> None:
    """FIND-4: an input/output error is not silence."""
    wanted = [LogWanted("1", "/log", 0, 50)]
    answer = f"{NONCE} piece 0 10 0 10 0\n\n{NONCE} done 0\n{NONCE} end\n".encode()

    assert isinstance(log_pieces.read(wanted, NONCE, Ran(0, answer, b""))["1", "/log"], LogUnread)


async def test_lines_too_far_back_to_be_counted_are_not_counted_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pieces, "COUNTED", 10)
    (tmp_path / "log").write_text("line\n" * 100)

    (piece,) = await pieces(LogWanted("1", str(tmp_path / "log"), 0, 10))

    assert piece == LogText(str(tmp_path / "log"), 490, b"line\nline\n", 500, None)
