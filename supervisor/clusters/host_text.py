"""What a plain host answered: records of launches, and what its process table says of them. Pure: text in, values out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from supervisor.clusters.waiter import FORMAT
from supervisor.model.job import Details, JobKey, JobState, Observation
from supervisor.model.logs import LogStat, LogState

LAUNCH_TAKES = timedelta(minutes=10)
"""Longest between a record and its process. A launch cut off in between never started anything: see the waiter."""
_LONGEST_TEXT = 4096
"""Characters of a name or command that are kept."""


class Unusable(ValueError):
    """The answer is cut off or contradicts itself, so nothing in it is believed (POLL-1)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the process table says of one process id."""

    there: str
    """``alive``, ``gone``, or ``hidden``: something has this number, and we may not see what."""
    state: str
    start: str

    def is_the_one(self, start: str) -> bool:
        return self.there == "alive" and self.start == start and self.state[:1] not in ("Z", "X")


@dataclass(slots=True)
class Live:
    """A record without an end, and what is known of its process."""

    id: str
    text: bytes = b""
    process: Seen = Seen("gone", "-", "-")
    waiter: Seen = Seen("gone", "-", "-")
    cancel: str = ""
    log: LogStat | None = None

    def fingerprint(self, where: str) -> str:
        """Equal for as long as nothing about the process changed; whether it sleeps or runs is no change."""
        coarse = (
            f"{self.process.there} {self.process.start} {_coarse(self.process)} {self.waiter.there} {self.waiter.start}"
        )
        return blake2b(self.text + f"{coarse} {self.cancel} {where}".encode(), digest_size=16).hexdigest()


@dataclass(slots=True)
class Answer:
    """One whole answer to a poll."""

    clock: int = 0
    """The host's clock, whole seconds."""
    system: str = ""
    node: str = ""
    machine: str = ""
    boot: str = ""
    space: str = ""
    """The process id namespace, where the system has such."""
    folder: str = ""
    absent: bool = False
    """There is no records folder: nothing was ever launched, or it is not mounted."""
    live: dict[str, Live] = field(default_factory=dict)
    ended: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"{self.machine} {self.boot} {self.space}"


def read_poll(data: bytes, nonce: str) -> Answer:
    """The answer to ``host_commands.POLL``. Raises Unusable unless it is whole to its end mark."""
    answer, current = Answer(), None
    counts: tuple[int, int] | None = None
    texts: dict[str, str] = {}
    for mark, value, body in marked(data, nonce):
        if mark == "end":
            counts = _two_numbers(value)
            break
        if mark == "live":
            current = answer.live[value] = Live(value, body)
        elif mark == "ended":
            answer.ended.append((value, body))
        elif mark in ("process", "waiter") and current is not None:
            setattr(current, mark, _seen(value))
        elif mark == "cancel" and current is not None:
            current.cancel = value
        elif mark == "nolog" and current is not None:
            current.log = LogStat(_log_path(texts, current.id), LogState.ABSENT, reason="no such file")
        elif mark == "log":
            _take_log(answer, value, texts)
        elif mark == "absent":
            answer.absent = True
        else:
            texts[mark] = value
    if counts is None:
        raise Unusable("the answer has no end")
    if counts != (len(answer.live), len(answer.ended)):
        raise Unusable(f"the answer speaks of {counts[0]} running and {counts[1]} ended and lists others")
    if not texts.get("hello", "").isdigit():
        raise Unusable("the answer does not tell the clock")
    if not answer.absent and texts.get("format") != str(FORMAT):
        found = texts.get("format") or "nothing"
        raise Unusable(
            f"the records in {texts.get('folder')} are of format {found!r}, and format {FORMAT} is read here"
        )
    answer.clock = int(texts["hello"])
    for name in ("system", "node", "machine", "boot", "space", "folder"):
        setattr(answer, name, texts.get(name, ""))
    return answer


def marked(data: bytes, nonce: str) -> Iterator[tuple[str, str, bytes]]:
    """(mark, rest of its line, lines up to the next mark). What stands before the first mark is a login shell's noise.

    A last line without its newline is cut off and yields nothing.
    """
    sign = nonce.encode() + b" "
    mark: tuple[str, str] | None = None
    body = bytearray()
    for line in data.split(b"\n")[:-1]:
        if line.startswith(sign):
            if mark is not None:
                yield *mark, bytes(body)
            name, _, value = line[len(sign) :].decode("utf-8", "replace").partition(" ")
            mark = (name, value)
            body.clear()
        else:
            body += line + b"\n"
    if mark is not None:
        yield *mark, bytes(body)


@dataclass(frozen=True, slots=True)
class Traced:
    """One launch record by itself, and what is left of its processes."""

    text: bytes | None
    """None where there is no record of this launch any more."""
    file: str = ""
    where: str = ""
    """``here``, ``before`` the machine's last restart, or ``other``: another machine or container."""
    pid: str = ""
    leader: str = ""
    """``alive``, ``gone``, ``hidden``, or ``another``: its number is another process's now."""
    left: tuple[str, ...] = ()
    """What lives of its group and session: number, state and name each."""


def read_traced(data: bytes, nonce: str) -> Traced:
    """The answer to ``host_commands.RECORD``. Raises Unusable unless it is whole to its end mark."""
    text, file, where, leader, left = None, "", "", ["", "", ""], list[str]()
    for mark, value, body in marked(data, nonce):
        if mark == "end":
            return Traced(text, file, where, leader[0], leader[1], tuple(left))
        if mark == "record":
            text, file = body, value
        elif mark == "where":
            where = value
        elif mark == "leader":
            leader = value.split(" ")
            if len(leader) != 3:
                raise Unusable("the answer is garbled where it speaks of the process")
        elif mark == "left":
            left.append("".join(c if c.isprintable() else " " for c in value))
    raise Unusable("the answer has no end")


def _two_numbers(value: str) -> tuple[int, int]:
    words = value.split(" ")
    if len(words) != 2 or not all(word.isdigit() for word in words):
        raise Unusable("the answer's end is garbled")
    return int(words[0]), int(words[1])


def _seen(value: str) -> Seen:
    there, state, *start = value.split(" ")
    return Seen(there, state, " ".join(start))


def _log_path(texts: Mapping[str, str], job_id: str) -> str:
    return f"{texts.get('folder', '')}/logs/{job_id}.log"


def _take_log(answer: Answer, value: str, texts: Mapping[str, str]) -> None:
    name, *numbers = value.split(" ")
    live = answer.live.get(name.removeprefix("logs/").removesuffix(".log"))
    if live is None or len(numbers) != 4 or not all(number.isdigit() for number in numbers):
        return
    size, modified, device, inode = map(int, numbers)
    modified_at = datetime.fromtimestamp(modified, UTC)
    live.log = LogStat(_log_path(texts, live.id), LogState.READ, size, modified_at, device, inode)


def _coarse(process: Seen) -> str:
    return {"T": "stopped", "Z": "dead", "X": "dead"}.get(process.state[:1], "there")


# -- records -----------------------------------------------------------------------------------------------------------


def record_of(text: bytes, job_id: str) -> dict[str, Any]:
    """A record with the types that everything below relies on. Raises ValueError, saying what is wrong with it."""
    try:
        record = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(record, dict) or record.get("id") != job_id:
        raise ValueError("not the record of this number")
    for key in ("incarnation", "name", "user", "cwd", "machine", "boot", "pid_namespace"):
        if not isinstance(record.get(key), str):
            raise ValueError(f"{key} is missing")
    for key in ("pid", "waiter", "exit_code", "signal", "approval"):
        if not isinstance(record.get(key), int | None) or isinstance(record.get(key), bool):
            raise ValueError(f"{key} is no whole number")
    for key in ("launched_at", "started_at", "ended_at", "cancelled_at"):
        value = record.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float | None) or not 0 <= (value or 0) < 1e11:
            raise ValueError(f"{key} is no time")
    if not isinstance(record.get("launched_at"), int | float):
        raise ValueError("launched_at is missing")
    command = record.get("command")
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise ValueError("command is missing")
    return record


@dataclass(frozen=True, slots=True)
class Place:
    """Where and when an answer was taken: what turns a record's times and paths into ours."""

    cluster: str
    answer: Answer
    offset: timedelta

    def time(self, epoch: float | None) -> datetime | None:
        return None if epoch is None else datetime.fromtimestamp(epoch, UTC) - self.offset

    def key(self, record: Mapping[str, Any]) -> JobKey:
        return JobKey(self.cluster, record["id"], record["incarnation"])


def live_observation(live: Live, record: Mapping[str, Any], place: Place) -> Observation:
    """What a record without an end and the process table together say. Its state has ``ended`` where nothing lives."""
    state, word, reason = _judged(live, record, place.answer)
    return _observation(record, place, state, word, reason)


def ended_observation(record: Mapping[str, Any], place: Place) -> Observation:
    """A record of an end. Raises ValueError where it doesn't hold one."""
    code, which = record.get("exit_code"), record.get("signal")
    if record.get("ended_at") is None:
        raise ValueError("it has no time of its end")
    if record.get("error"):
        state, word, reason = JobState.FAILED, "not started", f"could not be started: {_text(str(record['error']))}"
    elif record.get("cancelled_at") is not None:
        state, word = JobState.CANCELLED, "cancelled"
        reason = f"cancelled under approval {record.get('approval')}, {_how(code, which)}"
    elif which is not None:
        state, word, reason = JobState.FAILED, "killed", _how(code, which)
    elif code is not None:
        state, word, reason = JobState.COMPLETED if code == 0 else JobState.FAILED, "exited", _how(code, which)
    else:
        raise ValueError("it tells neither exit status nor signal")
    return _observation(record, place, state, word, reason)


def _how(code: int | None, which: int | None) -> str:
    return f"ended by signal {which}" if which is not None else f"exit status {code}"


def _judged(live: Live, record: Mapping[str, Any], answer: Answer) -> tuple[JobState, str, str | None]:
    if record["machine"] != answer.machine:
        return JobState.UNKNOWN, "elsewhere", "it was launched on another machine that shares this records folder"
    if record["boot"] != answer.boot and record.get("host") != answer.node:
        return (
            JobState.UNKNOWN,
            "elsewhere",
            "it was launched on a machine of another name that shares this records folder",
        )
    if record["boot"] != answer.boot:
        return (
            JobState.NODE_FAILED,
            "machine restarted",
            "the machine was restarted while it ran; its exit status is not known",
        )
    if record["pid_namespace"] != answer.space:
        return (
            JobState.UNKNOWN,
            "elsewhere",
            "it was launched in another container, whose processes are not seen from here",
        )
    if record.get("pid") is None:
        if answer.clock - record["launched_at"] < LAUNCH_TAKES.total_seconds():
            return JobState.STARTING, "starting", None
        return JobState.FAILED, "not started", "its launch was cut off before the command began"
    if live.process.there == "hidden":
        return JobState.UNKNOWN, "hidden", "its process cannot be seen by the user that reads the records"
    watched = live.waiter.is_the_one(str(record.get("waiter_start")))
    if live.process.is_the_one(str(record.get("start"))):
        unwatched = None if watched else "its waiter is gone, so its exit status will not be known"
        if _coarse(live.process) == "stopped":
            return JobState.SUSPENDED, "stopped", "stopped by a signal"
        return JobState.RUNNING, "running", unwatched
    if watched:
        return JobState.COMPLETING, "ending", "its process has ended; its exit status is being written down"
    lost = "its process is gone and no exit status was recorded: its waiter was ended too"
    if live.cancel.split(" ")[0] == record["incarnation"]:
        return JobState.CANCELLED, "cancelled", f"a cancel was sent; {lost}"
    return JobState.FAILED, "lost", lost


def _observation(
    record: Mapping[str, Any], place: Place, state: JobState, word: str, reason: str | None
) -> Observation:
    folder, node = place.answer.folder, _text(str(record.get("host") or place.answer.node))
    return Observation(
        key=place.key(record),
        name=_text(record["name"]),
        user=_text(record["user"]),
        state=state,
        scheduler_state=word,
        reason=reason,
        submitted_at=place.time(record["launched_at"]),
        started_at=place.time(record.get("started_at")),
        ended_at=place.time(record.get("ended_at")),
        nodes=(node,),
        node_count=1,
        exit_code=record.get("exit_code"),
        signal=record.get("signal"),
        attempt=1,
        details=Details(
            log_path=f"{folder}/logs/{record['id']}.log",
            workdir=_text(record["cwd"]),
            command=_text(shlex.join(record["command"])),
        ),
    )


def _text(value: str) -> str:
    """Bounded, and always UTF-8: an argument may be any bytes."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")[:_LONGEST_TEXT]
