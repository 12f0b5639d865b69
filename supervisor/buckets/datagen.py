"""Trace generation (DATAGEN-1)."""

from __future__ import annotations

from supervisor.model.kinds import Kind, Shown

KIND = Kind(
    name="datagen",
    title="Datagen",
    prefixes=("datagen__", "datagen-", "datagen_"),
    words=("datagen", "tracegen"),
    commands=("datagen", "generate_traces", "tracegen", "trace_gen"),
    needs_step=False,
    columns=(
        Shown(title="Chunks", cell="pair", key="chunks_done", of="chunks_total"),
        Shown(title="Trials", cell="steps", key="trials"),
        Shown(title="avg_turns", cell="metric", key="avg_turns"),
        Shown(title="Mean", cell="metric", key="mean"),
        Shown(title="exc%", cell="percent", key="exc_rate"),
    ),
    trend="mean",
    cadence="a trial ends every few seconds to minutes, over all that run at once",
    ladder="datagen",
)
