"""LLaMA-Factory's ``trainer_log.jsonl``: exact steps and totals, no gradient norm. It lags and may freeze (SFT-1), so
it completes what the training log says and is never its judge."""

from __future__ import annotations

import json

from supervisor.dialects.line import Line
from supervisor.dialects.malformed import Malformed
from supervisor.dialects.numbers import number, seconds_of
from supervisor.model.readings import Reading, ReadingKind

NAME = "llamafactory"
MARKS = (b'"current_steps"',)


def read(line: Line) -> list[Reading]:
    start = line.text.find("{")
    if start < 0:
        return []
    try:
        record = json.loads(line.text[start:])
    except (ValueError, RecursionError) as error:
        raise Malformed("a line of trainer_log.jsonl is no JSON") from error
    if not isinstance(record, dict) or not isinstance(record.get("current_steps"), int):
        return []
    metrics: dict[str, float] = {}
    for name, value in record.items():
        if name in ("current_steps", "total_steps", "elapsed_time", "remaining_time") or isinstance(value, bool):
            continue
        got = float(value) if isinstance(value, (int, float)) else number(value) if isinstance(value, str) else None
        if got is not None:
            metrics[name] = got
    total = record.get("total_steps")
    elapsed = record.get("elapsed_time")
    evaluated = "loss" not in metrics and any(name in metrics for name in ("eval_loss", "predict_loss"))
    return [
        line.reading(
            ReadingKind.METRIC if evaluated else ReadingKind.STEP,
            NAME,
            label="eval" if evaluated else "train",
            step=record["current_steps"],
            total=total if isinstance(total, int) and total > 0 else None,
            metrics=metrics,
            elapsed_s=seconds_of(elapsed) if isinstance(elapsed, str) else None,
        )
    ]
