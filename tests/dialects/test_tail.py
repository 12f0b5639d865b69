"""The first reading of a large log, from its end."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.dialects import follow, summarise, tail_points
from supervisor.dialects.tail import BLOCK, CAP


def log_of(steps: int, between: int = 24) -> bytes:
    noise = (
        b"(AsyncVLLMInferenceEngine pid=7) INFO 08-01 12:00:00 [async_llm.py:261] Added request 00ab12cd34ef.\n"
        * between
    )
    return b"".join(
        noise + b"{'loss': %d.25, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'step': %d}\n" % (step, step)
        for step in range(1, steps + 1)
    )


def counting(log: bytes) -> tuple[Callable[[int, int], bytes], list[int]]:
    read: list[int] = []

    def block(offset: int, length: int) -> bytes:
        read.append(length)
        return log[offset : offset + length]

    return block, read


def test_the_last_metrics_are_those_of_the_whole_log() -> None:
    log = log_of(2000)
    block, _ = counting(log)
    view = tail_points(block, len(log))

    assert [point.step for point in view.points] == list(range(1951, 2001))
    assert view.complete
    assert all(log[point.offset :].startswith(point.text.encode()) for point in view.points)


def test_what_is_read_does_not_grow_with_the_file() -> None:
    """SPEED: flat in the file's size."""
    read = []
    for steps in (500, 4000):
        log = log_of(steps)
        block, lengths = counting(log)
        tail_points(block, len(log))
        read.append(sum(lengths))

    assert read[0] == read[1] <= 4 * BLOCK


def test_a_log_without_metrics_costs_the_cap_and_no_more() -> None:
    log = b"node exporter: load 1.2\n" * (CAP // 8)
    block, lengths = counting(log)
    view = tail_points(block, len(log))

    assert view.points == ()
    assert not view.complete
    assert sum(lengths) <= CAP


def test_a_short_log_is_read_whole() -> None:
    log = log_of(7)
    block, _ = counting(log)
    view = tail_points(block, len(log))

    assert [point.step for point in view.points] == list(range(1, 8))
    assert view.complete


def test_following_goes_on_where_the_first_reading_ended() -> None:
    log = log_of(500)
    block, _ = counting(log)
    view = tail_points(block, len(log))
    state, readings = follow(view.state, log_of(502)[len(log) :], len(log))

    assert [reading.step for reading in readings] == [501, 502]
    assert summarise(state).progress.step == 502
    assert summarise(state).lines is None


def test_bars_alone_give_the_step() -> None:
    log = (
        b"x" * 200_000
        + b"\n"
        + b"".join(b"\r 35%%|###4      | %d/916 [2:10:33<4:02:11, 24.38s/it]" % step for step in range(300, 400))
    )
    block, _ = counting(log)
    view = tail_points(block, len(log))

    assert summarise(view.state).progress.step == 399


def test_an_empty_log_is_no_error() -> None:
    view = tail_points(lambda offset, length: b"", 0)

    assert view.points == ()
    assert view.complete
