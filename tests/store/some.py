"""Jobs and polls to store; a test writes out only what matters to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from supervisor.model.facts import Held, LogFacts
from supervisor.model.findings import Finding, Flag, Quote, Severity
from supervisor.model.job import (
    Burn,
    Dependency,
    Details,
    JobKey,
    JobState,
    Observation,
    Outcome,
    TaskCounts,
)
from supervisor.model.lifecycle import Effect, Evidence, Lifecycle, Phase, Sign, SignRead, Transition
from supervisor.model.logs import LogStat, LogState
from supervisor.model.polling import Headroom
from supervisor.model.records import AttemptRecord, ClusterState, ClusterStatus, PollRecord
from tests.some import HOUR, MINUTE, NOON

SECOND = timedelta(seconds=1)


def new_job(job: str = "42", cluster: str = "cluster-a", phase: Phase = Phase.RUNNING, **changes: Any) -> Held:
    """A job that was never stored."""
    key = JobKey(cluster, job, "1000")
    name = changes.pop("name", f"rl__gsm8k_{job}")
    seen = Observation(key=key, name=name, user="alice", state=JobState.RUNNING, scheduler_state="RUNNING")
    values: dict[str, Any] = {
        "key": key,
        "life": Lifecycle(phase=phase, since=NOON - HOUR),
        "bucket": "rl",
        "observation": seen,
        "first_seen_at": NOON - HOUR,
    }
    return Held(**(values | changes))


def full_job(job: str = "4711") -> Held:
    """One with something in every field."""
    key = JobKey("cluster-a", job, "2026-07-01T09:00:00")
    quote = Quote("/scratch/alice/rl.out", 812, "Traceback (most recent call last):")
    finding = Finding("LIVE-2", Severity.WATCH, "silent for 31 min, its own cadence is 7 min", (quote,), key="silence")
    details = Details(
        log_path="/scratch/alice/rl.out",
        err_path="/scratch/alice/rl.err",
        workdir="/scratch/alice",
        command="/scratch/alice/train.sh --epochs 3",
        restarts=1,
        depends_on=(Dependency("afterany", "4710"),),
    )
    return Held(
        key=key,
        life=Lifecycle(phase=Phase.SUSPECT, since=NOON - MINUTE, attempt=2, outcome=None, absences=1),
        bucket="rl",
        observation=Observation(
            key=JobKey("cluster-a", job, "2026-07-01T10:00:00"),
            name="rl__gsm8k_a",
            user="alice",
            state=JobState.RUNNING,
            scheduler_state="RUNNING",
            reason="None",
            submitted_at=NOON - 3 * HOUR,
            started_at=NOON - 2 * HOUR,
            ended_at=None,
            time_limit=12 * HOUR,
            account="lab",
            partition="gpu",
            group="4700",
            group_size=4,
            nodes=("n1", "n2"),
            node_count=2,
            exit_code=None,
            signal=None,
            attempt=2,
            burn=Burn(1, 3),
            tasks=TaskCounts(4, running=3, pending=1),
            depends_on=(Dependency("afterany", "4710"),),
            details=details,
            final=False,
        ),
        details=details,
        log=LogFacts(
            stat=LogStat("/scratch/alice/rl.out", LogState.READ, 90311, NOON - 31 * MINUTE, 66306, 2**63 + 5),
            last_output_at=NOON - 31 * MINUTE,
            cadence=timedelta(seconds=420.5),
            gaps=(31.5, 29.0, 420.5),
            step=15,
            total=80,
            progress_at=NOON - 33 * MINUTE,
            speaks_steps=True,
        ),
        flags=(Flag(finding, NOON - MINUTE),),
        depends_on=(Dependency("afterany", "4710"),),
        predecessor="4710",
        successor="4712",
        first_seen_at=NOON - 3 * HOUR,
        look_at=NOON + 2 * MINUTE,
    )


def status(cluster: str = "cluster-a", **changes: Any) -> ClusterStatus:
    values: dict[str, Any] = {
        "name": cluster,
        "kind": "slurm",
        "state": ClusterState.OK,
        "polled_at": NOON,
        "last_good_at": NOON,
        "ended_since": NOON - MINUTE,
        "jobs_live": 1,
        "headroom": Headroom(inodes_used=5, inodes_soft=9),
        "clock_offset_s": -7200.25,
        "version": "23.11.4",
        "source": "login01.example",
        "took_s": 0.31,
    }
    return ClusterStatus(**(values | changes))


def poll(*changed: Held, at: timedelta = timedelta(0), cluster: str = "cluster-a", **changes: Any) -> PollRecord:
    """A good poll of one cluster at NOON plus ``at``."""
    values: dict[str, Any] = {
        "tick": 1,
        "status": status(cluster),
        "changed": changed,
        "listed": len(changed),
        "at": NOON + at,
    }
    return PollRecord(**(values | changes))


def move(job: Held, phase: Phase, sign: Sign = Sign.SILENT, outcome: Outcome | None = None) -> tuple[Held, Transition]:
    """The job one step on, and that step."""
    after = replace(job.life, phase=phase, since=NOON, outcome=outcome)
    read = SignRead(sign, "silent for 31 min", (Evidence("log", "last line 31 min ago", (Quote("rl.out", 3, "x"),)),))
    effects = frozenset({Effect.WANT_LOOK, Effect.WANT_NOTE})
    step = Transition(job=job.key, before=job.life, after=after, read=read, at=NOON, effects=effects)
    return job.having(life=after), step


def ended(job: Held, outcome: Outcome = Outcome.FAILED) -> Held:
    """The job at its end."""
    seen = replace(job.observation, state=JobState.FAILED, scheduler_state="FAILED", ended_at=NOON, exit_code=1)
    return job.having(life=replace(job.life, phase=Phase.TERMINAL, outcome=outcome), observation=seen)


def attempts(jobs: Sequence[Held]) -> list[AttemptRecord]:
    return [AttemptRecord(job=job.key, number=job.life.attempt, observation=job.observation) for job in jobs]
