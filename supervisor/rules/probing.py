"""When a job is probed, what its setting is, and what the newest verdict says of it at the next tick. Pure.

Not seen is never the same as not there: an ERROR asks for another look and moves nothing. Doubt spares nobody the next probe,
and no job is probed without end: the longer a suspicion stands, the rarer the looks.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from supervisor.model.facts import Held, LogFacts
from supervisor.model.findings import Finding, Severity
from supervisor.model.job import JobKey, JobState
from supervisor.model.lifecycle import Phase
from supervisor.model.probe import Mark, Ruling, Standing
from supervisor.model.records import ErrandWanted
from supervisor.model.rulebook import Limits, Rulebook
from supervisor.rules.memory import Memory

# -- settings ----------------------------------------------------------------------------------------------------------

_OF_A_LAUNCH = re.compile(
    r"""(?x)
      (?:run|exp|experiment|job|trial|session|wandb|tracker|logger|log|display)_(?:name|id|group|tags?|notes)
    | notes | (?:random_)?seed | (?:date|time)(?:stamp)? | now
    | (?:output|out|save|logs?|logging|ckpts?|checkpoints?|results?|trials|jobs|export|cache|tmp|temp|tensorboard|default_local)
      _(?:dir|path|root|folder|file|prefix)
    | output | out | resume(?:_from)?(?:_checkpoint|_path|_mode|_dir)?
    | (?:master|rdzv|head|dist|main_process)_(?:addr|address|port|ip|id|endpoint|host) | port | node_?rank | rank
    """
)
"""Names of options whose value differs from launch to launch of one setting. An option left out by mistake hides a change, so
only what never says what is trained, on what, or how, stands here."""
_BARE = frozenset({"name", "id", "o"})
"""The same, only where no dotted path makes them say something else (`model.name`)."""
_MOMENT = re.compile(
    r"20\d\d-?[01]\d-?[0-3]\d(?:[T_-]?[0-2]\d[:-]?[0-5]\d(?:[:-]?[0-5]\d)?Z?)?|(?<![\w.])1[6-9]\d{8}(?![\w.])"
)
_FRESH_FLAVOURS = re.compile(r"(?:^|[^a-z0-9])(smoke|debug|dbg|canary|bringup|bring-up)(?:[^a-z]|$)", re.IGNORECASE)
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "srun", "sbatch", "env", "exec", "time", "nohup"})
_LINKS = 200


def setting_of(held: Held, origin: Held | None = None) -> str:
    """A fingerprint of what is run and on what: equal where a probe that passed one run says something of the next (RL-10).

    Drawn from the command line (config, model, image, code revision stand there where they stand anywhere), the nodes, the
    flavour, the partition, the cluster. Where the command names a script and nothing else, what that does cannot be seen from
    outside: then each launch is a setting of its own, and the links of one chain (``origin``: its first) share it.
    """
    seen = held.observation
    first = origin or held
    words = _words(held.details.command or "", held.key.id)
    launch = ""
    if not _telling(words) or fresh_flavour(held):
        began = first.first_seen_at or first.observation.submitted_at
        launch = f"{first.key.id}@{began.isoformat() if began else ''}"
    parts = [
        *(held.key.cluster, held.bucket, seen.partition or "", str(seen.node_count or len(seen.nodes))),
        *(str(seen.tasks.total) if seen.tasks else "", launch),
    ]
    return hashlib.sha256("\0".join([*parts, *words]).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def origin_of(memory: Memory, held: Held) -> Held:
    """The first link, as far as it is remembered, of the chain that this job goes on with; itself without one."""
    for _ in range(_LINKS):
        before = memory.get(held.predecessor) if held.predecessor else None
        if before is None:
            break
        held = before
    return held


def fresh_flavour(held: Held) -> str | None:
    """``smoke``, ``debug`` …, where its name or flavour says so: such a launch is there to be looked at (RL-10)."""
    found = _FRESH_FLAVOURS.search(f"{held.observation.name} {held.run.flavor or ''}")
    return found[1].lower() if found else None


@lru_cache(maxsize=4096)
def _words(command: str, job: str) -> tuple[str, ...]:
    """The command without what differs from launch to launch: names, places, seeds, dates, job ids."""
    try:
        given = shlex.split(command)
    except ValueError:
        given = command.split()
    kept: list[str] = []
    at = 0
    while at < len(given):
        word = given[at]
        at += 1
        head, equals, value = word.partition("=")
        separate = head.startswith("-") and not equals and at < len(given) and not given[at].startswith("-")
        if (equals or separate) and _of_a_launch(head):
            at += separate
            continue
        kept.append(f"{head}={_steady(value, job)}" if equals else _steady(word, job))
    return tuple(kept)


def _of_a_launch(option: str) -> bool:
    parts = option.lstrip("+-").lower().replace("-", "_").split(".")
    if _OF_A_LAUNCH.fullmatch(parts[-1]) or (len(parts) == 1 and parts[0] in _BARE):
        return True
    return len(parts) > 1 and _OF_A_LAUNCH.fullmatch("_".join(parts[-2:])) is not None


def _steady(value: str, job: str) -> str:
    value = _MOMENT.sub("DATE", value)
    if len(job) >= 3 and job in value:
        value = re.sub(rf"(?<![A-Za-z0-9]){re.escape(job)}(?![A-Za-z0-9])", "JOB", value)
    return value


def _telling(words: tuple[str, ...]) -> bool:
    """Whether the command says more than which script is run."""
    return len([word for word in words if word.rpartition("/")[2] not in _SHELLS]) > 1


# -- when --------------------------------------------------------------------------------------------------------------

REQUESTED, SUSPECTED, UNTESTED = 0, 1, 2
"""Priorities, the most urgent first."""
SELDOM = timedelta(hours=1)
"""Longest pause between probes of a job that stays suspect."""
AGAIN_AFTER_KILL = timedelta(hours=24)
"""A KILL without an open proposal was denied, silenced or is not ours to propose: it is looked at again, but not soon."""


@dataclass(frozen=True, slots=True)
class ProbeWanted:
    """Why a job is to be probed, in words, and how urgently."""

    reason: str
    priority: int
    fresh: str | None = None
    """What is new or untested about it, in words."""


def untested(held: Held, setting: str, passed: Collection[str]) -> str | None:
    """What is new about an RL job's setting, in words; None where a probe has passed it, or where it is no RL job."""
    if held.bucket != "rl" or setting in passed:
        return None
    flavour = fresh_flavour(held)
    return f"a {flavour} run" if flavour else "its setting (command, geometry, flavour) has not passed a probe yet"


def wanted(
    held: Held,
    standing: Standing | None,
    setting: str,
    passed: Collection[str] | None,
    now: datetime,
    limits: Limits,
    *,
    proposed: bool = False,
    every: timedelta = timedelta(minutes=15),
) -> ProbeWanted | None:
    """Whether a live job is to be probed now without anybody asking.

    ``standing``: its newest verdict, of whatever attempt; ``passed``: settings that passed, None where new settings are not to
    be probed; ``proposed``: a kill of it waits for a person; ``every``: the interval between ticks.
    """
    if proposed or held.observation.state is not JobState.RUNNING:
        return None
    life = held.life
    last = standing if standing is not None and standing.attempt == life.attempt else None
    fresh = untested(held, setting, passed) if passed is not None else None
    if life.phase in (Phase.SUSPECT, Phase.WEDGED):
        if last is None or (life.phase is Phase.SUSPECT and last.taken_at < life.since):
            return ProbeWanted(f"it is {life.phase.value} and not probed yet", SUSPECTED, fresh)
        if now - last.taken_at >= _pause(last, life.since, limits):
            return ProbeWanted(f"it is {life.phase.value} still; the last verdict was {last.ruling}", SUSPECTED, fresh)
        return None
    if life.phase is Phase.RUNNING and fresh is not None:
        pause = SELDOM if last is not None and last.ruling is Ruling.KILL else every
        if last is None or now - last.taken_at >= pause:
            return ProbeWanted(fresh, UNTESTED, fresh)
    return None


def _pause(last: Standing, since: datetime, limits: Limits) -> timedelta:
    """How long after a verdict a suspect is probed again: as long as the suspicion stood then, within bounds."""
    if last.ruling is Ruling.KILL:
        return AGAIN_AFTER_KILL
    return min(SELDOM, max(limits.suspect_look, abs(last.taken_at - since)))


@dataclass(frozen=True, slots=True)
class Judged:
    """What the store knows of one cluster's verdicts, read once for a visit."""

    standing: Mapping[JobKey, Standing] = field(default_factory=dict)
    """Newest verdict of each living job that has one."""
    proposed: Collection[tuple[JobKey, int]] = ()
    """Attempts whose kill waits for a person, or was approved."""
    passed: Collection[str] | None = None
    """Settings that passed; None where new settings are not to be probed."""


_PROBED = frozenset({Phase.RUNNING, Phase.SUSPECT, Phase.WEDGED})


class Agenda:
    """Which probes of one cluster's jobs are wanted, decided anew only for jobs of which something is new.

    A reading of thousands of unchanged jobs must cost next to nothing. All of it can be thrown away: then everything is decided
    once more, and what was wanted before is the same errand as before.
    """

    def __init__(self) -> None:
        self._decided: dict[str, tuple[Held, int, datetime | None]] = {}
        """By id: the job as it was, its newest verdict, and when time alone could change the answer."""

    def errands(
        self,
        memory: Memory,
        changed: Mapping[str, Held],
        asked: Collection[str],
        judged: Judged,
        book: Rulebook,
        now: datetime,
        every: timedelta,
    ) -> list[ErrandWanted]:
        """Probes that one reading makes wanted, the most urgent first; at most one of each job, however often it is wanted.

        ``asked``: ids of jobs that became suspect by this reading, whether they were remembered before or not.
        """
        found: list[tuple[int, str, ErrandWanted]] = []
        decided, standing = self._decided, judged.standing
        jobs = memory.live.keys() | set(asked) if asked else memory.live.keys()
        for job in jobs:
            held = changed.get(job) or memory[job]
            if held.life.phase not in _PROBED or held.observation.state is not JobState.RUNNING:
                continue
            verdict = standing.get(held.key) if standing else None
            number = 0 if verdict is None else verdict.id
            before = decided.get(job)
            if (
                before is not None
                and (before[0] is held or _as_before(before[0], held))
                and before[1] == number
                and (before[2] is None or now < before[2])
            ):
                continue
            why, again = _decide(memory, held, verdict, judged, book, now, every)
            decided[job] = (held, number, again)
            if why is not None:
                payload = {"why": why.reason, "priority": why.priority, "attempt": held.life.attempt}
                found.append((why.priority, job, ErrandWanted("probe", held.key, payload, mark_of(held, verdict))))
        for job in decided.keys() - jobs:
            del decided[job]
        return [errand for _, _, errand in sorted(found, key=lambda each: each[:2])]


def _as_before(before: Held, held: Held) -> bool:
    """The same in all that decides, as when it was only stored since."""
    return (
        before.observation is held.observation
        and before.life is held.life
        and before.run is held.run
        and before.details is held.details
        and before.bucket == held.bucket
        and before.predecessor == held.predecessor
    )


def _decide(
    memory: Memory,
    held: Held,
    verdict: Standing | None,
    judged: Judged,
    book: Rulebook,
    now: datetime,
    every: timedelta,
) -> tuple[ProbeWanted | None, datetime | None]:
    """Whether a probe of a job in one of the phases ``_PROBED`` is wanted, and when time alone could change that; None: not before
    something else is new.

    What is wanted stays wanted until its verdict comes, which is new then.
    """
    doubted, rl = held.life.phase is not Phase.RUNNING, held.bucket == "rl" and judged.passed is not None
    if not doubted and not rl:
        return None, None
    setting = setting_of(held, origin_of(memory, held)) if rl else ""
    waits = (held.key, held.life.attempt) in judged.proposed
    limits = book.limits_of(held.bucket)
    why = wanted(held, verdict, setting, judged.passed, now, limits, proposed=waits, every=every)
    if why is not None or (not doubted and setting in (judged.passed or ())):
        return why, None
    return None, now + limits.suspect_look / 2


def mark_of(held: Held, standing: Standing | None) -> str:
    """What makes wanting the same probe twice the same as once: the attempt, the verdict before it, the phase it is in."""
    key, life = held.key, held.life
    last = standing.id if standing is not None and standing.attempt == life.attempt else 0
    return f"probe/{key.cluster}/{key.id}/{key.incarnation}/{life.attempt}/{last}/{life.since.isoformat()}"


# -- what a verdict says later -----------------------------------------------------------------------------------------


def progressed(mark: Mark, log: LogFacts) -> bool:
    """Whether the job shows progress that its evidence did not show (KILL-2, LIVE-4)."""
    if log.step is not None and mark.step is not None and log.step > mark.step:
        return True
    return log.progress_at is not None and (mark.progress_at is None or log.progress_at > mark.progress_at)


def cleared_by(standing: Standing | None, held: Held) -> str | None:
    """The newer verdict that does not say any more of this attempt that it hangs; an ERROR says nothing either way (PROBE-3)."""
    if standing is None or standing.attempt != held.life.attempt or standing.ruling is Ruling.ERROR or standing.wedged:
        return None
    return f"verdict {standing.id} ({standing.taken_at:%Y-%m-%dT%H:%M:%SZ}) is {standing.ruling} and finds no hang"


def hung_by(standing: Standing | None, held: Held, log: LogFacts) -> Finding | None:
    """LIVE-5: what a probe proved of this very attempt, until it progresses. ``log``: as of this reading."""
    if standing is None or not standing.wedged or standing.ruling is not Ruling.KILL:
        return None
    if standing.attempt != held.life.attempt or progressed(standing.mark, log):
        return None
    text = f"verdict {standing.id} ({standing.taken_at:%Y-%m-%dT%H:%M:%SZ}): {standing.reason}"
    return Finding("LIVE-5", Severity.FAULT, text, standing.quotes, key="hung")
