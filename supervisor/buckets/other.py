"""Whatever no other kind claims (BUCKET-1)."""

from __future__ import annotations

from supervisor.model.rulebook import Kind

KIND = Kind(name="other", title="Other", prefixes=(), needs_step=False, columns=())
