"""A deep probe's evidence of one launched process, on this machine or over SSH: its record, its log, its processes."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import time
from dataclasses import dataclass
from datetime import datetime

from supervisor.clusters import host_commands, node_commands, node_text
from supervisor.clusters.host_text import Traced, Unusable, read_traced, record_of
from supervisor.clusters.log_pieces import ReadLogs, newest
from supervisor.clusters.node_commands import Whose
from supervisor.clusters.shell import Shell
from supervisor.model.errors import AnswerUnusable, ClusterError, CommandFailed
from supervisor.model.job import Observation
from supervisor.model.probe import Captured, CaptureWanted, Remains, Role

_RECORD_BYTES = 2**20
_SPARE_S = 5.0
"""Between the time by which a look ends itself and the time at which it would be ended."""
_LEAST_S = 10.0
"""Time that must be left for a look at the processes, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProbe:
    """One question to one machine."""

    cluster: str
    shell: Shell
    records: str | None
    """The folder of launch records; None where ``launch`` writes without a config."""
    limit_s: float
    """Longest that reading a record may take."""
    read_logs: ReadLogs

    async def capture(self, wanted: CaptureWanted, now: datetime) -> list[Captured]:
        """Raises ClusterError where the machine did not answer."""
        ends = time.monotonic() + wanted.time_s
        traced = await self._traced(wanted.seen)
        logs, node = await asyncio.gather(newest(self.read_logs, wanted, now), self._node(traced, wanted, ends))
        return [*recorded(traced, wanted.seen), *logs, *node]

    async def remains(self, seen: Observation) -> Remains:
        """What lives of its group and session, and, where there is a /proc, what bears its launch's mark elsewhere."""
        try:
            traced = await self._traced(seen)
        except ClusterError as error:
            return Remains(failure=error.text)
        if traced.text is None:
            return Remains(failure=f"there is no record of process {seen.key.id} any more")
        if traced.where == "other":
            return Remains(failure="it was launched on another machine or in another container")
        if traced.where == "before" or traced.leader == "another":
            return Remains()
        if traced.leader == "hidden" and not traced.left:
            return Remains(failure=f"process {traced.pid} is there, and may not be looked at")
        return Remains(there=tuple(f"process {each}" for each in traced.left))

    async def _traced(self, seen: Observation) -> Traced:
        nonce = secrets.token_hex(16)
        try:
            script = host_commands.record(nonce, self.records, job_id=seen.key.id, incarnation=seen.key.incarnation)
        except ValueError as error:
            raise AnswerUnusable(self.cluster, str(error)) from error
        ran = await self.shell.run(script, limit_s=self.limit_s, limit_bytes=_RECORD_BYTES)
        if ran.exit_status != 0:
            said = ran.stderr.decode("utf-8", "replace").strip()
            raise CommandFailed(self.cluster, "reading the launch record", ran.exit_status, said)
        try:
            return read_traced(ran.stdout, nonce)
        except Unusable as error:
            raise AnswerUnusable(self.cluster, str(error)) from error

    async def _node(self, traced: Traced, wanted: CaptureWanted, ends: float) -> list[Captured]:
        node = next(iter(wanted.seen.nodes), None)
        look = node_text.Look(node, self.shell.place)
        why = _why_no_look(traced) if wanted.live else None
        if why is not None or not wanted.live:
            asks = node_commands.look(Whose("session"), wanted, with_checkpoints=False) if wanted.live else ()
            found = node_text.failed(asks, look, why or "")
            asks = _checkpoints(wanted)
        else:
            found, asks = (
                [],
                node_commands.look(
                    Whose("session", traced.pid, wanted.seen.key.incarnation), wanted, with_checkpoints=True
                ),
            )
        if not asks:
            return found
        limit_s = min(node_commands.seconds_needed(asks) + _SPARE_S, ends - time.monotonic())
        if limit_s < _LEAST_S:
            why = f"no time was left of the {wanted.time_s:g} s that all captures have together"
            return found + node_text.failed(asks, look, why)
        nonce = secrets.token_hex(16)
        try:
            ran = await self.shell.run(
                node_commands.script(nonce, asks, limit_s - _SPARE_S),
                limit_s=limit_s,
                limit_bytes=node_commands.bytes_needed(asks),
            )
        except ClusterError as error:
            return found + node_text.failed(asks, look, error.text)
        return found + node_text.read(ran, nonce, asks, look)


def _checkpoints(wanted: CaptureWanted) -> tuple[node_commands.Ask, ...]:
    if not wanted.checkpoint_dirs:
        return ()
    return (node_commands.checkpoints(wanted.checkpoint_dirs, wanted.piece_bytes),)


def _why_no_look(traced: Traced) -> str | None:
    """Why there are no processes to look at."""
    if traced.text is None:
        return "there is no record of this launch any more, so its processes cannot be told"
    if traced.where != "here":
        return {
            "before": "the machine was restarted since it was launched: its processes are gone",
            "other": "it was launched on another machine or in another container, whose processes are not seen from here",
        }.get(traced.where, "it is not known where it was launched")
    if not traced.pid.isdecimal() or int(traced.pid) < 2:
        return "it has no process yet"
    if traced.leader == "another":
        return f"its process is gone: number {traced.pid} is another process's now"
    if traced.leader == "hidden":
        return f"process {traced.pid} is there, and may not be looked at"
    if not traced.left:
        return f"its process {traced.pid} is gone, and nothing of its group or session is left"
    return None


def recorded(traced: Traced, seen: Observation) -> list[Captured]:
    """The launch record, and the command that it holds in place of a batch script."""
    command = f"cat {traced.file}" if traced.file else f"cat live/{seen.key.id}.json"
    if traced.text is None:
        why = f"there is no record of process {seen.key.id} of this launch, neither live nor ended"
        return [Captured(role=role, command=command, failure=why, exit_status=0) for role in (Role.RECORD, Role.SCRIPT)]
    said = f" leader {traced.pid} {traced.leader}, {len(traced.left)} of its group and session live"
    data = traced.text + f"# process:{said}\n".encode()
    pieces = [Captured(role=Role.RECORD, command=command, source=traced.file, data=data, exit_status=0)]
    try:
        words = record_of(traced.text, seen.key.id)["command"]
    except ValueError as error:
        return [*pieces, Captured(role=Role.SCRIPT, command=command, failure=f"its record is unreadable: {error}")]
    script = (shlex.join(words) + "\n").encode("utf-8", "surrogateescape")
    return [*pieces, Captured(role=Role.SCRIPT, command=command, source=traced.file, data=script, exit_status=0)]
