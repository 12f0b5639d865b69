"""Trials counted over a whole run, result by result, as plain JSON between two looks.

Each result is counted once: what changed before ``since_s`` is behind us, and of what changed later the names are kept, with
what each one added, so that a retry under the same name replaces it (EVAL-4).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from supervisor.dialects.malformed import Malformed
from supervisor.dialects.trials import read_job, read_trial
from supervisor.dialects.vocabulary import outcome_of
from supervisor.model.findings import Quote
from supervisor.model.readings import Trial, TrialFigures, TrialJob
from supervisor.model.secrets import scrubbed
from supervisor.model.trials import Recent, TrialCounts, TrialFile, TrialsSeen

VERSION = "trials/1"
OVERLAP_S = 180
"""How far before the newest change is looked again: file servers show changes late and out of order by up to a minute."""
MOST_KNOWN = 1500
"""Trials that changed within the overlap beyond which there is none: so many come by a copy, or by a first look."""
KEPT_NAMES = 500
"""Counted trials that are remembered by name beyond those within the overlap."""
RECENT = 100
"""Newest ends that shares and rates are taken of."""
KEPT_EXCEPTIONS = 64
MARGIN_S = 900
"""By how much the clock of an object store may be behind ours."""
TRIES = 3
"""Looks after which a result that is no whole JSON counts as unreadable: until then it may still be being written."""
QUOTED = 300
"""Longest quote, characters."""
LEAST_FOR_RATE = 5

Counted = list[object]
"""What one trial added: changed_s, reward or None, valid, exceptions, turns or None, null tokens, instant, understood."""


@dataclass(slots=True)
class Count:
    """All that is remembered of one place; ``dump`` and ``load`` turn it into plain JSON and back."""

    where: str = ""
    since_s: int = 0
    begun: int | None = None
    ended: int = 0
    unread: int = 0
    left: int = 0
    reward: float = 0.0
    scored: int = 0
    passed: int = 0
    turns: int = 0
    turns_of: int = 0
    null_tokens: int = 0
    exceptions: dict[str, int] = field(default_factory=dict)
    names: dict[str, Counted] = field(default_factory=dict)
    """Newest counted, oldest first."""
    doubtful: dict[str, list[int]] = field(default_factory=dict)
    """Results that were no whole JSON: how often they were looked at, and when they changed."""
    quotes: dict[str, list[object]] = field(default_factory=dict)
    job: dict[str, object] | None = None
    """The job's own figures, and the folder's, as its result file told them last."""
    after: str = ""
    """Object stores: where an unfinished listing goes on."""
    sweep_s: int = 0
    """When the listing that goes on began, seconds since 1970."""
    sweep_begun: int = 0
    """Trials begun that it has met so far."""
    passes: int = 0
    """Listings that came to their end."""
    read_at: float | None = None
    """Our clock: the last good look."""

    def dump(self) -> dict[str, object]:
        return {"version": VERSION, **{each.name: getattr(self, each.name) for each in fields(self)}}

    @classmethod
    def load(cls, state: Mapping[str, object] | None) -> Count:
        """A state of another version is not guessed at: counting begins anew."""
        if not state or state.get("version") != VERSION:
            return cls()
        known = {each.name for each in fields(cls)}
        return cls(**{name: _copy(value) for name, value in state.items() if name in known})  # type: ignore[arg-type]

    @property
    def known(self) -> frozenset[str]:
        """Names of what changed since ``since_s`` and was counted."""
        return frozenset(name for name, each in self.names.items() if _int(each[0]) >= self.since_s)


def count(state: Mapping[str, object] | None, seen: TrialsSeen, now_s: float) -> dict[str, object]:
    """The state after one good look. ``now_s``: our clock when the look began, seconds since 1970."""
    run = Count.load(state)
    if run.where and run.where != seen.where:
        run = Count()
    run.where, run.read_at, run.left = seen.where, now_s, seen.left
    for file in seen.results:
        _take(run, file)
    if seen.job is not None and seen.job.data is not None:
        _job(run, seen.job)
    if "://" in seen.where:
        _swept(run, seen, now_s)
    else:
        run.begun = seen.begun
        changes = [_int(each[0]) for each in run.names.values()]
        newest = max(changes, default=0)
        crowded = sum(changed >= newest - OVERLAP_S for changed in changes) > MOST_KNOWN
        reached = newest if crowded else newest - OVERLAP_S
        run.since_s = max(run.since_s, min([reached, *(changed for _, changed in run.doubtful.values())]))
    _forget(run)
    return run.dump()


def _swept(run: Count, seen: TrialsSeen, now_s: float) -> None:
    """Names in an object store do not sort by time: it is gone through whole, over as many looks as that takes, each going on
    where the last one stopped; the next round counts what changed since this one began. Once one round is through, counts are as
    of that round and what was met since."""
    if run.after == "":
        run.sweep_s, run.sweep_begun = int(now_s), 0
    run.sweep_begun += seen.begun or 0
    run.after = seen.after
    run.left -= seen.left
    if run.after:
        run.left += 0 if run.passes else 1
    else:
        run.passes += 1
        run.begun = run.sweep_begun
        run.since_s = max(
            run.since_s, min([run.sweep_s - MARGIN_S, *(changed for _, changed in run.doubtful.values())])
        )


def same_count(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Whether nothing was learnt between two states: then the earlier one may be kept in the store, and counts on as well."""
    moving = {"read_at", "sweep_s", "since_s"}
    return {key: value for key, value in before.items() if key not in moving} == {
        key: value for key, value in after.items() if key not in moving
    }


def counts_of(state: Mapping[str, object]) -> TrialCounts | None:
    """What the state adds up to; None for a place that was never read.

    Of two sources for one number the job's own result file counts before the results one by one: it is over all trials, and
    knows of retries.
    """
    run = Count.load(state)
    if run.read_at is None:
        return None
    job = run.job or {}
    exact = not run.left and not run.unread
    recent = tuple(_recent(name, each) for name, each in list(run.names.items())[-RECENT:] if each[7])
    exceptions = _numbers(job.get("exceptions")) if "exceptions" in job else dict(run.exceptions)
    done = _whole(job.get("completed"))
    scored, passed = _whole(job.get("rewarded")), _whole(job.get("passed"))
    mean, running = job.get("mean"), _whole(job.get("running"))
    figures = TrialFigures(
        done=done if done is not None else run.ended if not run.left else None,
        planned=_whole(job.get("planned")),
        mean=float(mean) if isinstance(mean, (int, float)) else run.reward / run.scored if run.scored else None,
        passed=passed if scored is not None and passed is not None else run.passed,
        scored=scored if scored is not None else run.scored,
        running=running if running is not None else max(0, (run.begun or 0) - run.ended - run.left),
        exceptions=exceptions,
        groups={name: outcome_of(name).group for name in exceptions},
        exact=exact or done is not None,
    )
    ends = [each.changed_s for each in recent]
    took = ends[-1] - ends[0] if ends else 0
    return TrialCounts(
        figures=figures,
        begun=None if run.begun is None else max(run.begun, run.ended),
        avg_turns=run.turns / run.turns_of if run.turns_of else None,
        turns_of=run.turns_of,
        null_tokens=run.null_tokens,
        unread=run.unread,
        left=run.left,
        recent=recent,
        job_ended=bool(job.get("ended")),
        last_end_s=ends[-1] if ends else None,
        rate_per_s=(len(ends) - 1) / took if len(ends) >= LEAST_FOR_RATE and took > 0 else None,
        quotes={name: Quote(str(file), _whole(line), str(text)) for name, (file, line, text) in run.quotes.items()},
    )


def _take(run: Count, file: TrialFile) -> None:
    before = run.names.get(file.name)
    if before is not None and _int(before[0]) >= file.changed_s:
        return
    trial: Trial | None = None
    if file.data is not None:
        try:
            trial = read_trial(file.data, file.name)
        except Malformed:
            tries = run.doubtful.get(file.name, [0])[0] + 1
            run.doubtful[file.name] = [tries, file.changed_s]
            if tries < TRIES:
                run.left += 1
                return
    run.doubtful.pop(file.name, None)
    if before is not None:
        _add(run, before, -1)
        del run.names[file.name]
    if trial is None:
        entry: Counted = [file.changed_s, None, False, [], None, False, False, False]
    else:
        reward = trial.reward if trial.reward is not None and math.isfinite(trial.reward) else None
        names = list(trial.exceptions[:4])
        entry = [file.changed_s, reward, trial.valid, names, trial.turns, trial.null_tokens, trial.instant, True]
        _quote(run, trial, file)
    run.names[file.name] = entry
    _add(run, entry, +1)


def _add(run: Count, entry: Counted, by: int) -> None:
    _changed, reward, valid, exceptions, turns, null, _instant, understood = entry
    run.ended += by
    if not understood:
        run.unread += by
        return
    if valid and isinstance(reward, (int, float)):
        run.reward += by * reward
        run.scored += by
        run.passed += by if reward > 0 else 0
    if isinstance(turns, int):
        run.turns += by * turns
        run.turns_of += by
    run.null_tokens += by if null else 0
    if isinstance(exceptions, list) and exceptions:
        name = str(exceptions[0])
        if name in run.exceptions or len(run.exceptions) < KEPT_EXCEPTIONS:
            run.exceptions[name] = run.exceptions.get(name, 0) + by
            if run.exceptions[name] <= 0:
                del run.exceptions[name]


def _forget(run: Count) -> None:
    """Names are kept as far back as a look may show them again, and some more, so that a retry replaces what it retries."""
    run.names = dict(sorted(run.names.items(), key=lambda item: _int(item[1][0])))
    spare = max(0, len(run.names) - KEPT_NAMES)
    for name in [name for name, each in list(run.names.items())[:spare] if _int(each[0]) < run.since_s]:
        del run.names[name]
    for name in list(run.doubtful)[: max(0, len(run.doubtful) - KEPT_NAMES)]:
        del run.doubtful[name]


def _job(run: Count, file: TrialFile) -> None:
    assert file.data is not None
    try:
        job: TrialJob = read_job(file.data)
    except Malformed:
        return
    run.job = {
        "planned": job.planned,
        "completed": job.completed,
        "running": job.running,
        "mean": job.mean if job.mean is None or math.isfinite(job.mean) else None,
        "passed": job.passed,
        "rewarded": job.rewarded,
        "exceptions": dict(sorted(job.exceptions.items(), key=lambda item: -item[1])[:KEPT_EXCEPTIONS]),
        "ended": re.search(rb'"finished_at"\s*:\s*"', file.data) is not None,
    }
    line = _line(file.data, rb'"n_completed_trials"|"n_trials"')
    if line is not None:
        run.quotes["done"] = [file.path, *line]


def _quote(run: Count, trial: Trial, file: TrialFile) -> None:
    assert file.data is not None
    wanted: list[tuple[str, bytes]] = [("ended", rb'"trial_name"\s*:\s*"')]
    if trial.exceptions:
        name = trial.exceptions[0]
        wanted.append((name, rb'"exception_type"\s*:\s*"' + re.escape(name.encode()) + rb'"'))
    if trial.instant:
        wanted.append(("instant", rb'"n_output_tokens"\s*:\s*null|"agent_result"\s*:\s*null'))
    if trial.turns is not None and trial.turns <= 1:
        wanted.append(("turns", rb'"n_episodes"\s*:\s*[01]\b'))
    for key, pattern in wanted:
        if key not in run.quotes and len(run.quotes) >= KEPT_EXCEPTIONS + 4:
            continue
        line = _line(file.data, pattern)
        if line is not None:
            run.quotes[key] = [file.path, *line]


def _line(data: bytes, pattern: bytes) -> tuple[int, str] | None:
    """(number from 1, text) of the first line that the pattern is found in; of a long one the part around it."""
    found = re.search(pattern, data)
    if found is None:
        return None
    start = data.rfind(b"\n", 0, found.start()) + 1
    end = data.find(b"\n", found.start())
    end = len(data) if end < 0 else end
    if end - start > QUOTED:
        start = max(start, found.start() - 40)
        end = min(end, max(found.end(), start + QUOTED))
    text = data[start:end].decode("utf-8", "replace").strip()
    return data.count(b"\n", 0, found.start()) + 1, text if scrubbed(text) == text else found[0].decode(
        "utf-8", "replace"
    )


def _recent(name: str, entry: Counted) -> Recent:
    changed, reward, valid, exceptions, turns, _null, instant, _ = entry
    first = str(exceptions[0]) if isinstance(exceptions, list) and exceptions else ""
    passed = reward > 0 if valid and isinstance(reward, (int, float)) else None
    return Recent(name, _int(changed), passed, _whole(turns), bool(instant), first)


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _numbers(value: object) -> dict[str, int]:
    return {str(name): _int(number) for name, number in value.items()} if isinstance(value, dict) else {}


def _copy(value: object) -> object:
    if isinstance(value, dict):
        return {name: _copy(held) for name, held in value.items()}
    return [_copy(held) for held in value] if isinstance(value, list) else value
