"""Numbers as programs print them: ``nan``, ``Infinity``, thousands commas, strings, wrapped scalars, tqdm's ``1.2k``."""

from __future__ import annotations

import math
import re

NUMBER = r"[-+]?(?:\d[\d_]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|NaN|NAN|inf|Inf|INF|Infinity|infinity)"
_NUMBER = re.compile(NUMBER)
_PAIR = re.compile(
    r"""(["'])([^"'\n{}]{1,160})\1:\s*"""
    r"""(?:np\.\w+\(|numpy\.\w+\(|tensor\(|array\()?(["']?)(""" + NUMBER + r""")(?![\w.])"""
)
_WORD = re.compile(r"""(["'])([^"'\n{}]{1,160})\1:\s*(["'])([^"'\n]{1,80})\3""")
SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
LIMIT = 1024
"""Names kept from one line; a line with more is no metric line of any program we know."""
_DIGITS = 18
"""Digits of a counter that we take for real."""


def number(text: str) -> float | None:
    """A float from a whole printed value, commas and all; None if it is none."""
    text = text.strip().strip("'\"").replace(",", "")
    if _NUMBER.fullmatch(text) is None:
        return None
    return float(text.replace("_", ""))


def whole(text: str) -> int | None:
    """A counter such as ``1,832`` or tqdm's ``1.20k``; None if it is none."""
    if text.isdecimal() and text.isascii() and len(text) <= _DIGITS:
        return int(text)
    text = text.strip().replace(",", "")
    scale = SCALES.get(text[-1:]) if text[-1:].isalpha() else 1.0
    digits = text[:-1] if text[-1:].isalpha() else text
    if scale is None or not digits or len(digits) > _DIGITS or not digits.replace(".", "", 1).isdigit():
        return None
    return int(digits) if scale == 1.0 and digits.isdigit() else round(float(digits) * scale)


def pairs(text: str) -> dict[str, float]:
    """Numeric ``'key': value`` pairs of a printed dict or of JSON, NaN and infinities included; the first one counts.

    One regular expression, since ``nan`` and ``inf`` break both ``json`` and ``ast.literal_eval``.
    """
    found: dict[str, float] = {}
    for _, name, _, value in _PAIR.findall(text):
        if name not in found:
            found[name] = float(value.replace("_", ""))
            if len(found) >= LIMIT:
                break
    return found


def words(text: str) -> dict[str, str]:
    """``'key': 'text'`` pairs whose text is no number."""
    return {name: value for _, name, _, value in _WORD.findall(text) if _NUMBER.fullmatch(value.strip()) is None}


def seconds_of(clock: str) -> float | None:
    """tqdm's ``2:10:33``, ``01:05`` or ``1 day, 2:00:00``; None for ``?``."""
    days, _, rest = clock.rpartition("day") if "d" in clock else ("", "", clock)
    parts = rest.lstrip("s, ").split(":")
    if len(parts) == 2 and parts[0].isdecimal() and parts[1].isdecimal():
        return int(parts[0][:9]) * 60.0 + int(parts[1][:9])
    if not 1 <= len(parts) <= 4 or not all(part.replace(".", "", 1).isdigit() for part in parts):
        return None
    total = 0.0
    for part in parts:
        total = total * 60 + float(part)
    lead = days.strip()
    return total + (int(lead) * 86400 if lead.isdigit() else 0)


def wire(value: float) -> float | str:
    """A value as the state keeps it: what JSON has no word for becomes the contract's string."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def unwire(value: object) -> float:
    return float(value) if isinstance(value, (int, float, str)) else math.nan
