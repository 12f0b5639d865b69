"""A job's command line without the secrets that people write into it. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from supervisor.clusters.kubernetes_objects import plain

_MOST_COMMAND = 8000
_WORD = r"(?=[A-Za-z0-9_.-]*(?:key|token|secret|passw(?:or)?d|credential|auth))[A-Za-z0-9_.-]++"
_START = r"(?<![A-Za-z0-9_.-])"
"""Of a word: tried once for each word, not once for each letter."""
_ASSIGNED = re.compile(rf"(?i)({_START}{_WORD}\s*[=:]\s*)('[^']*'|\"[^\"]*\"|(?:bearer\s+)?[^\s'\";,&]+)")
_FLAG = re.compile(rf"(?i)-{_WORD}")
_FLAG_INSIDE = re.compile(rf"(?i)({_START}--{_WORD}\s+)('[^']*'|\"[^\"]*\"|[^\s'\"-][^\s'\";,&]*)")
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16}|xox[abpr]-[A-Za-z0-9-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"
)
_PASSWORD_IN_URL = re.compile(r"(://[^/\s:@]*:)[^@\s/]+@")
_BEARER = re.compile(r"(?i)(\bbearer\s+)[^\s'\"]+")
_NO_SECRET = re.compile(
    r"(?i)(?:max|min|num|pad|eos|bos|unk|new|per|total|batch)[A-Za-z0-9_.-]*tokens?|tokens?[_.-]?(?:per|count|budget)"
    r"|tokenizer|author(?!i[sz]ation)|key(?:word|frame|_?points?|s?_(?:only|states?))|monkey"
)
"""Words of training that only look like secrets: ``max_tokens``, ``tokenizer``."""
_GONE = "[REDACTED]"


def command_of(argv: Sequence[str]) -> str | None:
    """The command line without what looks like a secret. None where there is none."""
    if not argv:
        return None
    words, hide = [], False
    for word in (one[:_MOST_COMMAND] for one in argv):
        if hide and not word.startswith("-"):
            words.append(_GONE)
            hide = False
            continue
        hide = bool(_FLAG.fullmatch(word)) and not _NO_SECRET.search(word)
        words.append(without_secrets(word))
    line = shlex.join(words).replace(f"'{_GONE}'", _GONE)
    return plain(line, _MOST_COMMAND) or None


def without_secrets(text: str) -> str:
    def kept(match: re.Match[str]) -> str:
        return match[0] if _NO_SECRET.search(match[1]) else match[1] + _GONE

    for pattern in (_ASSIGNED, _FLAG_INSIDE):
        text = pattern.sub(kept, text)
    text = _BEARER.sub(rf"\1{_GONE}", text)
    text = _PASSWORD_IN_URL.sub(rf"\1{_GONE}@", text)
    return _SHAPES.sub(_GONE, text)
