"""One reading of one cluster, and all that follows from it for every job: pure, whole, and the same when run again.

Unchanged jobs cost one comparison: a job is examined only if its line is new, its log moved, it is gone, its surroundings
changed, or the time has come at which time alone could change its sign (``Held.look_at``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from supervisor.model.facts import NO_LOG, PAST_ENDS_KEPT, Facts, Followed, Held, PastEnd, Seen
from supervisor.model.findings import Finding, Flag
from supervisor.model.job import NO_DETAILS, Details, JobKey, JobState, Observation
from supervisor.model.lifecycle import Effect, Evidence, Phase, Sign, SignRead, Transition
from supervisor.model.polling import Polled
from supervisor.model.probe import Standing
from supervisor.model.records import AttemptRecord, ErrandWanted
from supervisor.model.rulebook import Rulebook
from supervisor.model.secrets import scrubbed
from supervisor.model.trials import TrialFacts
from supervisor.rules.lifecycle import advance, born
from supervisor.rules.memory import HANDING_ON, Memory
from supervisor.rules.output import heard, looked_at, run_facts
from supervisor.rules.probing import cleared_by, hung_by
from supervisor.rules.signs import read_sign, silence_allowed
from supervisor.rules.successors import Successors, edges_of, order_of
from supervisor.rules.trials import moved_on, with_trials

Examine = Callable[[Facts, datetime], tuple[Finding, ...]]
"""The detectors, handed in: facts of one job to findings."""

BucketOf = Callable[..., str]
"""Job name to bucket (BUCKET-1); where more is known, its command and what its output's dialects speak for come behind it."""

UNTOLD = "other"
"""The bucket of jobs whose name says nothing: looked at again when more is known of them."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What one reading changes. Nothing in it has happened yet."""

    changed: dict[str, Held] = field(default_factory=dict)
    """By id; a job whose id another bears now stands in ``retired`` instead."""
    retired: list[Held] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)
    attempts: list[AttemptRecord] = field(default_factory=list)
    errands: list[ErrandWanted] = field(default_factory=list)
    look_soon: set[str] = field(default_factory=set)
    """Ids that a closer look between ticks was asked for."""
    probe: set[str] = field(default_factory=set)
    """Ids that became suspect: a deep probe is asked for."""


class _Walk:
    """One pass over one reading; mutable while it goes, and thrown away after."""

    def __init__(
        self,
        memory: Memory,
        polled: Polled,
        followed: Mapping[str, Followed],
        news: Collection[str],
        book: Rulebook,
        bucket_of: BucketOf,
        examine: Examine,
        now: datetime,
        standing: Mapping[JobKey, Standing],
        trials: Mapping[str, TrialFacts],
    ) -> None:
        self.memory, self.polled, self.followed, self.news = memory, polled, followed, news
        self.book, self.now, self.standing, self.trials = book, now, standing, trials
        self.bucket_of, self.examine = bucket_of, examine
        self.out = Steps()
        self.listed = {seen.key.id: seen for seen in polled.changed}
        self.ended: dict[str, list[Observation]] = {}
        for seen in polled.ended:
            self.ended.setdefault(seen.key.id, []).append(seen)
        self.successors = Successors(memory, polled, self.ended)

    def current(self, job: str) -> Held | None:
        return self.out.changed.get(job) or self.memory.get(job)

    # -- the pass --------------------------------------------------------------------------------------------------

    def run(self) -> Steps:
        for seen in self.polled.changed:
            self._listed(seen)
        for job in self._worth_a_look():
            held = self.memory[job]
            self._examine(held, Seen.LISTED, held.observation, "queue")
        lines = self.polled.lines
        for job in self.memory.live.keys() - lines.keys() - self.listed.keys():
            self._gone(self.memory[job])
        for job in self.ended.keys() - lines.keys() - self.memory.live.keys():
            if job in self.memory:
                self._told_again(self.memory[job])
        for job in self.ended:
            if job not in self.memory and job not in lines:
                self._only_in_accounting(job)
        self._parents()
        self._earlier_attempts()
        return self.out

    def _worth_a_look(self) -> list[str]:
        """Listed jobs whose line is as it was, and of which something else is new: their log, what it says, or the time."""
        memory, lines, now = self.memory, self.polled.lines, self.now
        found = dict.fromkeys(job for job, at in memory.looks.items() if at <= now)
        found.update(dict.fromkeys(self.news))
        found.update(dict.fromkeys(key.id for key, verdict in self.standing.items() if self._says_news(key, verdict)))
        for job, stat in self.polled.logs.items():
            held = memory.get(job)
            if held is not None and stat != held.log.stat:
                found[job] = None
        return [job for job in found if job in memory and job in lines and job not in self.listed]

    def _says_news(self, key: JobKey, verdict: Standing) -> bool:
        """Whether a verdict may change the phase of a job of which nothing else is new: found hung, or so no longer."""
        held = self.memory.get(key.id)
        return held is not None and (held.life.phase is Phase.WEDGED) != verdict.wedged

    def _listed(self, seen: Observation) -> None:
        held = self.memory.get(seen.key.id)
        if held is None:
            if seen.state.ended and not seen.final:
                return
            self._new(seen, "queue")
        elif held.key.incarnation == seen.key.incarnation:
            again = seen.attempt is not None and seen.attempt > held.life.attempt
            self._examine(held, Seen.LISTED, self._with_end(seen), "queue", new_attempt=again)
        elif self._same_job(held, seen):
            self._examine(held, Seen.LISTED, seen, "queue", new_attempt=True)
        else:
            self._retire(held)
            self._new(seen, "queue")

    def _with_end(self, seen: Observation) -> Observation:
        """A listed job that ended, with the exit code and signal that accounting gives and the queue does not."""
        if not seen.state.ended:
            return seen
        for told in self.ended.get(seen.key.id, ()):
            if told.key.incarnation == seen.key.incarnation:
                return replace(
                    seen, exit_code=told.exit_code, signal=told.signal, ended_at=told.ended_at or seen.ended_at
                )
        return seen

    def _same_job(self, held: Held, seen: Observation) -> bool:
        """Another submit time under the same id: the next attempt, or another job altogether (POLL-11)."""
        if seen.renews or (seen.details is not None and (seen.details.restarts or 0) > 0):
            return True
        return any(
            told.key.incarnation == held.key.incarnation and not told.final for told in self.ended.get(held.key.id, ())
        )

    def _gone(self, held: Held) -> None:
        """POLL-4: it left the queue. Accounting may know its end, or a later attempt that ended too."""
        told = self._latest_end(held)
        if told is not None:
            later = told.key.incarnation != held.key.incarnation or (told.attempt or 0) > held.life.attempt
            self._examine(held, Seen.ABSENT, _filled(told, held), "accounting", new_attempt=later)
        elif self.polled.ends_read:
            source = "queue" if held.observation.state.ended else "absence"
            self._examine(held, Seen.ABSENT, held.observation, source)
        else:
            self._examine(held, Seen.DOUBTFUL, held.observation, "absence")

    def _latest_end(self, held: Held) -> Observation | None:
        """The latest end that accounting tells of this job: of the attempt held, or of one that followed it."""
        best: Observation | None = None
        for told in self.ended.get(held.key.id, ()):
            mine = told.key.incarnation == held.key.incarnation or self._same_job(held, told)
            if mine and told.final and (best is None or order_of(told) >= order_of(best)):
                best = told
        return best

    def _told_again(self, held: Held) -> None:
        """An ended job that accounting tells of: it may correct a vanished one, or fill in an exit code."""
        told = self._latest_end(held)
        if told is None:
            return
        known = held.observation
        news = known.state is not told.state or known.exit_code != told.exit_code or known.signal != told.signal
        if news or known.ended_at is None:
            later = told.key.incarnation != held.key.incarnation
            self._examine(held, Seen.ABSENT, _filled(told, held), "accounting", new_attempt=later)

    def _only_in_accounting(self, job: str) -> None:
        """Jobs seen late: begun and ended between two readings, or before the first."""
        finals = [seen for seen in self.ended[job] if seen.final]
        if finals:
            self._new(max(finals, key=order_of), "accounting")

    def _earlier_attempts(self) -> None:
        """Ends of attempts that another followed are kept in the job's record, and move nothing by themselves."""
        for job, told in self.ended.items():
            held = self.current(job)
            for seen in told:
                if held is not None and not seen.final and seen.attempt is not None:
                    self.out.attempts.append(AttemptRecord(job=held.key, number=seen.attempt, observation=seen))

    def _parents(self) -> None:
        """CHAIN-1: a successor that showed itself now may explain a parent that timed out before. One that was cancelled while
        it waited leaves its parent without one."""
        for job, lost in self.successors.parents(frozenset(self.out.changed)):
            parent = self.current(job)
            if parent is None or (lost and not parent.life.phase.live):
                continue
            ended = parent.observation.state.ended
            if parent.successor is None or parent.observation.state is JobState.TIMED_OUT:
                presence = Seen.LISTED if job in self.polled.lines else Seen.ABSENT
                if ended or presence is Seen.LISTED:
                    self._examine(parent, presence, parent.observation, "accounting" if ended else "queue")

    # -- one job ---------------------------------------------------------------------------------------------------

    def _new(self, seen: Observation, source: str) -> None:
        began = min(filter(None, (seen.submitted_at, seen.started_at, self.now)))
        attempt = seen.attempt or ((seen.details.restarts or 0) + 1 if seen.details else 1)
        held = Held(
            key=seen.key,
            life=born(began, attempt),
            bucket=self.bucket_of(seen.name),
            observation=seen,
            details=_without_secrets(seen.details) or NO_DETAILS,
            depends_on=edges_of(seen),
            first_seen_at=self.now,
        )
        presence = Seen.ABSENT if source == "accounting" else Seen.LISTED
        self._examine(held, presence, self._with_end(seen), source, unknown=True)

    def _retire(self, held: Held) -> None:
        """Another job bears its id now. Its own end is what accounting told, else it is gone for good."""
        told = next(
            (seen for seen in self.ended.get(held.key.id, ()) if seen.key.incarnation == held.key.incarnation), None
        )
        if not held.life.phase.live:
            return
        if told is not None and told.final:
            facts = self._facts(held, Seen.ABSENT, told, "accounting")
            read = read_sign(facts, self.now)
        else:
            said = Evidence("queue", f"{held.key.ref} is borne by a job submitted later")
            read = SignRead(Sign.VANISHED, "its id is borne by another job now, and no end of it was found", (said,))
        move = advance(held.key, held.life, read, self.now)
        kept = replace(held, life=move.after, observation=told or held.observation, look_at=None)
        self._note(kept, move)
        self.out.retired.append(kept)

    def _examine(
        self,
        held: Held,
        seen: Seen,
        observation: Observation,
        source: str,
        *,
        new_attempt: bool = False,
        unknown: bool = False,
    ) -> None:
        """Read its signs until they say nothing new, and keep what changed."""
        start = held
        held = self._told(held, observation)
        facts = self._facts(held, seen, observation, source, new_attempt)
        for _ in range(3):
            read = read_sign(facts, self.now)
            move = advance(observation.key, held.life, read, self.now)
            held = self._after(facts, move)
            self._note(held, move, first=unknown)
            unknown = False
            if not move.moved or not held.life.phase.live:
                break
            facts = replace(facts, held=held, new_attempt=False, log=held.log)
        held = self._flagged(facts, held)
        if held != start or held.row is None:
            self.out.changed[held.key.id] = held

    def _told(self, held: Held, seen: Observation) -> Held:
        """With the bucket that its command or its output tells, where its name says nothing (BUCKET-1)."""
        details = seen.details or held.details
        run = self.followed.get(held.key.id)
        speaks = run.summary.bucket if run is not None else None
        if held.bucket != UNTOLD or (details.command is None and speaks is None):
            return held
        bucket = self.bucket_of(seen.name, details.command, speaks)
        return held if bucket == UNTOLD else replace(held, bucket=bucket)

    def _facts(self, held: Held, seen: Seen, observation: Observation, source: str, new_attempt: bool = False) -> Facts:
        limits = self.book.limits_of(held.bucket)
        log = NO_LOG if new_attempt else held.log
        stat = self.polled.logs.get(held.key.id)
        run = None if new_attempt else self.followed.get(held.key.id)
        if stat is not None and not new_attempt:
            log = looked_at(log, stat, observation.started_at, self.now, limits.cadence_points)
        if run is not None and log.stat is not None and log.stat.path == run.file:
            log = heard(log, run.summary, observation.started_at, limits.cadence_points)
        told = run_facts(run.summary) if run is not None else held.run
        trials = None if new_attempt else self.trials.get(held.key.id)
        if trials is not None:
            summary = run.summary if run is not None else None
            told = with_trials(told, trials, held.bucket, summary)
            log = moved_on(log, trials, held.bucket, summary, observation.started_at, self.now, limits.cadence_points)
        child = self.successors.of(held, observation)
        verdict = self.standing.get(held.key)
        absences = held.life.absences + 1 if seen is Seen.ABSENT else 0
        if absences and held.key.id in self.polled.gone:  # the confirming question was asked already (POLL-5)
            absences = max(absences, limits.absences_to_call_gone + 1)
        return Facts(
            held=held,
            seen=seen,
            limits=limits,
            observation=observation,
            new_attempt=new_attempt,
            log=log,
            run=told,
            followed=run,
            trials=trials,
            successor=child,
            successor_live=self.successors.goes_on(child, observation.ended_at),
            absences=absences,
            evidence_source=source,
            hung=None if new_attempt else hung_by(verdict, held, log),
            cleared=None if new_attempt else cleared_by(verdict, held),
        )

    def _after(self, facts: Facts, move: Transition) -> Held:
        seen, held = facts.observation, facts.held
        details = _without_secrets(seen.details) or (NO_DETAILS if facts.new_attempt else held.details)
        depends = edges_of(seen) or held.depends_on
        return replace(
            held,
            key=seen.key,
            life=move.after,
            observation=replace(seen, details=None) if seen.details else seen,
            details=details,
            log=facts.log,
            run=facts.run,
            depends_on=depends,
            predecessor=next((edge.on for edge in depends if edge.kind in HANDING_ON), held.predecessor),
            successor=facts.successor,
            look_at=_look_at(move.after.phase, facts, self.now),
            past=self._past(held) if facts.new_attempt else held.past,
        )

    def _past(self, held: Held) -> tuple[PastEnd, ...]:
        """The ends of its attempts, with that of the one held, which another follows now. Unknown ends are left out."""
        told = [
            seen
            for seen in self.ended.get(held.key.id, ())
            if (seen.attempt or held.life.attempt) == held.life.attempt
            and seen.started_at == held.observation.started_at
        ]
        seen = told[-1] if told else held.observation
        if not seen.state.ended:
            return held.past
        end = PastEnd(
            attempt=held.life.attempt,
            state=seen.state,
            words=seen.scheduler_state,
            exit_code=seen.exit_code,
            signal=seen.signal,
            started_at=seen.started_at,
            ended_at=seen.ended_at,
            step=held.log.step,
        )
        return (*held.past, end)[-PAST_ENDS_KEPT:]

    def _flagged(self, facts: Facts, held: Held) -> Held:
        findings = self.examine(replace(facts, held=held), self.now)
        standing = {flag.finding.identity: flag.since for flag in held.flags}
        flags = tuple(Flag(finding, standing.get(finding.identity, self.now)) for finding in findings)
        return held if flags == held.flags else replace(held, flags=flags)

    def _note(self, held: Held, move: Transition, *, first: bool = False) -> None:
        if first or move.moved or move.before.outcome is not move.after.outcome:
            self.out.transitions.append(move)
            self.out.attempts.append(
                AttemptRecord(job=held.key, number=held.life.attempt, observation=held.observation)
            )
        mark = f"{held.key.cluster}/{held.key.id}/{held.key.incarnation}/{held.life.attempt}"
        if Effect.WANT_DIAGNOSIS in move.effects:
            outcome = move.after.outcome.value if move.after.outcome else None
            payload: dict[str, object] = {"phase": move.after.phase.value, "outcome": outcome}
            payload["note"] = Effect.WANT_NOTE in move.effects
            if move.read.sign is Sign.RESTARTED:
                payload["attempt"] = move.before.attempt
            dedupe = f"autopsy/{mark}/{move.after.phase.value}/{outcome or move.at.isoformat()}"
            self.out.errands.append(ErrandWanted("autopsy", held.key, payload, dedupe))
        if Effect.WANT_LOOK in move.effects:
            self.out.look_soon.add(held.key.id)
        if Effect.WANT_PROBE in move.effects:
            self.out.probe.add(held.key.id)


def step(
    memory: Memory,
    polled: Polled,
    book: Rulebook,
    bucket_of: BucketOf,
    examine: Examine,
    now: datetime,
    followed: Mapping[str, Followed] | None = None,
    news: Collection[str] = (),
    standing: Mapping[JobKey, Standing] | None = None,
    trials: Mapping[str, TrialFacts] | None = None,
) -> Steps:
    """All that one good reading changes. A failed one changes no job, so there is no step for it (POLL-1).

    ``followed``: what the log text read so far says, by job id; ``trials``: what is known of their trials; ``news``: ids of
    which new text or new trials were read; ``standing``: the newest verdict of each living job that has one.
    """
    return _Walk(
        memory, polled, followed or {}, news, book, bucket_of, examine, now, standing or {}, trials or {}
    ).run()


_LASTING = ("user", "submitted_at", "time_limit", "account", "partition", "group")
_OF_THE_ATTEMPT = ("started_at", "nodes", "node_count", "burn", "preemptions")


def _filled(told: Observation, held: Held) -> Observation:
    """An end with what was known of the job before: what tells of ends may know little else, and what it leaves out did not
    cease to be so."""
    if told.key.incarnation != held.key.incarnation:
        return told
    same = (told.attempt or held.life.attempt) == held.life.attempt
    known = {name: getattr(held.observation, name) for name in (*_LASTING, *(_OF_THE_ATTEMPT if same else ()))}
    return replace(told, **{name: value for name, value in known.items() if not getattr(told, name)})


def _without_secrets(details: Details | None) -> Details | None:
    """A command line may hold a key; what is remembered, stored and shown of it does not."""
    if details is None or not details.command:
        return details
    return replace(details, command=scrubbed(details.command))


def _look_at(phase: Phase, facts: Facts, now: datetime) -> datetime | None:
    """The next moment at which time alone could change its sign or its flags; None when nothing of the kind lies ahead."""
    if not phase.live:
        return None
    moments: list[datetime] = []
    seen, log, limits = facts.observation, facts.log, facts.limits
    if seen.state is JobState.TIMED_OUT and seen.ended_at:
        moments.append(seen.ended_at + limits.timeout_slack)
    if seen.state is JobState.PENDING and seen.submitted_at:
        moments.append(seen.submitted_at + limits.pending_notice)
    if log.progress_at:
        moments.append(log.progress_at + silence_allowed(facts))
        if log.total is not None and log.step is not None and log.step >= log.total:
            moments.append(log.progress_at + timedelta(seconds=limits.health.zombie_s))
    elif seen.started_at:
        moments.append(seen.started_at + limits.bring_up_limit)
    ahead = [moment for moment in moments if moment > now]
    return min(ahead) if ahead else None
