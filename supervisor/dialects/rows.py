"""Metrics by step: each step's first words win, repeats after a resume stay out of the trend, the newest values are kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from supervisor.dialects.hf_trainer import EPOCH_ERROR
from supervisor.dialects.numbers import wire
from supervisor.dialects.quotes import parts_of, shows
from supervisor.dialects.vocabulary import by_key
from supervisor.model.readings import Reading

KEPT_ROWS = 128
KEPT_QUOTES = 12
"""Newest rows whose text is kept, for quotes."""
Json = dict[str, object]


@dataclass(slots=True)
class Rows:
    """The table of steps and metrics. All fields are plain JSON."""

    rows: list[Json] = field(default_factory=list)
    tallest: int | None = None
    """The highest step in the table."""
    latest: dict[str, Json] = field(default_factory=dict)
    """By key: value, step, segment and place of the newest."""
    duplicates: int = 0
    unpaired: int = 0
    """Newest rows without a step that wait for the bar to name it."""
    epochs: int | None = None
    batch: int | None = None
    examples: int | None = None
    per_epoch: int | None = None
    asides: list[str] = field(default_factory=list)
    """Keys whose newest value came from some other program's running text: the trainer's own word ends that."""
    named: bool = False
    """Some line named its step: bare dicts are then repeats of what is known."""

    def add(self, reading: Reading, step: int | None, segment: int, highest: int | None, seen: float | None) -> bool:
        """Takes a reading's metrics in. True if a value was new."""
        values = {key: wire(value) for key, value in by_key(reading.metrics).items()}
        if not values:
            return False
        held = self._row_of(step)
        if held is not None and held["segment"] == segment:
            return self._merge(held, values, reading, seen)
        again = held is not None or (
            step is not None and highest is not None and step <= highest and self._older(step, segment)
        )
        row: Json = {
            "step": step,
            "segment": segment,
            "again": again,
            "values": values,
            "clock": reading.clock_s,
            "seen": seen,
            "said": _quotes(reading),
        }
        self.rows.append(row)
        if step is not None:
            self.tallest = step if self.tallest is None else max(step, self.tallest)
        if len(self.rows) > KEPT_QUOTES:
            old = self.rows[-KEPT_QUOTES - 1]
            said = old["said"]
            assert isinstance(said, list)
            if said and said[0][2]:
                self.rows[-KEPT_QUOTES - 1] = {**old, "said": [[said[0][0], said[0][1], ""]]}
        del self.rows[:-KEPT_ROWS]
        self._remember(row, values)
        return True

    def latest_of(self, reading: Reading, step: int | None, segment: int) -> None:
        """Takes newest values in that are no point of a series."""
        values = {key: wire(value) for key, value in by_key(reading.metrics).items()}
        row: Json = {"step": step, "segment": segment, "clock": reading.clock_s, "said": _quotes(reading)}
        self._remember(row, values)

    def aside(self, reading: Reading, step: int | None, segment: int) -> None:
        """Takes in what was said beside the trainer, as long as the trainer says nothing of it."""
        keys = by_key(reading.metrics)
        if all(key in self.asides or key not in self.latest for key in keys):
            self.latest_of(reading, step, segment)
            self.asides = sorted({*self.asides, *keys})

    def _row_of(self, step: int | None) -> Json | None:
        if step is None or not self.rows:
            return None
        if self.tallest is None or step > self.tallest:
            return None
        return next((row for row in reversed(self.rows) if row["step"] == step), None)

    def _older(self, step: int, segment: int) -> bool:
        """Whether a step that is not in the table was passed before, in a part of the run that has left it."""
        return segment > 0 and all(
            not isinstance(row["step"], int) or row["step"] > step for row in self.rows if not row["again"]
        )

    def _merge(self, row: Json, values: dict[str, float | str], reading: Reading, seen: float | None) -> bool:
        held = row["values"]
        assert isinstance(held, dict)
        fresh = {key: value for key, value in values.items() if key not in held}
        if len(fresh) < len(values):
            self.duplicates += 1
        if not fresh:
            return False
        place = self.rows.index(row)
        said = row["said"]
        assert isinstance(said, list)
        quoted = said + _quotes(reading) if len(self.rows) - place <= KEPT_QUOTES else said
        changed: Json = {
            **row,
            "values": {**held, **fresh},
            "clock": row["clock"] if row["clock"] is not None else reading.clock_s,
            "said": quoted[:KEPT_ROWS],
        }
        self.rows[place] = changed
        self._remember(changed, fresh, reading)
        return True

    def _remember(self, row: Json, values: dict[str, float | str], reading: Reading | None = None) -> None:
        said = row["said"] if reading is None else _quotes(reading)
        assert isinstance(said, list)
        self.asides = [key for key in self.asides if key not in values]
        for key, value in values.items():
            before = self.latest.get(key)
            if before is not None and before["segment"] == row["segment"]:
                known, new = before["step"], row["step"]
                if isinstance(known, int) and isinstance(new, int) and new < known:
                    continue
            self.latest[key] = {
                "value": value, "step": row["step"], "segment": row["segment"],
                "clock": row["clock"], "said": _showing(said, key),
            }  # fmt: skip

    # -- steps for lines that name none (the Trainer's dicts) ----------------------------------------------------------

    def steps_per_epoch(self, total: int | None) -> float | None:
        """Optimiser steps in one epoch, as far as the banner tells; None where its numbers disagree."""
        if self.per_epoch:
            return float(self.per_epoch)
        by_batch = math.ceil(self.examples / self.batch) if self.examples and self.batch else None
        if total and self.epochs and total % self.epochs == 0:
            even = total // self.epochs
            if by_batch is None or abs(even - by_batch) <= 1:
                return float(even)
        return float(by_batch) if by_batch else None

    def step_by_epoch(self, reading: Reading, total: int | None) -> tuple[int, bool] | None:
        """The step that a printed epoch stands for, and whether its digits suffice to be sure."""
        epoch, per_epoch = reading.metrics.get("epoch"), self.steps_per_epoch(total)
        if epoch is None or per_epoch is None or not math.isfinite(epoch) or epoch < 0:
            return None
        return round(epoch * per_epoch), reading.metrics.get(EPOCH_ERROR, 0.005) * per_epoch < 0.5

    def await_pair(self) -> None:
        """The newest row waits for the bar's next frame. With a second one waiting, output came late and none is paired."""
        self.unpaired += 1

    def pair(self, step: int, segment: int) -> None:
        """The bar's next frame after a printed dict shows the step that the dict speaks of."""
        waiting, self.unpaired = self.unpaired, 0
        if waiting != 1 or not self.rows or self.rows[-1]["step"] is not None or step <= 0:
            return
        newest = self.rows[-1]
        known = self._row_of(step)
        changed: Json = {**newest, "step": step, "again": bool(newest["again"]) or known is not None}
        self.rows[-1] = changed
        self.tallest = step if self.tallest is None else max(step, self.tallest)
        values = newest["values"]
        assert isinstance(values, dict)
        for key in values:
            held = self.latest.get(key)
            if held is not None and held["step"] is None and held["clock"] == newest["clock"]:
                self.latest[key] = {**held, "step": step, "segment": segment}


def _quotes(reading: Reading) -> list[list[object]]:
    return [[spoken.offset, spoken.line, spoken.text] for spoken in parts_of(reading)]


def _showing(said: list[list[object]], key: str) -> list[list[object]]:
    """Of the quoted parts, the one that shows a metric; all of them where none is known to."""
    if len(said) <= 1:
        return said
    return next(([part] for part in said if shows(str(part[2]), key) >= 0), said[:1])
