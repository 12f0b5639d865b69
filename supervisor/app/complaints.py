"""What is wrong with a config, as sentences: key, fault, what is allowed. Values are not repeated: one may be a secret."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from supervisor.app.config_path import PREFIX

_WORDS = {
    "missing": "is missing",
    "int_from_float": "must be a whole number",
    "finite_number": "must be a finite number",
    "string_type": "must be a string in quotes",
    "path_type": "must be a path in quotes",
    "too_short": "must not be empty",
}
_FAMILIES = {
    "float": "must be a number",
    "int": "must be a whole number",
    "bool": "must be true or false",
    "date": "must be a day, such as 2026-07-12",
    "tuple": 'must be a list, such as ["…"]',
    "list": 'must be a list, such as ["…"]',
    "dict": "must be a table",
    "model": "must be a table",
}


def faults(error: ValidationError, model: type[BaseModel], known: Iterable[str] = ()) -> list[tuple[str, str]]:
    """(key, sentence) of each fault. ``known``: keys that may stand at the top beside those of ``model``."""
    found = []
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        loc = fault["loc"]
        if fault["type"] == "extra_forbidden":
            fields = _fields_at(model, loc[:-1])
            text = f"unknown key{nearest(str(loc[-1]), {*fields, *known} if len(loc) == 1 else fields)}"
        else:
            text = _sentence(fault["type"], fault["msg"])
        found.append((".".join(str(part) for part in loc), text))
    return found


def _sentence(kind: str, message: str) -> str:
    family = kind.partition("_")[0]
    if kind in _WORDS:
        return _WORDS[kind]
    if family in _FAMILIES:
        return _FAMILIES[family]
    return message.removeprefix("Value error, ").replace("Input should be", "must be").replace("String should", "must")


def said(key: str, text: str) -> str:
    """One sentence. A fault inside a ``[[cluster]]`` table says itself where it stands."""
    return f"{key}: {text}" if key and not text.startswith("[[cluster]]") else text


def named_in(key: str, text: str, environment: Collection[str]) -> str | None:
    """The variable of the environment that a fault comes from; None where it stands in the file."""
    whole = key or text.partition(":")[0]
    parts = whole.upper().split(".")
    for length in range(len(parts), 0, -1):
        name = "__".join(parts[:length])
        if name in environment:
            return PREFIX + name
    return None


def numbers_only(model: type[BaseModel], data: Any) -> None:
    """Raises ValueError where a number is given as true or false, which Python would take for 1 and 0."""
    if not isinstance(data, dict):
        return
    for name, value in data.items():
        field = model.model_fields.get(name)
        if isinstance(value, bool) and field is not None and field.annotation in (int, float):
            raise ValueError(f"{name}: must be a number")


def _fields_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    current: Any = model
    for part in loc:
        fields = getattr(current, "model_fields", None)
        if fields is not None and part in fields:
            current = _model_in(fields[part].annotation)
    return list(getattr(current, "model_fields", ()))


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        found = _model_in(part)
        if found is not None:
            return found
    return None


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` where something is near, else what is allowed."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; allowed: {', '.join(sorted(names))}" if names else ""
