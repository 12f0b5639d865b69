"""Jobs as a Slurm cluster of middling size has them, to be stored."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from supervisor.model.facts import Held, LogFacts
from supervisor.model.job import Details, JobKey, JobState, Observation
from supervisor.model.lifecycle import Evidence, Lifecycle, Phase, Sign, SignRead, Transition
from supervisor.model.logs import LogStat, LogState
from supervisor.model.records import AttemptRecord, ClusterState, ClusterStatus, PollRecord

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def job(number: int, cluster: str = "c0", at: datetime = NOW) -> Held:
    rand = random.Random(number)
    key = JobKey(cluster, str(1_000_000 + number), str(1_790_000_000 + number))
    running = number % 10 < 7
    nodes = tuple(f"gpu{number % 500:03d}-{each}" for each in range(1 + number % 4)) if running else ()
    path = f"/scratch/user{number % 200:03d}/projects/rl/runs/exp-{number}/slurm-{key.id}.out"
    seen = Observation(
        key=key,
        name=f"rl__grpo-{number:06d}-32b",
        user=f"user{number % 200:03d}",
        state=JobState.RUNNING if running else JobState.PENDING,
        scheduler_state="RUNNING" if running else "PENDING",
        reason=None if running else "Priority",
        submitted_at=at - timedelta(hours=5),
        started_at=at - timedelta(hours=4) if running else None,
        time_limit=timedelta(days=1),
        account=f"acct{number % 40}",
        partition="gpu",
        nodes=nodes,
        node_count=len(nodes) or 1,
    )
    log = LogFacts(
        stat=LogStat(path, LogState.READ, rand.randrange(10**8), at, 66306, number),
        last_output_at=at,
        cadence=timedelta(seconds=rand.randrange(30, 600)),
        gaps=tuple(round(rand.uniform(20, 300), 1) for _ in range(8)),
        step=rand.randrange(100),
        total=100,
    )
    return Held(
        key=key,
        life=Lifecycle(phase=Phase.RUNNING if running else Phase.BRING_UP, since=at),
        bucket="rl",
        observation=seen,
        details=Details(log_path=path, workdir=path.rpartition("/")[0], command=f"{path.rpartition('/')[0]}/train.sh"),
        log=log if running else LogFacts(),
        first_seen_at=at,
    )


def step(held: Held, phase: Phase, at: datetime) -> tuple[Held, Transition]:
    after = Lifecycle(phase=phase, since=at, attempt=held.life.attempt)
    line = f"squeue: {held.observation.scheduler_state} {held.observation.reason}"
    read = SignRead(Sign.PROGRESSING, "its log grew since the last reading", (Evidence("queue", line),))
    return held.having(life=after), Transition(job=held.key, before=held.life, after=after, read=read, at=at)


def poll(cluster: str, at: datetime, changed: list[Held], transitions: list[Transition], tick: int = 1) -> PollRecord:
    fresh = [one for one in changed if one.row is None]
    return PollRecord(
        tick=tick,
        status=ClusterStatus(name=cluster, kind="slurm", state=ClusterState.OK, polled_at=at, last_good_at=at),
        changed=changed,
        transitions=transitions,
        attempts=[AttemptRecord(job=one.key, number=1, observation=one.observation) for one in fresh],
        listed=1000,
        at=at,
    )
