"""Does an evaluation still measure? Zombies, idle engines, refused credentials, trials that all fail (EVAL-2 to EVAL-4).

A high share of agent timeouts is capability and says nothing here (EVAL-3): those trials are scored.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from supervisor.detectors import quoting, trials
from supervisor.model.facts import Facts
from supervisor.model.findings import Finding, Quote, Severity
from supervisor.model.job import JobState

CALIBRATION = "calibration, exempt from actions"
FAULTS = ("environment", "api", "verifier", "request", "auth")
"""What keeps a trial from measuring anything; ``expected`` ends and exceptions of no known group do not."""


def look(facts: Facts, now: datetime) -> Iterable[Finding]:
    if facts.held.bucket != "eval" or not facts.held.life.phase.live:
        return
    for finding in (*_zombie(facts, now), *_idle(facts), *_refused(facts), *_all_fail(facts)):
        if quoting.exempt(facts):
            yield Finding(finding.rule, Severity.NOTE, f"{finding.text}; {CALIBRATION}", finding.quotes, finding.key)
        else:
            yield finding


def _zombie(facts: Facts, now: datetime) -> Iterable[Finding]:
    """All trials are done, and the job still holds its nodes."""
    done, total, since = facts.log.step, facts.log.total, facts.log.progress_at
    told = trials.counts(facts)
    closed = told is not None and told.job_ended
    all_done = total is not None and done is not None and done >= total
    if since is None or not (all_done or closed) or facts.observation.state is not JobState.RUNNING:
        return
    if now - since >= timedelta(seconds=facts.limits.health.zombie_s):
        run = facts.followed
        quotes = quoting.place(run, run.summary.last_trial or run.summary.last_progress) if run is not None else ()
        quotes = quoting.counted(facts, "done") or quoting.counted(facts, "ended") or quotes
        if quotes:
            what = f"all {total} trials are done" if all_done else "its harness has closed its record"
            text = f"zombie: {what} since {since:%Y-%m-%d %H:%MZ}, and the job still runs"
            yield Finding(
                "EVAL-2",
                Severity.WATCH,
                f"{text}; recommended: cancel once its results are seen",
                quotes,
                key="EVAL-2/zombie",
            )


def _idle(facts: Facts) -> Iterable[Finding]:
    """The engine says and answers nothing, while the log goes on and trials are left. An idle engine prints no line."""
    run, output = facts.followed, facts.log.last_output_at
    if run is None:
        return
    engine, answered = run.summary.last_engine, run.summary.engine.last_answered
    done, total = facts.log.step, facts.log.total
    if engine is None or engine.seen_at is None or output is None or (total is not None and (done or 0) >= total):
        return
    if answered is not None and answered.offset > engine.said.offset:
        return  # EVAL-4: it has answered since
    if output - engine.seen_at >= timedelta(seconds=facts.limits.health.engine_idle_s) and (
        quotes := quoting.place(run, engine)
    ):
        text = f"its engine says nothing since {engine.seen_at:%Y-%m-%d %H:%MZ}, and trials are left"
        yield Finding("EVAL-2", Severity.WATCH, text, quotes, key="EVAL-2/idle")


def _refused(facts: Facts) -> Iterable[Finding]:
    """Credentials that are refused again and again, by the engine or by what trials tell."""
    least, run = facts.limits.health.refusals, facts.followed
    quotes: tuple[Quote, ...] = ()
    if run is not None and run.summary.engine.refused_auth >= least:
        quotes = quoting.spoken(run, run.summary.engine.last_refused)
    told = trials.tallied(facts)
    if told is not None and told.figures.counted("auth") >= least:
        quotes += told.worst("auth")[1]
    if quotes:
        text = f"credentials are refused, {least} times or more: every trial will fail the same way"
        yield Finding("EVAL-2", Severity.WATCH, text, quotes, key="EVAL-2/auth")


def _all_fail(facts: Facts) -> Iterable[Finding]:
    """EVAL-3: everything fails and nothing completes. Trials that were scored, or that ran out of time, are results."""
    told, least = trials.tallied(facts), facts.limits.health.trials_to_judge
    if told is None or not told.figures.exact or told.figures.scored or (told.figures.mean or 0) > 0:
        return
    if trials.never_built(facts):
        return  # PROBE-11 says why
    name, quotes = told.worst(*FAULTS)
    done = told.figures.done or 0
    if done >= least and told.figures.counted(*FAULTS) >= 0.95 * done and quotes:
        text = f"every trial fails and none completes, mostly {name}: a stall, not a score"
        yield Finding("EVAL-3", Severity.FAULT, text, quotes, key="EVAL-3/all")
