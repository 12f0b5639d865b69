"""A run's state as the rules want it: progress, metrics under the contract's keys, trends, and where each was said."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from supervisor.dialects.numbers import unwire
from supervisor.dialects.recognition import speaks_for
from supervisor.dialects.run import Run, State
from supervisor.dialects.steps import Json, StepTrack, gaps, rate
from supervisor.dialects.stream import peek
from supervisor.dialects.vocabulary import outcome_of, vocabulary
from supervisor.model.readings import (
    Counter,
    EngineView,
    Mark,
    Point,
    Progress,
    Resume,
    RunSummary,
    Spoken,
    Timer,
    TrialFigures,
    Unread,
)

COUNTS_TRIALS = frozenset({"datagen", "eval"})


def summarise(state: State, bucket: str | None = None, *, ended: bool = False, points: int = 128) -> RunSummary:
    """What the log tells of its run. ``bucket``: the job's kind of work; where None, what its dialects speak for.

    ``ended``: nothing more will be written, so that a last line without its newline counts as whole; otherwise it is read
    only where it shows its own end (a bar's frame, a dict). ``points`` bounds each metric's series.
    """
    run = peek(state, ended=ended)
    spoken_for, flavor = speaks_for(run.dialects)
    kind = bucket or spoken_for or "other"
    track = _track(run, kind)
    trials = _trials(run)
    latest = {key: _latest(entry) for key, entry in run.rows.latest.items()}
    mark = run.marks.get
    return RunSummary(
        progress=_progress(track, run),
        metrics=_metrics(kind, latest, trials, run),
        latest=latest,
        series=_series(run, points) | _means(run, kind),
        scores={name: unwire(value) for name, value in run.scores.items()},
        step_gaps_s=gaps(track),
        last_step=_mark(track.last),
        last_progress=_last_progress(run, kind, track),
        last_engine=_mark(mark("engine")),
        last_heartbeat=_mark(mark("heartbeat")),
        last_bring_up=_mark(mark("bring_up")),
        last_trial=_mark(mark("trial")),
        finished=_mark(run.announced.finished),
        finish_word=run.announced.finish_word,
        resumes=tuple(_resume(entry) for entry in run.track.resumes),
        first_step=track.first,
        checkpoint_step=run.announced.checkpoint_step,
        last_checkpoint=_mark(run.announced.checkpoint),
        skipped_steps=run.announced.skips,
        last_skip=_mark(run.announced.skip),
        hidden_nan=run.announced.hidden_nan,
        all_failed_batches=run.announced.all_failed,
        last_all_failed=_mark(run.announced.all_failed_at),
        counters=tuple(counter for entry in run.bars.bars.values() if (counter := _counter(entry)) is not None),
        timers=tuple(_timer(name, entry) for name, entry in run.timers.spans.items()),
        engine=_engine(run),
        trials=trials,
        failures=tuple(found for entry in run.announced.failures if (found := _mark(entry)) is not None),
        dialects=frozenset(run.dialects),
        bucket=spoken_for,
        flavor=flavor,
        unread=Unread(**{name: count for name, count in run.unread.items() if name in Unread.__dataclass_fields__}),
        lines=run.lines,
        offset=run.offset,
        checkpoints=tuple(run.announced.checkpoints),
        infra=_infra(run),
        places=dict(run.announced.places),
    )


def _track(run: Run, kind: str) -> StepTrack:
    """Datagen and eval count trials, or what their bars count; the others optimiser steps."""
    if kind in COUNTS_TRIALS:
        if run.trial_track.step is not None:
            return run.trial_track
        if run.eval_track.step is not None:
            return run.eval_track
        return StepTrack() if run.track.step is None else run.track
    if run.track.step is None and kind == "other":
        return next((track for track in (run.trial_track, run.eval_track) if track.step is not None), run.track)
    return run.track


def _progress(track: StepTrack, run: Run) -> Progress:
    """A total below the step is some other counter's: then it is not known."""
    step, total = track.step, track.total
    lap = run.bars.lap
    of_a_lap = track is run.track and lap is not None and total == lap[3]
    if track is run.track and step is not None:
        step = run.in_lap(step)
    if track is run.trial_track and run.trials.shown is not None:
        step, total = run.trials.shown, run.trials.planned
    if step is not None and total is not None and total < step:
        total = None
    speed = rate(track)
    whole = step is not None and total is not None and not (of_a_lap and run.bars.numbered)
    left = total - step if whole and step is not None and total is not None else None
    return Progress(step, total, speed, left / speed if left is not None and speed else None)


def _last_progress(run: Run, kind: str, track: StepTrack) -> Mark | None:
    """The newest sign of progress of whoever's progress counts: never an engine's (LIVE-4)."""
    names = ("trial", "progress") if kind in COUNTS_TRIALS else ("progress",)
    found = [mark for name in names if (mark := _mark(run.marks.get(name))) is not None]
    last = _mark(track.last)
    if last is not None:
        found.append(last)
    return max(found, key=lambda mark: mark.said.offset, default=None)


def _metrics(kind: str, latest: Mapping[str, Point], trials: TrialFigures, run: Run) -> dict[str, float | str]:
    words = vocabulary()
    shown: dict[str, float | str] = {}
    stands_in = words.stands_in.get(kind, {})
    for key in words.buckets.get(kind, words.buckets["other"]):
        for name in (key, *stands_in.get(key, ())):
            if name in latest:
                shown[key] = latest[name].value
                break
    if kind in COUNTS_TRIALS:
        if trials.mean is not None:
            shown["mean"] = trials.mean
        if trials.done is not None:
            shown["trials"] = float(trials.done)
        if kind == "eval" and trials.scored:
            shown["pass_rate"] = trials.passed / trials.scored
        if trials.exceptions:
            if kind == "eval":
                shown["top_exception"] = max(trials.exceptions, key=lambda name: trials.exceptions[name])
            elif trials.exact and run.trials.done:
                shown["exc_rate"] = sum(trials.exceptions.values()) / run.trials.done
    return shown


def _series(run: Run, points: int) -> dict[str, tuple[Point, ...]]:
    series: dict[str, list[Point]] = {}
    for row in run.rows.rows:
        if row["again"]:
            continue
        said = _said(row["said"])
        values = row["values"]
        assert isinstance(values, dict)
        for key, value in values.items():
            series.setdefault(key, []).append(_point(row, unwire(value), said))
    return {key: tuple(values[-points:]) for key, values in series.items()}


def _means(run: Run, kind: str) -> dict[str, tuple[Point, ...]]:
    """The mean over trials as it went, by trials done; of work that is trials."""
    if kind not in COUNTS_TRIALS or not run.trials.means:
        return {}
    found = []
    for done, mean, clock, offset, line, text in run.trials.means:
        assert isinstance(offset, int)
        place = Spoken(offset, line if isinstance(line, int) else None, str(text))
        said = (place,) if place.text else ()
        step = done if isinstance(done, int) else None
        found.append(Point(step, unwire(mean), _number(clock), said, offset, place.line))
    return {"mean": tuple(found)}


def _latest(entry: Json) -> Point:
    return _point(entry, unwire(entry["value"]), _said(entry["said"]))


def _point(row: Json, value: float, said: tuple[Spoken, ...]) -> Point:
    step = row["step"]
    first = said[0] if said else Spoken(0, None, "")
    kept = tuple(spoken for spoken in said if spoken.text)
    return Point(step if isinstance(step, int) else None, value, _number(row["clock"]), kept, first.offset, first.line)


def _said(quotes: object) -> tuple[Spoken, ...]:
    assert isinstance(quotes, list)
    return tuple(Spoken(int(offset), line, str(text)) for offset, line, text in quotes)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _mark(entry: Json | None) -> Mark | None:
    if entry is None:
        return None
    offset, line, seen = entry["offset"], entry["line"], _number(entry["seen"])
    assert isinstance(offset, int)
    return Mark(
        Spoken(offset, line if isinstance(line, int) else None, str(entry["text"])),
        _number(entry["clock"]),
        None if seen is None else datetime.fromtimestamp(seen, UTC),
    )


def _resume(entry: Json) -> Resume:
    before, after, mark = entry["before"], entry["after"], entry["mark"]
    assert isinstance(before, int) and isinstance(after, int) and isinstance(mark, dict)
    place = _mark(mark)
    assert place is not None
    return Resume(before, after, bool(entry["announced"]), place)


def _counter(entry: Json) -> Counter | None:
    done, total, frames = entry["done"], entry["total"], entry["frames"]
    since, latest = entry["since"], entry["latest"]
    if not isinstance(done, int) or not isinstance(since, dict) or not isinstance(latest, dict):
        return None
    first, last = _mark(since), _mark(latest)
    assert first is not None and last is not None
    began, ended = _number(entry["since_elapsed"]), _number(entry["elapsed"])
    if began is not None and ended is not None:
        frozen = max(0.0, ended - began)
    elif first.clock_s is not None and last.clock_s is not None:
        frozen = max(0.0, last.clock_s - first.clock_s)
    else:
        frozen = 0.0
    return Counter(
        label=str(entry["label"]),
        role=str(entry["role"]),
        done=done,
        total=total if isinstance(total, int) else None,
        since=first,
        latest=last,
        frozen_s=frozen,
        frames=frames if isinstance(frames, int) else 1,
    )


def _timer(name: str, entry: Json) -> Timer:
    ended, begun = entry["ended"], entry["open"]
    took = None if entry["took"] is None else unwire(entry["took"])
    since = _mark(begun) if isinstance(begun, dict) else None
    return Timer(name, took, ended if isinstance(ended, int) else 0, since)


def _engine(run: Run) -> EngineView:
    engines = run.engines
    answered = engines.last_answered
    return EngineView(
        latest=_values(engines.latest),
        mark=_mark(run.marks.get("engine")),
        engines={} if engines.aggregated else {name: _values(values) for name, values in engines.engines.items()},
        summary=_values(engines.summary),
        aggregated=engines.aggregated,
        answered=engines.answered,
        refused_auth=engines.refused_auth,
        failed=engines.failed,
        last_answered=_said([answered])[0] if answered else None,
        last_refused=_said([engines.last_refused])[0] if engines.last_refused else None,
        last_failed=_said([engines.last_failed])[0] if engines.last_failed else None,
    )


def _infra(run: Run) -> dict[str, str]:
    """What the work stands on, as far as the log tells; a word begins with ``ok``, ``bad``, or ``quiet`` for no news (EVAL-1)."""
    told = dict(run.announced.infra)
    engines, trial, stats = run.engines, run.marks.get("trial"), run.marks.get("engine")
    places = {"answered": engines.last_answered, "refused": engines.last_refused, "failed": engines.last_failed}
    newest = {name: int(str(place[0])) for name, place in places.items() if place}
    if newest:
        last = max(newest, key=lambda name: newest[name])
        fresh = engines.answered_seen == run.seen
        told["engine"] = f"{'ok' if fresh else 'quiet'} {engines.answered}×" if last == "answered" else f"bad {last}"
    elif stats is not None:
        running = engines.latest.get("running")
        told["engine"] = f"ok {running:g} running" if running and stats["seen"] == run.seen else "quiet"
    if trial is not None:
        told["trials"] = "ok" if trial["seen"] == run.seen else "quiet"
    return told


def _values(values: Mapping[str, object]) -> dict[str, float]:
    return {name: unwire(value) for name, value in values.items() if value is not None}


def _trials(run: Run) -> TrialFigures:
    trials = run.trials
    exceptions = {name: count for name, count in trials.exceptions.items() if count > 0}
    passed, scored = trials.recent()
    told = trials.shown is not None or trials.done > 0 or bool(trials.events)
    mean = unwire(trials.mean) if trials.mean is not None else None
    return TrialFigures(
        done=(trials.shown if trials.shown is not None else trials.done) if told else None,
        planned=trials.planned,
        mean=None if mean is None or math.isnan(mean) else mean,
        passed=trials.passed,
        scored=trials.scored,
        running=trials.running(),
        exceptions=exceptions,
        said={name: _said([place])[0] for name, place in trials.said.items() if place[2]},
        groups={name: outcome_of(name).group for name in exceptions},
        recent_passed=passed,
        recent_scored=scored,
        exact=trials.exact and run.began == 0 and not run.unread.get("gaps"),
    )
