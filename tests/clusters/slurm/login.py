"""Real answers, and a login node that gives them again in answer to whatever script it is sent."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from supervisor.clusters.shell import Ran
from supervisor.clusters.slurm import SlurmCluster
from supervisor.clusters.slurm_commands import UNIT, Nonce
from supervisor.clusters.slurm_settings import SlurmSettings
from supervisor.clusters.slurm_text import (
    AccountingRow,
    Answer,
    DetailRow,
    QueueRow,
    read_accounting,
    read_answer,
    read_details,
)
from supervisor.model.job import JobKey
from supervisor.model.polling import Polled, Watch

SAMPLES = Path(__file__).parent / "samples"
NONCE = Nonce("n0123456789abcdef0123")
TAKEN = datetime.fromtimestamp(1795988986, UTC)
"""When ``poll.txt`` was taken, by the cluster's clock."""


def sample(name: str) -> bytes:
    return (SAMPLES / f"{name}.txt").read_bytes()


def answer(name: str) -> Answer:
    return read_answer("alpha", "login1", Ran(0, sample(name), b""), NONCE)


def queue_rows(name: str = "poll") -> dict[str, QueueRow]:
    """Records of a real squeue by our id."""
    part = answer(name).get("queue")
    assert part is not None
    records = part.text.split(f"{NONCE.end}\n")[1:-1]
    rows = [QueueRow._make(record.split(UNIT, 16)) for record in records]
    return {row.id: row for row in rows}


def accounting_rows(name: str, part: str) -> list[AccountingRow]:
    return [row for one in answer(name).all(part) for row in read_accounting(one.text, NONCE)]


def detail_rows() -> dict[str, DetailRow]:
    part = answer("follow").get("details")
    assert part is not None
    return {row.id: row for row in read_details(part.text, NONCE)}


def titles(part: str, nonce: Nonce = NONCE, of: str = "poll") -> str:
    """What a real squeue or sacct prints above its records."""
    told = answer(of).get(part)
    assert told is not None
    end = "\n" if part in ("ended", "found") else f"{NONCE.end}\n"
    return (told.text.partition(end)[0] + end).replace(NONCE.word, nonce.word)


Spoil = Callable[[str, bytes], Ran]
"""What becomes of an answer on its way: the script and the whole answer in, how the run ended out."""


@dataclass
class ScriptedLogin:
    """A login node whose Slurm knows these rows. It answers each script in the form that the real one has."""

    queue: list[QueueRow] = field(default_factory=list)
    accounting: list[AccountingRow] = field(default_factory=list)
    details: list[DetailRow] = field(default_factory=list)
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Path to size and time."""
    places: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Job to the files that a listing of its work directory finds; their sizes and times stand in ``files``."""
    status: Mapping[str, int] = field(default_factory=dict)
    said: Mapping[str, str] = field(default_factory=dict)
    at: datetime = TAKEN
    user: str = "alice"
    name: str = "login1"
    spoil: Spoil | None = None
    raises: Exception | None = None
    scripts: list[str] = field(default_factory=list)
    given: dict[str, bytes] = field(default_factory=dict)
    """Answers given before, by script: with a nonce that stays the same they are not put together again."""

    @property
    def place(self) -> str:
        return self.name

    async def close(self) -> None: ...

    async def run(self, script: str, *, limit_s: float, limit_bytes: int = 64 * 2**20) -> Ran:
        assert limit_s > 0
        self.scripts.append(script)
        if self.raises is not None:
            raise self.raises
        whole = self.given.get(script)
        if whole is None:
            whole = self.given[script] = self._answer(script).encode("utf-8", "surrogateescape")
        return Ran(0, whole, b"") if self.spoil is None else self.spoil(script, whole)

    def _answer(self, script: str) -> str:
        nonce = Nonce(_value(script, "mark")[:-1])
        lines: list[str] = []
        ids = ""
        arguments: list[str] = []
        for name in re.findall(r"^(?:part ([a-z]+)|(ids)=|(set) --)", script, re.MULTILINE):
            part, sets_ids, sets_arguments = name
            if sets_ids:
                ids = _value(script, "ids", len([1 for line in lines if line == "ids"]))
                lines.append("ids")
                continue
            if sets_arguments:
                found = re.findall(r"^set -- (.*?)\n(?:part|set|[a-z_]+=)", script, re.MULTILINE | re.DOTALL)
                arguments = shlex.split(found[len([1 for line in lines if line == "set"])])
                lines.append("set")
                continue
            lines.append(self._part(part, nonce, ids, arguments))
            if part == "queue" and self.status.get("queue", 0):
                break
        body = "".join(line for line in lines if line not in ("ids", "set"))
        return f"{body}\n{nonce.mark} whole\n"

    def _part(self, part: str, nonce: Nonce, ids: str, arguments: list[str]) -> str:
        out = self._out(part, nonce, ids, arguments) if not self.status.get(part) else ""
        said, status = self.said.get(part, ""), self.status.get(part, 0)
        return f"\n{nonce.mark} begin {part}\n{out}\n{nonce.mark} said {part}\n{said}\n{nonce.mark} end {part} {status}"

    def _out(self, part: str, nonce: Nonce, ids: str, arguments: list[str]) -> str:
        match part:
            case "who":
                return self.user
            case "clock":
                return f"{int(self.at.timestamp())}\n"
            case "version":
                return "slurm-wlm 22.05.8\n"
            case "queue":
                return titles("queue", nonce) + "".join(UNIT.join(row) + nonce.end + "\n" for row in self.queue)
            case "still":
                words = ("RUNNING", "PENDING", "SUSPENDED")
                return self._accounting([row for row in self.accounting if row.state in words], nonce)
            case "ended":
                return self._accounting([row for row in self.accounting if row.stop.isdecimal()], nonce)
            case "found":
                asked = ids.split(",")
                wanted = [row for row in self.accounting if row.id in asked or row.id.split("+")[0] in asked]
                wanted += [row for row in self.accounting if row.id.split("_")[0] in asked and row not in wanted]
                return self._accounting(wanted, nonce)
            case "details":
                asked = set(ids.split(","))
                rows = [row for row in self.details if not ids or row.raw_id in asked]
                head = titles("details", nonce, of="follow")
                return head + "".join(nonce.gap.join(row) + nonce.end + "\n" for row in rows)
            case "logs":
                return "".join(self._file(path, nonce) for path in arguments)
            case "places":
                return self._places(arguments, nonce)
            case _:
                return ""

    def _accounting(self, rows: list[AccountingRow], nonce: Nonce) -> str:
        return titles("ended", nonce) + "".join(nonce.gap.join((*row, row.raw_id)) + "\n" for row in rows)

    def _file(self, path: str, nonce: Nonce) -> str:
        if path not in self.files:
            return f"absent {path}{nonce.end}\n"
        size, seconds = self.files[path]
        return f"{size} {seconds} 2049 17 81a4 {path}{nonce.end}\n"

    def _places(self, arguments: list[str], nonce: Nonce) -> str:
        text = ""
        for at in range(0, len(arguments), 4):
            path, _, job, _ = arguments[at : at + 4]
            if path not in self.files:
                text += "".join(f"{job} {self._file(found, nonce)}" for found in self.places.get(job, ()))
        return text


def _value(script: str, name: str, nth: int = 0) -> str:
    found = re.findall(rf"^{name}=(.*)$", script, re.MULTILINE)
    return shlex.split(found[nth])[0]


def cluster_of(*logins: ScriptedLogin, **settings: object) -> SlurmCluster:
    given = {"login_nodes": tuple(login.name for login in logins), **settings}
    return SlurmCluster("alpha", SlurmSettings(**given), logins)  # type: ignore[arg-type]


def cluster_with_one_nonce(*logins: ScriptedLogin) -> SlurmCluster:
    """For many runs in one test: scripts, and so the answers to them, repeat."""
    settings = SlurmSettings(login_nodes=tuple(login.name for login in logins))
    return SlurmCluster("alpha", settings, logins, fresh_nonce=lambda: NONCE)


def watch_after(polled: Polled, **changes: object) -> Watch:
    """What would be remembered after this reading."""
    seen = {one.key.id: one for one in polled.changed}
    remembered = {
        "lines": polled.lines,
        "live": {job: one.key for job, one in seen.items() if one.state.live},
        "detailed": frozenset(one.key for one in (*polled.changed, *polled.ended) if one.details is not None),
        "ended_since": polled.at if polled.ends_read else None,
    }
    return Watch(**(remembered | changes))  # type: ignore[arg-type]


def key(job: str, incarnation: str) -> JobKey:
    return JobKey("alpha", job, incarnation)


def later(seconds: float) -> datetime:
    return TAKEN + timedelta(seconds=seconds)
