"""Nouns of a diagnosis: what a log says about why a job died."""

from __future__ import annotations

from dataclasses import dataclass

CATEGORIES = frozenset(
    {
        "none",
        "unread",
        "gpu-oom",
        "host-oom",
        "shared-memory-too-small",
        "dataloader-crash",
        "dataset-error",
        "tokenizer-mismatch",
        "cuda-device-assert",
        "illegal-memory-access",
        "kernel-unsupported",
        "segfault",
        "ecc-xid",
        "gpu-lost",
        "device-busy",
        "nccl-timeout",
        "nccl-ib-error",
        "nccl-config",
        "store-timeout",
        "silent-hang",
        "rank-crash",
        "file-missing",
        "permission-denied",
        "startup-timeout",
        "engine-init-fail",
        "engine-dead",
        "actor-died",
        "object-lost",
        "ray-node-dead",
        "config-error",
        "missing-dependency",
        "version-mismatch",
        "checkpoint-corrupt",
        "not-resumable",
        "nan-loss",
        "rl-no-learning",
        "disk-full",
        "quota",
        "fs-stale-handle",
        "hub-auth",
        "hub-rate-limit",
        "api-quota",
        "network-blocked",
        "port-in-use",
        "node-fail",
        "preempted",
        "evicted",
        "walltime",
        "cancelled",
        "slurm-held",
        "unschedulable",
        "image-pull",
        "container-start",
        "sandbox-fail",
        "context-overflow",
        "eval-assertion",
    }
)
"""The names that a diagnosis may give; users' packs may add some of their own."""

CONFIDENCES = ("high", "medium", "low")
TRANSIENCES = ("transient", "deterministic", "unknown")


@dataclass(frozen=True, slots=True)
class Stream:
    """Who printed a line, as far as its prefixes tell. All None: the line carries no name."""

    task: str | None = None
    actor: str | None = None
    pid: int | None = None
    rank: int | None = None
    node: str | None = None

    def __bool__(self) -> bool:
        return self != NOBODY

    @property
    def name(self) -> str:
        """A short name for people: `rank 3`, `EngineCore_DP0 pid 77`."""
        parts = [f"rank {self.rank}" if self.rank is not None else "", self.actor or ""]
        parts.append(f"pid {self.pid}" if self.pid is not None and self.rank is None else "")
        return " ".join(part for part in parts if part) or self.task or self.node or ""


NOBODY = Stream()


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a traceback."""

    path: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Traceback:
    """What stands above an exception's last line, put together from the lines of its own stream."""

    type: str
    """As printed, with its module: `torch.OutOfMemoryError`."""
    message: str
    frames: tuple[Frame, ...]
    """Outermost first; empty where the log shows none."""
    has_header: bool
    is_original: bool = False
    """Printed below a wrapper as "Original Traceback": the wrapper above is its consequence."""
    is_chained: bool = False
    """Printed below another exception as its consequence or while it was handled."""

    @property
    def own_frame(self) -> Frame | None:
        """The innermost frame of the user's own code, else the innermost of all."""
        own = [frame for frame in self.frames if not _is_library(frame.path)]
        return own[-1] if own else self.frames[-1] if self.frames else None


def _is_library(path: str) -> bool:
    places = ("site-packages", "dist-packages", "lib/python3", "<frozen", "<string>", "\\lib\\", "importlib")
    return any(place in path for place in places)


@dataclass(frozen=True, slots=True)
class Mark:
    """A line that shows how far the work had come."""

    code: str
    line: int
    offset: int
    stream: Stream
    step: int | None = None
    total: int | None = None
    position: float | None = None
    """What grows with the work: the step, or an epoch where the line has no step."""
    clock: float | None = None
    text: bytes = b""


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that a signature, or the search for exceptions, picked out."""

    code: str
    """Of the entry that speaks for the line; `exception` where none does."""
    also: tuple[str, ...]
    """Codes of other entries that match the same line."""
    line: int
    """From 1; 0 while the scan of its chunk is under way."""
    offset: int
    """Bytes from the start of the file to the start of the line."""
    text: bytes
    """The line without its newline; one redraw of it where carriage returns divide it; at most a few kB."""
    message: str
    stream: Stream
    clock: float | None = None
    """Seconds since the start of a year, from the line's own time stamp or the nearest one above it."""
    captures: tuple[tuple[str, str], ...] = ()
    traceback: Traceback | None = None
    quoted: str | None = None
    """Why the line is taken for data that the program printed, not for its own words."""

    def captured(self, name: str) -> str | None:
        """The text of a named capture."""
        return dict(self.captures).get(name)


@dataclass(frozen=True, slots=True)
class Silence:
    """The end of a file: its last line that is neither heartbeat nor noise, and what came after it."""

    line: int
    offset: int
    text: bytes
    stream: Stream
    heartbeats: int
    """Lines after it, all of them heartbeats or noise."""
    seconds: float | None
    """From it to the last heartbeat, where both carry a time."""


@dataclass(frozen=True, slots=True)
class FileReading:
    """All that one file says."""

    path: str
    state: str
    """read, empty, binary, unread, partly (read up to an error)."""
    reason: str | None = None
    bytes: int = 0
    lines: int = 0
    hits: tuple[Hit, ...] = ()
    counts: tuple[tuple[str, int, int, int], ...] = ()
    """(code, lines hit, first line, last line), also of hits that were not kept."""
    marks: tuple[Mark, ...] = ()
    """First and last line of progress of each kind, around and between the hits."""
    silence: Silence | None = None


@dataclass(frozen=True, slots=True)
class SchedulerRecord:
    """What the scheduler says about how a job ended; None is unknown."""

    state: str | None = None
    """Its own word: `OUT_OF_MEMORY`, `NODE_FAIL`, `OOMKilled`, `TIMEOUT`, …"""
    exit_code: int | None = None
    signal: int | None = None
    oom_killed: bool | None = None
    reason: str | None = None
    nodes_lost: tuple[str, ...] = ()
    """Nodes that the scheduler reports as down or not ready at the end of the job."""
    has_successor: bool = False
    """A restart chain goes on in another job."""


@dataclass(frozen=True, slots=True)
class Quote:
    """A line that stands in a file, byte for byte."""

    file: str
    line: int
    offset: int
    text: bytes
    signature: str
    rank: int | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class NoiseCount:
    """How often one kind of harmless line was seen."""

    signature: str
    file: str
    count: int
    first_line: int
    last_line: int
    why: str


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A line that could have been the cause and is not, and why."""

    quote: Quote
    category: str
    why: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer to "why did it die", with its evidence. `category` is of the taxonomy."""

    category: str
    confidence: str
    transience: str
    summary: str
    action: str
    fingerprint: str
    """Equal for the same failure in another run; empty for `none` and `unread`."""
    reasons: tuple[str, ...] = ()
    cause: Quote | None = None
    exception: Traceback | None = None
    echoes: tuple[Quote, ...] = ()
    echoes_left_out: int = 0
    noise: tuple[NoiseCount, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    progress: Mark | None = None
    missing: tuple[str, ...] = ()
    """What was looked for and not found, or could not be read (FAIL-2, FAIL-3)."""
    absent_ranks: tuple[int, ...] = ()
    """Ranks that a timed-out collective waited for, where the log tells."""
    files: tuple[FileReading, ...] = ()
