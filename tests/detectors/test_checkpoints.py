"""Checkpoints that fall behind the steps, by the run's own interval."""

from __future__ import annotations

import pytest

from tests.detectors.looking import found_in, rules_in
from tests.stories.voices import rl_run, sft_run


def saved(step: int) -> str:
    return f"2026-07-01 12:00:00.000 | INFO | t:save:1 - Successfully saved checkpoint for global_step_{step} to: /ckpt/global_step_{step}\n"


def a_run(*saves: int, last: int) -> str:
    """Steps up to ``last``, with the word of a checkpoint behind some."""
    parts, at = [], 0
    for step in (*saves, last):
        parts.append(rl_run(range(at + 1, step + 1)))
        parts.append(saved(step) if step in saves else "")
        at = step
    return "".join(parts)


def test_steps_that_run_ahead_of_the_last_checkpoint_are_watched() -> None:
    """RL-8: with the word of that checkpoint and of the newest step."""
    (finding,) = found_in(a_run(5, 10, 15, last=31))

    assert (finding.rule, finding.severity.value) == ("RL-8", "watch")
    assert finding.text.startswith("no checkpoint since step 15, though one followed at most 5 steps after another")
    assert "global_step_15" in finding.quotes[0].text
    assert "step=31" in finding.quotes[1].text or "31/80" in finding.quotes[1].text


@pytest.mark.parametrize(
    "log",
    [
        a_run(5, 10, 15, last=30),
        a_run(5, 10, last=60),
        a_run(last=60),
        a_run(5, 10, 30, last=60),
        a_run(5, 10, 15, 20, 25, 30, 35, last=40),
    ],
    ids=["within three intervals", "interval not known yet", "never saves", "by its largest interval", "keeps up"],
)
def test_a_run_that_saves_as_it_used_to_is_left_alone(log: str) -> None:
    """RL-8"""
    assert found_in(log) == []


def test_a_new_attempt_shows_its_own_interval_first() -> None:
    """RL-8, CHAIN-2: a relaunch may save less often on purpose."""
    assert found_in(a_run(5, 10, 15, last=16), rl_run(range(16, 60))) == []


def test_fine_tuning_is_told_the_same() -> None:
    """HERO-4"""
    save = "Saving model checkpoint to /out/checkpoint-{}\n"
    parts = [sft_run(first, first + 9, 916) + save.format(first + 9) for first in (1, 11, 21)]

    assert rules_in("".join(parts) + sft_run(31, 70, 916), bucket="sft") == {("HERO-4", "watch")}
