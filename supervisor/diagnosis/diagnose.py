"""From readings of logs, and the scheduler's record where there is one, to one answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from supervisor.diagnosis import cause as ranking
from supervisor.diagnosis import wording
from supervisor.diagnosis.catalogue import Catalogue
from supervisor.diagnosis.clocks import clock
from supervisor.diagnosis.evidence import BARE, LAST_RESORT, SYMPTOM, Candidate, Evidence
from supervisor.diagnosis.fingerprint import fingerprint
from supervisor.diagnosis.scheduler import Ending, read_ending
from supervisor.model.diagnosis import (
    USUAL,
    Diagnosis,
    FileReading,
    Hit,
    Mark,
    NoiseCount,
    Quote,
    RuledOut,
    SchedulerRecord,
    Silence,
    Stage,
)

MOST_ECHOES = 40
MOST_RULED_OUT = 20
COMES_BACK = frozenset({"port-in-use", "device-busy", "startup-timeout", "container-start", "fs-stale-handle"})
"""Usually transient, but not when every restart meets it again."""
APART_LINES = 3
HANG_S = 1800.0
"""Seconds of nothing but heartbeats that make a silence a hang."""
ZONE_S = (300.0, 1740.0)
"""Seconds beyond whole half hours that a gap between two programs' clocks must have to be no difference of zones."""
HANG_BEATS = 24
"""As many heartbeats in a row do where lines carry no time."""


def diagnose(
    readings: Sequence[FileReading], catalogue: Catalogue, scheduler: SchedulerRecord | None = None
) -> Diagnosis:
    """One answer for all files of a job. Never guesses: without evidence it says what is missing (FAIL-2, FAIL-3)."""
    usable = [reading for reading in readings if reading.state in ("read", "partly") and reading.bytes]
    ending = read_ending(scheduler)
    evidence = Evidence(usable, catalogue)
    standing = ranking.clear(evidence)
    chosen = ranking.choose(evidence, standing)
    silence = _hang(evidence) if chosen is None or chosen.level <= LAST_RESORT else None
    if ending is not None and _ending_goes_first(ending, chosen):
        answer = _by_scheduler(ending, chosen, evidence)
    elif chosen is not None and (frozen := _frozen(evidence, chosen)) is not None:
        answer = _by_freeze(evidence, *frozen, chosen)
    elif silence is not None and not (ending is not None and ending.is_clean):
        answer = _by_silence(evidence, *silence)
    elif chosen is not None:
        answer = _by_log(evidence, chosen, standing, ending)
    elif not usable and not any(reading.state == "empty" for reading in readings):
        answer = _unread()
    else:
        answer = _nothing_found(evidence, ending, usable)
    return replace(
        answer,
        noise=_noise(evidence),
        ruled_out=_ruled_out(evidence),
        missing=(*answer.missing, *wording.unreadable(readings)),
        files=tuple(readings),
    )


def quote(evidence: Evidence, hit: Hit, file: int) -> Quote:
    """The hit as a quote of its file."""
    rank = hit.stream.rank
    captured = hit.captured("rank")
    if rank is None and captured is not None and captured.isdigit():
        rank = int(captured)
    return Quote(
        file=evidence.readings[file].path,
        line=hit.line,
        offset=hit.offset,
        text=hit.text,
        signature=hit.code,
        rank=rank,
        node=hit.captured("node") or hit.stream.node,
    )


def _by_log(evidence: Evidence, chosen: Candidate, standing: Sequence[Candidate], ending: Ending | None) -> Diagnosis:
    signature = chosen.signature
    progress = _progress(evidence, chosen.hit, chosen.file)
    transience = signature.transience if signature else "deterministic"
    repeats = _repeats(evidence, chosen)
    if transience == "transient" and repeats:
        transience = "deterministic"
    usual_action = USUAL.get(chosen.category, ("unknown", ""))[1]
    echoes, left_out = _echoes(evidence, chosen, standing)
    confidence = chosen.confidence
    if chosen.level in (BARE, LAST_RESORT) and confidence == "high":
        confidence = "medium"
    absent = _absent_ranks(evidence, chosen)
    return Diagnosis(
        category=chosen.category,
        confidence=confidence,
        transience=transience,
        summary=wording.summary(chosen, evidence, progress, absent),
        action=(signature.action if signature and signature.action else usual_action),
        fingerprint=fingerprint(chosen.category, chosen.hit.code, chosen.hit.message, chosen.hit.traceback),
        reasons=(*wording.reasons(chosen, evidence, standing, ending), *repeats),
        cause=quote(evidence, chosen.hit, chosen.file),
        exception=chosen.hit.traceback,
        echoes=echoes,
        echoes_left_out=left_out,
        progress=progress,
        missing=wording.missing_for(chosen),
        absent_ranks=absent,
    )


def _repeats(evidence: Evidence, chosen: Candidate) -> tuple[str, ...]:
    """A sentence if the same failure came back again and again in one log, with other output between (CHAIN-5)."""
    if chosen.category not in COMES_BACK:
        return ()
    same = [
        hit.line
        for hit in evidence.readings[chosen.file].hits
        if hit.code == chosen.hit.code and hit.stream == chosen.hit.stream and not hit.quoted
    ]
    apart = 1 + sum(1 for earlier, later in pairwise(same) if later - earlier > APART_LINES)
    return (f"it came back {apart} times in this log, so it will not pass by itself",) if apart >= 3 else ()


def _ending_goes_first(ending: Ending, chosen: Candidate | None) -> bool:
    """True if what the scheduler knows explains more than what the logs say."""
    if ending.category is None:
        return False
    if chosen is None:
        return True
    if chosen.category == ending.category:
        return False
    if ending.is_root:
        return chosen.level <= SYMPTOM or chosen.signature is None or chosen.category in ending.explains
    return chosen.level <= LAST_RESORT


def _by_scheduler(ending: Ending, chosen: Candidate | None, evidence: Evidence) -> Diagnosis:
    category = str(ending.category)
    transience, action = USUAL[category]
    echoes = (quote(evidence, chosen.hit, chosen.file),) if chosen else ()
    return Diagnosis(
        category=category,
        confidence=ending.confidence,
        transience=transience,
        summary=f"{ending.text}.",
        action=action,
        fingerprint=fingerprint(category, "scheduler", ending.word, None),
        reasons=(ending.text, *wording.overruled(chosen)),
        echoes=echoes,
        progress=_last_progress(evidence),
        missing=("no line of the logs names this cause; it rests on the scheduler's record alone",),
    )


def _hang(evidence: Evidence) -> tuple[int, Silence] | None:
    """(file, its end) if the logs end in nothing but heartbeats."""
    quiet = [
        (number, reading.silence)
        for number, reading in enumerate(evidence.readings)
        if reading.silence is not None and reading.silence.heartbeats
    ]
    longest = max(quiet, key=lambda pair: (pair[1].seconds or 0.0, pair[1].heartbeats), default=None)
    if longest is None or any(place.role == "finish" for place in evidence.others):
        return None
    silence = longest[1]
    lasted = silence.seconds is not None and silence.seconds >= HANG_S and silence.heartbeats >= 3
    enough = lasted or silence.told >= HANG_S or (silence.seconds is None and silence.heartbeats >= HANG_BEATS)
    if not enough or (not evidence.has_steps and any(evidence.service_marks)):
        return None
    return longest


def _frozen(evidence: Evidence, chosen: Candidate) -> tuple[int, Silence] | None:
    """(file, its end) of a run that somebody ended long after its last line of work.

    Both lines must carry times of their own. A gap of about whole half hours may be the distance of two time zones.
    """
    silence = evidence.readings[chosen.file].silence
    if chosen.category != "cancelled" or silence is None or silence.line >= chosen.hit.line:
        return None
    last, end = clock(silence.text), clock(chosen.hit.text)
    if last is None or end is None or evidence.finish_before(chosen) is not None:
        return None
    lasted = end - last
    if lasted < HANG_S or not ZONE_S[0] <= lasted % 1800 <= ZONE_S[1]:
        return None
    ends = [reading.silence for reading in evidence.readings if reading.silence is not None]
    if any(other.clock is None or other.clock > last + HANG_S / 2 for other in ends if other is not silence):
        return None
    return chosen.file, replace(silence, seconds=lasted)


def _began(evidence: Evidence) -> tuple[int, Stage] | None:
    """The latest stage of work that began and did not end."""
    stages = [
        (number, reading.silence.stage)
        for number, reading in enumerate(evidence.readings)
        if reading.silence is not None and reading.silence.stage is not None
    ]
    return max(stages, key=lambda pair: pair[1].clock or 0.0, default=None)


def _by_silence(evidence: Evidence, file: int, silence: Silence) -> Diagnosis:
    transience, action = USUAL["silent-hang"]
    path = evidence.readings[file].path
    how_long = f" for {wording.duration(silence.seconds)}" if silence.seconds else ""
    stream = silence.stream
    cause = Quote(path, silence.line, silence.offset, silence.text, "silence", stream.rank, stream.node)
    where = f"after line {silence.line} of {path}"
    began = _began(evidence)
    if began is not None:
        place, stage = evidence.readings[began[0]].path, began[1]
        cause = Quote(place, stage.line, stage.offset, stage.text, "silence", stage.stream.rank, stage.stream.node)
        where = f"since {stage.name} began in line {stage.line} of {place}"
    return Diagnosis(
        category="silent-hang",
        confidence="medium",
        transience=transience,
        summary=f"Nothing but heartbeats ({silence.heartbeats} lines){how_long} {where}.",
        action=action,
        fingerprint=fingerprint("silent-hang", "silence", cause.text.decode("utf-8", "replace"), None),
        reasons=(
            "no error stands in the logs that were read",
            f"the last line of work is followed by {silence.heartbeats} heartbeats{how_long}",
        ),
        cause=cause,
        progress=_last_progress(evidence),
        missing=("stacks of the processes: the logs don't say where they wait",),
    )


def _by_freeze(evidence: Evidence, file: int, silence: Silence, ended: Candidate) -> Diagnosis:
    how_long = wording.duration(silence.seconds)
    answer = _by_silence(evidence, file, silence)
    return replace(
        answer,
        summary=f"Nothing was printed for {how_long} after line {silence.line} until the run was ended from outside.",
        reasons=(f"line {ended.hit.line} says that somebody ended the run; the last line of work is {how_long} older",),
        echoes=(quote(evidence, ended.hit, ended.file),),
    )


def _unread() -> Diagnosis:
    return Diagnosis(
        category="unread",
        confidence="low",
        transience="unknown",
        summary="Nothing could be read, so nothing is known.",
        action="Get the log.",
        fingerprint="",
    )


def _nothing_found(evidence: Evidence, ending: Ending | None, usable: Sequence[FileReading]) -> Diagnosis:
    progress = _last_progress(evidence)
    finished = any(place.role == "finish" for place in evidence.others)
    missing, summary = wording.nothing(evidence, ending, usable, progress, finished=finished)
    return Diagnosis(
        category="none",
        confidence="high" if usable and not missing else "low",
        transience="unknown",
        summary=summary,
        action="Nothing to do." if not missing else "Look where the missing evidence would be.",
        fingerprint="",
        progress=progress,
        missing=missing,
    )


def _progress(evidence: Evidence, hit: Hit, file: int) -> Mark | None:
    marks = evidence.trainer_marks if evidence.has_steps else evidence.service_marks
    own = [mark for mark in marks[file] if mark.offset <= hit.offset]
    if own:
        return own[-1]
    timed = [mark for group in marks for mark in group if mark.clock and hit.clock and mark.clock <= hit.clock]
    return max(timed, key=lambda mark: mark.clock or 0.0, default=None)


def _last_progress(evidence: Evidence) -> Mark | None:
    marks = evidence.trainer_marks if evidence.has_steps else evidence.service_marks
    last = [group[-1] for group in marks if group]
    return max(last, key=lambda mark: (mark.clock or 0.0, mark.position or 0.0), default=None)


def _echoes(evidence: Evidence, chosen: Candidate, standing: Sequence[Candidate]) -> tuple[tuple[Quote, ...], int]:
    places = [(place.file, place.hit) for place in evidence.others if place.role in ("echo", "teardown")]
    places += [(other.file, other.hit) for other in standing if other is not chosen]
    unique = {(file, hit.offset): (file, hit) for file, hit in places if hit is not chosen.hit}
    ordered = [unique[key] for key in sorted(unique)]
    return tuple(quote(evidence, hit, file) for file, hit in ordered[:MOST_ECHOES]), max(0, len(ordered) - MOST_ECHOES)


def _noise(evidence: Evidence) -> tuple[NoiseCount, ...]:
    counted = []
    entries = evidence.catalogue.by_code
    for reading in evidence.readings:
        for code, count, first, last in reading.counts:
            entry = entries.get(code)
            if entry is not None and entry.role == "noise":
                counted.append(NoiseCount(code, reading.path, count, first, last, entry.why))
    return tuple(sorted(counted, key=lambda noise: -noise.count)[:MOST_RULED_OUT])


def _ruled_out(evidence: Evidence) -> tuple[RuledOut, ...]:
    shown: dict[tuple[str, str], RuledOut] = {}
    for cleared in evidence.cleared:
        candidate = cleared.candidate
        if candidate.level > LAST_RESORT:
            key = (candidate.hit.code if candidate.signature else candidate.hit.message[:60], cleared.why)
            shown[key] = RuledOut(quote(evidence, candidate.hit, candidate.file), candidate.category, cleared.why)
    return tuple(list(shown.values())[-MOST_RULED_OUT:])


def _absent_ranks(evidence: Evidence, chosen: Candidate) -> tuple[int, ...]:
    """Ranks that print elsewhere but did not report a collective's timeout that others report."""
    if chosen.category != "nccl-timeout":
        return ()
    told: set[int] = set()
    seen: set[int] = set()
    for candidate in evidence.candidates:
        rank = candidate.hit.stream.rank
        if rank is not None and candidate.category == "nccl-timeout":
            told.add(rank)
    for reading in evidence.readings:
        seen |= {*reading.ranks}
        streams = [mark.stream for mark in reading.marks] + [hit.stream for hit in reading.hits]
        seen |= {stream.rank for stream in streams if stream.rank is not None}
    return tuple(sorted(seen - told)) if told else ()
