"""Runs the revisions on the connection, and in the transaction, that ``Store.upgrade`` hands over."""

from __future__ import annotations

from alembic import context

from supervisor.model.errors import UsageError
from supervisor.store.schema import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise UsageError("migrations are run by 'supervisorctl db upgrade' or by supervisord at its start")

context.configure(
    connection=connection,
    target_metadata=metadata,
    transactional_ddl=True,  # SQLite can, too, since the transaction is begun by hand
    render_as_batch=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
