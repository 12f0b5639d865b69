"""The ears: what each program prints, turned into readings, and readings into the state of a run.

To add a dialect: one file with ``NAME``, ``MARKS`` (byte strings, one of which stands in every line it can read) and
``read(line)``, and its name in ``roster.DIALECTS``. Order is priority: the first dialect that understands a line has it.
"""

from __future__ import annotations

from supervisor.dialects.malformed import Malformed
from supervisor.dialects.quotes import excerpt
from supervisor.dialects.recognition import recognise, speaks_for
from supervisor.dialects.roster import DIALECTS
from supervisor.dialects.run import begun, next_attempt
from supervisor.dialects.stream import follow
from supervisor.dialects.summary import summarise
from supervisor.dialects.tail import tail_points

__all__ = [
    "DIALECTS",
    "Malformed",
    "begun",
    "excerpt",
    "follow",
    "next_attempt",
    "recognise",
    "speaks_for",
    "summarise",
    "tail_points",
]
