"""SkyRL and its production fork: the mirror line in JSON, printed dicts, plain lines, timers, and what is said once.

``Finished`` of a timer is logged even when its body raised, so it is a sign of life and never one of success.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

from supervisor.dialects.line import Line
from supervisor.dialects.malformed import Malformed
from supervisor.dialects.numbers import NUMBER, number, pairs, words
from supervisor.dialects.vocabulary import canonical
from supervisor.model.readings import Reading, ReadingKind

NAME = "skyrl"
MARKS = (
    b"WANDB_MIRROR",
    b"avg_raw_reward",
    b"global_step",
    b"time cost: ",
    b"Started: '",
    b"effective_batch=",
    b"is not finite",
    b"generation complete:",
    b"all-failed output",
    b"stale and discarded",
    b"max training steps",
    b"Training done!",
    b"Training already complete",
    b"from scratch",
    b"'policy_loss'",
    b"{'",
)
GROUPS = (
    r"(?:async|reward|policy|loss|generate|timing|trainer|tis|critic|eval|environment|system|z_clip|stale_clip|distill)"
)
OPENS_BLOCK = re.compile(r"\{\s*(['\"])" + GROUPS + r"/")
"""A printed dict of metrics begins; where it does not end on its line, the follower gathers the lines that follow."""
HEADER = re.compile(r"^Step (\d+):\s*$")
"""Stands alone on the line before such a dict (the console logger)."""

_MIRROR = re.compile(r"WANDB_MIRROR\s+kind=(\S+)\s+step=(\d+)\s+metrics=(.*)$", re.S)
_STARTED = re.compile(r"Started: '([^']{1,120})'")
_FINISHED = re.compile(r"Finished: '([^']{1,120})', time cost: ([\d.]+)s")
_PLAIN_PAIR = re.compile(r"((?:reward|generate|loss)/[\w/]+): (" + NUMBER + r")")
_BATCH = re.compile(r"Step (\d+): effective_batch=(\d+) samples(?:.*?discard_rate=([\d.]+)%)?")
_NOT_FINITE = re.compile(r"(?:rank (\d+) )?grad_norm is not finite: (\S+)")
_GENERATED = re.compile(r"Batch generation complete: (\d+)/(\d+) successful(?:, (\d+) failed)?(?:[^,]*, (\d+) masked)?")
_RESUMED = re.compile(
    r"Resuming from global_step:? (\d+)|Resumed at global_step (\d+)|loaded complete checkpoint state from global_step_(\d+)"
)
_SAVED = re.compile(r"Successfully saved checkpoint for global_step_(\d+)")
_REACHED = re.compile(r"(?:Reached )?max training steps \((\d+)\)")
_STATUS = ("policy_loss", "raw_grad_norm", "policy_entropy", "final_loss", "ppo_clip_ratio", "grad_norm")


def read(line: Line) -> list[Reading]:
    text = line.text
    if "WANDB_MIRROR" in text:
        return _mirror(line)
    if "time cost" in text and (found := _FINISHED.search(text)) is not None:
        return [line.reading(ReadingKind.TIMER, NAME, label=found[1], detail="finished", elapsed_s=float(found[2]))]
    if "Started: '" in text and (found := _STARTED.search(text)) is not None:
        return [line.reading(ReadingKind.TIMER, NAME, label=found[1], detail="started")]
    if "effective_batch=" in text and (found := _BATCH.search(text[:4000])) is not None:
        metrics = {"effective_batch": float(found[2])}
        if found[3]:
            metrics["discard_rate"] = float(found[3]) / 100
        return [line.reading(ReadingKind.METRIC, NAME, step=int(found[1]), metrics=metrics, ahead=True)]
    if "{" in text and (OPENS_BLOCK.search(text) or _is_status(text)):
        return dict_reading([line])
    if text.startswith("{"):
        return []  # some other program's dict
    if "not finite" in text and (found := _NOT_FINITE.search(text)) is not None:
        value = number(found[2].rstrip(",."))
        metrics = {} if value is None else {"grad_norm": value}
        return [line.reading(ReadingKind.BANNER, NAME, label="nonfinite_grad", detail=found[1] or "", metrics=metrics)]
    if "avg_raw_reward" in text:
        metrics = {name: float(value) for name, value in _PLAIN_PAIR.findall(text[:4000])}
        return [line.reading(ReadingKind.METRIC, NAME, metrics=metrics, ahead=True)] if metrics else []
    return _once(line)


def _once(line: Line) -> list[Reading]:
    text = line.text
    if (found := _GENERATED.search(text)) is not None:
        done, wanted = int(found[1]), int(found[2])
        label = "all_failed" if done == 0 and wanted else "generated"
        metrics = {"successful": float(done), "wanted": float(wanted)}
        metrics.update({name: float(found[n]) for n, name in ((3, "failed"), (4, "masked")) if found[n]})
        return [line.reading(ReadingKind.BANNER, NAME, label=label, metrics=metrics)]
    if "all-failed output" in text:
        return [line.reading(ReadingKind.BANNER, NAME, label="all_failed")]
    if "stale and discarded" in text and "All " in text:
        return [line.reading(ReadingKind.BANNER, NAME, label="all_stale")]
    if (found := _RESUMED.search(text)) is not None:
        step = int(found[1] or found[2] or found[3])
        most = _REACHED.search(text)
        done = "already COMPLETE" in text
        return [
            line.reading(
                ReadingKind.BANNER, NAME, label="finished" if done else "resume", detail="already complete" if done else "",
                step=step, total=int(most[1]) if most else None,
            )
        ]  # fmt: skip
    if (found := _SAVED.search(text)) is not None:
        return [line.reading(ReadingKind.BANNER, NAME, label="checkpoint", step=int(found[1]))]
    if (found := _REACHED.search(text)) is not None and "Reached" in text:
        return [line.reading(ReadingKind.BANNER, NAME, label="finished", detail="max steps", total=int(found[1]))]
    if "Training done!" in text:
        return [line.reading(ReadingKind.BANNER, NAME, label="finished", detail="training done")]
    if "Training already complete" in text:
        return [line.reading(ReadingKind.BANNER, NAME, label="finished", detail="already complete")]
    if "starting training from scratch" in text:
        return [line.reading(ReadingKind.BANNER, NAME, label="from_scratch")]
    return []


def _mirror(line: Line) -> list[Reading]:
    found = _MIRROR.search(line.text)
    if found is None:
        raise Malformed("a mirror line without kind, step and metrics")
    metrics, broken = _values(found[3].strip())
    kind, step = found[1], int(found[2])
    reading_kind = ReadingKind.STEP if kind == "train" else ReadingKind.METRIC
    return [line.reading(reading_kind, NAME, label=kind, detail=broken, step=step, metrics=metrics)]


def _values(text: str) -> tuple[dict[str, float], str]:
    """Numbers of the mirror's object, and the names of known metrics that were none. A broken object is Malformed."""
    if text.startswith("{'"):
        if not text.endswith("}"):
            raise Malformed("the printed dict does not end")
        metrics = pairs(text)
        return metrics, broken_names(text, metrics)
    try:
        loaded, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise Malformed("the mirror's metrics are no JSON") from error
    if not isinstance(loaded, dict) or "_serialize_error" in loaded:
        raise Malformed("the mirror could not serialise its metrics")
    metrics = {}
    broken: list[str] = []
    for name, value in loaded.items():
        if isinstance(value, bool):
            continue
        try:
            got = float(value) if isinstance(value, (int, float)) else number(value) if isinstance(value, str) else None
        except OverflowError:
            got = None
        if got is not None:
            metrics[name] = got
        elif canonical(name) is not None:
            broken.append(name)
    return metrics, ",".join(broken)


def broken_names(text: str, metrics: dict[str, float]) -> str:
    """Names of known metrics whose printed value is a word. ``metrics``: those that had numbers."""
    if text.count("':") + text.count('":') <= len(metrics):
        return ""
    return ",".join(name for name in words(text) if canonical(name) is not None)


def _is_status(text: str) -> bool:
    return "'policy_loss'" in text and "'loss'" not in text and "Global step" not in text


def dict_reading(lines: list[Line], header: int | None = None) -> list[Reading]:
    """A printed dict, over one line or many. ``header``: the step that the line before it named."""
    text = "\n".join(line.text for line in lines)
    metrics = pairs(text)
    first = lines[0]
    known = [name for name in metrics if canonical(name) is not None]
    if not known:
        return []
    step = int(metrics["trainer/global_step"]) if _is_count(metrics.get("trainer/global_step")) else header
    bare = step is None and any(name in metrics for name in _STATUS)
    reading = first.reading(
        ReadingKind.METRIC if step is None else ReadingKind.STEP,
        NAME,
        label="status" if bare else "train",
        detail=broken_names(text, metrics),
        step=step,
        metrics=metrics,
        ahead=step is None,
    )
    if len(lines) == 1:
        return [reading]
    return [replace(reading, said=tuple(line.spoken() for line in lines))]


def _is_count(value: float | None) -> bool:
    return value is not None and abs(value) < 1e15
