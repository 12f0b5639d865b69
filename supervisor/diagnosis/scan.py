"""One pass over a log: all patterns at once, bounded memory, line numbers and offsets, resumable.

The scanner reads from a binary stream that is handed in. Of each pattern and file the first and the last hits are
kept and the rest counted, so that a crash that repeats a line a million times costs neither memory nor time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

from supervisor.diagnosis import clocks, quoting, tracebacks
from supervisor.diagnosis.catalogue import ANY_EXCEPTION, Catalogue, Signature
from supervisor.diagnosis.engines import Engine
from supervisor.diagnosis.examples import match, preference
from supervisor.diagnosis.found import KEEP_FIRST, KEEP_LAST, Found, Speaker, Words, captures
from supervisor.diagnosis.found import part as part_of
from supervisor.diagnosis.lines import take_apart
from supervisor.diagnosis.patterns import Pattern
from supervisor.diagnosis.silence import Tail, is_stage, judge_tail
from supervisor.diagnosis.steps import Steps
from supervisor.model.diagnosis import FileReading, Hit, Mark, Traceback

CHUNK = 4 << 20
"""Bytes scanned at once; a longer line is looked at in pieces of this size."""
HISTORY = 256 << 10
"""Bytes above a hit that stay in the buffer, for the traceback above it."""
FEW_EDGES = 4
MOST_BOUNDS = 96
"""Hits of a chunk between which progress is looked for."""

_HEADER = Pattern("Traceback", "Traceback \\x28most recent call last\\x29", False, False, False, (), (b"Traceback",))
_RAISED = Pattern(
    "raised",
    "(?:Error|Exception|Interrupt|Exit|Timeout|Expired)(?:: |:?\\r?\\n|\\x28[A-Za-z_.]+\\x29:)",
    False,
    False,
    False,
    (),
    (),
)
_FIRST_ENTRY = 2
_RANK = re.compile(rb"\[rank(\d{1,6})\]")


class Readable(Protocol):
    """A binary stream."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer as far as is at hand; 0 at the end."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where to go on in a file that was read before."""

    offset: int = 0
    lines: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What engines are compiled from for a catalogue."""

    patterns: list[Pattern]
    """Of the main scan: headers, exceptions, entries."""
    once: frozenset[int]
    """Numbers of the patterns that are reported at most once a chunk."""
    entries: list[Signature]
    """Behind the patterns of the main scan, from number 2 on."""
    steps: list[Signature]
    """Progress, looked for by an engine of its own."""


def plan(catalogue: Catalogue) -> Plan:
    """Heartbeats and stages are looked for at the ends of files only, so they cost the scan nothing."""
    entries = [entry for entry in catalogue.signatures if entry.role != "heartbeat" and not is_stage(entry)]
    once = frozenset(n + _FIRST_ENTRY for n, entry in enumerate(entries) if entry.role == "progress")
    steps = [entry for entry in entries if entry.role == "progress"]
    scanned = [entry.pattern.presence() if entry.role == "progress" else entry.pattern for entry in entries]
    return Plan([_HEADER, _RAISED, *scanned], once, entries, steps)


@dataclass(slots=True)
class _Kept:
    first: list[Hit] = field(default_factory=list)
    last: deque[Hit] = field(default_factory=lambda: deque(maxlen=KEEP_LAST))

    def add(self, hit: Hit) -> None:
        if len(self.first) < KEEP_FIRST:
            self.first.append(hit)
        else:
            self.last.append(hit)


class Scanner:
    """A catalogue and an engine, ready to read one file after another. Not for two threads at once."""

    def __init__(self, catalogue: Catalogue, compiled: Callable[[str, list[Pattern], frozenset[int]], Engine]) -> None:
        """`compiled` makes an engine of patterns; it is told what for ("main", "steps", "steps-once")."""
        planned = plan(catalogue)
        self.once, self.entries = planned.once, planned.entries
        self.catalogue = catalogue
        self.engine = compiled("main", planned.patterns, planned.once)
        progress = [entry.pattern for entry in planned.steps]
        every = frozenset(range(len(progress)))
        self.steps = Steps(
            planned.steps, compiled("steps", progress, frozenset()), compiled("steps-once", progress, every)
        )
        number_of = {entry.code: number for number, entry in enumerate(planned.steps)}
        self.step_numbers = {
            number + _FIRST_ENTRY: number_of[entry.code]
            for number, entry in enumerate(planned.entries)
            if entry.role == "progress"
        }
        self._verifiers: dict[str, re.Pattern[bytes]] = {}
        self._frames: dict[str, re.Pattern[str]] = {}
        self.tail = Tail(catalogue)
        self.buffer = bytearray(HISTORY + CHUNK + 1)
        self.bounding = {
            n + _FIRST_ENTRY
            for n, entry in enumerate(self.entries)
            if entry.role == "cause" or (entry.role == "echo" and entry.category)
        } | {1}

    def verifier(self, signature: Signature) -> re.Pattern[bytes]:
        """The entry's pattern for `re`, compiled when first needed."""
        found = self._verifiers.get(signature.code)
        if found is None:
            found = self._verifiers[signature.code] = signature.pattern.verifier()
        return found

    def frame_fits(self, entry: Signature, traceback: Traceback | None) -> bool:
        """True if the entry asks for no frame, or the traceback has one that it asks for."""
        if entry.frame is None:
            return True
        if traceback is None:
            return False
        wanted = self._frames.setdefault(entry.code, re.compile(entry.frame))
        return any(wanted.search(f"{frame.path}:{frame.function}") for frame in traceback.frames)

    def read(
        self,
        path: str,
        stream: Readable,
        resumed: Resumed | None = None,
        progressed: Callable[[int], None] | None = None,
    ) -> FileReading:
        """Scan a stream to its end. `progressed` is told the bytes read, once a chunk. I/O errors pass through."""
        return _Reading(self, path, resumed or Resumed()).run(stream, progressed)


class _Reading:
    """The state of one file under scan."""

    def __init__(self, scanner: Scanner, path: str, resumed: Resumed) -> None:
        self.scanner, self.path = scanner, path
        self.buffer = scanner.buffer
        self.base = resumed.offset
        """Offset in the file of buffer[0]."""
        self.start_offset = resumed.offset
        self.lines = resumed.lines
        """Newlines before the part of the buffer that is being scanned."""
        self.kept: dict[str, _Kept] = {}
        self.counts: dict[str, list[int]] = {}
        self.marks: list[Mark] = []
        self.pending: list[int] = []
        """File offsets of traceback headers whose exception line has not been met yet."""

    def run(self, stream: Readable, progressed: Callable[[int], None] | None) -> FileReading:
        buffer, view = self.buffer, memoryview(self.buffer)
        low = have = 0  # buffer[:low] is history, buffer[low:have] is unscanned
        ended = False
        while not ended:
            while have < len(buffer) and have - low < CHUNK:
                got = stream.readinto(view[have : min(len(buffer), low + CHUNK)])
                if not got:
                    ended = True
                    break
                have += got
            cut = have if ended else buffer.rfind(b"\n", low, have) + 1
            if cut <= low:
                cut = have
            if cut > low:
                self.chunk(low, cut, at_end=ended)
            if progressed is not None:
                progressed(self.base + cut - self.start_offset)
            if not ended:
                keep = max(0, cut - HISTORY)
                if keep:
                    rest = have - keep
                    buffer[:rest] = buffer[keep:have]
                    self.base += keep
                    low, have = cut - keep, rest
                else:
                    low = cut
        return self.finish(low, have)

    def finish(self, low: int, have: int) -> FileReading:
        hits = sorted(
            {hit.offset: hit for kept in self.kept.values() for hit in (*kept.first, *kept.last)}.values(),
            key=lambda hit: hit.offset,
        )
        marks = sorted(
            {(mark.offset, mark.code): mark for mark in self.marks}.values(), key=lambda mark: (mark.offset, mark.code)
        )
        total = self.lines
        if have and self.buffer[have - 1] != 0x0A:
            total += 1
        silence = judge_tail(self.scanner.tail, self.buffer, have, self.base, total)
        size = self.base + have
        return FileReading(
            path=self.path,
            state="read" if size > self.start_offset or self.start_offset else "empty",
            reason=None if size else "the file is empty",
            bytes=size - self.start_offset,
            lines=total,
            hits=tuple(hits),
            counts=tuple((code, n[0], n[1], n[2]) for code, n in self.counts.items()),
            marks=tuple(marks),
            ranks=self.ranks(have),
            silence=silence,
        )

    def ranks(self, have: int) -> tuple[int, ...]:
        """Ranks that print near the end of the file."""
        near = memoryview(self.buffer)[max(0, have - HISTORY) : have]
        return tuple(sorted({int(found[1]) for found in _RANK.finditer(near)}))

    def chunk(self, low: int, high: int, *, at_end: bool) -> None:
        """Scan buffer[low:high], whole lines (the last one may lack its newline at the end of the file)."""
        buffer = self.buffer
        found = Found(buffer, high, len(self.scanner.entries) + _FIRST_ENTRY)
        if at_end and high < len(buffer) and buffer[high - 1] != 0x0A:
            buffer[high] = 0x0A
            self.scanner.engine.scan(buffer, low, high + 1, found)
        else:
            self.scanner.engine.scan(buffer, low, high, found)
        hits, bounds = self.look(found, low, high)
        marks = self.progress(found.once(self.scanner.once), bounds, low, high, at_end=at_end)
        self.number(found, hits, marks, low, high)

    def is_full(self, number: int) -> bool:
        """True if a pattern's first places were looked at in earlier chunks; exceptions must have been kept."""
        if number >= _FIRST_ENTRY:
            counted = self.counts.get(self.scanner.entries[number - _FIRST_ENTRY].code)
            return counted is not None and counted[0] >= KEEP_FIRST
        kept = self.kept.get(ANY_EXCEPTION)
        return kept is not None and len(kept.first) >= KEEP_FIRST

    def look(self, found: Found, low: int, high: int) -> tuple[list[Hit], list[int]]:
        """Verify the kept positions line by line; a line speaks once, through its best entry."""
        by_line: dict[int, list[tuple[int, int]]] = {}
        for number, position in found.kept(self.scanner.once, self.is_full):
            at = self.buffer.rfind(b"\n", 0, position) + 1
            by_line.setdefault(max(at, 0), []).append((number, position))
        hits, bounds = [], []
        headers = [offset - self.base for offset in self.pending if offset >= self.base]
        claimed: set[int] = set()
        for at in sorted(by_line):
            numbers = by_line[at]
            if any(number == 0 for number, _ in numbers):
                headers.append(at)
            hit, header_at = self.line(at, [pair for pair in numbers if pair[0] != 0], high)
            if header_at is not None:
                claimed.add(header_at)
            if hit is not None:
                hits.append(hit)
                if any(number in self.scanner.bounding for number, _ in numbers):
                    bounds.append(at)
        self.pending = []
        for at in [header for header in headers if header not in claimed][-KEEP_FIRST:]:
            span = tracebacks.exception_line(self.buffer, at, high)
            if span is None:
                if at >= high - HISTORY // 2:
                    self.pending.append(self.base + at)
            elif not any(hit.offset == self.base + span[0] for hit in hits):
                hit, _ = self.line(span[0], [], high, sure=True)
                if hit is not None:
                    hits.append(hit)
                    bounds.append(span[0])
        return sorted(hits, key=lambda hit: hit.offset), sorted(bounds)

    def line(
        self, at: int, numbers: Sequence[tuple[int, int]], high: int, *, sure: bool = False
    ) -> tuple[Hit | None, int | None]:
        """What one line says: a hit, and where the header of the traceback that it ends stands.

        Where carriage returns divide the line, the redraw that says most speaks; entries of the others stand in `also`.
        """
        end = self.buffer.find(b"\n", at, high)
        end = high if end < 0 else end
        spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for number, place in numbers or [(1, at)]:
            inside = next((span for span in spans if span[0] <= place <= span[1]), None)
            spans.setdefault(inside or part_of(self.buffer, at, end, place), []).append((number, place))
        heard = [self._heard(span, at, pairs, sure=sure) for span, pairs in spans.items()]
        told = [words for words in heard if words.speakers or words.traceback is not None]
        if not told:
            return None, None
        best = max(told, key=lambda words: words.worth)
        others = [speaker.entry.code for words in told for speaker in words.speakers[words is best :]]
        line, first = best.line, best.speakers[0] if best.speakers else None
        return (
            Hit(
                code=first.entry.code if first else ANY_EXCEPTION,
                also=tuple(dict.fromkeys(others)),
                line=0,
                offset=self.base + at,
                text=best.raw.rstrip(b"\r"),
                message=tracebacks.strip_group_bar(line.message).decode("utf-8", "replace").strip(),
                stream=line.stream,
                clock=self.clock_at(at, best.raw),
                captures=first.captured if first else (),
                traceback=best.traceback,
                quoted=quoting.why_quoted(
                    self.buffer, at, end, high, line, first.at if first else line.start, best.traceback
                ),
            ),
            best.header_at,
        )

    def _heard(self, span: tuple[int, int], at: int, pairs: Sequence[tuple[int, int]], *, sure: bool) -> Words:
        """Entries and exception that one redraw of a line, or the part of a long line around a match, speaks of."""
        scanner = self.scanner
        raw = bytes(self.buffer[slice(*span)])
        line = take_apart(raw)
        speakers: list[Speaker] = []
        for number in dict.fromkeys(number for number, _ in pairs if number >= _FIRST_ENTRY):
            entry = scanner.entries[number - _FIRST_ENTRY]
            matched = match(entry, scanner.verifier(entry), line)
            if matched is not None:
                speakers.append(Speaker(preference(entry, matched), entry, captures(matched), matched.start()))
        traceback, header_at = None, None
        raised = tracebacks.raised(tracebacks.strip_group_bar(line.message), sure=sure)
        if raised is not None:
            assembled = tracebacks.assemble(self.buffer, 0, at, line, raised)
            whole = assembled.traceback.frames or assembled.traceback.has_header
            if whole or tracebacks.is_known_type(raised["type"]):
                traceback, header_at = assembled.traceback, assembled.header_at
        speakers = [speaker for speaker in speakers if scanner.frame_fits(speaker.entry, traceback)]
        speakers.sort(key=lambda speaker: speaker.preference, reverse=True)
        return Words(raw, line, speakers, traceback, header_at)

    def clock_at(self, at: int, text: bytes) -> float | None:
        """A line's own time stamp, or the nearest one above it; a mere time of day takes its day from above."""
        if (time := clocks.clock(text)) is not None:
            return time
        seconds = clocks.time_of_day(text)
        for _ in range(40):
            if at <= 0:
                break
            end = at - 1
            at = self.buffer.rfind(b"\n", 0, end) + 1
            text = bytes(self.buffer[at : min(end, at + 500)])
            if (time := clocks.clock(text)) is not None:
                return time if seconds is None else clocks.on_day_of(time, seconds)
            if seconds is None:
                seconds = clocks.time_of_day(text)
        return None

    def progress(self, present: list[int], bounds: list[int], low: int, high: int, *, at_end: bool) -> list[Mark]:
        """First and last progress of each kind between the hits of a chunk."""
        if len(bounds) > MOST_BOUNDS:
            bounds = bounds[: MOST_BOUNDS // 2] + bounds[-MOST_BOUNDS // 2 :]
        edges = [low, *(bound for bound in bounds if bound > low), high]
        steps, buffer = self.scanner.steps, self.buffer
        wanted = [self.scanner.step_numbers[number] for number in present]
        if wanted and len(edges) > FEW_EDGES:
            there = steps.kinds(buffer, low, high)
            wanted = [number for number in wanted if number in there]

        def part(position: int) -> tuple[int, int]:
            start = buffer.rfind(b"\n", 0, position) + 1
            end = buffer.find(b"\n", position, high)
            return part_of(buffer, start, high if end < 0 else end, position)

        marks: list[Mark] = []
        for start, stop in pairwise(edges):
            if not wanted:
                break
            for forward, exact in ((True, start != low), (False, stop != high or at_end)):
                for at, mark in steps.edge(buffer, start, stop, wanted, part, forward=forward, deep=exact):
                    marks.append(replace(mark, offset=self.base + at, clock=self.clock_at(at, mark.text)))
        return marks

    def number(self, found: Found, hits: list[Hit], marks: list[Mark], low: int, high: int) -> None:
        """Give hits, marks and counts their line numbers, counting each newline of the chunk once."""
        buffer, base = self.buffer, self.base
        before = [hit for hit in hits if hit.offset < base + low]
        counted = found.extremes()
        offsets = {hit.offset - base for hit in hits if hit.offset >= base + low} | {
            mark.offset - base for mark in marks
        }
        offsets |= {buffer.rfind(b"\n", 0, position) + 1 for pair in counted.values() for position in pair[1:]}
        at, line = low, self.lines
        lines: dict[int, int] = {}
        for offset in sorted(offset for offset in offsets if offset >= low):
            line += buffer.count(b"\n", at, offset)
            at = offset
            lines[offset] = line + 1
        for hit in before:
            lines[hit.offset - base] = self.lines + 1 - buffer.count(b"\n", hit.offset - base, low)
        self.lines = line + buffer.count(b"\n", at, high)
        for hit in hits:
            numbered = replace(hit, line=lines[hit.offset - base])
            self.kept.setdefault(hit.code, _Kept()).add(numbered)
            if hit.code == ANY_EXCEPTION:
                self._count(ANY_EXCEPTION, 1, numbered.line, numbered.line)
        self.marks += [replace(mark, line=lines.get(mark.offset - base, 0)) for mark in marks]
        self._thin_marks()
        for number, (count, first, last) in counted.items():
            if number < _FIRST_ENTRY or number in self.scanner.once:
                continue
            code = self.scanner.entries[number - _FIRST_ENTRY].code
            spans = [lines.get(buffer.rfind(b"\n", 0, position) + 1, 0) for position in (first, last)]
            self._count(code, count, *spans)

    def _count(self, code: str, count: int, first: int, last: int) -> None:
        numbers = self.counts.setdefault(code, [0, first, last])
        numbers[0] += count
        numbers[2] = last

    def _thin_marks(self) -> None:
        """Keep the marks next to hits and the last ones; a long quiet stretch needs no more than its ends."""
        if len(self.marks) > 4000:
            self.marks = self.marks[:1000] + self.marks[-2000:]
