"""What programs print, once understood: single readings, and the run they add up to.

Three clocks meet here and are never mixed in one subtraction: ``clock_s`` is the time that a line itself bears (seconds
since 1970 as if its wall clock were UTC, so only differences mean something until the cluster's offset is applied),
``elapsed_s`` is what a progress bar counts, and ``seen_at`` is when the supervisor read the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class ReadingKind(StrEnum):
    """What sort of thing a line said."""

    STEP = "step"
    """The trainer reached a step; its metrics may come along."""
    METRIC = "metric"
    """Metrics that name no step of their own."""
    TIMER = "timer"
    """A named span of the trainer began or ended."""
    ENGINE = "engine"
    """An inference engine's own numbers: never progress of the trainer (LIVE-4)."""
    TRIAL = "trial"
    """Trials or episodes: one's outcome, or how many are done."""
    BAR = "bar"
    """A progress counter N/M."""
    BANNER = "banner"
    """Said once: totals, resumes, checkpoints, the end."""
    HEARTBEAT = "heartbeat"
    """Alive, and nothing more (LIVE-3)."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """Words as they stand in the log, for quotes. ``offset`` counts bytes from the start of the file, ``line`` from 1.

    ``line`` is None where the lines before it were never counted. ``text`` is the raw text (colour codes kept), cut to
    a bounded length, so it is always a part of that line.
    """

    offset: int
    line: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one line (or one printed block) said. Metric values may be NaN or infinite: those are values too."""

    kind: ReadingKind
    dialect: str
    said: tuple[Spoken, ...]
    """One entry a line; a dict printed over many lines has many."""
    label: str = ""
    """A timer's or bar's name, a trial's name, a banner's topic, an engine's number."""
    detail: str = ""
    """A timer's ``started``/``finished``, a bar's role, a trial's event or exception, a banner's remainder."""
    step: int | None = None
    total: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Names as printed; ``dialects.vocabulary`` knows their canonical keys."""
    elapsed_s: float | None = None
    clock_s: float | None = None
    speaker: str = ""
    """Who printed it, where a prefix says so (Ray actor, process name); without its pid."""
    rank: int | None = None
    aggregated: bool = False
    """Came through Ray's driver, which folds equal lines of many workers into one: must not be counted or averaged."""
    repeated: int = 0
    """Ray's own count of folded lines; told, never multiplied."""
    ahead: bool = False
    """Speaks of the step under way, not of the last finished one."""

    @property
    def offset(self) -> int:
        return self.said[0].offset

    @property
    def line(self) -> int | None:
        return self.said[0].line

    @property
    def text(self) -> str:
        return "\n".join(spoken.text for spoken in self.said)


@dataclass(frozen=True, slots=True)
class Mark:
    """The last (or first) place in the log where something was said."""

    said: Spoken
    clock_s: float | None
    seen_at: datetime | None
    """When the supervisor read it, UTC; None if the caller gave no time."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric."""

    step: int | None
    value: float
    clock_s: float | None
    said: tuple[Spoken, ...]
    """Empty for points too old for their text to be kept."""
    offset: int
    line: int | None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the run stands now, also after a resume. Datagen and eval count trials, the others optimiser steps."""

    step: int | None = None
    total: int | None = None
    rate_per_s: float | None = None
    """Over a trailing window on one clock; None on fewer than two points (SFT-2)."""
    eta_s: float | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """The step counter went back (CHAIN-2). ``announced``: a banner, a new bar or a new attempt came before it."""

    before: int
    after: int
    announced: bool
    mark: Mark


@dataclass(frozen=True, slots=True)
class Counter:
    """A progress bar. ``since`` is where N was first shown with its present value: a frozen one repeats it (LIVE-3)."""

    label: str
    role: str
    """``train``, ``buffer``, ``epoch``, ``eval``, ``trials``, ``data``, ``other``."""
    done: int
    total: int | None
    since: Mark
    latest: Mark
    frozen_s: float
    """How long N stood still by the bar's own or the log's clock; 0 where neither says."""
    frames: int
    """Frames that showed this same N."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A named span of the trainer. ``took_s`` is of its last end, ``open_since`` where it began and has not ended."""

    name: str
    took_s: float | None
    ended: int
    open_since: Mark | None


@dataclass(frozen=True, slots=True)
class EngineView:
    """Inference engines as last heard. Numbers of single engines are given only from logs that Ray did not fold."""

    latest: Mapping[str, float]
    mark: Mark | None
    engines: Mapping[str, Mapping[str, float]]
    """By engine; empty where the log is aggregated."""
    summary: Mapping[str, float]
    """The per-step summary of one process over all engines, where printed."""
    aggregated: bool
    answered: int
    """HTTP requests answered with 200."""
    refused_auth: int
    """Answered with 401 or 403."""
    failed: int
    """Answered with a 5xx."""
    last_answered: Spoken | None
    last_refused: Spoken | None = None
    """The newest access line with 401 or 403."""
    last_failed: Spoken | None = None
    """The newest access line with a 5xx."""


@dataclass(frozen=True, slots=True)
class TrialFigures:
    """Trials as the log tells them. ``exact`` is False where the log was aggregated or begun in its middle."""

    done: int | None = None
    planned: int | None = None
    mean: float | None = None
    passed: int = 0
    """Scored above 0, among those whose outcome a line told."""
    scored: int = 0
    running: int = 0
    exceptions: Mapping[str, int] = field(default_factory=dict)
    said: Mapping[str, Spoken] = field(default_factory=dict)
    """By exception: the newest line that named it."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """By exception: what the harness's policy calls it: expected, environment, api, verifier, request, auth, unknown."""
    recent_passed: int = 0
    """Scored above 0, among the newest ``recent_scored``."""
    recent_scored: int = 0
    """Named trials with a score among the newest ones, 100 at most."""
    exact: bool = True

    def counted(self, *groups: str) -> int:
        """Exceptions of these groups."""
        return sum(count for name, count in self.exceptions.items() if self.groups.get(name) in groups)

    def worst(self, *groups: str) -> str:
        """The exception of these groups that was told most often, and whose line is known; empty where there is none."""
        mine = [name for name in self.said if self.groups.get(name) in groups]
        return max(mine, key=lambda name: self.exceptions.get(name, 0), default="")


@dataclass(frozen=True, slots=True)
class Unread:
    """What was there and not understood, so that it can be shown."""

    malformed: int = 0
    """Metric lines in a known form whose content could not be read."""
    oversized: int = 0
    """Lines above the bound, left out."""
    undecodable: int = 0
    """Lines that named a metric but are no text."""
    not_numbers: int = 0
    """Values of known metrics that were no numbers."""
    gaps: int = 0
    """Pieces of the log that were never handed in."""
    unclosed: int = 0
    """Printed blocks that never ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run as its log tells it, over all attempts that were followed."""

    progress: Progress
    metrics: Mapping[str, float | str]
    """The contract's keys of the bucket; what was not emitted is absent."""
    latest: Mapping[str, Point]
    """Every known metric's newest value, by canonical key."""
    series: Mapping[str, tuple[Point, ...]]
    """Newest last; first-seen step wins, repeats after a resume are left out."""
    scores: Mapping[str, float]
    """An evaluation's table of scores, ``task/metric`` to value, where the log shows one."""
    step_gaps_s: tuple[float, ...]
    """Between advances of the step (or of trials): the job's own cadence (LIVE-2)."""
    last_step: Mark | None
    last_progress: Mark | None
    """The trainer's: a step, a counter that moved, a span's begin or end (LIVE-4). Trials for datagen and eval."""
    last_engine: Mark | None
    last_heartbeat: Mark | None
    last_bring_up: Mark | None
    """Loading and tokenising bars, totals, banners (LIVE-6)."""
    last_trial: Mark | None
    finished: Mark | None
    """The program's own word that training is over."""
    finish_word: str
    resumes: tuple[Resume, ...]
    first_step: int | None
    """The first step that this follower saw."""
    checkpoint_step: int | None
    """As announced in the log: not yet a durable one (RL-8)."""
    last_checkpoint: Mark | None
    skipped_steps: int
    """Steps that the optimiser skipped because of a gradient that is not finite (RL-14)."""
    last_skip: Mark | None
    hidden_nan: int
    """Steps whose loss was printed as 0.0 while the gradient was NaN."""
    all_failed_batches: int
    last_all_failed: Mark | None
    counters: tuple[Counter, ...]
    timers: tuple[Timer, ...]
    engine: EngineView
    trials: TrialFigures
    failures: tuple[Mark, ...]
    """What a launcher said of dead ranks, oldest first."""
    dialects: frozenset[str]
    bucket: str | None
    """What the dialects speak for; None where they do not tell."""
    flavor: str | None
    unread: Unread
    lines: int | None
    offset: int
    checkpoints: tuple[int, ...] = ()
    """Steps of the newest announced checkpoints, oldest first; bounded."""
    infra: Mapping[str, str] = field(default_factory=dict)
    """What an evaluation stands on, as far as the log tells, by name (``tunnel``, ``api_base``, ``engine``, ``trials``): a word
    that begins with ``ok``, ``bad``, or ``quiet`` where the newest piece of log says nothing of it."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Where its trials go, as the log printed it last: by what that folder holds, ``trials`` or ``jobs``."""


@dataclass(frozen=True, slots=True)
class TailReading:
    """The last metrics of a large log, read from its end. ``state`` goes on with ``follow`` at ``state['offset']``."""

    points: tuple[Reading, ...]
    state: Mapping[str, object]
    start: int
    """Where reading began."""
    bytes_read: int
    complete: bool
    """False where the window's cap was reached before enough metrics were found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One trial's ``result.json``. Durations are seconds; None where a phase has no end or its two times can't be compared."""

    name: str
    task: str = ""
    agent: str = ""
    """The harness's name of it. ``oracle`` and ``nop`` ask no model."""
    reward: float | None = None
    """The verifier's main reward, valid or not; None where there is none."""
    valid: bool = False
    """The reward counts, by the harness's own error policy."""
    exceptions: tuple[str, ...] = ()
    """Class names, the trial's own first."""
    groups: tuple[str, ...] = ()
    """What the policy calls them: expected, environment, api, verifier, request, auth, unknown."""
    turns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    took_s: float | None = None
    environment_setup_s: float | None = None
    agent_setup_s: float | None = None
    agent_s: float | None = None
    """Requests to the model, tools, and what lies between."""
    llm_s: float | None = None
    """Of ``agent_s``, its requests to the model, where the agent tells them."""
    tools_s: float | None = None
    """Of ``agent_s``, the commands that it ran, where the agent tells them."""
    verifier_s: float | None = None
    teardown_s: float | None = None
    """From the end of its last phase to its own."""
    verifier_late_s: float | None = None
    """Seconds by which the verifier ended after the trial; above 0 is a release race (PROBE-12)."""

    @property
    def null_tokens(self) -> bool:
        """Unsolved and without a token, by an agent that asks a model."""
        return not self.output_tokens and not (self.reward or 0) > 0 and self.agent not in ("oracle", "nop")

    @property
    def instant(self) -> bool:
        """Without a token, and the agent's part (or all of it) ended at once: nothing reached the model (EVAL-2)."""
        spans = [span for span in (self.agent_s, self.took_s) if span is not None]
        return self.null_tokens and bool(spans) and min(spans) < 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialJob:
    """A Harbor job's own ``result.json``, rewritten at every start and end of a trial."""

    planned: int | None = None
    completed: int | None = None
    """Errored ones included; a retry replaces its trial, so this may fall."""
    errored: int | None = None
    running: int | None = None
    pending: int | None = None
    cancelled: int | None = None
    retries: int | None = None
    mean: float | None = None
    """Over all evals of the job, weighted by their trials with a valid reward."""
    scored: int | None = None
    passed: int | None = None
    """Rewarded above 0, of ``rewarded``."""
    rewarded: int | None = None
    """Trials whose main reward the file tells; None where it tells none."""
    exceptions: Mapping[str, int] = field(default_factory=dict)
    started_at: datetime | None = None
    updated_at: datetime | None = None
    finished_at: datetime | None = None
    """Set only by a job that ended in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResults:
    """Scores of an evaluation's results file. No numeric score at all means the run ended with empty results (CLEAN-6)."""

    framework: str
    scores: Mapping[str, float]
    """``task/metric`` to value."""
    samples: Mapping[str, int] = field(default_factory=dict)
    """Samples scored, by task, where the file says so."""
    model: str | None = None
