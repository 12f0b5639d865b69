"""Lean texts: a noun of the model as JSON without the fields that hold their default.

A job in the queue knows little more than its name, and ``"ended_at":null`` twenty times over would make up a third of what is
kept for ever. Reading back needs nothing of this: a dataclass fills in its own defaults.
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from supervisor.model.errors import StoreError


class Lean:
    """Makes lean values of one dataclass, for a JSON encoder. ``without``: fields that are not kept at all."""

    def __init__(self, kind: type, without: tuple[str, ...] = ()) -> None:
        self._kind = _struct(kind, {}, without)

    def __call__(self, value: object) -> msgspec.Struct:
        """Raises StoreError where a field holds another type than it declares: it could not be read back."""
        try:
            made: msgspec.Struct = msgspec.convert(value, self._kind, from_attributes=True)
        except msgspec.ValidationError as error:
            raise StoreError(f"a {type(value).__name__} can't be stored: {error}") from error
        return made


def _struct(kind: type, known: dict[type, type], without: tuple[str, ...] = ()) -> type:
    """A msgspec struct with the fields of a dataclass, and structs for the dataclasses within."""
    if kind not in known:
        hints = get_type_hints(kind)
        fields: list[Any] = []
        for field in dataclasses.fields(kind):
            if field.name in without:
                continue
            shape = _shape(hints[field.name], known)
            if field.default is not dataclasses.MISSING:
                fields.append((field.name, shape, field.default))
            elif field.default_factory is not dataclasses.MISSING:
                fields.append((field.name, shape, msgspec.field(default_factory=field.default_factory)))
            else:
                fields.append((field.name, shape))
        known[kind] = msgspec.defstruct(kind.__name__, fields, omit_defaults=True, frozen=True, gc=False, kw_only=True)
    return known[kind]


def _shape(hint: Any, known: dict[type, type]) -> Any:
    """A type with its dataclasses replaced."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _struct(hint, known)
    within = get_args(hint)
    if not within:
        return hint
    replaced: tuple[Any, ...] = tuple(part if part is Ellipsis else _shape(part, known) for part in within)
    origin = get_origin(hint)
    if origin is types.UnionType:
        union = replaced[0]
        for part in replaced[1:]:
            union = union | part
        return union
    return origin[replaced]
