"""Is the monitor itself well? (LIVE-8). Judged from what it left in the store, so that it is said even when it is dead."""

from __future__ import annotations

from datetime import datetime, timedelta

from supervisor.reports.text import span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

BEAT_LIMIT = timedelta(seconds=60)
"""A daemon gives a sign of life every 15 s; four missed ones make it dead."""


def monitor_state(summary: Any, now: datetime, gone: bool = False) -> tuple[str, str | None]:
    """(``ok``, ``late``, ``dead`` or ``never``, why). ``gone``: its process is known not to run any more.

    A daemon that keeps no schedule (``--once`` from cron) is judged by the age of its last tick alone.
    """
    beats, last = summary.heartbeats, summary.last_tick
    if not beats and last is None:
        return "never", "no tick has been made yet; is the daemon running?"
    beat = beats[0] if beats else None
    interval = timedelta(seconds=beat.interval_s) if beat else timedelta(minutes=15)
    daemon = beat is not None and beat.next_tick_at is not None
    if beat is not None and daemon and (gone or now - beat.beat_at > BEAT_LIMIT):
        age = span((now - beat.beat_at).total_seconds())
        how = "does not run any more; its" if gone else "gave no sign for a while; its"
        return "dead", f"the daemon on {beat.host} (pid {beat.pid}) {how} last sign of life was {age} ago"
    if last is None or last.finished_at is None:
        return "late", "the first tick has not finished yet"
    age = now - last.finished_at
    if age > interval * 1.5 + timedelta(seconds=60):
        state = "late" if daemon else "dead"
        return (
            state,
            f"the last tick finished {span(age.total_seconds())} ago; one is due every {span(interval.total_seconds())}",
        )
    if beat is not None and beat.trouble:
        return "late", beat.trouble
    unread = [each for each in summary.clusters if each.state == "unknown" and each.failed_polls >= 2]
    if unread:
        return "late", "; ".join(f"{each.name} unread in {each.failed_polls} polls: {each.reason}" for each in unread)
    return "ok", None


def stale_after(summary: Any) -> timedelta:
    """Age of a reading beyond which it is not shown as the present: two intervals and a minute."""
    beat = summary.heartbeats[0] if summary.heartbeats else None
    return timedelta(seconds=beat.interval_s if beat else 900) * 2 + timedelta(seconds=60)


def without_removed(summary: Any, now: datetime, configured: Collection[str]) -> Any:
    """``summary`` without what nobody asks any more: clusters that are not ``configured`` and were last asked two intervals ago.

    Another daemon's cluster, on a shared database, is asked. Where jobs of a removed one were still living, it stays, as UNKNOWN.
    """
    limit = stale_after(summary)
    clusters = []
    for each in summary.clusters:
        if each.name in configured or (each.polled_at is not None and now - each.polled_at <= limit):
            clusters.append(each)
        elif each.jobs_live:
            reason = "it is not in the config any more, so nobody reads it"
            hint = "put it back to hear how its jobs ended"
            clusters.append(each._replace(state="unknown", reason=reason, hint=hint, failed_polls=0))
    return summary._replace(clusters=clusters)


def as_known_now(summary: Any, now: datetime) -> Any:
    """``summary`` with each cluster as UNKNOWN that was not read for long: held up, or removed (POLL-1, LIVE-1)."""
    limit = stale_after(summary)
    clusters = []
    for each in summary.clusters:
        old = each.last_good_at is not None and now - each.last_good_at > limit
        if each.state == "ok" and old:
            reason = "nobody reads it: not in the config any more, or its poll does not come to an end"
            clusters.append(each._replace(state="unknown", reason=reason))
        else:
            clusters.append(each)
    return summary._replace(clusters=clusters)
