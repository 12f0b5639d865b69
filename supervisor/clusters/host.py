"""``kind = "host"``: processes on this machine, or on another over SSH, without any scheduler.

The truth is the records that ``supervisorctl launch`` and its waiter keep, held against the process table. Nothing is
remembered here between polls.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from supervisor.clusters import host_commands, log_pieces, trial_trees
from supervisor.clusters.certificate import certificate_expiry
from supervisor.clusters.host_capture import HostProbe
from supervisor.clusters.host_settings import HostSettings
from supervisor.clusters.host_text import (
    Answer,
    Live,
    Place,
    Unusable,
    ended_observation,
    live_observation,
    read_poll,
    record_of,
)
from supervisor.clusters.shell import Ran, Shell
from supervisor.model.errors import (
    AnswerUnusable,
    ClusterError,
    CommandFailed,
    LoginNeedsPerson,
    NotApproved,
    TookTooLong,
)
from supervisor.model.job import JobKey, Observation
from supervisor.model.logs import LogRead, LogStat, LogState, LogUnread, LogWanted
from supervisor.model.polling import Check, Polled, Reading, Unreached, Watch
from supervisor.model.ports import Approval, CancelReceipt
from supervisor.model.probe import Captured, CaptureWanted, Remains
from supervisor.model.trials import TrialRead, TrialsWanted

_TRUE_OFFSET = timedelta(seconds=2)
"""Below it a clock offset is the whole second that ``date`` rounds to, and the way there and back."""
_CANCEL_SLACK_S = 30.0


class HostCluster:
    """One machine. ``records``: the folder of launch records of this machine, where the settings name none."""

    def __init__(self, name: str, settings: HostSettings, shell: Shell, records: Path | None = None) -> None:
        self._name, self._settings, self._shell = name, settings, shell
        self._records = settings.records
        if self._records is None and settings.here and records is not None:
            self._records = str(records)

    @property
    def name(self) -> str:
        return self._name

    @property
    def kind(self) -> str:
        return "host"

    async def poll(self, watch: Watch, now: datetime) -> Reading:
        started = time.monotonic()
        try:
            answer = await self._answer(watch, now)
            at, took = _since(started, now)
            return self._reading(answer, watch, at, took)
        except ClusterError as error:
            at, _ = _since(started, now)
            person = isinstance(error, LoginNeedsPerson)
            return Unreached(cluster=self._name, at=at, reason=error.text, hint=error.hint, needs_person=person)

    async def read_logs(self, wanted: Sequence[LogWanted], now: datetime) -> Mapping[tuple[str, str], LogRead]:
        if not wanted:
            return {}
        nonce = secrets.token_hex(16)
        limits = self._settings.logs_timeout_s, log_pieces.bytes_needed(wanted)
        try:
            ran = await self._shell.run(log_pieces.script(wanted, nonce), limit_s=limits[0], limit_bytes=limits[1])
        except ClusterError as error:
            return {(piece.job_id, piece.path): LogUnread(piece.path, error.text) for piece in wanted}
        return log_pieces.read(wanted, nonce, ran)

    async def read_trials(self, wanted: Sequence[TrialsWanted], now: datetime) -> Mapping[str, TrialRead]:
        """One script for all jobs (POLL-6)."""
        limit = self._settings.logs_timeout_s
        try:
            return await trial_trees.read(self._shell, wanted, one_s=min(20.0, limit), all_s=limit)
        except ClusterError as error:
            return trial_trees.unread(wanted, error)

    async def cancel(self, job: JobKey, approval: Approval) -> CancelReceipt:
        if approval.job != job or job.cluster != self._name:
            raise NotApproved(f"approval {approval.id} is for {approval.job.ref}, not for {job.ref}")
        nonce, grace = secrets.token_hex(16), self._settings.cancel_grace_s
        try:
            script = host_commands.cancel(
                nonce,
                self._records,
                job_id=job.id,
                incarnation=job.incarnation,
                approval=approval.id,
                grace_s=grace,
            )
        except ValueError as error:
            return CancelReceipt(False, str(error))
        try:
            ran = await self._shell.run(script, limit_s=grace + _CANCEL_SLACK_S, limit_bytes=2**16)
        except TookTooLong as error:
            return CancelReceipt(None, error.text)
        return _receipt(ran, nonce)

    async def capture(self, wanted: CaptureWanted, now: datetime) -> Sequence[Captured]:
        return await self._probe().capture(wanted, now)

    async def remains(self, seen: Observation, now: datetime) -> Remains:
        return await self._probe().remains(seen)

    def _probe(self) -> HostProbe:
        return HostProbe(
            cluster=self._name,
            shell=self._shell,
            records=self._records,
            limit_s=self._settings.poll_timeout_s,
            read_logs=self.read_logs,
        )

    async def check(self, now: datetime) -> Sequence[Check]:
        checks = list(self._credentials(now))
        started = time.monotonic()
        try:
            answer = await self._answer(Watch(), now)
        except ClusterError as error:
            return [*checks, Check("login", "fail", error.text, error.hint)]
        at, took = _since(started, now)
        checks.append(
            Check("login", "ok", f"{self._shell.place} answered in {took.total_seconds():.1f} s: {answer.system}")
        )
        if answer.absent:
            text = f"no folder {answer.folder} yet: nothing was launched on this machine, or by another user"
            checks.append(Check("records", "warn", text, "start something with `supervisorctl launch`"))
        else:
            checks.append(Check("records", "ok", f"{answer.folder}: {len(answer.live)} without an end"))
        offset = _offset(answer, at, took)
        if abs(offset) > timedelta(minutes=1):
            checks.append(
                Check("clock", "warn", f"its clock is {offset.total_seconds():+.0f} s off ours", "look at NTP")
            )
        else:
            checks.append(Check("clock", "ok", f"{offset.total_seconds():+.0f} s off ours"))
        return checks

    async def close(self) -> None:
        await self._shell.close()

    def _credentials(self, now: datetime) -> Sequence[Check]:
        """POLL-12: said from 24 h before the end on, and again from 2 h on, since the words change then."""
        found: list[Check] = []
        if self._settings.here:
            return found
        for path in filter(None, (self._settings.certificate_file, self._settings.identity_file)):
            try:
                ends = certificate_expiry(path)
            except (OSError, ValueError) as error:
                found.append(Check("certificate", "fail", str(error)))
                continue
            if ends is not None:
                left = ends - now
                result = "fail" if left <= timedelta(0) else "warn" if left < timedelta(hours=24) else "ok"
                within = next(
                    (f", in less than {h} h" for h in (2, 24) if timedelta(0) < left < timedelta(hours=h)), ""
                )
                text = f"the certificate of {path} ends at {ends.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}{within}"
                found.append(Check("certificate", result, text, None if result == "ok" else "get a new certificate"))
        return found

    async def _answer(self, watch: Watch, now: datetime) -> Answer:
        """Raises ClusterError unless a whole and positively good answer came (POLL-1, POLL-2)."""
        settings = self._settings
        back = timedelta(seconds=settings.first_look_back_s)
        if watch.ended_since is not None:
            back = max(timedelta(0), now - watch.ended_since) + timedelta(seconds=settings.look_back_margin_s)
        nonce = secrets.token_hex(16)
        script = host_commands.poll(nonce, self._records, age_s=int(back.total_seconds()), asked=watch.live)
        ran = await self._shell.run(script, limit_s=settings.poll_timeout_s)
        if ran.truncated:
            raise AnswerUnusable(self._name, "the answer is larger than anything that a records folder should hold")
        if ran.exit_status != 0:
            raise CommandFailed(self._name, "reading the launch records", ran.exit_status, _said(ran, nonce))
        try:
            answer = read_poll(ran.stdout, nonce)
        except Unusable as error:
            raise AnswerUnusable(self._name, str(error)) from error
        if answer.absent and watch.live:
            raise AnswerUnusable(
                self._name,
                f"there is no folder {answer.folder} any more, and {len(watch.live)} processes were recorded in it",
                hint="look whether its file system is mounted",
            )
        return answer

    def _reading(self, answer: Answer, watch: Watch, at: datetime, took: timedelta) -> Polled:
        place = Place(self._name, answer, _offset(answer, at, took))
        lines: dict[str, str] = {}
        changed: list[Observation] = []
        problems: list[str] = []
        ended = self._ends(answer, place, problems)
        over = {observation.key for observation in ended}
        ended_ids = {observation.key.id for observation in ended}
        for job_id, live in answer.live.items():
            fingerprint = live.fingerprint(answer.where)
            if watch.lines.get(job_id) == fingerprint and job_id not in ended_ids and not _may_time_out(live):
                lines[job_id] = fingerprint
                continue
            try:
                record = record_of(live.text, job_id)
            except ValueError as error:
                if job_id not in ended_ids:  # it may just have moved on to its end
                    lines[job_id] = fingerprint
                    problems.append(f"the record of process {job_id} is unreadable: {error}")
                continue
            if not self._ours(record["user"]) or place.key(record) in over:
                continue
            observation = live_observation(live, record, place)
            if observation.state.ended:
                ended.append(observation)
                continue
            lines[job_id] = fingerprint
            if watch.lines.get(job_id) != fingerprint:
                changed.append(observation)
        return Polled(
            cluster=self._name,
            at=at,
            lines=lines,
            changed=changed,
            ended=ended,
            logs={job_id: _log(answer, job_id, place) for job_id in lines},
            clock_offset=place.offset,
            version=answer.system or None,
            problems=(*problems, *(check.text for check in self._credentials(at) if check.result != "ok")),
            took=took,
            source=self._shell.place,
        )

    def _ends(self, answer: Answer, place: Place, problems: list[str]) -> list[Observation]:
        found = []
        for job_id, text in answer.ended:
            try:
                record = record_of(text, job_id)
                if self._ours(record["user"]):
                    found.append(ended_observation(record, place))
            except ValueError as error:
                problems.append(f"the record of the end of process {job_id} is unreadable: {error}")
        return found

    def _ours(self, user: str) -> bool:
        return not self._settings.users or user in self._settings.users


def _may_time_out(live: Live) -> bool:
    """A record without a process yet changes its meaning with time alone."""
    return b'\n "pid": null' in live.text


def _log(answer: Answer, job_id: str, place: Place) -> LogStat:
    found = answer.live[job_id].log
    if found is None:
        return LogStat(f"{answer.folder}/logs/{job_id}.log", LogState.UNREAD, reason="stat said nothing of it")
    if found.modified_at is None:
        return found
    return replace(found, modified_at=found.modified_at - place.offset)


def _since(started: float, now: datetime) -> tuple[datetime, timedelta]:
    took = timedelta(seconds=time.monotonic() - started)
    return now + took, took


def _offset(answer: Answer, at: datetime, took: timedelta) -> timedelta:
    """Host's clock minus ours: its answer was given about halfway, and its clock was read in whole seconds (POLL-10)."""
    offset = datetime.fromtimestamp(answer.clock + 0.5, UTC) - (at - took / 2)
    return offset if abs(offset) > _TRUE_OFFSET + took / 2 else timedelta(0)


def _said(ran: Ran, nonce: str) -> str:
    """What the far side complained of: standard error, else the last thing on standard output that is not ours."""
    words = ran.stderr or b"\n".join(line for line in ran.stdout.splitlines() if not line.startswith(nonce.encode()))
    return " ".join("".join(c if c.isprintable() else " " for c in words.decode("utf-8", "replace")).split())


def _receipt(ran: Ran, nonce: str) -> CancelReceipt:
    """KILL-6: where the end mark is missing, the signal may have been sent all the same."""
    lines = [line.removeprefix(f"{nonce} ") for line in ran.stdout.decode("utf-8", "replace").splitlines()]
    output = "; ".join(line for line in lines if line != "end")
    refused = [line.removeprefix("refused ") for line in lines if line.startswith("refused ")]
    if refused and ran.exit_status == 0:
        return CancelReceipt(False, refused[0])
    sent = any(line.startswith("sent ") for line in lines)
    if sent:
        return CancelReceipt(True, output)
    how = "no exit status" if ran.exit_status is None else f"exit status {ran.exit_status}"
    return CancelReceipt(None, f"{how}: {_said(ran, nonce)[:300]}")
