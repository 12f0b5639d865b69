"""Nouns to columns and back: each job, step and attempt is one JSON text, whole; columns repeat what SQL asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from hashlib import blake2b
from typing import Any

import msgspec

from supervisor.model.errors import StoreError
from supervisor.model.facts import NO_LOG, NO_RUN, Held, LogFacts, PastEnd, RunFacts
from supervisor.model.findings import Flag, Severity
from supervisor.model.job import NO_DETAILS, Dependency, Details, JobKey, Observation
from supervisor.model.lifecycle import LIVE_PHASES, Lifecycle, Transition
from supervisor.model.logs import LogState
from supervisor.store.engine import Row
from supervisor.store.lean import Lean
from supervisor.store.times import to_us, to_us_or_none


class _Body(msgspec.Struct, frozen=True, gc=False):
    """What is read of a job's text: all of a :class:`Held` but row and version."""

    key: JobKey
    life: Lifecycle
    bucket: str
    observation: Observation
    details: Details = NO_DETAILS
    log: LogFacts = NO_LOG
    flags: tuple[Flag, ...] = ()
    depends_on: tuple[Dependency, ...] = ()
    predecessor: str | None = None
    successor: str | None = None
    first_seen_at: datetime | None = None
    look_at: datetime | None = None
    run: RunFacts = NO_RUN
    past: tuple[PastEnd, ...] = ()


class _Seen(msgspec.Struct, frozen=True, gc=False):
    """What is read of an attempt's text."""

    observation: Observation


_lean_job = Lean(Held, without=("row", "version"))
_lean_step = Lean(Transition)
_lean_seen = Lean(Observation)
_encoder = msgspec.json.Encoder()
_bodies = msgspec.json.Decoder(_Body)
_transitions = msgspec.json.Decoder(Transition)
_attempts = msgspec.json.Decoder(_Seen)
_objects = msgspec.json.Decoder(dict[str, Any])

JOB_COLUMNS = (
    *("id", "cluster", "job_id", "incarnation", "version", "mark", "changed_at", "changed_tick", "name", "user_name"),
    *("bucket", "phase", "since", "attempt", "outcome", "closed_at", "state", "scheduler_state", "scheduler_reason"),
    *("submitted_at", "started_at", "ended_at", "time_limit_s", "account", "partition", "group_id", "group_size"),
    *("nodes", "node_count", "exit_code", "signal", "log_state", "log_path", "log_reason", "last_output_at"),
    *("cadence_s", "step", "total", "progress_at", "flags", "worst", "predecessor", "successor", "first_seen_at"),
    *("look_at", "metrics", "body"),
)
"""In the order of :func:`job_row`. ``diagnosis`` is written by those who learn it."""

_WORST = {Severity.NOTE: 0, Severity.WATCH: 1, Severity.FAULT: 2}


def clean(text: str) -> str:
    """Text as every database takes it: no NUL, no half of a surrogate pair (a job's name may hold any byte)."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def clean_or_none(text: str | None) -> str | None:
    return None if text is None else clean(text)


def fits(number: int | None) -> int | None:
    """None for a number that no column holds: what a log counts to is not in our hands. The JSON text keeps it whole."""
    return number if number is None or -(2**63) <= number < 2**63 else None


def to_json(value: object) -> str:
    """Compact JSON."""
    try:
        return _encoder.encode(value).decode()
    except UnicodeEncodeError:  # half a surrogate pair somewhere inside
        return _encoder.encode(_cleaned(msgspec.to_builtins(value))).decode()


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {_cleaned(name): _cleaned(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(part) for part in value]
    return value


def from_json(text: str) -> dict[str, Any]:
    return _objects.decode(text)


def job_row(held: Held, row: int, tick: int, at_us: int) -> Row:
    """Values of ``JOB_COLUMNS`` for the next version of ``held``, as of a reading at ``at_us`` (microseconds)."""
    key, life, seen, log = held.key, held.life, held.observation, held.log
    stat, nodes, limit, cadence, body = log.stat, seen.nodes, seen.time_limit, log.cadence, _lean_job(held)
    try:
        text, dirty = _encoder.encode(body).decode(), False
        dirty = "\\u0000" in text
    except UnicodeEncodeError:
        text, dirty = to_json(body), True
    values = (
        row,
        key.cluster,
        key.id,
        key.incarnation,
        held.version + 1,
        mark(held),
        at_us,
        tick,
        seen.name,
        seen.user,
        held.bucket,
        str(life.phase),
        to_us(life.since),
        life.attempt,
        None if life.outcome is None else str(life.outcome),
        None if life.phase in LIVE_PHASES else at_us,
        str(seen.state),
        seen.scheduler_state,
        seen.reason,
        to_us_or_none(seen.submitted_at),
        to_us_or_none(seen.started_at),
        to_us_or_none(seen.ended_at),
        None if limit is None else limit.total_seconds(),
        seen.account,
        seen.partition,
        seen.group,
        seen.group_size if fits(seen.group_size) is not None else 1,
        to_json(nodes) if nodes else None,
        (len(nodes) or None) if seen.node_count is None else fits(seen.node_count),
        fits(seen.exit_code),
        fits(seen.signal),
        LogState.NONE.value if stat is None else str(stat.state),
        held.details.log_path if stat is None else stat.path,
        None if stat is None else stat.reason,
        to_us_or_none(log.last_output_at),
        None if cadence is None else cadence.total_seconds(),
        fits(log.step),
        fits(log.total),
        to_us_or_none(log.progress_at),
        _flags(held.flags) if held.flags else None,
        str(max((flag.finding.severity for flag in held.flags), key=_WORST.__getitem__)) if held.flags else None,
        held.predecessor,
        held.successor,
        to_us_or_none(held.first_seen_at),
        to_us_or_none(held.look_at),
        None if held.run == NO_RUN else to_json(held.run),
        text,
    )
    return tuple(clean(value) if isinstance(value, str) else value for value in values) if dirty else values


def mark(held: Held) -> int:
    """Digest of what makes a row of history when it changes: the scheduler's words and our phase, not logs, steps or flags."""
    seen, life = held.observation, held.life
    nodes = seen.node_count if seen.node_count is not None else len(seen.nodes)
    words = (
        f"{life.attempt}\x1f{life.phase}\x1f{life.outcome}\x1f{seen.state}\x1f{seen.scheduler_state}\x1f{seen.reason}"
    )
    words += f"\x1f{nodes}"
    return int.from_bytes(blake2b(words.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True)


def body_of(held: Held) -> str:
    return to_json(_lean_job(held))


_COPIED = tuple(one.name for one in fields(Held) if one.name not in ("row", "version"))


def as_stored(held: Held, row: object, version: object) -> Held:
    """The job with its row number and version: ``replace`` without its cost, which counts on the hot path."""
    copy = object.__new__(Held)
    put = object.__setattr__
    for name in _COPIED:
        put(copy, name, getattr(held, name))
    put(copy, "row", row)
    put(copy, "version", version)
    return copy


def held_of(row: int, version: int, text: str) -> Held:
    """Raises StoreError on a body that this program can't read."""
    try:
        body = _bodies.decode(text)
    except msgspec.MsgspecError as error:
        raise StoreError(f"job row {row} can't be read back: {error}") from error
    return Held(
        key=body.key,
        life=body.life,
        bucket=body.bucket,
        observation=body.observation,
        details=body.details,
        log=body.log,
        flags=body.flags,
        depends_on=body.depends_on,
        predecessor=body.predecessor,
        successor=body.successor,
        first_seen_at=body.first_seen_at,
        past=body.past,
        row=row,
        version=version,
        look_at=body.look_at,
        run=body.run,
    )


def transition_body(move: Transition) -> str:
    return to_json(_lean_step(move))


def transition_of(text: str) -> Transition:
    return _transitions.decode(text)


def attempt_body(seen: Observation) -> str:
    """Like a job's own text, of which an attempt that is over is a copy: what was seen stands under ``observation``."""
    return to_json({"observation": _lean_seen(seen)})


def attempt_of(text: str) -> Observation:
    return _attempts.decode(text).observation


def _flags(flags: tuple[Flag, ...]) -> str:
    """As the contract shows them."""
    return to_json(
        [
            {
                "rule": flag.finding.rule,
                "severity": flag.finding.severity,
                "text": flag.finding.text,
                "since": flag.since,
                "quotes": [
                    {"file": quote.file, "line": quote.line, "text": quote.text} for quote in flag.finding.quotes
                ],
            }
            for flag in flags
        ]
    )
