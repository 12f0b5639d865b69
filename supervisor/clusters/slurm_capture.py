"""A deep probe's evidence of one Slurm job: what the controller says, what the file system holds, what its nodes show.

Nothing here disturbs a job. A look at a node is a step that shares everything with the job's own steps and is bounded by itself,
by its time limit and by ``srun``; or a session of ssh. What does not come is told as a failure with what was put out.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from supervisor.clusters import node_commands, node_text
from supervisor.clusters.log_pieces import ReadLogs, newest
from supervisor.clusters.node_commands import Whose
from supervisor.clusters.shell import Ran, Shell
from supervisor.clusters.slurm_capture_commands import (
    REMAINS_FIELDS,
    records_script,
    remains_script,
    ssh_script,
    step_script,
)
from supervisor.clusters.slurm_commands import UNIT, Nonce, Site
from supervisor.clusters.slurm_jobs import node_names
from supervisor.clusters.slurm_text import (
    UNKNOWN_JOB,
    Answer,
    Part,
    below_titles,
    id_of,
    read_answer,
    safe_text,
)
from supervisor.model.errors import AnswerUnusable, ClusterError, LoginFailed
from supervisor.model.job import Observation
from supervisor.model.probe import Captured, CaptureWanted, Remains, Role

_AT_ONCE = 4
"""Nodes that are looked at at once."""
_LEAST_S = 20.0
"""Time that must be left for a look at a node, seconds."""
_SPARE_S = 5.0
"""Between the time by which a look ends itself and the time at which it would be ended."""
_AROUND_S = 15.0
"""What surrounds a look: the login, the step's creation and its end."""
_ID = re.compile(r"([0-9]+)(?:[_+]([0-9]+))?")
_RUNS = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT"})
_TIME_UP = 124


@dataclass(frozen=True, slots=True)
class Known:
    """What the controller's record says, as far as a look at the nodes needs it."""

    number: str
    """The job's own: of an array's task or of a component of a heterogeneous job too."""
    leader: str
    """What ``srun --jobid`` takes, and what stands in its environment."""
    component: str
    """Of a heterogeneous job, its offset; empty else."""
    state: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmProbe:
    """One question to one cluster, over login nodes in the order in which they should be asked."""

    cluster: str
    site: Site
    shells: Sequence[Shell]
    node_access: str
    fresh_nonce: Callable[[], Nonce]
    read_logs: ReadLogs

    async def capture(self, wanted: CaptureWanted, now: datetime) -> list[Captured]:
        """Raises ClusterError where no login node answered and no log could be read."""
        ends = time.monotonic() + wanted.time_s
        records, logs, folders = await asyncio.gather(
            self._records(wanted), newest(self.read_logs, wanted, now), self._checkpoints(wanted)
        )
        if isinstance(records, ClusterError):
            if not any(piece.data is not None for piece in (*logs, *folders)):
                raise records
            told = _records_failed(wanted.seen.key.id, records.text)
            known: Known | str = f"the job's record could not be read: {records.text}"
        else:
            told, known = read_records(records, wanted.seen)
        pieces = [*told, *logs, *folders]
        return pieces + await self._nodes(known, wanted, ends) if wanted.live else pieces

    # -- what the login node tells ---------------------------------------------------------------------------------

    async def _records(self, wanted: CaptureWanted) -> Answer | ClusterError:
        job = wanted.seen.key.id
        if _ID.fullmatch(job) is None:
            return AnswerUnusable(self.cluster, f"{job!r} is no job id of Slurm")
        limit_s = min(self.site.of(queue=2, accounting=1), wanted.time_s / (2 * len(self.shells)))
        limit_bytes = wanted.piece_bytes * 2 + 2**20
        try:
            return await self._asked(
                lambda nonce: records_script(nonce, job, wanted.piece_bytes, self.site), limit_s, limit_bytes
            )
        except ClusterError as error:
            return error

    async def _asked(
        self, script: Callable[[Nonce], str], limit_s: float, limit_bytes: int, *, again: bool = True
    ) -> Answer:
        """The answer of the first login node that gives a whole one. Raises the last one's ClusterError.

        ``again`` False: no other is asked once a question may have been put; one that refused the login heard none.
        """
        failure: ClusterError | None = None
        for shell in self.shells:
            nonce = self.fresh_nonce()
            try:
                ran = await shell.run(script(nonce), limit_s=limit_s, limit_bytes=limit_bytes)
                return read_answer(self.cluster, shell.place, ran, nonce)
            except LoginFailed as error:
                failure = error
            except ClusterError as error:
                failure = error
                if not again:
                    break
        raise failure or ClusterError(self.cluster, "there is no login node to ask")

    async def _checkpoints(self, wanted: CaptureWanted) -> list[Captured]:
        if not wanted.checkpoint_dirs:
            return []
        asks = (node_commands.checkpoints(wanted.checkpoint_dirs, wanted.piece_bytes),)
        pieces: list[Captured] = []
        for shell in self.shells:
            nonce, look = secrets.token_hex(16), node_text.Look(None, shell.place)
            limit_s = min(node_commands.seconds_needed(asks) + _AROUND_S, wanted.time_s / (2 * len(self.shells)))
            limits = limit_s, node_commands.bytes_needed(asks)
            try:
                ran = await shell.run(node_commands.script(nonce, asks), limit_s=limits[0], limit_bytes=limits[1])
            except ClusterError as error:
                pieces = node_text.failed(asks, look, error.text)
                continue
            pieces = node_text.read(ran, nonce, asks, look)
            if all(piece.data is not None for piece in pieces):
                break
        return pieces

    # -- what its nodes show ---------------------------------------------------------------------------------------

    async def _nodes(self, known: Known | str, wanted: CaptureWanted, ends: float) -> list[Captured]:
        why = known if isinstance(known, str) else self._why_no_look(known)
        nodes = wanted.seen.nodes if isinstance(known, str) else known.nodes or wanted.seen.nodes
        chosen: list[str | None] = [*node_text.spread(nodes, wanted.nodes_most)] or [None]
        if isinstance(known, str) or why is not None:
            asks = node_commands.look(Whose("slurm"), wanted, with_checkpoints=False)
            return [piece for node in chosen for piece in node_text.failed(asks, node_text.Look(node), str(why))]
        room = asyncio.Semaphore(_AT_ONCE)
        looks = await asyncio.gather(*(self._look(known, str(node), wanted, ends, room) for node in chosen))
        return [piece for look in looks for piece in look]

    def _why_no_look(self, known: Known) -> str | None:
        if known.state not in _RUNS:
            return f"job {known.number} is {known.state}: nothing of it runs on a node"
        if self.node_access == "none":
            return 'node_access = "none": compute nodes of this cluster are not looked at'
        return None if known.nodes else f"the controller names no node of job {known.number}"

    async def _look(
        self, known: Known, node: str, wanted: CaptureWanted, ends: float, room: asyncio.Semaphore
    ) -> list[Captured]:
        try:
            whose = Whose("slurm", known.number, known.leader, node)
        except ValueError as error:
            asks = node_commands.look(Whose("slurm"), wanted, with_checkpoints=False)
            return node_text.failed(asks, node_text.Look(node), str(error))
        asks = node_commands.look(whose, wanted, with_checkpoints=False)
        async with room:
            sharing, pieces = "--overlap", list[Captured]()
            for _ in range(3):
                left = ends - time.monotonic() - _AROUND_S
                if left < _LEAST_S:
                    why = f"no time was left of the {wanted.time_s:g} s that all captures have together"
                    return pieces or node_text.failed(asks, node_text.Look(node), why)
                limit_s = min(node_commands.seconds_needed(asks) + _SPARE_S, left)
                pieces, said = await self._look_once(known, node, asks, sharing, limit_s)
                other = other_sharing(sharing, said) if self.node_access == "srun" else None
                if other is None:
                    break
                sharing = other
            return pieces

    async def _look_once(
        self, known: Known, node: str, asks: Sequence[node_commands.Ask], sharing: str, limit_s: float
    ) -> tuple[list[Captured], str]:
        """The pieces; and what srun said where it got nowhere."""
        mark = secrets.token_hex(16)
        body = f"{{\n{node_commands.script(mark, asks, limit_s - _SPARE_S)}\n}} </dev/null"
        if self.node_access == "ssh":
            way = f"ssh {node}"
        else:
            het = f" --het-group={known.component}" if known.component else ""
            way = f"srun --jobid={known.leader}{het} {sharing} --nodelist={node}".replace("  ", " ")

        def script(nonce: Nonce) -> str:
            if self.node_access == "ssh":
                return ssh_script(nonce, node=node, look=body, limit_s=limit_s, site=self.site)
            return step_script(
                nonce,
                job=known.leader,
                het=known.component,
                node=node,
                look=body,
                limit_s=limit_s,
                sharing=sharing,
                site=self.site,
            )

        look = node_text.Look(node, way)
        try:
            answer = await self._asked(script, limit_s + _AROUND_S, node_commands.bytes_needed(asks), again=False)
        except ClusterError as error:
            return node_text.failed(asks, look, error.text), ""
        part = answer.get("node")
        if part is None:
            return node_text.failed(asks, look, "the login node did not try it"), ""
        said = part.said.strip()
        if part.status == _TIME_UP and not part.out:
            said = f"{said}\nno answer within {limit_s:.0f} s".strip()
        pieces = node_text.read(Ran(part.status, part.out, said.encode()), mark, asks, look)
        return pieces, said if mark.encode() not in part.out else ""

    # -- remains ---------------------------------------------------------------------------------------------------

    async def remains(self, seen: Observation) -> Remains:
        """Whether the controller still holds anything of this submission: its listing, its steps."""
        found = _ID.fullmatch(seen.key.id)
        if found is None:
            return Remains(failure=f"{seen.key.id!r} is no job id of Slurm")
        nonces: list[Nonce] = []

        def script(nonce: Nonce) -> str:
            nonces.append(nonce)
            return remains_script(nonce, found[1], self.site)

        try:
            answer = await self._asked(script, self.site.of(queue=2), 4 * 2**20)
            return read_remains(answer, nonces[-1], seen)
        except ClusterError as error:
            return Remains(failure=error.text)
        except ValueError as error:
            return Remains(failure=str(error))


# -- pure --------------------------------------------------------------------------------------------------------------


def other_sharing(sharing: str, said: str) -> str | None:
    """Another way to share, where this version of srun does not know this one or will not share devices by it."""
    if "--overlap" in sharing and (
        "unrecognized option '--overlap'" in said or "unrecognized option `--overlap'" in said
    ):
        return sharing.replace("--overlap", "").strip()
    busy = ("nodes are busy", "temporarily disabled", "Immediate execution impossible", "Invalid generic resource")
    if "--gres=none" not in sharing and any(word in said for word in busy) and "Invalid job id" not in said:
        return f"{sharing} --gres=none".strip()
    return None


_COMMANDS = {
    Role.RECORD: "scontrol show job -d {}",
    Role.ACCOUNTING: "sacct -D -P -j {}",
    Role.SCRIPT: "scontrol write batch_script {} -",
}


def _records_failed(job: str, why: str) -> list[Captured]:
    return [Captured(role=role, command=words.format(job), failure=why) for role, words in _COMMANDS.items()]


def read_records(answer: Answer, seen: Observation) -> tuple[list[Captured], Known | str]:
    """Record, accounting and script; and what of the record a look at its nodes needs, or why there can be none."""
    job = seen.key.id
    pieces: list[Captured] = []
    known: Known | str = "the job's record could not be read"
    for role, words in _COMMANDS.items():
        part, command = answer.get(role.value), words.format(job)
        why = _why_no_record(part, role)
        if part is not None and role is Role.RECORD:
            told = known_of(part.text, seen) if why is None else f"the controller's record: {why}"
            if isinstance(told, str):
                why = why or f"{told}; it says: {part.text.strip()[:1500]}"
            known = told
        status = None if part is None else part.status
        if part is None or why is not None:
            pieces.append(Captured(role=role, command=command, failure=why or "not answered", exit_status=status))
        else:
            pieces.append(Captured(role=role, command=command, data=part.out, exit_status=status))
    return pieces, known


def _why_no_record(part: Part | None, role: Role) -> str | None:
    if part is None:
        return "the login node did not answer it"
    if part.failure is not None:
        return part.failure
    lines = part.text.split("\n")
    if not part.text.strip():
        return part.said.strip() or "it printed nothing"
    if role is Role.ACCOUNTING and not any(line.strip() for line in lines[1:]):
        return "accounting knows no such job"
    return None


def known_of(text: str, seen: Observation) -> Known | str:
    """What ``scontrol show job`` says of exactly this submission; a sentence where it does not speak of it."""
    found = _ID.fullmatch(seen.key.id)
    for record in re.split(r"\n\s*\n", text):
        number = re.match(
            r"JobId=([0-9]+)(?: ArrayJobId=([0-9]+) ArrayTaskId=(\S+)| HetJobId=([0-9]+) HetJobOffset=([0-9]+))? ",
            record,
        )
        if found is None or number is None or not _speaks_of(number, found):
            continue
        values = {
            key: set(re.findall(rf"^   {key}=(\S+)", record, re.MULTILINE))
            for key in ("JobState", "SubmitTime", "NodeList")
        }
        state, submitted = values["JobState"], values["SubmitTime"]
        if len(state) != 1 or len(submitted) != 1:
            return "its record names no state or no time of submission, or more than one"
        at = submitted.pop()
        if _epoch(at) != seen.key.incarnation:
            return f"job {seen.key.id} was submitted at {at} UTC: another submission than the one that is probed"
        nodes = node_names(next(iter(values["NodeList"]), "")) if len(values["NodeList"]) == 1 else ()
        return Known(number[1], number[4] or number[1], number[5] or "", state.pop(), nodes)
    return f"the controller's answer does not speak of job {seen.key.id}"


def _speaks_of(number: re.Match[str], asked: re.Match[str]) -> bool:
    if asked[2] is not None:
        return (asked[1], asked[2]) in ((number[2], number[3]), (number[4], number[5]))
    if number[2] is not None:  # the waiting rest of an array bears the array's own number, and so may its last task
        return number[2] == asked[1] and not number[3].isdecimal()
    return number[1] == asked[1] and number[4] is None


def _epoch(text: str) -> str:
    try:
        return str(int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()))
    except ValueError:
        return ""


def read_remains(answer: Answer, nonce: Nonce, seen: Observation) -> Remains:
    """Raises ValueError for what is no whole answer. An id that the controller does not know holds nothing any more."""
    queue, steps = answer.get("queue"), answer.get("steps")
    if queue is None or steps is None:
        return Remains(failure="the login node did not ask the controller")
    there: list[str] = []
    if UNKNOWN_JOB not in queue.said or queue.out.strip():
        if queue.failure is not None:
            return Remains(failure=f"squeue: {queue.failure}")
        for record in below_titles(queue.text, nonce, UNIT, len(REMAINS_FIELDS)):
            shown, submit, state, number, nodes = record.split(UNIT, len(REMAINS_FIELDS) - 1)
            if id_of(shown) != seen.key.id:
                continue
            if submit != seen.key.incarnation:
                return Remains()  # another submission bears the id: nothing of this one can be left
            if state not in _OVER:
                there.append(f"job {number} is {state} and holds {nodes or 'no node'}")
    if steps.failure is not None:
        return Remains(failure=f"squeue -s: {steps.failure}")
    titles, *rows = steps.text.splitlines() or [""]
    if not titles.startswith("STEPID "):
        return Remains(failure=f"squeue -s printed {safe_text(steps.out)[:120]!r} where its titles belong")
    for row in rows:
        step, _, rest = row.partition(" ")
        if step.startswith(f"{seen.key.id}."):
            there.append(f"step {step} is there on {rest.partition(' ')[0]}")
    return Remains(there=tuple(there))


_OVER = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"}
    | {"REVOKED", "TIMEOUT"}
)
"""States of an attempt that has ended and holds nothing; COMPLETING is none."""
