"""The framed answer of a look at one node, taken apart. Pure: bytes in, pieces or failures out, and nothing in between.

A piece counts only if its own status and its end mark came whole. Whatever was asked for and did not come is a failure with
what was put out instead (PROBE-2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.clusters.node_commands import Ask
from supervisor.clusters.shell import Ran
from supervisor.model.probe import Captured, Role

SAID_MOST = 2000
"""Characters of an output that stand in a failure."""
_TIME_UP = 124


@dataclass(frozen=True, slots=True)
class Look:
    """Where a look was taken and how it got there."""

    node: str | None
    way: str = ""
    """For people: what carried it there, such as ``srun --jobid=7 --overlap --nodelist=node01``."""

    def told(self, ask: Ask) -> str:
        return f"{self.way}: {ask.words}" if self.way else ask.words


def spread(nodes: Sequence[str], most: int) -> list[str]:
    """The first, the last, and some between, evenly."""
    if len(nodes) <= most or most < 2:
        return list(nodes[: max(most, 1)])
    last = len(nodes) - 1
    return [nodes[at * last // (most - 1)] for at in range(most)]


def failed(asks: Sequence[Ask], look: Look, why: str, status: int | None = None) -> list[Captured]:
    """One failure for each thing that was asked for, where nothing came at all."""
    return [_failure(ask, look, why, status) for ask in asks]


def read(ran: Ran, nonce: str, asks: Sequence[Ask], look: Look) -> list[Captured]:
    """A piece or a failure for each of ``asks``, in their order; several pieces where it asks for several files."""
    found: list[Captured] = []
    for ask in asks:
        part = _part(ran.stdout, nonce.encode(), ask.part.encode())
        if part is None:
            found.append(_failure(ask, look, _missing(ran, nonce, ask.part), ran.exit_status))
        else:
            found += _pieces(part, nonce.encode(), ask, look)
    return found


# -- one part ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    out: bytes
    status: int | None
    """Of the part itself; None where it was ended from outside."""
    ended: int
    """Of what held it in bounds."""
    took_s: float


def _part(answer: bytes, mark: bytes, name: bytes) -> _Part | None:
    """The part of this name; None unless it came whole to the line end of its end mark."""
    begin = re.search(rb"(?:^|\n)%b begin %b ([0-9]+)\n" % (mark, name), answer)
    if begin is None:
        return None
    end = re.compile(rb"\n%b end %b ([0-9]+) ([0-9]+)\n" % (mark, name)).search(answer, begin.end() - 1)
    if end is None:
        return None
    out = answer[begin.end() : end.start()]
    took = float(max(int(end[2]) - int(begin[1]), 0))
    told = re.search(rb"\n%b status ([0-9]{1,3})\Z" % mark, answer[begin.end() - 1 : end.start()])
    if told is None:
        return _Part(out, None, int(end[1]), took)
    return _Part(answer[begin.end() - 1 : end.start()][: told.start()][1:], int(told[1]), int(end[1]), took)


def _pieces(part: _Part, mark: bytes, ask: Ask, look: Look) -> list[Captured]:
    why = _why_not(part, ask)
    if why is not None:
        return [_failure(ask, look, why, part.status if part.status is not None else part.ended, part.took_s)]
    if ask.role is Role.SESSION_LOG:
        return _files(part, mark, ask, look)
    if mark in part.out:
        return [_failure(ask, look, "its answer came garbled: a mark of the frame stands within it", None, part.took_s)]
    told = look.told(ask)
    return [Captured(role=ask.role, command=told, node=look.node, data=part.out, exit_status=0, took_s=part.took_s)]


def _why_not(part: _Part, ask: Ask) -> str | None:
    """Why a part that came is no piece."""
    if part.status is None:
        ended = "its time was up" if part.ended == _TIME_UP else "it was ended from outside"
        return _with_output(f"{ended} after {part.took_s:g} s", part.out)
    if len(part.out) >= ask.bytes:
        return f"it put out more than {ask.bytes} bytes"
    if part.status != 0:
        return _text(part.out) or f"exit status {part.status} without a word"
    if not part.out.strip():
        return "it put out nothing"
    return None


def _files(part: _Part, mark: bytes, ask: Ask, look: Look) -> list[Captured]:
    """One piece for each log of a worker. A length that does not hold makes it and all after it a failure."""
    head = re.compile(rb"\n%b file ([0-9]+) ([0-9]+) ([0-9]+) (-|[0-9]+) (/[^\n]*)\n" % mark)
    missing = re.compile(rb"\n%b missing ([^\n]*)\Z" % mark)
    pieces: list[Captured] = []
    told, at = look.told(ask), 0
    while (found := head.match(part.out, at)) is not None:
        start, length = int(found[2]), int(found[3])
        data = part.out[found.end() : found.end() + length]
        at = found.end() + length
        path = found[5].decode("utf-8", "backslashreplace")
        following = head.match(part.out, at) or missing.match(part.out, at)
        if len(data) < length or (at < len(part.out) and following is None) or mark in data:
            pieces.append(_failure(ask, look, f"{path} changed while it was read", 0, part.took_s, path))
            again = head.search(part.out, found.end())
            at = again.start() if again else len(part.out)
            continue
        before = None if found[4] == b"-" else int(found[4]) + 1
        pieces.append(
            Captured(
                role=ask.role,
                command=told,
                node=look.node,
                source=path,
                data=data,
                exit_status=0,
                cut=start,
                first_line=before,
                took_s=part.took_s,
            )
        )
    rest = missing.match(part.out, at)
    if rest is not None:
        pieces.append(_failure(ask, look, f"no such folder, or no way to it: {_text(rest[1])}", 0, part.took_s))
    elif at != len(part.out) or not pieces:
        pieces.append(_failure(ask, look, _with_output("its answer is garbled", part.out[at:]), 0, part.took_s))
    return pieces


# -- failures ----------------------------------------------------------------------------------------------------------


def _failure(
    ask: Ask, look: Look, why: str, status: int | None, took_s: float = 0.0, source: str | None = None
) -> Captured:
    return Captured(
        role=ask.role,
        command=look.told(ask),
        node=look.node,
        source=source,
        failure=why,
        exit_status=status,
        took_s=took_s,
    )


def _missing(ran: Ran, nonce: str, part: str) -> str:
    """Why nothing of a part is there: what carried the script knows, or the answer is cut off."""
    said = _text(ran.stderr)
    if f"{nonce} begin ".encode() not in ran.stdout:
        said = said or _text(ran.stdout)
        how = "the connection dropped" if ran.exit_status is None else f"exit status {ran.exit_status}"
        return said or f"{how} without a word"
    if ran.truncated:
        return "the answer is longer than was allowed for, and was cut off before this part was whole"
    return _with_output(f"the answer was cut off before the part {part!r} was whole", ran.stderr)


def _with_output(why: str, out: bytes) -> str:
    said = _text(out)
    return f"{why}: {said}" if said else why


def _text(out: bytes) -> str:
    """Bounded: the beginning and, of a long one, the end."""
    text = out.decode("utf-8", "backslashreplace").replace("\0", "\\x00").strip()
    if len(text) <= SAID_MOST:
        return text
    half = SAID_MOST // 2
    return f"{text[:half]} … {text[-half:]}"
