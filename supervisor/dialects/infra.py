"""What an evaluation stands on: the tunnel to its engine, and the address that sandboxes are told to reach it at (EVAL-1).

Facts of cloudflared, ngrok and ssh, and of printed configurations. The newest word counts.
"""

from __future__ import annotations

import ipaddress
import re

from supervisor.dialects.line import Line
from supervisor.model.readings import Reading, ReadingKind

NAME = "infra"
MARKS = (b"tunnel", b"Tunnel", b"api_base", b"API_BASE", b"BASE_URL", b"remote port forwarding", b"origin service")
LONGEST = 4000
"""Characters of a line that are searched."""

_BASE = re.compile(
    r"""(?:api_base|API_BASE|OPENAI_BASE_URL|LLM_BASE_URL)["']?\s*[=:]\s*["']?https?://(\[[0-9a-fA-F:]+\]|[\w.-]{1,253})"""
)
_BROKEN = re.compile(
    r"\btunnel\b.{0,40}\b(?:closed|lost|failed|down|died|refused|disconnected|not reachable|unreachable)\b"
    r"|serve tunnel error|unable to reach the origin service|remote port forwarding failed|failed to reconnect session",
    re.I,
)
_UP = re.compile(
    r"\btunnel\b.{0,40}\b(?:established|ready|connected|started|up|open(?:ed)?|registered|listening)\b"
    r"|\bregistered tunnel connection|started tunnel",
    re.I,
)


def read(line: Line) -> list[Reading]:
    text = line.text[:LONGEST]
    if (found := _BASE.search(text)) is not None:
        word = "ok public" if public(found[1]) else "bad internal address"
        return [line.reading(ReadingKind.BANNER, NAME, label="api_base", detail=word)]
    if _BROKEN.search(text) is not None:
        return [line.reading(ReadingKind.BANNER, NAME, label="tunnel", detail="bad broken")]
    if _UP.search(text) is not None:
        return [line.reading(ReadingKind.BANNER, NAME, label="tunnel", detail="ok")]
    return []


def public(host: str) -> bool:
    """Whether a sandbox elsewhere could reach it: no private or loopback address, and a name with a domain of its own."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_global
    except ValueError:
        lowered = host.lower().rstrip(".")
        return "." in lowered and not lowered.endswith(
            (".local", ".internal", ".svc", ".cluster.local", ".localdomain", ".lan")
        )
