"""The terminal that a command writes to. Light: ``status`` loads this."""

from __future__ import annotations

import os
import sys


def columns_wide() -> int | None:
    """Columns to fit into: ``$COLUMNS``, else the terminal's, else no limit (a file, a pipe)."""
    told = os.environ.get("COLUMNS", "")
    if told.isascii() and told.isdigit() and int(told[:6]) > 0:
        return int(told[:6])
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None if sys.stdout.isatty() else None
    except (OSError, ValueError):
        return None
