"""Engines that look for all patterns in one pass: hyperscan, or RE2 where its wheel is missing or fails its self-test.

An engine only says in which line which pattern may match; `re` looks again and captures. Both engines report the same
(pattern, line) pairs, which tests hold against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from supervisor.diagnosis.catalogue import Catalogue
from supervisor.diagnosis.patterns import Pattern

Found = Callable[[int, int], None]
"""Called with the number of a pattern and the position of a byte of the match; once or more for a line that matches."""


LONG_LINE = 4096
"""Bytes from which on a line is looked at around its match only."""


class EngineUnavailable(RuntimeError):
    """The engine's library is missing here, or does not agree with `re`."""


class Engine(Protocol):
    """A compiled set of patterns."""

    name: str

    def scan(self, buffer: bytearray, start: int, end: int, found: Found) -> None:
        """Look through `buffer[start:end]`, which holds whole lines; matches come in order of position."""

    def describe(self) -> str:
        """Library and version, for reports and cache keys."""

    def dump(self) -> bytes | None:
        """The compiled form for a cache, or None where the engine has none."""


class HyperscanEngine:
    """Vectorscan through the `hyperscan` wheel. Not for use by two threads at once: it owns one scratch."""

    name = "hyperscan"

    def __init__(self, patterns: Sequence[Pattern], once: frozenset[int], dumped: bytes | None = None) -> None:
        """`once`: patterns reported at most one time a call. Raises `EngineUnavailable`."""
        try:
            import hyperscan
        except ImportError as error:
            raise EngineUnavailable(f"hyperscan can't be loaded: {error}") from error
        try:
            if dumped is not None:
                self._database = hyperscan.loadb(dumped, hyperscan.HS_MODE_BLOCK)
            else:
                self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
                self._database.compile(
                    expressions=[pattern.engine.encode("latin-1") for pattern in patterns],
                    ids=list(range(len(patterns))),
                    flags=[
                        (hyperscan.HS_FLAG_CASELESS if pattern.caseless else 0)
                        | (hyperscan.HS_FLAG_SINGLEMATCH if number in once else 0)
                        for number, pattern in enumerate(patterns)
                    ],
                )
            self._scratch = hyperscan.Scratch(self._database)
        except hyperscan.HyperscanError as error:
            raise EngineUnavailable(f"hyperscan refuses the catalogue: {error!r}") from error
        self._dumpb = hyperscan.dumpb

    @staticmethod
    def library_version() -> str:
        """Of the installed wheel. Raises `EngineUnavailable` where there is none."""
        try:
            import hyperscan
        except ImportError as error:
            raise EngineUnavailable(f"hyperscan can't be loaded: {error}") from error
        return str(getattr(hyperscan, "__version__", "unknown"))

    def scan(self, buffer: bytearray, start: int, end: int, found: Found) -> None:
        """See `Engine.scan`."""

        def on_match(number: int, _from: int, stop: int, _flags: int, _context: object) -> None:
            found(number, start + stop - 1)

        direct = getattr(found, "noting", None)
        view: Any = memoryview(buffer)[start:end]
        handler = on_match if direct is None else direct(start - 1)
        self._database.scan(view, match_event_handler=handler, scratch=self._scratch)

    def describe(self) -> str:
        """See `Engine.describe`."""
        return f"hyperscan {self.library_version()}"

    def dump(self) -> bytes | None:
        """See `Engine.dump`."""
        return bytes(self._dumpb(self._database))


class Re2Engine:
    """RE2's set matcher on blocks of lines, then on the lines of a block that has a hit."""

    name = "re2"
    block = 16 << 10

    def __init__(self, patterns: Sequence[Pattern], once: frozenset[int]) -> None:
        try:
            import re2
        except ImportError as error:
            raise EngineUnavailable(f"google-re2 can't be loaded: {error}") from error
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.log_errors = False
        options.max_mem = 256 << 20
        texts = [f"(?i:{pattern.engine})" if pattern.caseless else pattern.engine for pattern in patterns]
        self._whole = self._compiled(re2, options, texts)
        self._once = once
        self._compile: Any = re2.compile
        self._texts, self._options = texts, options
        self._ones: dict[int, Any] = {}
        rest = [number for number in range(len(texts)) if number not in once]
        self._rest_numbers = rest
        self._rest = self._compiled(re2, options, [texts[number] for number in rest]) if rest and once else None

    @staticmethod
    def _compiled(re2: Any, options: Any, texts: Sequence[str]) -> Any:
        compiled = re2.Set.SearchSet(options)
        for text in texts:
            compiled.Add(text.encode("latin-1"))
        compiled.Compile()
        return compiled

    def scan(self, buffer: bytearray, start: int, end: int, found: Found) -> None:
        """See `Engine.scan`. Once a pattern of `once` was found, later blocks are matched without any of them."""
        waiting = set(self._once)
        at = start
        while at < end:
            stop = min(at + self.block, end)
            if stop < end:
                stop = buffer.rfind(b"\n", at, stop) + 1
                if stop <= at:
                    stop = buffer.find(b"\n", at, end) + 1 or end
            block = bytes(memoryview(buffer)[at:stop])
            numbers = self._numbers(block, waiting)
            if numbers:
                self._lines(block, at, waiting, found)
            at = stop

    def _numbers(self, block: bytes, waiting: set[int]) -> list[int]:
        if waiting or self._rest is None:
            return [n for n in self._whole.Match(block) or () if n in waiting or n not in self._once]
        return [self._rest_numbers[n] for n in self._rest.Match(block) or ()]

    def _lines(self, block: bytes, at: int, waiting: set[int], found: Found) -> None:
        for line in block.split(b"\n"):
            for number in sorted(self._numbers(line, waiting)) if line else ():
                found(number, at + (len(line) if len(line) < LONG_LINE else self._end(number, line)) - 1)
                waiting.discard(number)
            at += len(line) + 1

    def _end(self, number: int, line: bytes) -> int:
        """Where the match ends in a long line, of which only a part is kept."""
        if number not in self._ones:
            self._ones[number] = self._compile(self._texts[number].encode("latin-1"), self._options)
        match = self._ones[number].search(line)
        return int(match.end()) if match is not None else len(line)

    def describe(self) -> str:
        """See `Engine.describe`."""
        return "google-re2"

    def dump(self) -> bytes | None:
        """See `Engine.dump`."""
        return None


def self_test(engine: Engine, patterns: Sequence[Pattern], catalogue: Catalogue, once: frozenset[int]) -> None:
    """Scan the catalogue's own examples: what `re` finds the engine must find. Raises `EngineUnavailable`."""
    number_of = {pattern.text: number for number, pattern in enumerate(patterns)}
    lines: list[bytes] = []
    wanted: set[tuple[int, int]] = set()
    for entry in catalogue.signatures:
        number = number_of.get(entry.pattern.text)
        if number is None or number in once:
            continue
        verifier = entry.pattern.verifier()
        for line in (line for example in entry.matches for line in example.encode().split(b"\n")):
            if verifier.search(line):
                wanted.add((number, len(lines)))
            lines.append(line)
    buffer = bytearray(b"\n".join([*lines, b""]))
    found: set[tuple[int, int]] = set()
    engine.scan(buffer, 0, len(buffer), lambda number, at: found.add((number, buffer.count(b"\n", 0, at))))
    if missed := wanted - found:
        which, where = min(missed)
        raise EngineUnavailable(f"{engine.describe()} misses {patterns[which].text!r} in {lines[where]!r}")
