"""Trials as Harbor writes them, printed over many lines, and logs of reinforcement learning."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from tests.some import NOON

ENTRY = "(skyrl_entrypoint pid=4100) "
MIRROR = (
    ENTRY
    + "2026-07-01 {at} | INFO     | skyrl_train.trainer:_log:1965 - WANDB_MIRROR kind=train step={step} metrics={metrics}\n"
)


def trial(
    number: int = 1,
    *,
    reward: float | None = 1.0,
    error: str | None = None,
    turns: int | None = 12,
    tokens: int | None = 3400,
    ago: timedelta = timedelta(minutes=5),
    took: timedelta = timedelta(minutes=10),
    setup_s: float = 4.0,
    llm_s: float | None = None,
    teardown_s: float = 0.5,
    **changes: Any,
) -> str:
    """``ago``: since its end."""
    ended, whole = NOON - ago, took.total_seconds()
    began = ended - took

    def at(seconds: float) -> str:
        return (began + timedelta(seconds=seconds)).isoformat()

    metadata: dict[str, Any] = {"n_episodes": turns} if turns is not None else {}
    if llm_s is not None:
        metadata["api_request_times_msec"] = [llm_s * 1000]
    last = whole - teardown_s
    document: dict[str, Any] = {
        "trial_name": f"patch-{number}__ab{number:04d}",
        "task_name": f"patch-{number}",
        "agent_result": {"n_input_tokens": 900, "n_output_tokens": tokens, "metadata": metadata},
        "verifier_result": None if reward is None else {"rewards": {"reward": reward}},
        "exception_info": None
        if error is None
        else {"exception_type": error, "exception_message": "…", "exception_traceback": "…"},
        "started_at": at(0),
        "finished_at": ended.isoformat(),
        "environment_setup": {"started_at": at(0), "finished_at": at(min(setup_s, last))},
        "agent_setup": None,
        "agent_execution": {"started_at": at(min(setup_s, last)), "finished_at": at(max(min(setup_s, last), last - 5))},
        "verifier": {"started_at": at(max(min(setup_s, last), last - 5)), "finished_at": at(last)},
    }
    return json.dumps({**document, **changes}, indent=2) + "\n"


def trials(texts: Iterable[str]) -> dict[str, str]:
    """As files of a folder."""
    return {f"trial-{number:03d}.json": text for number, text in enumerate(texts)}


def many(count: int, *, apart: timedelta = timedelta(minutes=1), **about: Any) -> list[str]:
    """One a minute, newest first."""
    first = about.pop("first", 0)
    return [trial(first + number, ago=apart * (number + 1), **about) for number in range(count)]


def rl_log(metrics: Iterable[dict[str, float]], *, first: int = 1, more: str = "") -> str:
    """A line of metrics for each step, two minutes apart, up to shortly before noon."""
    rows = list(metrics)
    lines = []
    for place, values in enumerate(rows):
        at = NOON - timedelta(minutes=2 * (len(rows) - place))
        step = first + place
        text = json.dumps({**values, "trainer/global_step": step})
        lines.append(MIRROR.format(at=f"{at:%H:%M:%S}.000", step=step, metrics=text))
    return "".join(lines) + more
