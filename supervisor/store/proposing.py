"""Steps of a proposal's life that belong to somebody else's transaction: made of a verdict, withdrawn by a later one, held."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from supervisor.model.errors import StoreError
from supervisor.model.probe import Ruling, Verdict
from supervisor.store.bodies import clean
from supervisor.store.engine import Database
from supervisor.store.times import to_us

ITSELF = "the supervisor"
_COLUMNS = (
    *("job", "incarnation", "attempt", "verdict", "digest", "cause", "confidence", "silence_key", "state"),
    *("made_at", "expires_at"),
)


def proposed(
    db: Database,
    connection: sa.Connection,
    row: int,
    verdict_number: int,
    verdict: Verdict,
    silence_key: str,
    expires_at: datetime | None,
    now: datetime,
) -> tuple[int | None, str | None]:
    """Number of the proposal that a verdict makes, or why none is made."""
    if expires_at is None:
        raise StoreError(f"a proposal to kill {verdict.job.ref} says when it expires")
    why = _silenced(db, connection, row, verdict, silence_key)
    if why is not None:
        return None, why
    marks = ", ".join("?" * len(_COLUMNS))
    unsettled = "ON CONFLICT (job, attempt) WHERE state IN ('open', 'approved') DO NOTHING"
    text = f"INSERT INTO proposal ({', '.join(_COLUMNS)}) VALUES ({marks}) {unsettled}"
    values = (
        *(row, verdict.job.incarnation, verdict.attempt, verdict_number, verdict.digest, clean(verdict.cause)),
        *(clean(verdict.confidence), silence_key, "open", to_us(now), to_us(expires_at)),
    )
    made = db.run(connection, text, values).rowcount
    text = "SELECT id FROM proposal WHERE job = ? AND attempt = ? AND state IN ('open', 'approved')"
    number = int(db.run(connection, text, (row, verdict.attempt)).scalar_one())
    return (number, None) if made else (None, f"proposal {number} of this attempt waits already")


def _silenced(db: Database, connection: sa.Connection, row: int, verdict: Verdict, silence_key: str) -> str | None:
    """Why equal facts are not proposed again."""
    waiting = "SELECT id, state FROM proposal WHERE job = ? AND attempt = ? AND state IN ('open', 'approved')"
    found = db.run(connection, waiting, (row, verdict.attempt)).first()
    if found is not None:
        return f"proposal {found[0]} of this attempt {'is approved' if found[1] == 'approved' else 'waits'} already"
    denied = "SELECT id, settled_by FROM proposal WHERE silence_key = ? AND state = 'denied' ORDER BY id DESC LIMIT 1"
    found = db.run(connection, denied, (silence_key,)).first()
    if found is not None:
        return f"equal facts were denied by {found[1]} (proposal {found[0]})"
    recorded = (
        "SELECT p.id FROM proposal p JOIN decision d ON d.proposal = p.id "
        "WHERE p.silence_key = ? AND d.stage = 'recorded' ORDER BY p.id DESC LIMIT 1"
    )
    found = db.run(connection, recorded, (silence_key,)).first()
    return None if found is None else f"equal facts were approved and recorded already (proposal {found[0]})"


def settle_older(
    db: Database, connection: sa.Connection, row: int, verdict: Verdict, silence_key: str, now: datetime
) -> None:
    """Withdraw what waits and a newer verdict of the job's standing attempt contradicts."""
    text = (
        "UPDATE proposal SET state = 'withdrawn', settled_at = ?, settled_by = ?, why = ? "
        "WHERE job = ? AND state = 'open' AND "
    )
    at = to_us(now)
    later = f"attempt {verdict.attempt} began"
    db.run(connection, text + "attempt < ?", (at, ITSELF, later, row, verdict.attempt))
    if verdict.ruling is Ruling.NO_KILL:
        why = f"a later probe says {verdict.ruling.value}"
        db.run(connection, text + "attempt = ?", (at, ITSELF, why, row, verdict.attempt))
    elif verdict.ruling is Ruling.KILL:
        why = "a later probe rules on other facts"
        condition = "attempt = ? AND silence_key <> ?"
        db.run(connection, text + condition, (at, ITSELF, why, row, verdict.attempt, silence_key))


def standing_hold(db: Database, connection: sa.Connection, cluster: str, job_id: str) -> str | None:
    """The first hold that stands over a job, in words; None where there is none (KILL-5)."""
    text = (
        "SELECT id, scope, held_by, reason FROM hold WHERE lifted_at IS NULL AND (scope = 'all' "
        "OR (scope = 'cluster' AND target = ?) OR (scope = 'job' AND target = ?)) ORDER BY id LIMIT 1"
    )
    found = db.run(connection, text, (clean(cluster), clean(f"{cluster}/{job_id}"))).first()
    if found is None:
        return None
    what = {"all": "everything", "cluster": cluster}.get(found.scope, f"{cluster}/{job_id}")
    return f"hold {found.id} stands on {what}, by {found.held_by}: {found.reason}"
