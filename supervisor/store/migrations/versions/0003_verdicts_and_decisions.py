"""The deep probe's verdicts, the kills that wait for a person, and what was decided on them.

Revision ID: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_RowId = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_JUDGED = sa.text("verdict IS NOT NULL AND closed_at IS NULL")
_UNSETTLED = sa.text("state IN ('open', 'approved')")


def upgrade() -> None:
    op.add_column("job", sa.Column("verdict", sa.BigInteger, nullable=True))
    op.create_index("job_judged", "job", ["cluster"], sqlite_where=_JUDGED, postgresql_where=_JUDGED)
    op.create_table(
        "verdict",
        sa.Column("id", _RowId, primary_key=True),
        sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("taken_at", sa.BigInteger, nullable=False),
        sa.Column("stored_at", sa.BigInteger, nullable=False),
        sa.Column("ruling", sa.Text, nullable=False),
        sa.Column("confidence", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False, unique=True),
        sa.Column("setting", sa.Text, nullable=True),
        sa.Column("passed", sa.Boolean, nullable=False),
        sa.Column("wedged", sa.Boolean, nullable=False),
        sa.Column("judge", sa.Text, nullable=False),
        sa.Column("evidence", sa.Text, nullable=False),
        sa.Column("silence_key", sa.Text, nullable=False),
        sa.Column("no_proposal", sa.Text, nullable=True),
        sa.Column("step", sa.BigInteger, nullable=True),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("standing", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("verdict_job", "verdict", ["job", "id"])
    op.create_index("verdict_taken", "verdict", ["taken_at"])
    op.create_table(
        "proposal",
        sa.Column("id", _RowId, primary_key=True),
        sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), nullable=False),
        sa.Column("incarnation", sa.Text, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("verdict", sa.BigInteger, sa.ForeignKey("verdict.id"), nullable=False, unique=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("confidence", sa.Text, nullable=False),
        sa.Column("silence_key", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("settled_at", sa.BigInteger, nullable=True),
        sa.Column("settled_by", sa.Text, nullable=True),
        sa.Column("why", sa.Text, nullable=True),
    )
    op.create_index(
        "proposal_unsettled",
        "proposal",
        ["job", "attempt"],
        unique=True,
        sqlite_where=_UNSETTLED,
        postgresql_where=_UNSETTLED,
    )
    op.create_index("proposal_silence", "proposal", ["silence_key"])
    op.create_table(
        "decision",
        sa.Column("id", _RowId, primary_key=True),
        sa.Column("proposal", sa.BigInteger, sa.ForeignKey("proposal.id"), nullable=False, unique=True),
        sa.Column("job", sa.BigInteger, sa.ForeignKey("job.id"), nullable=False),
        sa.Column("incarnation", sa.Text, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("verdict", sa.BigInteger, sa.ForeignKey("verdict.id"), nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("approved_by", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=True),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("approved_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("intended_at", sa.BigInteger, nullable=True),
        sa.Column("sent_at", sa.BigInteger, nullable=True),
        sa.Column("accepted", sa.Boolean, nullable=True),
        sa.Column("output", sa.Text, nullable=True),
        sa.Column("finished_at", sa.BigInteger, nullable=True),
        sa.Column("why", sa.Text, nullable=True),
    )
    op.create_index("decision_job", "decision", ["job"])
    op.create_index("decision_intended", "decision", ["intended_at"])
    op.create_index("decision_by", "decision", ["approved_by", "approved_at"])
    op.create_table(
        "setting",
        sa.Column("fingerprint", sa.Text, primary_key=True),
        sa.Column("verdict", sa.BigInteger, sa.ForeignKey("verdict.id"), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    raise NotImplementedError("a schema is never downgraded: restore a backup")
