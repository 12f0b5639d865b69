"""Trace generation (DATAGEN-1)."""

from __future__ import annotations

from supervisor.model.rulebook import Kind

KIND = Kind(
    name="datagen",
    title="Datagen",
    prefixes=("datagen__", "datagen-", "datagen_"),
    needs_step=False,
    columns=("chunks_done", "trials", "avg_turns", "mean", "exc_rate"),
)
