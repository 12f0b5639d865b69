"""NeMo-RL: ``=== Step 3/100 ===``, then results as a list of bullets that belong to that step."""

from __future__ import annotations

import re

from supervisor.dialects.line import Line
from supervisor.dialects.numbers import NUMBER
from supervisor.model.readings import Reading, ReadingKind

NAME = "nemo_rl"
MARKS = ("• ".encode(), b"= Step ")
_STEP = re.compile(r"^=+ Step (\d{1,12})/(\d{1,12}) =+$")
_BULLET = re.compile(
    r"^• (Loss|Avg Reward|Reward|Grad Norm|Mean Generation Length|Total step time)[^:]{0,40}: (" + NUMBER + r")"
)
_NAMES = {
    "Loss": "policy_loss",
    "Avg Reward": "reward",
    "Reward": "reward",
    "Grad Norm": "grad_norm",
    "Mean Generation Length": "response_length",
    "Total step time": "timing/step",
}


def read(line: Line) -> list[Reading]:
    text = line.body.strip()
    if (found := _STEP.match(text)) is not None:
        begun, total = int(found[1]), int(found[2])
        return [line.reading(ReadingKind.STEP, NAME, label="begins", step=max(0, begun - 1), total=total)]
    if (found := _BULLET.match(text)) is not None:
        return [
            line.reading(
                ReadingKind.METRIC, NAME, label="train", metrics={_NAMES[found[1]]: float(found[2])}, ahead=True
            )
        ]
    return []
