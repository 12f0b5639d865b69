"""What a diagnosis says to people: summary, reasons, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from supervisor.diagnosis.evidence import BARE, LAST_RESORT, ROOT, SYMPTOM, Candidate, Evidence
from supervisor.model.diagnosis import FileReading, Mark

if TYPE_CHECKING:
    from supervisor.diagnosis.scheduler import Ending


def duration(seconds: float | None) -> str:
    """`95 s`, `12 min`, `5 h 12 min`."""
    if seconds is None:
        return "an unknown time"
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _where(candidate: Candidate, evidence: Evidence) -> str:
    hit = candidate.hit
    who = hit.stream.name
    reading = evidence.readings[candidate.file]
    return f"{f'{who}, ' if who else ''}{reading.path} line {hit.line}"


def _how_far(progress: Mark | None) -> str:
    if progress is None:
        return ""
    if progress.step is None:
        return f"; the last progress before it stands in line {progress.line}"
    total = f" of {progress.total}" if progress.total else ""
    return f"; the run had come to step {progress.step}{total}"


def summary(candidate: Candidate, evidence: Evidence, progress: Mark | None, absent: Sequence[int]) -> str:
    """One or two sentences: what happened, where, and how far the run had come."""
    hit, signature = candidate.hit, candidate.signature
    if signature is not None:
        what = signature.why.rstrip(".")
    elif hit.traceback is not None:
        frame = hit.traceback.own_frame
        place = f" in {frame.function or 'the module'} ({frame.path}:{frame.line})" if frame else ""
        what = f"{hit.traceback.type}{place}: {hit.traceback.message[:200]}".rstrip(": ")
    else:
        what = hit.message[:200]
    late = f" Ranks {', '.join(map(str, absent))} print elsewhere but do not report it: look at them." if absent else ""
    return f"{what} ({_where(candidate, evidence)}){_how_far(progress)}.{late}"


def reasons(
    candidate: Candidate, evidence: Evidence, standing: Sequence[Candidate], ending: Ending | None
) -> tuple[str, ...]:
    """Why this line and not another."""
    said = []
    signature = candidate.signature
    if signature is not None:
        said.append(f"the line matches {signature.code} ({signature.pack})")
    else:
        said.append("no signature names this exception, so it is reported by its own name")
    if candidate.level == ROOT:
        said.append("such a cause explains the other errors around it")
    elif candidate.level == SYMPTOM:
        said.append("it is how others see a death; no deeper cause stands in the logs that were read")
    elif candidate.level == BARE:
        said.append("it is printed without a traceback")
    elif candidate.level == LAST_RESORT:
        said.append("it only reports a death; the cause itself is not in the logs that were read")
    else:
        said.append("it is the earliest cause after the last good progress")
    others = len(standing) - 1
    if others:
        said.append(f"{others} other error line{'s' if others > 1 else ''} follow from it or tell the same")
    if evidence.cleared:
        said.append(f"{len(evidence.cleared)} error line{'s were' if len(evidence.cleared) > 1 else ' was'} ruled out")
    if ending is not None:
        said.append(ending.text)
    return tuple(said)


def overruled(chosen: Candidate | None) -> tuple[str, ...]:
    """Why the logs' own candidate steps back behind the scheduler's record."""
    if chosen is None:
        return ("the logs that were read name no cause",)
    return (f"it explains the {chosen.category} in line {chosen.hit.line}",)


def missing_for(candidate: Candidate) -> tuple[str, ...]:
    """What would make the answer surer."""
    if candidate.level == LAST_RESORT:
        rank = candidate.hit.captured("rank") or candidate.hit.captured("local_rank")
        whose = f"of rank {rank}" if rank else "of the process that died"
        return (f"the output {whose}: its own error is not in these logs",)
    if candidate.category == "host-oom" and candidate.confidence == "low":
        return (
            "a record of the kernel or cgroup (dmesg, oom_kill): a bare SIGKILL does not prove a shortage of memory",
        )
    return ()


def unreadable(readings: Sequence[FileReading]) -> tuple[str, ...]:
    """One sentence for each file that could not be read whole."""
    return tuple(
        f"{reading.path}: {reading.reason}"
        for reading in readings
        if reading.state in ("unread", "partly") and reading.reason
    )


def nothing(
    evidence: Evidence, ending: Ending | None, usable: Sequence[FileReading], progress: Mark | None, *, finished: bool
) -> tuple[tuple[str, ...], str]:
    """(what is missing, summary) where no fault was found (FAIL-2, FAIL-3)."""
    if not usable:
        return ("the files are empty: the program wrote nothing, or its output went elsewhere",), "The logs are empty."
    far = _how_far(progress).lstrip("; ")
    if ending is not None and not ending.is_clean:
        sentence = f"{ending.text[0].upper()}{ending.text[1:]}, but nothing in these logs says why."
        elsewhere = "the line that tells why: look at the other sources (kernel log, node, worker logs)"
        return (elsewhere,), sentence
    if finished:
        return (), f"No fault: the work came to its proper end{f' ({far})' if far else ''}."
    ruled = len(evidence.cleared)
    aside = f"; {ruled} error lines were looked at and ruled out" if ruled else ""
    return (), f"No fault was found in these logs{aside}{f' ({far})' if far else ''}."
