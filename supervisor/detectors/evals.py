"""Does an evaluation still measure? Zombies, idle engines, refused credentials, trials that all fail (EVAL-2 to EVAL-4).

A high share of agent timeouts is capability and says nothing here (EVAL-3): those trials are scored.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from supervisor.detectors import quoting
from supervisor.model.facts import Facts, Followed
from supervisor.model.findings import Finding, Quote, Severity
from supervisor.model.job import JobState

CALIBRATION = "calibration, exempt from actions"
FAULTS = ("environment", "api", "verifier", "request", "auth")
"""What keeps a trial from measuring anything; ``expected`` ends and exceptions of no known group do not."""


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    run = facts.followed
    if facts.held.bucket != "eval" or run is None or not facts.held.life.phase.live:
        return
    for finding in (*_zombie(facts, run, now), *_idle(facts, run), *_refused(facts, run), *_all_fail(facts, run)):
        if quoting.exempt(facts):
            yield Finding(finding.rule, Severity.NOTE, f"{finding.text}; {CALIBRATION}", finding.quotes, finding.key)
        else:
            yield finding


def _zombie(facts: Facts, run: Followed, now: datetime) -> Iterable[Finding]:
    """All trials are done, and the job still holds its nodes."""
    done, total, since = run.summary.progress.step, run.summary.progress.total, facts.log.progress_at
    if (
        total is None
        or done is None
        or done < total
        or since is None
        or facts.observation.state is not JobState.RUNNING
    ):
        return
    if now - since >= timedelta(seconds=facts.limits.health.zombie_s):
        quotes = quoting.place(run, run.summary.last_trial or run.summary.last_progress)
        if quotes:
            text = f"zombie: all {total} trials are done since {since:%Y-%m-%d %H:%MZ}, and the job still runs"
            yield Finding(
                "EVAL-2",
                Severity.WATCH,
                f"{text}; recommended: cancel once its results are seen",
                quotes,
                key="EVAL-2/zombie",
            )


def _idle(facts: Facts, run: Followed) -> Iterable[Finding]:
    """The engine says and answers nothing, while the log goes on and trials are left. An idle engine prints no line."""
    summary, output = run.summary, facts.log.last_output_at
    engine, answered = summary.last_engine, summary.engine.last_answered
    done, total = summary.progress.step, summary.progress.total
    if engine is None or engine.seen_at is None or output is None or (total is not None and (done or 0) >= total):
        return
    if answered is not None and answered.offset > engine.said.offset:
        return  # EVAL-4: it has answered since
    if output - engine.seen_at >= timedelta(seconds=facts.limits.health.engine_idle_s) and (
        quotes := quoting.place(run, engine)
    ):
        text = f"its engine says nothing since {engine.seen_at:%Y-%m-%d %H:%MZ}, and trials are left"
        yield Finding("EVAL-2", Severity.WATCH, text, quotes, key="EVAL-2/idle")


def _refused(facts: Facts, run: Followed) -> Iterable[Finding]:
    """Credentials that are refused again and again, by the engine or by what trials tell."""
    least, trials, engine = facts.limits.health.refusals, run.summary.trials, run.summary.engine
    quotes: tuple[Quote, ...] = ()
    if engine.refused_auth >= least:
        quotes = quoting.spoken(run, engine.last_refused)
    if trials.counted("auth") >= least:
        quotes += quoting.spoken(run, trials.said.get(trials.worst("auth")))
    if quotes:
        text = f"credentials are refused, {least} times or more: every trial will fail the same way"
        yield Finding("EVAL-2", Severity.WATCH, text, quotes, key="EVAL-2/auth")


def _all_fail(facts: Facts, run: Followed) -> Iterable[Finding]:
    """EVAL-3: everything fails and nothing completes. Trials that were scored, or that ran out of time, are results."""
    trials, least = run.summary.trials, facts.limits.health.trials_to_judge
    failed, name = trials.counted(*FAULTS), trials.worst(*FAULTS)
    if not trials.exact or trials.scored or (trials.mean or 0) > 0:
        return
    done = trials.done or 0
    if done >= least and failed >= 0.95 * done and (quotes := quoting.spoken(run, trials.said.get(name))):
        text = f"every trial fails and none completes, mostly {name}: a stall, not a score"
        yield Finding("EVAL-3", Severity.FAULT, text, quotes, key="EVAL-3/all")
