"""``kind = "slurm"``: jobs of one Slurm cluster, seen from its login nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from supervisor.clusters import trial_trees
from supervisor.clusters.certificate import certificate_expiry
from supervisor.clusters.shell import Shell
from supervisor.clusters.slurm_capture import SlurmProbe
from supervisor.clusters.slurm_commands import Nonce, Site, cancel_script, check_script, read_script
from supervisor.clusters.slurm_files import NOT_THERE, read_piece
from supervisor.clusters.slurm_jobs import all_started, clock_offset, ends, listed, used_up
from supervisor.clusters.slurm_look import Looker
from supervisor.clusters.slurm_reading import REGISTERED_S, Look, version_words
from supervisor.clusters.slurm_settings import SlurmSettings
from supervisor.clusters.slurm_text import ACCOUNTING_IS_OFF, Answer, Part, read_answer, row_of, safe_text
from supervisor.model.errors import ClusterError, LoginFailed, LoginNeedsPerson, NotApproved
from supervisor.model.job import Details, JobKey, Observation
from supervisor.model.logs import LogRead, LogText, LogUnread, LogWanted
from supervisor.model.polling import Check, Polled, Reading, Unreached, Watch
from supervisor.model.ports import Approval, CancelReceipt
from supervisor.model.probe import Captured, CaptureWanted, Remains
from supervisor.model.trials import TrialRead, TrialsWanted

READ_LIMIT_S = 300
"""Longest that all pieces of logs of one read may take, seconds."""
TRIALS_LIMIT_S = 120
"""Longest that all looks at trees of trials may take together, seconds."""
CERTIFICATE_NOTICE = timedelta(hours=24)
"""How long before its end an SSH certificate is spoken of (POLL-12)."""


class SlurmCluster:
    """Asks the login nodes in turn, the one that answered last first, and believes an empty queue only on proof (POLL-3)."""

    def __init__(
        self,
        name: str,
        settings: SlurmSettings,
        shells: Sequence[Shell],
        *,
        fresh_nonce: Callable[[], Nonce] = Nonce.fresh,
    ) -> None:
        if not shells:
            raise ValueError(f"{name}: a Slurm cluster needs a login node")
        self._name, self._settings, self._shells, self._fresh_nonce = name, settings, tuple(shells), fresh_nonce
        self._site = Site(
            queue_s=settings.queue_timeout_s,
            accounting_s=settings.accounting_timeout_s,
            logs_s=settings.logs_timeout_s,
            quota_s=settings.quota_timeout_s,
            slurm_bin=settings.slurm_bin,
        )
        self._first = 0

    @property
    def name(self) -> str:
        return self._name

    @property
    def kind(self) -> str:
        return "slurm"

    async def close(self) -> None:
        for shell in self._shells:
            await shell.close()

    def _in_turn(self) -> list[int]:
        return sorted(range(len(self._shells)), key=lambda at: (at != self._first, at))

    # -- poll ------------------------------------------------------------------------------------------------------

    async def poll(self, watch: Watch, now: datetime) -> Reading:
        began = time.monotonic()
        failures: list[ClusterError] = []
        doubted: list[_Seen] = []
        for at in self._in_turn():
            since = timedelta(seconds=time.monotonic() - began)
            looker = Looker(self._name, self._settings, self._site, self._shells[at], self._fresh_nonce)
            try:
                look = await looker.look(watch, now + since)
            except ClusterError as error:
                failures.append(error)
                continue
            seen = _Seen(look, observations(look, watch))
            if look.queue.lines or (watch.live and seen.drained(watch)):
                self._first = at
                return self._polled([seen], doubted, failures, watch, now, began)
            doubted.append(seen)
            agreed = [one for one in doubted if one.look.not_again is None]
            if len(agreed) > 1:
                self._first = at
                return self._polled(agreed, [], failures, watch, now, began)
        if doubted and self._believed_alone(doubted[0], watch):
            return self._polled(doubted, [], failures, watch, now, began)
        return self._unreached(doubted, failures, watch, now, began)

    def _believed_alone(self, seen: _Seen, watch: Watch) -> bool:
        """An empty queue that no other login node could confirm: only where no job can be lost by it (POLL-3)."""
        return (not watch.live or len(self._shells) == 1) and seen.why_not_alone(watch) is None

    def _polled(
        self,
        agreed: Sequence[_Seen],
        doubted: Sequence[_Seen],
        failures: Sequence[ClusterError],
        watch: Watch,
        now: datetime,
        began: float,
    ) -> Polled:
        """The last of ``agreed`` is the reading. What the others said is told as a problem, or filled in."""
        seen = next((one for one in reversed(agreed) if one.look.ends_read), agreed[-1])
        look, told = seen.look, seen.told
        unlisted = look.said_live(watch)
        problems = [error.text for error in failures]
        problems += [
            f"{one.look.place} lists no job while {look.place} does: its answer was set aside" for one in doubted
        ]
        problems += look.problems + self._credential_problems(now)
        if unlisted:
            few = ", ".join(f"{job} {word}" for job, word in list(unlisted.items())[:3])
            problems.append(
                f"accounting has {len(unlisted)} jobs that the queue does not list ({few}); they stay as they are"
            )
        took = timedelta(seconds=time.monotonic() - began)
        return Polled(
            cluster=self._name,
            at=now + took,
            lines={**look.queue.lines, **{job: watch.lines.get(job, "not listed") for job in unlisted}},
            changed=told.changed,
            ended=told.ended,
            ends_read=look.ends_read,
            logs=look.logs,
            headroom=look.headroom,
            clock_offset=look.clock.offset,
            version=look.version,
            problems=tuple(problems),
            took=took,
            source=look.place,
        )

    def _unreached(
        self, doubted: Sequence[_Seen], failures: Sequence[ClusterError], watch: Watch, now: datetime, began: float
    ) -> Unreached:
        reasons = [error.text for error in failures]
        reasons += [
            f"{one.look.place} lists no job, {one.why_not_alone(watch) or 'and no other login node confirms it'}"
            for one in doubted
        ]
        hints = [error.hint for error in failures if error.hint]
        return Unreached(
            cluster=self._name,
            at=now + timedelta(seconds=time.monotonic() - began),
            reason="; ".join(reasons),
            hint=hints[0] if hints else None,
            needs_person=any(isinstance(error, LoginNeedsPerson) for error in failures),
        )

    def _credential_problems(self, now: datetime) -> list[str]:
        """POLL-12: a certificate that is about to end."""
        check = self._certificate(now)
        return [check.text] if check is not None and check.result != "ok" else []

    def _certificate(self, now: datetime) -> Check | None:
        path = self._settings.certificate_file or self._settings.identity_file
        if path is None or self._settings.transport == "local":
            return None
        hint = "ask for a new certificate, or log in once more the way this site wants it"
        try:
            ends_at = certificate_expiry(path)
        except (OSError, ValueError) as error:
            return Check("certificate", "warn", f"the SSH certificate could not be read: {error}", hint)
        if ends_at is None:
            return None
        left = ends_at - now
        if left <= timedelta(0):
            return Check("certificate", "fail", f"the SSH certificate ended {ends_at:%Y-%m-%d %H:%M} UTC", hint)
        text = f"the SSH certificate ends {ends_at:%Y-%m-%d %H:%M} UTC, in {_hours(left)}"
        return (
            Check("certificate", "ok", text) if left > CERTIFICATE_NOTICE else Check("certificate", "warn", text, hint)
        )

    # -- logs ------------------------------------------------------------------------------------------------------

    async def read_logs(self, wanted: Sequence[LogWanted], now: datetime) -> Mapping[tuple[str, str], LogRead]:
        """One remote command for all, and one more for those that failed (FIND-4)."""
        found: dict[tuple[str, str], LogRead] = {}
        left = []
        for one in wanted:
            if "\0" in one.path or not one.path.startswith("/"):
                found[one.job_id, one.path] = LogUnread(one.path, "not an absolute path")
            else:
                left.append(one)
        turns = self._in_turn()
        for attempt in range(max(2, len(turns))):
            if not left:
                break
            read = await self._read(self._shells[turns[attempt % len(turns)]], left)
            found |= {(one.job_id, one.path): piece for one, piece in zip(left, read, strict=True)}
            left = [one for one, piece in zip(left, read, strict=True) if _worth_a_retry(piece)]
        return found

    async def _read(self, shell: Shell, wanted: Sequence[LogWanted]) -> list[LogRead]:
        nonce = self._fresh_nonce()
        script = read_script(nonce, [(one.path, one.offset, one.limit, one.tail) for one in wanted], self._site)
        room = sum(one.limit + 4096 for one in wanted) + 2**16
        try:
            limit_s = min(self._site.of(logs=len(wanted)), READ_LIMIT_S)
            ran = await shell.run(script, limit_s=limit_s, limit_bytes=room)
            parts = read_answer(self._name, shell.place, ran, nonce).all("piece")
        except ClusterError as error:
            return [LogUnread(one.path, error.text) for one in wanted]
        if len(parts) != len(wanted):
            return [LogUnread(one.path, f"{shell.place} did not answer for it") for one in wanted]
        return [read_piece(part, one) for part, one in zip(parts, wanted, strict=True)]

    async def read_trials(self, wanted: Sequence[TrialsWanted], now: datetime) -> Mapping[str, TrialRead]:
        """One remote command for all jobs (POLL-6); another login node is asked where one gives no answer."""
        refused: ClusterError | None = None
        for at in self._in_turn() if wanted else ():
            try:
                return await trial_trees.read(
                    self._shells[at], wanted, one_s=self._settings.logs_timeout_s, all_s=TRIALS_LIMIT_S
                )
            except ClusterError as error:
                refused = refused or error
        return trial_trees.unread(wanted, refused) if refused is not None else {}

    # -- cancel ----------------------------------------------------------------------------------------------------

    async def cancel(self, job: JobKey, approval: Approval) -> CancelReceipt:
        """KILL-1, KILL-6. The expiry of the approval is the caller's to check: no clock is handed in here."""
        if approval.job != job or job.cluster != self._name:
            raise NotApproved(
                f"{job.ref}: approval {approval.id} is for {approval.job.ref}, submitted another time or place"
            )
        nonce = self._fresh_nonce()
        try:
            script = cancel_script(nonce, job.id, job.incarnation, self._site)
        except ValueError as error:
            return CancelReceipt(False, f"nothing was sent: {error}")
        refused = []
        for at in self._in_turn():
            shell = self._shells[at]
            try:
                ran = await shell.run(script, limit_s=self._site.of(queue=2))
                return receipt(read_answer(self._name, shell.place, ran, nonce), job)
            except LoginFailed as error:
                refused.append(error.text)
            except ClusterError as error:
                return CancelReceipt(None, error.text)  # it may have been sent: nobody else is asked to send it
        return CancelReceipt(False, f"nothing was sent: {'; '.join(refused)}")

    # -- probe -----------------------------------------------------------------------------------------------------

    async def capture(self, wanted: CaptureWanted, now: datetime) -> Sequence[Captured]:
        return await self._probe().capture(wanted, now)

    async def remains(self, seen: Observation, now: datetime) -> Remains:
        return await self._probe().remains(seen)

    def _probe(self) -> SlurmProbe:
        return SlurmProbe(
            cluster=self._name,
            site=self._site,
            shells=[self._shells[at] for at in self._in_turn()],
            node_access=self._settings.node_access,
            fresh_nonce=self._fresh_nonce,
            read_logs=self.read_logs,
        )

    # -- check -----------------------------------------------------------------------------------------------------

    async def check(self, now: datetime) -> Sequence[Check]:
        checks: list[Check] = []
        for shell in self._shells:
            checks += await self._check(shell, now)
        certificate = self._certificate(now)
        return [*checks, certificate] if certificate is not None else checks

    async def _check(self, shell: Shell, now: datetime) -> list[Check]:
        nonce, began = self._fresh_nonce(), time.monotonic()
        script = check_script(nonce, users=self._settings.users, accounts=self._settings.accounts, site=self._site)
        try:
            ran = await shell.run(script, limit_s=self._site.of(queue=1, accounting=1))
            answer = read_answer(self._name, shell.place, ran, nonce)
        except ClusterError as error:
            return [Check(shell.place, "fail", error.text, error.hint)]
        took = time.monotonic() - began
        return [Check(shell.place, *line) for line in check_lines(answer, now, took)]


@dataclass(frozen=True, slots=True)
class Told:
    """A look as observations."""

    changed: list[Observation]
    ended: list[Observation]


def observations(look: Look, watch: Watch) -> Told:
    """What a look says of each job that is new, changed or ended."""
    clock, lines = look.clock, look.queue.lines
    details: dict[JobKey, Details] = dict(look.details)
    changed = []
    for row in look.queue.fresh:
        changed.append(listed(row, clock, details.pop(JobKey(clock.cluster, row.id, row.submit), None)))
    for key, told in details.items():
        if key.id in lines and (row := row_of(lines[key.id])).submit == key.incarnation:
            changed.append(listed(row, clock, told))
    rows = look.named(watch)
    queue = {job: row_of(lines[job]) for job in {row.id for row in rows} if job in lines}
    in_window = {(row.id, row.submit) for row in look.ended_rows}
    known: dict[JobKey, Details | None] = {**dict.fromkeys(watch.detailed), **look.details} if rows else {}
    ended = [
        seen
        for seen in ends(rows, queue, look.sought, clock, known)
        if (seen.key.id, seen.key.incarnation) in in_window or _of_a_live_job(seen, watch)
    ]
    over = {seen.key.id for seen in ended}
    for job in watch.live.keys() - lines.keys() - over:
        key = watch.live[job]
        if job.isdecimal():
            task = look.started.get(job) or used_up(job, key.incarnation, look.found_rows)
            if task is not None:
                ended.append(all_started(key, task, clock))
    return Told(changed, ended)


def _of_a_live_job(seen: Observation, watch: Watch) -> bool:
    key = watch.live.get(seen.key.id)
    return key is not None and _order(seen.key.incarnation) >= _order(key.incarnation)


@dataclass(frozen=True, slots=True)
class _Seen:
    look: Look
    told: Told

    def drained(self, watch: Watch) -> bool:
        """Whether each job held as live is positively shown as ended (POLL-3)."""
        over: dict[str, int] = {}
        for seen in self.told.ended:
            if seen.final:
                over[seen.key.id] = max(_order(seen.key.incarnation), over.get(seen.key.id, 0))
        return all(over.get(job, -1) >= _order(key.incarnation) for job, key in watch.live.items())

    def why_not_alone(self, watch: Watch) -> str | None:
        """Why this empty queue is not believed though there is no other login node to ask; None if it is."""
        look = self.look
        if watch.live and not look.ends_read:
            return "and accounting can't be read"
        still = look.said_live(watch) or {row.id: row.state for row in look.goes_on()}
        if still:
            job, word = next(iter(still.items()))
            return f"while accounting says of {len(still)} that they go on ({job} {word})"
        unknown = [] if look.accounting_off else look.unknown_to_accounting(watch)
        old = any(look.now_s - _order(watch.live[job].incarnation) >= REGISTERED_S for job in unknown)
        if unknown and len(unknown) == len(watch.live) and old:
            return f"and accounting knows none of the {len(unknown)} that were live ({unknown[0]} is one)"
        return look.not_again


def receipt(answer: Answer, job: JobKey) -> CancelReceipt:
    """What is known after the cancel's script came back whole (KILL-6)."""
    read, sent = answer.get("read"), answer.get("cancel")
    if sent is None:
        said = read.text.strip() if read is not None else ""
        if read is None or read.status != 0:
            return CancelReceipt(False, f"nothing was sent: the job could not be read again: {said[:300]}")
        return CancelReceipt(False, f"nothing was sent: {job.ref} is no longer there as it was: {said[:300]}")
    said = (sent.said + safe_text(sent.out)).strip()
    if sent.status == 0 and not sent.failure:
        return CancelReceipt(True, said or "scancel exited 0")
    refused = ("Access/permission denied", "Invalid job id", "already completing or completed", "Invalid user")
    if any(word in said for word in refused):
        return CancelReceipt(False, said)
    return CancelReceipt(None, f"scancel exited {sent.status}: {said[:300]}")


def check_lines(answer: Answer, now: datetime, took_s: float) -> list[tuple[str, str, str | None]]:
    """Result, text and hint of each thing that was looked at on one login node."""
    lines: list[tuple[str, str, str | None]] = []
    tools = answer.get("tools")
    if tools is not None and tools.text.split():
        missing = ", ".join(tools.text.split())
        lines.append(
            (
                "fail",
                f"programs are missing: {missing}",
                "set slurm_bin if Slurm is not in the PATH of a login without a terminal",
            )
        )
    queue, ended, version = answer.get("queue"), answer.get("ended"), answer.get("version")
    lines.append(_said("squeue", queue, None))
    if version is not None and version.failure is None:
        lines.append(("ok", f"Slurm {version_words(version.text)}, answered in {took_s:.1f} s", None))
    if ended is not None and ACCOUNTING_IS_OFF in ended.said:
        text = "accounting is switched off: ends are known only while the controller remembers them"
        lines.append(("warn", text, "poll more often than MinJobAge"))
    else:
        lines.append(_said("sacct", ended, "ends of jobs are not known until accounting answers"))
    ticks = [int(part.out) for part in answer.all("clock") if part.status == 0 and part.out.strip().isdigit()]
    offset = clock_offset(ticks, now, timedelta(seconds=took_s))
    if offset:
        lines.append(
            ("warn", f"its clock is {offset.total_seconds():+.0f} s off ours; times are corrected by that", None)
        )
    return lines


def _said(command: str, part: Part | None, hint: str | None) -> tuple[str, str, str | None]:
    if part is None:
        return "fail", f"{command} was not asked", hint
    return ("ok", f"{command} answers", None) if part.failure is None else ("fail", f"{command}: {part.failure}", hint)


def _worth_a_retry(piece: LogRead) -> bool:
    return not isinstance(piece, LogText) and piece.reason != NOT_THERE


def _order(incarnation: str) -> int:
    return int(incarnation) if incarnation.isdecimal() else 0


def _hours(left: timedelta) -> str:
    hours = left.total_seconds() / 3600
    return f"{hours:.0f} h" if hours >= 2 else f"{hours * 60:.0f} min"
