"""Box-drawn tables that fit: columns are dropped in a stated order, cells are cut with an ellipsis, nothing wraps (SAY-1).

In a terminal too narrow for that, each row becomes a few lines of its own, ``Title value`` after ``Title value``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.reports.text import fitted, plain, width, wrapped


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``least``: columns below which its cells are not cut. ``drop``: 0 never, else the higher goes first."""

    title: str
    right: bool = False
    least: int = 4
    most: int = 60
    drop: int = 0


COLOURS = {"fault": "\x1b[31m", "watch": "\x1b[33m", "note": "\x1b[36m", "good": "\x1b[32m", "dim": "\x1b[2m"}
RESET = "\x1b[0m"
NARROW = 80
"""Columns from which on rows are always rows."""


def box(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    columns_wide: int | None,
    tones: Sequence[str | None] = (),
) -> str:
    """The table as lines. ``columns_wide``: terminal width, None for no limit. ``tones``: a colour's name per row, or none.

    Cells are made harmless here, so no caller can forget it.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    chosen, widths = _layout(columns, cells, columns_wide)
    lines = [_rule("┌", "┬", "┐", widths)]
    lines.append(
        "│" + "│".join(f" {fitted(columns[at].title, w)} " for at, w in zip(chosen, widths, strict=True)) + "│"
    )
    lines.append(_rule("├", "┼", "┤", widths))
    rights = [columns[at].right for at in chosen]
    for number, row in enumerate(cells):
        parts = []
        for at, wide, right in zip(chosen, widths, rights, strict=True):
            cell = row[at]
            if cell.isascii() and len(cell) <= wide:
                parts.append(f" {cell.rjust(wide) if right else cell.ljust(wide)} ")
            else:
                parts.append(f" {_right(cell, wide) if right else fitted(cell, wide)} ")
        line = "│" + "│".join(parts) + "│"
        tone = tones[number] if number < len(tones) else None
        lines.append(f"{COLOURS[tone]}{line}{RESET}" if tone else line)
    lines.append(_rule("└", "┴", "┘", widths))
    return "\n".join(lines) + "\n"


def kept(columns: Sequence[Column], rows: Sequence[Sequence[str]], columns_wide: int | None) -> set[str]:
    """Titles of the columns that ``box`` draws in that width."""
    cells = [[plain(cell) for cell in row] for row in rows]
    return {columns[at].title for at in _layout(columns, cells, columns_wide)[0]}


def too_narrow(columns: Sequence[Column], rows: Sequence[Sequence[str]], columns_wide: int | None) -> bool:
    """Whether a number in a column that never goes would lose digits there, or a name all but its first letters."""
    if columns_wide is None or columns_wide >= NARROW:
        return False
    cells = [[plain(cell) for cell in row] for row in rows]
    chosen, widths = _layout(columns, cells, columns_wide)
    for at, wide in zip(chosen, widths, strict=True):
        needed = max((width(row[at]) for row in cells), default=0)
        if columns[at].right and not columns[at].drop and wide < min(needed, columns[at].most):
            return True
        if at == 0 and wide < min(needed, columns[at].least):
            return True
    return False


def stacked(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], columns_wide: int, tones: Sequence[str | None] = ()
) -> str:
    """Rows one below the other: the first cell on a line of its own, then what is known, by its title."""
    cells = [[plain(cell) for cell in row] for row in rows]
    inner = max(8, columns_wide - 4)
    lines = ["┌" + "─" * (inner + 2) + "┐"]
    for number, row in enumerate(cells):
        if number:
            lines.append("├" + "─" * (inner + 2) + "┤")
        tone = tones[number] if number < len(tones) else None
        said = wrapped(row[0], inner, "  ")
        line = ""
        for column, cell in zip(columns[1:], row[1:], strict=True):
            if cell in ("", "—") and column.drop:
                continue
            part = f"{column.title} {cell}"
            if line and width(f"{line} · {part}") <= inner:
                line = f"{line} · {part}"
                continue
            said += wrapped(line, inner, "  ") if line else []
            line = part
        said += wrapped(line, inner, "  ") if line else []
        drawn = [f"│ {fitted(text, inner)} │" for text in said]
        lines += [f"{COLOURS[tone]}{text}{RESET}" if tone else text for text in drawn]
    lines.append("└" + "─" * (inner + 2) + "┘")
    return "\n".join(lines) + "\n"


def pipe(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """The same table for pasting into an issue: GitHub's pipes, cells escaped."""
    head = "| " + " | ".join(column.title for column in columns) + " |"
    rule = "|" + "|".join(" ---: " if column.right else " --- " for column in columns) + "|"
    body = ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
    return "\n".join([head, rule, *body]) + "\n"


def _escaped(cell: str) -> str:
    harmless = plain(cell).replace("\\", "\\\\").replace("|", "\\|")
    for mark in "`*_<>[]":
        harmless = harmless.replace(mark, f"\\{mark}")
    return harmless


def _right(cell: str, wide: int) -> str:
    used = width(cell)
    return " " * (wide - used) + cell if used <= wide else fitted(cell, wide)


def _rule(left: str, middle: str, right: str, widths: Sequence[int]) -> str:
    return left + middle.join("─" * (wide + 2) for wide in widths) + right


def _layout(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], columns_wide: int | None
) -> tuple[list[int], list[int]]:
    """Which columns stay, and how wide each is: dropped first by their order, then the widest are cut."""
    wants = []
    for at, column in enumerate(columns):
        widest = max((width(row[at]) for row in cells), default=0)
        wants.append(min(column.most, max(width(column.title), widest)))
    chosen = [
        at for at in range(len(columns)) if not columns[at].drop or any(row[at] not in ("", "—") for row in cells)
    ]
    if columns_wide is None:
        return chosen, [wants[at] for at in chosen]

    def least(members: list[int]) -> int:
        return sum(min(wants[at], columns[at].least) + 3 for at in members) + 1

    while least(chosen) > columns_wide and any(columns[at].drop for at in chosen):
        chosen.remove(max((at for at in chosen if columns[at].drop), key=lambda at: columns[at].drop))
    widths = [wants[at] for at in chosen]
    over = sum(widths) + 3 * len(chosen) + 1 - columns_wide
    # Columns give way before cells are cut hard: first those that may go and are not needed whole.
    while over > 0 and any(columns[at].drop for at in chosen):
        at = max((at for at in chosen if columns[at].drop), key=lambda at: columns[at].drop)
        spot = chosen.index(at)
        slack = sum(max(0, wide - columns[which].least) for which, wide in zip(chosen, widths, strict=True))
        if slack >= over and columns[at].drop < 5:
            break
        over -= widths[spot] + 3
        del chosen[spot], widths[spot]
    while over > 0:
        spot = max(range(len(chosen)), key=lambda i: widths[i] - columns[chosen[i]].least)
        give = min(over, max(1, widths[spot] - columns[chosen[spot]].least))
        if widths[spot] - give < 1:
            break
        widths[spot] -= give
        over -= give
    return chosen, widths
