"""What proposals and decisions share: how their rows read, how one is ended, and the words of a refusal."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from supervisor.model.job import JobKey
from supervisor.model.proposals import Decision, Proposal, ProposalState, Stage
from supervisor.store.bodies import clean
from supervisor.store.engine import Database
from supervisor.store.times import from_us, from_us_or_none, to_us
from supervisor.store.verdict_bodies import verdict_of

DAY = timedelta(days=1)

PROPOSAL = (
    "SELECT p.id, p.job, p.incarnation, p.attempt, p.verdict, p.digest, p.cause, p.confidence, p.silence_key, p.state, "
    "p.made_at, p.expires_at, p.settled_at, p.settled_by, p.why, j.cluster, j.job_id, j.name, j.bucket, "
    "j.incarnation AS incarnation_now, j.attempt AS attempt_now, j.closed_at FROM proposal p JOIN job j ON j.id = p.job"
)
DECISION = (
    "SELECT d.id, d.proposal, d.job, d.incarnation, d.attempt, d.verdict, d.digest, d.approved_by, d.role, d.reason, "
    "d.approved_at, d.expires_at, d.mode, d.stage, d.intended_at, d.sent_at, d.accepted, d.output, d.finished_at, d.why, "
    "j.cluster, j.job_id, j.incarnation AS incarnation_now, j.attempt AS attempt_now, j.closed_at "
    "FROM decision d JOIN job j ON j.id = d.job"
)


def proven(db: Database, connection: sa.Connection, verdict: int, digest: str) -> bool:
    """Whether the stored verdict is, to the byte, the one that its digest was taken of."""
    body = db.run(connection, "SELECT body FROM verdict WHERE id = ?", (verdict,)).scalar_one()
    return verdict_of(verdict, body).digest == digest


def alone(db: Database, connection: sa.Connection) -> None:
    """One decision at a time, first thing in its transaction: a cap that two count at once would be overrun (PostgreSQL)."""
    if not db.is_sqlite:
        connection.exec_driver_sql("LOCK TABLE decision IN SHARE ROW EXCLUSIVE MODE")


def over(
    db: Database,
    connection: sa.Connection,
    number: int,
    froms: tuple[str, ...],
    stage: Stage,
    why: str,
    now: datetime,
    becomes: str = "done",
) -> bool:
    """End a decision, and its proposal with it. False where it does not stand at one of the stages ``froms``."""
    marks = ", ".join("?" * len(froms))
    text = f"UPDATE decision SET stage = ?, finished_at = ?, why = ? WHERE id = ? AND stage IN ({marks})"
    if db.run(connection, text, (stage.value, to_us(now), clean(why), number, *froms)).rowcount != 1:
        return False
    text = (
        "UPDATE proposal SET state = ?, settled_at = ?, why = ? "
        "WHERE id = (SELECT proposal FROM decision WHERE id = ?) AND state = 'approved'"
    )
    db.run(connection, text, (becomes, to_us(now), clean(why), number))
    return True


def no_proposal(number: int) -> str:
    return f"there is no proposal {number}"


def no_decision(number: int) -> str:
    return f"there is no decision {number}"


def settled(row: Any) -> str:
    by = f" by {row.settled_by}" if row.settled_by else ""
    at = f" at {moment(row.settled_at)}" if row.settled_at is not None else ""
    why = f": {row.why}" if row.why else ""
    return f"proposal {row.id} ({row.cluster}/{row.job_id}) is {row.state}{by}{at}{why}"


def moment(us: int) -> str:
    return f"{from_us(us):%Y-%m-%dT%H:%M:%SZ}"


def span_words(span: timedelta) -> str:
    return "24 h" if span == DAY else f"{span.total_seconds():g} s"


def proposal_in(row: Any) -> Proposal:
    return Proposal(
        id=row.id,
        job=JobKey(row.cluster, row.job_id, row.incarnation),
        job_row=row.job,
        name=row.name,
        bucket=row.bucket,
        attempt=row.attempt,
        verdict=row.verdict,
        digest=row.digest,
        cause=row.cause,
        confidence=row.confidence,
        silence_key=row.silence_key,
        state=ProposalState(row.state),
        made_at=from_us(row.made_at),
        expires_at=from_us(row.expires_at),
        settled_at=from_us_or_none(row.settled_at),
        settled_by=row.settled_by,
        why=row.why,
    )


def decision_in(row: Any) -> Decision:
    return Decision(
        id=row.id,
        proposal=row.proposal,
        job=JobKey(row.cluster, row.job_id, row.incarnation),
        job_row=row.job,
        attempt=row.attempt,
        verdict=row.verdict,
        digest=row.digest,
        approved_by=row.approved_by,
        role=row.role,
        reason=row.reason,
        approved_at=from_us(row.approved_at),
        expires_at=from_us(row.expires_at),
        mode=row.mode,
        stage=Stage(row.stage),
        intended_at=from_us_or_none(row.intended_at),
        sent_at=from_us_or_none(row.sent_at),
        accepted=None if row.accepted is None else bool(row.accepted),
        output=row.output,
        finished_at=from_us_or_none(row.finished_at),
        why=row.why,
    )
