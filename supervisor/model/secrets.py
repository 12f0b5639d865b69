"""Secrets that may stand in command lines and log lines, put out of sight before anything is stored or written down."""

from __future__ import annotations

import re

HIDDEN = "[secret]"

_NAMED = re.compile(
    r"""(?ix)
    (?P<name>(?<![\w.-])[\w.-]{0,100}?
      (?:(?:api|access|private|wandb|comet|neptune|openai|anthropic|azure|hf|hub|auth)[._-]?key
        |secret|token|passw(?:or)?d|passwd|passphrase|credential|use_wandb)[\w.-]{0,100}+)
    (?P<gap>["']?\s{0,20}[=:]\s{0,20}|["']?\s{1,20})
    (?:(?P<quote>["'])(?P<quoted>[^"'\\]{4,2000}?)(?P=quote)|["']?(?P<value>[^\s"'&,;]{6,}))
    """
)
"""``--api_key=…``, ``HF_TOKEN=…``, ``password: …``; a value of some length, so that ``max_token 5`` is left alone. One in
quotes may have spaces."""
_PASSWORD = re.compile(
    r"(?i)(?<![\w-])(?P<name>--?[\w.-]{0,100}?passw(?:or)?d)(?P<gap>[= ])(?P<value>(?!-)\S+(?: (?!-)\S+){0,8}+)(?= -|$)"
)
"""A password on a command line as the system lists it: without its quotes, up to the next option."""
_BEARER = re.compile(
    r"(?i)\b(?P<name>bearer|authorization\W{1,4}basic|wandb login)(?P<gap>\s{1,4})(?P<value>(?=\S{0,80}\d)[A-Za-z0-9._~+/=-]{16,})"
)
_KNOWN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[bapr]-[A-Za-z0-9-]{10,}|nvapi-[A-Za-z0-9_-]{20,}|AIza[A-Za-z0-9_-]{35}|A[KS]IA[0-9A-Z]{16}|eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,8000}\.[A-Za-z0-9_-]+)"
)
"""Tokens that can be told by their own form."""
_URL = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]{0,40}://)(?P<user>[^\s/:@]{0,200}):(?P<password>[^\s/@]{1,500})@", re.IGNORECASE
)
_COUNTS = re.compile(
    r"(?i)(?:max|num|min|new|total|prompt|completion|input|output|special|pad|eos|bos|per|avg|mean)[\w.-]*token|tokens?_?(?:per|limit|budget|count|id)|tokeniz"
)
"""Words in which ``token`` means a piece of text."""


def scrubbed(text: str) -> str:
    """``text`` with the values of what is named like a secret, or looks like one, hidden. Its length may change."""
    if len(text) < 8:
        return text
    text = _URL.sub(lambda m: f"{m['scheme']}{m['user']}:{HIDDEN}@", text)
    text = _KNOWN.sub(HIDDEN, text)
    text = _BEARER.sub(lambda m: f"{m['name']}{m['gap']}{HIDDEN}", text)
    return _PASSWORD.sub(lambda m: f"{m['name']}{m['gap']}{HIDDEN}", _NAMED.sub(_hidden, text))


def _hidden(found: re.Match[str]) -> str:
    value, gap, quote = found["quoted"] or found["value"], found["gap"], found["quote"] or ""
    if _COUNTS.search(found["name"]) or value.startswith(("-", "$", "%", "<", "{", "[secret")):
        return found[0]
    if not gap.strip(" \t\"'") and not found["name"].startswith("-"):
        return found[0]  # prose: "the token expired"; on a command line the name begins with a dash
    if "use_wandb" in found["name"].lower() and value.lower() in ("online", "offline", "disabled"):
        return found[0]
    opening = quote or (found[0][len(found["name"]) + len(gap) :].removesuffix(value))
    return f"{found['name']}{gap}{opening}{HIDDEN}{quote}"
