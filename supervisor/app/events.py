"""structlog, set up once: console on a terminal, JSON elsewhere. Values are data: control characters never reach a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog

from supervisor.reports.text import plain


def _harmless(_logger: object, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if isinstance(value, str) and key not in ("exception", "timestamp"):
            event[key] = plain(value)
    return event


class _StandardError:
    """Whatever standard error is at the moment of writing: loggers outlive the stream that was there when they were made."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def set_up(style: str, level: str) -> None:
    """``style``: ``auto``, ``console`` or ``json``. To standard error, one line an event."""
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if console else structlog.processors.JSONRenderer()
    )
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _harmless,
    ]
    if not console:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _StandardError())),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(
        stream=cast(TextIO, _StandardError()),
        level=logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
        force=True,
    )
    for chatty in ("asyncssh", "apscheduler", "urllib3", "kubernetes"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
