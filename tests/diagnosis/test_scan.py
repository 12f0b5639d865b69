"""One pass: line numbers, offsets, caps, long lines, redraws, resuming."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.app.packs import Prepared
from supervisor.diagnosis import found, scan
from supervisor.diagnosis.scan import Resumed

OOM = b"RuntimeError: CUDA out of memory\n"


def read(prepared: Prepared, data: bytes, resumed: Resumed | None = None):
    stream = io.BytesIO(data)
    stream.seek(resumed.offset if resumed else 0)
    return prepared.scanner.read("job.log", stream, resumed)


def test_a_hit_knows_its_line_and_its_offset(small_prepared: Prepared):
    data = b"one\ntwo\n" + OOM + b"four\n"
    reading = read(small_prepared, data)

    assert [(hit.line, hit.offset) for hit in reading.hits] == [(3, 8)]
    assert data[8:].startswith(reading.hits[0].text)
    assert (reading.lines, reading.bytes) == (4, len(data))


def test_the_last_line_may_lack_its_newline(small_prepared: Prepared):
    reading = read(small_prepared, b"one\n" + OOM.rstrip())

    assert [hit.line for hit in reading.hits] == [2]
    assert reading.lines == 2


def test_lines_are_right_over_many_chunks(small_prepared: Prepared, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scan, "CHUNK", 1000)
    monkeypatch.setattr(scan, "HISTORY", 300)
    lines = [b"line %d says nothing" % n for n in range(500)]
    for at in (0, 77, 250, 499):
        lines[at] = OOM.rstrip()
    reading = read(small_prepared, b"\n".join(lines) + b"\n")

    assert [hit.line for hit in reading.hits] == [1, 78, 251, 500]
    assert reading.lines == 500


def test_a_storm_keeps_the_first_and_the_last_hits_and_counts_the_rest(small_prepared: Prepared):
    """A crash that repeats a line a million times costs neither memory nor the last lines."""
    reading = read(small_prepared, OOM * 5000)
    lines = [hit.line for hit in reading.hits]

    assert lines[: found.KEEP_FIRST] == list(range(1, found.KEEP_FIRST + 1))
    assert lines[-found.KEEP_LAST :] == list(range(5001 - found.KEEP_LAST, 5001))
    assert ("gpu_oom", 5000, 1, 5000) in reading.counts


def test_a_redraw_of_a_bar_is_quoted_alone(small_prepared: Prepared):
    bar = b" 10%|# | 1/10 [00:01<00:09]\r 20%|## | 2/10 [00:02<00:08]\r"
    reading = read(small_prepared, bar + b"slurm: error: Node failure on node-7\n")

    assert [hit.text for hit in reading.hits] == [b"slurm: error: Node failure on node-7"]


def test_of_a_very_long_line_the_part_around_the_match_is_kept(small_prepared: Prepared):
    reading = read(small_prepared, b"x" * 300_000 + b" CUDA out of memory " + b"y" * 300_000 + b"\n")

    assert len(reading.hits) == 1
    assert b"CUDA out of memory" in reading.hits[0].text
    assert len(reading.hits[0].text) <= found.SHOWN


def test_nul_bytes_and_broken_encodings_do_not_hide_a_hit(small_prepared: Prepared):
    reading = read(small_prepared, b"\0\0\0\xff\xfe\n\xe9\xe8 caf\xe9 CUDA out of memory \xff\n")

    assert [hit.line for hit in reading.hits] == [2]


def test_colour_codes_are_no_part_of_what_is_matched_but_of_what_is_quoted(small_prepared: Prepared):
    line = b"\x1b[31m(Worker pid=3)\x1b[0m \x1b[1mRuntimeError: CUDA out of memory\x1b[0m"
    reading = read(small_prepared, line + b"\n")

    assert reading.hits[0].text == line
    assert reading.hits[0].stream.pid == 3


def test_a_file_is_resumed_at_an_offset_with_its_lines(small_prepared: Prepared):
    """FIND-3"""
    first, second = b"one\n" + OOM, b"three\n" + OOM
    resumed = read(small_prepared, first + second, Resumed(len(first), 2))

    assert [(hit.line, hit.offset) for hit in resumed.hits] == [(4, len(first) + 6)]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([b"quiet", b"RuntimeError: CUDA out of memory", b"step 3/80 loss 1.2", b""]), max_size=60),
    st.integers(60, 400),
)
def test_chunks_of_any_size_give_the_same_hits(small_prepared: Prepared, lines: list[bytes], chunk: int):
    data = b"\n".join(lines)
    whole = read(small_prepared, data)
    before = scan.CHUNK
    scan.CHUNK = chunk
    try:
        cut = read(small_prepared, data)
    finally:
        scan.CHUNK = before

    assert [(hit.line, hit.offset, hit.text) for hit in cut.hits] == [
        (hit.line, hit.offset, hit.text) for hit in whole.hits
    ]
    assert cut.lines == whole.lines


def test_the_last_progress_before_a_hit_and_the_first_after_it_are_known(small_prepared: Prepared):
    steps = [b"step %d/80 loss 1.0" % n for n in range(1, 41)]
    lines = [*steps[:20], OOM.rstrip(), *steps[20:]]
    marks = [mark.step for mark in read(small_prepared, b"\n".join(lines) + b"\n").marks]

    assert {20, 21, 40} <= set(marks)
