"""Situations that the supervisor must tell apart, played through the whole of it: scripted schedulers, real loop, store and reports.

``python -m tests.stories.examples`` plays them and prints the tables that a person would read, and what is flagged with its quotes.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from supervisor.buckets import KINDS
from supervisor.model.job import JobState
from supervisor.reports import status
from supervisor.store.light import Light
from tests.scripted import ScriptedCluster, World
from tests.stories import voices
from tests.stories.daemon import a_room

BEGIN = datetime(2026, 7, 1, 6, 0, tzinfo=UTC)
HALF, LATE, LAST = (BEGIN + timedelta(hours=hours) for hours in (3, 6, 7))


@dataclass
class Played:
    """What came of it."""

    text: str
    """``status`` as a file would hold it."""
    jobs: dict[str, dict[str, Any]]
    """``status --json``, by job name; of several jobs of one name, the one that runs."""
    logs: dict[str, str]
    """What each job had printed at the end, by log path."""
    sweep: str
    """The last entry of the day's record."""

    def flags(self, name: str) -> dict[str, dict[str, Any]]:
        return {flag["rule"]: flag for flag in self.jobs[name]["flags"]}


def _begin(a: World, b: World) -> None:
    """06:00: everything is submitted, most of it runs."""
    for job, name in (
        ("101", "rl__gsm8k_base"),
        ("102", "rl__math_a"),
        ("103", "rl__math_zclip"),
        ("104", "rl__deepscaler"),
        ("105", "rl__nan"),
        ("201", "sft__delphi_1b"),
        ("202", "sft__delphi_8b"),
        ("301", "datagen__swe_rows"),
        ("302", "datagen__swe_dead"),
        ("401", "eval-qwen8b-swebench"),
        ("402", "eval-qwen8b-zombie"),
        ("501", "rl__chained"),
        ("601", "consolidate-swe"),
    ):
        a.submit(job, name)
        a.start(job)
    a.submit("502", "rl__chained", after="501")
    a.submit("203", "sft__delphi_70b")
    for number in range(3):
        a.submit(f"20{4 + number}", "sft__delphi_70b", after=f"20{3 + number}")
    a.submit("207", "sft__delphi_1b", after="201")
    a.submit("208", "sft__delphi_300m")
    a.start("208")
    b.submit("9", "rl__gsm8k_shaped")
    b.start("9")


BROKEN = dict.fromkeys(range(40, 90), voices.BROKEN)


def _steps(first: int, last: int, **more: Any) -> bytes:
    began = voices.BEGAN + timedelta(minutes=7 * (first - 1))
    return voices.rl_run(range(first, last + 1), began=began, **more).encode()


def _half(a: World, b: World) -> None:
    """09:00: half of what they do."""
    for job, more in (("101", {}), ("102", {}), ("103", {}), ("104", {}), ("105", {}), ("501", {})):
        a.print(job, _steps(1, 25, **more))
    b.print("9", _steps(1, 25, shaped=True, reward=0.62, scale=0.006))
    a.print("201", voices.sft_run(1, 320, 916).encode())
    a.print("202", voices.sft_run(1, 40, 916, s_per_step=240).encode())
    a.print("208", voices.sft_run(1, 916, 916, s_per_step=10).encode())
    a.print("301", voices.trials(range(1, 200), 500).encode())
    a.print("302", voices.trials(range(1, 60), 500, mean=0.0).encode())
    a.print("401", (voices.trials(range(1, 100), 300) + voices.engine(voices.BEGAN)).encode())
    a.print("402", voices.trials(range(1, 200), 300, mean=0.21).encode())
    a.print("601", b"pushing 12,000 rows\n")


def _late(a: World, b: World) -> None:
    """12:00: some fall apart, one is new, one ends well."""
    a.print("101", _steps(26, 50))
    a.print("102", _steps(26, 50, changes=BROKEN))
    a.print("103", _steps(26, 50, changes=BROKEN))
    a.print("104", _steps(26, 50) + voices.engine(voices.BEGAN + timedelta(hours=6)).encode())
    nan = {step: {"policy/raw_grad_norm": float("nan")} for step in (49, 50, 51)}
    a.print("105", _steps(26, 50, changes=nan))
    b.print("9", _steps(26, 50, shaped=True, reward=0.62, scale=0.006))
    a.print("201", voices.sft_run(321, 700, 916).encode())
    a.print("202", voices.sft_run(41, 90, 916, s_per_step=240).encode())
    a.end("208", JobState.COMPLETED, 0)
    a.print("301", (voices.trials(range(200, 400), 500) + voices.tally(18, 20, 399, 5.1, 0.53, 0.19)).encode())
    a.print("302", (voices.trials(range(60, 120), 500, mean=0.0) + voices.tally(2, 20, 119, 1.02, 0.0, 0.04)).encode())
    a.print("401", (voices.trials(range(100, 142), 300) + voices.engine(voices.BEGAN)).encode())
    a.print("402", voices.trials(range(200, 301), 300, mean=0.21).encode())
    a.print("501", _steps(26, 50))
    a.print("601", b"pushing 90,000 rows\n")
    a.submit("106", "rl__fresh")
    a.start("106")


def _last(a: World, b: World) -> None:
    """13:00: the living print on; one trainer is dead behind its engines; a link of a chain ran out of time."""
    a.print("101", _steps(51, 58))
    a.print("102", _steps(51, 58, changes=BROKEN))
    a.print("103", _steps(51, 58, changes=BROKEN))
    a.print(
        "104",
        b"".join(voices.engine(voices.BEGAN + timedelta(hours=6, minutes=minute)).encode() for minute in range(60)),
    )
    a.print("105", _steps(51, 51, changes={51: {"policy/raw_grad_norm": float("nan")}}))
    b.print("9", _steps(51, 58, shaped=True, reward=0.62, scale=0.006))
    a.print("201", voices.sft_run(701, 820, 916).encode())
    a.print("202", voices.sft_run(91, 105, 916, s_per_step=240).encode())
    a.print("301", voices.trials(range(400, 450), 500).encode())
    a.print("302", voices.trials(range(120, 130), 500, mean=0.0).encode())
    a.print("401", (voices.trials(range(142, 150), 300) + voices.engine(voices.BEGAN)).encode())
    a.print("402", b"uploading results\n")
    a.print("601", b"pushed\n")
    a.print("106", b"Loading safetensors checkpoint shards:  40% Completed | 2/5 [00:20<00:30, 10.1s/it]\n")
    a.end("501", JobState.TIMED_OUT)


def play(folder: Path) -> Played:
    """Four ticks over seven hours, in a moment."""
    return asyncio.run(_play(folder))


async def _play(folder: Path) -> Played:
    a, b = World("alpha", BEGIN), World("beta", BEGIN)
    room, clock = a_room(folder, [ScriptedCluster(a), ScriptedCluster(b)], BEGIN)
    try:
        _begin(a, b)
        await room.tick(30)
        for moment, happens in ((HALF, _half), (LATE, _late), (LAST, _last)):
            for world in (a, b):
                world.pass_time(moment - world.now)
            happens(a, b)
            clock[0] = moment
            await room.tick(30)
            clock[0] = moment + timedelta(seconds=30)
            await room.tick(30)
    finally:
        await room.close()
    with Light.open(f"sqlite:///{folder / 'supervisor.db'}") as light:
        summary, rows = light.summary(), light.jobs(ended_after=BEGIN)
    tables = status.tables(rows, clock[0], unknown={}, wide=None, colour=False, pipes=False, kinds=KINDS)
    document = status.document(summary, rows, clock[0])
    jobs: dict[str, dict[str, Any]] = {}
    for job in sorted(document["jobs"], key=lambda each: (each["started_at"] is not None, each["ended_at"] is None)):
        jobs[job["name"]] = job
    jobs["rl__chained (first)"] = next(job for job in document["jobs"] if job["id"] == "501")
    logs = {f"/home/alice/{it.id}.out": it.text.decode() for world in (a, b) for it in world.jobs.values()}
    records = sorted((folder / "agent_logs").glob("*_sweep.md"))
    return Played("\n".join(tables), jobs, logs, records[-1].read_text("utf-8").rpartition("\n## ")[2])


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory() as folder:
        played = play(Path(folder))
    sys.stdout.write(played.text + "\n")
    for name, job in played.jobs.items():
        for flag in job["flags"]:
            sys.stdout.write(f"{name}: {flag['severity']} {flag['rule']} {flag['text']}\n")
            for quote in flag["quotes"]:
                sys.stdout.write(f"    {quote['file']}:{quote['line'] or '?'}: {status.plain(quote['text'])[:150]}\n")


if __name__ == "__main__":
    main()
