"""Fixtures of the command line's tests."""

from tests.app.asked import ask, config, seed, seeded  # noqa: F401  fixtures
from tests.postgres import postgres, postgres_url  # noqa: F401  fixtures
