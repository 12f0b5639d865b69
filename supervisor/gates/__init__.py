"""The deep probe's gates, over an evidence folder: one question each, a case in, a score with its quotes out (PROBE-2).

Add one by a file of its own with ``judge(case)`` and its name here.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.gates import dynamics, liveness, resources, rollouts
from supervisor.model.probe import Case, GateScore

Gate = Callable[[Case], GateScore]

GATES: tuple[Gate, ...] = (liveness.judge, resources.judge, rollouts.judge, dynamics.judge)
"""In the order in which a verdict shows them."""


def judge(case: Case) -> tuple[GateScore, ...]:
    """Every gate's score. Whatever stands in the folder, a gate scores it; what one raises is a fault of ours."""
    return tuple(gate(case) for gate in GATES)
