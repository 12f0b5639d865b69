"""What the scheduler's or controller's own record says of the job's state, and the part of it that says so (POLL-5)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from supervisor.gates.said import cut
from supervisor.model.findings import Quote
from supervisor.model.job import JobKey


class Standing(StrEnum):
    """The record's word in the words that a gate needs."""

    RUNNING = "running"
    WAITING = "waiting"
    SUSPENDED = "suspended"
    ENDED = "ended"
    OTHER = "other"
    """The record is of another attempt or another job of the same id."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    standing: Standing
    word: str
    """The record's own."""
    quote: Quote


SLURM = {
    "RUNNING": Standing.RUNNING,
    "RESIZING": Standing.RUNNING,
    "SIGNALING": Standing.RUNNING,
    "PENDING": Standing.WAITING,
    "CONFIGURING": Standing.WAITING,
    "REQUEUED": Standing.WAITING,
    "REQUEUE_HOLD": Standing.WAITING,
    "SPECIAL_EXIT": Standing.WAITING,
    "SUSPENDED": Standing.SUSPENDED,
    "STOPPED": Standing.SUSPENDED,
} | dict.fromkeys(
    (
        *("COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"),
        *("DEADLINE", "OUT_OF_MEMORY", "REVOKED", "STAGE_OUT", "LAUNCH_FAILED"),
    ),
    Standing.ENDED,
)
IRIS = {
    "RUNNING": Standing.RUNNING,
    "PENDING": Standing.WAITING,
    "BUILDING": Standing.WAITING,
    "ASSIGNED": Standing.WAITING,
} | dict.fromkeys(
    ("SUCCEEDED", "FAILED", "KILLED", "WORKER_FAILED", "UNSCHEDULABLE", "PREEMPTED", "COSCHED_FAILED"), Standing.ENDED
)
KUBERNETES = {
    "Running": Standing.RUNNING,
    "Ready": Standing.RUNNING,
    "Pending": Standing.WAITING,
    "Created": Standing.WAITING,
    "Initializing": Standing.WAITING,
    "Restarting": Standing.WAITING,
    "Waiting": Standing.WAITING,
    "Retrying": Standing.WAITING,
    "Suspended": Standing.SUSPENDED,
    "Suspending": Standing.SUSPENDED,
} | dict.fromkeys(
    ("Succeeded", "Failed", "Complete", "Completed", "Stopped", "SuccessCriteriaMet", "FailureTarget"), Standing.ENDED
)
"""A pod's phase, and the types of conditions of the kinds of objects that stand for jobs."""

_WORST = (Standing.ENDED, Standing.SUSPENDED, Standing.RUNNING, Standing.WAITING, Standing.UNKNOWN)
"""Of conditions that hold at the same time, this one tells: `Created` stays true while a job runs."""


def told(file: str, lines: Sequence[str], key: JobKey) -> Told | None:
    """What one record says; None where it says no state in any form that is known."""
    return _slurm(file, lines, key) or _json(file, lines, key)


# -- Slurm -------------------------------------------------------------------------------------------------------------

_JOB_STATE = re.compile(r"(?<!\S)JobState=([A-Z_]+)")
_SUBMITTED = re.compile(r"(?<!\S)SubmitTime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")
_HEAD = re.compile(
    r"JobId=(?P<number>\d+)(?: ArrayJobId=(?P<array>\d+) ArrayTaskId=(?P<task>\S+)|"
    r" HetJobId=(?P<het>\d+) HetJobOffset=(?P<offset>\d+))?(?!\S)"
)


def _slurm(file: str, lines: Sequence[str], key: JobKey) -> Told | None:
    mine = _mine(lines, key.id)
    found = [(number, match) for number, line in mine for match in _JOB_STATE.finditer(line)]
    if not found:
        return None
    number, match = found[0]
    quote = Quote(file, number, cut(lines[number - 1], match.group()))
    words = {match.group(1) for _, match in found}
    if len(words) > 1:  # a job's name or comment that says so too: then nobody knows which one is the scheduler's
        return Told(standing=Standing.UNKNOWN, word=" and ".join(sorted(words)), quote=quote)
    word = words.pop()
    submitted = {at for _, line in mine for at in _SUBMITTED.findall(line)}
    if submitted and key.incarnation not in submitted | {_epoch(at) for at in submitted} and _is_time(key.incarnation):
        return Told(standing=Standing.OTHER, word=word, quote=quote)
    return Told(standing=SLURM.get(word, Standing.UNKNOWN), word=word, quote=quote)


def _is_time(incarnation: str) -> bool:
    """A submit time as Slurm gives it: the record is asked for in UTC, so that the two can be compared."""
    return bool(re.fullmatch(r"\d{9,11}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", incarnation))


def _epoch(text: str) -> str:
    try:
        return str(int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()))
    except ValueError:
        return ""


def _mine(lines: Sequence[str], job_id: str) -> list[tuple[int, str]]:
    """Lines of this job's own record: of a heterogeneous job or an array the answer may hold its siblings' too."""
    blocks: list[tuple[re.Match[str], list[tuple[int, str]]]] = []
    for number, line in enumerate(lines, 1):
        head = _HEAD.match(line)
        if head is not None:
            blocks.append((head, []))
        if blocks:
            blocks[-1][1].append((number, line))
    return next((block for head, block in blocks if _is_of(head, job_id)), [])


def _is_of(head: re.Match[str], job_id: str) -> bool:
    """``42``; ``42_3``, a task of an array; ``42+1``, a component."""
    array, is_task, task = job_id.partition("_")
    het, is_component, offset = job_id.partition("+")
    if is_task:
        return (head["array"], head["task"]) == (array, task)
    if is_component:
        return (head["het"], head["offset"]) == (het, offset)
    if head["array"] is not None:  # the waiting rest of an array bears the array's own number, and so may its last task
        return head["array"] == job_id and not head["task"].isdecimal()
    return bool(head["number"] == job_id)


# -- JSON: iris, Kubernetes, a host's own record -----------------------------------------------------------------------


def _json(file: str, lines: Sequence[str], key: JobKey) -> Told | None:
    remarks = next((number for number, line in enumerate(lines) if line.startswith("# ")), len(lines))
    try:
        body = json.loads("\n".join(lines[:remarks]))
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    page = _Page(file, lines)
    return _iris(page, body, key) or _host(page, body, key) or _kubernetes(page, body, key)


@dataclass(frozen=True, slots=True)
class _Page:
    """Where a member of a JSON text stands, whether it is printed on one line or on many."""

    file: str
    lines: Sequence[str]

    def find(self, name: str, value: object) -> Quote | None:
        wanted = re.compile(rf'"{re.escape(name)}"\s*:\s*{re.escape(json.dumps(value))}(?![\w.])')
        for number, line in enumerate(self.lines, 1):
            if (found := wanted.search(line)) is not None:
                return Quote(self.file, number, cut(line, found.group()))
        return None


def _iris(page: _Page, body: Mapping[str, Any], key: JobKey) -> Told | None:
    job = body.get("job")
    job = job if isinstance(job, dict) else body
    state = job.get("state")
    if not isinstance(state, str) or not state.startswith("JOB_STATE_"):
        return None
    quote = page.find("state", state)
    if quote is None:
        return None
    word = state.removeprefix("JOB_STATE_")
    standing = IRIS.get(word, Standing.UNKNOWN)
    submitted = job.get("submittedAt")
    at = submitted.get("epochMs") if isinstance(submitted, dict) else None
    if isinstance(at, str) and key.incarnation.isdigit() and len(at) == len(key.incarnation) and at != key.incarnation:
        standing = Standing.OTHER
    counts = job.get("taskStateCounts")
    if standing is Standing.RUNNING and isinstance(counts, dict) and counts and not counts.get("running"):
        standing = Standing.WAITING  # a gang that was taken apart waits, whatever its record says (POLL-5)
    return Told(standing=standing, word=word, quote=quote)


def _host(page: _Page, body: Mapping[str, Any], key: JobKey) -> Told | None:
    if not isinstance(body.get("incarnation"), str) or "pid" not in body:
        return None
    ended = body.get("ended_at")
    member = ("ended_at", ended) if "ended_at" in body else ("pid", body["pid"])
    if isinstance(member[1], dict | list):
        return None
    quote = page.find(*member)
    if quote is None:
        return None
    if body["incarnation"] != key.incarnation:
        return Told(standing=Standing.OTHER, word="another launch", quote=quote)
    if body["pid"] is None:
        return Told(standing=Standing.WAITING, word="not started", quote=quote)
    if ended is not None:
        return Told(standing=Standing.ENDED, word="ended", quote=quote)
    return _process(page) or Told(standing=Standing.RUNNING, word="running (no end is recorded)", quote=quote)


_LEADER = re.compile(r"# process: leader (?P<pid>\S*) (?P<word>\S+), (?P<left>\d{1,9}) of ")


def _process(page: _Page) -> Told | None:
    """What the process table said beside the record: a waiter that was killed leaves a record without an end."""
    for number, line in enumerate(page.lines, 1):
        found = _LEADER.match(line)
        if found is not None:
            quote = Quote(page.file, number, cut(line))
            if int(found["left"]):
                return Told(standing=Standing.RUNNING, word=f"running ({found['left']} live)", quote=quote)
            if found["word"] == "hidden":
                return Told(standing=Standing.UNKNOWN, word="its process may not be looked at", quote=quote)
            return Told(standing=Standing.ENDED, word="no process of it is left", quote=quote)
    return None


def _kubernetes(page: _Page, body: Mapping[str, Any], key: JobKey) -> Told | None:
    items = body.get("items")
    objects = [each for each in items if isinstance(each, dict)] if isinstance(items, list) else [body]
    claims: list[tuple[Standing, str, Quote]] = []
    for each in objects:
        claims += [
            (standing, word, quote)
            for standing, word, member in _claims(each)
            if (quote := page.find(*member)) is not None
        ]
    if not claims:
        return None
    standing, word, quote = min(claims, key=lambda claim: _WORST.index(claim[0]))
    if len(objects) > 1:  # pods of one job: while one runs, the job does
        standing, word, quote = next((claim for claim in claims if claim[0] is Standing.RUNNING), claims[0])
    uid = objects[0].get("metadata", {}).get("uid") if isinstance(objects[0].get("metadata"), dict) else None
    if len(objects) == 1 and isinstance(uid, str) and len(uid) == len(key.incarnation) and uid != key.incarnation:
        standing = Standing.OTHER
    return Told(standing=standing, word=word, quote=quote)


def _claims(thing: Mapping[str, Any]) -> Iterator[tuple[Standing, str, tuple[str, object]]]:
    status = thing.get("status")
    if not isinstance(status, dict):
        return
    is_pod = thing.get("kind", "Pod") == "Pod" and "phase" in status
    for name in ("phase", "jobDeploymentStatus", "jobStatus", "state"):
        word = status.get(name)
        if isinstance(word, str) and word:
            yield KUBERNETES.get(word.capitalize() if word.isupper() else word, Standing.UNKNOWN), word, (name, word)
    conditions = status.get("conditions")
    for each in conditions if isinstance(conditions, list) and not is_pod else ():
        if not isinstance(each, dict) or each.get("status") != "True":
            continue
        word = each.get("type")
        if isinstance(word, str) and word in KUBERNETES:
            yield KUBERNETES[word], word, ("type", word)
    active = status.get("active")
    if isinstance(active, int) and not isinstance(active, bool) and active > 0:
        yield Standing.RUNNING, f"{active} active", ("active", active)
