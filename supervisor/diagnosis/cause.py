"""Ranking: which of the candidates set off the rest.

The earliest cause after the last good progress wins. What explains more goes before what others merely see of it;
an exception's chain is followed to its beginning; echoes and teardown attach to the cause; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.diagnosis.evidence import (
    ADVANCES_THAT_CLEAR,
    BARE,
    FAULT,
    GAP_THAT_HANDLES,
    LAST_RESORT,
    ROOT,
    SYMPTOM,
    Candidate,
    Cleared,
    Evidence,
)
from supervisor.model.diagnosis import FileReading

BURST_LINES = 12
"""Lines within which entries of one category speak of the same event."""
ROOT_REACH_LINES = 3000
ROOT_REACH_S = 1800.0
"""How long after the first error a root cause may be told and still explain it."""
LATE_FAULT_LINES = 400
BURST_S = 180.0
"""Lines, or seconds over files, within which errors belong to one event."""
MESSAGE_LINES = 5
"""Lines below an exception that may still belong to its message."""
MERE_DEATHS = frozenset({"actor-died", "engine-dead", "object-lost", "ray-node-dead"})
"""Categories that tell no more than that something is gone."""
TEARDOWN_LIKE = MERE_DEATHS | {"cancelled", "nccl-timeout", "store-timeout"}
"""After the proper end of the work these are its teardown."""
ONCE_IS_NOTHING = frozenset({"nan-loss"})
"""Skipped steps and warm-up overflow: a fault only if it comes again."""


def clear(evidence: Evidence) -> list[Candidate]:
    """Candidates that still stand once progress, proper ends and later output are weighed; the others go to `cleared`."""
    standing: list[Candidate] = []
    for candidate in evidence.candidates:
        why = _why_cleared(evidence, candidate)
        if why is None:
            standing.append(candidate)
        else:
            evidence.cleared.append(Cleared(candidate, why))
    return _without_handled(evidence, standing)


def _why_cleared(evidence: Evidence, candidate: Candidate) -> str | None:
    signature = candidate.signature
    if (healed := evidence.healed(candidate)) is not None:
        return f"it was undone: {healed} follows it"
    stays = signature is not None and signature.survives and not _once_only(evidence, candidate)
    if not stays:
        advances = evidence.advances(candidate.hit, candidate.file)
        enough = ADVANCES_THAT_CLEAR if evidence.follows(candidate, ("echo", "teardown")) else 1
        if advances >= enough:
            return "the run went on: progress advanced after it"
    if candidate.category == "rank-crash" and (place := evidence.shut_down_before(candidate)) is not None:
        return f"it comes while the program ends, after the work's proper end ({place.hit.code}, line {place.hit.line})"
    if not stays and (candidate.level <= SYMPTOM or candidate.category in TEARDOWN_LIKE):
        finish = evidence.finish_before(candidate)
        if finish is not None:
            return f"it comes after the work's proper end ({finish.hit.code}, line {finish.hit.line})"
    return None


def _once_only(evidence: Evidence, candidate: Candidate) -> bool:
    """True for one step that went wrong in a run of good ones."""
    return (
        candidate.category in ONCE_IS_NOTHING
        and sum(other.category == candidate.category and other.file == candidate.file for other in evidence.candidates)
        == 1
    )


def _without_handled(evidence: Evidence, standing: list[Candidate]) -> list[Candidate]:
    """Set aside unnamed exceptions after which much ordinary output came before the next error."""
    kept: list[Candidate] = []
    for candidate in standing:
        later = [
            other.hit.line
            for other in standing
            if other.file == candidate.file and other.hit.line > candidate.hit.line and other.level >= SYMPTOM
        ]
        gap = min(later, default=candidate.hit.line) - candidate.hit.line
        if candidate.signature is None and gap > GAP_THAT_HANDLES:
            evidence.cleared.append(Cleared(candidate, f"it was handled: {gap} lines of other output follow it"))
        else:
            kept.append(candidate)
    return kept


def choose(evidence: Evidence, standing: Sequence[Candidate]) -> Candidate | None:
    """The cause among those that stand."""
    ordered = _in_time(evidence.readings, standing)
    if not ordered:
        return None
    chosen = _first(ordered)
    chosen = _deepest_of_chain(ordered, chosen)
    chosen = _told_below(ordered, chosen)
    chosen = _explained(ordered, chosen)
    if chosen.signature is not None and chosen.signature.survives:
        # A first such line alone would have been cleared; with this one after it, it is where it began.
        ordered = [*(cleared.candidate for cleared in evidence.cleared if not cleared.candidate.hit.quoted), *ordered]
    return _best_line(ordered, chosen)


def _in_time(readings: Sequence[FileReading], standing: Sequence[Candidate]) -> list[Candidate]:
    """Within a file by place, over files by clock. A line without a clock comes no earlier than those above it."""
    by_place = sorted(standing, key=lambda candidate: candidate.order)
    if len(readings) < 2:
        return by_place
    latest: dict[int, float] = {}
    keyed = []
    for candidate in by_place:
        latest[candidate.file] = max(latest.get(candidate.file, 0.0), candidate.hit.clock or 0.0)
        keyed.append((latest[candidate.file], candidate.order, candidate))
    return [candidate for _, _, candidate in sorted(keyed, key=lambda entry: entry[:2])]


def _first(ordered: Sequence[Candidate]) -> Candidate:
    faults = [candidate for candidate in ordered if candidate.level == FAULT]
    symptoms = _by_telling([candidate for candidate in ordered if candidate.level == SYMPTOM])
    earliest = next((candidate for candidate in ordered if candidate.level in (FAULT, SYMPTOM)), None)
    for root in (candidate for candidate in ordered if candidate.level == ROOT):
        if earliest is None or _within_reach(earliest, root):
            return root
    if faults and symptoms and ordered.index(symptoms[0]) < ordered.index(faults[0]):
        if _same_chain(ordered, symptoms[0], faults[0]):
            return faults[0]
        return next((fault for fault in faults if _outweighs(fault, symptoms[0])), symptoms[0])
    if faults or symptoms:
        return faults[0] if faults else symptoms[0]
    bare = [candidate for candidate in ordered if candidate.level == BARE]
    if bare:
        return bare[0]
    last_resort = [candidate for candidate in ordered if candidate.level == LAST_RESORT]
    return max(last_resort, key=lambda candidate: candidate.weight) if last_resort else ordered[0]


def _by_telling(symptoms: Sequence[Candidate]) -> list[Candidate]:
    """Symptoms in time, but one that tells what was waited for goes before a mere death of the same burst."""
    if not symptoms or symptoms[0].category not in MERE_DEATHS:
        return list(symptoms)
    telling = next((c for c in symptoms if c.category not in MERE_DEATHS and _same_burst(symptoms[0], c)), None)
    return [telling, *symptoms] if telling is not None else list(symptoms)


def _same_burst(earlier: Candidate, later: Candidate) -> bool:
    if earlier.file == later.file:
        return later.hit.line - earlier.hit.line <= LATE_FAULT_LINES
    if earlier.hit.clock is None or later.hit.clock is None:
        return True
    return later.hit.clock - earlier.hit.clock <= BURST_S


def _within_reach(earlier: Candidate, root: Candidate) -> bool:
    first, second = earlier.hit, root.hit
    if first.clock is not None and second.clock is not None:
        return second.clock - first.clock <= ROOT_REACH_S
    return earlier.file != root.file or second.line - first.line <= ROOT_REACH_LINES


def _outweighs(fault: Candidate, symptom: Candidate) -> bool:
    """A fault told after a symptom goes before it only if it has a sure name and comes in the same burst."""
    return fault.signature is not None and fault.weight == 2 and _same_burst(symptom, fault)


def _chain(ordered: Sequence[Candidate], chosen: Candidate) -> list[Candidate]:
    """The exceptions of one stream that were printed as one chain, in the order of print."""
    own = [
        candidate
        for candidate in ordered
        if candidate.hit.traceback is not None
        and candidate.file == chosen.file
        and candidate.hit.stream == chosen.hit.stream
    ]
    own.sort(key=lambda candidate: candidate.hit.offset)
    chain: list[Candidate] = []
    for candidate in own:
        traceback = candidate.hit.traceback
        assert traceback is not None
        linked = traceback.is_chained or traceback.is_original
        if chain and not linked:
            if chosen in chain:
                return chain
            chain = []
        chain.append(candidate)
    return chain if chosen in chain else [chosen]


def _same_chain(ordered: Sequence[Candidate], one: Candidate, other: Candidate) -> bool:
    return other in _chain(ordered, one) and one.hit.traceback is not None


def _deepest_of_chain(ordered: Sequence[Candidate], chosen: Candidate) -> Candidate:
    if chosen.hit.traceback is None:
        return chosen
    chain = _chain(ordered, chosen)
    originals = [candidate for candidate in chain if candidate.hit.traceback and candidate.hit.traceback.is_original]
    by_depth = [*reversed(originals), *(candidate for candidate in chain if candidate not in originals)]
    named = [candidate for candidate in by_depth if candidate.signature is not None and candidate.level >= FAULT]
    unnamed = [candidate for candidate in by_depth if candidate.signature is None]
    if originals:
        return named[0] if named else by_depth[0]
    if chosen.level >= FAULT and chosen.signature is not None and named:
        return named[0]
    return named[0] if named else unnamed[0] if unnamed else chosen


def _told_below(ordered: Sequence[Candidate], chosen: Candidate) -> Candidate:
    """An exception's message may go on over lines, and a later line of it may name what its type does not."""
    if chosen.hit.traceback is None or (chosen.signature is not None and chosen.level > SYMPTOM):
        return chosen
    below = [
        other
        for other in ordered
        if other.signature is not None
        and other.level >= FAULT
        and other.hit.traceback is None
        and other.file == chosen.file
        and 0 < other.hit.line - chosen.hit.line <= MESSAGE_LINES
        and (not other.hit.stream or other.hit.stream == chosen.hit.stream)
    ]
    return below[0] if below else chosen


def _explained(ordered: Sequence[Candidate], chosen: Candidate) -> Candidate:
    """Follow `explains`: a later entry that says that what was chosen is its consequence."""
    for _ in range(4):
        better = next(
            (
                other
                for other in ordered
                if other.signature is not None
                and other is not chosen
                and (
                    chosen.hit.code in other.signature.explains
                    or (chosen.category in other.signature.explains and other.category != chosen.category)
                )
                and _within_reach(chosen, other)
            ),
            None,
        )
        if better is None:
            return chosen
        chosen = better
    return chosen


def _best_line(ordered: Sequence[Candidate], chosen: Candidate) -> Candidate:
    """Of the lines that tell the same event, the one that tells it best."""
    same = [
        other
        for other in ordered
        if other.category == chosen.category
        and other.file == chosen.file
        and other.level >= min(chosen.level, SYMPTOM)
        and _distance(other, chosen) <= BURST_LINES
        and (other.hit.stream == chosen.hit.stream or other.weight > chosen.weight)
        and (other.signature is not None or chosen.signature is None)
    ]
    if chosen.signature is not None and chosen.signature.pick == "last":
        return max((c for c in ordered if c.hit.code == chosen.hit.code), key=lambda c: (c.file, c.hit.offset))
    if chosen.signature is None:
        return chosen

    def worth(candidate: Candidate) -> tuple[int, bool, int]:
        traceback = candidate.hit.traceback
        told = traceback is not None and (bool(traceback.frames) or candidate.hit.code == chosen.hit.code)
        return candidate.weight, told, -candidate.hit.offset

    return max([chosen, *same], key=worth)


def _distance(other: Candidate, chosen: Candidate) -> int:
    """Lines between two hits; a traceback reaches from its header to its last line."""
    traceback = other.hit.traceback
    top = other.hit.line - (traceback.height if traceback is not None else 0)
    if top <= chosen.hit.line <= other.hit.line:
        return 0
    return min(abs(other.hit.line - chosen.hit.line), abs(top - chosen.hit.line))
