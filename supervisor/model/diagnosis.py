"""Nouns of a diagnosis: what a log says about why a job died."""

from __future__ import annotations

from dataclasses import dataclass

USUAL: dict[str, tuple[str, str]] = {
    "gpu-oom": ("deterministic", "Shrink batch, sequence length or the memory share; do not retry unchanged."),
    "host-oom": (
        "deterministic",
        "Confirm in the kernel's or cgroup's events; give more memory or start fewer workers; what was killed may be a bystander.",
    ),
    "shared-memory-too-small": ("deterministic", "Enlarge /dev/shm or use fewer data workers."),
    "dataloader-crash": ("unknown", "Look at the kernel log and at ulimits of the node."),
    "dataset-error": ("deterministic", "Fix or skip the row; a retry fails at the same place."),
    "tokenizer-mismatch": ("deterministic", "Align the tokenizer with the embedding table."),
    "cuda-device-assert": ("deterministic", "Look at the first assertion; align vocabulary or labels."),
    "illegal-memory-access": (
        "deterministic",
        "A kernel or version bug rather than the node: bisect versions, try without the custom kernel.",
    ),
    "kernel-unsupported": ("deterministic", "Use another backend, dtype or toolchain for this device."),
    "segfault": ("unknown", "Retry once, then bisect the native library."),
    "ecc-xid": ("transient", "Drain the node and resume elsewhere."),
    "gpu-lost": ("transient", "Exclude the node and have it reset."),
    "device-busy": ("transient", "Free the device, wait, or recycle the host."),
    "nccl-timeout": ("unknown", "Find the late or missing rank before raising time-outs."),
    "nccl-ib-error": ("unknown", "Check link, GID and switch; exclude the pair of nodes."),
    "nccl-config": ("deterministic", "Fix environment or addresses; it fails again unchanged."),
    "store-timeout": ("transient", "Find the peer that did not start or connect."),
    "silent-hang": (
        "unknown",
        "Take stacks of the trainer's processes, then restart; judge by the age of its progress, not by heartbeats.",
    ),
    "rank-crash": ("deterministic", "Read this traceback, not the launcher's summary."),
    "file-missing": (
        "deterministic",
        "Correct the path or stage the file; on a shared file system look whether only some nodes miss it.",
    ),
    "permission-denied": ("deterministic", "Correct owner, mode or group."),
    "startup-timeout": (
        "unknown",
        "Read the component's own log; give the first wait more time or the files faster storage.",
    ),
    "engine-init-fail": ("deterministic", "Change length, memory share or parallelism of the engine."),
    "engine-dead": ("unknown", "Look for the worker's own cause; restart the engine."),
    "actor-died": ("unknown", "Find out who killed it; Ray's hints about memory are guesses."),
    "object-lost": ("deterministic", "Keep owners alive or rebuild the object."),
    "ray-node-dead": ("transient", "Relieve the node and resume."),
    "config-error": ("deterministic", "Fix the settings and relaunch."),
    "missing-dependency": ("deterministic", "Fix the image or environment."),
    "version-mismatch": ("deterministic", "Pin a matching set of packages."),
    "checkpoint-corrupt": ("deterministic", "Resume from the checkpoint before."),
    "not-resumable": ("deterministic", "Make the restart find or clear what the first attempt left."),
    "nan-loss": ("deterministic", "Stop, roll back, and change the numerics."),
    "rl-no-learning": ("deterministic", "Fix data or versions; do not relaunch unchanged."),
    "disk-full": ("deterministic", "Free space, prune checkpoints."),
    "quota": ("deterministic", "Delete trees or ask for quota."),
    "fs-stale-handle": ("transient", "Retry; prepare caches once, before the ranks start."),
    "hub-auth": ("deterministic", "Provide a token that has access."),
    "hub-rate-limit": ("transient", "Back off, cache, or go offline."),
    "api-quota": ("deterministic", "Top up, or change the provider."),
    "network-blocked": ("deterministic", "Stage the data, or use a proxy or offline mode."),
    "port-in-use": ("transient", "Use another port; stop the stale process."),
    "node-fail": ("transient", "Relaunch without the node."),
    "preempted": ("transient", "Requeue and resume."),
    "evicted": ("transient", "Remove the pressure and resubmit."),
    "walltime": ("deterministic", "Resume from the last checkpoint, or ask for more time."),
    "cancelled": ("unknown", "Nothing to fix; ask who ended it if it was not you."),
    "slurm-held": ("transient", "Release the job after checking the node."),
    "unschedulable": ("unknown", "Check capacity against the request."),
    "image-pull": ("unknown", "Not found and denied are final; rate limits and cut connections pass."),
    "container-start": ("deterministic", "Fix the image or the node's set-up."),
    "sandbox-fail": ("transient", "Retry the trial; tell it from agent time-outs."),
    "context-overflow": ("deterministic", "Trim the history."),
    "eval-assertion": ("deterministic", "Report it as a result; it is no fault of the infrastructure."),
}
"""Of each fault: what a retry usually does (`transient`: it helps), and what to do. A signature may know better."""

CATEGORIES = frozenset(USUAL) | {"none", "unread"}
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
    height: int = 0
    """Lines from the header, or the topmost line known to belong to it, down to the exception's last line."""
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
class Stage:
    """A part of the work that a program said it began and, as far as its log tells, did not end."""

    name: str
    line: int
    offset: int
    text: bytes
    stream: Stream
    clock: float | None


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
    """From it to the last heartbeat, where both carry a time, or as long as the heartbeats say they waited."""
    clock: float | None = None
    stage: Stage | None = None
    told: float = 0.0
    """Seconds that the lines after it say by themselves to have passed."""


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
    ranks: tuple[int, ...] = ()
    """Ranks whose prefix stands near the end of the file."""


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
