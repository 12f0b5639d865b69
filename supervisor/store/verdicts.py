"""Verdicts of the deep probe: written once with the proposal that follows, kept for ever, read by the next tick."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from supervisor.model.errors import StoreError
from supervisor.model.job import JobKey
from supervisor.model.probe import Ruling, Standing, Verdict
from supervisor.store import schema
from supervisor.store.bodies import clean, clean_or_none, fits, from_json
from supervisor.store.engine import Database, Row
from supervisor.store.entries import ScoreRow, VerdictEntry
from supervisor.store.proposing import proposed, settle_older
from supervisor.store.times import from_us, from_us_or_none, to_us
from supervisor.store.verdict_bodies import reason_of, standing_body, standing_of, verdict_body, verdict_of

_STANDING = (
    "SELECT v.id, j.cluster, j.job_id, j.incarnation, v.attempt, v.taken_at, v.ruling, v.passed, v.wedged, v.cause, v.reason, "
    "v.standing, v.setting FROM job j JOIN verdict v ON v.id = j.verdict "
    "WHERE j.cluster = ? AND j.verdict IS NOT NULL AND j.closed_at IS NULL"
)
_ENTRY = (
    "SELECT v.id, v.job, j.name, j.bucket, v.stored_at, v.silence_key, v.no_proposal, p.id, v.body "
    "FROM verdict v JOIN job j ON j.id = v.job LEFT JOIN proposal p ON p.verdict = v.id"
)
_SCORE = (
    "SELECT v.id, v.body, j.name, j.bucket, p.id, p.state, d.mode, d.stage, d.finished_at, j.phase, j.outcome, j.attempt, "
    "j.state, j.ended_at, j.step, j.progress_at, a.state, a.ended_at, a.body, "
    "(SELECT MAX(at) FROM transition t WHERE t.job = v.job AND t.after = 'suspect' AND t.at <= v.taken_at) "
    "FROM verdict v JOIN job j ON j.id = v.job LEFT JOIN proposal p ON p.verdict = v.id "
    "LEFT JOIN decision d ON d.proposal = p.id LEFT JOIN attempt a ON a.job = v.job AND a.number = v.attempt "
    "WHERE v.taken_at >= ? ORDER BY v.taken_at, v.id"
)


class Verdicts:
    """What probes ruled."""

    _db: Database

    def put_verdict(
        self,
        row: int,
        verdict: Verdict,
        now: datetime,
        *,
        silence_key: str,
        leave: str | None = None,
        expires_at: datetime | None = None,
    ) -> tuple[int, int | None]:
        """Store a verdict and the proposal that follows from it, in one transaction; their numbers.

        A KILL is proposed unless ``leave`` says why not, or what is stored forbids it: its attempt is over, one of the attempt
        waits or is approved, or equal facts (``silence_key``) were denied or recorded. A NO-KILL, or a KILL on other facts,
        withdraws the proposal that waits; an ERROR, which knows nothing, leaves it. The same verdict again, by its digest,
        changes nothing. Raises StoreError on a job never stored, and on a proposal without ``expires_at``.
        """
        digest = verdict.digest
        with self._db.write(f"storing a verdict on {verdict.job.ref}") as connection:
            lock = "" if self._db.is_sqlite else " FOR NO KEY UPDATE"
            text = f"SELECT incarnation, attempt, closed_at FROM job WHERE id = ?{lock}"
            job = self._db.run(connection, text, (row,)).first()
            if job is None:
                raise StoreError(f"no job has row number {row}, so no verdict can belong to it")
            before = "SELECT v.id, p.id FROM verdict v LEFT JOIN proposal p ON p.verdict = v.id WHERE v.digest = ?"
            stored = self._db.run(connection, before, (digest,)).first()
            if stored is not None:
                return int(stored[0]), stored[1]
            over: str | None = None
            if (job.incarnation, job.attempt) != (verdict.job.incarnation, verdict.attempt):
                over = f"attempt {verdict.attempt} is over: the job stands at attempt {job.attempt}"
            elif job.closed_at is not None:
                over = "it has ended"
            number = self._insert(connection, row, verdict, digest, silence_key, now)
            if verdict.passed and verdict.setting is not None:
                put = self._db.insert(schema.setting).values(
                    fingerprint=clean(verdict.setting), verdict=number, at=verdict.taken_at
                )
                connection.execute(put.on_conflict_do_nothing())
            if over is None:
                settle_older(self._db, connection, row, verdict, silence_key, now)
            if verdict.ruling is not Ruling.KILL:
                return number, None
            why = leave or over
            proposal = None
            if why is None:
                proposal, why = proposed(self._db, connection, row, number, verdict, silence_key, expires_at, now)
            if proposal is None:
                text = "UPDATE verdict SET no_proposal = ? WHERE id = ?"
                self._db.run(connection, text, (clean_or_none(why), number))
        return number, proposal

    def _insert(
        self, connection: sa.Connection, row: int, verdict: Verdict, digest: str, silence_key: str, now: datetime
    ) -> int:
        insert = sa.insert(schema.verdict).values(
            job=row,
            attempt=verdict.attempt,
            taken_at=verdict.taken_at,
            stored_at=now,
            ruling=verdict.ruling.value,
            confidence=clean(verdict.confidence),
            cause=clean(verdict.cause),
            digest=digest,
            setting=clean_or_none(verdict.setting),
            passed=verdict.passed,
            wedged=verdict.wedged,
            judge=clean(verdict.judge),
            evidence=clean(verdict.evidence),
            silence_key=silence_key,
            step=fits(verdict.mark.step),
            reason=clean(reason_of(verdict)),
            standing=standing_body(verdict),
            body=verdict_body(verdict),
        )
        key = connection.execute(insert).inserted_primary_key
        assert key is not None
        number = int(key[0])
        newest = (
            "UPDATE job SET verdict = ? WHERE id = ? AND NOT EXISTS "
            "(SELECT 1 FROM verdict v WHERE v.id = job.verdict AND v.taken_at > ?)"
        )
        self._db.run(connection, newest, (number, row, to_us(verdict.taken_at)))
        return number

    # ------------------------------------------------------------ reading

    def standing(self, cluster: str) -> dict[JobKey, Standing]:
        """The newest verdict of each job of a cluster that is held as living, by the job's key as it is held now.

        It may be of an earlier attempt: compare ``attempt`` and ``job``.
        """
        found: dict[JobKey, Standing] = {}
        with self._db.read(f"reading the verdicts of {cluster}") as connection:
            for row in self._db.run(connection, _STANDING, (cluster,)):
                job, mark, quotes = standing_of(row[0], row[11])
                found[JobKey(row[1], row[2], row[3])] = Standing(
                    id=row[0],
                    job=job,
                    attempt=row[4],
                    taken_at=from_us(row[5]),
                    ruling=Ruling(row[6]),
                    passed=bool(row[7]),
                    wedged=bool(row[8]),
                    cause=row[9],
                    reason=row[10],
                    quotes=quotes,
                    mark=mark,
                    setting=row[12],
                )
        return found

    def verdict(self, number: int) -> VerdictEntry:
        found = self._verdicts("WHERE v.id = ?", (fits(number),))
        if not found:
            raise StoreError(f"there is no verdict {number}")
        return found[0]

    def verdicts(self, *, row: int | None = None, limit: int | None = None) -> list[VerdictEntry]:
        """Newest first, of one job or of all."""
        where, values = ("", ()) if row is None else ("WHERE v.job = ?", (row,))
        cut = "" if limit is None else f" LIMIT {int(limit)}"
        return self._verdicts(f"{where} ORDER BY v.id DESC{cut}", values)

    def _verdicts(self, which: str, values: Row) -> list[VerdictEntry]:
        with self._db.read("reading verdicts") as connection:
            return [_entry(row) for row in self._db.run(connection, f"{_ENTRY} {which}", values)]

    def passed_settings(self) -> frozenset[str]:
        """Fingerprints of the settings that a probe ever passed (RL-10)."""
        with self._db.read("reading the settings that passed") as connection:
            return frozenset(row[0] for row in self._db.run(connection, "SELECT fingerprint FROM setting"))

    def evidence_folders(self) -> dict[str, tuple[datetime, bool]]:
        """Folders that verdicts rest on: when each was taken, and whether it is needed still.

        Needed: by the newest verdict of a living job, by a proposal that waits, and by an approval that is not used up.
        """
        text = (
            "SELECT v.evidence, MAX(v.taken_at), MAX(CASE WHEN p.state IN ('open', 'approved') "
            "OR (j.verdict = v.id AND j.closed_at IS NULL) THEN 1 ELSE 0 END) FROM verdict v JOIN job j ON j.id = v.job "
            "LEFT JOIN proposal p ON p.verdict = v.id GROUP BY v.evidence"
        )
        with self._db.read("reading which evidence is needed") as connection:
            return {row[0]: (from_us(row[1]), bool(row[2])) for row in self._db.run(connection, text)}

    def scorecard(self, since: datetime) -> list[ScoreRow]:
        """Verdicts taken at or after a time, oldest first, each with what then became of its job."""
        with self._db.read("reading the scorecard") as connection:
            return [_scored(row) for row in self._db.run(connection, _SCORE, (to_us(since),))]

    def alarms_since(self, since: datetime) -> dict[str, int]:
        """How often a job that ran well became suspect or wedged, at or after a time, by what followed.

        Keys: ``raised``, and of these ``recovered`` (it ran on), ``ended`` (in whatever way), ``standing``.
        """
        text = (
            "SELECT (SELECT n.after FROM transition n WHERE n.job = t.job AND n.number > t.number "
            "AND n.after NOT IN ('suspect', 'wedged') ORDER BY n.number LIMIT 1) FROM transition t "
            "WHERE t.at >= ? AND t.before IN ('bring_up', 'running') AND t.after IN ('suspect', 'wedged')"
        )
        with self._db.read("counting alarms") as connection:
            next_ones = [row[0] for row in self._db.run(connection, text, (to_us(since),))]
        recovered, standing = sum(each in ("bring_up", "running") for each in next_ones), next_ones.count(None)
        ended = len(next_ones) - recovered - standing
        return {"raised": len(next_ones), "recovered": recovered, "ended": ended, "standing": standing}


def _entry(row: Any) -> VerdictEntry:
    verdict = verdict_of(row[0], row[8])
    return VerdictEntry(
        id=row[0],
        job_row=row[1],
        job=verdict.job,
        name=row[2],
        bucket=row[3],
        verdict=verdict,
        stored_at=from_us(row[4]),
        silence_key=row[5],
        no_proposal=row[6],
        proposal=row[7],
    )


def _scored(row: Any) -> ScoreRow:
    number, body, name, bucket, proposal, proposal_state, mode, stage, finished_at, phase, outcome, attempt = row[:12]
    state, ended_at, step, progress_at, past_state, past_ended_at, past_body, suspect_at = row[12:]
    verdict = verdict_of(number, body)
    if verdict.attempt != attempt:  # another followed: what is known of this one was kept when it did
        kept = from_json(past_body).get("log", {}) if past_body else {}
        state, ended_at, step = past_state, past_ended_at, kept.get("step")
        moment = kept.get("progress_at")
        progress = datetime.fromisoformat(moment) if moment else None
    else:
        progress = from_us_or_none(progress_at)
    return ScoreRow(
        verdict=number,
        job=verdict.job,
        name=name,
        bucket=bucket,
        attempt=verdict.attempt,
        taken_at=verdict.taken_at,
        ruling=verdict.ruling.value,
        confidence=verdict.confidence,
        cause=verdict.cause,
        judge=verdict.judge,
        proposal=proposal,
        proposal_state=proposal_state,
        mode=mode,
        stage=stage,
        finished_at=from_us_or_none(finished_at),
        phase=phase,
        outcome=outcome,
        attempt_now=attempt,
        attempt_state=state,
        attempt_ended_at=from_us_or_none(ended_at),
        step_then=verdict.mark.step,
        step_now=step,
        progress_then=verdict.mark.progress_at,
        progress_at=progress,
        suspect_at=from_us_or_none(suspect_at),
    )
