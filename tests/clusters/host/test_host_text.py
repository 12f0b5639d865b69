"""Answers and records as text, and the page of commands: no process, no server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.clusters import host_commands
from supervisor.clusters.host_text import Unusable, read_poll, record_of

JSON = st.dictionaries(st.text(max_size=12), st.none() | st.integers() | st.text() | st.floats())


@settings(max_examples=200, deadline=None)
@given(st.binary(), st.binary())
def test_any_bytes_are_an_answer_or_a_clear_refusal(before: bytes, after: bytes) -> None:
    nonce = "0123456789abcdef"
    for data in (
        before,
        before + b"\n0123456789abcdef hello 1\n" + after,
        before + b"0123456789abcdef end 0 0\n" + after,
    ):
        with pytest.raises(Unusable):
            read_poll(data, nonce)


@given(st.binary() | JSON.map(lambda record: json.dumps(record).encode()))
def test_any_bytes_are_a_record_or_a_clear_refusal(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        record_of(text, "1")


def test_no_command_searches_or_deletes_anything() -> None:
    for script in (host_commands.POLL, host_commands.CANCEL):
        words = set(script.replace(";", " ").replace("(", " ").split())
        assert not words & {"find", "du", "rm", "ls", "eval", "rmdir", "dd"}
    assert "kill -s TERM" not in host_commands.POLL
    assert "kill -s KILL" not in host_commands.POLL


@pytest.mark.parametrize("folder", ['/tmp/it\'s "here" $(touch x)', "~/a b/$HOME"])
def test_a_records_folder_is_a_word_whatever_it_holds(folder: str) -> None:
    word = host_commands.records_folder(folder)

    assert word.removeprefix('"$HOME"/').startswith("'")
