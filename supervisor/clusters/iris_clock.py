"""An iris controller's clock against ours (POLL-10)."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta

from supervisor.model.job import Observation

_CLOCK_DOUBT_S = 1.5
"""A server's Date has whole seconds."""


class Clock:
    """Our clock from the moment a poll began, and the controller's from its own answers (POLL-10)."""

    def __init__(self, now: datetime) -> None:
        self._now, self._began = now, time.monotonic()
        self.offset = timedelta(0)
        """Theirs minus ours."""

    def ours(self) -> datetime:
        return self._now + timedelta(seconds=time.monotonic() - self._began)

    def heard(self, date: tuple[float, float] | None) -> None:
        if date is None:
            return
        ours = self._now.timestamp() + date[1] - self._began
        apart = date[0] + 0.5 - ours
        self.offset = timedelta(0) if abs(apart) < _CLOCK_DOUBT_S else timedelta(seconds=round(apart))

    def corrected(self, one: Observation) -> Observation:
        """Times of the controller's clock turned into ours."""
        if not self.offset:
            return one
        return replace(
            one,
            submitted_at=one.submitted_at - self.offset if one.submitted_at else None,
            started_at=one.started_at - self.offset if one.started_at else None,
            ended_at=one.ended_at - self.offset if one.ended_at else None,
        )
