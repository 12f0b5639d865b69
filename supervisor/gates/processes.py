"""A job's processes as captured: what each is for, and whether it does anything between two samples.

The text form is told in ``clusters.node_commands``: ``# sample N at EPOCH``, then a table under a header. Columns are found
by their names, so that the order and the spelling of any ``ps`` will do; the command comes last and is free text.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib import resources

from supervisor.model.findings import Quote
from supervisor.model.probe import Case, Role

MOST_PROCESSES = 20_000
"""Lines of one sample that are taken in."""
READ_OF_A_COMMAND = 4096
READ_OF_A_NAME = 160
QUOTED = 400

_SAMPLE = re.compile(r"#\s*sample\s+(\d{1,6})\s+at\s+(\d+(?:\.\d+)?)", re.I)
_COLUMNS = {
    "PID": "pid",
    "PPID": "ppid",
    "PGID": "pgid",
    "PGRP": "pgid",
    "STAT": "state",
    "S": "state",
    "STATE": "state",
    "NLWP": "threads",
    "THCNT": "threads",
    "CPUTIMES": "cpu",
    "CPUTIME": "cpu",
    "TIMES": "cpu",
    "TIME": "cpu",
    "ETIMES": "age",
    "ETIME": "age",
    "ELAPSED": "age",
    "RSS": "rss",
    "RSZ": "rss",
    "WCHAN": "wchan",
    "COMMAND": "command",
    "CMD": "command",
    "ARGS": "command",
}
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_INTERPRETER = re.compile(r"(?:python|pypy|pt_main_thread)[\d.]*", re.I)
_DEFUNCT = re.compile(r"\[(.{1,64})\] <defunct>")
_SPAWNED = re.compile(r"from multiprocessing\.(?:spawn|forkserver) import|--multiprocessing-fork")
_TAKES_A_WORD = ("-W", "-X", "--check-hash-based-pycs")


class Part(StrEnum):
    """What a process does for its job; told from names, as ``data/processes.toml`` knows them."""

    TRAINER = "trainer"
    """A rank of the policy, or of whatever is trained."""
    DRIVER = "driver"
    """Runs the loop and calls the ranks; holds no device of its own."""
    REFERENCE = "reference"
    """A reference, reward or critic model beside the policy."""
    ENGINE = "engine"
    """An inference engine, or one of its workers."""
    COORDINATOR = "coordinator"
    """Hands out rollouts or trials and gathers them (PROBE-8)."""
    DATA = "data"
    COMPILER = "compiler"
    TRANSFER = "transfer"
    TRACKER = "tracker"
    """Experiment trackers and whatever else only looks on."""
    LAUNCHER = "launcher"
    SANDBOX = "sandbox"
    OTHER = "other"
    """No rule knows its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process over the samples that show it. Shares are of one core: 1.0 is one core all the time."""

    pid: int
    ppid: int | None
    pgid: int | None
    states: tuple[str, ...]
    """One a sample that shows it: ``R``, ``S``, ``D``, ``T``, ``Z`` …"""
    threads: int | None
    cpu_share: float | None
    """Between the first and the last sample that show it; None where that can't be told."""
    cpu_share_most: float | None
    """The most that it can be, by how finely its processor time was told."""
    rss_kib: int | None
    age_s: float | None
    wchan: str
    command: str
    program: str
    script: str
    part: Part
    gone: bool
    """Not in the last sample any more."""
    new: bool
    """Not in the first sample yet."""
    node: str | None
    file: str
    line: int
    text: str

    @property
    def state(self) -> str:
        return self.states[-1] if self.states else ""

    @property
    def zombie(self) -> bool:
        return self.state in ("Z", "X", "x")

    @property
    def uninterruptible(self) -> bool:
        """In every sample: a wait inside the kernel, mostly for a disk or a network file system."""
        return bool(self.states) and all(each == "D" for each in self.states)

    @property
    def stopped(self) -> bool:
        return self.state in ("T", "t")

    def idle(self, share: float) -> bool | None:
        """Whether it positively used no more than ``share`` of a core; None where samples can't tell. The dead are idle."""
        if self.zombie:
            return True
        if self.cpu_share is None or self.cpu_share_most is None:
            return None
        if self.cpu_share > share:
            return False
        return True if self.cpu_share_most <= share else None

    @property
    def quote(self) -> Quote:
        return Quote(self.file, self.line, self.text[:QUOTED])


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProcesses:
    """The job's processes on one node. ``over_s`` lies between the first and the last sample; 0 with one."""

    node: str | None
    file: str
    samples: int
    over_s: float
    processes: tuple[Process, ...]

    def of(self, *parts: Part) -> tuple[Process, ...]:
        return tuple(each for each in self.processes if each.part in parts)


@dataclass(slots=True)
class _Seen:
    """One line of one sample."""

    values: dict[str, str]
    line: int
    text: str
    at: float

    def number(self, name: str) -> int | None:
        text = self.values.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def of(case: Case) -> tuple[NodeProcesses, ...]:
    """One view for each PROCESSES exhibit that was read."""
    return tuple(
        read(case.lines(exhibit.file), exhibit.file, exhibit.node)
        for exhibit in case.read(Role.PROCESSES)
        if exhibit.file is not None
    )


def everyone(views: Iterable[NodeProcesses]) -> tuple[Process, ...]:
    return tuple(process for view in views for process in view.processes)


def trainers(views: Sequence[NodeProcesses]) -> tuple[Process, ...]:
    """Those whose progress is the job's (LIVE-4), with the unknown programs that they started.

    Where no name of the job is known, its programs that are no launchers; of a job of nothing else, all its processes.
    """
    processes = everyone(views)
    found = tuple(each for view in views for each in _working(view))
    if found or any(each.part in (Part.ENGINE, Part.COORDINATOR) for each in processes):
        return found
    return tuple(each for each in processes if each.part is Part.OTHER) or processes


def _working(view: NodeProcesses) -> Iterator[Process]:
    own = (Part.TRAINER, Part.DRIVER, Part.REFERENCE)
    parents = {each.pid: each for each in view.processes}
    for process in view.processes:
        above: Process | None = process if process.part in (*own, Part.OTHER) else None
        for _ in range(16):  # a loop of parents is bad input
            if above is None or above.part not in (Part.OTHER, Part.LAUNCHER):
                break
            above = parents.get(above.ppid) if above.ppid is not None else None
        if above is not None and above.part in own:
            yield process


def read(lines: Sequence[str], file: str, node: str | None = None) -> NodeProcesses:
    """Any text: lines that are no process, under no header or in no sample, say nothing."""
    samples = list(_samples(lines))
    first, last = (samples[0], samples[-1]) if samples else ({}, {})
    seen: dict[int, list[_Seen]] = {}
    for sample in samples:
        for pid, row in sample.items():
            rows = seen.setdefault(pid, [])
            if rows and _another(rows[-1], row):
                rows.clear()  # the number was given to a new process
            rows.append(row)
    processes = [_process(pid, rows, pid not in last, pid not in first, file, node) for pid, rows in seen.items()]
    times = [next(iter(sample.values())).at for sample in samples if sample]
    over = times[-1] - times[0] if len(times) > 1 and math.isfinite(times[-1] - times[0]) else 0.0
    return NodeProcesses(
        node=node, file=file, samples=len(samples), over_s=max(0.0, over), processes=tuple(_families(processes))
    )


def _samples(lines: Sequence[str]) -> Iterator[dict[int, _Seen]]:
    """By process number. A table without a mark above it is a sample of unknown time."""
    rows: dict[int, _Seen] = {}
    header: list[str] | None = None
    at, open_ = math.nan, False
    for number, text in enumerate(lines, 1):
        mark = _SAMPLE.match(text.strip()) if text.lstrip().startswith("#") else None
        if mark is not None:
            if open_:
                yield rows
            rows, header, at, open_ = {}, None, float(mark[2]), True
            continue
        if text.lstrip().startswith("#"):
            continue
        columns = _header(text)
        if columns is not None:
            header, open_ = columns, True
            continue
        if header is None or len(rows) >= MOST_PROCESSES:
            continue
        parts = text.split(None, len(header) - 1)
        if len(parts) < len(header) - 1:
            continue
        row = _Seen(dict(zip(header, parts, strict=False)), number, text, at)
        pid = row.number("pid")
        if pid is not None:
            rows[pid] = row
    if open_:
        yield rows


def _header(text: str) -> list[str] | None:
    """Names of columns, unknown ones kept so that positions hold; None for a line that is none."""
    words = text.split()
    if "PID" not in words or len(words) < 3 or any(word.isdigit() for word in words):
        return None
    named = [_COLUMNS.get(word.upper(), word) for word in words]
    return named if named[-1] == "command" else None


def _another(before: _Seen, after: _Seen) -> bool:
    """By its age and its parent's processor time: a process never grows younger, nor gives time back."""
    ages = (_seconds(before.values.get("age", "")), _seconds(after.values.get("age", "")))
    if ages[0] is not None and ages[1] is not None and ages[1][0] + 1.5 < ages[0][0]:
        return True
    spent = (_seconds(before.values.get("cpu", "")), _seconds(after.values.get("cpu", "")))
    return spent[0] is not None and spent[1] is not None and spent[1][0] + 1.0 < spent[0][0]


def _process(pid: int, rows: Sequence[_Seen], gone: bool, new: bool, file: str, node: str | None) -> Process:
    latest = rows[-1]
    command = latest.values.get("command", "").strip()
    program, script = words_of(command)
    share, most = _share(rows)
    age, rss = _seconds(latest.values.get("age", "")), latest.number("rss")
    return Process(
        pid=pid,
        ppid=latest.number("ppid"),
        pgid=latest.number("pgid"),
        states=tuple(row.values.get("state", "")[:1] for row in rows),
        threads=latest.number("threads"),
        cpu_share=share,
        cpu_share_most=most,
        rss_kib=rss,
        age_s=age[0] if age else None,
        wchan=_wchan(latest.values.get("wchan", "")),
        command=command,
        program=program,
        script=script,
        part=part_of(command),
        gone=gone,
        new=new,
        node=node,
        file=file,
        line=latest.line,
        text=latest.text,
    )


def _share(rows: Sequence[_Seen]) -> tuple[float | None, float | None]:
    """Processor time over wall time, and its upper bound: a time told in whole seconds hides up to one, on either side."""
    if len(rows) < 2:
        return None, None
    before, after = _seconds(rows[0].values.get("cpu", "")), _seconds(rows[-1].values.get("cpu", ""))
    wall = rows[-1].at - rows[0].at
    if before is None or after is None or not math.isfinite(wall) or wall <= 0:
        return None, None
    spent = max(0.0, after[0] - before[0])
    surely = wall - 1.0 if rows[0].at.is_integer() and rows[-1].at.is_integer() else wall
    most = (spent + max(before[1], after[1])) / surely if surely > 0 else math.inf
    return spent / wall, most


def _seconds(text: str) -> tuple[float, float] | None:
    """Seconds and how finely they were told: ``12``, ``12.34``, ``01:02:03``, ``2-01:02:03``, ``02:03.45``."""
    if not text.isascii() or len(text) > 24:
        return None
    grain = 10.0 ** -len(text.partition(".")[2]) if "." in text else 1.0
    if text.replace(".", "", 1).isdigit():
        return float(text), grain
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return days * 86_400 + hours * 3600 + minutes * 60 + seconds, grain


def _wchan(text: str) -> str:
    return "" if text in ("-", "0", "?", "*") else text


# -- names -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    part: Part
    title: re.Pattern[str] | None
    program: re.Pattern[str] | None
    script: re.Pattern[str] | None
    command: re.Pattern[str] | None

    def knows(self, command: str, program: str, script: str) -> bool:
        return (
            (self.title is None or self.title.fullmatch(command[:READ_OF_A_NAME]) is not None)
            and (self.program is None or self.program.fullmatch(program[:READ_OF_A_NAME]) is not None)
            and (self.script is None or (bool(script) and self.script.fullmatch(script[:READ_OF_A_NAME]) is not None))
            and (self.command is None or self.command.search(command) is not None)
        )


def table() -> list[Mapping[str, object]]:
    """The rows of ``data/processes.toml``, with their examples."""
    text = resources.files("supervisor.data").joinpath("processes.toml").read_text("utf-8")
    return list(tomllib.loads(text)["process"])


@cache
def _rules() -> tuple[_Rule, ...]:
    def compiled(row: Mapping[str, object], name: str) -> re.Pattern[str] | None:
        pattern = row.get(name)
        return re.compile(str(pattern), re.I if name == "program" else 0) if pattern is not None else None

    return tuple(
        _Rule(
            Part(str(row["part"])),
            compiled(row, "title"),
            compiled(row, "program"),
            compiled(row, "script"),
            compiled(row, "command"),
        )
        for row in table()
    )


def part_of(command: str) -> Part:
    """What a command line's names say; ``OTHER`` where no rule knows them."""
    command = command[:READ_OF_A_COMMAND].strip()
    dead = _DEFUNCT.fullmatch(command)
    command = dead[1] if dead else command
    program, script = words_of(command)
    return next((rule.part for rule in _rules() if rule.knows(command, program, script)), Part.OTHER)


def words_of(command: str) -> tuple[str, str]:
    """The program's name, and what an interpreter runs: a file's name, a module, or the text of ``-c``; empty else."""
    words = command[:READ_OF_A_COMMAND].split()
    if not words:
        return "", ""
    program = words[0].rsplit("/", 1)[-1].rstrip(":")
    if _INTERPRETER.fullmatch(program) is None:
        return program, ""
    rest = iter(words[1:])
    for word in rest:
        if word in _TAKES_A_WORD:
            next(rest, None)
        elif word == "-m":
            return program, next(rest, "")
        elif word == "-c":
            return program, " ".join(rest)
        elif word.startswith("-m") and len(word) > 2:
            return program, word[2:]
        elif not word.startswith("-"):
            return program, word.rsplit("/", 1)[-1]
    return program, ""


def _families(processes: list[Process]) -> Iterator[Process]:
    """What only the parent tells: a data loader's forked workers bear its whole command line; spawned ones bear no name."""
    by_pid = {each.pid: each for each in processes}
    for process in processes:
        parent = by_pid.get(process.ppid) if process.ppid is not None else None
        if parent is None or parent.pid == process.pid:
            yield process
        elif process.part in (Part.TRAINER, Part.DRIVER, Part.OTHER) and process.command == parent.command:
            # A torch launcher's ranks differ from it; the same words twice are a fork.
            yield process if process.command == "pt_main_thread" else replace(process, part=Part.DATA)
        elif process.part is Part.OTHER and _SPAWNED.search(process.command) and parent.part is not Part.LAUNCHER:
            yield replace(process, part=parent.part)
        else:
            yield process
