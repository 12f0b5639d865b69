"""Gate C: do rollouts give something to learn from, or to measure? (PROBE-10, PROBE-11, RL-11, DATAGEN-2, EVAL-3)

Where trials are, they are judged; where there are none by design, rewards, banked steps, timings and tokens are. A hard failure
needs a mechanism that is named and quoted, has held over the whole run as far as is known, and is no spike in time: a hard task
that nobody solves yet is not dying.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from supervisor.gates import begun, duty, metrics, said, sample, standard
from supervisor.gates.sample import FAULTS, Sample
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, GateScore, Score
from supervisor.model.readings import Trial

GATE, NAME = "C", "rollouts"
OBSERVED = "ablation observation, not actionable"
TESTS_DIR = "AddTestsDirError"
ALL = 0.95
"""Share from which trials count as all: one straggler of another kind hides no fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which trials give nothing."""

    reason: str
    quotes: tuple[Quote, ...]
    cause: str
    fix: str
    watch: str
    hard: bool


_BY_GROUP = {
    "environment": (
        "sandbox-fail",
        "make one sandbox from this image, alone, until that works; look at the provider's quota, keys and image; relaunch then",
    ),
    "api": (
        "model-unreachable",
        "send the engine one request by the address that trials use; repair the engine, the tunnel or the address; relaunch then",
    ),
    "verifier": ("verifier-fail", "run the verifier of one trial by hand; repair what keeps it from writing a reward"),
    "request": (
        "requests-refused",
        "read the refusal; change the parameter or the length that the engine does not take",
    ),
    "auth": (
        "credentials-refused",
        "renew the credential, or correct the model's name; every trial fails the same way",
    ),
}


def judge(case: Case) -> GateScore:
    bucket = case.subject.bucket
    if bucket not in ("rl", "datagen", "eval"):
        return GateScore(
            gate=GATE, name=NAME, result=Score.NOT_APPLICABLE, reason=f"A job of the bucket {bucket} has no rollouts."
        )
    found = sample.of(case)
    score = standard.judge(case) if bucket == "rl" and not _agentic(case, found) else _trials(case, found)
    return _observed(score) if case.subject.exempt else score


def _agentic(case: Case, found: Sample) -> bool:
    """By its own word, or by trials: a log that shows none may be of a trainer whose harness writes elsewhere."""
    flavors = {case.subject.flavor, *(run.flavor for run in case.runs.values())}
    told = found.told
    shown = told is not None and (told.done is not None or told.running > 0)
    return "agentic" in flavors or bool(found.count) or found.job is not None or shown or begun.none_ended(case)


def _observed(score: GateScore) -> GateScore:
    """RL-3, EVAL-4: an ablation's or a calibration's failures are told and never acted on."""
    if score.result is not Score.FAIL:
        return score
    return replace(score, hard=False, wedge=False, reason=f"{score.reason} {OBSERVED[0].upper()}{OBSERVED[1:]}.")


# -- trials ------------------------------------------------------------------------------------------------------------


def _trials(case: Case, found: Sample) -> GateScore:
    rewards = metrics.best(case, ("reward",))
    if not found.finished and rewards is None:
        return begun.requests(case, found) or begun.none_finished(case, found)
    fault = next(
        (each for each in (_faulty(case, found), _dead_engine(case, found), _nothing_learnt(case, found)) if each), None
    )
    if fault is not None:
        return _failed(case, found, fault)
    return _passed(case, found)


def _lasting(case: Case, found: Sample, scores_tell: bool) -> bool:
    """Whether what all opened trials show holds for the whole run: no spike, and nothing before it is known to be better.

    ``scores_tell``: a reward of 0 that counts speaks against it too. While an engine may still load nothing is called lasting.
    """
    if not _begun(case):
        return False
    return _throughout(case, found, scores_tell)


def _begun(case: Case) -> bool:
    started = case.subject.seen.started_at
    return started is not None and case.at - started >= timedelta(seconds=case.limits.gating.bring_up_trials_s)


def _throughout(case: Case, found: Sample, scores_tell: bool) -> bool:
    if found.ever_passed or _ever_rewarded(case) or (scores_tell and found.ever_scored):
        return False
    told, least, job = found.told, case.limits.health.trials_to_judge, found.job
    if scores_tell and job is not None and (job.completed or 0) >= least:
        return (job.errored or 0) >= ALL * (job.completed or 0)
    if scores_tell and told is not None and told.exact and found.whole and (told.done or 0) >= least:
        return told.counted(*FAULTS) >= ALL * (told.done or 0)
    return found.span is not None and found.span > duty.SLOT and _whole(case, found)


def _whole(case: Case, found: Sample) -> bool:
    """Whether the opened trials are all that ended, or reach back to the run's beginning."""
    told, started = found.told, case.subject.seen.started_at
    if found.job is not None and found.job.completed is not None:
        return found.job.completed * ALL <= found.count
    if told is not None and told.done and found.whole and told.done * ALL <= found.count:
        return True
    begun = [trial.started_at for _, trial in found.trials if trial.started_at is not None]
    if started is None or not begun:
        return False
    return min(begun) - started <= timedelta(seconds=case.limits.gating.bring_up_trials_s)


def _ever_rewarded(case: Case) -> bool:
    return any(
        any(point.value > 0 for key in ("reward", "pass_at_n") for point in run.series.get(key, ()))
        for run in case.runs.values()
    )


def _faulty(case: Case, found: Sample) -> Fault | None:
    """Everything fails and nothing completes, and not by the agents' own doing (EVAL-3)."""
    failed = found.failed_by(*FAULTS)
    least = case.limits.health.trials_to_judge
    if found.count >= least and len(failed) >= ALL * found.count:
        name = found.worst(failed)
        group = next(trial.groups[0] for _, trial in failed if trial.exceptions[:1] == (name,))
        files = [file for file, trial in failed if trial.exceptions[:1] == (name,)][:2]
        quotes = tuple(quote for file in files for quote in sample.exception_quote(case, file))
        whole = len([1 for _, trial in failed if trial.exceptions[:1] == (name,)])
        words = f"{len(failed)} of the {found.count} newest trials ended by a fault outside the agent, {whole} of them by {name}."
        return _fault(case, found, name, group, words, quotes, enough=True)
    told = found.told
    if told is None or found.log is None or found.count >= least or (told.done or 0) < least:
        return None
    if told.exact and told.counted(*FAULTS) >= ALL * (told.done or 0) and (name := told.worst(*FAULTS)):
        quotes = said.spoken(case, found.log, told.said.get(name))
        words = f"{told.counted(*FAULTS)} of {told.done} trials ended by a fault outside the agent, mostly by {name}."
        return _fault(case, found, name, told.groups.get(name, ""), words, quotes, enough=bool(found.count))
    return None


def _fault(
    case: Case, found: Sample, name: str, group: str, words: str, quotes: tuple[Quote, ...], enough: bool
) -> Fault | None:
    if not quotes:
        return None
    cause, fix = _BY_GROUP[group]
    # No sandbox at all heals as little in the first hour as later; an engine that loads, or a provider's outage, does.
    lasting = (_throughout if name == TESTS_DIR else _lasting)(case, found, scores_tell=True)
    if name == TESTS_DIR:
        words += (
            " On a data set that has run before, this says that the sandbox was never built: the image, not the data."
        )
        fix = (
            "compare the sandbox client and what it pulls in between this image and the last good one, and pin it back; "
            "make one sandbox from it, and add the tests to it, before any relaunch"
        )
    words += " No trial of this run is known to have done better." if lasting else " It may be passing."
    return Fault(
        reason=words,
        quotes=quotes,
        cause=cause,
        fix=fix,
        watch="one trial that completes with a reward",
        hard=lasting and enough,
    )


def _dead_engine(case: Case, found: Sample) -> Fault | None:
    """DATAGEN-2: agents that take one turn and no token had no engine to talk to. One turn by design has answers."""
    health = case.limits.health
    instant = [(file, trial) for file, trial in found.trials if trial.instant]
    turns = found.turns
    few = len(turns) >= health.dead_engine_trials and _mean(turns) <= health.dead_engine_turns
    many = found.count >= health.trials_to_judge and len(instant) >= ALL * found.count
    if found.ever_passed or not (few or many):
        return None
    mute = [(file, trial) for file, trial in found.trials if trial.output_tokens == 0 or trial.instant]
    shown = instant or mute or list(found.trials)
    quotes = tuple(quote for file, trial in shown[:2] for quote in _turns_quote(case, file, trial))
    silent = len(mute) >= ALL * found.count
    if many:
        words = f"{len(instant)} of {found.count} trials ended within seconds and without a token."
    elif silent:
        words = f"Trials take {_mean(turns):.2f} turns on average, over {len(turns)}: agents had no engine to talk to."
    else:
        words = (
            f"Trials take {_mean(turns):.2f} turns on average, over {len(turns)}, with answers and without any reward."
        )
    return Fault(
        reason=words,
        quotes=quotes,
        cause="engine-dead",
        fix="send the engine one request by the address that trials use; repair it or the address; never consolidate these trials",
        watch="a trial of several turns",
        hard=silent and _lasting(case, found, scores_tell=False),
    )


def _turns_quote(case: Case, file: str, trial: Trial) -> tuple[Quote, ...]:
    for number, line in enumerate(case.lines(file), 1):
        for name in ('"n_episodes"', '"n_output_tokens"'):
            at = line.find(name)
            if at >= 0:
                return (Quote(file, number, line[at : at + said.MOST]),)
    return sample.result_quote(case, file, trial)


def _nothing_learnt(case: Case, found: Sample) -> Fault | None:
    """RL: batches that fail whole train on zeros, and steps go on (RL-14). Attempts that earn nothing yet are no fault."""
    if case.subject.bucket != "rl":
        return None
    mechanism = standard.no_signal(case)
    if mechanism is None:
        return None
    return Fault(
        reason=mechanism.words,
        quotes=mechanism.quotes,
        cause=standard.CAUSE,
        fix=mechanism.fix,
        watch="a step with a reward above 0",
        hard=mechanism.lasting and not found.ever_passed,
    )


# -- scores ------------------------------------------------------------------------------------------------------------


def _failed(case: Case, found: Sample, fault: Fault) -> GateScore:
    facts, words = _facts(case, found)
    return GateScore(
        gate=GATE,
        name=NAME,
        result=Score.FAIL,
        reason=f"{fault.reason}{words}",
        quotes=said.distinct(fault.quotes),
        hard=fault.hard,
        cause=fault.cause,
        fix=fault.fix,
        confidence="high" if fault.hard else "medium",
        watch=fault.watch,
        facts=facts,
    )


def _passed(case: Case, found: Sample) -> GateScore:
    """Some reward, or attempts that are whole and earn nothing yet; and what else there is to tell."""
    quotes = _shown(case, found)
    if not quotes:
        return begun.error(case, "no reward and no result of a trial could be quoted")
    facts, words = _facts(case, found)
    zero = not found.ever_passed and not _ever_rewarded(case)
    if zero and not found.count and _enough_told(case, found):
        return begun.error(
            case, f"no reward above 0 is known, and no trial could be opened to tell why.{words}", *quotes
        )
    many = len(found.rewards) >= case.limits.health.trials_to_judge
    score = GateScore(
        gate=GATE,
        name=NAME,
        result=Score.PASS,
        reason=f"{_head(case, found)}{words}",
        quotes=quotes,
        confidence="high" if found.count and not zero else "medium",
        watch="rewards that fall to 0, or trials that fail before the agent begins",
        facts=facts,
    )
    if (standing := _standing(case, found)) is not None:
        text, cause, fix = standing
        return replace(
            score, result=Score.FAIL, reason=f"{score.reason}{text}", cause=cause, fix=fix, confidence="medium"
        )
    if not zero:
        return score
    if (
        found.count
        and not found.ever_scored
        and not any(trial.groups[:1] == ("expected",) for _, trial in found.trials)
    ):
        group = next((trial.groups[0] for _, trial in found.failed_by(*FAULTS)), None)
        cause, fix = (
            _BY_GROUP[group] if group is not None else ("no-reward", "read what the trials say of their verifier")
        )
        text = f" None of the {found.count} opened trials has measured anything; they are too few to judge by."
        return replace(
            score,
            result=Score.FAIL,
            reason=f"{score.reason}{text}",
            cause=cause,
            fix=fix,
            watch="one trial with a reward",
        )
    text = " No reward is above 0 yet."
    watch = "a first reward above 0; without one over the next steps, and without faults, the task is out of reach"
    if many and case.subject.bucket != "eval":  # an evaluation that scores 0 has measured
        text += " Trials end by no fault, so it is the task or the policy and not the machinery."
        return replace(
            score,
            result=Score.FAIL,
            reason=f"{score.reason}{text}",
            cause=standard.CAUSE if case.subject.bucket == "rl" else "no-reward",
            fix="read three trials whole: is the task within reach, is the answer cut off, does the verifier see it",
            watch=watch,
        )
    return replace(score, reason=f"{score.reason}{text}", watch=watch, early=case.subject.bucket == "rl")


def _enough_told(case: Case, found: Sample) -> bool:
    """Enough steps or trials for a lack of rewards to mean something."""
    health, best = case.limits.health, metrics.best(case, ("reward",))
    done = (found.told.done or 0) if found.told is not None else 0
    return done >= health.trials_to_judge or (best is not None and len(best[1].series["reward"]) >= health.trend_points)


def _standing(case: Case, found: Sample) -> tuple[str, str, str] | None:
    """Words, cause and fix of a fault of half the trials or more: a failure, and no death, for the rest still measures."""
    failed = found.failed_by(*FAULTS)
    if found.count < case.limits.health.trials_to_judge or len(failed) < 0.5 * found.count:
        return None
    name = found.worst(failed)
    group = next(trial.groups[0] for _, trial in failed if trial.exceptions[:1] == (name,))
    cause, fix = _BY_GROUP[group]
    return f" {len(failed)} of {found.count} trials ended by a fault outside the agent, mostly {name}.", cause, fix


def _head(case: Case, found: Sample) -> str:
    told, rewards, parts = found.told, found.rewards, list[str]()
    if found.count:
        passed = sum(reward > 0 for reward in rewards)
        parts.append(f"{found.count} trials opened: {len(rewards)} with a reward, {passed} above 0")
        if turns := found.turns:
            parts.append(f"{_mean(turns):.1f} turns on average")
    if found.job is not None and found.job.completed is not None:
        of = f" of {found.job.planned}" if found.job.planned is not None else ""
        mean = f", mean {found.job.mean:g}" if found.job.mean is not None else ""
        parts.append(f"the harness counts {found.job.completed}{of} ended{mean}")
    elif told is not None and told.done is not None:
        of = f" of {told.planned}" if told.planned is not None else ""
        mean = f", mean {told.mean:g}" if told.mean is not None else ""
        parts.append(f"the log tells of {told.done}{of} finished{mean}")
    if (best := metrics.best(case, ("reward",))) is not None:
        point = best[1].series["reward"][-1]
        parts.append(
            f"newest average reward {point.value:g}" + (f" at step {point.step}" if point.step is not None else "")
        )
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _shown(case: Case, found: Sample) -> tuple[Quote, ...]:
    """Rewards that were read: the best trial, another result, the trainer's newest average."""
    quotes: list[Quote] = []
    ranked = sorted(found.trials, key=lambda pair: -((pair[1].reward or 0) if pair[1].valid else -1.0))
    for file, trial in ranked[:2]:
        quotes += sample.result_quote(case, file, trial)
    quotes += sample.job_quote(case, found)
    if (best := metrics.best(case, ("reward",))) is not None:
        quotes += metrics.quote(case, best[0], "reward", *reversed(best[1].series["reward"]))
    if found.log is not None and found.run is not None and found.run.last_trial is not None:
        quotes += said.mark(case, found.log, found.run.last_trial)
    return said.distinct(quotes)


def _facts(case: Case, found: Sample) -> tuple[dict[str, float | int | str | None], str]:
    """Numbers, and what they add to the words: exceptions, spikes, churn (PROBE-12)."""
    facts: dict[str, float | int | str | None] = {"trials": found.count, "finished": found.finished}
    if rewards := found.rewards:
        facts |= {"scored": len(rewards), "passed": sum(each > 0 for each in rewards), "mean": round(_mean(rewards), 4)}
    if turns := found.turns:
        facts["turns"] = round(_mean(turns), 2)
    words = ""
    expected = [t.exceptions[0] for _, t in found.trials if t.exceptions and t.groups[:1] == ("expected",)]
    if expected:
        words += f" Ends by the agent's own limits, scored and no fault: {sample.counted(expected)}."
    cycle = duty.measure((trial for _, trial in found.trials), case.limits.gating)
    if cycle is not None:
        facts |= cycle.facts
        if spikes := cycle.spikes:
            names = ", ".join(f"{each.name} {each.count}" for each in spikes[:3])
            words += f" In one short spell, and not since: {names}."
        if cycle.races:
            words += f" The verifier of {cycle.races} trials ended after the trial: a release race."
    failed = [t.exceptions[0] for _, t in found.trials if t.exceptions and t.groups[:1] != ("expected",)]
    if failed:
        facts["exceptions"] = sample.counted(failed)
    return facts, words


def _mean(values: Sequence[float]) -> float:
    """At least one value. The largest floats add up to infinity here, and raise nothing."""
    return sum(values) / len(values)
