"""The catalogue of log signatures: TOML packs, checked when they are loaded.

The pack format is documented in docs/signatures.md. This room opens nothing: packs come in as (name, text).
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from supervisor.diagnosis.patterns import Pattern, PatternRefused, parse
from supervisor.model.diagnosis import CATEGORIES, CONFIDENCES, TRANSIENCES, USUAL

ROLES = ("cause", "echo", "teardown", "noise", "heartbeat", "context", "progress", "finish")
DEPTHS = ("root", "fault", "symptom")
ANY_EXCEPTION = "exception"
"""What `with`, `unless` and `explains` may name beside codes and categories: the last line of any traceback."""
_CODE = re.compile(r"[a-z][a-z0-9_]*\Z")
_CATEGORY_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")
_TEST = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*\Z")
_DEFAULT_WINDOW = 0


class PackError(ValueError):
    """A signature pack that breaks its contract; says which file, which entry and what is allowed."""

    def __init__(self, pack: str, entry: str, problem: str) -> None:
        super().__init__(f"{pack}: {entry}: {problem}" if entry else f"{pack}: {problem}")
        self.pack, self.entry, self.problem = pack, entry, problem


@dataclass(frozen=True, slots=True)
class Where:
    """A numeric test on a named capture, such as `free < 1.0`."""

    group: str
    relation: str
    bound: float

    def holds(self, captured: str | None) -> bool:
        """False where nothing was captured or it is no number."""
        try:
            value = float((captured or "").replace(",", ""))
        except ValueError:
            return False
        return {
            "<": value < self.bound,
            "<=": value <= self.bound,
            ">": value > self.bound,
            ">=": value >= self.bound,
            "==": value == self.bound,
            "!=": value != self.bound,
        }[self.relation]


@dataclass(frozen=True, slots=True)
class Signature:
    """One entry of a pack. Field meanings are those of docs/signatures.md."""

    code: str
    role: str
    pattern: Pattern
    pack: str
    category: str | None = None
    depth: str = "fault"
    confidence: str = "medium"
    transience: str = "unknown"
    with_: frozenset[str] = frozenset()
    unless: frozenset[str] = frozenset()
    healed_by: frozenset[str] = frozenset()
    window: int = _DEFAULT_WINDOW
    where: tuple[Where, ...] = ()
    frame: str | None = None
    explains: frozenset[str] = frozenset()
    survives: bool = False
    service: bool = False
    set_off: bool = False
    pick: str = "first"
    why: str = ""
    action: str = ""
    source: str = ""
    matches: tuple[str, ...] = ()
    spares: tuple[str, ...] = ()
    crosstalk: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Catalogue:
    """All entries in force, in pack order."""

    signatures: tuple[Signature, ...]
    categories: frozenset[str] = CATEGORIES
    digest: str = field(default="", compare=False)

    @cached_property
    def by_code(self) -> Mapping[str, Signature]:
        """Entries by their code."""
        return {signature.code: signature for signature in self.signatures}

    def without(self, codes: Iterable[str]) -> Catalogue:
        """The same catalogue with entries switched off. Raises `KeyError` with a sentence for an unknown code."""
        off = set(codes)
        if unknown := off - set(self.by_code):
            raise KeyError(f"no signature is called {', '.join(sorted(unknown))}")
        kept = tuple(signature for signature in self.signatures if signature.code not in off)
        digest = hashlib.sha256(f"{self.digest} without {sorted(off)}".encode()).hexdigest()
        return Catalogue(kept, self.categories, digest)


def load(packs: Sequence[tuple[str, str]], *, strict: bool = True) -> Catalogue:
    """Read packs given as (name for messages, TOML text). Raises `PackError` for the first thing that is wrong.

    Without `strict`, entries may name others that are not there (packs left out); such names are never hit.
    """
    signatures: list[Signature] = []
    owners: dict[str, str] = {}
    categories = set(CATEGORIES)
    documents = [(name, _document(name, text)) for name, text in packs]
    for name, document in documents:
        categories |= _own_categories(name, document.get("pack", {}))
    for name, document in documents:
        for number, entry in enumerate(document.get("signature", []), 1):
            signature = _signature(name, number, entry, frozenset(categories))
            if signature.code in owners:
                raise PackError(name, signature.code, f"the code is taken by {owners[signature.code]}")
            owners[signature.code] = name
            signatures.append(signature)
    known = set(owners) | categories | {ANY_EXCEPTION}
    for signature in signatures:
        named = signature.with_ | signature.unless | signature.healed_by | signature.explains
        if strict and (missing := (named - known) | (signature.crosstalk - set(owners))):
            raise PackError(signature.pack, signature.code, f"names unknown entries: {', '.join(sorted(missing))}")
    digest = hashlib.sha256("\0".join(text for _, text in packs).encode()).hexdigest()
    return Catalogue(tuple(signatures), frozenset(categories), digest)


def _document(name: str, text: str) -> dict[str, Any]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PackError(name, "", f"is not valid TOML: {error}") from error
    if unknown := set(document) - {"pack", "signature"}:
        raise PackError(name, "", f"unknown tables: {', '.join(sorted(unknown))} (allowed: [pack], [[signature]])")
    pack = document.get("pack", {})
    if not isinstance(pack, dict) or set(pack) - {"about", "categories"}:
        raise PackError(name, "[pack]", "may hold `about` (text) and `categories` (list of names)")
    return document


def _own_categories(name: str, pack: Mapping[str, Any]) -> set[str]:
    own = pack.get("categories", [])
    if not isinstance(own, list) or not all(isinstance(x, str) and _CATEGORY_NAME.match(x) for x in own):
        raise PackError(name, "[pack]", "`categories` is a list of names of lower-case letters, digits and dashes")
    return set(own)


_TEXT = {"code", "pattern", "role", "category", "depth", "confidence", "transience", "frame", "pick"} | {
    "why",
    "action",
    "source",
}
_LISTS = {"with", "unless", "healed_by", "explains", "matches", "spares", "crosstalk"}
_ALL_KEYS = _TEXT | _LISTS | {"window", "where", "survives", "service", "set_off"}


def _signature(pack: str, number: int, entry: Mapping[str, Any], categories: frozenset[str]) -> Signature:
    code = entry.get("code")
    label = code if isinstance(code, str) else f"entry {number}"

    def wrong(problem: str) -> PackError:
        return PackError(pack, label, problem)

    if unknown := set(entry) - _ALL_KEYS:
        raise wrong(f"unknown keys: {', '.join(sorted(unknown))} (allowed: {', '.join(sorted(_ALL_KEYS))})")
    for key in _TEXT & set(entry):
        if not isinstance(entry[key], str):
            raise wrong(f"`{key}` must be text")
    for key in _LISTS & set(entry):
        if not isinstance(entry[key], list) or not all(isinstance(x, str) for x in entry[key]):
            raise wrong(f"`{key}` must be a list of texts")
    if not isinstance(code, str) or not _CODE.match(code):
        raise wrong("`code` is needed: lower-case letters, digits and underscores")
    role = _one_of(entry, "role", ROLES, None, wrong)
    for key in ("pattern", "why", "matches"):
        if not entry.get(key):
            raise wrong(f"`{key}` is needed")
    category = entry.get("category")
    if category is not None and category not in categories:
        raise wrong(f"category {category!r} is not in the taxonomy (add your own under [pack] categories)")
    if role == "cause" and category in (None, "none", "unread"):
        raise wrong("a cause needs a `category` that names a fault")
    if role not in ("cause", "echo") and category is not None:
        raise wrong(f"`category` belongs to causes and echoes, not to role {role!r}")
    window = entry.get("window", _DEFAULT_WINDOW)
    if not isinstance(window, int) or isinstance(window, bool) or window < 0:
        raise wrong("`window` is a number of lines, 0 for the whole log")
    for key in ("survives", "service", "set_off"):
        if not isinstance(entry.get(key, False), bool):
            raise wrong(f"`{key}` is true or false")
    if entry.get("service") and role != "progress":
        raise wrong("`service` belongs to role 'progress'")
    if entry.get("set_off") and not entry.get("with"):
        raise wrong("`set_off` needs a `with` that shows that such lines are the program's own")
    pattern = _pattern(entry["pattern"], "pattern", wrong)
    if role == "progress" and pattern.caseless:
        raise wrong("progress is looked for by its plain text, so its pattern can't begin with (?i)")
    if frame := entry.get("frame"):
        _pattern(frame, "frame", wrong)
    return Signature(
        code=code,
        role=role,
        pattern=pattern,
        pack=pack,
        category=category,
        depth=_one_of(entry, "depth", DEPTHS, "fault", wrong),
        confidence=_one_of(entry, "confidence", CONFIDENCES, "medium", wrong),
        transience=_one_of(entry, "transience", TRANSIENCES, USUAL.get(str(category), ("unknown", ""))[0], wrong),
        with_=frozenset(entry.get("with", ())),
        unless=frozenset(entry.get("unless", ())),
        healed_by=frozenset(entry.get("healed_by", ())),
        window=window,
        where=_where(entry.get("where", {}), pattern, wrong),
        frame=frame,
        explains=frozenset(entry.get("explains", ())),
        survives=entry.get("survives", False),
        service=entry.get("service", False),
        set_off=entry.get("set_off", False),
        pick=_one_of(entry, "pick", ("first", "last"), "first", wrong),
        why=entry["why"],
        action=entry.get("action", USUAL.get(str(category), ("", ""))[1]),
        source=entry.get("source", ""),
        matches=tuple(entry["matches"]),
        spares=tuple(entry.get("spares", ())),
        crosstalk=frozenset(entry.get("crosstalk", ())),
    )


def _one_of(entry: Mapping[str, Any], key: str, allowed: Sequence[str], default: str | None, wrong: Any) -> str:
    value = entry.get(key, default)
    if value not in allowed:
        raise wrong(f"`{key}` is {value!r}; allowed: {', '.join(allowed)}")
    return str(value)


def _pattern(text: str, key: str, wrong: Any) -> Pattern:
    try:
        return parse(text)
    except PatternRefused as refused:
        raise wrong(f"{key} {text!r} {refused}") from refused


def _where(tests: Any, pattern: Pattern, wrong: Any) -> tuple[Where, ...]:
    if not isinstance(tests, dict):
        raise wrong('`where` is a table of tests on captures, such as { free = "< 1.0" }')
    read = []
    for group, test in tests.items():
        if group not in pattern.groups:
            raise wrong(f"`where` tests {group!r}, which the pattern does not capture")
        parts = _TEST.match(test) if isinstance(test, str) else None
        if parts is None:
            raise wrong(f"`where` test {test!r} must be a comparison with a number, such as '>= 0.5'")
        read.append(Where(group, parts[1], float(parts[2])))
    return tuple(read)
