"""The tables. What is asked for by SQL is a column; what is only read back whole is one JSON text beside it.

``migrations/`` makes the same database step by step; a test compares the two on both engines.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

from supervisor.store.times import from_us_or_none, to_us

metadata = sa.MetaData()


class Utc(TypeDecorator[datetime]):
    """Aware UTC time as microseconds since 1970. Naive times are refused."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> int | None:
        return None if value is None else to_us(value)

    def process_result_value(self, value: int | None, dialect: sa.Dialect) -> datetime | None:
        return from_us_or_none(value)


RowId = sa.BigInteger().with_variant(sa.Integer, "sqlite")
"""SQLite numbers rows by itself only where the type is spelled INTEGER."""


def _must(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def _may(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=True)


def _of_job(*, key: bool = False, optional: bool = False) -> sa.Column[Any]:
    return sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), primary_key=key, nullable=optional)


_JUDGED = sa.text("verdict IS NOT NULL AND closed_at IS NULL")
_UNSETTLED = sa.text("state IN ('open', 'approved')")

cluster = sa.Table(
    "cluster",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    _must("kind", sa.Text),
    _must("state", sa.Text),
    _may("polled_at", Utc),
    _may("last_good_at", Utc),
    _may("ended_since", Utc),
    _may("reason", sa.Text),
    _may("hint", sa.Text),
    _must("failed_polls", sa.BigInteger),
    _must("jobs_live", sa.BigInteger),
    _may("inodes_used", sa.BigInteger),
    _may("inodes_soft", sa.BigInteger),
    _may("bytes_used", sa.BigInteger),
    _may("bytes_soft", sa.BigInteger),
    _must("clock_offset_s", sa.Double),
    _may("version", sa.Text),
    _must("source", sa.Text),
    _may("took_s", sa.Double),
)

job = sa.Table(
    "job",
    metadata,
    sa.Column("id", RowId, primary_key=True),
    _must("cluster", sa.Text),
    _must("job_id", sa.Text),
    _must("incarnation", sa.Text),
    _must("version", sa.BigInteger),  # counts the writes; a writer that read an older one is refused
    _must("mark", sa.BigInteger),  # digest of the fields whose change makes a row of history
    _must("changed_at", Utc),
    _must("changed_tick", sa.BigInteger),
    _must("name", sa.Text),
    _may("user_name", sa.Text),
    _must("bucket", sa.Text),
    _must("phase", sa.Text),
    _must("since", Utc),
    _must("attempt", sa.BigInteger),
    _may("outcome", sa.Text),
    _may("closed_at", Utc),  # when it was first held as ended; empty while it lives
    _must("state", sa.Text),
    _must("scheduler_state", sa.Text),
    _may("scheduler_reason", sa.Text),
    _may("submitted_at", Utc),
    _may("started_at", Utc),
    _may("ended_at", Utc),
    _may("time_limit_s", sa.Double),
    _may("account", sa.Text),
    _may("partition", sa.Text),
    _may("group_id", sa.Text),
    _must("group_size", sa.BigInteger),
    _may("nodes", sa.Text),  # JSON list; empty where none are known
    _may("node_count", sa.BigInteger),
    _may("exit_code", sa.BigInteger),
    _may("signal", sa.BigInteger),
    _must("log_state", sa.Text),
    _may("log_path", sa.Text),
    _may("log_reason", sa.Text),
    _may("last_output_at", Utc),
    _may("cadence_s", sa.Double),
    _may("step", sa.BigInteger),
    _may("total", sa.BigInteger),
    _may("progress_at", Utc),
    _may("flags", sa.Text),  # JSON list as in the contract; empty where none stand
    _may("worst", sa.Text),  # severity of the worst flag
    _may("predecessor", sa.Text),
    _may("successor", sa.Text),
    _may("first_seen_at", Utc),
    _may("look_at", Utc),
    _may("metrics", sa.Text),  # JSON object: what its output says of its run (newest metrics, rate, series)
    _may("diagnosis", sa.Text),  # JSON object: the newest diagnosis, in short
    _must("body", sa.Text),  # JSON: all that is held, whole
    _may("verdict", sa.BigInteger),  # its newest verdict; written by those who rule
    sa.UniqueConstraint("cluster", "job_id", "incarnation", name="job_key"),
    sa.Index("job_shown", "closed_at", "bucket", "cluster", "name"),
    sa.Index("job_counted", "bucket", "phase", "worst"),
    sa.Index("job_flagged", "worst", "closed_at"),
    sa.Index("job_by_id", "job_id"),
    sa.Index("job_judged", "cluster", sqlite_where=_JUDGED, postgresql_where=_JUDGED),
)

change = sa.Table(
    "change",
    metadata,
    _of_job(key=True),
    sa.Column("until", Utc, primary_key=True),
    _must("since", Utc),
    _must("tick", sa.BigInteger),
    _must("attempt", sa.BigInteger),
    _must("phase", sa.Text),
    _may("outcome", sa.Text),
    _must("state", sa.Text),
    _must("scheduler_state", sa.Text),
    _may("scheduler_reason", sa.Text),
    _may("node_count", sa.BigInteger),
    sqlite_with_rowid=False,
)
"""What a job looked like before it looked as it does now; ``tick`` is the one that first saw it so."""

transition = sa.Table(
    "transition",
    metadata,
    _of_job(key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),  # from 1, in the job's life
    _must("at", Utc),
    _must("tick", sa.BigInteger),
    _must("before", sa.Text),
    _must("after", sa.Text),
    _must("attempt", sa.BigInteger),
    _may("outcome", sa.Text),
    _must("sign", sa.Text),
    _must("reason", sa.Text),
    _must("body", sa.Text),  # JSON: the whole step with its evidence
    sa.Index("transition_at", "at"),
)

attempt = sa.Table(
    "attempt",
    metadata,
    _of_job(key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    _must("state", sa.Text),
    _may("started_at", Utc),
    _may("ended_at", Utc),
    _may("exit_code", sa.BigInteger),
    _may("signal", sa.BigInteger),
    _must("body", sa.Text),  # JSON: the observation
)

poll = sa.Table(
    "poll",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("at", Utc, primary_key=True),
    _must("tick", sa.BigInteger),
    _must("good", sa.Boolean),
    _must("listed", sa.BigInteger),
    _must("changed", sa.BigInteger),
    _may("reason", sa.Text),
    sqlite_with_rowid=False,
)
"""Proof that no change means nothing changed, not that nobody looked."""

tick = sa.Table(
    "tick",
    metadata,
    sa.Column("number", RowId, primary_key=True),
    _must("daemon", sa.Text),
    _must("started_at", Utc),
    _may("finished_at", Utc),
    _may("took_s", sa.Double),
    _may("report", sa.LargeBinary),  # zstd
    _may("document", sa.LargeBinary),  # zstd
    sa.Index("tick_started", "started_at"),
)

errand = sa.Table(
    "errand",
    metadata,
    sa.Column("id", RowId, primary_key=True),
    _must("kind", sa.Text),
    _may("cluster", sa.Text),
    _of_job(optional=True),
    _must("payload", sa.Text),  # JSON object
    sa.Column("dedupe", sa.Text, nullable=False, unique=True),
    _must("queued_at", Utc),
    _must("due_at", Utc),  # may be claimed from then on; while claimed: end of the lease
    _may("owner", sa.Text),
    _must("tries", sa.BigInteger),
    _may("finished_at", Utc),
    _may("error", sa.Text),  # of the last try; on a finished errand: given up because of it
    sa.Index("errand_due", "finished_at", "due_at"),
)

request = sa.Table(
    "request",
    metadata,
    sa.Column("id", RowId, primary_key=True),
    _must("kind", sa.Text),
    _must("asked_by", sa.Text),
    _must("asked_at", Utc),
    _must("payload", sa.Text),  # JSON object
    _may("answered_at", Utc),
    _may("result", sa.Text),
    sa.Index("request_open", "answered_at", "kind"),
)

hold = sa.Table(
    "hold",
    metadata,
    sa.Column("id", RowId, primary_key=True),
    _must("scope", sa.Text),
    _must("target", sa.Text),
    _must("reason", sa.Text),
    _must("held_by", sa.Text),
    _must("since", Utc),
    _may("lifted_at", Utc),
    _may("lifted_by", sa.Text),
    sa.Index("hold_standing", "lifted_at"),
)

alert = sa.Table(
    "alert",
    metadata,
    sa.Column("id", RowId, primary_key=True),
    _must("subject", sa.Text),
    _must("key", sa.Text),
    _must("severity", sa.Text),
    _must("text", sa.Text),
    _must("opened_at", Utc),
    _may("last_said_at", Utc),
    _may("last_said_text", sa.Text),
    _must("times_said", sa.BigInteger),
    _may("closed_at", Utc),
    sa.Index(
        "alert_open",
        "subject",
        "key",
        unique=True,
        sqlite_where=sa.text("closed_at IS NULL"),
        postgresql_where=sa.text("closed_at IS NULL"),
    ),
    sa.Index("alert_closed", "closed_at"),
)

lease = sa.Table(
    "lease",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    _must("owner", sa.Text),
    _must("until", Utc),
)

heartbeat = sa.Table(
    "heartbeat",
    metadata,
    sa.Column("daemon", sa.Text, primary_key=True),
    _must("host", sa.Text),
    _must("pid", sa.BigInteger),
    _must("version", sa.Text),
    _must("started_at", Utc),
    _must("beat_at", Utc),
    _must("interval_s", sa.Double),
    _may("next_tick_at", Utc),
    _may("trouble", sa.Text),
)

log_cursor = sa.Table(
    "log_cursor",
    metadata,
    _of_job(key=True),
    sa.Column("path", sa.Text, primary_key=True),
    _must("device", sa.Text),  # as text: device and inode numbers may need all 64 bits without a sign
    _must("inode", sa.Text),
    _must("read_to", sa.BigInteger),
    _may("lines", sa.BigInteger),
    _must("head", sa.Text),
    _must("kept", sa.Text),
    _must("kept_from", sa.BigInteger),
    _may("kept_from_line", sa.BigInteger),
    _must("state", sa.Text),  # JSON object
    _may("bookmark", sa.Text),  # the backend's own, where bytes alone do not tell how far it read
)

metric = sa.Table(
    "metric",
    metadata,
    sa.Column("id", RowId, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
)

measurement = sa.Table(
    "measurement",
    metadata,
    _of_job(key=True),
    sa.Column("metric", sa.BigInteger, sa.ForeignKey("metric.id"), primary_key=True),
    sa.Column("at", Utc, primary_key=True),
    sa.Column("step", sa.BigInteger, primary_key=True),  # -1 where it belongs to no step
    _may("value", sa.Double),  # empty stands for NaN, which SQLite cannot hold
    sa.Index("measurement_at", "at"),
    sqlite_with_rowid=False,
)

diagnosis = sa.Table(
    "diagnosis",
    metadata,
    _of_job(key=True),
    sa.Column("attempt", sa.BigInteger, primary_key=True),
    _must("at", Utc),
    _may("fingerprint", sa.Text),
    _must("category", sa.Text),
    _must("document", sa.Text),  # JSON object as in the contract
    sa.Index("diagnosis_fingerprint", "fingerprint", "at"),
)

verdict = sa.Table(
    "verdict",
    metadata,
    sa.Column("id", RowId, primary_key=True),
    sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), nullable=False),
    _must("attempt", sa.BigInteger),
    _must("taken_at", Utc),
    _must("stored_at", Utc),
    _must("ruling", sa.Text),
    _must("confidence", sa.Text),
    _must("cause", sa.Text),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    _may("setting", sa.Text),
    _must("passed", sa.Boolean),
    _must("wedged", sa.Boolean),
    _must("judge", sa.Text),
    _must("evidence", sa.Text),  # the folder
    _must("silence_key", sa.Text),
    _may("no_proposal", sa.Text),  # why none was made of it
    _may("step", sa.BigInteger),  # how far the job was
    _must("reason", sa.Text),  # of the gate that decided
    _must("standing", sa.Text),  # JSON: its quotes and mark, what the next tick's rules need of it
    _must("body", sa.Text),  # JSON in ASCII: the whole verdict, to the byte, for its digest is taken of it
    sa.Index("verdict_job", "job", "id"),
    sa.Index("verdict_taken", "taken_at"),
)
"""Kept for ever, as proposals and decisions are (house, idea 6)."""

proposal = sa.Table(
    "proposal",
    metadata,
    sa.Column("id", RowId, primary_key=True),
    sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), nullable=False),
    _must("incarnation", sa.Text),  # of the attempt: the job's own moves on with a requeue
    _must("attempt", sa.BigInteger),
    sa.Column("verdict", sa.BigInteger, sa.ForeignKey("verdict.id"), nullable=False, unique=True),
    _must("digest", sa.Text),
    _must("cause", sa.Text),
    _must("confidence", sa.Text),
    _must("silence_key", sa.Text),
    _must("state", sa.Text),
    _must("made_at", Utc),
    _must("expires_at", Utc),
    _may("settled_at", Utc),
    _may("settled_by", sa.Text),
    _may("why", sa.Text),
    sa.Index("proposal_unsettled", "job", "attempt", unique=True, sqlite_where=_UNSETTLED, postgresql_where=_UNSETTLED),
    sa.Index("proposal_silence", "silence_key"),
)

decision = sa.Table(
    "decision",
    metadata,
    sa.Column("id", RowId, primary_key=True),
    sa.Column("proposal", sa.BigInteger, sa.ForeignKey("proposal.id"), nullable=False, unique=True),
    sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), nullable=False),
    _must("incarnation", sa.Text),
    _must("attempt", sa.BigInteger),
    sa.Column("verdict", sa.BigInteger, sa.ForeignKey("verdict.id"), nullable=False),
    _must("digest", sa.Text),
    _must("approved_by", sa.Text),
    _may("role", sa.Text),
    _must("reason", sa.Text),
    _must("approved_at", Utc),
    _must("expires_at", Utc),
    _must("mode", sa.Text),
    _must("stage", sa.Text),
    _may("intended_at", Utc),
    _may("sent_at", Utc),
    _may("accepted", sa.Boolean),
    _may("output", sa.Text),
    _may("finished_at", Utc),
    _may("why", sa.Text),
    sa.Index("decision_job", "job"),
    sa.Index("decision_intended", "intended_at"),
    sa.Index("decision_by", "approved_by", "approved_at"),
)

setting = sa.Table(
    "setting",
    metadata,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("verdict", sa.BigInteger, sa.ForeignKey("verdict.id"), nullable=False),
    _must("at", Utc),
)
"""Settings that a probe passed (RL-10), each with the first verdict that said so."""
