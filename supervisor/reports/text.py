"""Text that can do nothing to a terminal, and fits. Light: the status path loads this and no library until it must."""

from __future__ import annotations

from datetime import datetime

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(0x80, 0xA0))}
_CONTROLS |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
_CONTROLS |= dict.fromkeys(
    (0x061C, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF), "\u00b7"
)
_CONTROLS |= dict.fromkeys(range(0xE0000, 0xE0080), "\u00b7")
_CONTROLS |= {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
_CONTROLS |= dict.fromkeys((*range(0xD800, 0xDC80), *range(0xDD00, 0xE000)), "\ufffd")


def plain(text: str) -> str:
    """``text`` with control characters, escape codes and direction marks made visible instead of effective.

    Bytes that are no UTF-8 show as ``\\xe9``, so that the result can be written anywhere.
    """
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_CONTROLS)


_NARROW = frozenset("—…×✓✗→·▁▂▃▄▅▆▇█─│┌┬┐├┼┤└┴┘")
"""What our own words hold beside letters; each takes one column."""


def _is_narrow(text: str) -> bool:
    """Whether each letter takes one column, so that the library that knows the others need not be loaded."""
    return text.isascii() or all(letter < "\u0300" or letter in _NARROW for letter in text)


def width(text: str) -> int:
    """Columns that ``text`` takes on a terminal after a space: a mark at its beginning joins that."""
    if _is_narrow(text):
        return len(text)
    from wcwidth import wcswidth

    columns = wcswidth(" " + text)
    return columns - 1 if columns >= 0 else len(text)


def fitted(text: str, columns: int) -> str:
    """``text`` in exactly ``columns`` columns: padded, or cut with an ellipsis."""
    if _is_narrow(text):
        if len(text) <= columns:
            return text.ljust(columns)
        return text[: columns - 1] + "…" if columns > 0 else ""
    from wcwidth import wcwidth

    if width(text) <= columns:
        return text + " " * (columns - width(text))
    if columns < 1:
        return ""
    kept, used = [], 0
    for letter in text:
        used += max(0, wcwidth(letter))
        if used > columns - 1:
            break
        kept.append(letter)
    while (used := width("".join(kept))) > columns - 1:  # a mark may widen the letter before it
        kept.pop()
    return "".join(kept) + "…" + " " * (columns - 1 - used)


def wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    """``text`` in lines of at most ``columns`` columns, broken at spaces, in a word only where it must be; ``indent``: of all
    lines but the first."""
    if len(text) <= columns and width(text) <= columns:
        return [text]
    lines, line = [], text[: len(text) - len(text.lstrip())]
    begun = False
    for word in text.split(" "):
        rest = word
        if not word:
            line += " " if begun and width(line) < columns else ""
            continue
        if width(f"{line} {rest}" if begun else line + rest) <= columns:
            line, begun = (f"{line} {rest}" if begun else line + rest), True
            continue
        if begun:
            lines.append(line)
            line = indent
        while width(line + rest) > columns:
            kept = _head(rest, max(1, columns - width(line)))
            lines.append(line + kept)
            line, rest = indent, rest[len(kept) :]
        line, begun = line + rest, True
    return [*lines, line]


def _head(word: str, columns: int) -> str:
    """As much of ``word`` as fits, a letter at least."""
    at = 1
    while at < len(word) and width(word[: at + 1]) <= columns:
        at += 1
    return word[:at]


def span(seconds: float | None) -> str:
    """A duration for people: ``45 s``, ``12 min``, ``3 h 05``, ``2 d 4 h``; a dash where it is not known."""
    if seconds is None:
        return "—"
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 90:
        return f"{minutes} min"
    hours = minutes // 60
    if hours < 48:
        return f"{hours} h {minutes % 60:02d}"
    return f"{hours // 24} d {hours % 24} h"


def moment(when: datetime | None) -> str:
    """A time of day with its date, UTC."""
    return "—" if when is None else f"{when:%Y-%m-%d %H:%M:%SZ}"
