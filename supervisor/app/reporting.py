"""The end of a tick: its report from what was stored, its entry in the day's sweep, and alerts said once (SAY-2 to SAY-5)."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from supervisor.app.agent_logs import AgentLogs
from supervisor.app.settings import Settings
from supervisor.app.sweep import TickDone
from supervisor.app.writing import Writer
from supervisor.buckets import KINDS
from supervisor.reports import status, sweep
from supervisor.reports.monitor import without_removed
from supervisor.store.light import Light

if TYPE_CHECKING:
    from supervisor.store.store import Store


class Reporter:
    """Writes what a tick leaves for people."""

    def __init__(self, writer: Writer, logs: AgentLogs, settings: Settings) -> None:
        self.writer, self.logs, self.settings = writer, logs, settings

    async def report(self, done: TickDone) -> str:
        """Store the report, append the sweep's entry. Raises OSError where the folder cannot be written, StoreError."""
        now = done.finished_at
        text, document = await self.writer.call(lambda store: self._make(store, done, now))
        await self.writer.call(lambda store: store.finish_tick(done.number, now, text, json.dumps(document)))
        await asyncio.to_thread(self.logs.append_sweep, now, text)
        return text

    def _make(self, store: Store, done: TickDone, now: datetime) -> tuple[str, dict[str, Any]]:
        """In the store's thread: one picture of the store, as text and as JSON. Alerts are opened and closed on the way."""
        since = now - timedelta(hours=self.settings.reports.ended_hours)
        with Light.open(self.settings.database_url) as light:
            summary, jobs = light.summary(), light.jobs(ended_after=since)
            holds, waiting, verdicts = light.holds(), light.waiting(), light.verdicts()
        summary = without_removed(summary, now, [each.name for each in done.clusters])
        running = summary.running_tick
        if running is not None and running.number == done.number:
            # In its own report this tick is the last one, though it is marked as finished only together with the report.
            this = running._replace(finished_at=done.finished_at, took_s=done.took_s)
            summary = summary._replace(last_tick=this, running_tick=None)
        jobs = status.one_row_each(jobs, summary.clusters)
        moves = [move for each in done.clusters for move in each.moves]
        said = self._alerts(store, summary, jobs, now)
        document = status.document(summary, jobs, now, waiting=waiting, verdicts=verdicts)
        document["moves"] = [
            {
                "job": str(move.job.ref),
                "before": move.before.phase.value,
                "after": move.after.phase.value,
                "outcome": move.after.outcome.value if move.after.outcome else None,
                "reason": move.read.reason,
            }
            for move in moves
        ]
        incidents = [each for each in store.incidents(since) if each.times > 1]
        document["incidents"] = [
            {"fingerprint": each.fingerprint, "category": each.category, "times": each.times, "jobs": list(each.jobs)}
            for each in incidents
        ]
        number, took, trouble = done.number, done.took_s, done.trouble
        text = sweep.entry(summary, jobs, moves, said, holds, number, now, took, trouble, KINDS, incidents, waiting)
        return text, document

    def _alerts(self, store: Store, summary: Any, jobs: list[Any], now: datetime) -> list[sweep.Said]:
        """The same alert is said once, again when it changes or on the reminder interval, and closed when it clears."""
        standing: dict[tuple[str, str], tuple[str, str]] = {}
        for job in jobs:
            for flag in json.loads(job.flags) if job.flags else ():
                if flag["severity"] != "note":
                    about = (f"{job.cluster}/{job.id} {job.name}", str(flag["rule"]))
                    before_it, said_so_far = standing.get(about, (flag["severity"], ""))
                    worse = "fault" if "fault" in (before_it, flag["severity"]) else before_it
                    standing[about] = (worse, f"{said_so_far}; {flag['text']}" if said_so_far else flag["text"])
        for each in summary.clusters:
            if each.state == "unknown":
                standing[each.name, "POLL-1"] = ("watch", f"unread: {each.reason}")
        remind = timedelta(hours=self.settings.reports.remind_hours)
        said = []
        known = {(alert.subject, alert.key): alert for alert in store.alerts()}
        for (subject, key), (severity, text) in standing.items():
            before = known.pop((subject, key), None)
            alert = store.open_alert(subject, key, severity, text, now)
            why = _why(before, text, now, remind)
            if why is not None:
                said.append(sweep.Said(subject, f"{key} {text}", severity, why))
                store.alert_said(alert.id, now)
        for (subject, _key), alert in known.items():
            store.close_alert(alert.id, now)
            said.append(sweep.Said(subject, f"{alert.key} {alert.text}", alert.severity, "cleared"))
        return said


def _why(before: Any, text: str, now: datetime, remind: timedelta) -> str | None:
    if before is None or before.last_said_at is None:
        return "new"
    if before.text != text:
        return "changed"
    return "reminder" if now - before.last_said_at >= remind else None
