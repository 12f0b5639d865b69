"""A name for a failure that stays the same over runs: numbers, ids, paths, hosts and addresses are folded."""

from __future__ import annotations

import hashlib
import re

from supervisor.model.diagnosis import Traceback

_FOLDS = (
    (re.compile(r"https?://\S+"), "<url>"),
    (re.compile(r"(?:[A-Za-z]:)?(?:[\\/][\w.@%+~=,-]+){2,}[\\/]?"), "<path>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "<address>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{20,}\b", re.I), "<id>"),
    (re.compile(r"\b(?:0x[0-9a-f]+|(?=[0-9a-f]*\d)[0-9a-f]{7,})\b", re.I), "<id>"),
    (re.compile(r"\b(?:node|host|gpu|cn|nid|ip|worker|n|c|g)[-_]?\d[\w-]*\b", re.I), "<host>"),
    (re.compile(r"\d+(?:[.,:]\d+)*(?:e[+-]?\d+)?", re.I), "#"),
    (re.compile(r"\s+"), " "),
)


def fold(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, into in _FOLDS:
        text = pattern.sub(into, text)
    return text.strip()[:300]


def fingerprint(category: str, code: str, message: str, traceback: Traceback | None) -> str:
    """32 hexadecimal digits. Two runs that fail alike have the same."""
    parts = [category, code, fold(message)]
    if traceback is not None:
        frame = traceback.own_frame
        parts = [category, traceback.type.rsplit(".", 1)[-1], fold(traceback.message)]
        parts.append(f"{frame.path.replace(chr(92), '/').rsplit('/', 1)[-1]}:{frame.function}" if frame else "")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
