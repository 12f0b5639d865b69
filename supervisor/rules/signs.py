"""Step one of the state machine: all that is known of a job becomes one sign. The order of the table is the priority."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from supervisor.model.facts import Facts, Seen
from supervisor.model.job import JobState, Outcome
from supervisor.model.lifecycle import Evidence, Phase, Sign, SignRead
from supervisor.model.logs import LogState

Answer = SignRead | None
"""A test either knows the sign, with its reason and evidence, or has nothing to say."""

_ENDED_SIGNS = {
    JobState.COMPLETED: Sign.COMPLETED,
    JobState.FAILED: Sign.FAILED,
    JobState.CANCELLED: Sign.CANCELLED,
    JobState.OUT_OF_MEMORY: Sign.OUT_OF_MEMORY,
    JobState.NODE_FAILED: Sign.NODE_FAILED,
    JobState.PREEMPTED: Sign.PREEMPTED,
}


def read_sign(facts: Facts, now: datetime) -> SignRead:
    """The first test of the table that knows an answer; the last one always does."""
    for test in TESTS:
        answer = test(facts, now)
        if answer is not None:
            return answer
    raise AssertionError("the last test of the table answers always")


def silence_allowed(facts: Facts) -> timedelta:
    """How long its log may be silent (LIVE-2)."""
    return facts.silence_allowed


def _unseen(facts: Facts, _now: datetime) -> Answer:
    """POLL-1: a failed reading says nothing of any job."""
    if facts.seen is Seen.UNREACHED:
        return SignRead(Sign.UNSEEN, "its cluster gave no reading")
    if facts.seen is Seen.DOUBTFUL:
        return SignRead(Sign.UNSEEN, "not listed, and its end could not be looked up")
    return None


def _restarted(facts: Facts, _now: datetime) -> Answer:
    """A later attempt of the same job is listed, so the earlier one's end is not the job's."""
    if facts.new_attempt:
        number = facts.held.life.attempt + 1
        return SignRead(Sign.RESTARTED, f"attempt {number} began under the same id", (_scheduler_words(facts),))
    return None


def _seen_again(facts: Facts, _now: datetime) -> Answer:
    """POLL-4: to be listed as living outweighs any count of absences, whatever its log says."""
    if facts.held.life.outcome is Outcome.VANISHED and facts.seen is Seen.LISTED and facts.observation.state.live:
        return SignRead(Sign.SEEN_AGAIN, "it was held as vanished, and is listed again", (_scheduler_words(facts),))
    return None


def _ended(facts: Facts, now: datetime) -> Answer:
    """POLL-4, CHAIN-1: the scheduler or its accounting says how this attempt ended."""
    seen = facts.observation
    if not seen.state.ended or not seen.final:
        return None
    words = _scheduler_words(facts)
    if seen.state is JobState.TIMED_OUT:
        return _out_of_time(facts, now, words)
    if seen.state is JobState.REQUEUED:
        return SignRead(Sign.UNCLEAR, "it was requeued, and its next attempt is not listed yet", (words,))
    sign = _ENDED_SIGNS[seen.state]
    return SignRead(sign, f"{facts.evidence_source} says {_how(facts)}", (words,))


def _out_of_time(facts: Facts, now: datetime, words: Evidence) -> SignRead:
    """CHAIN-1, CHAIN-4: a chain's link that runs out of time hands on, if its successor is there."""
    if facts.successor is not None and facts.successor_live:
        return SignRead(Sign.HANDED_ON, f"its time ran out and its successor {facts.successor} goes on", (words,))
    ended = facts.observation.ended_at
    if facts.successor is not None and ended is not None and now - ended < facts.limits.timeout_slack:
        return SignRead(Sign.UNCLEAR, f"its time ran out; its successor {facts.successor} is not seen yet", (words,))
    return SignRead(Sign.TIMED_OUT, "its time ran out and no successor runs or waits", (words,))


def _absent(facts: Facts, _now: datetime) -> Answer:
    """POLL-4: absent from the queue and from accounting; gone only after further good readings."""
    if facts.seen is not Seen.ABSENT:
        return None
    times = facts.absences
    gone = times > facts.limits.absences_to_call_gone
    said = Evidence("absence", "no good reading lists it any more, and nothing tells its end")
    if gone:
        text = f"neither listed nor found ended, in {times} good readings or when it was asked for by itself"
        return SignRead(Sign.VANISHED, text, (said,))
    return SignRead(Sign.MISSING, "neither listed nor found ended; that alone proves no end", (said,))


def _unclear(facts: Facts, _now: datetime) -> Answer:
    """A word that is not known, or a state between two: it moves nothing."""
    state = facts.observation.state
    if state is JobState.UNKNOWN or state.ended:
        said = f"the scheduler says {facts.observation.scheduler_state!r}"
        return SignRead(Sign.UNCLEAR, said, (_scheduler_words(facts),))
    if state is JobState.COMPLETING:
        return SignRead(Sign.UNCLEAR, "it is ending; how it ended is not known yet", (_scheduler_words(facts),))
    return None


def _waiting(facts: Facts, _now: datetime) -> Answer:
    """LIVE-6: queued, gated or held. A gang whose every task waits again is waiting too (POLL-5)."""
    seen = facts.observation
    bounced = seen.tasks is not None and seen.tasks.running == 0 and seen.tasks.pending > 0
    if seen.state is JobState.PENDING or (seen.state is not JobState.SUSPENDED and bounced):
        why = f": {seen.reason}" if seen.reason else ""
        return SignRead(Sign.WAITING, f"it waits{why}", (_scheduler_words(facts),))
    if seen.state is JobState.SUSPENDED:
        return SignRead(Sign.UNCLEAR, "it is suspended", (_scheduler_words(facts),))
    return None


def _hung(facts: Facts, _now: datetime) -> Answer:
    """LIVE-5: a hard finding that it hangs."""
    if facts.hung is not None:
        return SignRead(Sign.HUNG, facts.hung.text, (Evidence("probe", facts.hung.rule, facts.hung.quotes),))
    return None


def _cleared(facts: Facts, _now: datetime) -> Answer:
    """What a probe found a later one may take back; only an ERROR, which knows nothing, takes nothing back (PROBE-3)."""
    if facts.cleared is not None and facts.held.life.phase is Phase.WEDGED:
        return SignRead(Sign.CLEARED, facts.cleared, (Evidence("probe", facts.cleared),))
    return None


def _log_unknown(facts: Facts, _now: datetime) -> Answer:
    """FIND-2, FIND-4: a log that could not be read, or is not where it should be, is not a silent one."""
    stat = facts.log.stat
    if stat is None or stat.state in (LogState.READ, LogState.NONE):
        return None
    word = "could not be read" if stat.state is LogState.UNREAD else "is not where the scheduler says"
    return SignRead(Sign.QUIET, f"its log {word}: {stat.reason or stat.path}", (Evidence("log", stat.path),))


def _no_progress_yet(facts: Facts, now: datetime) -> Answer:
    """LIVE-6: bring-up is patient, up to its limit."""
    if facts.log.progress_at is not None:
        return None
    began = facts.observation.started_at
    limit = facts.limits.bring_up_limit
    if began is None or now - began <= limit or facts.observation.state is JobState.STARTING:
        return SignRead(Sign.LOADING, "allocated; no progress seen yet", (_scheduler_words(facts),))
    took = f"{_minutes(now - began)} since its start without a first sign of progress (limit {_minutes(limit)})"
    return SignRead(Sign.STUCK_LOADING, took, (_scheduler_words(facts),))


def _silent(facts: Facts, now: datetime) -> Answer:
    """LIVE-2, LIVE-3: progress stopped for longer than the job's own cadence allows, and the log was read to know it."""
    progress, stat = facts.log.progress_at, facts.log.stat
    if progress is None or stat is None or stat.state is not LogState.READ:
        return None
    allowed = silence_allowed(facts)
    silent = now - progress
    if silent <= allowed:
        return None
    text = f"no progress for {_minutes(silent)}; its cadence allows {_minutes(allowed)}"
    return SignRead(Sign.SILENT, text, (Evidence("log", f"{stat.path} last moved {progress:%Y-%m-%dT%H:%M:%SZ}"),))


def _progressing(facts: Facts, now: datetime) -> Answer:
    """LIVE-1: its log was read, and the last progress lies within its cadence."""
    progress, stat = facts.log.progress_at, facts.log.stat
    if progress is None or stat is None or stat.state is not LogState.READ:
        return None
    return SignRead(Sign.PROGRESSING, f"progress {_minutes(now - progress)} ago", (Evidence("log", stat.path),))


def _quiet(_facts: Facts, _now: datetime) -> Answer:
    return SignRead(Sign.QUIET, "it runs; whether it progresses is not known")


TESTS: tuple[Callable[[Facts, datetime], Answer], ...] = (
    _unseen,
    _restarted,
    _seen_again,
    _ended,
    _absent,
    _unclear,
    _waiting,
    _hung,
    _cleared,
    _log_unknown,
    _no_progress_yet,
    _silent,
    _progressing,
    _quiet,
)
"""The order is the priority: doubt before news, ends before life, hard findings before soft ones."""


def _scheduler_words(facts: Facts) -> Evidence:
    seen = facts.observation
    parts = [seen.scheduler_state]
    if seen.reason:
        parts.append(seen.reason)
    if seen.exit_code is not None:
        parts.append(f"exit {seen.exit_code}")
    if seen.signal:
        parts.append(f"signal {seen.signal}")
    return Evidence(facts.evidence_source, " ".join(parts))


def _how(facts: Facts) -> str:
    seen = facts.observation
    if seen.signal:
        return f"{seen.scheduler_state} (signal {seen.signal})"
    if seen.exit_code:
        return f"{seen.scheduler_state} (exit code {seen.exit_code})"
    return seen.scheduler_state


def _minutes(span: timedelta) -> str:
    seconds = max(0, int(span.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    return f"{seconds / 3600:.1f} h"
