"""Step two of the state machine: Phase × Sign → Phase. What the table does not list stays put."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from supervisor.model.facts import ENDED_AS
from supervisor.model.job import JobKey, Outcome
from supervisor.model.lifecycle import Effect, Lifecycle, Phase, Sign, SignRead, Transition

DOUBT = frozenset({Sign.UNSEEN, Sign.MISSING, Sign.QUIET, Sign.UNCLEAR})
"""Signs that move no job, whatever its phase."""

ENDS = frozenset(Sign(word) for word in ENDED_AS)
"""Signs that end a life; each has an outcome of the same name."""

_LIVE = (Phase.BRING_UP, Phase.RUNNING, Phase.SUSPECT, Phase.WEDGED)

TABLE: dict[tuple[Phase, Sign], Phase] = {
    # Progress lifts a job out of any doubt about it, a wedge included: the probe was overtaken by the job.
    (Phase.BRING_UP, Sign.PROGRESSING): Phase.RUNNING,
    (Phase.SUSPECT, Sign.PROGRESSING): Phase.RUNNING,
    (Phase.WEDGED, Sign.PROGRESSING): Phase.RUNNING,
    # Silence makes suspect, never more than that; only a hard finding makes wedged (LIVE-5).
    (Phase.RUNNING, Sign.SILENT): Phase.SUSPECT,
    (Phase.BRING_UP, Sign.SILENT): Phase.SUSPECT,
    (Phase.BRING_UP, Sign.STUCK_LOADING): Phase.SUSPECT,
    (Phase.RUNNING, Sign.HUNG): Phase.WEDGED,
    (Phase.BRING_UP, Sign.HUNG): Phase.WEDGED,
    (Phase.SUSPECT, Sign.HUNG): Phase.WEDGED,
    (Phase.WEDGED, Sign.CLEARED): Phase.SUSPECT,
    # A gang that waits again after a preemption, or an attempt that begins, is in bring-up (POLL-5, LIVE-6).
    (Phase.RUNNING, Sign.WAITING): Phase.BRING_UP,
    (Phase.SUSPECT, Sign.WAITING): Phase.BRING_UP,
    (Phase.WEDGED, Sign.WAITING): Phase.BRING_UP,
    **{(phase, Sign.RESTARTED): Phase.BRING_UP for phase in Phase},
    # Every end ends every live phase, and a better-founded one may correct the outcome of an ended job.
    **{(phase, sign): Phase.TERMINAL for phase in _LIVE for sign in ENDS},
    # A job held as vanished that is listed again was never gone.
    (Phase.TERMINAL, Sign.SEEN_AGAIN): Phase.BRING_UP,
    (Phase.TERMINAL, Sign.LADDER_STARTED): Phase.CLEANUP,
    (Phase.TERMINAL, Sign.LADDER_CLIMBED): Phase.DONE,
    (Phase.CLEANUP, Sign.LADDER_CLIMBED): Phase.DONE,
}
"""All steps there are."""

CORRECTIONS: frozenset[tuple[Outcome, Sign]] = frozenset(
    {(Outcome.TIMED_OUT, Sign.HANDED_ON)} | {(Outcome.VANISHED, sign) for sign in ENDS if sign is not Sign.VANISHED}
)
"""Outcomes that later evidence may replace: a successor that showed itself late, an end found after all."""

_ENDED_ILL = frozenset(ENDS - {Sign.COMPLETED, Sign.HANDED_ON})


def advance(job: JobKey, life: Lifecycle, read: SignRead, now: datetime) -> Transition:
    """The one step that ``read`` allows from ``life``. Doubt changes at most the count of absences.

    A transition whose ``before`` equals its ``after`` is nothing new. Effects come only with a move or a corrected outcome.
    """
    after = _after(life, read.sign, now)
    moved = after.phase is not life.phase or after.attempt != life.attempt or after.outcome is not life.outcome
    effects = _effects(after, read.sign) if moved else frozenset()
    return Transition(job=job, before=life, after=after, read=read, at=now, effects=effects)


def _after(life: Lifecycle, sign: Sign, now: datetime) -> Lifecycle:
    if sign is Sign.MISSING:
        return replace(life, absences=life.absences + 1) if life.phase.live else life
    if sign in DOUBT:
        # Being listed at all ends an absence; having no reading does not.
        return life if sign is Sign.UNSEEN or life.absences == 0 else replace(life, absences=0)
    if life.phase is Phase.TERMINAL and sign in ENDS:
        correct = life.outcome is not None and (life.outcome, sign) in CORRECTIONS
        return replace(life, outcome=ENDED_AS[sign.value]) if correct else life
    phase = TABLE.get((life.phase, sign), life.phase)
    attempt = life.attempt + 1 if sign is Sign.RESTARTED else life.attempt
    if phase is life.phase and attempt == life.attempt:
        return life if life.absences == 0 else replace(life, absences=0)
    outcome = ENDED_AS[sign.value] if sign in ENDS else (None if phase.live else life.outcome)
    return replace(life, phase=phase, since=now, attempt=attempt, outcome=outcome, absences=0)


def _effects(after: Lifecycle, sign: Sign) -> frozenset[Effect]:
    if sign is Sign.RESTARTED:
        return frozenset({Effect.WANT_DIAGNOSIS})  # of the attempt that is over (PROBE-6)
    if after.phase is Phase.SUSPECT:
        return frozenset({Effect.WANT_LOOK, Effect.WANT_PROBE, Effect.WANT_DIAGNOSIS})
    if after.phase is Phase.WEDGED:
        return frozenset({Effect.WANT_LOOK, Effect.WANT_NOTE, Effect.WANT_DIAGNOSIS})
    if sign in _ENDED_ILL:
        return frozenset({Effect.WANT_NOTE, Effect.WANT_DIAGNOSIS, Effect.WANT_CLEANUP})
    if sign in ENDS:
        return frozenset({Effect.WANT_CLEANUP})
    return frozenset()


def born(held_since: datetime, attempt: int = 1) -> Lifecycle:
    """The life of a job seen for the first time. What its first reading says is the first sign, read at once after."""
    return Lifecycle(phase=Phase.BRING_UP, since=held_since, attempt=attempt)


def diagram() -> str:
    """The table as a Mermaid state diagram, for the README (held by a test)."""
    steps: dict[tuple[Phase, Phase], list[str]] = {}
    for (before, sign), after in TABLE.items():
        if before is not after:
            steps.setdefault((before, after), []).append(sign.value)
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.BRING_UP.value}"]
    for (before, after), signs in steps.items():
        label = "any end" if set(signs) == {sign.value for sign in ENDS} else ", ".join(signs)
        lines.append(f"    {before.value} --> {after.value}: {label}")
    lines.append(f"    {Phase.DONE.value} --> [*]")
    return "\n".join(lines) + "\n"


__all__ = ["CORRECTIONS", "DOUBT", "ENDS", "TABLE", "advance", "born", "diagram"]
