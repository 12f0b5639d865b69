"""Fixtures of the Slurm tests: a scripted login node, and the real clusters of ``tests.labs``."""

from __future__ import annotations

import pytest

from tests.clusters.slurm.login import ScriptedLogin, accounting_rows, detail_rows, queue_rows
from tests.labs import slurm_lab, slurm_lab_b

__all__ = ["slurm_lab", "slurm_lab_b"]


@pytest.fixture
def login() -> ScriptedLogin:
    """The cluster of ``poll.txt``: its whole queue, its accounting, and details of what ran."""
    return ScriptedLogin(
        queue=list(queue_rows().values()),
        accounting=accounting_rows("poll", "ended"),
        details=list(detail_rows().values()),
    )
