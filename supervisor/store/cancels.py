"""An approved kill, carried out: intent, receipt, outcome, each written down by one guarded UPDATE (KILL-1, KILL-3).

The step forward holds only where the row still stands where it begins, so that of two that try it one does it. An
:class:`Approval` is built in :meth:`Cancels.begin_cancel` and nowhere else in the program.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from supervisor.model.errors import StoreError
from supervisor.model.job import JobKey
from supervisor.model.ports import Approval, CancelReceipt
from supervisor.model.proposals import Caps, Refusal, Stage
from supervisor.store.bodies import clean, fits
from supervisor.store.deciding import DAY, DECISION, alone, moment, no_decision, over, proven, span_words
from supervisor.store.engine import Database
from supervisor.store.proposing import standing_hold
from supervisor.store.times import from_us, to_us

OUTPUT_KEPT = 4000
"""Characters of a cancel's own output that are kept."""


class Cancels:
    """How far carrying out a decision has come."""

    _db: Database

    def begin_cancel(self, number: int, *, owner: str, caps: Caps, now: datetime) -> Approval | Refusal:
        """Write down that the cancel is sent now; the leave to send it, once, or why it may not be sent.

        In one transaction: not begun before, not expired, the same attempt, no hold, within the caps, and ``owner`` holds the
        cluster's lease. Whoever gets the Approval sends it at once or never: from here on it counts as sent.
        """
        with self._db.write(f"beginning the kill of decision {number}") as connection:
            row, refusal = self._may_begin(connection, number, "ask", owner, caps, now)
            if refusal is None:
                text = (
                    "UPDATE decision SET stage = 'intended', intended_at = ? "
                    "WHERE id = ? AND stage = 'approved' AND mode = 'ask' AND expires_at > ?"
                )
                if self._db.run(connection, text, (to_us(now), number, to_us(now))).rowcount != 1:
                    refusal = Refusal("somebody else began it just now", for_good=True)
        if refusal is not None:
            return refusal
        return Approval(
            id=row.id,
            job=JobKey(row.cluster, row.job_id, row.incarnation),
            attempt=row.attempt,
            verdict_digest=row.digest,
            approved_by=row.approved_by,
            expires_at=from_us(row.expires_at),
        )

    def record_only(self, number: int, *, owner: str, caps: Caps, now: datetime) -> Refusal | None:
        """Write down what would have been sent now, where nothing is sent (``mode = "record"``); the same checks."""
        with self._db.write(f"recording decision {number}") as connection:
            _row, refusal = self._may_begin(connection, number, "record", owner, caps, now)
            if refusal is not None:
                return refusal
            why = 'all checks passed; nothing was sent, for the mode is "record"'
            if not over(self._db, connection, number, ("approved",), Stage.RECORDED, why, now):
                return Refusal("somebody else began it just now", for_good=True)
            text = "UPDATE decision SET mode = 'record', intended_at = ? WHERE id = ?"
            self._db.run(connection, text, (to_us(now), number))
        return None

    def would_begin(self, number: int, mode: str, *, owner: str, caps: Caps, now: datetime) -> Refusal | None:
        """What would be in the way of beginning now; nothing is begun."""
        with self._db.read(f"looking at decision {number}") as connection:
            return self._may_begin(connection, number, mode, owner, caps, now, locked=False)[1]

    def _may_begin(
        self,
        connection: sa.Connection,
        number: int,
        mode: str,
        owner: str,
        caps: Caps,
        now: datetime,
        *,
        locked: bool = True,
    ) -> tuple[Any, Refusal | None]:
        locked = locked and not self._db.is_sqlite
        if locked:  # a hold that is being added is waited for
            connection.exec_driver_sql("LOCK TABLE hold IN SHARE MODE")
            alone(self._db, connection)
        lock = " FOR UPDATE OF d" if locked else ""
        row = self._db.run(connection, f"{DECISION} WHERE d.id = ?{lock}", (fits(number),)).first()
        if row is None:
            raise StoreError(no_decision(number))
        why = None
        if row.stage != "approved":
            why = f"it is {row.stage} already"
        elif mode == "ask" and row.mode != "ask":
            why = f"it was approved in mode {row.mode!r}, in which nothing is sent"
        elif row.expires_at <= to_us(now):
            why = f"the approval expired at {moment(row.expires_at)}"
        elif (row.incarnation, row.attempt) != (row.incarnation_now, row.attempt_now):
            why = f"the approval is for attempt {row.attempt}, and the job stands at attempt {row.attempt_now}"
        elif row.closed_at is not None:
            why = "the job has ended"
        elif not proven(self._db, connection, row.verdict, row.digest):
            why = f"verdict {row.verdict} as it is stored does not have the digest that was approved"
        else:
            why = standing_hold(self._db, connection, row.cluster, row.job_id)
        if why is not None:
            return row, Refusal(why, for_good=True)
        text = "SELECT owner, until FROM lease WHERE cluster = ?"
        lease = self._db.run(connection, text, (row.cluster,)).first()
        if lease is None or lease.owner != owner or lease.until <= to_us(now):
            holder = "nobody" if lease is None else lease.owner
            return row, Refusal(f"{row.cluster} is held by {holder} now, not by {owner}", for_good=False)
        full = self._capped(connection, mode, caps, now)
        return row, None if full is None else Refusal(full, for_good=False)

    def capped(self, mode: str, caps: Caps, now: datetime) -> str | None:
        """The cap that lets no further kill begin now, in words; None where one may."""
        with self._db.read("counting the kills that were begun") as connection:
            return self._capped(connection, mode, caps, now)

    def _capped(self, connection: sa.Connection, mode: str, caps: Caps, now: datetime) -> str | None:
        counted = "stage = 'recorded'" if mode == "record" else "stage <> 'recorded'"
        for most, span, words in ((caps.per_tick, caps.tick, "per_tick"), (caps.per_day, DAY, "per_day")):
            text = f"SELECT COUNT(*) FROM decision WHERE intended_at > ? AND {counted}"
            sent = self._db.run(connection, text, (to_us(now - span),)).scalar_one()
            if sent >= most:
                begun = "1 kill was" if sent == 1 else f"{sent} kills were"
                return f"{begun} begun within {span_words(span)}, and {words} allows {most}"
        return None

    def receipt(self, number: int, receipt: CancelReceipt, now: datetime) -> bool:
        """What is known after the sending. False where it was not under way."""
        text = "UPDATE decision SET stage = 'sent', sent_at = ?, accepted = ?, output = ? WHERE id = ? AND stage = 'intended'"
        values = (to_us(now), receipt.accepted, clean(receipt.output[:OUTPUT_KEPT]), number)
        with self._db.write(f"storing the receipt of decision {number}") as connection:
            return self._db.run(connection, text, values).rowcount == 1

    def not_sent(self, approval: Approval, why: str, now: datetime) -> bool:
        """Whoever holds the Approval knows that nothing was sent on it, and that nothing will be: it is void."""
        with self._db.write(f"voiding decision {approval.id}") as connection:
            return over(self._db, connection, approval.id, ("intended",), Stage.VOID, why, now)

    def outcome(self, number: int, stage: Stage, why: str, now: datetime) -> bool:
        """How it came out. False where it is over already, or could not have come out so."""
        froms = {
            Stage.CONFIRMED: ("intended", "sent"),
            Stage.UNCONFIRMED: ("intended", "sent"),
            Stage.ENDED_ITSELF: ("approved",),
        }.get(stage)
        if froms is None:
            raise StoreError(f"{stage.value} is no outcome of a cancel")
        with self._db.write(f"storing the outcome of decision {number}") as connection:
            return over(self._db, connection, number, froms, stage, why, now)

    def void(self, number: int, why: str, now: datetime) -> bool:
        """Nothing is sent on it, ever (KILL-2). False where its cancel was begun, or it is over."""
        with self._db.write(f"voiding decision {number}") as connection:
            return over(self._db, connection, number, ("approved",), Stage.VOID, why, now)
