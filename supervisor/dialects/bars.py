"""Progress bars of a run: which one is the trainer's, and which stand still (LIVE-3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from supervisor.dialects.steps import Json, StepTrack, mark_of
from supervisor.model.readings import Reading

KEPT_BARS = 24
BRING_UP = frozenset({"data", "other"})
STEPPING = frozenset({"train", "stage"})


@dataclass(slots=True)
class Bars:
    """Counters by description and total. All fields are plain JSON."""

    bars: dict[str, Json] = field(default_factory=dict)
    nameless: int | None = None
    """Total of the descriptionless bar that is taken for the trainer's."""
    nameless_done: int = 0
    locked: bool = False
    """The trainer's own dicts were printed under that bar: no other can take its place."""
    step: int | None = None
    """Where the trainer's bar stands."""

    def take(self, reading: Reading, track: StepTrack, seen: float | None) -> tuple[str, bool, bool]:
        """(role, whether its count moved, whether it began anew). A nameless bar's role is judged here."""
        done, total = reading.step, reading.total
        role, _, fresh_word = reading.detail.partition(" ")
        if done is None:
            return role or "other", False, False
        if not role:
            role = self._judge(done, total, track)
        moved, anew = self._count(role, reading, done, seen)
        return role, moved, anew or (bool(fresh_word) and role in STEPPING and anew)

    def _judge(self, done: int, total: int | None, track: StepTrack) -> str:
        """A bar without a description: the trainer's if its total is the one that its banner named, or if it came first."""
        if track.total_rank >= 3 and track.total is not None:
            if total == track.total:
                self.nameless, self.nameless_done, self.locked = total, done, True
                return "train"
            return "other"
        if self.nameless is None or total == self.nameless:
            self.nameless, self.nameless_done = total, done
            return "train"
        if self.locked or self.nameless_done < self.nameless:
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
            ran_back = isinstance(before_elapsed, float) and elapsed is not None and elapsed < before_elapsed - 1
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
        self.bars.clear()
        self.nameless, self.nameless_done, self.locked, self.step = None, 0, False, None


@lru_cache(maxsize=1024)
def _stem(label: str) -> str:
    """A description without its changing numbers, so that ``Epoch 3`` and ``Epoch 4`` are one bar."""
    return "".join("#" if char.isdigit() else char for char in label)[:60]
