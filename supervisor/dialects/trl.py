"""TRL on top of the Trainer: the same dict, with rewards in it. GRPO and its kin are RL; preference tuning (DPO) is SFT."""

from __future__ import annotations

from supervisor.dialects.hf_trainer import printed_dict, trainer_dict
from supervisor.dialects.line import Line
from supervisor.dialects.numbers import pairs
from supervisor.model.readings import Reading, ReadingKind

NAME = "trl"
MARKS = (b"'reward", b"'objective/", b'"reward"')
_PREFERENCE = ("rewards/margins", "rewards/chosen")
_POLICY = ("reward", "objective/scores", "objective/kl", "reward_std")


def read(line: Line) -> list[Reading]:
    printed = printed_dict(line)
    if printed is None:
        return []
    metrics = pairs(printed)
    if any(name in metrics for name in _PREFERENCE):
        return trainer_dict(line, printed, NAME + "-preference")
    if not any(name in metrics for name in _POLICY) or "trainer/global_step" in metrics:
        return []
    if not any(name in metrics for name in ("epoch", "loss", "learning_rate", "lr", "step")):
        return []
    read_as = trainer_dict(line, printed, NAME)
    if read_as:
        return read_as
    return [line.reading(ReadingKind.METRIC, NAME, label="train", metrics=metrics)]
