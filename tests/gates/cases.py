"""Cases for gates from plain text: a folder of named texts, read as a probe's folder is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from supervisor.app.settings import Settings, rulebook
from supervisor.dialects import follow, summarise
from supervisor.dialects.trials import read_trial
from supervisor.model.facts import LogFacts
from supervisor.model.job import Burn, JobKey, JobState, Observation
from supervisor.model.logs import LogStat, LogState
from supervisor.model.probe import Case, Cause, EarlierProbe, Exhibit, PastAttempt, Role, Subject
from supervisor.model.readings import RunSummary
from supervisor.model.rulebook import Rulebook
from tests.some import NOON

LOG_PATH = "/home/alice/out.log"

NAMES = {
    "record": Role.RECORD,
    "accounting": Role.ACCOUNTING,
    "events": Role.EVENTS,
    "log": Role.LOG,
    "session": Role.SESSION_LOG,
    "processes": Role.PROCESSES,
    "stack": Role.STACK,
    "gpu-processes": Role.GPU_PROCESSES,
    "gpu": Role.GPU,
    "devices": Role.DEVICES,
    "memory": Role.MEMORY,
    "checkpoints": Role.CHECKPOINTS,
    "trial": Role.TRIALS,
    "script": Role.SCRIPT,
}
"""What a file's name begins with, and the role it has: ``processes-n1.txt``. The longest beginning wins."""

RUNNING = "JobId=42 JobName=rl__gsm8k_a UserId=alice(1000) QOS=normal JobState=RUNNING Reason=None Restarts=0"


class Failed(str):
    """A capture that failed: its output. ``some_case(texts={"stack-n1.txt": Failed("py-spy: not found")})``."""


@cache
def book() -> Rulebook:
    return rulebook(Settings())


def lines_of(text: str) -> list[str]:
    """Lines by newlines alone: a carriage return or a form feed ends none."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def role_of(file: str) -> Role:
    return next(NAMES[name] for name in sorted(NAMES, key=len, reverse=True) if file.startswith(name))


def node_of(file: str) -> str | None:
    """``processes-n1.txt`` is of node n1; a log and a record are of none."""
    role = role_of(file)
    stem = file.rsplit(".", 1)[0]
    name = next(name for name in sorted(NAMES, key=len, reverse=True) if stem.startswith(name))
    rest = stem[len(name) :].lstrip("-")
    return rest or None if role not in (Role.LOG, Role.RECORD, Role.TRIALS, Role.ACCOUNTING) else None


def some_exhibit(file: str, text: str, **changes: Any) -> Exhibit:
    role, failed = role_of(file), isinstance(text, Failed)
    data = text.encode("utf-8", "surrogateescape")
    values: dict[str, Any] = {
        "role": role,
        "command": f"capture {file}",
        "taken_at": NOON,
        "took_s": 0.1,
        "node": node_of(file),
    }
    if failed:
        values |= {"failure": str(text), "exit_status": 1, "first_line": None}
    else:
        values |= {
            "file": file,
            "sha256": hashlib.sha256(data).hexdigest(),
            "bytes": len(data),
            "lines": len(lines_of(text)),
            "source": LOG_PATH if role is Role.LOG else None,
        }
    return Exhibit(**(values | changes))


def some_subject(
    bucket: str = "rl",
    *,
    silent_for: timedelta | None = timedelta(minutes=1),
    output_ago: timedelta | None = None,
    step: int | None = None,
    started: timedelta = timedelta(hours=6),
    looked_size: int = 10**9,
    allowed: timedelta | None = None,
    speaks: bool = True,
    log: LogFacts | None = None,
    seen: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Subject:
    """``silent_for``: since its newest progress, None where it has made none. ``output_ago``: since its newest output, where that is
    newer than its progress. ``looked_size``: the log's size at the last look;
    the default is beyond any text of a test, so that nothing counts as new since then."""
    at = None if silent_for is None else NOON - silent_for
    output = NOON - output_ago if output_ago is not None else at or NOON
    stat = LogStat(LOG_PATH, LogState.READ, size=looked_size, modified_at=output, inode=7)
    facts = log or LogFacts(stat=stat, last_output_at=output, progress_at=at, step=step, speaks_steps=speaks)
    key = changes.get("key", JobKey("cluster-a", "42", "1000"))
    observed: dict[str, Any] = {
        "key": key,
        "name": changes.get("name", "rl__gsm8k_a"),
        "user": "alice",
        "state": JobState.RUNNING,
        "scheduler_state": "RUNNING",
        "submitted_at": NOON - started - timedelta(hours=1),
        "started_at": NOON - started,
        "nodes": ("n1",),
        "node_count": 1,
    }
    values: dict[str, Any] = {
        "key": key,
        "name": "rl__gsm8k_a",
        "user": "alice",
        "bucket": bucket,
        "flavor": None,
        "attempt": 1,
        "seen": Observation(**(observed | dict(seen or {}))),
        "log": facts,
        "silence_allowed": allowed or book().limits_of(bucket).silence_floor,
    }
    return Subject(**(values | changes))


def some_case(
    texts: Mapping[str, str] | None = None,
    *,
    subject: Subject | None = None,
    at: datetime = NOON,
    exhibits: Sequence[Exhibit] = (),
    runs: Mapping[str, RunSummary] | None = None,
    causes: Mapping[str, Cause] | None = None,
    past: Sequence[PastAttempt] = (),
    before: EarlierProbe | None = None,
    burn: Burn | None = None,
    **about: Any,
) -> Case:
    """``texts``: file name to text, or to :class:`Failed`. Names tell roles (``NAMES``) and nodes (``gpu-n1.csv``). A record that
    says RUNNING is there unless the texts have their own. Logs are read by the real dialects, trials by the real parser.
    ``about``: what :func:`some_subject` takes."""
    told: dict[str, str] = dict(texts or {})
    if not any(role_of(file) is Role.RECORD for file in told):
        told = {"record.txt": RUNNING + "\n", **told}
    subject = subject or some_subject(**about)
    subject = subject if burn is None else replace(subject, burn=burn)
    lines = {file: lines_of(text) for file, text in told.items() if not isinstance(text, Failed)}
    read = runs
    if read is None:
        read = {file: run_of(told[file], subject.bucket) for file in lines if role_of(file) is Role.LOG}
    trials = tuple((file, read_trial(told[file].encode())) for file in lines if role_of(file) is Role.TRIALS)
    given = {each.file for each in exhibits}
    made = [some_exhibit(file, text) for file, text in told.items() if file not in given]
    return Case(
        subject=subject,
        limits=book().limits_of(subject.bucket),
        at=at,
        exhibits=(*made, *exhibits),
        lines=lambda file: lines[file],
        runs=read,
        causes=causes or {},
        trials=trials,
        past=tuple(past),
        before=before,
    )


def run_of(text: str, bucket: str | None = None) -> RunSummary:
    """What the dialects read in one log of the folder."""
    state, _ = follow(None, text.encode("utf-8", "surrogateescape"), 0)
    return summarise(state, bucket)


def assert_quotes_stand(case: Case, quotes: Sequence[Any]) -> None:
    """PROBE-4, as a test's own check: each quote stands in its file at its line."""
    for quote in quotes:
        assert quote.text.strip(), quote
        assert quote.line is not None, quote
        assert quote.text in case.lines(quote.file)[quote.line - 1], quote
        assert len(quote.text) <= 400, quote
