"""`supervisorctl diagnose`: why a job died, from its logs. Needs no config, no daemon and no database.

The daemon calls `diagnose_files`, which opens what it is given and asks the pure room.
"""

from __future__ import annotations

import argparse
import io
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from supervisor.model.errors import UsageError

if TYPE_CHECKING:
    from supervisor.app.packs import Prepared
    from supervisor.model.diagnosis import Diagnosis, FileReading, SchedulerRecord

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_HEAD = 4096
_PLAIN_CONTROL = frozenset(b"\t\n\r\x08\x0b\x0c\x1b\x00\x07")


@dataclass(frozen=True, slots=True)
class Source:
    """One log to read: a file by `path`, or bytes at hand. `name` is what the answer calls it.

    `offset` and `lines` resume a file behind what was read before (both of the plain text, so not for archives).
    `refused` is set for what is no log at all (a socket, a loop of links): it is reported, never opened.
    """

    name: str
    path: str | None = None
    data: bytes | None = None
    offset: int = 0
    lines: int = 0
    refused: str | None = None


def diagnose_files(
    sources: Sequence[Source],
    scheduler: SchedulerRecord | None = None,
    prepared: Prepared | None = None,
    progressed: Callable[[str, int], None] | None = None,
) -> Diagnosis:
    """Read all sources and give one answer. Blocking: call it in a thread.

    A source that can't be read is reported in the answer and never stops the others. `prepared` (catalogue and engine,
    from `supervisor.app.packs.prepare`) should be made once and reused; calls of several threads take turns.
    """
    from supervisor.app.packs import prepare
    from supervisor.diagnosis.diagnose import diagnose

    prepared = prepared or prepare()
    readings = []
    for source in sources:
        with prepared.lock:
            readings.append(read_source(source, prepared, progressed))
    return diagnose(readings, prepared.catalogue, scheduler)


def read_source(
    source: Source, prepared: Prepared, progressed: Callable[[str, int], None] | None = None
) -> FileReading:
    """Scan one source. Errors of the file become the reading's state and reason."""
    from supervisor.diagnosis.scan import Resumed
    from supervisor.model.diagnosis import FileReading

    if source.refused is not None:
        return FileReading(source.name, "unread", source.refused)
    if source.data is not None:
        return prepared.scanner.read(source.name, _Watched(io.BytesIO(source.data)), None)
    try:
        size = Path(source.path or "").stat().st_size
        with _opened(str(source.path), source.offset) as stream:
            if isinstance(stream, _Binary):
                return FileReading(source.name, "binary", stream.reason, bytes=size)
            watched = _Watched(stream)
            tell = None if progressed is None else lambda read: progressed(source.name, read)
            reading = prepared.scanner.read(source.name, watched, Resumed(source.offset, source.lines), tell)
        if watched.error is not None:
            state = "partly" if reading.bytes else "unread"
            return replace(reading, state=state, reason=f"read up to an error: {watched.error}")
        return reading
    except OSError as error:
        return FileReading(source.name, "unread", _os_reason(error))


def _os_reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


class _Watched:
    """A stream whose first error ends it and is remembered, so that what came before is still used."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.error: str | None = None

    def readinto(self, buffer: memoryview, /) -> int | None:
        try:
            got: int | None = self._stream.readinto(buffer)
        except EOFError:
            self.error = "the archive is cut off"
        except OSError as error:
            self.error = _os_reason(error)
        except Exception as error:  # isal and zstandard have error classes of their own
            if type(error).__module__.partition(".")[0] not in ("isal", "zstandard", "zlib", "_isal"):
                raise
            self.error = f"the archive is damaged ({error})"
        else:
            return got
        return 0


class _Binary(io.BytesIO):
    """Stands for a file that is no text."""

    reason = "looks like a binary file, not a log"


def _opened(path: str, offset: int) -> IO[bytes] | Any:
    """A `readinto` stream of plain text. The file's first bytes decide, not its name."""
    handle = Path(path).open("rb", buffering=0)  # noqa: SIM115
    try:
        head = handle.read(_HEAD)
        if not handle.seekable():
            return _Piped(head, handle)
        if head.startswith(_GZIP):
            handle.seek(0)
            return _Gzip(handle)
        if head.startswith(_ZSTD):
            handle.seek(0)
            return _Zstd(handle)
        if _is_binary(head):
            handle.close()
            return _Binary()
        handle.seek(offset)
        return handle
    except BaseException:
        handle.close()
        raise


class _Piped:
    """A pipe whose first bytes were read already."""

    def __init__(self, head: bytes, handle: IO[bytes]) -> None:
        self._head, self._handle = head, handle

    def readinto(self, buffer: memoryview, /) -> int | None:
        if not self._head:
            return self._handle.readinto(buffer)  # type: ignore[attr-defined, no-any-return]
        part = self._head[: len(buffer)]
        buffer[: len(part)] = part
        self._head = self._head[len(part) :]
        return len(part)

    def __enter__(self) -> _Piped:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()


class _Gzip:
    """Unpacks member after member. What comes before a cut is given out before the `EOFError` that tells of it."""

    def __init__(self, handle: IO[bytes]) -> None:
        from isal import isal_zlib

        self._new: Any = lambda: isal_zlib.decompressobj(wbits=31)
        self._handle, self._member = handle, self._new()
        self._packed = b""
        self._begun = False

    def readinto(self, buffer: memoryview, /) -> int:
        while True:
            if self._member.eof:
                self._packed = (self._member.unused_data or self._packed).lstrip(b"\0")
                self._member, self._begun = self._new(), False
            if not self._packed:
                self._packed = self._handle.read(1 << 20)
                if not self._packed:
                    if self._begun:
                        raise EOFError
                    return 0
            self._begun = True
            piece = self._member.decompress(self._packed, len(buffer))
            self._packed = b"" if self._member.eof else self._member.unconsumed_tail
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)

    def __enter__(self) -> _Gzip:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()


class _Zstd:
    """Unpacks frame after frame, a few packed kilobytes at once: enough to be quick, too few for a bomb.

    The library's own stream ends without a word where a file is cut off.
    """

    piece = 4 << 10

    def __init__(self, handle: IO[bytes]) -> None:
        import zstandard

        self._new: Any = zstandard.ZstdDecompressor().decompressobj
        self._handle = io.BufferedReader(handle, 1 << 20)  # type: ignore[type-var]
        self._frame = self._new()
        self._packed = self._plain = b""
        self._begun = False

    def readinto(self, buffer: memoryview, /) -> int:
        filled = 0
        while filled < len(buffer):
            if not self._plain and not self._unpack():
                if self._begun and not filled:
                    raise EOFError
                break
            part = self._plain[: len(buffer) - filled]
            buffer[filled : filled + len(part)] = part
            self._plain = self._plain[len(part) :]
            filled += len(part)
        return filled

    def _unpack(self) -> bool:
        """More plain bytes at hand; False at the end of the file, or where it is cut off."""
        while not self._plain:
            if self._frame.eof:
                self._packed, self._frame, self._begun = self._frame.unused_data, self._new(), False
            packed = self._packed or self._handle.read(self.piece)
            self._packed = b""
            if not packed:
                return False
            self._begun = True
            self._plain = self._frame.decompress(packed)
            if self._frame.eof and not self._frame.unused_data and self._plain:
                self._frame, self._begun = self._new(), False
        return True

    def __enter__(self) -> _Zstd:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()


def _is_binary(head: bytes) -> bool:
    """More than one in eight control characters, NULs aside: log files may hold holes."""
    text = head.replace(b"\0", b"")
    if not text:
        return False
    control = sum(1 for byte in text if byte < 32 and byte not in _PLAIN_CONTROL)
    return control * 8 > len(text) or head.startswith((b"\x7fELF", b"PK\x03\x04", b"\x89PNG", b"SQLite format 3"))


def find_sources(paths: Sequence[str]) -> list[Source]:
    """Files for the command line's PATHs: files, folders (walked, links followed once), globs and `-`.

    Raises `UsageError` for a path that is not there.
    """
    sources: list[Source] = []
    only = len(paths) == 1
    for path in paths:
        if path == "-":
            sources.append(Source("-", data=None, path="-"))
            continue
        matches = [path]
        if not os.path.lexists(path) and any(char in path for char in "*?["):
            import glob

            matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207
            if not matches:
                raise UsageError(f"diagnose: no file matches {path!r}")
        for match in matches:
            if not Path(match).exists():
                raise UsageError(f"diagnose: {match}: there is no such file or folder")
            if Path(match).is_dir():
                sources += _walk(match, relative=only and len(matches) == 1)
            else:
                sources.append(_file(match, match))
    return sources


def _walk(root: str, *, relative: bool) -> Iterator[Source]:
    seen: set[tuple[int, int]] = set()
    for folder, folders, names in os.walk(root, followlinks=True):
        try:
            info = Path(folder).stat()
        except OSError:
            continue
        if (info.st_dev, info.st_ino) in seen:
            folders.clear()
            continue
        seen.add((info.st_dev, info.st_ino))
        folders[:] = sorted(name for name in folders if name not in (".git", "__pycache__"))
        for name in sorted(names):
            path = os.path.join(folder, name)  # noqa: PTH118
            yield _file(path, os.path.relpath(path, root) if relative else path)


def _file(path: str, name: str) -> Source:
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        return Source(name, refused=_os_reason(error))
    if stat.S_ISREG(mode):
        return Source(name, path=path)
    kinds = {stat.S_IFSOCK: "a socket", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    if stat.S_ISFIFO(mode) and name == path:
        return Source(name, path=path)
    return Source(name, refused=f"it is {kinds.get(stat.S_IFMT(mode), 'no regular file')}, not a log")


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add `diagnose` to an argparse command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "diagnose",
        help="root cause of a log file or folder; needs no daemon and no config",
        description="Names the first cause of a failure in logs, with the line that shows it. Nothing leaves this machine.",
        epilog="example: supervisorctl diagnose slurm-4711.out ray_session_logs/\n"
        "         kubectl logs trainer-0 | supervisorctl diagnose -",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _arguments(parser)
    return parser


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="file, folder, glob, .gz or .zst; - is standard input")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    parser.add_argument(
        "--pack", action="append", default=[], type=Path, help="a signature pack of your own (repeatable)"
    )
    parser.add_argument(
        "--off", action="append", default=[], metavar="CODE", help="switch a signature off (repeatable)"
    )
    parser.add_argument(
        "--engine", choices=("auto", "hyperscan", "re2"), default="auto", help="scan engine (default auto)"
    )
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colour the text (default auto)"
    )


def run(options: argparse.Namespace) -> int:
    """Exit status: 0 an answer was given, 2 nothing could be read or the command is wrong."""
    from supervisor.app import diagnose_view as view
    from supervisor.app.packs import prepare
    from supervisor.diagnosis.catalogue import PackError

    started = time.perf_counter()
    try:
        prepared = prepare(options.pack, options.off, options.engine)
        sources = find_sources(options.paths)
    except (UsageError, PackError) as error:
        print(f"supervisorctl: {error}", file=sys.stderr)
        return 2
    bar = view.Bar(sys.stderr, sources)
    readings = []
    for source in sources:
        readings.append(_standard_input(prepared) if source.path == "-" else read_source(source, prepared, bar.moved))
    bar.gone()
    from supervisor.diagnosis.diagnose import diagnose

    answer = diagnose(readings, prepared.catalogue)
    took = time.perf_counter() - started
    if options.json:
        sys.stdout.write(view.as_json(answer, took) + "\n")
    else:
        colour = options.color == "always" or (options.color == "auto" and sys.stdout.isatty())
        paths = {source.name: source.path for source in sources if source.path}
        sys.stdout.write(view.as_text(answer, took, paths, colour=colour))
    return 2 if answer.category == "unread" else 0


def _standard_input(prepared: Prepared) -> FileReading:
    watched = _Watched(sys.stdin.buffer.raw if hasattr(sys.stdin.buffer, "raw") else sys.stdin.buffer)
    reading = prepared.scanner.read("-", watched)
    return replace(reading, state="partly", reason=watched.error) if watched.error else reading


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m supervisor.app.diagnose PATH… [--json]`."""
    parser = argparse.ArgumentParser(prog="diagnose", description=__doc__)
    _arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
