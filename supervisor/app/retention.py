"""The config's retention in the store's words."""

from __future__ import annotations

from datetime import timedelta

from supervisor.app.settings import Settings
from supervisor.store.entries import Keep


def keep_of(settings: Settings) -> Keep:
    """How long each thing that may go is kept."""
    kept = settings.retention
    return Keep(
        measurements_hourly=timedelta(days=kept.measurements_days),
        polls=timedelta(days=kept.polls_days),
        ticks_daily=timedelta(days=kept.reports_days),
    )
