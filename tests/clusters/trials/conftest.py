"""Fixtures of the trials' tests."""

from tests.s3_server import _s3_process, s3  # noqa: F401  fixtures
