"""The dead-man's switch: one GET after each good tick."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request


def ping(url: str) -> str | None:
    """Ask ``url`` once; None if it answered well, else why not, without the URL (it may hold a secret)."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        return "daemon.ping_url must be http or https"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 (scheme checked above)
            return None if answer.status < 400 else f"answered {answer.status}"
    except (urllib.error.URLError, OSError, ValueError) as error:
        return type(error).__name__
