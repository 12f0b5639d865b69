"""The one place that reads the clock. Everybody else is handed ``now``."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Now, aware, UTC."""
    return datetime.now(UTC)
