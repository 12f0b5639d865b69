"""The regex subset that every engine reads alike, and the ways a pattern is refused.

A pattern is searched in one line, as bytes. It is parsed once with Python's own parser, checked, and printed again
in two spellings: for the scan engines (no names, no trailing unbounded repeats, never across a newline) and for
`re`, which looks again at a hit line and captures. `^` at the start means the start of the message, behind the
prefixes that launchers and loggers put before it; `$` at the end means the end of the line. Both are left to `re`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

LEAST_LITERAL = 4
"""Bytes of literal text that a pattern must hold in any match: shorter ones would look at every line."""
MOST_WIDE = 4
"""Unbounded repeats of nearly any character in one pattern: with more, one hostile line could cost `re` minutes."""
MOST_UNBOUNDED = 12
"""Unbounded repeats of any kind."""
MOST_REPEAT = 400
"""The largest count in `{m,n}`: compiled automata grow with it."""

_CATEGORY = {
    ops.CATEGORY_DIGIT: "0-9",
    ops.CATEGORY_WORD: "A-Za-z0-9_",
    ops.CATEGORY_SPACE: r" \t\r\f\v",
}
_NEGATED = {
    ops.CATEGORY_NOT_DIGIT: "0-9",
    ops.CATEGORY_NOT_WORD: "A-Za-z0-9_",
    ops.CATEGORY_NOT_SPACE: r" \t\r\f\v",
}
_ANCHORS = (ops.AT_BEGINNING, ops.AT_END)
_REFUSED = {
    ops.ASSERT: "look-around",
    ops.ASSERT_NOT: "look-around",
    ops.GROUPREF: "back-references",
    ops.GROUPREF_EXISTS: "conditional groups",
    ops.ATOMIC_GROUP: "atomic groups",
    ops.POSSESSIVE_REPEAT: "possessive repeats",
}


class PatternRefused(ValueError):
    """A pattern outside the common subset, or one that could run for ever."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One checked pattern in its spellings."""

    text: str
    engine: str
    """For hyperscan and RE2, latin-1 text that stands for bytes; matches end where the needed text ends."""
    caseless: bool
    at_start: bool
    at_end: bool
    groups: tuple[str, ...]
    anchors: tuple[bytes, ...]
    """Texts of which each match holds at least one."""

    def may_match(self, line: bytes) -> bool:
        """False only for lines that can't match; much cheaper than a match."""
        return self.caseless or any(anchor in line for anchor in self.anchors)

    def presence(self) -> Pattern:
        """A cheaper pattern that only tells that this one may be there: its anchors alone."""
        texts = ("".join(_escape(byte) for byte in anchor) for anchor in self.anchors)
        return replace(self, engine="(?:" + "|".join(texts) + ")")

    def verifier(self) -> re.Pattern[bytes]:
        """Compiled for `re`. With `at_start`, match it where the message begins; `$` holds at the end of what is given."""
        text = self.text.replace("^", "", 1) if self.at_start else self.text
        return re.compile(text.encode())


def parse(text: str) -> Pattern:
    """Check one pattern. Raises `PatternRefused` with a sentence that says what is wrong."""
    try:
        tree = _parser.parse(text.encode())
    except re.error as error:
        raise PatternRefused(f"is no regular expression: {error}") from error
    flags = tree.state.flags
    if flags & ~(re.IGNORECASE | re.ASCII):
        raise PatternRefused("may set no flag but (?i), at its very start")
    nodes = list(tree)
    at_start = bool(nodes) and nodes[0] == (ops.AT, ops.AT_BEGINNING)
    at_end = bool(nodes) and nodes[-1] == (ops.AT, ops.AT_END)
    nodes = nodes[1 if at_start else 0 : len(nodes) - 1 if at_end else len(nodes)]
    if _count_unbounded(nodes, wide=True) > MOST_WIDE or _count_unbounded(nodes, wide=False) > MOST_UNBOUNDED:
        raise PatternRefused(
            f"has more than {MOST_WIDE} unbounded repeats such as .* or \\S+ (or {MOST_UNBOUNDED} of any kind), "
            "which can run very long"
        )
    engine = _emit(_trimmed(nodes))
    _refuse_nesting(nodes, inside=False)
    runs = _runs(nodes)
    if max((len(run) for run in runs), default=0) < LEAST_LITERAL:
        raise PatternRefused(f"needs at least {LEAST_LITERAL} characters of plain text that stand in every match")
    return Pattern(
        text=text,
        engine=engine,
        caseless=bool(flags & re.IGNORECASE),
        at_start=at_start,
        at_end=at_end,
        groups=tuple(sorted(tree.state.groupdict, key=tree.state.groupdict.__getitem__)),
        anchors=_anchors(nodes),
    )


def _count_unbounded(nodes: Iterable[Any], *, wide: bool) -> int:
    count = 0
    for op, av in nodes:
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            counts = av[1] is ops.MAXREPEAT and (not wide or any(_is_wide(*node) for node in av[2]))
            count += counts + _count_unbounded(av[2], wide=wide)
        elif op is ops.SUBPATTERN:
            count += _count_unbounded(av[3], wide=wide)
        elif op is ops.BRANCH:
            count += max(_count_unbounded(branch, wide=wide) for branch in av[1])
    return count


def _is_wide(op: Any, av: Any) -> bool:
    """True for what matches most characters: `.`, `[^x]`, `\\w`, `\\S`."""
    if op is ops.IN:
        return any(
            item in (ops.NEGATE, ops.CATEGORY) and value is not ops.CATEGORY_DIGIT and value is not ops.CATEGORY_SPACE
            for item, value in av
        )
    return op in (ops.ANY, ops.NOT_LITERAL, ops.BRANCH, ops.SUBPATTERN)


def _refuse_nesting(nodes: Iterable[Any], *, inside: bool) -> None:
    """Refuse repeats whose parts could be divided in many ways: such a pattern can try all of them."""
    for op, av in nodes:
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            low, high, body = av
            if high is not ops.MAXREPEAT and high > MOST_REPEAT:
                raise PatternRefused(f"counts higher than {MOST_REPEAT} in a repeat")
            if low != high and inside:
                raise PatternRefused(
                    "repeats a repeat, which can run for ever; put a fixed character between the parts"
                )
            _refuse_nesting(body, inside=inside or ((high is ops.MAXREPEAT or high > 3) and not _is_delimited(body)))
        elif op is ops.SUBPATTERN:
            _refuse_nesting(av[3], inside=inside)
        elif op is ops.BRANCH:
            for branch in av[1]:
                _refuse_nesting(branch, inside=inside)


def _is_delimited(body: Iterable[Any]) -> bool:
    """True for a body such as `\\d+\\.`: one repeat, and a character that can't be part of it."""
    nodes = list(body)
    if len(nodes) == 1 and nodes[0][0] is ops.SUBPATTERN:
        nodes = list(nodes[0][1][3])
    repeats = [av for op, av in nodes if op in (ops.MAX_REPEAT, ops.MIN_REPEAT)]
    if len(repeats) != 1 or len(list(repeats[0][2])) != 1:
        return False
    inner = re.compile(_emit(repeats[0][2]).encode("latin-1"), re.S)
    return any(op is ops.LITERAL and not inner.fullmatch(bytes([av])) for op, av in nodes)


def _runs(nodes: Iterable[Any]) -> list[bytes]:
    """Literal runs that every match holds; of a branch, the poorest arm's best run stands for the whole."""
    runs, run = [], b""
    for op, av in nodes:
        if op is ops.LITERAL:
            run += bytes([av])
            continue
        inner: list[bytes] = []
        if op is ops.SUBPATTERN:
            inner = _runs(av[3])
        elif op in (ops.MAX_REPEAT, ops.MIN_REPEAT) and av[0] >= 1:
            inner = _runs(av[2])
        elif op is ops.BRANCH:
            arms = [max(_runs(arm), key=len, default=b"") for arm in av[1]]
            inner = [min(arms, key=len)]
        runs.append(run)
        run = b""
        runs += inner
    return [*runs, run]


def _anchors(nodes: Iterable[Any]) -> tuple[bytes, ...]:
    """A small set of texts of which each match holds at least one; the set whose shortest text is longest."""
    best: tuple[bytes, ...] = ()
    run = b""

    def offer(texts: tuple[bytes, ...]) -> None:
        nonlocal best
        if texts and min(map(len, texts)) > min(map(len, best), default=0):
            best = texts

    for op, av in nodes:
        if op is ops.LITERAL:
            run += bytes([av])
            continue
        offer((run,))
        run = b""
        if op is ops.SUBPATTERN:
            offer(_anchors(av[3]))
        elif op in (ops.MAX_REPEAT, ops.MIN_REPEAT) and av[0] >= 1:
            offer(_anchors(av[2]))
        elif op is ops.BRANCH:
            arms = [_anchors(arm) for arm in av[1]]
            if all(arms):
                offer(tuple(sorted({text for arm in arms for text in arm})))
    offer((run,))
    return best


def _trimmed(nodes: list[Any]) -> list[Any]:
    """Without what may be repeated or absent at the end: a scan engine would report each possible end of it."""
    nodes = list(nodes)
    while nodes:
        op, av = nodes[-1]
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            low = av[0]
            nodes.pop()
            if low:
                nodes.append((ops.MAX_REPEAT, (low, low, av[2])))
                return nodes
            continue
        inner = _trimmed(list(av[3])) if op is ops.SUBPATTERN else []
        if op is ops.SUBPATTERN and inner != list(av[3]):
            nodes.pop()
            if inner:
                nodes.append((ops.SUBPATTERN, (None, 0, 0, inner)))
                return nodes
            continue
        return nodes
    return nodes


def _emit(nodes: Iterable[Any]) -> str:
    return "".join(_emit_one(op, av) for op, av in nodes)


def _emit_one(op: Any, av: Any) -> str:
    if op in _REFUSED:
        raise PatternRefused(f"uses {_REFUSED[op]}, which not every engine knows")
    if op is ops.LITERAL:
        return _escape(av)
    if op is ops.NOT_LITERAL:
        return f"[^{_escape(av)}\\n]"
    if op is ops.ANY:
        return "[^\\n]"
    if op is ops.IN:
        return _emit_class(av)
    if op is ops.BRANCH:
        return "(?:" + "|".join(_emit(branch) for branch in av[1]) + ")"
    if op is ops.SUBPATTERN:
        if av[1] or av[2]:
            raise PatternRefused("may set no flag inside a group")
        return "(?:" + _emit(av[3]) + ")"
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        return _emit_repeat(*av)
    if op is ops.AT:
        if av is ops.AT_BOUNDARY:
            return "\\b"
        if av in _ANCHORS:
            raise PatternRefused("may have ^ only as its first and $ only as its last character")
        raise PatternRefused("may use no anchors but ^, $ and \\b")
    raise PatternRefused(f"uses {str(op).lower()}, which not every engine knows")


def _emit_repeat(low: int, high: Any, inner: Any) -> str:
    body = _emit(inner)
    if len(list(inner)) > 1 or next(iter(inner))[0] in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        body = f"(?:{body})"
    if high is ops.MAXREPEAT:
        return body + {0: "*", 1: "+"}.get(low, f"{{{low},}}")
    if (low, high) == (0, 1):
        return body + "?"
    return body if (low, high) == (1, 1) else body + (f"{{{low}}}" if low == high else f"{{{low},{high}}}")


def _emit_class(items: Any) -> str:
    negated = items[0][0] is ops.NEGATE
    parts = []
    for op, av in items[1:] if negated else items:
        if op is ops.LITERAL:
            if av > 127:
                raise PatternRefused("may hold no non-ASCII character between [ and ]")
            parts.append(_escape(av))
        elif op is ops.RANGE:
            parts.append(f"{_escape(av[0])}-{_escape(av[1])}")
        elif op is ops.CATEGORY and av in _CATEGORY:
            parts.append(_CATEGORY[av])
        elif op is ops.CATEGORY and av in _NEGATED and len(items) == 1:
            return f"[^{_NEGATED[av]}\\n]"
        else:
            raise PatternRefused("may use \\D, \\W and \\S only outside of [ and ]")
    return f"[^{''.join(parts)}\\n]" if negated else f"[{''.join(parts)}]"


def _escape(byte: int) -> str:
    character = chr(byte)
    if character.isascii() and (character.isalnum() or character in " _-,:;=<>@%&~`'\"/!#"):
        return character if character != "-" else "\\-"
    return f"\\x{byte:02x}"
