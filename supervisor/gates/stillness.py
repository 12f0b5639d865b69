"""Do those processes whose progress is the job's positively stand still? Two samples of each, and what its stack names (LIVE-5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from supervisor.gates import processes, said, stacks
from supervisor.gates.processes import NodeProcesses, Part, Process
from supervisor.gates.stacks import ProcessStack, Wait
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, Missing, Role


class Doing(StrEnum):
    """What one process is doing, as far as it was positively seen."""

    DEAD = "dead and not yet collected"
    WAITING = "waiting for other ranks in a collective"
    SAME = "on the same lines as at the probe before"
    IDLE = "idle"
    OUTSIDE = "waiting for an answer over the network"
    WORKING = "busy"
    DISK = "waiting for a disk or a file system"
    STOPPED = "stopped by a signal"
    CHANGING = "just begun or just ended"
    UNKNOWN = "of unknown activity"


STILL = frozenset({Doing.DEAD, Doing.WAITING, Doing.SAME, Doing.IDLE})
PROVEN = frozenset({Doing.DEAD, Doing.WAITING, Doing.SAME})
AT_REST = frozenset({Doing.SAME, Doing.IDLE})
"""What a program that waits for others' work, or serves them, does all day: no proof of a hang there."""
ONLOOKERS = (Part.ENGINE, Part.LAUNCHER, Part.TRACKER, Part.SANDBOX)
"""Their activity is no work of the trainer's (LIVE-4)."""
STAGES = {
    Wait.CHECKPOINT: "a checkpoint is being written",
    Wait.COMPILE: "kernels are being compiled",
    Wait.DATA: "data are being prepared",
    Wait.FILE: "files are being read or written",
}
HELPERS = {
    Part.COMPILER: "kernels are being compiled",
    Part.TRANSFER: "files are being transferred",
    Part.DATA: "data workers are at work",
    Part.COORDINATOR: "its rollout coordinator is at work",
}
"""Those that work for the trainer while it waits. A coordinator's work explains no ranks that wait for each other (LIVE-4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    process: Process
    stack: ProcessStack | None
    doing: Doing

    @property
    def where(self) -> str:
        """The frame that its main thread stands in, for people; empty where none is named."""
        thread = self.stack.main if self.stack is not None and self.stack.named else None
        if thread is None or not thread.frames or self.stack is None:
            return ""
        at = thread.wait_line - thread.line - 1
        at = at if 0 <= at < len(thread.frames) else 0
        if thread.frames[at].startswith("wait ") and at + 1 < len(thread.frames):
            at += 1  # what is waited for says more than that it waits
        return thread.frames[at]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen of the job's processes."""

    workers: tuple[Worker, ...]
    seen: bool
    """Any process at all."""
    stage: str = ""
    """Work that takes long without a word, and positively goes on."""
    stage_quotes: tuple[Quote, ...] = ()
    active: tuple[Process, ...] = ()
    """Processes beside engines and launchers that work or wait for a disk."""
    over_s: float = 0.0
    missing: Missing | None = None
    """Some nodes that were asked did not answer: then nothing is said of every process."""
    nodes_seen: int = 0
    nodes_all: int = 0

    @property
    def still(self) -> bool:
        return bool(self.workers) and all(worker.doing in STILL for worker in self.workers)

    @property
    def resting(self) -> bool:
        """Still, and each of them only at rest: none is dead, and none waits for another rank."""
        return self.still and all(worker.doing in AT_REST for worker in self.workers)

    @property
    def unclear(self) -> bool:
        """Nothing of them speaks against a hang that the log tells: what is not still waits for an answer, or is busy or of unknown
        activity without a stack that names functions. A rank that spins in a wait looks like that too."""
        return all(
            worker.doing in STILL
            or worker.doing is Doing.OUTSIDE
            or (
                worker.doing in (Doing.WORKING, Doing.UNKNOWN) and not (worker.stack is not None and worker.stack.named)
            )
            for worker in self.workers
        )

    @property
    def sure(self) -> bool:
        """Each worker is dead or in a wait that its stack names, on all nodes of the job. That one only rests may have a reason."""
        return self.nodes_seen >= self.nodes_all and all(worker.doing in PROVEN for worker in self.workers)

    @property
    def words(self) -> str:
        """``8 processes of the trainer: 7 waiting for other ranks in a collective, 1 idle``."""
        counts = Counter(worker.doing for worker in self.workers)
        nodes = f" on {self.nodes_seen} of {self.nodes_all} nodes" if self.nodes_seen < self.nodes_all else ""
        if len(self.workers) == 1:
            return f"Its one process that should work{nodes} is {self.workers[0].doing.value}"
        parts = ", ".join(f"{count} {doing.value}" for doing, count in counts.most_common())
        return f"Its {len(self.workers)} processes that should work{nodes}: {parts}"

    @property
    def quotes(self) -> tuple[Quote, ...]:
        """A few lines of processes and of stacks: of each kind of doing at least one."""
        chosen: list[Quote] = []
        told = Counter[Doing]()
        for worker in self.workers:
            told[worker.doing] += 1
            if told[worker.doing] <= 2:
                chosen.append(worker.process.quote)
                if worker.stack is not None and worker.stack.threads:
                    chosen.append(worker.stack.quote)
        return said.distinct(chosen, most=6)


def look(case: Case) -> Look:
    views, dumps = processes.of(case), stacks.of(case)
    by_pid = {(stack.node, stack.pid): stack for stack in stacks.everyone(dumps)}
    again = _again(case, dumps)
    limit = case.limits.gating.idle_share
    workers = tuple(
        Worker(
            process=each,
            stack=by_pid.get((each.node, each.pid)),
            doing=_doing(each, by_pid.get((each.node, each.pid)), limit, again),
        )
        for each in working(views)
    )
    everyone = processes.everyone(views)
    waiting = {id(worker.process) for worker in workers if worker.doing is Doing.WAITING}
    active = tuple(
        each
        for each in everyone
        if each.part not in ONLOOKERS
        and id(each) not in waiting
        and (each.idle(limit) is False or each.uninterruptible)
    )
    stage, stage_quotes = _stage(workers, active)
    nodes = case.subject.seen.node_count or len(case.subject.seen.nodes) or 1
    failed = any(not each.read for each in case.of(Role.PROCESSES))
    return Look(
        workers=workers,
        seen=bool(everyone),
        stage=stage,
        stage_quotes=stage_quotes,
        active=active,
        over_s=max((view.over_s for view in views), default=0.0),
        missing=said.missing(case, Role.PROCESSES) if failed else None,
        nodes_seen=len({view.node for view in views}),
        nodes_all=nodes,
    )


def working(views: Sequence[NodeProcesses]) -> tuple[Process, ...]:
    """The trainer's; of work without a trainer, those that hand out trials; else every program that is no onlooker.

    A dead one bears no command line any more: it counts where its siblings do.
    """
    everyone = processes.everyone(views)
    found = processes.trainers(views) or tuple(each for each in everyone if each.part is Part.COORDINATOR)
    found = found or tuple(each for each in everyone if each.part is Part.OTHER)
    parents = {(each.node, each.ppid) for each in found}
    known = {id(each) for each in found}
    dead = (each for each in everyone if each.zombie and id(each) not in known and each.part is Part.OTHER)
    return found + tuple(each for each in dead if (each.node, each.ppid) in parents)


def _doing(process: Process, stack: ProcessStack | None, limit: float, again: bool) -> Doing:
    if process.zombie:
        return Doing.DEAD
    if process.gone or process.new:
        return Doing.CHANGING
    if process.stopped:
        return Doing.STOPPED
    named = stack is not None and stack.named
    if named and stack is not None and stack.wait is Wait.COLLECTIVE:
        return Doing.WAITING  # busy or not: a rank spins while it waits for the others
    if process.uninterruptible:
        return Doing.DISK
    wait = stack.wait if stack is not None and named else None
    if again and wait in (Wait.LOCK, Wait.DEVICE, Wait.QUEUE, Wait.NETWORK):
        return Doing.SAME
    idle = process.idle(limit)
    if idle:
        return Doing.OUTSIDE if wait is Wait.NETWORK else Doing.IDLE
    return Doing.WORKING if idle is False else Doing.UNKNOWN


def _again(case: Case, dumps: Iterable[stacks.NodeStacks]) -> bool:
    """Every thread of every process stands where it stood at the probe before, and nothing progressed between them.

    Only where the two lie as far apart as the job may be silent: within that, any slow step looks the same twice.
    """
    before = case.before
    if before is None or before.stack_digest is None or case.at - before.taken_at < case.subject.silence_allowed:
        return False
    return before.mark.step == case.subject.log.step and before.stack_digest == stacks.digest(dumps)


def _stage(workers: Sequence[Worker], active: Sequence[Process]) -> tuple[str, tuple[Quote, ...]]:
    """A stage counts only while something positively works on it: a save that hangs is a hang."""
    apart = any(worker.doing is Doing.WAITING for worker in workers)
    helping = next(
        (each for each in active if each.part in HELPERS and not (apart and each.part is Part.COORDINATOR)), None
    )
    if helping is not None:
        return HELPERS[helping.part], (helping.quote,)
    busy = {id(each) for each in active}
    for worker in workers:
        if worker.stack is None or not worker.stack.named or id(worker.process) not in busy:
            continue
        for wait, words in STAGES.items():
            if wait in worker.stack.within:
                return words, (worker.process.quote, worker.stack.quote)
    return "", ()
