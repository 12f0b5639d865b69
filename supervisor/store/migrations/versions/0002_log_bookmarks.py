"""A log's cursor keeps the backend's bookmark, so that a log without byte offsets is resumed without gap or repeat.

Revision ID: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("log_cursor", sa.Column("bookmark", sa.Text, nullable=True))


def downgrade() -> None:
    raise NotImplementedError("a schema is never downgraded: restore a backup")
