"""Following metrics in a large log: the megabyte that grew against reading it all again, and the first look from the end.

    python -m bench.readings.following [--gib 1] [--rounds 5] [--dir DIR]

Prints ratios of CPU time measured in one run, each round interleaved: only they mean anything on a shared machine.
Goals (docs: performance): growth of 1 MB at least 100 times cheaper than the whole; the first look for the last 50
metrics at most 3 % of `wc -l`, and as much on a file of a quarter of the size.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable

from supervisor.dialects import follow, tail_points

MB = 1 << 20
GROWTH = 1 * MB


def lines(rnd: random.Random, size: int, step: int) -> tuple[bytes, int]:
    """About ``size`` bytes of a training log whose metric lines are 4 % of all; and the next step."""
    made: list[str] = []
    length = 0
    while length < size:
        step += 1
        for _ in range(24):
            made.append(
                f"(AsyncVLLMInferenceEngine pid={rnd.randrange(20000, 90000)}, ip=10.0.0.{rnd.randrange(9)}) INFO 08-01 "
                f"12:{rnd.randrange(60):02d}:{rnd.randrange(60):02d} [async_llm.py:261] Added request {rnd.getrandbits(48):012x}."
            )
        made.append(
            f"{{'loss': {rnd.uniform(1, 2):.4f}, 'grad_norm': {rnd.uniform(0.1, 1):.6f}, 'learning_rate': 1e-05, "
            f"'epoch': {step / 1e6:.2f}, 'step': {step}}}"
        )
        length += sum(len(text) + 1 for text in made[-25:])
    return ("\n".join(made) + "\n").encode(), step


def make(path: str, size: int) -> None:
    """A log of ``size`` bytes: one block again and again, then 16 MB of steps that are new."""
    rnd = random.Random(7)
    block, _ = lines(rnd, 8 * MB, 0)
    tail, _ = lines(rnd, 16 * MB, 10**6)
    with open(path, "wb") as file:
        while file.tell() + len(tail) < size:
            file.write(block)
        file.write(tail)


def reader(path: str) -> Callable[[int, int], bytes]:
    file = open(path, "rb", buffering=0)  # noqa: SIM115

    def read(offset: int, length: int) -> bytes:
        file.seek(offset)
        return file.read(length)

    return read


def timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def count_lines(path: str) -> float:
    """CPU time of `wc -l`: a full pass, in C."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["wc", "-l", path], stdout=subprocess.DEVNULL, check=True)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime


def whole(path: str) -> None:
    """Every reading of the file from its start, in pieces of 4 MB."""
    state: dict[str, object] | None = None
    read, size = reader(path), os.path.getsize(path)
    for offset in range(0, size, 4 * MB):
        state, _ = follow(state, read(offset, 4 * MB), offset)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--whole-mb", type=int, default=64, help="how much of the file is re-read; scaled up to its size"
    )
    parser.add_argument("--dir", default=None)
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="readings-", dir=options.dir)
    try:
        large, quarter, part = (os.path.join(folder, name) for name in ("large.log", "quarter.log", "part.log"))
        size = int(options.gib * 1024) * MB
        make(large, size)
        make(quarter, size // 4)
        make(part, options.whole_mb * MB)
        read, read_quarter = reader(large), reader(quarter)
        size, part_size = os.path.getsize(large), os.path.getsize(part)
        before = follow(None, read(size - 9 * MB, 8 * MB), size - 9 * MB)[0]
        held = json.dumps(before)
        grown = read(size - GROWTH, GROWTH)
        rows: list[dict[str, float]] = []
        for number in range(options.rounds + 1):
            row = {
                "wc": count_lines(large),
                "tail": timed(lambda: tail_points(read, size)),
                "tail_quarter": timed(lambda: tail_points(read_quarter, os.path.getsize(quarter))),
                "growth": timed(lambda: json.dumps(follow(json.loads(held), grown, size - GROWTH)[0])),
                "whole": timed(lambda: whole(part)) * size / part_size,
            }
            if number:
                rows.append(row)
        view = tail_points(read, size)

        def median(ratio: Callable[[dict[str, float]], float]) -> float:
            return statistics.median(ratio(row) for row in rows)

        print(f"file: {size / MB:.0f} MB; last 50 metrics found: {len(view.points)}, bytes read {view.bytes_read}")
        cheaper, share = median(lambda r: r["whole"] / r["growth"]), median(lambda r: r["tail"] / r["wc"])
        print(f"whole / growth of 1 MB (state in and out included): {cheaper:.0f}  (goal >= 100)")
        print(f"first look / wc -l: {share:.4f}  (goal <= 0.03)")
        print(
            f"first look, whole file / a quarter of it: {median(lambda r: r['tail'] / r['tail_quarter']):.2f}  (flat is 1)"
        )
        for name in rows[0]:
            print(f"  {name}: {statistics.median(row[name] for row in rows) * 1e3:.2f} ms")
        return 0 if cheaper >= 100 and share <= 0.03 else 1
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    raise SystemExit(main())
