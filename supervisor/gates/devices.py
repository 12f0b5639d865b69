"""Accelerators and memory of a job's nodes as captured: use of each device, who uses it, which exist, what was killed for memory.

What is not told is None: an idle device shows ``0 %``, one that can't be asked shows ``[N/A]``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from supervisor.model.findings import Quote
from supervisor.model.probe import Case, Role

MOST_ROWS = 4096
QUOTED = 400

_SAMPLE = re.compile(r"#\s*sample\s+\d+\s+at\s+(\d+(?:\.\d+)?)", re.I)
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?")
_TITLE = re.compile(r"([a-z][a-z0-9_.]*)(?: \[(.+)\])?$")
_NONE_FOUND = "No devices were found"
_COMPLAINTS = re.compile(
    r"NVIDIA-SMI has failed|communicate with the NVIDIA driver|Failed to initialize NVML|version mismatch"
    r"|Unable to determine the device handle|GPU is lost|fallen off the bus|Unknown Error|reset required"
    r"|Insufficient Permissions|not a valid field",
    re.I,
)
_COUNT = re.compile(r"#\s*(\d{1,6}) accelerator devices?\b")
_EVENT = re.compile(r"([a-z_]{1,32})\s+(\d{1,18})$")

T = TypeVar("T")


# -- use of devices ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator over the samples. Tuples have one entry a sample that shows it; None where it was not told."""

    node: str | None
    index: str
    uuid: str
    name: str
    uses: tuple[float | None, ...]
    """Percent of the time in which some kernel ran. Says nothing of how much of the device it used."""
    memory_mib: tuple[float | None, ...]
    memory_total_mib: float | None
    watts: tuple[float | None, ...]
    watts_limit: float | None
    file: str
    lines: tuple[int, ...]
    quote: Quote
    """Its newest line."""

    @property
    def known(self) -> tuple[float, ...]:
        return tuple(use for use in self.uses if use is not None)

    @property
    def peak(self) -> float | None:
        return max(self.known, default=None)

    def busy(self, percent: float) -> bool | None:
        """Some sample shows it at work; None where no sample tells."""
        return max(self.known) >= percent if self.known else None

    def idle(self, percent: float) -> bool | None:
        """Every sample shows it at rest. One sample is a moment, and None: between two steps every device rests."""
        if not self.known or len(self.known) < len(self.uses):
            return None
        if max(self.known) > percent:
            return False
        return True if len(self.known) > 1 else None

    @property
    def memory_share(self) -> float | None:
        """Of its memory in use, at most, over the samples."""
        used = max((each for each in self.memory_mib if each is not None), default=None)
        return used / self.memory_total_mib if used is not None and self.memory_total_mib else None

    @property
    def watts_share(self) -> float | None:
        """Of its power limit drawn, at most, over the samples."""
        drawn = max((each for each in self.watts if each is not None), default=None)
        return drawn / self.watts_limit if drawn is not None and self.watts_limit else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuView:
    """One node's devices. ``complaint`` is what the tool said instead of, or beside, its table."""

    node: str | None
    file: str
    samples: int
    devices: tuple[Device, ...]
    complaint: Quote | None
    none_found: Quote | None
    """Its own word that there is no device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUser:
    """A process on a device."""

    node: str | None
    uuid: str
    pid: int
    name: str
    memory_mib: float | None
    quote: Quote


@dataclass(slots=True)
class _Rows:
    """What the samples said of one device."""

    values: list[Mapping[str, str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


def gpus(case: Case) -> tuple[GpuView, ...]:
    """One view for each GPU exhibit that was read."""
    return _each(case, Role.GPU, read_gpu)


def users(case: Case) -> tuple[DeviceUser, ...]:
    return tuple(user for found in _each(case, Role.GPU_PROCESSES, read_users) for user in found)


def files(case: Case) -> tuple[DeviceFiles, ...]:
    """One for each node that was asked which devices exist, and answered."""
    return tuple(found for found in _each(case, Role.DEVICES, read_files) if found is not None)


def memory(case: Case) -> tuple[MemoryGroup, ...]:
    return _each(case, Role.MEMORY, read_memory)


def _each(case: Case, role: Role, read: Callable[[Sequence[str], str, str | None], T]) -> tuple[T, ...]:
    return tuple(
        read(case.lines(exhibit.file), exhibit.file, exhibit.node)
        for exhibit in case.read(role)
        if exhibit.file is not None
    )


def read_gpu(lines: Sequence[str], file: str, node: str | None = None) -> GpuView:
    """Any text; columns are found by their titles, in any order, with or without units."""
    found: dict[str, _Rows] = {}
    samples, complaint, none_found = 0, None, None
    for text, number, row in _table(lines):
        if row is None:
            if _SAMPLE.match(text):
                samples += 1
            elif text.startswith(_NONE_FOUND):
                none_found = none_found or Quote(file, number, lines[number - 1][:QUOTED])
            elif _COMPLAINTS.search(text):
                complaint = complaint or Quote(file, number, lines[number - 1][:QUOTED])
            continue
        key = row.get("uuid") or row.get("index") or row.get("pci.bus_id")
        if key and "utilization.gpu" in row and len(found) < MOST_ROWS:
            rows = found.setdefault(key, _Rows())
            rows.values.append(row)
            rows.lines.append(number)
    devices = tuple(_device(rows, lines, file, node) for rows in found.values())
    most = max((len(rows.lines) for rows in found.values()), default=0)
    return GpuView(
        node=node,
        file=file,
        samples=max(samples, most),
        devices=devices,
        complaint=complaint,
        none_found=none_found if not devices else None,
    )


def _device(rows: _Rows, lines: Sequence[str], file: str, node: str | None) -> Device:
    def column(name: str) -> tuple[float | None, ...]:
        return tuple(_number(row.get(name, "")) for row in rows.values)

    def newest(name: str) -> float | None:
        return next((value for value in reversed(column(name)) if value is not None), None)

    last = rows.values[-1]
    drawn = "power.draw" if "power.draw" in last else "power.draw.average"
    return Device(
        node=node,
        index=last.get("index", ""),
        uuid=last.get("uuid", ""),
        name=last.get("name", last.get("gpu_name", "")),
        uses=column("utilization.gpu"),
        memory_mib=column("memory.used"),
        memory_total_mib=newest("memory.total"),
        watts=column(drawn),
        watts_limit=newest("power.limit"),
        file=file,
        lines=tuple(rows.lines),
        quote=Quote(file, rows.lines[-1], lines[rows.lines[-1] - 1][:QUOTED]),
    )


def read_users(lines: Sequence[str], file: str, node: str | None = None) -> tuple[DeviceUser, ...]:
    """Processes on devices; none is a table without rows."""
    found: list[DeviceUser] = []
    for _, number, row in _table(lines):
        if row is None or len(found) >= MOST_ROWS:
            continue
        pid = row.get("pid", "")
        if pid.isascii() and pid.isdigit() and len(pid) <= 10:
            found.append(
                DeviceUser(
                    node=node,
                    uuid=row.get("gpu_uuid", row.get("uuid", "")),
                    pid=int(pid),
                    name=row.get("process_name", row.get("name", "")),
                    memory_mib=_number(row.get("used_gpu_memory", row.get("used_memory", ""))),
                    quote=Quote(file, number, lines[number - 1][:QUOTED]),
                )
            )
    return tuple(found)


def _table(lines: Sequence[str]) -> Iterator[tuple[str, int, Mapping[str, str] | None]]:
    """Each line with its number and its values by title; None in their place for a line that is no row of a table."""
    titles: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        parts = _split(text)
        found = [title[1] for part in parts if (title := _TITLE.match(part)) is not None]
        if len(found) == len(parts) and ("utilization.gpu" in found or "pid" in found):
            titles = found
            continue
        whole = bool(titles) and text[0] != "#" and len(parts) == len(titles)
        yield text, number, dict(zip(titles, parts, strict=True)) if whole else None


def _split(text: str) -> list[str]:
    """Of a line of csv. A process's name may hold a comma, unquoted: then the row has too many parts and is left out."""
    try:
        return [part.strip() for part in next(csv.reader([text[:4096]], skipinitialspace=True), [])]
    except csv.Error:
        return []


def _number(text: str) -> float | None:
    """``87 %``, ``412 MiB``, ``61.25 W``, ``87``; None for ``[N/A]``, ``[Not Supported]``, ``[Unknown Error]`` and the like."""
    found = _NUMBER.match(text)
    return float(found[0]) if found is not None else None


# -- which devices exist -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFiles:
    """Which accelerators a node shows at all. ``count`` is its own last word: 0 says positively that there are none."""

    node: str | None
    count: int
    paths: tuple[str, ...]
    quote: Quote


def read_files(lines: Sequence[str], file: str, node: str | None = None) -> DeviceFiles | None:
    """None without the last line: a list that broke off says nothing."""
    paths = tuple(text.strip() for text in lines[:MOST_ROWS] if text.startswith("/dev/"))
    for number in range(len(lines), 0, -1):
        found = _COUNT.match(lines[number - 1].strip())
        if found is not None:
            return DeviceFiles(
                node=node,
                count=max(int(found[1]), len(paths)),
                paths=paths,
                quote=Quote(file, number, lines[number - 1][:QUOTED]),
            )
    return None


# -- memory ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """The job's memory group on one node, of either generation. Bytes; None where no file tells."""

    node: str | None
    oom_kills: int | None
    """Processes that the kernel killed for memory since the group was made: in this attempt, or before in the same pod."""
    limit_hits: int | None
    """Times that its limit was reached. Reclaiming the page cache counts too: no fault by itself."""
    limit_bytes: int | None
    used_bytes: int | None
    kills_quote: Quote | None
    limit_quote: Quote | None


_LIMITS = ("memory.max", "memory.limit_in_bytes")
_USED = ("memory.current", "memory.usage_in_bytes")
_UNLIMITED = 2**62


def read_memory(lines: Sequence[str], file: str, node: str | None = None) -> MemoryGroup:
    """Any text. Of several groups, the one that was killed most in, and the tightest limit, count."""
    kills: tuple[int, Quote] | None = None
    hits: int | None = None
    limit: tuple[int, Quote] | None = None
    used: int | None = None
    for name, number, text in _values(lines):
        event = _EVENT.match(text)
        if event is not None and name in ("memory.events", "memory.oom_control") and event[1] == "oom_kill":
            count = int(event[2])
            kills = max(kills or (-1, Quote(file, number, "")), (count, _cut(file, number, lines)), key=_first)
        elif event is not None and name == "memory.events" and event[1] == "max":
            hits = max(hits or 0, int(event[2]))
        elif text.isascii() and text.isdigit() and len(text) <= 20:
            value = int(text)
            if name in _LIMITS and value < _UNLIMITED:
                limit = min(limit or (value, _cut(file, number, lines)), (value, _cut(file, number, lines)), key=_first)
            elif name in _USED:
                used = max(used or 0, value)
            elif name == "memory.failcnt":
                hits = max(hits or 0, value)
    return MemoryGroup(
        node=node,
        oom_kills=kills[0] if kills else None,
        limit_hits=hits,
        limit_bytes=limit[0] if limit else None,
        used_bytes=used,
        kills_quote=kills[1] if kills else None,
        limit_quote=limit[1] if limit else None,
    )


def _first(pair: tuple[int, Quote]) -> int:
    return pair[0]


def _cut(file: str, number: int, lines: Sequence[str]) -> Quote:
    return Quote(file, number, lines[number - 1][:QUOTED])


def _values(lines: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """Each line of each file with the file's own name."""
    name = ""
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith("# path "):
            name = text.rsplit("/", 1)[-1]
        elif name and text and text[0] != "#":
            yield name, number, text
