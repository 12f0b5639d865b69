"""What a probe recommends: one table over gates' scores and restarts (PROBE-3, PROBE-5 to PROBE-7). Pure; it can do nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from supervisor.model.job import JobState
from supervisor.model.probe import Case, GateScore, Mark, Missing, Restarts, Role, Ruling, Score, Verdict
from supervisor.rules import wording

CONFIDENCES = ("low", "medium", "high")
JUDGED = ("A", "B", "C")
"""Gates that may kill. Training dynamics alone never do (RL-13)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """All that the rows of the table look at."""

    case: Case
    scores: tuple[GateScore, ...]
    restarts: Restarts
    stacks: frozenset[str]
    """Files of stack dumps that were read."""

    def with_result(self, *results: Score) -> tuple[GateScore, ...]:
        return tuple(score for score in self.scores if score.result in results)

    @property
    def hard(self) -> tuple[GateScore, ...]:
        return tuple(score for score in self.with_result(Score.FAIL) if score.hard and score.gate in JUDGED)

    @property
    def unstacked(self) -> tuple[GateScore, ...]:
        """Hard failures that rest on a wedge or a starvation, while no stack dump was read (PROBE-5)."""
        return tuple(score for score in self.hard if score.wedge and not self.stacks)

    @property
    def doomed(self) -> bool:
        """The same failure again and again, its quotes at hand, and it runs once more (PROBE-6)."""
        repeats = self.restarts
        live = self.case.subject.seen.state in (JobState.RUNNING, JobState.STARTING, JobState.SUSPENDED)
        least = self.case.limits.gating.doomed_repeats
        return live and repeats.same_failure and repeats.times >= least and bool(repeats.category and repeats.quotes)

    @property
    def unjudged(self) -> bool:
        """Liveness is asked of every job: without its answer nothing is known."""
        return all(score.gate != "A" or score.result is Score.NOT_APPLICABLE for score in self.scores)


@dataclass(frozen=True, slots=True)
class Row:
    """One rule. ``rests_on``: the scores whose weakest confidence is the verdict's; ``most``: and no more than this."""

    name: str
    test: Callable[[Weighed], bool]
    ruling: Ruling
    rests_on: Callable[[Weighed], Sequence[GateScore]]
    most: str = "high"


TABLE = (
    Row("no gate was judged", lambda w: w.unjudged, Ruling.ERROR, lambda w: ()),
    Row("evidence is missing", lambda w: bool(w.with_result(Score.ERROR)), Ruling.ERROR, lambda w: ()),
    Row("a wedge without a stack dump", lambda w: bool(w.unstacked), Ruling.ERROR, lambda w: ()),
    Row("doomed", lambda w: w.doomed, Ruling.KILL, lambda w: ()),
    Row("a hard failure", lambda w: bool(w.hard), Ruling.KILL, lambda w: (strongest(w.hard),)),
    Row(
        "a failure in doubt",
        lambda w: bool(w.with_result(Score.FAIL)),
        Ruling.NO_KILL,
        lambda w: w.with_result(Score.FAIL),
        most="medium",
    ),
    Row("all well", lambda w: True, Ruling.NO_KILL, lambda w: w.with_result(Score.PASS)),
)
"""In order: the first row whose test holds rules."""


def rule(
    case: Case,
    scores: Sequence[GateScore],
    restarts: Restarts,
    *,
    evidence: str,
    mark: Mark,
    setting: str | None = None,
) -> Verdict:
    """``scores`` and ``restarts`` with their quotes already held against the folder (``gates.proof``)."""
    stacks = frozenset(each.file for each in case.read(Role.STACK) if each.file is not None)
    weighed = Weighed(case=case, scores=tuple(scores), restarts=restarts, stacks=stacks)
    row = next(row for row in TABLE if row.test(weighed))
    cause, fix = _cause(weighed) if row.ruling is Ruling.KILL else ("", "")
    return Verdict(
        job=case.subject.key,
        name=case.subject.name,
        attempt=case.subject.attempt,
        taken_at=case.at,
        ruling=row.ruling,
        confidence=weakest(row.most, *(score.confidence for score in row.rests_on(weighed))),
        gates=_shown(weighed),
        restarts=restarts,
        cause=cause,
        reasoning=wording.reasoning(row.name, case.subject, weighed.scores, restarts, mark),
        next_steps=wording.next_steps(row.name, weighed.scores, restarts, mark, cause, fix),
        flip_signal=wording.flip_signal(row.ruling, weighed.scores, mark),
        evidence=evidence,
        mark=mark,
        setting=setting,
    )


def _cause(weighed: Weighed) -> tuple[str, str]:
    """Root cause and fix of a KILL: what repeats, else the surest hard failure's."""
    if weighed.doomed:
        category = weighed.restarts.category or ""
        return category, wording.usual_fix(category)
    surest = strongest(weighed.hard)
    return surest.cause, surest.fix


def _shown(weighed: Weighed) -> tuple[GateScore, ...]:
    """The gates as the verdict shows them: a wedge without a stack dump is an ERROR of its gate (PROBE-5)."""
    if weighed.with_result(Score.ERROR) or not weighed.unstacked:
        return weighed.scores
    return tuple(_unstacked(score, weighed.case) if score in weighed.unstacked else score for score in weighed.scores)


def _unstacked(score: GateScore, case: Case) -> GateScore:
    failed = next((each for each in case.of(Role.STACK) if not each.read), None)
    missing = Missing(
        command=failed.command if failed else "capture stack",
        output=(failed.failure if failed else None) or "no stack dump was captured",
    )
    reason = f"Without a stack dump taken while it lives this is not called a wedge: {score.reason}"
    return replace(score, result=Score.ERROR, reason=reason, missing=missing, hard=False, wedge=False, cause="", fix="")


def strongest(scores: Sequence[GateScore]) -> GateScore:
    """The one that names more than a silence, then the one with the highest confidence; of equals the first."""
    return max(scores, key=lambda score: (score.cause != "silent-hang", CONFIDENCES.index(weakest(score.confidence))))


def weakest(*confidences: str) -> str:
    """The lowest of them; an unknown word counts as low."""
    known = [each if each in CONFIDENCES else "low" for each in confidences]
    return min(known, key=CONFIDENCES.index, default="high")


# -- an external judge -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """An external judge's answer, its form checked and its quotes held against the folder. Its words are data."""

    judge: str
    """Its name, for people."""
    ruling: Ruling
    confidence: str
    reasoning: str
    gates: tuple[GateScore, ...] = ()
    """After ``gates.proof.check``: those with a false quote are ERROR."""
    next_steps: tuple[str, ...] = ()
    flip_signal: str = ""


MOST_WORDS = 600
"""Characters that are kept of each text of an external judge."""


def merged(verdict: Verdict, opinion: Opinion, case: Case) -> Verdict:
    """Ours after an external judge's: it may lower a ruling and add reasons, and our ERROR stays (PROBE-3).

    It raises to KILL only where a gate of ours fails with quotes and saw nothing that speaks against it, it fails the same gate
    with quotes, a cause and a fix, and, for a wedge, a stack dump was read.
    """
    ruling = opinion.ruling
    if any(score.result is Score.ERROR for score in opinion.gates):
        ruling = Ruling.ERROR  # a quote of its own that does not hold, or evidence that it lacked
    said = _clipped(opinion.reasoning)
    named = f"built-in and {_clipped(opinion.judge, 80) or 'an external judge'}"
    if ruling is verdict.ruling or verdict.ruling is Ruling.ERROR:
        reasons = wording.agreeing(verdict.ruling, ruling, opinion.judge, said)
        return replace(verdict, judge=named, reasoning=f"{verdict.reasoning} {reasons}".strip())
    if ruling is Ruling.KILL:
        return _raised(verdict, opinion, case, named, said)
    steps = tuple(step for each in opinion.next_steps[:5] if (step := _clipped(each)))
    return replace(
        verdict,
        ruling=ruling,
        confidence=weakest(opinion.confidence, "medium"),
        cause="",
        judge=named,
        reasoning=f"{verdict.reasoning} {wording.lowered(verdict.ruling, ruling, opinion.judge, said)}",
        next_steps=(
            *wording.after_lowering(ruling, opinion.judge, opinion.gates, verdict.gates),
            *steps,
        ),
        flip_signal=_clipped(opinion.flip_signal) or wording.flip_signal(ruling, verdict.gates, verdict.mark),
    )


def _raised(verdict: Verdict, opinion: Opinion, case: Case, named: str, said: str) -> Verdict:
    found = next((pair for score in verdict.gates if (pair := _both(score, opinion, case)) is not None), None)
    if found is None:
        against = next((str(score.facts["against"]) for score in verdict.gates if score.facts.get("against")), "")
        reasons = wording.not_raised(opinion.judge, said, against)
        return replace(verdict, judge=named, reasoning=f"{verdict.reasoning} {reasons}")
    ours, theirs = found
    hard = replace(
        ours,
        hard=True,
        wedge=ours.wedge or ours.gate == "A",
        cause=_clipped(theirs.cause, 80),
        fix=_clipped(theirs.fix),
        quotes=tuple(dict.fromkeys((*ours.quotes, *theirs.quotes)))[:16],
        confidence=weakest(ours.confidence, theirs.confidence, opinion.confidence, "medium"),
    )
    gates = tuple(hard if score is ours else score for score in verdict.gates)
    return replace(
        verdict,
        ruling=Ruling.KILL,
        confidence=hard.confidence,
        gates=gates,
        cause=hard.cause,
        judge=named,
        reasoning=f"{verdict.reasoning} {wording.raised(opinion.judge, ours.gate, said)}",
        next_steps=wording.next_steps("a hard failure", gates, verdict.restarts, verdict.mark, hard.cause, hard.fix),
        flip_signal=wording.flip_signal(Ruling.KILL, gates, verdict.mark),
    )


def _both(ours: GateScore, opinion: Opinion, case: Case) -> tuple[GateScore, GateScore] | None:
    """Our failure and theirs of the same gate, where the two together carry a KILL."""
    if ours.gate not in JUDGED or ours.result is not Score.FAIL or not ours.quotes or ours.facts.get("against"):
        return None
    if (ours.wedge or ours.gate == "A") and not case.read(Role.STACK):
        return None
    for theirs in opinion.gates:
        proven = theirs.result is Score.FAIL and theirs.quotes and theirs.cause.strip() and theirs.fix.strip()
        if theirs.gate == ours.gate and proven:
            return ours, theirs
    return None


def _clipped(text: str, most: int = MOST_WORDS) -> str:
    whole = " ".join(text.split())
    return whole if len(whole) <= most else f"{whole[: most - 1]}…"
