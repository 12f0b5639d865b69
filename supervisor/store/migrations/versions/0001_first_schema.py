"""The first schema.

Revision ID: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_RowId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """All tables of version 0.1; times are microseconds since 1970, UTC."""
    op.create_table(
        "alert",
        sa.Column("id", _RowId, primary_key=True),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("severity", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("opened_at", sa.BigInteger, nullable=False),
        sa.Column("last_said_at", sa.BigInteger, nullable=True),
        sa.Column("last_said_text", sa.Text, nullable=True),
        sa.Column("times_said", sa.BigInteger, nullable=False),
        sa.Column("closed_at", sa.BigInteger, nullable=True),
    )
    op.create_index("alert_closed", "alert", ["closed_at"])
    op.create_index(
        "alert_open",
        "alert",
        ["subject", "key"],
        unique=True,
        sqlite_where=sa.text("closed_at IS NULL"),
        postgresql_where=sa.text("closed_at IS NULL"),
    )
    op.create_table(
        "cluster",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("polled_at", sa.BigInteger, nullable=True),
        sa.Column("last_good_at", sa.BigInteger, nullable=True),
        sa.Column("ended_since", sa.BigInteger, nullable=True),
        sa.Column("reason", sa.Text, nullable=True),
        sa.Column("hint", sa.Text, nullable=True),
        sa.Column("failed_polls", sa.BigInteger, nullable=False),
        sa.Column("jobs_live", sa.BigInteger, nullable=False),
        sa.Column("inodes_used", sa.BigInteger, nullable=True),
        sa.Column("inodes_soft", sa.BigInteger, nullable=True),
        sa.Column("bytes_used", sa.BigInteger, nullable=True),
        sa.Column("bytes_soft", sa.BigInteger, nullable=True),
        sa.Column("clock_offset_s", sa.Double, nullable=False),
        sa.Column("version", sa.Text, nullable=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("took_s", sa.Double, nullable=True),
    )
    op.create_table(
        "heartbeat",
        sa.Column("daemon", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.BigInteger, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("beat_at", sa.BigInteger, nullable=False),
        sa.Column("interval_s", sa.Double, nullable=False),
        sa.Column("next_tick_at", sa.BigInteger, nullable=True),
        sa.Column("trouble", sa.Text, nullable=True),
    )
    op.create_table(
        "hold",
        sa.Column("id", _RowId, primary_key=True),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("held_by", sa.Text, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("lifted_at", sa.BigInteger, nullable=True),
        sa.Column("lifted_by", sa.Text, nullable=True),
    )
    op.create_index("hold_standing", "hold", ["lifted_at"])
    op.create_table(
        "job",
        sa.Column("id", _RowId, primary_key=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("incarnation", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("mark", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sa.Column("changed_tick", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("user_name", sa.Text, nullable=True),
        sa.Column("bucket", sa.Text, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("outcome", sa.Text, nullable=True),
        sa.Column("closed_at", sa.BigInteger, nullable=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("scheduler_state", sa.Text, nullable=False),
        sa.Column("scheduler_reason", sa.Text, nullable=True),
        sa.Column("submitted_at", sa.BigInteger, nullable=True),
        sa.Column("started_at", sa.BigInteger, nullable=True),
        sa.Column("ended_at", sa.BigInteger, nullable=True),
        sa.Column("time_limit_s", sa.Double, nullable=True),
        sa.Column("account", sa.Text, nullable=True),
        sa.Column("partition", sa.Text, nullable=True),
        sa.Column("group_id", sa.Text, nullable=True),
        sa.Column("group_size", sa.BigInteger, nullable=False),
        sa.Column("nodes", sa.Text, nullable=True),
        sa.Column("node_count", sa.BigInteger, nullable=True),
        sa.Column("exit_code", sa.BigInteger, nullable=True),
        sa.Column("signal", sa.BigInteger, nullable=True),
        sa.Column("log_state", sa.Text, nullable=False),
        sa.Column("log_path", sa.Text, nullable=True),
        sa.Column("log_reason", sa.Text, nullable=True),
        sa.Column("last_output_at", sa.BigInteger, nullable=True),
        sa.Column("cadence_s", sa.Double, nullable=True),
        sa.Column("step", sa.BigInteger, nullable=True),
        sa.Column("total", sa.BigInteger, nullable=True),
        sa.Column("progress_at", sa.BigInteger, nullable=True),
        sa.Column("flags", sa.Text, nullable=True),
        sa.Column("worst", sa.Text, nullable=True),
        sa.Column("predecessor", sa.Text, nullable=True),
        sa.Column("successor", sa.Text, nullable=True),
        sa.Column("first_seen_at", sa.BigInteger, nullable=True),
        sa.Column("look_at", sa.BigInteger, nullable=True),
        sa.Column("metrics", sa.Text, nullable=True),
        sa.Column("diagnosis", sa.Text, nullable=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.UniqueConstraint("cluster", "job_id", "incarnation", name="job_key"),
    )
    op.create_index("job_by_id", "job", ["job_id"])
    op.create_index("job_counted", "job", ["bucket", "phase", "worst"])
    op.create_index("job_flagged", "job", ["worst", "closed_at"])
    op.create_index("job_shown", "job", ["closed_at", "bucket", "cluster", "name"])
    op.create_table(
        "lease",
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "metric",
        sa.Column("id", _RowId, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
    )
    op.create_table(
        "poll",
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, primary_key=True),
        sa.Column("tick", sa.BigInteger, nullable=False),
        sa.Column("good", sa.Boolean, nullable=False),
        sa.Column("listed", sa.BigInteger, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "request",
        sa.Column("id", _RowId, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("asked_by", sa.Text, nullable=False),
        sa.Column("asked_at", sa.BigInteger, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("answered_at", sa.BigInteger, nullable=True),
        sa.Column("result", sa.Text, nullable=True),
    )
    op.create_index("request_open", "request", ["answered_at", "kind"])
    op.create_table(
        "tick",
        sa.Column("number", _RowId, primary_key=True),
        sa.Column("daemon", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger, nullable=True),
        sa.Column("took_s", sa.Double, nullable=True),
        sa.Column("report", sa.LargeBinary, nullable=True),
        sa.Column("document", sa.LargeBinary, nullable=True),
    )
    op.create_index("tick_started", "tick", ["started_at"])
    op.create_table(
        "attempt",
        sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=True),
        sa.Column("ended_at", sa.BigInteger, nullable=True),
        sa.Column("exit_code", sa.BigInteger, nullable=True),
        sa.Column("signal", sa.BigInteger, nullable=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "change",
        sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("until", sa.BigInteger, primary_key=True),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("tick", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("scheduler_state", sa.Text, nullable=False),
        sa.Column("scheduler_reason", sa.Text, nullable=True),
        sa.Column("node_count", sa.BigInteger, nullable=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "diagnosis",
        sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("attempt", sa.BigInteger, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=True),
        sa.Column("category", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_index("diagnosis_fingerprint", "diagnosis", ["fingerprint", "at"])
    op.create_table(
        "errand",
        sa.Column("id", _RowId, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, nullable=True),
        sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), nullable=True),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("dedupe", sa.Text, nullable=False, unique=True),
        sa.Column("queued_at", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.Text, nullable=True),
        sa.Column("tries", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger, nullable=True),
        sa.Column("error", sa.Text, nullable=True),
    )
    op.create_index("errand_due", "errand", ["finished_at", "due_at"])
    op.create_table(
        "log_cursor",
        sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("inode", sa.Text, nullable=False),
        sa.Column("read_to", sa.BigInteger, nullable=False),
        sa.Column("lines", sa.BigInteger, nullable=True),
        sa.Column("head", sa.Text, nullable=False),
        sa.Column("kept", sa.Text, nullable=False),
        sa.Column("kept_from", sa.BigInteger, nullable=False),
        sa.Column("kept_from_line", sa.BigInteger, nullable=True),
        sa.Column("state", sa.Text, nullable=False),
    )
    op.create_table(
        "measurement",
        sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("metric", sa.BigInteger, sa.ForeignKey("metric.id"), primary_key=True),
        sa.Column("at", sa.BigInteger, primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("value", sa.Double, nullable=True),
        sqlite_with_rowid=False,
    )
    op.create_index("measurement_at", "measurement", ["at"])
    op.create_table(
        "transition",
        sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("tick", sa.BigInteger, nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("outcome", sa.Text, nullable=True),
        sa.Column("sign", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("transition_at", "transition", ["at"])


def downgrade() -> None:
    """There is no way back: an older program refuses a newer schema, and a backup restores what was."""
    raise NotImplementedError("a schema is never downgraded: restore a backup")
