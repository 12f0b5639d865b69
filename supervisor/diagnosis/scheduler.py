"""What the scheduler's record of a job's end amounts to."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.model.diagnosis import SchedulerRecord

_SEEN_FROM_OUTSIDE = frozenset(
    {"gpu-lost", "nccl-timeout", "nccl-ib-error", "store-timeout", "engine-dead", "actor-died"}
)


@dataclass(frozen=True, slots=True)
class Ending:
    """The scheduler's word, read. `category` is None where it names no fault by itself."""

    word: str
    text: str
    category: str | None = None
    confidence: str = "medium"
    is_root: bool = False
    """It explains what the logs show as a symptom only."""
    explains: frozenset[str] = frozenset()
    is_clean: bool = False


def read_ending(record: SchedulerRecord | None) -> Ending | None:
    """None where there is no record or it says nothing of an end."""
    if record is None:
        return None
    state = (record.state or "").upper().replace("-", "_").replace(" ", "_")
    said = f"the scheduler says {record.state}" if record.state else "by the scheduler's record"
    if record.reason:
        said += f" ({record.reason})"
    if record.oom_killed or state in ("OUT_OF_MEMORY", "OOMKILLED"):
        return Ending(state or "OOM", f"{said}: a process was killed for host memory", "host-oom", "high", is_root=True)
    if state in ("NODE_FAIL", "BOOT_FAIL", "NODELOST") or record.nodes_lost:
        nodes = f", lost: {', '.join(record.nodes_lost)}" if record.nodes_lost else ""
        return Ending(state or "NODE_FAIL", f"{said}{nodes}", "node-fail", "high", True, _SEEN_FROM_OUTSIDE)
    if state in ("PREEMPTED", "PREEMPTION", "PREEMPTING"):
        return Ending(state, said, "preempted", "high", is_root=True)
    if state == "EVICTED":
        return Ending(state, said, "evicted", "high", is_root=True)
    if state in ("TIMEOUT", "DEADLINE", "TIMED_OUT", "DEADLINEEXCEEDED"):
        if record.has_successor:
            return Ending(state, f"{said}, and a successor goes on", is_clean=True)
        return Ending(state, said, "walltime", "high")
    if state.startswith(("CANCELLED", "CANCELED", "KILLED", "REVOKED", "DELETED")):
        return Ending(state, said, "cancelled", "medium")
    if state in ("COMPLETED", "SUCCEEDED") or (not state and record.exit_code == 0 and not record.signal):
        return Ending(state or "0", said, is_clean=True)
    return _by_status(record, state, said)


def _by_status(record: SchedulerRecord, state: str, said: str) -> Ending | None:
    code, number = record.exit_code, record.signal
    if number is None and code is not None and code > 128:
        number = code - 128
    if number == 11:
        return Ending(state or "signal 11", f"{said}: ended by signal 11", "segfault", "medium")
    if number == 9:
        return Ending(state or "signal 9", f"{said}: ended by SIGKILL, usually for memory", "host-oom", "low")
    if code:
        return Ending(state or f"exit {code}", f"{said}: exit code {code}")
    return Ending(state, said) if state else None
