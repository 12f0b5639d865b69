"""A judge of the user's own: a program that is shown an evidence folder and answers with a verdict, held to the same contract.

It is trusted with nothing. It sees a copy; its environment holds no credentials; its time, output and files are bounded; it has no
network where the system can keep it off; what it says is data: its shape is checked, its quotes are looked up, and none of it is
ever run. Whatever goes wrong with it is a reason for ERROR, never for trust (PROBE-3, PROBE-4).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from supervisor.app.evidence import MANIFEST, Folder, open_folder
from supervisor.app.sections import ExternalSection
from supervisor.gates import proof
from supervisor.model.errors import Unproven
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, GateScore, Missing, Ruling, Score, Verdict
from supervisor.model.secrets import scrubbed
from supervisor.reports.verdict import document
from supervisor.rules.verdict import Opinion

log = structlog.get_logger("supervisor.judge")

MOST_OUTPUT = 1 << 20
"""Bytes of its answer; more is no verdict."""
MOST_COMPLAINT = 16 << 10
"""Bytes of its standard error that are looked at."""
END_S = 5.0
"""How long a judge that was ended is waited for."""
_LIMITS = (
    'ulimit -c 0; ulimit -n 1024; ulimit -f 131072; ulimit -v 67108864 2>/dev/null; ulimit -t "$1" 2>/dev/null; '
    'shift; exec "$@"'
)
"""No core, files of 64 MiB at most, 64 GiB of addresses, seconds of processor time: set by a shell that then becomes the judge."""
_NAMES = {"A": "liveness", "B": "resources", "C": "rollouts", "D": "dynamics"}
_QUOTED = 400


# -- the shape of an answer --------------------------------------------------------------------------------------------


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class _QuoteSaid(_Part):
    file: Annotated[str, Field(min_length=1, max_length=300)]
    line: Annotated[int, Field(ge=1, le=10**9)]
    text: Annotated[str, Field(min_length=1, max_length=8000)]


class _MissingSaid(_Part):
    command: Annotated[str, Field(max_length=4000)]
    output: Annotated[str, Field(max_length=8000)]


class _GateSaid(_Part):
    gate: Literal["A", "B", "C", "D"]
    result: Literal["pass", "fail", "error", "not_applicable"]
    reason: Annotated[str, Field(max_length=4000)]
    quotes: Annotated[list[_QuoteSaid], Field(max_length=64)] = []
    missing: _MissingSaid | None = None
    cause: Annotated[str, Field(max_length=200)] | None = None
    fix: Annotated[str, Field(max_length=2000)] | None = None
    confidence: Literal["high", "medium", "low"] = "medium"


class _Answer(_Part):
    schema_version: Literal[1] = 1
    ruling: Literal["KILL", "NO-KILL", "ERROR"]
    confidence: Literal["high", "medium", "low"]
    gates: Annotated[list[_GateSaid], Field(max_length=4)]
    reasoning: Annotated[str, Field(max_length=8000)]
    next_steps: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=20)] = []
    flip_signal: Annotated[str, Field(max_length=1000)] = ""

    @model_validator(mode="after")
    def _each_gate_once(self) -> _Answer:
        letters = [each.gate for each in self.gates]
        if len(set(letters)) != len(letters):
            raise ValueError("a gate is scored twice")
        return self


# -- asking ------------------------------------------------------------------------------------------------------------


async def opinion_of(section: ExternalSection, folder: Folder, case: Case, verdict: Verdict) -> Opinion:
    """What the judge says; where it says nothing that counts, an ERROR that says why. Never raises for a fault of the judge's."""
    name = Path(section.command[0]).name
    said = await _asked(section, folder, case, verdict)
    if isinstance(said, Opinion):
        try:
            await asyncio.to_thread(open_folder, folder.path)
        except Unproven as error:
            said = f"the evidence was changed while it judged: {error}"
    if isinstance(said, str):
        log.warning("judge.failed", job=str(verdict.job.ref), judge=name, reason=said)
        return Opinion(judge=name, ruling=Ruling.ERROR, confidence="low", reasoning=f"It gave no usable answer: {said}")
    log.info("judge.answered", job=str(verdict.job.ref), judge=name, ruling=said.ruling.value)
    return said


async def _asked(section: ExternalSection, folder: Folder, case: Case, verdict: Verdict) -> Opinion | str:
    scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="fleet-judge-"))
    try:
        shown = scratch / "evidence"
        await asyncio.to_thread(_copy, folder, shown)
        request = _request(folder, case, verdict, shown)
        ran = await _run(section, request, scratch)
        return ran if isinstance(ran, str) else _read(Path(section.command[0]).name, ran, case)
    except (OSError, Unproven) as error:
        return f"it could not be asked: {error}"
    finally:
        await asyncio.to_thread(_remove, scratch)


def _copy(folder: Folder, to: Path) -> None:
    """What was captured, byte for byte, in files that cannot be written by accident."""
    to.mkdir(mode=0o700)
    for name in folder.names:
        (to / name).write_bytes(folder.data(name))
        (to / name).chmod(0o400)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(folder.path / MANIFEST, to / MANIFEST)
        (to / MANIFEST).chmod(0o400)
    to.chmod(0o500)


def _remove(scratch: Path) -> None:
    for each in (scratch, *(path for path in scratch.rglob("*") if path.is_dir() and not path.is_symlink())):
        with contextlib.suppress(OSError):
            each.chmod(0o700)
    shutil.rmtree(scratch, ignore_errors=True)


def _request(folder: Folder, case: Case, verdict: Verdict, shown: Path) -> bytes:
    subject, seen = case.subject, case.subject.seen
    body: dict[str, Any] = {
        "schema_version": 1,
        "evidence": str(shown),
        "job": {
            "cluster": subject.key.cluster,
            "id": subject.key.id,
            "name": subject.name,
            "bucket": subject.bucket,
            "flavor": subject.flavor,
            "attempt": subject.attempt,
            "scheduler_state": seen.scheduler_state,
            "nodes": list(seen.nodes),
            "node_count": seen.node_count,
            "submitted_at": seen.submitted_at.isoformat() if seen.submitted_at else None,
            "started_at": seen.started_at.isoformat() if seen.started_at else None,
            "step": verdict.mark.step,
            "total": verdict.mark.total,
            "progress_at": verdict.mark.progress_at.isoformat() if verdict.mark.progress_at else None,
            "silence_allowed_s": subject.silence_allowed.total_seconds(),
            "untested": subject.fresh_setting,
        },
        "taken_at": folder.taken_at.isoformat(),
        "verdict": document(verdict) | {"evidence": str(shown)},
        "files": [
            {
                "file": each.file,
                "role": each.role.value,
                "node": each.node,
                "command": each.command,
                "source": each.source,
                "bytes": each.bytes,
                "lines": each.lines,
                "first_line": each.first_line,
                "failure": each.failure,
            }
            for each in folder.exhibits
        ],
    }
    return json.dumps(body, ensure_ascii=True).encode() + b"\n"


def _read(name: str, raw: bytes, case: Case) -> Opinion | str:
    """Its answer as nouns, its quotes held against the folder; or what is wrong with its shape."""
    try:
        # What it read beside the folder is not ours to repeat. A quote that held a secret no longer stands, and is an ERROR.
        said = _Answer.model_validate_json(scrubbed(raw.decode("utf-8", "replace")))
        scores = [_score(each) for each in said.gates]
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"its answer has not the verdict's shape: {where or 'the whole'}: {first['msg']}"
    except (Unproven, ValueError) as error:
        return f"its answer has not the verdict's shape: {error}"
    return Opinion(
        judge=name,
        ruling=Ruling(said.ruling),
        confidence=said.confidence,
        reasoning=said.reasoning,
        gates=proof.check(case.lines, scores),
        next_steps=tuple(said.next_steps),
        flip_signal=said.flip_signal,
    )


def _score(said: _GateSaid) -> GateScore:
    return GateScore(
        gate=said.gate,
        name=_NAMES[said.gate],
        result=Score(said.result),
        reason=said.reason,
        quotes=tuple(Quote(each.file, each.line, each.text[:_QUOTED]) for each in said.quotes),
        missing=None if said.missing is None else Missing(command=said.missing.command, output=said.missing.output),
        cause=said.cause or "",
        fix=said.fix or "",
        confidence=said.confidence,
    )


# -- running it --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Heard:
    """Output as far as it is let in."""

    data: bytearray
    over: bool = False


async def _run(section: ExternalSection, request: bytes, scratch: Path) -> bytes | str:
    """Its standard output; or why there is none that counts. All that it started is ended with it."""
    around = await asyncio.to_thread(_confined, section.network)
    seconds = str(max(1, int(section.timeout_s) * 4))
    argv = [*around, "/bin/sh", "-c", _LIMITS, "judge", seconds, *section.command]
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
    }
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        cwd=scratch,
        start_new_session=True,
    )
    out, complaint = _Heard(bytearray()), _Heard(bytearray())
    assert process.stdin and process.stdout and process.stderr
    talk = [
        asyncio.ensure_future(_tell(process.stdin, request)),
        asyncio.ensure_future(_hear(process.stdout, out, MOST_OUTPUT, ends=True)),
        asyncio.ensure_future(_hear(process.stderr, complaint, MOST_COMPLAINT, ends=False)),
    ]
    try:
        async with asyncio.timeout(section.timeout_s):
            await asyncio.gather(*talk)
            status = await process.wait()
    except TimeoutError:
        return f"it took longer than {section.timeout_s:g} s and was ended"
    except _TooMuch:
        return f"it put out more than {MOST_OUTPUT} bytes and was ended"
    finally:
        for each in talk:
            each.cancel()
        await asyncio.gather(*talk, return_exceptions=True)
        await _ended(process)
    words = bytes(complaint.data).decode("utf-8", "replace").strip()
    said = f": {words[-400:]}" if words else ""
    if status != 0:
        return f"it ended with status {status}{said}" if status > 0 else f"it was ended by signal {-status}{said}"
    return bytes(out.data) if out.data.strip() else f"it put out nothing{said}"


class _TooMuch(Exception):
    """More output than is let in."""


async def _tell(stream: asyncio.StreamWriter, request: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # a judge need not read its request
        stream.write(request)
        await stream.drain()
        stream.close()
        await stream.wait_closed()


async def _hear(stream: asyncio.StreamReader, heard: _Heard, most: int, *, ends: bool) -> None:
    while piece := await stream.read(1 << 16):
        room = most - len(heard.data)
        heard.data += piece[: max(0, room)]
        if len(piece) > room:
            if ends:
                raise _TooMuch
            heard.over = True


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Its whole process group, and what left that group as far as it can still be told from others."""
    import psutil

    strays: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        strays = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stray in strays:
        with contextlib.suppress(psutil.Error):
            stray.kill()
    # Its end is seen only once its pipes are read to theirs; one that escaped may hold them open, and is not waited for.
    rest = [asyncio.ensure_future(_drop(stream)) for stream in (process.stdout, process.stderr) if stream is not None]
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        log.warning("judge.lingers", pid=process.pid)
    finally:
        for each in rest:
            each.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


async def _drop(stream: asyncio.StreamReader) -> None:
    while await stream.read(1 << 16):
        pass


@lru_cache(maxsize=2)
def _confined(network: bool) -> tuple[str, ...]:
    """The words in front of the command that keep it off the network and end all of it together, as far as this system allows."""
    for words in _ways(network):
        if shutil.which(words[0]) is not None and _works(words):
            return words
    if not network:
        log.warning("judge.network_open", hint="neither bwrap nor unshare keeps a judge off the network on this system")
    return ()


_MOUNTS = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")


def _ways(network: bool) -> Sequence[tuple[str, ...]]:
    nets = () if network else ("--net",)
    off = () if network else ("--unshare-net",)
    tmp = tempfile.gettempdir()
    ways = [
        ("bwrap", *_MOUNTS, "--bind", tmp, tmp, *off, "--unshare-pid", "--die-with-parent"),
        ("unshare", "--user", "--map-root-user", *nets, "--pid", "--fork", "--kill-child"),
        ("unshare", *nets, "--pid", "--fork", "--kill-child"),
    ]
    return ways if network else [*ways, ("unshare", "--user", "--map-root-user", "--net")]


def _works(words: Sequence[str]) -> bool:
    import subprocess

    try:
        done = subprocess.run([*words, "true"], capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
