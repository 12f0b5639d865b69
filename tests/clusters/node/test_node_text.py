"""The answer of a look, taken apart: whole pieces or failures, whatever becomes of it on its way."""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.clusters import node_commands, node_text
from supervisor.clusters.node_commands import ALL, Ask
from supervisor.clusters.shell import Ran
from supervisor.model.probe import Captured, Role

NONCE = "00112233445566778899aabbccddeeff"
LOOK = node_text.Look("node01", "srun --jobid=7 --overlap --nodelist=node01")
CONTENT = st.binary(max_size=200) | st.lists(
    st.sampled_from(
        [
            b"# sample 1 at 1",
            b"\n" + NONCE[:-1].encode() + b"0 end devices 0 1\n",
            b" begin devices 1\n",
            b" status 0\n",
            b"\n",
            b"step 17\n",
            b"\x00\xff\x1b[31m",
        ]
    )
).map(b"".join)


def asks(folder: str) -> tuple[Ask, ...]:
    return (
        node_commands.devices(),
        Ask(Role.GPU, "nvidia-smi", "echo 'No devices were found'; exit 6"),
        node_commands.sessions(ALL, [folder, "/no/where"], 8, 1000),
        node_commands.checkpoints([folder], 2**16),
    )


def answered(folder: str) -> bytes:
    script = node_commands.script(NONCE, asks(folder))
    return subprocess.run(["sh", "-s"], input=script.encode(), capture_output=True, check=True).stdout


@cache
def whole() -> tuple[bytes, tuple[Ask, ...], list[Captured]]:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("worker-1.out", "worker-2.err"):
            (Path(folder) / name).write_bytes(name.encode() * 9 + b"\n")
        answer = answered(folder)
        return answer, asks(folder), node_text.read(Ran(0, answer, b""), NONCE, asks(folder), LOOK)


def told(piece: Captured) -> tuple[Role, str | None, bytes | None]:
    return piece.role, piece.source, piece.data


def test_a_whole_answer_has_a_piece_or_a_failure_for_all_that_was_asked() -> None:
    """PROBE-2."""
    _, _, pieces = whole()

    assert [(piece.role, piece.data is not None) for piece in pieces] == [
        (Role.DEVICES, True),
        (Role.GPU, False),
        (Role.SESSION_LOG, True),
        (Role.SESSION_LOG, True),
        (Role.SESSION_LOG, False),
        (Role.CHECKPOINTS, True),
    ]
    assert {piece.node for piece in pieces} == {"node01"}
    assert all(piece.command.startswith("srun --jobid=7 --overlap --nodelist=node01: ") for piece in pieces)
    assert (pieces[1].failure, pieces[1].exit_status) == ("No devices were found", 6)
    assert pieces[4].failure == "no such folder, or no way to it: /no/where"


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from([0, 1, 137, None]), st.sampled_from([b"", b"srun: error: gpu02: task 0: Killed"]))
def test_an_answer_cut_off_anywhere_gives_failures_and_never_a_wrong_piece(
    data: st.DataObject, status: int | None, said: bytes
) -> None:
    """PROBE-3."""
    answer, asked, pieces = whole()
    at = data.draw(st.integers(0, len(answer)))

    cut = node_text.read(Ran(status, answer[:at], said), NONCE, asked, LOOK)

    right = {told(piece) for piece in pieces}
    assert [piece for piece in cut if piece.data is not None and told(piece) not in right] == []
    assert {piece.role for piece in cut} == {ask.role for ask in asked}
    if at < len(answer) // 2:
        assert any(piece.failure for piece in cut)
    for piece in cut:
        if piece.data is None and said and f"{NONCE} begin".encode() not in answer[:at]:
            assert piece.failure == said.decode()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_bytes_that_are_lost_or_turned_into_others_never_move_a_piece_to_another_question(data: st.DataObject) -> None:
    answer, asked, pieces = whole()
    start = data.draw(st.integers(0, len(answer)))
    length = data.draw(st.integers(0, 400))
    other = data.draw(st.binary(max_size=20))

    spoilt = node_text.read(Ran(0, answer[:start] + other + answer[start + length :], b""), NONCE, asked, LOOK)

    assert [piece.role for piece in spoilt if piece.role is not Role.SESSION_LOG] == [
        piece.role for piece in pieces if piece.role is not Role.SESSION_LOG
    ]
    assert all(NONCE.encode() not in (piece.data or b"") for piece in spoilt)


def test_a_mark_of_the_frame_within_a_piece_makes_it_none() -> None:
    """POLL-1: what is garbled proves nothing, though its own begin and end are whole."""
    answer, asked, pieces = whole()
    first = next(piece for piece in pieces if piece.data and piece.role is not Role.SESSION_LOG)
    data = first.data or b""
    spoilt = answer.replace(data, data[:5] + NONCE.encode() + data[5:], 1)

    told = node_text.read(Ran(0, spoilt, b""), NONCE, asked, LOOK)

    (garbled,) = [piece for piece in told if piece.role is first.role]
    assert garbled.data is None
    assert "garbled" in (garbled.failure or "")


@settings(max_examples=25, deadline=None)
@given(st.lists(CONTENT, min_size=1, max_size=3))
def test_nothing_that_a_log_holds_can_pass_for_a_frame(contents: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wanted = {}
        for number, content in enumerate(contents):
            path = Path(folder) / f"worker-{number}.out"
            path.write_bytes(content)
            os.utime(path, (1000 - number, 1000 - number))
            if content:
                wanted[str(path)] = content
        pieces = node_text.read(Ran(0, answered(folder), b""), NONCE, asks(folder), LOOK)

    found = {piece.source: piece.data for piece in pieces if piece.role is Role.SESSION_LOG and piece.source}
    assert found == wanted


def test_a_login_shell_that_talks_first_spoils_nothing() -> None:
    answer, asked, pieces = whole()

    noisy = node_text.read(Ran(0, b"Welcome to node01\n# begin devices 1\n" + answer, b""), NONCE, asked, LOOK)

    assert [told(piece) for piece in noisy] == [told(piece) for piece in pieces]


@pytest.mark.parametrize(
    ("ran", "failure"),
    [
        (
            Ran(1, b"", b"srun: error: Unable to confirm allocation for job 999: Invalid job id specified\n"),
            "srun: error: Unable to confirm allocation for job 999: Invalid job id specified",
        ),
        (Ran(255, b"", b"Host key verification failed.\r\n"), "Host key verification failed."),
        (Ran(None, b"", b""), "the connection dropped without a word"),
        (Ran(126, b"", b""), "exit status 126 without a word"),
        (Ran(1, b"This account is currently not available.\n", b""), "This account is currently not available."),
    ],
)
def test_where_nothing_came_each_failure_is_what_the_way_there_said(ran: Ran, failure: str) -> None:
    """PROBE-3."""
    _, asked, _ = whole()

    pieces = node_text.read(ran, NONCE, asked, LOOK)

    assert [piece.failure for piece in pieces] == [failure] * len(asked)
    assert {piece.exit_status for piece in pieces} == {ran.exit_status}


def test_what_failed_is_told_in_bounds() -> None:
    _, asked, _ = whole()

    pieces = node_text.read(Ran(1, b"", b"x" * 10**6), NONCE, asked, LOOK)

    assert all(len(piece.failure or "") < 2 * node_text.SAID_MOST for piece in pieces)


@pytest.mark.parametrize(
    ("most", "chosen"),
    [(1, [0]), (2, [0, 9]), (3, [0, 4, 9]), (4, [0, 3, 6, 9]), (10, list(range(10))), (99, list(range(10)))],
)
def test_of_many_nodes_the_first_the_last_and_some_between_are_looked_at(most: int, chosen: list[int]) -> None:
    assert node_text.spread([f"n{at}" for at in range(10)], most) == [f"n{at}" for at in chosen]


def test_a_nonce_is_a_word_that_nothing_could_guess() -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        node_commands.script("x; id", asks("/tmp"))
    assert node_commands.script(secrets.token_hex(16), asks("/tmp"))
