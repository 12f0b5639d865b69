"""The bearer token of an iris cluster: a file that may be written anew at any time."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from supervisor.model.errors import LoginFailed

ANNOUNCED, LOUD = timedelta(hours=24), timedelta(hours=2)
"""How long before its end a token is announced, and announced as urgent (POLL-12)."""
_MOST_BYTES = 64 * 2**10


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """Never shown: neither ``repr`` nor an error holds the text."""

    text: str
    expires_at: datetime | None
    """Where it is a JSON web token that says so; else None."""

    def note(self, now: datetime) -> str | None:
        """What is to be said of its end."""
        ends = self.expires_at
        if ends is None or ends - now > ANNOUNCED:
            return None
        if ends <= now:
            return f"its token ended at {ends:%Y-%m-%dT%H:%M:%SZ}"
        urgent = ", in less than 2 hours" if ends - now <= LOUD else ""
        return f"its token ends at {ends:%Y-%m-%dT%H:%M:%SZ}{urgent}"


def read_token(cluster: str, path: Path) -> Token:
    """The token in force. Raises LoginFailed; nothing of the file's content stands in it."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise LoginFailed(cluster, f"token_file {path} cannot be read: {error.strerror or error}") from error
    text = data.decode("ascii", "replace").strip() if len(data) <= _MOST_BYTES else ""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise LoginFailed(cluster, f"token_file {path} holds no token", "it should hold one line, the token itself")
    return Token(text, jwt_expiry(text))


def jwt_expiry(token: str) -> datetime | None:
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.fromtimestamp(float(claims["exp"]), UTC)
    except (ValueError, TypeError, KeyError, OverflowError, OSError, binascii.Error, RecursionError):
        return None
