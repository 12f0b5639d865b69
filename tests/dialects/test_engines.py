"""vLLM's engine lines of several versions, its per-step summary, waits and access lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from supervisor.dialects import follow, summarise
from tests.dialects.reads import readings_of, summary_of

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
V0 = (
    "INFO 02-25 12:11:31 metrics.py:455] Avg prompt throughput: 1975.2 tokens/s, Avg generation throughput: 188.0 tokens/s, "
    "Running: 3 reqs, Swapped: 0 reqs, Pending: 2 reqs, GPU KV cache usage: 4.6%, CPU KV cache usage: 0.0%.\n"
)
V1 = (
    "(APIServer pid=41) INFO 07-09 12:02:14 [loggers.py:271] Engine 000: Avg prompt throughput: 8412.6 tokens/s, Avg generation "
    "throughput: 3.1 tokens/s, Running: 2 reqs, Waiting: 5 reqs, GPU KV cache usage: 61.8%, Prefix cache hit rate: 12.4%\n"
)
NEWER = (
    "(EngineCore_DP1 pid=42) INFO 07-09 12:02:14 [loggers.py:271] Engine 001: Avg prompt throughput: 0.0 tokens/s, Avg generation "
    "throughput: 96.0 tokens/s, Running: 7 reqs, Waiting: 4 reqs, Deferred: 1 reqs, Preemptions: 3, TPU KV cache usage: 9.5%, "
    "Prefix cache hit rate: 1.0%, External prefix cache hit rate: 2.0%, MM cache hit rate: 3.0%\n"
)


@pytest.mark.parametrize(
    ("line", "label", "running", "waiting", "kv"),
    [(V0, "", 3.0, 2.0, 4.6), (V1, "000", 2.0, 5.0, 61.8), (NEWER, "001", 7.0, 4.0, 9.5)],
)
def test_fields_are_read_by_name_in_any_version(
    line: str, label: str, running: float, waiting: float, kv: float
) -> None:
    """PROBE-8: concrete counts, whatever stands between them."""
    (reading,) = readings_of(line)

    assert reading.label == label
    assert (reading.metrics["running"], reading.metrics["waiting"], reading.metrics["kv_cache_pct"]) == (
        running,
        waiting,
        kv,
    )


def test_engines_of_a_log_of_their_own_are_told_apart() -> None:
    engines = summary_of(V1 + NEWER).engine.engines

    assert {name: values["running"] for name, values in engines.items()} == {"000": 2.0, "001": 7.0}


def test_engines_in_a_log_that_ray_folded_are_never_counted() -> None:
    """The repeat count hangs on another engine's line: such numbers are one engine's, chosen by chance."""
    prefix = "(AsyncVLLMInferenceEngine pid={pid}, ip=10.0.0.2) "
    log = (
        prefix.format(pid=1)
        + V1.split(") ", 1)[1]
        + prefix.format(pid=2)
        + NEWER.split(") ", 1)[1].rstrip()
        + " [repeated 7x across cluster]\n"
    )
    engine = summary_of(log).engine

    assert engine.aggregated
    assert engine.engines == {}
    assert engine.latest["running"] == 7.0


def test_engines_are_never_progress() -> None:
    """LIVE-4."""
    summary = summary_of(V1, "rl")

    assert summary.last_progress is None
    assert summary.last_engine is not None


def test_the_summary_of_one_process_survives_ray() -> None:
    line = (
        "(skyrl_entrypoint pid=9) vLLM Stats (step 12): engines=8, running(peak/med)=200/64, waiting(peak/med)=12/0, "
        "prompt_tp(peak/med)=900.5/400.0 tok/s, gen_tp(peak/med)=800.0/300.0 tok/s, kv_cache(peak/med)=41.0/12.0%\n"
    )
    summary = summary_of(line).engine.summary

    assert (summary["engines"], summary["running_peak"], summary["running_med"], summary["kv_cache_med"]) == (
        8.0,
        200.0,
        64.0,
        12.0,
    )
    assert summary["step"] == 12


@pytest.mark.parametrize("words", ["found in 60 seconds", "found in 60 second", "foundin 60 second"])
def test_a_broadcast_wait_is_a_heartbeat(words: str) -> None:
    """NOISE-1: alone it is no fault, and LIVE-3: it is no progress."""
    summary = summary_of(
        f"(EngineCore pid=6) INFO 07-09 12:03:14 [shm_broadcast.py:501] No available shared memory broadcast block {words}.\n"
    )

    assert summary.last_heartbeat is not None
    assert summary.last_progress is None


def test_answers_of_the_server_are_counted_by_outcome() -> None:
    """EVAL-4: recent 200s are checked before anyone calls an eval dead; EVAL-2: repeated auth failures."""
    line = '(APIServer pid=41) INFO:     10.0.0.9:5000 - "POST /v1/chat/completions HTTP/1.1" '
    engine = summary_of(
        "".join(line + code + "\n" for code in ("200 OK", "401 Unauthorized", "200 OK", "500 Internal Server Error"))
    ).engine

    assert (engine.answered, engine.refused_auth, engine.failed) == (2, 1, 1)
    assert engine.last_answered is not None
    assert engine.last_answered.line == 3


def test_looks_at_a_servers_health_and_numbers_are_no_answers() -> None:
    """EVAL-4, LIVE-4: a monitor that asks each minute keeps an idle engine's log alive."""
    look = '(SGLangEngine pid=19) INFO:     10.0.0.1:44565 - "GET /metrics HTTP/1.1" 200 OK\n'
    ill = 'INFO:     10.0.0.1:44565 - "GET /health HTTP/1.1" 503 Service Unavailable\n'
    work = 'INFO:     10.0.0.1:44566 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    refused = 'INFO:     10.0.0.1:44566 - "GET /v1/models HTTP/1.1" 401 Unauthorized\n'
    engine = summary_of(look * 3 + work + look * 2 + ill * 4 + refused).engine

    assert (engine.answered, engine.failed, engine.refused_auth) == (1, 0, 1)
    assert engine.last_answered is not None
    assert engine.last_answered.text == work.strip()
    assert engine.last_answered.line == 4


TUNNEL = "2026-07-01T12:00:00Z INF Registered tunnel connection connIndex=0 location=sjc01\n"
POST = 'INFO:     10.0.0.1:44566 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'


@pytest.mark.parametrize(
    ("log", "infra"),
    [
        (TUNNEL, {"tunnel": "ok"}),
        (TUNNEL + "ERR Serve tunnel error error=timeout\n", {"tunnel": "bad broken"}),
        ("agent kwargs: {'api_base': 'https://eval-7.example.org/v1', 'model': 'a'}\n", {"api_base": "ok public"}),
        ("OPENAI_BASE_URL=http://10.4.0.7:8000/v1\n", {"api_base": "bad internal address"}),
        ("api_base=http://node17:8000/v1\n", {"api_base": "bad internal address"}),
        (POST * 3, {"engine": "ok 3×"}),
        (POST + POST.replace("200 OK", "502 Bad Gateway"), {"engine": "bad failed"}),
        (V1, {"engine": "ok 2 running"}),
        ("task-3__ab12c | Trial completed reward=1.0\n", {"trials": "ok"}),
    ],
)
def test_what_an_evaluation_stands_on_is_told_as_far_as_the_log_tells(log: str, infra: dict[str, str]) -> None:
    """EVAL-1: tunnel, public address, engine's answers, trials that move."""
    assert summary_of(log, "eval").infra == infra


def test_what_the_newest_piece_of_log_says_nothing_of_is_quiet() -> None:
    """EVAL-1: a growing count is an engine that answers; the same count again is none."""
    first = (POST + "task-3__ab12c | Trial completed reward=1.0\n").encode()
    state, _ = follow(None, first, 0, seen_at=NOON)
    state, _ = follow(state, b"still here\n", len(first), seen_at=NOON + timedelta(minutes=15))

    assert summarise(state, "eval").infra == {"engine": "quiet 1×", "trials": "quiet"}
