"""PROBE-4: each quote is held against the folder, byte for byte, by file and line."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gates import proof
from supervisor.model.findings import Quote
from supervisor.model.probe import GateScore, Restarts, Score

FILES = {"log.txt": ["first", "step 2: loss 0.4", "", "caf\udce9"], "logs/worker.out": ["only"]}


def lines(file: str) -> Sequence[str]:
    return FILES[file]


def a_score(*quotes: Quote) -> GateScore:
    return GateScore(
        gate="A",
        name="liveness",
        result=Score.FAIL,
        reason="It hangs.",
        quotes=quotes,
        hard=True,
        cause="silent-hang",
        fix="x",
    )


@pytest.mark.parametrize(
    "quote",
    [
        Quote("log.txt", 2, "step 2: loss 0.4"),
        Quote("log.txt", 2, "loss 0.4"),
        Quote("log.txt", 4, "caf\udce9"),
        Quote("logs/worker.out", 1, "only"),
    ],
)
def test_a_quote_that_stands_in_its_line_holds(quote: Quote):
    assert proof.check(lines, [a_score(quote)]) == (a_score(quote),)


@pytest.mark.parametrize(
    ("quote", "stands"),
    [
        (Quote("log.txt", 1, "step 2: loss 0.4"), "first"),
        (Quote("log.txt", 2, "step 2:  loss 0.4"), "step 2: loss 0.4"),
        (Quote("log.txt", 3, "x"), "the line is empty"),
        (Quote("log.txt", 5, "x"), "the file has 4 lines"),
        (Quote("log.txt", 0, "first"), "the file has 4 lines"),
        (Quote("log.txt", -1, "first"), "the file has 4 lines"),
        (Quote("log.txt", None, "first"), "the file has 4 lines"),
        (Quote("log.txt", 2, ""), "the quote is empty"),
        (Quote("log.txt", 2, "  "), "the quote is empty"),
        (Quote("absent.txt", 1, "x"), "there is no such file in the evidence folder"),
        (Quote("../log.txt", 1, "first"), "the file is not inside the evidence folder"),
        (Quote("logs/../log.txt", 1, "first"), "the file is not inside the evidence folder"),
        (Quote("/etc/passwd", 1, "root"), "the file is not inside the evidence folder"),
        (Quote("", 1, "x"), "the file is not inside the evidence folder"),
        (Quote("log\0.txt", 1, "x"), "the file is not inside the evidence folder"),
        (Quote("..\\log.txt", 1, "x"), "the file is not inside the evidence folder"),
    ],
)
def test_a_quote_that_is_not_there_turns_its_gate_into_an_error_that_says_what_stands_there(quote: Quote, stands: str):
    true = Quote("log.txt", 1, "first")

    (score,) = proof.check(lines, [a_score(true, quote)])

    assert (score.result, score.hard, score.cause, score.quotes) == (Score.ERROR, False, "", (true,))
    assert score.missing is not None
    assert (score.missing.command, score.missing.output) == (f"quote {quote.file}:{quote.line}", stands)


def test_restarts_lose_quotes_that_do_not_hold_and_without_any_nothing_repeats():
    true, false = Quote("log.txt", 1, "first"), Quote("log.txt", 1, "second")
    some = proof.check_restarts(lines, Restarts(same_failure=True, times=3, quotes=(true, false)))
    none = proof.check_restarts(lines, Restarts(same_failure=True, times=3, quotes=(false,)))

    assert (some.same_failure, some.quotes) == (True, (true,))
    assert (none.same_failure, none.quotes) == (False, ())


@given(st.text(max_size=20), st.integers() | st.none(), st.text(max_size=20))
def test_no_quote_makes_it_raise_and_what_holds_stands_there(file: str, line: int | None, text: str):
    why = proof.untrue(lines, Quote(file, line, text))

    if why is None:
        assert line is not None and text in FILES[file][line - 1]
