"""Kills that wait for a person, and what was decided: one approval, one use (KILL-1, KILL-3).

Every step is one guarded UPDATE: it holds only where the row still stands where the step begins, so that of two that try
the same step one does it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from supervisor.model.errors import StoreError, UsageError
from supervisor.model.job import JobKey
from supervisor.model.proposals import Decision, Proposal, ProposalState, Stage
from supervisor.model.records import ErrandWanted
from supervisor.store.bodies import clean, fits
from supervisor.store.deciding import (
    DAY,
    DECISION,
    PROPOSAL,
    alone,
    decision_in,
    moment,
    no_decision,
    no_proposal,
    over,
    proposal_in,
    proven,
    settled,
)
from supervisor.store.engine import Database, Row
from supervisor.store.errands import put_errands
from supervisor.store.proposing import ITSELF, standing_hold
from supervisor.store.times import to_us

MODES = ("ask", "record")
_NEW = (
    *("proposal", "job", "incarnation", "attempt", "verdict", "digest", "approved_by", "role", "reason"),
    *("approved_at", "expires_at", "mode", "stage"),
)


class Proposals:
    """Proposals, decisions on them, and how far carrying them out has come."""

    _db: Database

    # ------------------------------------------------------------ reading

    def proposals(self, *states: ProposalState) -> list[Proposal]:
        """Those in any of these states, oldest first; those that wait where none is named."""
        wanted = tuple(each.value for each in states or (ProposalState.OPEN,))
        return self._proposals(f"WHERE p.state IN ({', '.join('?' * len(wanted))}) ORDER BY p.id", wanted)

    def proposals_of(self, row: int) -> list[Proposal]:
        """All of one job, oldest first."""
        return self._proposals("WHERE p.job = ? ORDER BY p.id", (row,))

    def proposal(self, number: int) -> Proposal:
        """Raises UsageError where there is none of this number."""
        found = self._proposals("WHERE p.id = ?", (fits(number),))
        if not found:
            raise UsageError(no_proposal(number))
        return found[0]

    def _proposals(self, which: str, values: Row) -> list[Proposal]:
        with self._db.read("reading proposals") as connection:
            return [proposal_in(row) for row in self._db.run(connection, f"{PROPOSAL} {which}", values)]

    def decision(self, number: int) -> Decision:
        found = self._decisions("WHERE d.id = ?", (fits(number),))
        if not found:
            raise StoreError(no_decision(number))
        return found[0]

    def decisions(self, *, row: int | None = None, unfinished: bool = False) -> list[Decision]:
        """Oldest first; of one job, or those that are not over yet."""
        parts, values = [], []
        if row is not None:
            parts, values = ["d.job = ?"], [row]
        if unfinished:
            parts.append("d.finished_at IS NULL")
        where = f"WHERE {' AND '.join(parts)} " if parts else ""
        return self._decisions(f"{where}ORDER BY d.id", tuple(values))

    def decision_of(self, proposal: int) -> Decision | None:
        """The decision on a proposal; None where it was never approved."""
        found = self._decisions("WHERE d.proposal = ?", (proposal,))
        return found[0] if found else None

    def _decisions(self, which: str, values: Row) -> list[Decision]:
        with self._db.read("reading decisions") as connection:
            return [decision_in(row) for row in self._db.run(connection, f"{DECISION} {which}", values)]

    def clusters_in_question(self) -> list[str]:
        """Clusters with a proposal that waits or a kill that is not over and recorded yet, by name."""
        text = (
            "SELECT j.cluster FROM proposal p JOIN job j ON j.id = p.job WHERE p.state = 'open' "
            "UNION SELECT cluster FROM errand WHERE finished_at IS NULL AND kind = 'kill' ORDER BY 1"
        )
        with self._db.read("looking where kills are in question") as connection:
            return [row[0] for row in self._db.run(connection, text)]

    # ------------------------------------------------------------ what becomes of a proposal

    def withdraw(self, number: int, why: str, now: datetime, by: str = ITSELF) -> bool:
        """Its facts are no longer so. False where it does not wait (any more)."""
        with self._db.write(f"withdrawing proposal {number}") as connection:
            return self._close_proposal(connection, number, "withdrawn", by, why, now)

    def expire_due(self, now: datetime) -> list[Proposal]:
        """Let go of proposals that waited too long, and void approvals that were not begun in time; those proposals."""
        text = "SELECT id FROM proposal WHERE state = 'open' AND expires_at <= ? ORDER BY id"
        late = (
            "SELECT id, proposal FROM decision WHERE finished_at IS NULL AND stage = 'approved' AND expires_at <= ? "
            "ORDER BY id"
        )
        at = to_us(now)
        with self._db.read("looking for what expired") as connection:
            due = [row[0] for row in self._db.run(connection, text, (at,))]
            unused = [tuple(row) for row in self._db.run(connection, late, (at,))]
        if not due and not unused:
            return []
        gone = []
        with self._db.write("letting go of what expired") as connection:
            alone(self._db, connection)
            for number in due:
                if self._close_proposal(connection, number, "expired", ITSELF, "nobody decided on it in time", now):
                    gone.append(number)
            for number, proposal in unused:
                if over(self._db, connection, number, ("approved",), Stage.VOID, "the approval expired unused", now):
                    gone.append(proposal)
        return [self.proposal(number) for number in sorted(gone)]

    def deny(self, number: int, *, by: str, reason: str, now: datetime) -> Proposal:
        """Say no: equal facts are not proposed again. An approval that was not begun yet is void by it.

        Raises UsageError where there is no such proposal, where it is settled, and where its cancel is under way.
        """
        if not reason.strip():
            raise UsageError(f"proposal {number}: a denial needs a reason, for the record")
        with self._db.write(f"denying proposal {number}") as connection:
            alone(self._db, connection)
            row = self._proposal_row(connection, number)
            if row.state == "approved":
                why = f"denied by {by} after its approval: {reason}"
                text = "SELECT id FROM decision WHERE proposal = ?"
                decision = self._db.run(connection, text, (number,)).scalar_one()
                if not over(self._db, connection, decision, ("approved",), Stage.VOID, why, now, "denied"):
                    raise UsageError(f"proposal {number}: its kill is being carried out already")
                text = "UPDATE proposal SET settled_by = ?, why = ? WHERE id = ?"
                self._db.run(connection, text, (clean(by), clean(reason), number))
            elif not self._close_proposal(connection, number, "denied", by, reason, now):
                raise UsageError(settled(row))
        return self.proposal(number)

    def _close_proposal(
        self, connection: sa.Connection, number: int, state: str, by: str, why: str | None, now: datetime
    ) -> bool:
        """The one way out of ``open``."""
        text = "UPDATE proposal SET state = ?, settled_at = ?, settled_by = ?, why = ? WHERE id = ? AND state = 'open'"
        values = (state, to_us(now), clean(by), None if why is None else clean(why), number)
        return self._db.run(connection, text, values).rowcount == 1

    def _proposal_row(self, connection: sa.Connection, number: int) -> Any:
        lock = "" if self._db.is_sqlite else " FOR UPDATE OF p"
        row = self._db.run(connection, f"{PROPOSAL} WHERE p.id = ?{lock}", (fits(number),)).first()
        if row is None:
            raise UsageError(no_proposal(number))
        return row

    # ------------------------------------------------------------ approval

    def approve(
        self,
        number: int,
        *,
        digest: str,
        by: str,
        reason: str,
        mode: str,
        expires_at: datetime,
        now: datetime,
        per_day: int | None = None,
    ) -> Decision:
        """Write down a person's leave (or their standing rule's), and the errand that uses it, in one transaction.

        ``digest`` is that of the verdict that the person was shown; ``per_day`` is how many approvals ``by`` may give within
        24 hours. On PostgreSQL the connection's own user is written down beside ``by``. Raises UsageError, in one
        sentence, where it can't be approved (any more).
        """
        if mode not in MODES:
            raise UsageError(f"approvals are for mode {' or '.join(MODES)}, not for {mode!r}")
        if not by.strip() or not reason.strip():
            raise UsageError(f"proposal {number}: an approval names who gives it and why, for the record")
        if expires_at <= now:
            raise UsageError(f"proposal {number}: an approval that expires at once allows nothing")
        with self._db.write(f"approving proposal {number}") as connection:
            alone(self._db, connection)
            row = self._proposal_row(connection, number)
            why = self._not_approvable(connection, row, digest, now)
            if why is None and per_day is not None:
                text = "SELECT COUNT(*) FROM decision WHERE approved_by = ? AND approved_at > ?"
                given = self._db.run(connection, text, (clean(by), to_us(now - DAY))).scalar_one()
                if given >= per_day:
                    why = f"proposal {number}: {by} gave {given} approvals within 24 h, of {per_day} it may give"
            if why is not None:
                raise UsageError(why)
            if not self._close_proposal(connection, number, "approved", by, None, now):
                raise UsageError(f"proposal {number} was settled by somebody else just now")
            role = None
            if not self._db.is_sqlite:
                role = str(connection.exec_driver_sql("SELECT current_user").scalar_one())
            values: Row = (
                *(number, row.job, row.incarnation, row.attempt, row.verdict, row.digest),
                *(clean(by), role, clean(reason), to_us(now), to_us(expires_at), mode, Stage.APPROVED.value),
            )
            text = f"INSERT INTO decision ({', '.join(_NEW)}) VALUES ({', '.join('?' * len(_NEW))}) RETURNING id"
            made = int(self._db.run(connection, text, values).scalar_one())
            key = JobKey(row.cluster, row.job_id, row.incarnation_now)
            errand = ErrandWanted("kill", key, {"decision": made}, f"kill/{made}")
            put_errands(self._db, connection, [errand], now, {key: row.job})
        return self.decision(made)

    def _not_approvable(self, connection: sa.Connection, row: Any, digest: str, now: datetime) -> str | None:
        name = f"proposal {row.id} ({row.cluster}/{row.job_id})"
        if row.state != "open":
            return settled(row)
        if row.expires_at <= to_us(now):
            return f"{name} expired at {moment(row.expires_at)}"
        if (row.incarnation, row.attempt) != (row.incarnation_now, row.attempt_now):
            return f"{name} is for attempt {row.attempt}, and the job stands at attempt {row.attempt_now}"
        if row.closed_at is not None:
            return f"{name}: the job has ended"
        if digest != row.digest:
            return f"{name} stands on verdict {row.verdict} with digest {row.digest}, not on {digest}"
        if not proven(self._db, connection, row.verdict, row.digest):
            return f"{name}: verdict {row.verdict} as it is stored does not have its digest {row.digest}"
        hold = standing_hold(self._db, connection, row.cluster, row.job_id)
        return None if hold is None else f"{name}: {hold}"
