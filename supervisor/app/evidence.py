"""Evidence folders: what a probe captured, written down whole before anything judges it (PROBE-1).

One folder per probe, readable by us alone. A folder counts once its manifest is there, which is written last; one without is
what a crash left, and is begun anew. Names in it are made from roles, nodes and numbers, never from a job's or a file's name.
Text is scrubbed of secrets, line by line, so that line numbers stay those of what was captured.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from supervisor.app.agent_logs import safe_name
from supervisor.model.errors import SupervisorError, Unproven
from supervisor.model.job import JobKey
from supervisor.model.probe import Captured, Exhibit, Role
from supervisor.model.secrets import scrubbed

MANIFEST = "manifest.json"
_SUSPICIOUS = re.compile(
    rb"(?i)key|secret|token|passw|passphrase|credential|hf_|sk-|gh[a-z]_|github_pat_|glpat-|xox|a[ks]ia|aiza|nvapi-|eyj|bearer|basic|wandb|://"
)
"""A line without any of these holds nothing that scrubbing would hide; most lines are passed over by this."""
_PIECE = 64 << 10
"""Characters of a line that are scrubbed at once; a longer line is taken in pieces, cut between words."""
_EXTENSION = {Role.LOG: "log", Role.SESSION_LOG: "log", Role.TRIALS: "json", Role.SCRIPT: "sh"}


class EvidenceUnwritten(SupervisorError):
    """The disk refused a part of the evidence; what was captured is not believed to be whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A file of the folder that no capture brought: written from what the store knows."""

    file: str
    sha256: str
    bytes: int
    lines: int


@dataclass(frozen=True)
class Folder:
    """An evidence folder that is whole: its manifest, and its files as lines. Made by :func:`open_folder`."""

    path: Path
    job: JobKey
    attempt: int
    taken_at: datetime
    exhibits: tuple[Exhibit, ...]
    papers: tuple[Paper, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else was known when the evidence was taken, as its writer put it."""

    @cached_property
    def _read(self) -> dict[str, list[str]]:
        return {}

    @property
    def names(self) -> dict[str, str]:
        """Each file that the manifest names, with its hash."""
        mine = {each.file: each.sha256 for each in self.exhibits if each.file is not None and each.sha256 is not None}
        return mine | {each.file: each.sha256 for each in self.papers}

    def data(self, file: str) -> bytes:
        """A file's content, unpacked. Raises KeyError for one that the manifest does not name, Unproven for one that is gone
        or not as it was captured."""
        wanted = self.names[file]
        data = _content(self.path / file)
        if hashlib.sha256(data).hexdigest() != wanted:
            raise Unproven(
                f"{self.path / file}: its content is not what was captured: its hash differs from the manifest's"
            )
        return data

    def lines(self, file: str) -> Sequence[str]:
        """Lines of a file as the gates see them: without their ends, bytes outside of UTF-8 as lone surrogates."""
        if file not in self._read:
            self._read[file] = lines_of(self.data(file))
        return self._read[file]


def lines_of(data: bytes) -> list[str]:
    """``data`` as lines, split at newlines only; a carriage return at a line's end belongs to that end."""
    text = data.decode("utf-8", "surrogateescape")
    parts = text.split("\n")
    if parts and not parts[-1]:
        parts.pop()
    return [part.removesuffix("\r") for part in parts]


def clean(data: bytes) -> bytes:
    """``data`` without what looks like a secret. The number of its lines is the same."""
    if _SUSPICIOUS.search(data) is None:
        return data
    return b"".join(_clean_lines(data))


def _clean_lines(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        found = _SUSPICIOUS.search(data, at)
        if found is None:
            yield data[at:]
            return
        start = data.rfind(b"\n", at, found.start()) + 1 or at
        end = data.find(b"\n", found.end())
        end = len(data) if end < 0 else end
        yield data[at:start]
        line = data[start:end].decode("utf-8", "surrogateescape")
        pieces = [line] if len(line) <= _PIECE else _cut(line)
        yield "".join(map(scrubbed, pieces)).encode("utf-8", "surrogateescape")
        at = end


def _cut(line: str) -> Iterator[str]:
    at = 0
    while at < len(line):
        end = at + _PIECE
        if end < len(line):
            end = max(line.rfind(" ", at + _PIECE // 2, end), line.rfind(",", at + _PIECE // 2, end)) + 1 or end
        yield line[at:end]
        at = end


class Evidence:
    """The folder of evidence folders. Blocking: its work belongs in a thread."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def name(self, job: JobKey, mark: str) -> Path:
        """Where the evidence of one probe lies. ``mark`` tells it from every other of the same job."""
        return self.root / f"{safe_name(job.cluster)}-{safe_name(job.id)}-{safe_name(mark)}"

    def begin(self, path: Path) -> None:
        """An empty folder; what a crash left under that name is thrown away. Raises EvidenceUnwritten."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            if path.exists():
                shutil.rmtree(path)
            path.mkdir(mode=0o700)
        except OSError as error:
            raise EvidenceUnwritten(f"{path}: no evidence folder could be made: {_said(error)}") from error

    def write(
        self,
        path: Path,
        job: JobKey,
        attempt: int,
        taken_at: datetime,
        captured: Sequence[Captured],
        papers: Mapping[str, bytes] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Folder:
        """Write all of it down, the manifest last. Raises EvidenceUnwritten where the disk refuses; then nothing of it is left."""
        self.begin(path)
        known = self._known(path, job)
        exhibits: list[Exhibit] = []
        written: list[Paper] = []
        names: set[str] = set()
        try:
            for each in captured:
                exhibits.append(self._exhibit(path, each, taken_at, names, known))
            for name, data in (papers or {}).items():
                text = clean(data)
                digest = self._put(path / name, text, known)
                written.append(Paper(file=name, sha256=digest, bytes=len(text), lines=len(lines_of(text))))
            folder = Folder(path, job, attempt, taken_at, tuple(exhibits), tuple(written), dict(facts or {}))
            body = json.dumps(_manifest(folder), ensure_ascii=True, indent=1).encode()
            _durable(path / MANIFEST, body)
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            raise EvidenceUnwritten(f"{path}: the evidence could not be written: {_said(error)}") from error
        return folder

    def _exhibit(
        self, path: Path, piece: Captured, taken_at: datetime, names: set[str], known: Mapping[str, Path]
    ) -> Exhibit:
        told: dict[str, Any] = {
            "role": piece.role,
            "command": scrubbed(piece.command)[:4000],
            "taken_at": taken_at,
            "took_s": round(piece.took_s, 3),
            "node": piece.node,
            "source": scrubbed(piece.source) if piece.source else piece.source,
            "exit_status": piece.exit_status,
        }
        if piece.data is None:
            return Exhibit(**told, failure=scrubbed(piece.failure or "")[:8000], first_line=None)
        data = clean(piece.data)
        name = _file_name(piece, names)
        digest = self._put(path / name, data, known)
        lines = len(lines_of(data))
        return Exhibit(
            **told, file=name, sha256=digest, bytes=len(data), lines=lines, first_line=piece.first_line, cut=piece.cut
        )

    def _put(self, path: Path, data: bytes, known: Mapping[str, Path]) -> str:
        """Write one file, or link it where an earlier probe of the job holds the very same; its hash."""
        digest = hashlib.sha256(data).hexdigest()
        same = known.get(digest)
        if same is not None and len(data) > 0:
            try:
                if hashlib.sha256(same.read_bytes()).hexdigest() == digest:
                    path.hardlink_to(same)
                    return digest
            except OSError:
                path.unlink(missing_ok=True)  # no such links here, or the earlier one is going: then a copy
        _durable(path, data)
        return digest

    def _known(self, path: Path, job: JobKey) -> dict[str, Path]:
        """Files of the newest earlier probe of this job that are not packed yet, by hash."""
        stem = f"{safe_name(job.cluster)}-{safe_name(job.id)}-"
        found: tuple[float, Path] | None = None
        for each in self.root.glob(f"{stem}*/{MANIFEST}"):
            if each.parent != path and (found is None or each.stat().st_mtime > found[0]):
                found = (each.stat().st_mtime, each.parent)
        if found is None:
            return {}
        try:
            earlier = open_folder(found[1], check=False)
        except Unproven:
            return {}
        if earlier.job != job:
            return {}
        return {digest: earlier.path / name for name, digest in earlier.names.items() if (earlier.path / name).exists()}


def open_folder(path: Path, *, check: bool = True) -> Folder:
    """An evidence folder that is whole. Raises Unproven: no manifest, a damaged one, a file gone or not as it was captured.

    ``check``: read every file and compare its hash now; else each is compared when it is read.
    """
    try:
        raw = json.loads((path / MANIFEST).read_bytes())
        folder = _folder(path, raw)
    except OSError as error:
        raise Unproven(f"{path}: no evidence there: {_said(error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Unproven(f"{path / MANIFEST}: damaged: {error}") from error
    if check:
        for name in folder.names:
            folder.data(name)
    return folder


def _content(path: Path) -> bytes:
    """The bytes of a file, packed or not. Raises Unproven where it is gone or cannot be read."""
    packed = path.with_name(path.name + ".zst")
    try:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            import zstandard

            with packed.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
                return bytes(stream.read())
    except OSError as error:
        raise Unproven(f"{path}: this part of the evidence cannot be read: {_said(error)}") from error
    except Exception as error:  # zstandard's own errors have no common base with ours; the file is damaged
        raise Unproven(f"{packed}: this part of the evidence is damaged: {error}") from error


def _file_name(piece: Captured, names: set[str]) -> str:
    stem = piece.role.value + (f"-{safe_name(piece.node)}" if piece.node else "")
    extension = _EXTENSION.get(piece.role, "txt")
    number, name = 1, f"{stem}.{extension}"
    while name.lower() in names:
        number += 1
        name = f"{stem}-{number}.{extension}"
    names.add(name.lower())
    return name


def _manifest(folder: Folder) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "job": {"cluster": folder.job.cluster, "id": folder.job.id, "incarnation": folder.job.incarnation},
        "attempt": folder.attempt,
        "taken_at": folder.taken_at.isoformat(),
        "exhibits": [asdict(each) | {"role": each.role.value, "taken_at": each.taken_at.isoformat()} for each in folder.exhibits],
        "papers": [asdict(each) for each in folder.papers],
        "facts": folder.facts,
    }  # fmt: skip


def _folder(path: Path, raw: Mapping[str, Any]) -> Folder:
    if raw["schema_version"] != 1:
        raise ValueError(f"its form is version {raw['schema_version']}, not 1")
    mine = {each.name for each in fields(Exhibit)}
    exhibits = []
    for each in raw["exhibits"]:
        values = {key: value for key, value in each.items() if key in mine}
        taken = datetime.fromisoformat(each["taken_at"])
        exhibits.append(Exhibit(**(values | {"role": Role(each["role"]), "taken_at": taken})))
    papers = tuple(Paper(**each) for each in raw["papers"])
    names = [each.file for each in exhibits if each.file is not None] + [each.file for each in papers]
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or name.startswith("."):
            raise ValueError(f"it names a file outside its folder: {name!r}")
    if len(set(names)) != len(names):
        raise ValueError("it names a file twice")
    job = JobKey(raw["job"]["cluster"], raw["job"]["id"], raw["job"]["incarnation"])
    taken_at = datetime.fromisoformat(raw["taken_at"])
    if taken_at.tzinfo is None:
        raise ValueError("its time has no zone")
    return Folder(path, job, int(raw["attempt"]), taken_at, tuple(exhibits), papers, dict(raw["facts"]))


def _durable(path: Path, data: bytes) -> None:
    """Whole or not there, also after a power cut."""
    part = path.with_name(path.name + ".part")
    line = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(line, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _said(error: OSError) -> str:
    return error.strerror or str(error)
