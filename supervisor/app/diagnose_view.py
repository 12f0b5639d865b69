"""A diagnosis as JSON for scripts and as text for people."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from supervisor.app.diagnose import Source
    from supervisor.model.diagnosis import Diagnosis, Quote

SCHEMA_VERSION = 1
_UNSAFE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CONTEXT = 3
_SHOWN_ECHOES = 4


def exact(text: bytes) -> str:
    """Bytes as text that gives them back: UTF-8, bytes outside of it as lone surrogates (`surrogateescape`)."""
    return text.decode("utf-8", "surrogateescape")


def as_document(answer: Diagnosis, took_s: float | None = None) -> dict[str, Any]:
    """The contract's `diagnose --json` document."""
    progress = answer.progress
    cause = None
    if answer.cause is not None:
        cause = _quote(answer.cause) | {"rank": answer.cause.rank, "node": answer.cause.node}
    exception = None
    if answer.exception is not None:
        frame = answer.exception.own_frame
        exception = {
            "type": answer.exception.type,
            "message": answer.exception.message,
            "frame": {"path": frame.path, "line": frame.line, "function": frame.function} if frame else None,
        }
    return {
        "schema_version": SCHEMA_VERSION,
        "category": answer.category,
        "confidence": answer.confidence,
        "transience": answer.transience,
        "cause": cause,
        "summary": answer.summary,
        "action": answer.action,
        "fingerprint": answer.fingerprint or None,
        "reasons": list(answer.reasons),
        "exception": exception,
        "echoes": [_quote(echo) for echo in answer.echoes],
        "echoes_left_out": answer.echoes_left_out,
        "noise": [
            {
                "signature": noise.signature,
                "file": noise.file,
                "count": noise.count,
                "first_line": noise.first_line,
                "last_line": noise.last_line,
                "why": noise.why,
            }
            for noise in answer.noise
        ],
        "ruled_out": [_quote(out.quote) | {"category": out.category, "why": out.why} for out in answer.ruled_out],
        "progress": None
        if progress is None
        else {"step": progress.step, "total": progress.total, "line": progress.line},
        "absent_ranks": list(answer.absent_ranks),
        "missing": list(answer.missing),
        "read": {
            "bytes": sum(reading.bytes for reading in answer.files if reading.state in ("read", "partly")),
            "took_s": None if took_s is None else round(took_s, 4),
            "files": [
                {
                    "path": reading.path,
                    "bytes": reading.bytes,
                    "lines": reading.lines,
                    "state": reading.state,
                    "reason": reading.reason,
                }
                for reading in answer.files
            ],
        },
    }


def as_json(answer: Diagnosis, took_s: float | None = None) -> str:
    """One line of JSON, ASCII only, so that any byte of a log survives any terminal and pipe."""
    return json.dumps(as_document(answer, took_s))


def _quote(quote: Quote) -> dict[str, Any]:
    return {
        "file": quote.file,
        "line": quote.line,
        "offset": quote.offset,
        "text": exact(quote.text),
        "signature": quote.signature,
    }


def harmless(text: bytes | str, width: int = 240) -> str:
    """Untrusted text for a terminal: no escape codes, no control characters, cut to a width."""
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    words = _UNSAFE.sub("", words.replace("\t", "    "))
    return words if len(words) <= width else words[: width - 1] + "…"


class _Paint:
    def __init__(self, *, colour: bool) -> None:
        self._on = colour

    def __call__(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._on else text


def as_text(answer: Diagnosis, took_s: float, paths: Mapping[str, str], *, colour: bool) -> str:
    """The answer for people. `paths`: where named files lie, for the lines around the cause."""
    paint = _Paint(colour=colour)
    tone = "32" if answer.category == "none" else "33" if answer.category == "unread" else "31;1"
    lines = [
        f"{paint(tone, answer.category)}  {answer.confidence} confidence"
        + (f", {answer.transience}" if answer.transience != "unknown" else ""),
        f"  {harmless(answer.summary, 600)}",
    ]
    if answer.cause is not None:
        lines += ["", *_context(answer.cause, paths, paint)]
    if answer.exception is not None and (frame := answer.exception.own_frame):
        lines += ["", f"  your code: {harmless(frame.path)}:{frame.line} in {harmless(frame.function)}"]
    lines += ["", f"  what to do: {answer.action}"]
    lines += [f"  why: {harmless(reason)}" for reason in answer.reasons]
    lines += [f"  missing: {harmless(missing, 400)}" for missing in answer.missing]
    lines += _echo_lines(answer, paint)
    for out in answer.ruled_out[:6]:
        lines.append(
            paint("2", f"  ruled out: {harmless(out.quote.file)}:{out.quote.line} {harmless(out.quote.text, 100)}")
        )
        lines.append(paint("2", f"             {harmless(out.why)}"))
    for noise in answer.noise[:6]:
        place = f"lines {noise.first_line} to {noise.last_line}" if noise.count > 1 else f"line {noise.first_line}"
        lines.append(paint("2", f"  noise: {noise.signature} x{noise.count}, {place}: {noise.why}"))
    total = sum(reading.bytes for reading in answer.files)
    count = sum(1 for reading in answer.files if reading.state in ("read", "partly"))
    lines += ["", paint("2", f"  read {count} of {len(answer.files)} files, {_size(total)} in {took_s:.2f} s")]
    return "\n".join(lines) + "\n"


def _echo_lines(answer: Diagnosis, paint: _Paint) -> list[str]:
    echoes = answer.echoes
    if not echoes:
        return []
    kinds: dict[str, list[Quote]] = {}
    for echo in echoes:
        kinds.setdefault(echo.signature, []).append(echo)
    lines = [paint("2", f"  {len(echoes) + answer.echoes_left_out} lines only echo it:")]
    for kind, quotes in list(kinds.items())[:_SHOWN_ECHOES]:
        first = quotes[0]
        lines.append(paint("2", f"    {kind} x{len(quotes)}: {first.file}:{first.line} {harmless(first.text, 100)}"))
    return lines


def _context(cause: Quote, paths: Mapping[str, str], paint: _Paint) -> list[str]:
    place = paint("1", f"{harmless(cause.file)}:{cause.line}")
    before, after = _around(cause, paths.get(cause.file))
    shown = [f"  {place}"]
    shown += [paint("2", f"    {number:>8}  {harmless(text)}") for number, text in before]
    shown.append(f"  > {cause.line:>8}  {paint('31', harmless(cause.text, 600))}")
    shown += [paint("2", f"    {number:>8}  {harmless(text)}") for number, text in after]
    return shown


def _around(cause: Quote, path: str | None) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    """Lines above and below the cause, read again from plain files; nothing for streams and archives."""
    if path is None or path == "-":
        return [], []
    try:
        with Path(path).open("rb") as handle:
            start = max(0, cause.offset - 8192)
            handle.seek(start)
            above = handle.read(cause.offset - start).split(b"\n")[:-1]
            rest = handle.read(16384).split(b"\n")
    except OSError:
        return [], []
    if cause.text not in rest[0]:
        return [], []
    whole = above if start == 0 else above[1:]
    before = [(cause.line - len(whole[-_CONTEXT:]) + n, text) for n, text in enumerate(whole[-_CONTEXT:])]
    after = [(cause.line + 1 + n, text) for n, text in enumerate(rest[1 : 1 + _CONTEXT]) if text or n == 0]
    return before, after


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError


class Bar:
    """A line on a terminal that tells how much was read; silent elsewhere and for quick work."""

    def __init__(self, out: IO[str], sources: Sequence[Source]) -> None:
        self._out = out
        self._shown = False
        self._files: dict[str, int] = {}
        self._on = out.isatty()
        self._total = 0
        if self._on:
            self._total = sum(_stat_size(source.path) for source in sources)

    def moved(self, name: str, read: int) -> None:
        """Tell that so many bytes of a file were read."""
        if not self._on:
            return
        self._files[name] = read
        done = sum(self._files.values())
        if done >= 64 << 20:
            share = min(1.0, done / self._total) if self._total else 0.0
            self._out.write(f"\r  reading {_size(done)} of {_size(self._total)} ({share:.0%}) ")
            self._out.flush()
            self._shown = True

    def gone(self) -> None:
        """Wipe the line."""
        if self._shown:
            self._out.write("\r\x1b[K")
            self._out.flush()


def _stat_size(path: str | None) -> int:
    try:
        return Path(path).stat().st_size if path and path != "-" else 0
    except OSError:
        return 0
