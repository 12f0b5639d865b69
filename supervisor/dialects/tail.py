"""The first reading of a huge log: its last metrics, read from the end, at a cost that does not grow with the file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from supervisor.dialects.run import begun
from supervisor.dialects.stream import follow
from supervisor.model.readings import Reading, ReadingKind, TailReading

BLOCK = 64 << 10
CAP = 8 << 20
"""Bytes read at most; a log whose last megabytes hold no metrics has none that are news."""
METRIC_MARKS = (
    b"WANDB_MIRROR",
    b"'loss'",
    b'"loss"',
    b"grad_norm",
    b"grad norm",
    b"reward",
    b"%|",
    b"loss:",
    b"loss=",
    b" Mean: ",
    b"step",
)
SPARE = 4
"""Metric lines read beyond those asked for: some marks stand in other lines."""
WANTED = frozenset({ReadingKind.STEP, ReadingKind.METRIC})


def tail_points(
    read_block: Callable[[int, int], bytes],
    size: int,
    n: int = 50,
    *,
    cap: int = CAP,
    seen_at: datetime | None = None,
) -> TailReading:
    """The last ``n`` metric readings of a log of ``size`` bytes. ``read_block(offset, length)`` gives its bytes.

    Blocks of 64 KiB are read backwards until they seem to hold enough metrics, or ``cap`` is reached; then they are
    followed forwards. The state in the answer is at ``size``: ``follow`` goes on from there. Line numbers are unknown.
    """
    blocks: list[bytes] = []
    start, wanted, likely = size, n, 0
    while True:
        telling = METRIC_MARKS[0]
        while start > 0 and size - start < cap and likely < wanted:
            step = min(BLOCK, start, cap - (size - start))
            start -= step
            block = read_block(start, step)
            blocks.append(block)
            counts = {mark: block.count(mark) for mark in _telling(block)}
            telling = max(counts, key=lambda mark: counts[mark])
            likely += counts[telling]
        whole = b"".join(reversed(blocks))
        begin = _skip(whole, telling, likely - wanted - SPARE)
        state, readings = follow(begun(start + begin), whole[begin:], start + begin, seen_at=seen_at)
        points = [reading for reading in readings if _counts(reading)]
        at_end = start <= 0 or size - start >= cap
        if len(points) >= n or (at_end and not begin):
            return TailReading(
                tuple(points[-n:]), state, start + begin, len(whole), complete=len(points) >= n or start <= 0
            )
        wanted += n - len(points) + SPARE if points else size


def _skip(whole: bytes, mark: bytes, extra: int) -> int:
    """Where to begin so that about ``extra`` of the marks lie before: a block holds more than was asked for."""
    at = 0
    for _ in range(extra):
        hit = whole.find(mark, at)
        if hit < 0:
            return 0
        at = hit + len(mark)
    return whole.rfind(b"\n", 0, at) + 1 if extra > 0 else 0


def _telling(block: bytes) -> tuple[bytes, ...]:
    """The marks to count: a mirror's or a dict's where there are any, the vaguer ones else."""
    strong = tuple(mark for mark in METRIC_MARKS[:3] if mark in block)
    return strong or METRIC_MARKS[3:]


def _counts(reading: Reading) -> bool:
    return (reading.kind in WANTED and bool(reading.metrics)) or (
        reading.kind is ReadingKind.TRIAL and reading.detail == "progress"
    )
