"""Whatever no other kind claims (BUCKET-1): consolidation, tokenising, uploads, image builds, smoke tests. One line each."""

from __future__ import annotations

from supervisor.model.kinds import Kind

KIND = Kind(
    name="other",
    title="Other",
    prefixes=(),
    words=("consolidate", "pretokenize", "tokenize", "upload", "smoke", "ci", "probe"),
    needs_step=False,
    cadence="as it likes: its own gaps between outputs count",
)
