"""Pieces of many log files by one script, over any shell (FIND-3). Reads only, from regular files, bounded by the caller.

Each piece comes between a header that tells its length and an end mark with a nonce, so that a cut-off answer loses
only the pieces that it cut, and no text in a log can pass for a mark.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

from supervisor.clusters.shell import Ran, quoted
from supervisor.model.logs import LogRead, LogText, LogUnread, LogWanted
from supervisor.model.probe import Captured, CaptureWanted, Role

ReadLogs = Callable[[Sequence[LogWanted], datetime], Awaitable[Mapping[tuple[str, str], LogRead]]]
"""``Cluster.read_logs``."""

_SHARE = 2 / 3
"""Of the time that all captures of a job have together, what its logs may take; others go on beside them."""
COUNTED = 256 * 2**20
"""Most bytes that are read just to count the lines left out before a tail; beyond it their number stays unknown."""

_SCRIPT = r"""
LC_ALL=C; export LC_ALL
if [ "$(uname -s)" = Linux ]; then size_of() { stat -L -c %s "$1"; }
else size_of() { stat -L -f %z "$1"; }; fi
# piece NUMBER PATH OFFSET LIMIT TAIL
piece() {
  if [ ! -e "$2" ]; then printf '@N@ no %s no such file, or a folder above it cannot be entered\n' "$1"; return; fi
  if [ ! -f "$2" ]; then printf '@N@ no %s not a regular file\n' "$1"; return; fi
  if [ ! -r "$2" ]; then printf '@N@ no %s no permission to read it\n' "$1"; return; fi
  size=$(size_of "$2") || { printf '@N@ no %s its size cannot be told\n' "$1"; return; }
  from=$3 skipped=0
  waiting=$((size - from))
  if [ "$waiting" -lt 0 ]; then waiting=0; fi
  if [ "$waiting" -gt "$4" ]; then
    if [ "$5" = 1 ]; then
      gap=$((waiting - $4))
      if [ "$gap" -le @COUNTED@ ]; then skipped=$(tail -c +$((from + 1)) "$2" | head -c "$gap" | wc -l)
      else skipped=-; fi
      from=$((from + gap))
    fi
    waiting=$4
  fi
  printf '@N@ piece %s %s %s %s %s\n' "$1" "$size" "$from" "$waiting" $skipped
  if [ "$waiting" -gt 0 ]; then tail -c +$((from + 1)) "$2" | head -c "$waiting"; fi
  printf '\n@N@ done %s\n' "$1"
}
"""


def script(wanted: Sequence[LogWanted], nonce: str) -> str:
    """``nonce``: hexadecimal digits that nothing on the far side can know. Paths must be absolute: see ``refused``."""
    if not re.fullmatch(r"[0-9a-f]{16,}", nonce):
        raise ValueError("a nonce is at least 16 hexadecimal digits")
    calls = [
        f"piece {number} {quoted(piece.path)} {int(piece.offset)} {int(piece.limit)} {int(piece.tail)}"
        for number, piece in enumerate(wanted)
        if refused(piece) is None
    ]
    return "\n".join(
        [_SCRIPT.replace("@N@", nonce).replace("@COUNTED@", str(COUNTED)), *calls, f"printf '{nonce} end\\n'"]
    )


def refused(piece: LogWanted) -> str | None:
    """Why a piece is not asked for at all."""
    if not piece.path.startswith("/") or "\0" in piece.path:
        return "not an absolute path"
    if piece.offset < 0 or piece.limit < 0:
        return "a piece cannot begin or extend below 0"
    return None


def bytes_needed(wanted: Sequence[LogWanted]) -> int:
    """The most that an answer can hold."""
    return 2**20 + sum(piece.limit + 400 for piece in wanted)


def read(wanted: Sequence[LogWanted], nonce: str, ran: Ran) -> Mapping[tuple[str, str], LogRead]:
    """An answer for each wanted piece, by (job id, path). A piece without its own end mark was not read (FIND-4)."""
    found = _pieces(ran.stdout, nonce)
    whole = ran.exit_status == 0 and not ran.truncated
    why = "the answer was cut off" if ran.exit_status is None or whole else f"the command exited {ran.exit_status}"
    answers: dict[tuple[str, str], LogRead] = {}
    for number, piece in enumerate(wanted):
        missing = LogUnread(piece.path, refused(piece) or why)
        answers[piece.job_id, piece.path] = _answer(piece, found[number]) if number in found else missing
    return answers


_Header = tuple[int, int, int, int | None]


def _answer(piece: LogWanted, found: tuple[_Header, bytes] | str) -> LogRead:
    if isinstance(found, str):
        return LogUnread(piece.path, found)
    (size, offset, length, skipped), data = found
    if length and not data:
        return LogUnread(piece.path, f"{length} bytes are there and none could be read")
    return LogText(piece.path, offset, data, size, skipped)


def _pieces(data: bytes, nonce: str) -> dict[int, tuple[_Header, bytes] | str]:
    sign = nonce.encode()
    header = re.compile(rb"^%b (?:piece (\d+) (\d+) (\d+) (\d+) +(-|\d+)|no (\d+) (.*))\n" % sign, re.MULTILINE)
    found: dict[int, tuple[_Header, bytes] | str] = {}
    at = 0
    while match := header.search(data, at):
        at = match.end()
        if match[6] is not None:
            found[int(match[6])] = match[7].decode("utf-8", "replace")
            continue
        number, size, offset, length = (int(match[group]) for group in range(1, 5))
        mark = b"\n%b done %d\n" % (sign, number)
        # A file that shrinks while it is read gives fewer bytes than announced; then the mark tells where it ended.
        end = at + length if data.startswith(mark, at + length) else data.find(mark, at)
        if end < 0:
            break
        found[number] = ((size, offset, length, None if match[5] == b"-" else int(match[5])), data[at:end])
        at = end + len(mark)
    return found


async def newest(read_logs: ReadLogs, wanted: CaptureWanted, now: datetime) -> list[Captured]:
    """The newest part of each of a job's logs as evidence; a failure where none is known."""
    details, job, began = wanted.details, wanted.seen.key.id, time.monotonic()
    paths = dict.fromkeys(path for path in (details.log_path, details.err_path, *wanted.log_paths) if path)
    if not paths:
        return [Captured(role=Role.LOG, command=f"tail of the log of {job}", failure="no file for its output is known")]
    asked = [LogWanted(job, path, 0, wanted.log_bytes) for path in paths]
    limit_s = wanted.time_s * _SHARE
    found: Mapping[tuple[str, str], LogRead]
    try:
        async with asyncio.timeout(limit_s):
            found = await read_logs(asked, now)
    except TimeoutError:
        found = {(job, one.path): LogUnread(one.path, f"not read within {limit_s:g} s") for one in asked}
    took = time.monotonic() - began
    return [_captured(found[job, one.path], one, took) for one in asked]


def _captured(piece: LogRead, wanted: LogWanted, took_s: float) -> Captured:
    command = f"tail -c {wanted.limit} {wanted.path}"
    if not isinstance(piece, LogText):
        return Captured(role=Role.LOG, command=command, source=wanted.path, failure=piece.reason, took_s=took_s)
    return Captured(
        role=Role.LOG,
        command=command,
        source=wanted.path,
        data=piece.data,
        exit_status=0,
        cut=piece.offset,
        first_line=None if piece.lines_skipped is None else piece.lines_skipped + 1,
        took_s=took_s,
    )
