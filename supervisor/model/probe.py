"""The deep probe's nouns: what is captured, how a gate scores it, and the verdict that follows. Evidence or ERROR (PROBE-2).

A probe writes first and judges after: captures go into an evidence folder, and whatever judges them sees only that folder.
Nothing here can act: a verdict is a recommendation with its proof (PROBE-14).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from supervisor.model.errors import Unproven
from supervisor.model.facts import LogFacts
from supervisor.model.findings import Quote
from supervisor.model.job import Burn, Details, JobKey, JobState, Observation
from supervisor.model.readings import RunSummary, Trial, TrialJob
from supervisor.model.rulebook import Limits

# -- captures ----------------------------------------------------------------------------------------------------------


class Role(StrEnum):
    """What a captured piece is evidence of. The text form of each is told in ``clusters.node_commands``."""

    RECORD = "record"
    """The scheduler's or controller's own record of the job, as it prints it."""
    ACCOUNTING = "accounting"
    EVENTS = "events"
    """What the orchestrator tells beside the record: events, queue verdicts."""
    LOG = "log"
    """The job's own output, aggregated over its processes."""
    SESSION_LOG = "session_log"
    """One worker's own output, such as Ray's ``worker-*.out`` (FIND-6)."""
    PROCESSES = "processes"
    """The job's processes on one node, sampled twice."""
    STACK = "stack"
    """What each thread of the job's processes on one node is doing: taken while they live, for it dies with them."""
    GPU = "gpu"
    """Use, memory and power of each device on one node, sampled several times."""
    GPU_PROCESSES = "gpu_processes"
    """Which process uses which device."""
    DEVICES = "devices"
    """Which accelerator devices one node shows at all; positively none is a statement too."""
    MEMORY = "memory"
    """The job's memory group on one node: use, limit, out-of-memory kills."""
    CHECKPOINTS = "checkpoints"
    """One level of a checkpoint folder."""
    TRIALS = "trials"
    """One trial's ``result.json``."""
    SCRIPT = "script"
    """The batch script as it was submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureWanted:
    """What a probe asks a backend to capture of one job. Everything in it is bounded (PROBE-14)."""

    seen: Observation
    details: Details
    log_paths: tuple[str, ...] = ()
    """The job's own output as it is followed now, beside ``details.log_path`` and ``details.err_path``."""
    checkpoint_dirs: tuple[str, ...] = ()
    session_dirs: tuple[str, ...] = ()
    """Folders with per-worker logs on its nodes, where its output names them; backends know the usual one."""
    may_hold: bool = False
    """Whether a debugger may hold a process still for a moment: what is suspected of hanging already loses nothing by it."""
    live: bool = True
    """False: its processes are gone, and only what outlives them is asked for."""
    nodes_most: int = 8
    """Of a larger job this many nodes are looked at: the first, the last, and some between."""
    log_bytes: int = 8 * 2**20
    """Most of one log: its newest part, with the lines before it counted where that is cheap."""
    piece_bytes: int = 2 * 2**20
    """Most of any other piece."""
    session_files: int = 32
    """Newest session logs of one node, each bounded by a quarter of ``piece_bytes``."""
    time_s: float = 300.0
    """All captures together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One piece as a backend brings it, or the failure to bring it: then ``data`` is None and ``failure`` says why."""

    role: Role
    command: str
    """What was asked, for people: a command line, an API path. Without secrets."""
    node: str | None = None
    source: str | None = None
    """The path on the cluster that was read, where it is a file."""
    data: bytes | None = None
    failure: str | None = None
    """The exact output of what failed, bounded."""
    exit_status: int | None = None
    cut: int = 0
    """Bytes of the source left out before ``data``."""
    first_line: int | None = 1
    """Line of the source at which ``data`` begins; None where the lines before it were not counted."""
    took_s: float = 0.0

    def __post_init__(self) -> None:
        if (self.data is None) != (self.failure is not None):
            raise ValueError("a capture either has data or says why it has none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What of a job that was cancelled is still there (KILL-3). Empty ``there`` with ``failure`` None: positively nothing."""

    there: tuple[str, ...] = ()
    """Processes, steps, pods, allocations: one sentence each."""
    failure: str | None = None
    """Why it could not be told."""

    @property
    def gone(self) -> bool:
        return self.failure is None and not self.there


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """One entry of an evidence folder's manifest: a file that is there, or a capture that failed."""

    role: Role
    command: str
    taken_at: datetime
    took_s: float
    file: str | None = None
    """Relative to the folder; None where the capture failed."""
    sha256: str | None = None
    bytes: int = 0
    lines: int = 0
    node: str | None = None
    source: str | None = None
    first_line: int | None = 1
    cut: int = 0
    failure: str | None = None
    exit_status: int | None = None

    @property
    def read(self) -> bool:
        return self.file is not None


# -- the case ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The job as it was held when its evidence was taken."""

    key: JobKey
    name: str
    user: str | None
    bucket: str
    flavor: str | None
    attempt: int
    seen: Observation
    log: LogFacts
    silence_allowed: timedelta
    fresh_setting: str | None = None
    """What is new or untested about it, in words; None where nothing is."""
    burn: Burn | None = None
    exempt: bool = False
    """A tagged ablation or calibration: observed, never acted on (RL-3, EVAL-4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAttempt:
    """How an earlier attempt, or the chain's link before this job, ended, with its diagnosis where there is one."""

    name: str
    """``attempt 2``, or the earlier link's ``cluster/id``."""
    state: JobState | None
    category: str | None = None
    fingerprint: str | None = None
    quote: Quote | None = None
    """Its cause; the file is relative to the evidence folder, where a copy of the diagnosis was written."""
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What the diagnosis of one file of the evidence found: only what its gates need."""

    category: str
    confidence: str
    fingerprint: str
    quotes: tuple[Quote, ...]
    """The cause first, then echoes; files relative to the evidence folder."""
    action: str
    transience: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far the job was when its evidence was taken; what comes after it is progress since the verdict (KILL-2)."""

    at: datetime
    step: int | None = None
    total: int | None = None
    progress_at: datetime | None = None
    last_output_at: datetime | None = None
    log_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierProbe:
    """The newest verdict of the same attempt before this one."""

    taken_at: datetime
    ruling: Ruling
    mark: Mark
    stack_digest: str | None = None
    """Hash of what its stack dumps said, times and addresses left out: equal ones stand still."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """All that gates may see: the folder, and what the ears made of its files. Nothing outside it (PROBE-1)."""

    subject: Subject
    limits: Limits
    at: datetime
    """When the evidence was taken."""
    exhibits: tuple[Exhibit, ...]
    lines: Callable[[str], Sequence[str]]
    """Lines of a file of the folder, without their ends, decoded as UTF-8 with ``surrogateescape``; line N is ``[N - 1]``."""
    runs: Mapping[str, RunSummary] = field(default_factory=dict)
    """By file: what the dialects read in each LOG. Offsets and lines in it are of the evidence file."""
    causes: Mapping[str, Cause] = field(default_factory=dict)
    """By file: what the diagnosis found in each LOG and SESSION_LOG; files without a fault are absent."""
    trials: tuple[tuple[str, Trial], ...] = ()
    """File and content, newest first."""
    trial_jobs: tuple[tuple[str, TrialJob], ...] = ()
    """File and content of what a harness keeps of all its trials together."""
    past: tuple[PastAttempt, ...] = ()
    before: EarlierProbe | None = None

    def of(self, role: Role) -> tuple[Exhibit, ...]:
        return tuple(each for each in self.exhibits if each.role is role)

    def read(self, role: Role) -> tuple[Exhibit, ...]:
        """Those that are there."""
        return tuple(each for each in self.exhibits if each.role is role and each.read)

    def quote(self, file: str, line: int) -> Quote:
        """Line ``line`` (from 1) of a file of the folder, whole."""
        return Quote(file, line, self.lines(file)[line - 1])


# -- gates -------------------------------------------------------------------------------------------------------------


class Score(StrEnum):
    """Words of the contract for ``gates[].result``."""

    PASS = "pass"  # noqa: S105 (no password)
    FAIL = "fail"
    ERROR = "error"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What a gate would have needed: the exact command and its exact output (PROBE-3)."""

    command: str
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateScore:
    """One gate's judgement. A pass or a fail without a quote cannot be built (PROBE-2)."""

    gate: str
    """``A``, ``B``, ``C`` or ``D``."""
    name: str
    result: Score
    reason: str
    quotes: tuple[Quote, ...] = ()
    missing: Missing | None = None
    hard: bool = False
    """A failure that by itself means the job is of no use as it runs, without a benign explanation (PROBE-5)."""
    wedge: bool = False
    """It rests on a wedge or a starvation: it needs a live stack dump (PROBE-5)."""
    cause: str = ""
    """Of a failure: the taxonomy's name, or one of the probe's own."""
    fix: str = ""
    """Of a failure: what to change, concretely."""
    confidence: str = "high"
    early: bool = False
    """It passes because it is too early to fail, as before the first rollout: that proves no setting (RL-10)."""
    watch: str = ""
    """What to watch, and the signal that would flip this score (PROBE-7)."""
    facts: Mapping[str, float | int | str | None] = field(default_factory=dict)
    """Measured numbers that the reasoning names."""

    def __post_init__(self) -> None:
        if self.result in (Score.PASS, Score.FAIL) and not self.quotes:
            raise Unproven(f"gate {self.gate}: a {self.result.value} needs at least one quoted exhibit")
        if self.result is Score.ERROR and self.missing is None:
            raise Unproven(f"gate {self.gate}: an error says which command failed and what it put out")
        if self.hard and (self.result is not Score.FAIL or not self.cause or not self.fix):
            raise Unproven(f"gate {self.gate}: a hard failure names its cause and a fix")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """Restarts burned, and whether they repeat one failure (PROBE-6)."""

    burned: int | None = None
    allowed: int | None = None
    same_failure: bool = False
    times: int = 0
    """How often the same failure came, this attempt counted in where it shows it too."""
    category: str | None = None
    fingerprint: str | None = None
    quotes: tuple[Quote, ...] = ()
    words: str = "none"
    """For people: ``none``, ``2 of 3 burned, each nccl-timeout``, …"""


# -- the verdict -------------------------------------------------------------------------------------------------------


class Ruling(StrEnum):
    """What a probe recommends. It never does it."""

    KILL = "KILL"
    NO_KILL = "NO-KILL"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One probe's answer, whole. ``digest`` is what an approval binds to."""

    job: JobKey
    name: str
    attempt: int
    taken_at: datetime
    ruling: Ruling
    confidence: str
    gates: tuple[GateScore, ...]
    restarts: Restarts
    cause: str
    """Taxonomy's name of what a KILL is for; empty else."""
    reasoning: str
    next_steps: tuple[str, ...]
    flip_signal: str
    evidence: str
    """The folder."""
    mark: Mark
    setting: str | None = None
    """Fingerprint of its setting (RL-10)."""
    judge: str = "built-in"
    """Who ruled: ``built-in``, or that and the external judge that lowered or raised it."""

    @property
    def passed(self) -> bool:
        """Whether it proves its setting: NO-KILL, no gate failed, and none passed for being early (RL-10)."""
        return self.ruling is Ruling.NO_KILL and all(
            each.result in (Score.PASS, Score.NOT_APPLICABLE) and not each.early for each in self.gates
        )

    @property
    def decisive(self) -> GateScore | None:
        """The gate that decided: the first in error, else the first that failed hard, else the first that failed."""
        for wanted in (
            lambda each: each.result is Score.ERROR,
            lambda each: each.hard,
            lambda each: each.result is Score.FAIL,
        ):
            for each in self.gates:
                if wanted(each):
                    return each
        return None

    @property
    def wedged(self) -> bool:
        """Whether its KILL rests on liveness: the job hangs, until it shows progress (LIVE-5)."""
        return self.ruling is Ruling.KILL and any(each.gate == "A" and each.hard and each.wedge for each in self.gates)

    @property
    def digest(self) -> str:
        """``sha256:…`` over all that a person reads and an approval stands for."""
        return "sha256:" + hashlib.sha256(_canonical(self)).hexdigest()


def _canonical(verdict: Verdict) -> bytes:
    body = {
        "job": [verdict.job.cluster, verdict.job.id, verdict.job.incarnation],
        "attempt": verdict.attempt,
        "taken_at": verdict.taken_at.isoformat(),
        "ruling": verdict.ruling.value,
        "confidence": verdict.confidence,
        "gates": [
            [
                *(each.gate, each.name, each.result.value, each.reason, each.cause, each.fix),
                [[quote.file, quote.line, quote.text] for quote in each.quotes],
                [each.missing.command, each.missing.output] if each.missing else None,
            ]
            for each in verdict.gates
        ],
        "restarts": [verdict.restarts.burned, verdict.restarts.allowed, verdict.restarts.same_failure],
        "cause": verdict.cause,
        "reasoning": verdict.reasoning,
        "next_steps": list(verdict.next_steps),
        "flip_signal": verdict.flip_signal,
        "evidence": verdict.evidence,
    }
    return json.dumps(body, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The newest verdict of one live job, as the next tick's rules need it."""

    id: int
    job: JobKey
    attempt: int
    taken_at: datetime
    ruling: Ruling
    passed: bool
    wedged: bool
    """Its KILL rests on liveness: the job hangs (Sign.HUNG), until it shows progress."""
    cause: str
    reason: str
    """Of the gate that failed."""
    quotes: tuple[Quote, ...]
    mark: Mark
    setting: str | None
