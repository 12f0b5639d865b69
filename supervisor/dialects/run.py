"""The state of a run while its log is followed: readings are merged into it, and it is plain JSON between two looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from supervisor.dialects.bars import BRING_UP, STEPPING, Bars
from supervisor.dialects.heard import Announced, Engines, Timers, TrialCounts
from supervisor.dialects.numbers import wire
from supervisor.dialects.rows import Rows
from supervisor.dialects.steps import Json, StepTrack, mark_of
from supervisor.dialects.vocabulary import outcome_of
from supervisor.model.readings import Reading, ReadingKind

VERSION = 1
State = Mapping[str, object]
KEPT_SCORES = 64
LAG = 64
"""Steps by which a bar's last frame may trail the dict that speaks of a later step (bars are redrawn ten times a second)."""
Part = TypeVar("Part")


@dataclass(slots=True)
class Run:
    """Everything that is remembered of one run. ``dump`` and ``load`` turn it into plain JSON and back."""

    offset: int = 0
    """Bytes taken in, the unfinished last line included."""
    lines: int | None = 0
    """Newlines before the unfinished last line; None once some were never counted."""
    pending: bytes = b""
    skipping: str = ""
    """Why bytes are dropped up to the next line: ``oversized``, ``gap``, or not at all."""
    seen: float | None = None
    """When the newest bytes were read, seconds since 1970."""
    began: int = 0
    """Where in the file following began."""
    clock: float | None = None
    clock_at: int = -1
    """Offset of the line that last bore a clock."""
    blocks: dict[str, Json] = field(default_factory=dict)
    """Printed dicts that have not ended, by speaker."""
    headers: dict[str, int] = field(default_factory=dict)
    dialects: dict[str, int] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    marks: dict[str, Json] = field(default_factory=dict)
    scores: dict[str, object] = field(default_factory=dict)
    track: StepTrack = field(default_factory=StepTrack)
    trial_track: StepTrack = field(default_factory=StepTrack)
    eval_track: StepTrack = field(default_factory=StepTrack)
    rows: Rows = field(default_factory=Rows)
    bars: Bars = field(default_factory=Bars)
    engines: Engines = field(default_factory=Engines)
    timers: Timers = field(default_factory=Timers)
    trials: TrialCounts = field(default_factory=TrialCounts)
    announced: Announced = field(default_factory=Announced)

    # -- between looks -------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, object]:
        """Plain JSON: strings, numbers, lists and objects; what JSON has no word for is a string."""
        state: dict[str, object] = {"version": VERSION}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bytes):
                value = value.decode("latin-1")
            elif each.name in _PARTS:
                value = {part.name: getattr(value, part.name) for part in fields(value)}
            state[each.name] = value
        return state

    @classmethod
    def load(cls, state: State | None) -> Run:
        """The run of a dumped state, which stays as it was. A state of another version is not guessed at: begin anew."""
        if not state or state.get("version") != VERSION:
            return cls()
        run = cls()
        for each in fields(cls):
            value = state.get(each.name, _MISSING)
            if value is _MISSING:
                continue
            if each.name == "pending":
                run.pending = str(value).encode("latin-1")
            elif each.name in _PARTS:
                assert isinstance(value, Mapping)
                setattr(run, each.name, _part(_PARTS[each.name], value))
            else:
                setattr(run, each.name, _copy(value))
        return run

    # -- taking readings in --------------------------------------------------------------------------------------------

    def take(self, reading: Reading, seen: float | None) -> None:
        """Merges one reading. ``seen``: seconds since 1970 (UTC) at which its bytes were read."""
        self.dialects[reading.dialect] = self.dialects.get(reading.dialect, 0) + 1
        if reading.detail and reading.kind in (ReadingKind.STEP, ReadingKind.METRIC) and reading.dialect != "evals":
            self.count("not_numbers", reading.detail.count(",") + 1)
        match reading.kind:
            case ReadingKind.STEP:
                self._step(reading, seen)
            case ReadingKind.METRIC:
                self._metric(reading, seen)
            case ReadingKind.BAR:
                self._bar(reading, seen)
            case ReadingKind.TIMER:
                self.timers.take(reading, seen)
                self._mark("progress", reading, seen)
            case ReadingKind.ENGINE:
                self.engines.take(reading)
                self._mark("engine", reading, seen)
            case ReadingKind.TRIAL:
                self._trial(reading, seen)
            case ReadingKind.HEARTBEAT:
                self._mark("heartbeat", reading, seen)
            case ReadingKind.BANNER:
                self._banner(reading, seen)

    def count(self, what: str, by: int = 1) -> None:
        self.unread[what] = self.unread.get(what, 0) + by

    def _mark(self, name: str, reading: Reading, seen: float | None) -> None:
        self.marks[name] = mark_of(reading, seen)

    def _stepped(self, step: int, reading: Reading, seen: float | None, elapsed_s: float | None = None) -> bool:
        last = self.track.last
        if reading.clock_s is None and self.clock is not None and (last is None or _offset(last) < self.clock_at):
            reading = replace(
                reading, clock_s=self.clock
            )  # the newest clock near by, if there was one since the last step
        news = self.track.reach(step, reading, seen, elapsed_s=elapsed_s)
        if news:
            self._mark("progress", reading, seen)
            if self.in_lap(step) != self.track.total:
                self.announced.moved_on()
        return news

    def in_lap(self, step: int) -> int:
        """The step as the trainer's bar shows it, where the total is that bar's: without the laps before."""
        lap = self.bars.lap
        return step - self.bars.base if lap is not None and self.track.total == lap[3] else step

    def _step(self, reading: Reading, seen: float | None) -> None:
        assert reading.step is not None
        if reading.metrics and not self.rows.named and (self.bars.base or self.bars.numbered):
            self.bars.base, self.bars.lap = 0, None
            self.track.forget()  # bars over an epoch gave the count until now; the run names its own
        self.track.set_total(reading.total, 2)
        highest = self.track.highest
        self._stepped(reading.step, reading, seen, reading.elapsed_s)
        if reading.metrics.get("hidden_nan"):
            self.announced.hidden_nan += 1
        late = self.track.step is not None and reading.step < self.track.step and self.track.back is not None
        if not late and reading.metrics:
            self.rows.named = True
            self.rows.add(reading, reading.step, self.track.segment, highest, seen)

    def _metric(self, reading: Reading, seen: float | None) -> None:
        if reading.label == "score":
            for name, value in reading.metrics.items():
                if name in self.scores or len(self.scores) < KEPT_SCORES:
                    self.scores[name[:200]] = wire(value)
            return
        if reading.metrics.get("hidden_nan"):
            self.announced.hidden_nan += 1
        if reading.label == "status" and self.rows.named:
            return
        segment, highest = self.track.segment, self.track.highest
        if reading.label == "aside":
            self.rows.aside(reading, self.track.step, segment)
        elif reading.step is not None:
            self.rows.add(reading, reading.step, segment, highest, seen)
        elif reading.ahead:
            self.rows.add(reading, (self.track.step or 0) + 1, segment, highest, seen)
        elif reading.label in ("eval", "tally"):
            self.rows.add(reading, self.track.step, segment, highest, seen)
        else:
            self._trainer_dict(reading, seen)

    def _trainer_dict(self, reading: Reading, seen: float | None) -> None:
        """A dict without a step: by its epoch where that is sure, else by the bar's next frame."""
        if self.bars.adopt():
            self.track.set_total(self.bars.nameless, 2)
        shown = self.bars.step
        if self.bars.nameless is not None:
            self.bars.locked = True
        guess = self.rows.step_by_epoch(reading, self.track.total)
        step: int | None = None
        if guess is not None and (guess[1] or shown is None) and (shown is None or guess[0] <= shown + LAG):
            step = guess[0] + self.bars.base
        if step is not None and shown is None and step > 0:
            self._stepped(step, reading, seen)
        fresh = self.rows.add(reading, step, self.track.segment, self.track.highest if step is not None else None, seen)
        if fresh and step is None and shown is not None:
            self.rows.await_pair()
        if shown is None:
            self._mark("progress", reading, seen)

    def _bar(self, reading: Reading, seen: float | None) -> None:
        role, moved, anew = self.bars.take(reading, self.track, seen)
        done = reading.step
        if done is None:
            return
        if self.bars.mistaken(reading, role) and self.track.step == 0:
            self.track.forget()
        if role == "train":
            self.bars.whole = True
        if role in STEPPING or (role == "epoch" and not self.rows.named and not self.bars.whole):
            if role != "stage" and not self.rows.named:
                self.bars.lapped(reading, anew=anew)
            if anew:
                self.track.announce()
            self.track.set_total(reading.total, 2 if role != "epoch" else 1)
            highest, reached = self.track.highest, done + self.bars.base
            if reached > 0 or not self.track.step:  # a bar that begins at 0 may still jump to where the run goes on
                self._stepped(reached, reading, seen, reading.elapsed_s)
            if role == "train":
                self.bars.step = done
                self.rows.pair(reached, self.track.segment)
            if reading.metrics and reached > 0:
                self.rows.add(reading, reached, self.track.segment, highest, seen)
        elif role == "buffer":
            if moved:
                self._mark("progress", reading, seen)
        elif role in ("eval", "trials"):
            if anew:
                self.eval_track.announce()
            self.eval_track.set_total(reading.total, 2)
            if self.eval_track.reach(done, reading, seen, elapsed_s=reading.elapsed_s):
                self._mark("trial", reading, seen)
        if moved and role in BRING_UP:
            self._mark("bring_up", reading, seen)
        if moved and (role == "eval" or (role in BRING_UP and self.track.step)):
            self._mark("progress", reading, seen)  # a trainer that evaluates, saves or loads anew between steps works

    def _trial(self, reading: Reading, seen: float | None) -> None:
        before = self.trials.done
        moved = self.trials.take(reading)
        if moved:
            self._mark("trial", reading, seen)
        event, _, exception = reading.detail.partition(" ")
        ended = event == "completed" or (event == "failed" and outcome_of(exception).group == "expected")
        if (self.trials.done > before and ended) or (moved and event == "progress"):
            self._mark("progress", reading, seen)  # rollouts that end are the work of a step, too; broken ones are none
        if reading.detail == "progress" and reading.step is not None:
            self.trial_track.set_total(reading.total, 3)
            self.trial_track.reach(reading.step, reading, seen, elapsed_s=reading.elapsed_s)
        elif moved and self.trials.shown is None:
            self.trial_track.reach(self.trials.done, reading, seen)

    def _banner(self, reading: Reading, seen: float | None) -> None:
        self.announced.take(reading, seen)
        label, total = reading.label, reading.total
        if label == "total_steps":
            self.track.set_total(total, 1 if reading.detail == "hearsay" else 3)
            if reading.detail != "hearsay":
                self.track.announce()
        elif label == "num_epochs":
            self.rows.epochs = total
        elif label == "num_examples":
            self.rows.examples = total
        elif label == "steps_per_epoch":
            self.rows.per_epoch = total
        elif label == "batch_size":
            self.rows.batch = total
        elif label in ("starts", "from_scratch"):
            self.track.announce()
            if label == "from_scratch" and self.track.step:
                self._resumed_at(0, reading, seen)
        elif label in ("resume", "finished"):
            if label == "resume":
                self.track.announce()
            self.track.set_total(total, 3)
            if reading.step is not None and (label == "resume" or reading.detail == "already complete"):
                self._resumed_at(reading.step, reading, seen)
            elif reading.detail == "max steps" and total is not None and total > (self.track.step or 0):
                self._stepped(total, reading, seen)
            elif reading.detail == "train_runtime":
                self._ran(reading, seen)
        elif label in ("checkpoint", "saving", "generated"):
            self._mark("progress", reading, seen)
            if label != "generated" and reading.step and reading.step > (self.track.step or 0):
                self._stepped(reading.step, reading, seen)  # what is saved at a step has reached it
        if label in ("total_steps", "num_epochs", "starts", "from_scratch", "resume", "ray_up"):
            self._mark("bring_up", reading, seen)

    def _ran(self, reading: Reading, seen: float | None) -> None:
        """The Trainer's last dict: where it names no step, its time and rate do; the epoch is the run's final one."""
        if self.track.step is None and reading.step is not None:
            self.track.set_total(reading.step, 2)
            self._stepped(reading.step, reading, seen)
        elif self.track.step == 0 and self.track.total is not None:
            self._resumed_at(self.track.total, reading, seen)  # a loop that ends without a step had none left to do
        epoch = {name: value for name, value in reading.metrics.items() if name == "epoch"}
        self.rows.latest_of(replace(reading, metrics=epoch), self.track.step, self.track.segment)

    def _resumed_at(self, step: int, reading: Reading, seen: float | None) -> None:
        """The run says at which step it goes on: it stands there, without having made progress."""
        if self.track.step is None:
            self.track.step = self.track.first = self.track.highest = step
        elif step < self.track.step:
            self.track.reach(step, reading, seen)
            self.track.announce()
        elif step > self.track.step:
            self.track.step = step
            self.track.highest = max(step, self.track.highest or 0)


_PARTS: dict[str, type[Any]] = {
    "track": StepTrack, "trial_track": StepTrack, "eval_track": StepTrack, "rows": Rows, "bars": Bars,
    "engines": Engines, "timers": Timers, "trials": TrialCounts, "announced": Announced,
}  # fmt: skip
_MISSING = object()


def _offset(mark: Json) -> int:
    offset = mark["offset"]
    assert isinstance(offset, int)
    return offset


def _part(kind: type[Part], value: Mapping[str, object]) -> Part:
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: _copy(held) for name, held in value.items() if name in known})


def _copy(value: Any) -> Any:
    """A copy of plain JSON, so that the caller's state stays as it was."""
    if isinstance(value, dict):
        return {name: _copy(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_copy(held) for held in value]
    return value


def begun(offset: int = 0, lines: int | None = None) -> dict[str, object]:
    """The state before anything was read. ``offset``: where reading will begin; ``lines``: newlines before it, if counted."""
    run = Run(offset=offset, began=offset, lines=0 if offset == 0 else lines, skipping="gap" if offset else "")
    return run.dump()


def _unquoted(state: Any) -> Any:
    """``state`` with the text of every place and quote taken out; places and times stay."""
    if isinstance(state, Mapping):
        blank = "text" in state and "offset" in state
        return {
            name: "" if blank and name == "text" else _wordless(held) if name in _QUOTED else _unquoted(held)
            for name, held in state.items()
        }
    return [_unquoted(held) for held in state] if isinstance(state, list) else state


_QUOTED = ("said", "last_answered", "last_refused", "last_failed")


def _wordless(said: Any) -> Any:
    """A quote is ``[offset, line, text]``; kept alone, in a list, or by name."""
    if isinstance(said, dict):
        return {name: _wordless(held) for name, held in said.items()}
    if isinstance(said, list) and said and not isinstance(said[0], list):
        return [*said[:2], ""]
    return [_wordless(held) for held in said] if isinstance(said, list) else said


def next_attempt(state: State, offset: int = 0) -> dict[str, object]:
    """The same run in a new file or from a file's start: a new attempt, or a log that was cut or replaced (CHAIN-2).

    Steps, metrics and cadence go on; bars, timers, half lines and line numbers begin anew; the next step may be lower.
    What was said before stays known, but its text stands in another file now: it is no quote any more.
    """
    run = Run.load(_unquoted(state))
    run.offset = run.began = offset
    run.lines, run.pending, run.skipping = (0 if offset == 0 else None), b"", ""
    run.clock, run.clock_at = None, -1
    run.blocks, run.headers = {}, {}
    run.bars.new_attempt()
    run.timers = Timers()
    run.engines = Engines()
    run.rows.unpaired = 0
    run.track.announce()
    run.trial_track.announce()
    run.eval_track.announce()
    run.announced.moved_on()
    run.trials.means = [[*mean[:5], ""] for mean in run.trials.means]  # their text stands in another file
    run.announced.checkpoints = []  # the next attempt may save at another interval
    return run.dump()
