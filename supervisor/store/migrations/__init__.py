"""Alembic environment and revisions; the top-level ``migrations`` is a link to this folder."""
