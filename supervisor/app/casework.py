"""From an evidence folder to the case that gates judge: what the ears, the diagnosis and the trials' reader make of its files.

Nothing outside the folder is read here, but for what the store knows of the job. What the store knows of its earlier attempts is
written into the folder too, so that whatever is quoted stands in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supervisor.app.evidence import Folder, open_folder
from supervisor.dialects import follow, summarise
from supervisor.dialects.malformed import Malformed
from supervisor.dialects.trials import read_job, read_trial
from supervisor.gates import stacks
from supervisor.model.diagnosis import SchedulerRecord
from supervisor.model.errors import Unproven
from supervisor.model.facts import Facts, Held, Seen
from supervisor.model.findings import Quote
from supervisor.model.job import JobState, Observation
from supervisor.model.probe import Case, Cause, EarlierProbe, Exhibit, Mark, PastAttempt, Role, Subject
from supervisor.model.readings import RunSummary, Trial, TrialJob
from supervisor.model.rulebook import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from supervisor.app.packs import Prepared
    from supervisor.model.probe import Verdict

PAST = 8
"""Earlier attempts, or links of the chain, that a case is shown: the newest."""
ECHOES = 6
QUOTED = 400
"""Characters of a line that a quote keeps."""
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An earlier attempt as the store tells it; ``document``: its diagnosis in the contract's form, where there is one."""

    name: str
    seen: Observation | None
    document: Mapping[str, Any] | None


def subject_of(held: Held, limits: Limits, fresh: str | None) -> Subject:
    """The job as it is held. ``fresh``: what is new about its setting, in words."""
    seen = held.observation
    facts = Facts(held=held, seen=Seen.LISTED, limits=limits, observation=seen, log=held.log)
    return Subject(
        key=held.key,
        name=seen.name,
        user=seen.user,
        bucket=held.bucket,
        flavor=held.run.flavor,
        attempt=held.life.attempt,
        seen=seen,
        log=held.log,
        silence_allowed=facts.silence_allowed,
        fresh_setting=fresh,
        burn=seen.burn,
        exempt=any(part in seen.name for part in limits.exempt),
    )


# -- earlier attempts --------------------------------------------------------------------------------------------------


def papers_of(past: Sequence[Ended]) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """Files that tell of earlier attempts, the line of the cause by itself, and what the manifest says of them; oldest first."""
    papers: dict[str, bytes] = {}
    told: list[dict[str, Any]] = []
    for number, each in enumerate(past[-PAST:], 1):
        document = each.document or {}
        cause = document.get("cause")
        cause = cause if isinstance(cause, Mapping) and str(cause.get("text") or "").strip() else None
        progress = document.get("progress")
        step = progress.get("step") if isinstance(progress, Mapping) else None
        fact: dict[str, Any] = {
            "name": each.name,
            "state": each.seen.state.value if each.seen else None,
            "category": document.get("category"),
            "fingerprint": document.get("fingerprint"),
            "step": step if isinstance(step, int) else None,
            "file": None,
            "line": None,
        }
        if document:
            lines = [f"{each.name} ended {each.seen.scheduler_state if each.seen else 'in a way that is not known'}"]
            lines.append(f"diagnosis: {document.get('category')}, {document.get('confidence')} confidence")
            lines.append(f"fingerprint: {document.get('fingerprint')}")
            if cause is not None:
                lines.append(f"its cause stood in {cause.get('file')}, line {cause.get('line')}:")
                lines.append(str(cause["text"]))
                fact |= {"file": f"earlier-{number}.txt", "line": len(lines)}
            papers[f"earlier-{number}.txt"] = _bytes(lines)
        told.append(fact)
    return papers, told


def _bytes(lines: Sequence[str]) -> bytes:
    flat = [re.sub(r"[\r\n]+", " ", line) for line in lines]
    text = "".join(f"{line}\n" for line in flat)
    return re.sub("[\ud800-\udc7f\udd00-\udfff]", "\ufffd", text).encode("utf-8", "surrogateescape")


def _past(folder: Folder) -> tuple[PastAttempt, ...]:
    found = []
    for each in folder.facts.get("past", ()):
        quote = None
        if each["file"] is not None:
            quote = Quote(each["file"], each["line"], folder.lines(each["file"])[each["line"] - 1][:QUOTED])
        found.append(
            PastAttempt(
                name=each["name"],
                state=JobState(each["state"]) if each["state"] else None,
                category=each["category"],
                fingerprint=each["fingerprint"],
                quote=quote,
                step=each["step"],
            )
        )
    return tuple(found)


# -- the case ----------------------------------------------------------------------------------------------------------


def case_of(
    folder: Folder,
    subject: Subject,
    limits: Limits,
    prepared: Prepared,
    scheduler: SchedulerRecord | None = None,
    before: EarlierProbe | None = None,
) -> Case:
    """All that gates may see. Blocking: it reads and scans every log of the folder. Raises Unproven on a folder tampered with."""
    return Case(
        subject=subject,
        limits=limits,
        at=folder.taken_at,
        exhibits=folder.exhibits,
        lines=folder.lines,
        runs=dict(_runs(folder, subject.bucket)),
        causes=dict(_causes(folder, prepared, scheduler)),
        trials=tuple(_trials(folder)),
        trial_jobs=tuple(_trial_jobs(folder)),
        past=_past(folder),
        before=before,
    )


def _files(folder: Folder, *roles: Role) -> list[tuple[str, Exhibit]]:
    return [(each.file, each) for each in folder.exhibits if each.file is not None and each.role in roles]


def _runs(folder: Folder, bucket: str) -> list[tuple[str, RunSummary]]:
    return [(name, _heard(folder.data(name), bucket)) for name, _ in _files(folder, Role.LOG)]


def _heard(data: bytes, bucket: str) -> RunSummary:
    """No time is handed in: that we read the bytes now says nothing of when they were written."""
    state: Mapping[str, object] = {}
    for at in range(0, max(1, len(data)), _CHUNK):
        state, _ = follow(state or None, data[at : at + _CHUNK], at)
    return summarise(state, bucket)


def _causes(folder: Folder, prepared: Prepared, scheduler: SchedulerRecord | None) -> list[tuple[str, Cause]]:
    from supervisor.app.diagnose import Source, diagnose_files
    from supervisor.app.diagnose_view import exact

    found = []
    for name, _ in _files(folder, Role.LOG, Role.SESSION_LOG):
        answer = diagnose_files([Source(name=name, data=folder.data(name))], scheduler, prepared)
        if answer.category in ("none", "unread") or answer.cause is None:
            continue
        told = [answer.cause, *answer.echoes[:ECHOES]]
        quotes = tuple(Quote(name, each.line, exact(each.text)[:QUOTED]) for each in told if each.file == name)
        cause = Cause(
            category=answer.category,
            confidence=answer.confidence,
            fingerprint=answer.fingerprint,
            quotes=quotes,
            action=answer.action,
            transience=answer.transience,
        )
        found.append((name, cause))
    return found


def _trials(folder: Folder) -> list[tuple[str, Trial]]:
    found = []
    for name, _ in _files(folder, Role.TRIALS):
        try:
            found.append((name, read_trial(folder.data(name), name)))
        except Malformed:
            continue  # it stays an exhibit that was read, and says nothing of a trial
    return found


def _trial_jobs(folder: Folder) -> list[tuple[str, TrialJob]]:
    """The harness's own tally, where its file is among those of the trials."""
    found = []
    for name, _ in _files(folder, Role.TRIALS):
        try:
            found.append((name, read_job(folder.data(name))))
        except Malformed:
            continue
    return found


# -- before and after --------------------------------------------------------------------------------------------------


def earlier_of(verdict: Verdict, limits: Limits, subject: Subject, path: Path) -> EarlierProbe:
    """An earlier verdict of the same attempt as gates see it; without its folder nothing is said of its stacks."""
    digest: str | None = None
    try:
        folder = open_folder(path, check=False)
        case = Case(subject=subject, limits=limits, at=folder.taken_at, exhibits=folder.exhibits, lines=folder.lines)
        digest = stacks.digest(stacks.of(case))
    except Unproven:
        pass
    return EarlierProbe(taken_at=verdict.taken_at, ruling=verdict.ruling, mark=verdict.mark, stack_digest=digest)


def mark_of(held: Held, case: Case) -> Mark:
    """How far the job is by its evidence: what it shows beyond this is progress since the verdict (KILL-2)."""
    stat = held.log.stat
    step, total, size = held.log.step, held.log.total, stat.size if stat is not None else None
    for name, each in ((one.file, one) for one in case.read(Role.LOG)):
        run = case.runs.get(name or "")
        if stat is None or each.source != stat.path or run is None:
            continue
        size = each.cut + each.bytes
        if run.progress.step is not None and (step is None or run.progress.step > step):
            step, total = run.progress.step, run.progress.total or total
    return Mark(
        at=case.at,
        step=step,
        total=total,
        progress_at=held.log.progress_at,
        last_output_at=held.log.last_output_at,
        log_size=size,
    )
