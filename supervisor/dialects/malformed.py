"""The one error that a dialect may raise."""

from __future__ import annotations


class Malformed(ValueError):
    """The line is of a known form, and its content could not be read. The follower counts it and goes on."""
