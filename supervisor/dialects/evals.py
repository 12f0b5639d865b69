"""Standard evaluations: the table that lm-eval prints at its end, and the results files of the common harnesses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from supervisor.dialects.line import Line
from supervisor.dialects.malformed import Malformed
from supervisor.dialects.numbers import number
from supervisor.model.readings import EvalResults, Reading, ReadingKind

NAME = "evals"
MARKS = ("|±".encode(), b" requests:", b"lm_eval", b"inspect_ai", b"lighteval")
_ROW = re.compile(r"^\|\s*([^|]*?)\s*\|[^|]*\|[^|]*\|[^|]*\|\s*([^|]+?)\s*\|[^|]*\|\s*([\d.]+|nan)\s*\|±")
_META = frozenset({"alias", "name", "sample_len", "sample_count"})


def read(line: Line) -> list[Reading]:
    found = _ROW.match(line.body.strip())
    if found is None:
        return []
    task = found[1].strip(" -")
    return [
        line.reading(
            ReadingKind.METRIC, NAME, label="score", detail=task, metrics={f"{task}/{found[2]}": float(found[3])}
        )
    ]


def read_results(data: bytes) -> EvalResults:
    """Scores from a results file of lm-eval, lighteval, Inspect, evalplus or any that keeps them under ``results``.

    Standard errors, settings and per-sample lists are left out. Malformed for what is no JSON object.
    """
    try:
        document = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise Malformed("the results file is no whole JSON") from error
    if not isinstance(document, dict):
        raise Malformed("the results file holds no object")
    if "eval" in document and isinstance(document.get("results"), dict) and "scores" in document["results"]:
        return _inspect(document)
    if "config_general" in document:
        return EvalResults(framework="lighteval", scores=_tasks(document.get("results")), model=_model(document))
    if "pass_at_k" in document or ("eval" in document and "results" not in document):
        return EvalResults(framework="evalplus", scores=_tasks(document.get("pass_at_k")), model=_model(document))
    return EvalResults(
        framework="lm-eval"
        if "n-shot" in document or "lm_eval_version" in document or "group_subtasks" in document
        else "unknown",
        scores=_tasks(document.get("results", document)),
        samples=_samples(document.get("n-samples")),
        model=_model(document),
    )


def _tasks(results: object) -> dict[str, float]:
    scores: dict[str, float] = {}
    if not isinstance(results, Mapping):
        return scores
    for task, metrics in results.items():
        if isinstance(metrics, Mapping):
            for metric, value in metrics.items():
                name = str(metric)
                if name in _META or "stderr" in name:
                    continue
                got = _value(value)
                if got is not None:
                    scores[f"{task}/{name.removesuffix(',none')}"] = got
        elif (got := _value(metrics)) is not None and "stderr" not in str(task):
            scores[str(task)] = got
    return scores


def _inspect(document: Mapping[str, object]) -> EvalResults:
    header, results = document["eval"], document["results"]
    task = str(header.get("task", "")) if isinstance(header, Mapping) else ""
    scores: dict[str, float] = {}
    samples: dict[str, int] = {}
    if isinstance(results, Mapping):
        for score in results.get("scores") or []:
            if isinstance(score, Mapping) and isinstance(score.get("metrics"), Mapping):
                for name, metric in score["metrics"].items():
                    got = _value(metric.get("value")) if isinstance(metric, Mapping) else _value(metric)
                    if got is not None and "stderr" not in str(name):
                        scores[f"{task}/{name}"] = got
        done = results.get("completed_samples")
        if isinstance(done, int):
            samples[task] = done
    model = header.get("model") if isinstance(header, Mapping) else None
    return EvalResults(framework="inspect", scores=scores, samples=samples, model=str(model) if model else None)


def _samples(counts: object) -> dict[str, int]:
    found: dict[str, int] = {}
    if isinstance(counts, Mapping):
        for task, count in counts.items():
            effective = count.get("effective") if isinstance(count, Mapping) else count
            if isinstance(effective, int):
                found[str(task)] = effective
    return found


def _model(document: Mapping[str, object]) -> str | None:
    for name in ("model_name", "model"):
        if isinstance(document.get(name), str):
            return str(document[name])
    for holder in ("config", "config_general"):
        config = document.get(holder)
        if isinstance(config, Mapping):
            for name in ("model_name", "model"):
                if isinstance(config.get(name), str):
                    return str(config[name])
    return None


def _value(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    return number(value) if isinstance(value, str) else None
