"""The scan against ripgrep with the same patterns, by turns; prints ratios. See README.md beside this file."""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import logs
import zstandard

ROOT = Path(__file__).parents[2]
DATA = ROOT / "bench" / "data" / "diagnosis"
RG_FLAGS = ["-a", "-n", "-b", "--no-heading", "--color=never", "--no-config", "--no-unicode"]

CHILD = """
import resource, sys, time
from supervisor.app.diagnose import Source, read_source
from supervisor.app.packs import prepare
prepared = prepare(engine=sys.argv[1])
wall, cpu = time.perf_counter(), time.process_time()
for path in sys.argv[2:]:
    read_source(Source(path, path=path), prepared)
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(wall, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def ours(engine: str, *paths: Path) -> tuple[float, float]:
    """(wall, cpu) seconds of the scan alone, in a fresh process, engines compiled before."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, engine, *map(str, paths)], capture_output=True, check=True, text=True, cwd=ROOT
    )
    wall, cpu, grown = map(float, done.stdout.split())
    GROWN[paths[0].name] = grown
    return wall, cpu


GROWN: dict[str, float] = {}


def command(*argv: str) -> tuple[float, float]:
    """(wall, cpu) seconds of a whole program."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, cwd=ROOT)
    wall, after = time.perf_counter() - start, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def patterns(path: Path) -> Path:
    """The catalogue's patterns as the engines get them, one a line, for `rg -f`; progress included."""
    from supervisor.app.packs import prepare
    from supervisor.diagnosis.scan import plan

    chosen = plan(prepare().catalogue).patterns[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{'(?i)' if pattern.caseless else ''}{pattern.engine}\n" for pattern in chosen)
    path.write_text(text, "latin-1")
    print(f"{len(chosen)} patterns")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rg", required=True, help="ripgrep 15")
    parser.add_argument("--mb", type=float, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--re2-mb", type=float, default=64, help="size for the RE2 engine and the archives")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    big = logs.make(DATA / f"big-{options.mb:g}.log", options.mb)
    small = logs.make(DATA / f"small-{options.re2_mb:g}.log", options.re2_mb)
    fifty = logs.make(DATA / "fifty.log", 50)
    storm = logs.storm(DATA / "storm.log", 32)
    many = [logs.make(DATA / "many" / f"{n:03d}.log", 1, seed=n) for n in range(128)]
    packed = DATA / f"{small.name}.gz", DATA / f"{small.name}.zst"
    if not packed[0].exists():
        packed[0].write_bytes(gzip.compress(small.read_bytes(), 6))
        packed[1].write_bytes(zstandard.ZstdCompressor().compress(small.read_bytes()))
    wanted = patterns(DATA / "patterns.txt")
    rg = [options.rg, *RG_FLAGS, "-f", str(wanted)]
    no_lines = [flag for flag in rg if flag != "-n"]
    cases: list[tuple[str, str, float, Callable[[], tuple[float, float]]]] = [
        ("rg, big file", "", options.mb, lambda: command(*rg, str(big))),
        ("scan, big file, with line numbers", "rg, big file", options.mb, lambda: ours("auto", big)),
        ("rg without -n, big file", "", options.mb, lambda: command(*no_lines, "--no-line-number", str(big))),
        ("scan against rg without line numbers", "rg without -n, big file", options.mb, lambda: ours("auto", big)),
        ("floor: cat", "rg, big file", options.mb, lambda: command("cat", str(big))),
        ("floor: wc -l", "rg, big file", options.mb, lambda: command("wc", "-l", str(big))),
        ("rg, small file", "", options.re2_mb, lambda: command(*rg, str(small))),
        ("scan, RE2 engine", "rg, small file", options.re2_mb, lambda: ours("re2", small)),
        ("scan, gzip", "rg, small file", options.re2_mb, lambda: ours("auto", packed[0])),
        ("scan, zstd", "rg, small file", options.re2_mb, lambda: ours("auto", packed[1])),
        (
            "error storm, per byte of the big file's scan",
            "scan, big file, with line numbers",
            32,
            lambda: ours("auto", storm),
        ),
        ("rg, 128 files of 1 MB", "", 128, lambda: command(*rg, *map(str, many))),
        ("scan, 128 files of 1 MB", "rg, 128 files of 1 MB", 128, lambda: ours("auto", *many)),
        ("scan alone, 50 MB", "", 50, lambda: ours("auto", fifty)),
        (
            "diagnose end to end, 50 MB",
            "scan alone, 50 MB",
            50,
            lambda: command(sys.executable, "-m", "supervisor.app.diagnose", "--json", str(fifty)),
        ),
    ]
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name, *_ in cases}
    for round_number in range(options.rounds + 1):
        for name, _anchor, _size, measure in cases:
            seconds = measure()
            if round_number:
                taken[name].append(seconds)
    size = {name: megabytes for name, _anchor, megabytes, _ in cases}
    print(f"{'case':46} {'wall':>6} {'cpu':>6}   MB/s of CPU")
    for name, anchor, megabytes, _ in cases:
        cpu = statistics.median(c for _, c in taken[name])
        row = f"{name:46}"
        if anchor:
            pairs = list(zip(taken[name], taken[anchor], strict=True))
            per_byte = size[anchor] / megabytes
            for which in (0, 1):
                row += f" {statistics.median(a[which] / b[which] for a, b in pairs) * per_byte:6.2f}"
        else:
            row += f" {'1':>6} {'1':>6}"
        print(f"{row}   {megabytes / cpu:8.0f}")
    print("peak memory of the whole process, MB:", {name: round(grown, 1) for name, grown in GROWN.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
