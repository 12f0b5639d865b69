"""What the hits of all files amount to: which of them may be the cause, and what speaks against the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from supervisor.diagnosis.catalogue import ANY_EXCEPTION, Catalogue, Signature
from supervisor.diagnosis.quoting import SET_OFF
from supervisor.model.diagnosis import FileReading, Hit, Mark

ROOT, FAULT, SYMPTOM, BARE, LAST_RESORT = 5, 4, 3, 2, 1
_LEVEL = {"root": ROOT, "fault": FAULT, "symptom": SYMPTOM}
_CONFIDENCE = {"high": 2, "medium": 1, "low": 0}

ADVANCES_THAT_CLEAR = 2
"""Steps after an error that show that the run went on. One may still have been under way in other ranks."""
NEAR_S = 120.0
"""Seconds within which lines of different files are near each other."""
AT_EXIT = frozenset({"atexit_error"})
"""Codes of lines that head an error of the interpreter's own end."""
CLOSING_LINES = 60
"""Lines from the end of a file in which a test run's own summary stands."""
GAP_THAT_HANDLES = 300
"""Lines of ordinary output after an exception of no known kind, before another one: the first was handled."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hit that may be the cause."""

    hit: Hit
    file: int
    """Index into the readings."""
    level: int
    category: str
    confidence: str
    signature: Signature | None
    """None for an exception that no entry names."""

    @property
    def order(self) -> tuple[int, int]:
        """Position for files without clocks."""
        return self.file, self.hit.offset

    @property
    def weight(self) -> int:
        """Confidence as a number."""
        return _CONFIDENCE[self.confidence]


@dataclass(frozen=True, slots=True)
class Cleared:
    """A candidate that is not the cause, and why."""

    candidate: Candidate
    why: str


@dataclass(frozen=True, slots=True)
class Place:
    """A hit with its file and role."""

    hit: Hit
    file: int
    role: str
    signature: Signature | None


class Evidence:
    """Hits sorted by what they can mean. Built once a diagnosis; changes nothing afterwards."""

    def __init__(self, readings: Sequence[FileReading], catalogue: Catalogue) -> None:
        self.readings, self.catalogue = readings, catalogue
        self._entries = catalogue.by_code
        self._closings = frozenset(name for e in catalogue.signatures if e.set_off for name in e.with_)
        self._seen = self._index()
        self.trainer_marks, self.service_marks = self._marks()
        self.cleared: list[Cleared] = []
        self.candidates: list[Candidate] = []
        self.others: list[Place] = []
        """Echoes, teardown, finishes and noise that counts against its rule."""
        self._sort()

    @property
    def has_steps(self) -> bool:
        """True if a trainer's steps are known anywhere in these logs."""
        return any(self.trainer_marks)

    def _index(self) -> Mapping[str, list[tuple[int, int, float | None]]]:
        """Code and category -> (file, line, clock) of each hit that is not quoted."""
        seen: dict[str, list[tuple[int, int, float | None]]] = {}
        for number, reading in enumerate(self.readings):
            for hit in reading.hits:
                if hit.quoted:
                    continue
                names = {hit.code, *hit.also}
                names |= {
                    str(entry.category)
                    for code in names
                    if (entry := self._entries.get(code)) is not None and entry.category
                }
                if hit.traceback is not None:
                    names.add(ANY_EXCEPTION)
                for name in names:
                    seen.setdefault(name, []).append((number, hit.line, hit.clock))
            for mark in reading.marks:
                seen.setdefault(mark.code, []).append((number, mark.line, mark.clock))
            for code, _count, first, last in reading.counts:
                entry = self._entries.get(code)
                if entry is not None and entry.role in ("noise", "context"):
                    seen.setdefault(code, []).extend([(number, first, None), (number, last, None)])
        return seen

    def _marks(self) -> tuple[list[list[Mark]], list[list[Mark]]]:
        trainer: list[list[Mark]] = []
        service: list[list[Mark]] = []
        for reading in self.readings:
            kinds = [(mark, self._entries[mark.code].service) for mark in reading.marks if mark.code in self._entries]
            trainer.append([mark for mark, is_service in kinds if not is_service])
            service.append([mark for mark, is_service in kinds if is_service])
        return trainer, service

    def near(self, names: Iterable[str], signature: Signature, file: int, hit: Hit, *, sure: bool) -> bool:
        """True if one of the codes or categories was hit near a hit, as the entry's window says.

        In other files lines don't count, clocks do; where a clock is missing, `sure` decides.
        """
        for name in names:
            for other_file, line, clock in self._seen.get(name, ()):
                if (other_file, line) == (file, hit.line):
                    continue
                if not signature.window or (other_file == file and abs(line - hit.line) <= signature.window):
                    return True
                if other_file != file:
                    timed = clock is not None and hit.clock is not None
                    if (abs((clock or 0.0) - (hit.clock or 0.0)) <= NEAR_S) if timed else not sure:
                        return True
        return False

    def _accompanied(self, entry: Signature, file: int, hit: Hit) -> bool:
        """True if what an entry wants to stand near it does. A line's own exception is near enough."""
        if ANY_EXCEPTION in entry.with_ and hit.traceback is not None:
            return True
        return self.near(entry.with_, entry, file, hit, sure=False)

    def _is_own_test(self, entry: Signature | None, file: int, hit: Hit) -> bool:
        """True for a set-off line of a test run that is the program itself: its summary ends the file, no trainer runs."""
        if hit.quoted != SET_OFF or self.has_steps or (not entry.set_off if entry else hit.traceback is None):
            return False
        closing = self.readings[file].lines - CLOSING_LINES
        return any(f == file and line > closing for name in self._closings for f, line, _ in self._seen.get(name, ()))

    def healed(self, candidate: Candidate) -> str | None:
        """The code or category of a later hit in the same file that undoes a candidate."""
        signature = candidate.signature
        for name in sorted(signature.healed_by) if signature is not None else ():
            if any(f == candidate.file and line > candidate.hit.line for f, line, _ in self._seen.get(name, ())):
                return name
        return None

    def _speaker(self, hit: Hit, file: int) -> tuple[Signature | None, Signature | None]:
        """The entry that speaks for a hit once `with` is known, and the one that its `unless` set aside."""
        aside = None
        for code in (hit.code, *hit.also):
            entry = self._entries.get(code)
            if entry is None or (entry.with_ and not self._accompanied(entry, file, hit)):
                continue
            if not entry.unless or not self.near(entry.unless, entry, file, hit, sure=True):
                return entry, aside
            aside = aside or entry
        return None, aside

    def _sort(self) -> None:
        for file, reading in enumerate(self.readings):
            for hit in reading.hits:
                signature, aside = self._speaker(hit, file)
                place = Place(hit, file, signature.role if signature else "exception", signature)
                candidate = self._candidate(hit, file, signature)
                if signature is None and aside is not None and not hit.quoted:
                    self._set_aside(place, aside)
                    continue
                if hit.quoted and not self._is_own_test(signature, file, hit):
                    if candidate is not None:
                        self.cleared.append(Cleared(candidate, hit.quoted))
                elif candidate is not None:
                    self.candidates.append(candidate)
                    if place.role == "echo":
                        self.others.append(place)
                elif signature is not None and signature.role in ("echo", "teardown", "finish"):
                    self.others.append(place)

    def _set_aside(self, place: Place, entry: Signature) -> None:
        """Noise in bad company is an echo; a cause in good company is none."""
        if entry.role == "noise":
            self.others.append(replace(place, role="echo"))
        elif (candidate := self._candidate(place.hit, place.file, entry)) is not None:
            company = ", ".join(sorted(entry.unless & set(self._seen)))
            self.cleared.append(Cleared(candidate, f"it is harmless in the company of {company}"))

    def _candidate(self, hit: Hit, file: int, signature: Signature | None) -> Candidate | None:
        if signature is not None:
            if signature.role == "cause":
                level = _LEVEL[signature.depth]
            elif signature.role == "echo" and signature.category:
                level = LAST_RESORT
            else:
                return None
            return Candidate(hit, file, level, str(signature.category), signature.confidence, signature)
        if hit.traceback is None:
            return None
        whole = bool(hit.traceback.frames)
        confidence = "high" if whole and hit.traceback.has_header else "medium" if whole else "low"
        return Candidate(hit, file, FAULT if whole else BARE, "rank-crash", confidence, None)

    def advances(self, hit: Hit, file: int) -> int:
        """How many different states of progress beyond the last one before a hit follow it."""
        per_file = self.trainer_marks if self.has_steps else self.service_marks
        most = 0
        for number, marks in enumerate(per_file):
            before, after = _around(hit, marks, same_file=number == file)
            most = max(most, _advances(before, after))
        return most

    def follows(self, candidate: Candidate, roles: Iterable[str]) -> bool:
        """True if a place of one of the roles, or a symptom, follows in the same file."""
        wanted = set(roles)
        return any(
            place.file == candidate.file and place.hit.offset > candidate.hit.offset and place.role in wanted
            for place in self.others
        ) or any(
            other.file == candidate.file and other.hit.offset > candidate.hit.offset and other.level == SYMPTOM
            for other in self.candidates
            if other is not candidate
        )

    def shut_down_before(self, candidate: Candidate) -> Place | None:
        """The line that says that an error came while Python was ending, after the work's proper end and before it."""
        finish = self.finish_before(candidate)
        if finish is None or finish.file != candidate.file:
            return None
        between = [
            mark.position or mark.text
            for mark in (self.trainer_marks if self.has_steps else self.service_marks)[candidate.file]
            if finish.hit.offset < mark.offset < candidate.hit.offset
        ]
        if len(set(between)) >= ADVANCES_THAT_CLEAR:
            return None
        for place in self.others:
            is_there = place.file == finish.file and finish.hit.offset < place.hit.offset < candidate.hit.offset
            if is_there and place.hit.code in AT_EXIT:
                return place
        return None

    def finish_before(self, candidate: Candidate) -> Place | None:
        """The last proper end before a candidate, by place or by clock."""
        found = None
        for place in self.others:
            if place.role == "finish" and _is_before(place.hit, place.file, candidate.hit, candidate.file):
                found = place
        return found


def _is_before(first: Hit, first_file: int, second: Hit, second_file: int) -> bool:
    if first_file == second_file:
        return first.offset < second.offset
    return first.clock is not None and second.clock is not None and first.clock < second.clock


def _around(hit: Hit, marks: Sequence[Mark], *, same_file: bool) -> tuple[list[Mark], list[Mark]]:
    if same_file:
        return [m for m in marks if m.offset < hit.offset], [m for m in marks if m.offset > hit.offset]
    if hit.clock is None:
        return [], []
    timed = [mark for mark in marks if mark.clock is not None]
    return [m for m in timed if (m.clock or 0) <= hit.clock], [m for m in timed if (m.clock or 0) > hit.clock + 1]


def _advances(before: Sequence[Mark], after: Sequence[Mark]) -> int:
    """States beyond the last known one. Where none is known, the first one after may have stood before."""
    most = 0
    for code in {mark.code for mark in after}:
        own = [mark for mark in after if mark.code == code]
        had = [mark.position for mark in before if mark.code == code and mark.position is not None]
        places = {mark.position for mark in own if mark.position is not None}
        if not places:
            earlier = {mark.text for mark in before if mark.code == code}
            most = max(most, len({mark.text for mark in own} - earlier) - (not earlier))
        elif not had:
            most = max(most, len(places) - 1)
        else:
            beyond = {place for place in places if place > had[-1]}
            again = {place for place in places if place <= had[-1]}
            most = max(most, len(beyond), len(again) - 1)
    return most
