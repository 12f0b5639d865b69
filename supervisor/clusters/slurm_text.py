"""What a login node printed, turned into rows. Pure, and nothing is believed that is not whole (POLL-1, POLL-2)."""

from __future__ import annotations

import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from supervisor.clusters.shell import Ran
from supervisor.clusters.slurm_commands import ACCOUNTING_FIELDS, DETAIL_FIELDS, QUEUE_FIELDS, UNIT, Nonce
from supervisor.model.errors import AnswerUnusable, ClusterError, CommandFailed

# -- the frame ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """One command of a script: what it printed and how it ended."""

    name: str
    status: int
    out: bytes
    said: str
    """Its standard error."""

    @property
    def text(self) -> str:
        return safe_text(self.out)

    @property
    def failure(self) -> str | None:
        """Why nothing in it is believed; None for a part that is positively good (POLL-2)."""
        said = self.said.strip()
        if self.status == 124:
            return f"{self.name}: no answer in time" + (f" ({_short(said)})" if said else "")
        trouble = trouble_in(self.said)
        if self.status > 128:
            which = self.status - 128
            who = ", by the login node or because it did not stop when its time was up" if which == 9 else ""
            told = _short(trouble or said)
            return f"{self.name}: ended by signal {which}{who}" + (f" ({told})" if told else "")
        if self.status != 0 or trouble:
            return _short(trouble or said or f"exit status {self.status}")
        return None


@dataclass(frozen=True, slots=True)
class Answer:
    """All parts of one whole answer, in order."""

    parts: tuple[Part, ...]

    def get(self, name: str) -> Part | None:
        """The first part of this name."""
        return next((part for part in self.parts if part.name == name), None)

    def all(self, name: str) -> Sequence[Part]:
        return [part for part in self.parts if part.name == name]


def read_answer(cluster: str, place: str, ran: Ran, nonce: Nonce) -> Answer:
    """The parts of an answer that came whole. Raises CommandFailed or AnswerUnusable for any other."""
    if ran.truncated:
        raise AnswerUnusable(cluster, f"{place} sent more than was allowed for; nothing of it counts")
    if ran.exit_status != 0:
        raise CommandFailed(cluster, f"the script on {place}", ran.exit_status, safe_text(ran.stderr))
    pieces = ran.stdout.split(b"\n" + nonce.mark.encode() + b" ")
    if len(pieces) < 2 or pieces[-1] != b"whole\n":
        raise AnswerUnusable(cluster, f"the answer of {place} is cut off")
    body = pieces[1:-1]
    if len(body) % 3:
        raise AnswerUnusable(cluster, f"the answer of {place} is garbled")
    return Answer(tuple(_part(cluster, place, *body[at : at + 3]) for at in range(0, len(body), 3)))


def _part(cluster: str, place: str, begin: bytes, said: bytes, end: bytes) -> Part:
    head, newline, out = begin.partition(b"\n")
    said_head, said_newline, said_text = said.partition(b"\n")
    words, said_words, end_words = head.split(), said_head.split(), end.split()
    framed = (
        newline and said_newline and len(words) == 2 and len(end_words) == 3 and end_words[2].isdigit()
        and words[0] == b"begin" and end_words[0] == b"end"
        and said_words == [b"said", words[1]] and end_words[1] == words[1]
    )  # fmt: skip
    if not framed:
        raise AnswerUnusable(cluster, f"the answer of {place} is garbled")
    return Part(words[1].decode("ascii", "replace"), int(end_words[2]), out, safe_text(said_text))


TROUBLE = (
    "slurm_load_jobs error",
    "Unable to contact slurm controller",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Communication connection failure",
    "Protocol authentication error",
    "standby mode",
    "Problem talking to the database",
    "Unable to connect to database",
    "Sending PersistInit msg",
    "Resource temporarily unavailable",
    "Cannot allocate memory",
    "Cannot fork",
    "Connection refused",
    "Unable to process configuration",
    "Could not establish a configuration source",
    "Invalid job format specification",
)
"""Words of a client that could not do its work. Where one of them is printed nothing else counts, whatever the exit status."""

ACCOUNTING_IS_OFF = "Slurm accounting storage is disabled"
UNKNOWN_JOB = "Invalid job id specified"
"""What ``squeue -j`` says, with exit status 1, when it knows none of the ids: they ended and were purged. No outage."""


def trouble_in(said: str) -> str | None:
    """The line that holds a word of trouble."""
    if any(word in said for word in TROUBLE):
        for line in said.splitlines():
            if any(word in line for word in TROUBLE):
                return line.strip()
    return None


def safe_text(data: bytes) -> str:
    """Text that every store takes: what is no UTF-8 stays readable as an escape, and NUL is spelt out."""
    return data.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def _short(text: str) -> str:
    return text if len(text) <= 300 else text[:300] + "…"


def good(cluster: str, place: str, answer: Answer, name: str, command: str) -> Part:
    """A part that must be there and good. Raises CommandFailed or AnswerUnusable."""
    part = answer.get(name)
    if part is None:
        raise AnswerUnusable(cluster, f"the answer of {place} lacks what {command} says")
    if (failure := part.failure) is not None:
        raise ClusterError(cluster, f"{command} on {place}: {failure}")
    return part


# -- the queue ---------------------------------------------------------------------------------------------------------


class QueueRow(NamedTuple):
    """One record of squeue, as text, in the order of QUEUE_FIELDS."""

    start: str
    stop: str
    shown_id: str
    state: str
    user: str
    raw_id: str
    submit: str
    restarts: str
    account: str
    partition: str
    reason: str
    limit: str
    node_count: str
    nodes: str
    exit_code: str
    dependency: str
    name: str

    @property
    def id(self) -> str:
        return id_of(self.shown_id)


NOT_STARTED = f"N/A{UNIT}N/A{UNIT}"
"""How the fingerprint of a waiting job begins: its expected times move with every round of the scheduler."""
_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
_BETWEEN = len(QUEUE_FIELDS) - 1
_SHOWN = re.compile(r"[0-9]+(?:_[0-9]+|_\[[0-9,:%-]*(?:\.\.\.)?\]|\+[0-9]+)?")


class Queue(NamedTuple):
    """A whole queue: fingerprints by id, and the rows whose fingerprint is new."""

    lines: dict[str, str]
    fresh: list[QueueRow]


def read_queue(text: str, nonce: Nonce, known: Mapping[str, object], users: Collection[str]) -> Queue:
    """``text`` of ``squeue -O QUEUE_FIELDS``. Raises ValueError for anything but titles and whole records (POLL-2).

    A record that stands in ``known`` word for word is not taken apart. Records of users that were not asked for are left
    out (POLL-8).
    """
    records = below_titles(text, nonce, UNIT, len(QUEUE_FIELDS))
    same = {line: job for job, line in known.items() if isinstance(line, str)}
    lines: dict[str, str] = {}
    fresh: list[QueueRow] = []
    make, keep, between = partial(tuple.__new__, QueueRow), fresh.append, _BETWEEN
    unit, waiting = UNIT, _WAITING
    for line in records:
        if same and (job := same.get(line)) is not None:
            lines[job] = line
            continue
        fields = line.split(unit, between)
        if len(fields) <= between:
            raise ValueError(f"squeue printed a record of {len(fields)} fields, not {between + 1}")
        start = fields[0]
        if start != "N/A" and not start.isdecimal():
            raise ValueError(f"squeue printed {start[:80]!r} where a time belongs")
        if fields[3] in waiting and (start != "N/A" or fields[1] != "N/A"):
            fields[0] = fields[1] = "N/A"
            line = unit.join(fields)  # noqa: PLW2901
            if (job := same.get(line)) is not None:
                lines[job] = line
                continue
        if fields[4] in users:
            shown = fields[2]
            lines[shown if shown.isdecimal() else id_of(shown)] = line
            keep(make(fields))
    return Queue(lines, fresh)


def below_titles(text: str, nonce: Nonce, between: str, width: int) -> list[str]:
    """Records of squeue without the titles above them, which differ from version to version. Raises ValueError."""
    records = text.split(f"{nonce.end}\n")
    if rest := records.pop():
        said = trouble_in(rest) or rest.strip()
        raise ValueError(f"squeue's answer does not end with a whole record: {said[-120:]!r}")
    if not records:
        raise ValueError("squeue printed nothing, not even its titles")
    titles = records[0].split(between)
    if len(titles) != width or not all(_TITLE.fullmatch(title) for title in titles):
        said = trouble_in(records[0]) or records[0].strip()
        raise ValueError(f"squeue printed {said[:120]!r} where its titles belong")
    del records[0]
    return records


_TITLE = re.compile(r"[A-Za-z][A-Za-z0-9_:/() .-]*")


def row_of(line: str) -> QueueRow:
    """A fingerprint of :func:`read_queue` taken apart again."""
    return QueueRow._make(line.split(UNIT, _BETWEEN))


def id_of(shown: str) -> str:
    """Our id for a job as Slurm shows it: ``123``, ``6_3``, ``35+1``.

    The waiting rest of an array, ``6_[2-9%4]``, is one job with the array's own id: that is what Slurm itself calls it
    once it is cancelled, and the name stays the same while its tasks start one by one. Raises ValueError for no id.
    """
    job, under, task = shown.partition("_")
    if job.isdecimal() and (task.isdecimal() or not under):
        return shown
    if not _SHOWN.fullmatch(shown):
        raise ValueError(f"squeue printed {shown[:80]!r} where a job's id belongs")
    return job if task.startswith("[") else shown


def group_of(shown: str) -> str | None:
    """What siblings share: the id of their array or heterogeneous job (POLL-11)."""
    found = re.match(r"([0-9]+)[_+]", shown)
    return found[1] if found else None


def tasks_in(shown: str) -> int:
    """How many tasks a record stands for: ``6_[1-5,9:2%3]``. 1 for anything else."""
    _, bracket, inside = shown.partition("_[")
    if not bracket:
        return 1
    count = 0
    for span in inside.rstrip("]").partition("%")[0].split(","):
        found = re.fullmatch(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?", span)
        if found:
            first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
            count += max(last - first, 0) // max(step, 1) + 1
    return max(count, 1)


# -- accounting --------------------------------------------------------------------------------------------------------


class AccountingRow(NamedTuple):
    """One allocation of sacct, as text, in the order of ACCOUNTING_FIELDS but the last. A requeued job has several."""

    shown_id: str
    raw_id: str
    state: str
    exit_code: str
    submit: str
    start: str
    stop: str
    user: str
    account: str
    partition: str
    node_count: str
    nodes: str
    limit_min: str
    workdir: str
    name: str

    @property
    def id(self) -> str:
        return id_of(self.shown_id)

    @property
    def submitted(self) -> int:
        return int(self.submit) if self.submit.isdecimal() else 0


def read_accounting(text: str, nonce: Nonce) -> list[AccountingRow]:
    """``text`` of ``sacct -P -o ACCOUNTING_FIELDS``. Raises ValueError for anything but titles and whole records (POLL-2)."""
    titles = nonce.gap.join(ACCOUNTING_FIELDS) + "\n"
    if not text:
        raise ValueError("sacct printed nothing, not even its titles")
    if not text.endswith("\n"):
        raise ValueError("sacct's answer does not end with a whole record")
    head, _, text = text.partition("\n")
    if f"{head}\n".casefold() != titles.casefold():
        raise ValueError(f"sacct printed {(trouble_in(head) or head)[:120]!r} where its titles belong")
    if not text:
        return []
    pieces = text.split(nonce.gap)
    width = len(ACCOUNTING_FIELDS) - 1
    if (len(pieces) - 1) % width or len(pieces) == 1:
        raise ValueError(f"sacct printed {len(pieces)} fields, which is no whole number of records")
    rows = []
    shown = pieces[0]
    for at in range(1, len(pieces), width):
        row = AccountingRow._make((shown, *pieces[at : at + width - 1]))
        id_of(row.shown_id)
        # Where one record ends and the next begins stand the raw id, a line end, and the next id.
        closing, _, shown = pieces[at + width - 1].partition("\n")
        if closing != row.raw_id:
            raise ValueError(f"sacct printed {closing[:80]!r} where the record of {row.shown_id} ends")
        rows.append(row)
    if shown:
        raise ValueError(f"sacct printed {shown[:80]!r} after its last record")
    return rows


# -- details, files, numbers -------------------------------------------------------------------------------------------


class DetailRow(NamedTuple):
    """One record of the second question, as text, in the order of DETAIL_FIELDS."""

    shown_id: str
    submit: str
    raw_id: str
    array_id: str
    task_id: str
    user: str
    restarts: str
    batch: str
    batch_host: str
    out: str
    err: str
    workdir: str
    command: str
    name: str

    @property
    def id(self) -> str:
        return id_of(self.shown_id)


def read_details(text: str, nonce: Nonce) -> list[DetailRow]:
    """Raises ValueError for anything but titles and whole records."""
    rows = []
    for record in below_titles(text, nonce, nonce.gap, len(DETAIL_FIELDS)):
        fields = record.split(nonce.gap)
        if len(fields) != len(DETAIL_FIELDS):
            raise ValueError(f"squeue printed a record of {len(fields)} fields, not {len(DETAIL_FIELDS)}")
        row = DetailRow._make(fields)
        id_of(row.shown_id)
        rows.append(row)
    return rows


class FileRow(NamedTuple):
    """One file as ``stat`` saw it. ``seconds`` is None where it is positively not there."""

    path: str
    size: int = 0
    seconds: int | None = None
    device: int = 0
    inode: int = 0
    mode: int = stat.S_IFREG
    """Its kind and permissions, as in ``st_mode``."""
    readable: bool = True
    """Whether the user of the login may read it."""

    @property
    def trouble(self) -> str | None:
        """Why no log text can come out of it."""
        if not stat.S_ISREG(self.mode):
            return f"not a regular file but {_KINDS.get(stat.S_IFMT(self.mode), 'something else')}"
        return None if self.readable else "permission denied"


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


_FILE = re.compile(r"([0-9]+) (-?[0-9]+) ([0-9]+) ([0-9]+) ([0-9a-f]+) (.+)", re.DOTALL)


def read_files(text: str, nonce: Nonce) -> Iterator[FileRow]:
    """Records of LOG_STAT. What is no record is passed over: a file that it does not speak of stays unread."""
    for record in text.split(f"{nonce.end}\n")[:-1]:
        if record.startswith("absent "):
            yield FileRow(record.removeprefix("absent "))
        elif record.startswith("unreadable "):
            yield FileRow(record.removeprefix("unreadable "), seconds=0, readable=False)
        elif (found := _FILE.fullmatch(record)) is not None:
            yield FileRow(found[6], int(found[1]), int(found[2]), int(found[3]), int(found[4]), int(found[5], 16))


def read_places(text: str, nonce: Nonce) -> dict[str, list[FileRow]]:
    """Records of LIST_PLACES: for each job's id the files that bear it."""
    found: dict[str, list[FileRow]] = {}
    for record in text.split(f"{nonce.end}\n")[:-1]:
        job, _, rest = record.partition(" ")
        found.setdefault(job, []).extend(read_files(f"{rest}{nonce.end}\n", nonce))
    return found
