"""Results of trials as Harbor 0.26 writes them: its own files with other outcomes put in."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

SAMPLES = Path(__file__).parent / "dialects" / "samples" / "harbor"
NINE = datetime(2026, 7, 1, 9, tzinfo=UTC)


def result(
    name: str,
    *,
    reward: float | None = 1.0,
    exception: str | None = None,
    turns: int | None = 12,
    tokens: int | None = 900,
    took_s: float = 600,
    agent: str = "terminus-2",
) -> bytes:
    """A trial's ``result.json``."""
    document = json.loads((SAMPLES / "t1.json").read_text())
    started = NINE
    document |= {"trial_name": name, "task_name": name.partition("__")[0], "reward_valid": reward is not None}
    document["agent_info"]["name"] = agent
    document["agent_result"] = {
        "n_input_tokens": tokens,
        "n_cache_tokens": None,
        "n_output_tokens": tokens,
        "cost_usd": None,
        "metadata": {"n_episodes": turns} if turns is not None else None,
    }
    document["verifier_result"] = {"rewards": {"reward": reward}} if reward is not None else None
    document["started_at"] = f"{started:%Y-%m-%dT%H:%M:%S.%fZ}"
    document["finished_at"] = f"{started + timedelta(seconds=took_s):%Y-%m-%dT%H:%M:%S.%fZ}"
    document["agent_execution"] = {"started_at": document["started_at"], "finished_at": document["finished_at"]}
    if exception is not None:
        document["exception_info"] = {
            "exception_type": exception,
            "exception_message": "as it was told",
            "exception_traceback": "",
            "occurred_at": document["finished_at"],
        }
    return json.dumps(document, indent=4).encode()


def job_result(
    *, planned: int, completed: int, passed: int = 0, failed: int = 0, running: int = 0, finished: bool = False
) -> bytes:
    """A job's own ``result.json``."""
    document = json.loads((SAMPLES / "job_result.json").read_text())
    document |= {"n_total_trials": planned}
    if not finished:
        document["finished_at"] = None
    document["stats"] |= {
        "n_completed_trials": completed,
        "n_errored_trials": 0,
        "n_running_trials": running,
        "n_pending_trials": planned - completed - running,
    }
    scored = passed + failed
    rewards = {"1.0": [f"p{n}__x" for n in range(passed)], "0.0": [f"f{n}__x" for n in range(failed)]}
    document["stats"]["evals"] = {
        "terminus-2__m__bench": {
            "n_trials": scored,
            "n_errors": 0,
            "metrics": [{"mean": passed / scored}] if scored else [],
            "pass_at_k": {},
            "reward_stats": {"reward": rewards},
            "exception_stats": {},
        }
    }
    return json.dumps(document, indent=4).encode()


def write(folder: Path, name: str, data: bytes) -> Path:
    """One trial's folder with its result, whole."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    part = folder / name / ".part"
    part.write_bytes(data)
    part.rename(folder / name / "result.json")
    return folder / name
