"""Prose between tables, fitted to the terminal. Pure; light enough for a cold start."""

from __future__ import annotations

from supervisor.reports.text import wrapped

DRAWN = frozenset("┌├└│|")
RESET = "\x1b[0m"
INDENT = "    "


def fitting(text: str, columns: int | None) -> str:
    """``text`` with the lines that are wider than ``columns`` broken at spaces; what is drawn stays as it is.

    A line in one tone keeps it on each of its parts. None: no limit.
    """
    if columns is None or columns < 2 * len(INDENT):
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        tone, inner = "", line
        if line.startswith("\x1b[") and line.endswith(RESET):
            tone, _, inner = line[: -len(RESET)].partition("m")
            tone += "m"
        if inner[:1] in DRAWN or (len(inner) <= columns and inner.isascii()):
            lines.append(line)
            continue
        indent = " " * min(len(inner) - len(inner.lstrip()), columns // 4) + INDENT
        lines += [f"{tone}{part}{RESET}" if tone else part for part in wrapped(inner, columns, indent)]
    return "\n".join(lines)
