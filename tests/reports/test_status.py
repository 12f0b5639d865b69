"""What ``status`` shows of jobs and clusters: unknown is a dash or null, never 0; unread is never none."""

from __future__ import annotations

import json
from datetime import timedelta

from supervisor.reports.status import document, foot, head, job_document, tables
from tests.reports.rows import a_cluster, a_hold, a_job, a_summary
from tests.some import HOUR, MINUTE, NOON


def shown(*jobs, unknown=(), wide=None, colour=False, pipes=False):
    return "\n".join(tables(jobs, NOON, unknown=dict.fromkeys(unknown), wide=wide, colour=colour, pipes=pipes))


def test_the_age_of_each_reading_is_said_and_an_unread_cluster_is_unknown():
    """POLL-1, SAY-4"""
    lines = head(
        a_summary(
            a_cluster(),
            a_cluster(
                name="beta",
                state="unknown",
                last_good_at=NOON - 34 * MINUTE,
                reason="no\x1b[2Janswer",
                hint="wait",
                jobs_live=1,
            ),
            a_cluster(name="gamma", state="unknown", last_good_at=None, reason="refused"),
            a_cluster(name="delta", state="skipped", reason="skipped until 2026-07-12: moved"),
        ),
        NOON,
    )

    assert lines == [
        "monitor ok · tick 9 finished 2 s ago (took 0.4 s) · next in 14 min",
        "  alpha: read 2 s ago, 7 live jobs",
        "  beta: UNKNOWN (read 34 min ago; its jobs are shown as they were then): no\\x1b[2Janswer · wait",
        "  gamma: UNKNOWN (never read; its jobs are shown as they were then): refused",
        "  delta: skipped until 2026-07-12: moved",
    ]


def test_a_phase_of_an_unread_cluster_bears_a_question_mark():
    assert "running?" in shown(a_job(), unknown=["alpha"])
    assert "terminal?" not in shown(a_job(phase="terminal", outcome="failed", closed_at=NOON), unknown=["alpha"])


def test_an_unread_log_is_not_called_silent():
    """FIND-2, LIVE-1: the column says that it was not read, not an age."""
    assert "unread" in shown(a_job(log_state="unread", last_output_at=NOON - HOUR))
    assert "no log" in shown(a_job(log_state="absent"))
    assert "60 min ago" in shown(a_job(log_state="read", last_output_at=NOON - HOUR))


def test_flagged_jobs_stand_first_and_worst_first():
    told = shown(
        a_job(row=1, name="fine"), a_job(row=2, name="watched", worst="watch"), a_job(row=3, name="broken", worst="fault"),
        a_job(row=4, name="ended", phase="terminal", closed_at=NOON),
    )  # fmt: skip

    assert [told.index(name) for name in ("broken", "watched", "fine", "ended")] == sorted(
        told.index(name) for name in ("broken", "watched", "fine", "ended")
    )


def test_each_bucket_has_its_table_with_its_counts():
    """BUCKET-2"""
    told = shown(a_job(), a_job(row=2, bucket="sft", phase="suspect"), a_job(row=3, bucket="sft"))

    assert "RL (1 running)" in told
    assert "Sft (1 suspect, 1 running)" in told or "SFT (1 suspect, 1 running)" in told
    assert told.index("RL (") < told.lower().index("sft (")


def test_an_ended_job_says_how_and_keeps_its_elapsed_time():
    ended = a_job(
        phase="terminal", outcome="out_of_memory", signal=9, exit_code=0, closed_at=NOON, started_at=NOON - 2 * HOUR,
        ended_at=NOON - HOUR, time_limit_s=7200.0,
    )  # fmt: skip

    assert "out of memory (signal 9)" in shown(ended)
    assert "60 min" in shown(ended)
    assert "/ 2 h" not in shown(ended)


def test_an_unknown_end_has_no_elapsed_time_rather_than_one_that_grows():
    gone = a_job(phase="terminal", outcome="vanished", closed_at=NOON - HOUR, started_at=NOON - 2 * HOUR)

    assert job_document(gone, NOON)["elapsed_s"] is None
    assert job_document(gone, NOON + HOUR)["elapsed_s"] is None


def test_unknown_is_null_in_json_never_zero_or_empty():
    told = job_document(a_job(scheduler_reason="None"), NOON)

    for key in (
        "scheduler_reason",
        "outcome",
        "exit_code",
        "signal",
        "submitted_at",
        "started_at",
        "ended_at",
        "elapsed_s",
        "diagnosis",
    ):
        assert told[key] is None, key
    assert told["log"] == {
        "state": "none",
        "path": None,
        "last_output_at": None,
        "age_s": None,
        "reason": None,
        "not_understood": None,
    }
    assert told["progress"]["step"] is None
    cluster = document(a_summary(a_cluster(last_good_at=None)), [], NOON)["clusters"][0]
    assert (cluster["age_s"], cluster["last_good_at"]) == (None, None)
    assert set(cluster["headroom"].values()) == {None}


def test_json_is_json_whatever_the_names_hold():
    told = document(a_summary(a_cluster()), [a_job(name="\x1b\udce9\x00\u2028")], NOON)

    assert json.loads(json.dumps(told, allow_nan=False))["jobs"][0]["name"] == "\x1b\udce9\x00\u2028"


def test_a_cause_stands_beside_the_flags():
    told = shown(
        a_job(
            worst="fault", flags=json.dumps([{"rule": "FAIL-1", "text": "ended", "severity": "fault", "since": "x"}]),
            diagnosis=json.dumps({"category": "cuda-oom", "cause": {"text": "CUDA out of memory \x1b[0m"}}),
        )
    )  # fmt: skip

    assert "FAIL-1 ended; cuda-oom: CUDA out of memory \\x1b[0m" in told


def test_a_clock_that_runs_ahead_makes_no_negative_age():
    told = job_document(a_job(last_output_at=NOON + timedelta(seconds=9), log_state="read"), NOON)

    assert told["log"]["age_s"] == 0.0
    assert "0 s ago" in shown(a_job(last_output_at=NOON + timedelta(seconds=9), log_state="read"))


def test_holds_and_hidden_rows_are_said_at_the_foot():
    hold, hidden = foot([a_hold(reason="x\x1b[31m")], 3)

    assert hold == "hold 3 on alpha: x\\x1b[31m (alice@box)"
    assert "3 more jobs" in hidden
    assert "`supervisorctl status --all` shows all" in hidden


def test_a_kill_without_effect_asks_for_a_look_and_not_for_an_answer():
    """KILL-3: in text and JSON alike; scripts that answer kills leave it alone by its kind."""
    from types import SimpleNamespace

    each = SimpleNamespace(
        id=3, kind="kill", job="alpha/42", name="rl__a", verdict=9, cause="silent-hang", confidence="high", state="unconfirmed",
        expires_at=NOON,
    )  # fmt: skip

    (line,) = foot([], 0, [each])
    (waiting,) = document(a_summary(), [], NOON, waiting=[each])["waiting"]

    assert "look at the job by hand" in line
    assert (waiting["kind"], waiting["expires_at"]) == ("unconfirmed_kill", None)


def test_only_a_terminal_gets_colour():
    assert "\x1b" not in shown(a_job(worst="fault"))
    assert "\x1b[31m" in shown(a_job(worst="fault"), colour=True)


def test_a_job_that_a_controller_handed_on_is_one_row_where_the_other_cluster_reports_it_too():
    """Federation: only where both tell of it, and only of iris controllers: a Slurm partition may bear a cluster's name."""
    from types import SimpleNamespace

    from supervisor.reports import status

    def row(cluster, job, partition=None):
        return SimpleNamespace(cluster=cluster, id=job, partition=partition)

    clusters = [
        SimpleNamespace(name=name, kind=kind) for name, kind in (("hub", "iris"), ("east", "iris"), ("gpu", "slurm"))
    ]
    handed, there, alone = row("hub", "alice/a", "east"), row("east", "alice/a"), row("hub", "alice/b", "east")
    slurm, twin = row("gpu", "7", "east"), row("east", "7")

    shown = status.one_row_each([handed, there, alone, slurm, twin], clusters)

    assert shown == [there, alone, slurm, twin]
