"""What the threads of a job's processes were doing: py-spy's and gdb's stacks, and the kernel's view where neither could look.

A stack says where a thread is, never for how long: standing still is told by two samples (``/proc``) or two probes (``digest``).
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources

from supervisor.model.findings import Quote
from supervisor.model.probe import Case, Role

MOST_THREADS = 4096
MOST_FRAMES = 256
"""Of one thread, the innermost; recursion can be deeper."""
NEAR = 4
"""Innermost frames among which a lock, a poll or a sleep tells what a thread waits for."""
READ_OF_A_FRAME = 400
QUOTED = 400

_PROCESS = re.compile(r"#\s*process\s+(\d{1,10})(?:\s+(.*))?$")
_BY = re.compile(r"#\s*by\s+(py-spy|gdb|/proc)\b")
_AGAIN = re.compile(r"#\s*again\b")
_KERNEL = re.compile(r"thread\s+(\d{1,10})\s+(\S)\S*\s+(\S+)\s+(\d{1,18}|-)\s+(\d{1,18}|-)(?:\s+(.*))?$")
_SPY_THREAD = re.compile(r"Thread (0x[0-9A-Fa-f]+|\d+)(?:/(0x[0-9A-Fa-f]+|\d+))? \(([a-z+]+)\)(?:: \"(.*)\")?\s*$")
_SPY_FRAME = re.compile(r"\s{2,}(\S.*?) \(([^()]*)\)\s*$")
_GDB_THREAD = re.compile(r"Thread (\d+) \((?:Thread 0x[0-9a-f]+ )?\(?(?:LWP|process) (\d+)\)?(?: \"(.*)\")?\):")
_GDB_FRAME = re.compile(r"#\d+\s+(?:0x[0-9a-f]+ in )?(.*)$")
_GDB_PLACE = re.compile(r" (?:from|at) (\S+)$")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_RUNNING = ("-", "0", "?", "*")


class Wait(StrEnum):
    """What a thread waits for."""

    COLLECTIVE = "collective"
    """Other ranks: a collective, a rendezvous, a key of a store."""
    LOCK = "lock"
    QUEUE = "queue"
    """A queue, a pipe, a poll, a remote result."""
    DATA = "data"
    FILE = "file"
    COMPILE = "compile"
    CHECKPOINT = "checkpoint"
    NETWORK = "network"
    DEVICE = "device"
    """The accelerator, to finish what it was asked."""
    SLEEP = "sleep"
    CHILD = "child"
    """A process that it started."""
    HOUSEKEEPING = "housekeeping"
    """A watchdog or monitor beside the work; says nothing of the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One thread. ``frames`` are innermost first, ``function (file:line)``; empty where only the kernel was asked."""

    id: str
    name: str
    main: bool
    state: str
    """``active`` or ``idle`` (py-spy), the kernel's letter (/proc), empty (gdb)."""
    frames: tuple[str, ...]
    wait: Wait | None
    """The innermost that tells; None where nothing on the stack is known to wait."""
    within: frozenset[Wait]
    """All that its frames name, from anywhere on the stack: a barrier may be part of a save."""
    wchan: str
    ticks: int | None
    """Processor time spent between the two looks, in clock ticks; /proc only."""
    switches: int | None
    """Times that it went to sleep by itself between them."""
    line: int
    """Where it begins in its file."""
    wait_line: int
    """The frame that names the wait; its first line else."""

    @property
    def named(self) -> bool:
        return bool(self.frames)

    @property
    def moving(self) -> bool | None:
        """Whether it ran at all between two looks; None where there was one."""
        if self.ticks is None and self.switches is None:
            return None
        return bool(self.ticks) or bool(self.switches)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStack:
    """All threads of one process. ``how`` is ``py-spy``, ``gdb`` or ``proc``; empty where nothing could look at it."""

    pid: int
    comm: str
    how: str
    threads: tuple[Thread, ...]
    failure: str
    """What was said instead of a stack; empty where there is one."""
    node: str | None
    file: str
    line: int
    quote: Quote
    """The line that shows what its main thread waits for; else where that thread is; else the block's head."""

    @property
    def named(self) -> bool:
        return self.how in ("py-spy", "gdb") and any(thread.named for thread in self.threads)

    @property
    def main(self) -> Thread | None:
        return next((thread for thread in self.threads if thread.main), None)

    @property
    def wait(self) -> Wait | None:
        return self.main.wait if self.main is not None else None

    @property
    def within(self) -> frozenset[Wait]:
        return self.main.within if self.main is not None else frozenset()

    @property
    def moving(self) -> bool | None:
        """Of the main thread: helpers beside it wake up in a hung process too."""
        return self.main.moving if self.main is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStacks:
    node: str | None
    file: str
    processes: tuple[ProcessStack, ...]


def of(case: Case) -> tuple[NodeStacks, ...]:
    """One for each STACK exhibit that was read."""
    return tuple(
        read(case.lines(exhibit.file), exhibit.file, exhibit.node)
        for exhibit in case.read(Role.STACK)
        if exhibit.file is not None
    )


def everyone(views: Iterable[NodeStacks]) -> tuple[ProcessStack, ...]:
    return tuple(process for view in views for process in view.processes)


def digest(views: Iterable[NodeStacks]) -> str | None:
    """``sha256:…`` over who stands where, without addresses, times, counters and the order of threads.

    Equal in two probes: every thread of every process is on the same line of the same functions. None unless all
    processes gave functions: what the kernel alone shows is the same for a process that waits now and then.
    """
    processes = everyone(views)
    if not processes or not all(process.named for process in processes):
        return None
    said = sorted(
        f"{process.node or ''}\t{process.pid}\t" + "\n".join(sorted(_still(thread) for thread in process.threads))
        for process in processes
    )
    return "sha256:" + hashlib.sha256("\n\n".join(said).encode("utf-8", "surrogateescape")).hexdigest()


def _still(thread: Thread) -> str:
    return "\t".join((thread.name, *thread.frames))


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Open:
    """A thread whose lines are still coming."""

    id: str
    name: str
    main: bool
    state: str
    line: int
    frames: list[tuple[str, int]] = field(default_factory=list)


def read(lines: Sequence[str], file: str, node: str | None = None) -> NodeStacks:
    """Any text: what stands in no block, and lines of no known form, say nothing."""
    return NodeStacks(node=node, file=file, processes=tuple(_blocks(lines, file, node)))


def _blocks(lines: Sequence[str], file: str, node: str | None) -> Iterator[ProcessStack]:
    heads = [
        (number, found) for number, text in enumerate(lines) if text[:1] == "#" and (found := _PROCESS.match(text))
    ]
    for place, (start, head) in enumerate(heads):
        stop = heads[place + 1][0] if place + 1 < len(heads) else len(lines)
        yield _process(lines, start, stop, int(head[1]), (head[2] or "").strip(), file, node)


def _process(
    lines: Sequence[str], start: int, stop: int, pid: int, comm: str, file: str, node: str | None
) -> ProcessStack:
    """The way that gave functions counts before one that gave none; a failed one leaves its words."""
    best: tuple[str, tuple[Thread, ...]] = ("", ())
    failure = ""
    marks = [number for number in range(start, stop) if _BY.match(lines[number])]
    for place, mark in enumerate(marks):
        end = marks[place + 1] if place + 1 < len(marks) else stop
        how = _how(lines[mark])
        threads = _threads(how, lines, mark + 1, end, pid)
        if not threads:
            failure = failure or _first_words(lines, mark + 1, end)
        elif not best[1] or (not any(each.named for each in best[1]) and any(each.named for each in threads)):
            best = (how, threads)
    main = next((thread for thread in best[1] if thread.main), None)
    at = main.wait_line if main is not None else start + 1
    return ProcessStack(
        pid=pid,
        comm=comm,
        how=best[0],
        threads=best[1],
        failure="" if best[1] else failure or _first_words(lines, start + 1, stop) or _not_by(lines, start, stop),
        node=node,
        file=file,
        line=start + 1,
        quote=Quote(file, at, lines[at - 1][:QUOTED]),
    )


def _how(text: str) -> str:
    found = _BY.match(text)
    return "" if found is None else "proc" if found[1] == "/proc" else found[1]


def _first_words(lines: Sequence[str], start: int, stop: int) -> str:
    return next((text.strip()[:QUOTED] for text in lines[start:stop] if text.strip() and text[:1] != "#"), "")


def _not_by(lines: Sequence[str], start: int, stop: int) -> str:
    return next((text.lstrip("# ")[:QUOTED] for text in lines[start:stop] if text.startswith("# not by ")), "")


def _threads(how: str, lines: Sequence[str], start: int, stop: int, pid: int) -> tuple[Thread, ...]:
    if how == "proc":
        return _kernel_threads(lines, start, stop, pid)
    read = _spy if how == "py-spy" else _gdb
    opened = read(lines, start, stop, pid)
    if opened and not any(thread.main for thread in opened):
        (next((each for each in opened if each.name == "MainThread"), opened[0])).main = True
    return tuple(_closed(thread) for thread in opened)


def _spy(lines: Sequence[str], start: int, stop: int, pid: int) -> list[_Open]:
    opened: list[_Open] = []
    for number in range(start, stop):
        text = lines[number][:READ_OF_A_FRAME]
        head = _SPY_THREAD.match(text)
        if head is not None:
            if len(opened) >= MOST_THREADS:
                break
            name = head[4] or ""
            main = name == "MainThread" or str(pid) in (head[1], head[2])
            main = main and not any(thread.main for thread in opened)
            opened.append(_Open(head[2] or head[1], name, main, head[3].partition("+")[0], number + 1))
            continue
        frame = _SPY_FRAME.match(text) if opened and len(opened[-1].frames) < MOST_FRAMES else None
        if frame is not None and not frame[1].startswith("0x"):  # no address in a library without names
            opened[-1].frames.append((f"{frame[1]} ({frame[2]})", number + 1))
    return opened


def _gdb(lines: Sequence[str], start: int, stop: int, pid: int) -> list[_Open]:
    opened: list[_Open] = []
    for number in range(start, stop):
        text = lines[number][: 4 * READ_OF_A_FRAME]
        head = _GDB_THREAD.match(text)
        if head is not None:
            if len(opened) >= MOST_THREADS:
                break
            opened.append(_Open(head[2], head[3] or "", int(head[2]) == pid, "", number + 1))
        elif opened and (frame := _GDB_FRAME.match(text)) is not None and len(opened[-1].frames) < MOST_FRAMES:
            named = _gdb_frame(frame[1])
            if named:
                opened[-1].frames.append((named, number + 1))
    return opened


def _gdb_frame(text: str) -> str:
    """``function (file:line)`` or ``function (library)``, without arguments: they hold counters and addresses."""
    place = _GDB_PLACE.search(text)
    where = place[1].rsplit("/", 1)[-1] if place is not None else ""
    name = text[: place.start()] if place is not None else text
    name = _ADDRESS.sub("0x", name.partition(" (")[0].strip())[:READ_OF_A_FRAME]
    return f"{name} ({where})" if name and name != "??" else ""


def _closed(thread: _Open) -> Thread:
    waits = [(_wait_of(frame), line) for frame, line in thread.frames]
    wait, line = None, thread.frames[0][1] if thread.frames else thread.line
    far = next(((found, at) for (found, near), at in waits if found is not None and not near), None)
    close = next(((found, at) for (found, near), at in waits[:NEAR] if found is not None and near), None)
    told = far or close
    if told is not None:
        wait, line = told
    return Thread(
        id=thread.id,
        name=thread.name,
        main=thread.main,
        state=thread.state,
        frames=tuple(frame for frame, _ in thread.frames),
        wait=wait,
        within=frozenset(
            found for place, ((found, near), _) in enumerate(waits) if found and (not near or place < NEAR)
        ),
        wchan="",
        ticks=None,
        switches=None,
        line=thread.line,
        wait_line=line,
    )


def _kernel_threads(lines: Sequence[str], start: int, stop: int, pid: int) -> tuple[Thread, ...]:
    looks: list[dict[str, tuple[re.Match[str], int]]] = [{}]
    for number in range(start, stop):
        if _AGAIN.match(lines[number]):
            looks.append({})
        elif (found := _KERNEL.match(lines[number].strip())) is not None and len(looks[-1]) < MOST_THREADS:
            looks[-1][found[1]] = (found, number + 1)
    before, after = looks[0], looks[-1]
    threads = []
    for id_, (found, line) in (after or before).items():
        earlier = before.get(id_) if len(looks) > 1 and after else None
        wchan = "" if found[3] in _RUNNING else found[3]
        wait = _kernel_wait(wchan)
        threads.append(
            Thread(
                id=id_,
                name=(found[6] or "").strip(),
                main=int(id_) == pid,
                state=found[2],
                frames=(),
                wait=wait,
                within=frozenset((wait,)) if wait else frozenset(),
                wchan=wchan,
                ticks=_more(earlier, found, 4),
                switches=_more(earlier, found, 5),
                line=line,
                wait_line=line,
            )
        )
    return tuple(threads)


def _more(before: tuple[re.Match[str], int] | None, after: re.Match[str], group: int) -> int | None:
    if before is None or before[0][group] == "-" or after[group] == "-":
        return None
    return max(0, int(after[group]) - int(before[0][group]))


# -- what waits --------------------------------------------------------------------------------------------------------


def table() -> Mapping[str, list[Mapping[str, object]]]:
    """``data/stacks.toml``, with its examples."""
    return tomllib.loads(resources.files("supervisor.data").joinpath("stacks.toml").read_text("utf-8"))


@cache
def _rules() -> tuple[tuple[Wait, bool, re.Pattern[str]], ...]:
    return tuple(
        (Wait(str(row["wait"])), bool(row.get("near", False)), re.compile(str(row["pattern"])))
        for row in table()["frame"]
    )


@cache
def _kernel_rules() -> tuple[tuple[Wait, re.Pattern[str]], ...]:
    return tuple((Wait(str(row["wait"])), re.compile(str(row["pattern"]))) for row in table()["kernel"])


@lru_cache(maxsize=4096)
def _wait_of(frame: str) -> tuple[Wait | None, bool]:
    """The wait that a frame names, and whether it tells only near the innermost end."""
    text = frame[:READ_OF_A_FRAME]
    return next(((wait, near) for wait, near, pattern in _rules() if pattern.search(text)), (None, False))


@lru_cache(maxsize=512)
def _kernel_wait(wchan: str) -> Wait | None:
    name = wchan[:READ_OF_A_FRAME].partition(".")[0]
    return next((wait for wait, pattern in _kernel_rules() if pattern.fullmatch(name)), None)
