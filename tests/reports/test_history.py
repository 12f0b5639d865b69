"""``show`` and ``why``: each step with its reason, evidence and quotes; what was ruled out; what would flip it."""

from __future__ import annotations

import json

import pytest

from supervisor.model.lifecycle import Phase
from supervisor.reports.history import FLIPS, counts, reasons, shown
from supervisor.store.light import AttemptRow, StepRow
from tests.reports.rows import a_hold, a_job
from tests.some import HOUR, NOON

EVIDENCE = {
    "source": "log",
    "text": "no progress for 71 min",
    "quotes": [{"file": "/home/alice/4711.out", "line": 812, "text": "step 27/80 \x1b[2K"}],
}
STEP = StepRow(
    2,
    NOON,
    9,
    "running",
    "suspect",
    1,
    None,
    "quiet",
    "silent beyond its cadence",
    json.dumps({"read": {"evidence": [EVIDENCE]}}),
)
DIAGNOSIS = {
    "category": "nccl-timeout", "confidence": "high", "transience": "unknown", "summary": "a collective timed out",
    "cause": {"file": "4711.out", "line": 900, "text": "Watchdog caught collective operation timeout"}, "action": "look at rank 3",
    "ruled_out": [{"category": "cuda-oom", "why": "the run went on", "file": "4711.out", "line": 12, "text": "out of memory"}],
    "noise": [{"signature": "shm_broadcast_wait", "count": 41, "why": "an idle engine says this"}],
    "missing": ["stderr of rank 3"],
}  # fmt: skip


def test_show_tells_the_whole_job_and_leaves_out_what_is_not_known():
    attempts = [
        AttemptRow(1, "failed", NOON - HOUR, NOON, 1, 9, "{}"),
        AttemptRow(2, "pending", None, None, None, None, "{}"),
    ]

    text = shown(a_job(phase="suspect"), attempts, [STEP], [DIAGNOSIS], {"workdir": "/home/alice\x1b[1m"}, NOON)

    assert text.startswith("rl__gsm8k_a  alpha/4711\n")
    assert "  work directory /home/alice\\x1b[1m\n" in text
    assert "  1  failed, exit 1, signal 9  from 2026-07-01 11:00:00Z to 2026-07-01 12:00:00Z\n" in text
    assert "  2  pending  not started\n" in text
    assert "running → suspect  quiet: silent beyond its cadence" in text
    assert "nccl-timeout (high confidence, unknown)" in text
    for unknown in ("exit   ", "None", "follows", "goes on as", "elapsed"):
        assert unknown not in text, unknown


def test_show_counts_what_was_not_understood():
    """FIND-4: what could not be read is told, and nothing where all was."""
    run = {"metrics": {"loss": 1.21, "grad_norm": "NaN"}, "not_understood": {"malformed": 3, "oversized": 1}}
    told = shown(a_job(metrics=json.dumps(run)), [], [STEP], [], {}, NOON)

    assert "  not understood 3 metric lines that broke off or are no JSON, 1 lines above 256 KiB\n" in told
    assert "  metrics        loss 1.210, grad_norm NaN\n" in told
    assert "not understood" not in shown(a_job(metrics="{}"), [], [STEP], [], {}, NOON)


def test_show_says_where_trials_lie_and_why_they_were_not_read():
    """EVAL-4: an unread store is said."""
    run = {"trials_at": "/scratch/jobs/j1", "trials_unread": "permission denied"}

    def told(metrics: dict[str, object]) -> str:
        return shown(a_job(metrics=json.dumps(metrics)), [], [STEP], [], {}, NOON)

    assert "trials         /scratch/jobs/j1 (not read: permission denied)" in told(run)
    assert "trials         /scratch/jobs/j1\n" in told(run | {"trials_unread": None}) + "\n"
    assert "trials" not in told({"metrics": {}})


def test_show_counts_failures_and_preemptions_against_what_is_allowed():
    """FAIL-1: a second attempt is told from the last one that is allowed."""
    seen = {
        "burn": {"burned": 2, "allowed": 3},
        "preemptions": {"burned": 1},
        "tasks": {"total": 8, "running": 7, "pending": 1},
    }

    text = shown(a_job(), [], [], [], {}, NOON, seen)

    assert "  failures       2 of 3 allowed\n" in text
    assert "  preemptions    1\n" in text
    assert "  tasks          8: 7 running, 1 pending\n" in text
    assert counts(seen) == {
        "restarts": {"burned": 2, "allowed": 3},
        "preemptions": {"burned": 1, "allowed": None},
        "tasks": {"total": 8, "running": 7, "pending": 1, "ended": 0},
    }


def test_show_says_nothing_of_budgets_that_the_scheduler_does_not_keep():
    text = shown(a_job(), [], [], [], {}, NOON, {"burn": {"burned": 0}, "preemptions": None, "tasks": {"total": 1}})

    assert not any(word in text for word in ("failures", "preemptions", "tasks"))
    assert counts({}) == {"restarts": None, "preemptions": None, "tasks": None}


def test_why_quotes_its_evidence_and_says_what_was_noise_and_what_would_flip_it():
    text = reasons(
        a_job(phase="suspect", log_path="/home/alice/4711.out", log_state="read"), [STEP], [DIAGNOSIS], [a_hold()], NOON
    )

    assert "log: no progress for 71 min" in text
    assert "/home/alice/4711.out:812: step 27/80 \\x1b[2K" in text
    assert "4711.out:900: Watchdog caught collective operation timeout" in text
    assert "ruled out: cuda-oom: the run went on" in text
    assert "noise: 41 × shm_broadcast_wait: an idle engine says this" in text
    assert "missing: stderr of rank 3" in text
    assert f"what would flip it: {FLIPS['suspect']}" in text
    assert "under hold 3: maintenance" in text
    assert "\x1b" not in text


def test_an_ended_job_claims_nothing_of_now():
    assert "now: the scheduler says" not in reasons(
        a_job(phase="terminal", outcome="failed", closed_at=NOON), [STEP], [], [], NOON
    )


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_says_what_would_flip_it(phase):
    assert f"what would flip it: {FLIPS[phase.value]}" in reasons(a_job(phase=phase.value), [], [], [], NOON)
