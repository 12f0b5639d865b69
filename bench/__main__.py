"""All benchmarks, one after the other; exit 1 if one misses its goal.

python -m bench [NAME …]
"""

from __future__ import annotations

import subprocess
import sys

MODULES = {
    "tick": "bench.tick.sweep",
    "status": "bench.tick.status",
    "slurm": "bench.slurm_poll",
    "bulk": "bench.store.bulk",
    "growth": "bench.store.growth",
    "light": "bench.store.light",
    "following": "bench.readings.following",
    "truth": "bench.readings.truth",
    "diagnosis": "bench.diagnosis.speed",
    "stream": "bench.diagnosis.stream",
}


def main() -> int:
    names = sys.argv[1:] or list(MODULES)
    unknown = [name for name in names if name not in MODULES]
    if unknown:
        print(f"bench: no such benchmark: {', '.join(unknown)}; there are {', '.join(MODULES)}", file=sys.stderr)
        return 2
    missed = [name for name in names if subprocess.run([sys.executable, "-m", MODULES[name]], check=False).returncode]
    if missed:
        print(f"missed its goal: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
