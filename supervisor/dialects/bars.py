"""Progress bars of a run: which one is the trainer's, and which stand still (LIVE-3)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from supervisor.dialects.steps import Json, StepTrack, mark_of
from supervisor.model.readings import Reading

KEPT_BARS = 24
BRING_UP = frozenset({"data", "other"})
STEPPING = frozenset({"train", "stage"})
_NUMBER = re.compile(r"epoch\W{0,3}(\d{1,6})", re.I)


@dataclass(slots=True)
class Bars:
    """Counters by description and total. All fields are plain JSON."""

    bars: dict[str, Json] = field(default_factory=dict)
    nameless: int | None = None
    """Total of the descriptionless bar that is taken for the trainer's."""
    nameless_done: int = 0
    nested: bool = False
    """It is drawn below another bar."""
    locked: bool = False
    """The trainer's own dicts were printed under that bar: no other can take its place."""
    next: list[int] | None = None
    """[done, total] of a nameless bar that came after that one was full: the trainer's if its dicts follow (a second stage)."""
    step: int | None = None
    """Where the trainer's bar stands."""
    whole: bool = False
    """There is a bar over all of training: those over an epoch count nothing of their own."""
    base: int = 0
    """Steps of the laps before the trainer's present bar: one that was full and begins again is the next epoch or stage."""
    lap: list[object] | None = None
    """[label's stem, number in the label, done, total] of the trainer's bar when it was last seen."""

    @property
    def numbered(self) -> bool:
        """The trainer's bar is one of several (``Epoch 3``), and how many there are is not told."""
        return self.lap is not None and self.lap[1] is not None

    def take(self, reading: Reading, track: StepTrack, seen: float | None) -> tuple[str, bool, bool]:
        """(role, whether its count moved, whether it began anew). A nameless bar's role is judged here."""
        done, total = reading.step, reading.total
        role, _, more = reading.detail.partition(" ")
        if done is None:
            return role or "other", False, False
        if not role:
            role = self._judge(done, total, track, nested="nested" in more)
        moved, anew = self._count(role, reading, done, seen)
        return role, moved, anew or ("fresh" in more and role in STEPPING and anew)

    def lapped(self, reading: Reading, *, anew: bool) -> None:
        """Counts the laps before this one: by the number in the label (``Epoch 3``), else by a full bar that begins again."""
        done, total = reading.step, reading.total
        if done is None or total is None or "part" in reading.detail:
            return
        found = _NUMBER.search(reading.label)
        number = int(found[1]) if found is not None else None
        before, self.lap = self.lap, [_stem(reading.label), number, done, total]
        if before is None or before[0] != self.lap[0]:
            return
        _, last, stood, whole = before
        assert isinstance(stood, int) and isinstance(whole, int)
        if isinstance(last, int) and number is not None:
            self.base = max(0, self.base + (number - last) * whole)
        elif anew and stood >= whole and done < total / 2:
            self.base += whole

    def mistaken(self, reading: Reading, role: str) -> bool:
        """Whether a nameless bar that never moved was this described one, which had no name yet in its first frame."""
        if role in STEPPING or not reading.label or self.nameless is None or self.locked or self.nameless_done:
            return False
        if reading.step != 0 or reading.total != self.nameless:
            return False
        self.nameless, self.step = None, None
        return True

    def adopt(self) -> bool:
        """The trainer's dicts were printed under the next nameless bar: it is the trainer's from here on."""
        if self.next is None or self.nameless is None:
            return False
        done, total = self.next
        self.base += self.nameless
        self.lap = ["", None, done, total]
        self.nameless, self.nameless_done, self.step, self.next = total, done, done, None
        return True

    def _judge(self, done: int, total: int | None, track: StepTrack, *, nested: bool) -> str:
        """A bar without a description: the trainer's if its total is the one that its banner named, or if it came first.

        ``nested``: drawn below another bar; such a one is an evaluation's beside a trainer's bar that is not.
        """
        if self.nameless is not None and nested and not self.nested:
            return "other"
        if self.nameless is None:
            self.nested = nested
        if track.total_rank >= 3 and track.total is not None:
            if total == track.total:
                self.nameless, self.nameless_done, self.locked = total, done, True
                return "train"
            return "other"
        if self.nameless is None or total == self.nameless:
            self.nameless, self.nameless_done, self.next = total, done, None
            return "train"
        if self.locked or self.nameless_done < self.nameless:
            if self.nameless_done >= self.nameless and total is not None:
                self.next = [done, total]
            return "other"
        self.nameless, self.nameless_done = total, done
        return "train"

    def _count(self, role: str, reading: Reading, done: int, seen: float | None) -> tuple[bool, bool]:
        key = f"{role}|{_stem(reading.label)}|{reading.speaker}|{reading.rank}|{reading.total}"
        held = self.bars.pop(key, None)
        mark = mark_of(reading, seen)
        moved = held is None or held["done"] != done
        elapsed = reading.elapsed_s
        anew = False
        if held is not None:
            before_elapsed = held["elapsed"]
            went_back = isinstance(held["done"], int) and done < held["done"]
            ran_back = isinstance(before_elapsed, float) and elapsed is not None and elapsed < before_elapsed / 2
            anew = went_back and (ran_back or not elapsed)
        if held is None or moved:
            entry: Json = {
                "role": role, "label": reading.label, "done": done, "total": reading.total, "elapsed": elapsed,
                "since": mark, "since_elapsed": elapsed, "latest": mark, "frames": 1,
            }  # fmt: skip
        else:
            frames = held["frames"]
            entry = {**held, "elapsed": elapsed, "latest": mark, "frames": frames + 1 if isinstance(frames, int) else 1}
        self.bars[key] = entry
        while len(self.bars) > KEPT_BARS:
            self.bars.pop(next(iter(self.bars)))
        return moved and (held is not None or done > 0), anew or (held is None and not elapsed)

    def new_attempt(self) -> None:
        """Laps go on: an attempt that resumes begins in a later one, and the number in its label says in which."""
        self.bars.clear()
        self.nameless, self.nameless_done, self.locked, self.next, self.step = None, 0, False, None, None
        self.whole = False


@lru_cache(maxsize=1024)
def _stem(label: str) -> str:
    """A description without its changing numbers, so that ``Epoch 3`` and ``Epoch 4`` are one bar."""
    return "".join("#" if char.isdigit() else char for char in label)[:60]
