"""Where a counter stands: advances, repeats, steps that go back on a resume, and when each was reached (CHAIN-2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from supervisor.model.readings import Reading

KEPT_POINTS = 128
KEPT_POLLS = 48
KEPT_RESUMES = 16
FARTHEST = 10**12
"""No program counts so far: a larger number is no step."""
Json = dict[str, object]


def mark_of(reading: Reading, seen: float | None) -> Json:
    """A place in the log, as the state keeps it."""
    spoken = reading.said[0]
    return {
        "offset": spoken.offset,
        "line": spoken.line,
        "text": spoken.text[:400],
        "clock": reading.clock_s,
        "seen": seen,
    }


@dataclass(slots=True)
class StepTrack:
    """One counter over all attempts of a run. All fields are plain JSON."""

    step: int | None = None
    total: int | None = None
    total_rank: int = 0
    """Who named the total: 3 the trainer's own word, 2 its bar or iteration line, 1 hearsay."""
    highest: int | None = None
    first: int | None = None
    segment: int = 0
    """Counts the times that the step went back."""
    fresh: bool = False
    """A new attempt, banner or bar was announced: the next step may be lower without being a repeat."""
    back: list[object] | None = None
    """An unannounced lower step, and its clock: believed when a second one follows it."""
    points: list[list[object]] = field(default_factory=list)
    """[segment, step, clock_s, elapsed_s, seen], one an advance."""
    polls: list[list[object]] = field(default_factory=list)
    """[seen, step, advances, segment], one for each time of reading in which the step advanced."""
    last: Json | None = None
    resumes: list[Json] = field(default_factory=list)

    def set_total(self, total: int | None, rank: int) -> None:
        if total is not None and 0 < total <= FARTHEST and rank >= self.total_rank:
            self.total, self.total_rank = total, rank

    def announce(self) -> None:
        self.fresh = True

    def forget(self) -> None:
        """What was taken for the run's count was another's: nothing is known of it yet."""
        self.step = self.first = self.highest = None
        if self.total_rank <= 2:
            self.total, self.total_rank = None, 0

    def reach(self, step: int, reading: Reading, seen: float | None, *, elapsed_s: float | None = None) -> bool:
        """The counter shows ``step``. True if that is news: an advance, or the run went back and goes on from there."""
        if not 0 <= step <= FARTHEST:
            return False
        if self.step is None or step > self.step:
            if self.fresh and self.step is not None and self.back is not None:
                self.back = None
            self._advance(step, reading, seen, elapsed_s)
            return step > 0
        if step == self.step:
            self._complete(reading, elapsed_s)
            self.back = None
            return False
        if self.fresh:
            self._go_back(step, reading, seen, announced=True)
            return True
        return self._doubt(step, reading, seen, elapsed_s)

    def _advance(self, step: int, reading: Reading, seen: float | None, elapsed_s: float | None) -> None:
        self.step = step
        self.back = None
        self.fresh = False
        self.first = step if self.first is None else self.first
        self.highest = step if self.highest is None else max(self.highest, step)
        if step == 0:
            return
        self.points.append([self.segment, step, reading.clock_s, elapsed_s, seen])
        del self.points[:-KEPT_POINTS]
        self.last = mark_of(reading, seen)
        if seen is None:
            return
        if self.polls and self.polls[-1][0] == seen and self.polls[-1][3] == self.segment:
            advances = self.polls[-1][2]
            assert isinstance(advances, int)
            self.polls[-1] = [seen, step, advances + 1, self.segment]
        else:
            self.polls.append([seen, step, 1, self.segment])
            del self.polls[:-KEPT_POLLS]

    def _complete(self, reading: Reading, elapsed_s: float | None) -> None:
        """A second voice names the same step: it may know a clock that the first one lacked."""
        if self.points and self.points[-1][1] == self.step:
            segment, step, clock, elapsed, seen = self.points[-1]
            self.points[-1] = [
                segment, step, clock if clock is not None else reading.clock_s,
                elapsed if elapsed is not None else elapsed_s, seen,
            ]  # fmt: skip

    def _doubt(self, step: int, reading: Reading, seen: float | None, elapsed_s: float | None) -> bool:
        """A lower step that nothing announced: another rank's late line, or a silent restart.

        It is a restart only if a further step follows it before the old count goes on, and its clock does not lie before
        the last step's.
        """
        last_clock = self.last.get("clock") if self.last else None
        if isinstance(last_clock, float) and reading.clock_s is not None and reading.clock_s < last_clock:
            return False
        if self.back is None or not isinstance(self.back[0], int) or step <= self.back[0]:
            self.back = [step]
            return False
        first = self.back[0]
        self._go_back(first, reading, seen, announced=False)
        self._advance(step, reading, seen, elapsed_s)
        return True

    def _go_back(self, step: int, reading: Reading, seen: float | None, *, announced: bool) -> None:
        mark = mark_of(reading, seen)
        self.resumes.append({"before": self.step, "after": step, "announced": announced, "mark": mark})
        del self.resumes[:-KEPT_RESUMES]
        self.segment += 1
        self.step = step
        self.fresh = False
        self.back = None


def rate(track: StepTrack) -> float | None:
    """Steps per second over the trailing window, on the one clock that knows most of it; None on fewer than two points."""
    recent = [point for point in track.points if point[0] == track.segment]
    best: tuple[int, float] | None = None
    for clock in (2, 3):
        known = [(point[clock], point[1]) for point in recent if isinstance(point[clock], (int, float))]
        speed = _speed(known)
        if speed is not None and (best is None or len(known) > best[0]):
            best = (len(known), speed)
    if best is not None:
        return best[1]
    return _speed([(poll[0], poll[1]) for poll in track.polls if poll[3] == track.segment])


def _speed(known: list[tuple[object, object]]) -> float | None:
    """Δstep over Δtime of the last run of points in which time does not go back."""
    if len(known) < 2:
        return None
    start = len(known) - 1
    while start > 0 and _float(known[start - 1][0]) <= _float(known[start][0]):
        start -= 1
    took = _float(known[-1][0]) - _float(known[start][0])
    steps = _float(known[-1][1]) - _float(known[start][1])
    return steps / took if took > 0 and steps > 0 else None


def gaps(track: StepTrack) -> tuple[float, ...]:
    """Seconds between advances, by the lines' clock or the bar's; by the times of reading where neither is known.

    Within one reading the moments are unknown, so its time since the one before is shared among its advances.
    """
    found: list[float] = []
    if track.points and track.points[0][1] == 1 and isinstance(track.points[0][3], (int, float)):
        found.append(_float(track.points[0][3]))  # a bar's own time of its first step
    for before, after in zip(track.points, track.points[1:], strict=False):
        if before[0] != after[0]:
            continue
        for clock in (2, 3):
            if isinstance(before[clock], (int, float)) and isinstance(after[clock], (int, float)):
                gap = _float(after[clock]) - _float(before[clock])
                if gap >= 0:
                    found.append(gap)
                break
    if found:
        return tuple(found)
    return tuple(
        (_float(after[0]) - _float(before[0])) / max(1.0, _float(after[2]))
        for before, after in zip(track.polls, track.polls[1:], strict=False)
        if before[3] == after[3] and _float(after[0]) > _float(before[0])
    )


def _float(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
