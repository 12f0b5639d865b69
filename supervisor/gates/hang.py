"""Does it hang? Asked only of a job that has stood still for long: its processes, its stacks and its log's own words (LIVE-5)."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.gates import processes, progress, said
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, Missing, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """What was found. ``proven`` needs processes that positively stand still and stacks that were read."""

    words: str
    quotes: tuple[Quote, ...] = ()
    proven: bool = False
    missing: Missing | None = None
    """Of what would have decided it."""
    cause: str = ""
    fix: str = ""
    confidence: str = "medium"
    watch: str = ""


def judge(case: Case, stand: progress.Stand) -> Hang:
    views = processes.of(case)
    if not views:
        return Hang(
            words="What its processes do could not be seen.", missing=said.missing(case, Role.PROCESSES, Role.STACK)
        )
    return Hang(
        words="Its processes do not show that they stand still.",
        watch="a stack dump by py-spy or gdb, or the same silence again",
    )
