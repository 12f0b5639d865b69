"""What may be proposed, and whether what was approved may be carried out now: pure, the last word before a person and before a
cancel (KILL-2, KILL-5). Each answer is a reason, or leave. In doubt there is none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from supervisor.model.facts import Held, LogFacts
from supervisor.model.job import JobState
from supervisor.model.logs import LogState
from supervisor.model.probe import Ruling, Verdict
from supervisor.model.proposals import Decision, Marks, Proposal, Refusal, Stage, StandingRule
from supervisor.model.records import Hold
from supervisor.rules.probing import progressed

FRESH = timedelta(minutes=15)
"""A verdict older than this is no refreshed evidence."""
CLOCKS_APART = timedelta(minutes=5)
"""How far the clocks of two machines of one fleet may be apart."""
HERO = "hero"
"""No standing rule speaks for a job with this in its name."""
_SURE = {"low": 0, "medium": 1, "high": 2}
_HELD_BY_SCHEDULER = frozenset({JobState.RUNNING, JobState.STARTING})


def silence_key(verdict: Verdict) -> str:
    """What the facts of a verdict are, as one word: equal ones are not proposed again once they were denied.

    They change when another attempt begins, when it progresses, and when it fails in another way.
    """
    mark = verdict.mark
    how_far = (
        f"step {mark.step}"
        if mark.step is not None
        else f"at {mark.progress_at.isoformat() if mark.progress_at else ''}"
    )
    facts = [
        *(verdict.job.cluster, verdict.job.id, verdict.job.incarnation, verdict.attempt, verdict.cause, how_far),
        [each.gate for each in verdict.gates if each.hard],
        verdict.restarts.fingerprint if verdict.restarts.same_failure else None,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


# -- may it be proposed ------------------------------------------------------------------------------------------------


def may_propose(verdict: Verdict, held: Held, marks: Marks, *, exempt: bool = False) -> str | None:
    """Why a verdict is not proposed; None where it may be (KILL-5). What was proposed or denied before, the store knows."""
    if verdict.ruling is not Ruling.KILL:
        return f"the ruling is {verdict.ruling.value}"
    if exempt:
        return "a tagged ablation or calibration is observed, never acted on"
    return forbidden(held, marks) or _moved_on(verdict, held)


def forbidden(held: Held, marks: Marks) -> str | None:
    """The mark that says it is never killed; None where there is none."""
    cluster, name = held.key.cluster, held.observation.name
    if cluster in marks.no_kill_clusters:
        return f"cluster {cluster} is marked no_kill"
    for pattern in marks.no_kill:
        if fits(name, pattern):
            return f"its name fits the no-kill pattern {pattern!r}"
    own = marks.own.get(cluster)
    if own is not None and held.observation.user not in own:
        return f"it is a job of {held.observation.user or 'an unknown user'}, not one of ours"
    return None


def fits(name: str, pattern: str) -> bool:
    """Shell patterns, upper and lower case alike."""
    return fnmatchcase(name.lower(), pattern.lower())


def still_open(verdict: Verdict, held: Held) -> str | None:
    """Why the facts of a proposal that waits are no longer so; None where they stand."""
    return _moved_on(verdict, held)


def _moved_on(verdict: Verdict, held: Held) -> str | None:
    attempt = held.life.attempt
    if (held.key, attempt) != (verdict.job, verdict.attempt):
        return f"attempt {verdict.attempt} is over: the job stands at attempt {attempt}"
    if not held.life.phase.live:
        return "it has ended"
    if progressed(verdict.mark, held.log):
        return f"it progressed since the verdict{_how_far(held.log)}"
    return None


def _how_far(log: LogFacts) -> str:
    parts = [] if log.step is None else [f"step {log.step}"]
    if log.progress_at is not None:
        parts.append(f"progress at {log.progress_at:%Y-%m-%dT%H:%M:%SZ}")
    return f" ({', '.join(parts)})" if parts else ""


# -- may it be carried out now -----------------------------------------------------------------------------------------


def may_carry_out(
    decision: Decision,
    verdict: Verdict,
    held: Held,
    fresh: Verdict | None,
    holds: Iterable[Hold],
    marks: Marks,
    now: datetime,
) -> Refusal | None:
    """Why an approved cancel is not sent now; None where it may be (KILL-2).

    ``verdict``: the one that was approved; ``held``: the job as it was read just now; ``fresh``: the evidence judged anew, None
    where that did not come about.
    """
    return may_go_on(decision, verdict, held, holds, marks, now) or _stale(verdict, fresh, now)


def may_go_on(
    decision: Decision, verdict: Verdict, held: Held, holds: Iterable[Hold], marks: Marks, now: datetime
) -> Refusal | None:
    """:func:`may_carry_out` but for the evidence: asked before it is taken anew, which costs the cluster something."""
    if decision.stage is not Stage.APPROVED:
        return Refusal(f"it is {decision.stage.value} already")
    if now >= decision.expires_at:
        return Refusal(f"the approval expired at {decision.expires_at:%Y-%m-%dT%H:%M:%SZ}")
    if now < decision.approved_at - CLOCKS_APART:
        return Refusal("the clock stands before the moment of the approval")
    if verdict.digest != decision.digest:
        return Refusal(f"verdict {decision.verdict} does not have the digest that was approved")
    if (decision.job, decision.attempt) != (verdict.job, verdict.attempt):
        return Refusal("the approval and its verdict are of different attempts")
    why = _moved_on(verdict, held) or forbidden(held, marks) or held_back(held, holds)
    if why is not None:
        return Refusal(why)
    if held.life.absences or held.observation.state is JobState.UNKNOWN:
        return Refusal("whether it still runs is not known", for_good=False)
    if held.observation.state not in _HELD_BY_SCHEDULER:
        return Refusal(f"it does not run: the scheduler says {held.observation.scheduler_state}")
    if held.log.stat is not None and held.log.stat.state is LogState.UNREAD:
        return Refusal("its log could not be read just now, so whether it progressed is not known", for_good=False)
    return None


def _stale(verdict: Verdict, fresh: Verdict | None, now: datetime) -> Refusal | None:
    """Whether the evidence, taken again, still says the same."""
    if fresh is None or abs(now - fresh.taken_at) > FRESH:
        return Refusal("its evidence was not refreshed", for_good=False)
    if (fresh.job, fresh.attempt) != (verdict.job, verdict.attempt):
        return Refusal("the refreshed evidence is of another attempt")
    if fresh.ruling is Ruling.ERROR:
        decisive = fresh.decisive
        said = f": {decisive.reason}" if decisive is not None else ""
        return Refusal(f"the refreshed evidence proves nothing{said}", for_good=False)
    if fresh.ruling is not Ruling.KILL:
        return Refusal(f"the refreshed evidence says {fresh.ruling.value}: {fresh.reasoning}")
    if fresh.cause != verdict.cause:
        return Refusal(f"the refreshed evidence names another cause: {fresh.cause}, where {verdict.cause} was approved")
    later = LogFacts(step=fresh.mark.step, progress_at=fresh.mark.progress_at)
    if progressed(verdict.mark, later):
        return Refusal(f"it progressed since the verdict{_how_far(later)}")
    return None


def held_back(held: Held, holds: Iterable[Hold]) -> str | None:
    """The first hold over a job, in words (KILL-5)."""
    targets = {"all": "", "cluster": held.key.cluster, "job": str(held.ref)}
    for each in holds:
        if each.target == targets.get(each.scope):
            return f"hold {each.id} stands on {each.target or 'everything'}, by {each.by}: {each.reason}"
    return None


# -- standing rules ----------------------------------------------------------------------------------------------------


def which_rule(rules: Sequence[StandingRule], proposal: Proposal) -> StandingRule | None:
    """The first standing rule that approves a proposal; never one of a hero run."""
    if HERO in proposal.name.lower():
        return None
    sure = _SURE.get(proposal.confidence, -1)
    for rule in rules:
        if (
            rule.bucket == proposal.bucket
            and rule.cause == proposal.cause
            and rule.cluster in (None, proposal.job.cluster)
            and fits(proposal.name, rule.pattern)
            and sure >= _SURE.get(rule.min_confidence, len(_SURE))
        ):
            return rule
    return None
