"""Every command that can ever be sent to a Slurm cluster, on one page.

Each script is a constant below a few assignments; each assigned value has passed through :func:`quoted`. All of them read
only, except CANCEL. None searches a file system (FIND-1).

What a script prints is framed by marks that hold a fresh random word, so that no job name, path or log line can look like
a frame::

    MARK begin NAME        standard output follows
    MARK said NAME         standard error follows
    MARK end NAME STATUS   exit status; 124 means that its time was up
    MARK whole             the last line of a whole answer

What reads the queue or accounting is never told to leave the titles out: a program that prints nothing at all, with exit
status 0, would else look like an empty queue (POLL-2).
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from supervisor.clusters.shell import quoted

T = TypeVar("T")

UNIT = "\x1f"
"""Between the fields of a record whose only free text is the last field."""
CHUNK = 400
"""Ids or paths in one command, so that no argument list grows beyond what systems take."""
CHUNK_BYTES = 100_000
KILL_AFTER_S = 2


@dataclass(frozen=True, slots=True)
class Nonce:
    """A random word of one run, and the marks made of it."""

    word: str

    def __post_init__(self) -> None:
        # Slurm reads a leading digit as a column's width and a comma as the next column.
        if not re.fullmatch(r"[a-z][a-z0-9]{8,64}", self.word):
            raise ValueError(f"not a usable nonce: {self.word!r}")

    @classmethod
    def fresh(cls) -> Nonce:
        return cls("n" + secrets.token_hex(10))

    @property
    def mark(self) -> str:
        return f"{self.word}#"

    @property
    def gap(self) -> str:
        """Between fields where several hold free text."""
        return f"{self.word}|"

    @property
    def end(self) -> str:
        """After the last field of a record."""
        return f"{self.word};"


# -- fields ------------------------------------------------------------------------------------------------------------

QUEUE_FIELDS = (
    "StartTime", "EndTime", "JobArrayID", "State", "UserName", "JobID", "SubmitTime", "RestartCnt", "Account",
    "Partition", "Reason", "TimeLimit", "NumNodes", "NodeList", "exit_code", "Dependency", "Name",
)  # fmt: skip
"""Nothing in it moves by itself but the expected times of waiting jobs, which stand first so that they can be left out."""
DETAIL_FIELDS = (
    "JobArrayID", "SubmitTime", "JobID", "ArrayJobID", "ArrayTaskID", "UserName", "RestartCnt", "BatchFlag", "BatchHost",
    "StdOut", "StdErr", "WorkDir", "Command", "Name",
)  # fmt: skip
ACCOUNTING_FIELDS = (
    "JobID", "JobIDRaw", "State", "ExitCode", "Submit", "Start", "End", "User", "Account", "Partition", "NNodes",
    "NodeList", "TimelimitRaw", "WorkDir", "JobName", "JobIDRaw",
)  # fmt: skip
"""The raw id once more closes a record: folders and names may hold line ends."""
ENDED_STATES = "BF,CA,CD,DL,F,NF,OOM,PR,RQ,TO"

# -- scripts -----------------------------------------------------------------------------------------------------------

_OPENING = r"""
LC_ALL=C TZ=UTC0 SLURM_TIME_FORMAT=%s SLURM_BITSTR_LEN=0
export LC_ALL TZ SLURM_TIME_FORMAT SLURM_BITSTR_LEN
unset SLURM_CLUSTERS SQUEUE_ACCOUNT SQUEUE_ALL SQUEUE_ARRAY SQUEUE_ARRAY_UNIQUE SQUEUE_CLUSTERS SQUEUE_EXPAND_PATTERNS \
  SQUEUE_FEDERATION SQUEUE_FORMAT SQUEUE_FORMAT2 SQUEUE_LICENSES SQUEUE_LOCAL SQUEUE_NAMES SQUEUE_PARTITION \
  SQUEUE_PRIORITY SQUEUE_QOS SQUEUE_SIBLING SQUEUE_SORT SQUEUE_STATES SQUEUE_USERS \
  SACCT_FEDERATION SACCT_LOCAL SACCT_FORMAT SCANCEL_INTERACTIVE SCANCEL_VERBOSE
[ -z "$slurm_bin" ] || PATH=$slurm_bin:$PATH
exec 3>&1
part() {
  name=$1 seconds=$2
  shift 2
  printf '\n%s begin %s\n' "$mark" "$name"
  said=$(timeout -k 2 "$seconds" "$@" 2>&1 >&3 3>&-)
  status=$?
  printf '\n%s said %s\n%s\n%s end %s %s' "$mark" "$name" "$said" "$mark" "$name" "$status"
}
whole() {
  printf '\n%s whole\n' "$mark"
  exit 0
}
"""

_WHO = r"""
[ -n "$users" ] || users=$(timeout -k 2 10 id -un)
part who 10 printf '%s' "$users"
[ -n "$users" ] || whole
"""

_QUEUE = r"""
part clock 10 date +%s
part queue "$queue_s" squeue --local -a -t all -u "$users" ${accounts:+-A} ${accounts:+"$accounts"} -O "$queue_fields"
"""

_VERSION = r"""
part version 10 squeue --version
"""

_ENDED = r"""
part ended "$accounting_s" sacct --local -X -D -P --delimiter="$gap" -u "$users" ${accounts:+-A} ${accounts:+"$accounts"} \
  -s "$ended_states" -S "now-${since_s}seconds" -E now+3600seconds -o "$accounting_fields"
"""

_STILL = r"""
part still "$accounting_s" sacct --local -X -D -P --delimiter="$gap" -u "$users" ${accounts:+-A} ${accounts:+"$accounts"} \
  -s R,S,PD -S now-60seconds -E now+60seconds -o "$accounting_fields"
"""

_LOOK_UP = r"""
part found "$accounting_s" sacct --local -X -D -P --delimiter="$gap" -u "$users" -j "$ids" -o "$accounting_fields"
"""

_DETAILS = r"""
part details "$queue_s" squeue --local -a -t all -u "$users" ${ids:+-j} ${ids:+"$ids"} -O "$detail_fields"
"""

APART = r"""
body=$1
shift
{ sh -c "$body" sh "$@" 2>/dev/null & } | cat
"""
"""Runs what touches files. A file system that hangs holds a process for good, against any signal: it is left behind, holding
nothing of ours, and its part ends in time without an answer."""

_LOGS = r"""
part logs "$logs_s" sh -c "$apart" sh "$log_stat" "$end" "$@"
"""

LOG_STAT = r"""
end=$1
shift
stat -L --printf "%s %Y %d %i %f %n$end\n" -- "$@"
for path; do
  if [ -e "$path" ]; then
    [ -r "$path" ] || printf 'unreadable %s%s\n' "$path" "$end"
    continue
  fi
  folder=${path%/*}
  [ -d "${folder:-/}" ] && [ -x "${folder:-/}" ] && printf 'absent %s%s\n' "$path" "$end"
done
:
"""
"""Size, time, device, inode, mode of each file; which may not be read; and which are positively not there: their folder is,
and can be entered."""

_PLACES = r"""
part places "$logs_s" sh -c "$apart" sh "$list_places" "$end" "$@"
"""

LIST_PLACES = r"""
end=$1
shift
while [ $# -ge 4 ]; do
  path=$1 folder=$2 one=$3 two=$4
  shift 4
  [ -n "$path" ] && [ -e "$path" ] && continue
  seen=0
  for word in "$one" "$two"; do
    [ -n "$word" ] || continue
    for file in "$folder"/"$word".out "$folder"/"$word".log "$folder"/*[!0-9]"$word".out "$folder"/*[!0-9]"$word".log \
      "$folder"/*[!0-9]"$word"[!0-9]*.out "$folder"/*[!0-9]"$word"[!0-9]*.log; do
      [ -f "$file" ] || continue
      seen=$((seen + 1))
      [ "$seen" -le 20 ] || break
      stat -L --printf "$one %s %Y %d %i %f %n$end\n" -- "$file"
    done
  done
done
:
"""
"""FIND-2: a work directory, one level deep, for files whose name bears the job's id as a whole number."""

_QUOTA = r"""
part quota "$quota_s" sh -c "$apart" sh "$quota_command"
"""

_CLOSING = r"""
part clock 10 date +%s
whole
"""

_PIECE = r"""
part piece "$logs_s" sh -c "$apart" sh "$read_piece" "$path" "$offset" "$limit" "$newest"
"""

READ_PIECE = r"""
path=$1 offset=$2 limit=$3 newest=$4
unread() {
  printf 'unread %s\n' "$1"
  exit 0
}
if [ ! -f "$path" ]; then
  [ -e "$path" ] && unread 'not a regular file'
  unread 'no such file, or no way to it'
fi
[ -r "$path" ] || unread 'permission denied'
size=$(stat -L -c %s -- "$path") || unread 'stat failed'
start=$offset lines=0
if [ "$newest" = 1 ] && [ $((size - offset)) -gt "$limit" ]; then
  start=$((size - limit))
  set -- $(timeout -k 2 10 tail -c +$((offset + 1)) -- "$path" | head -c $((start - offset)) | wc -lc)
  lines=unknown
  [ "$2" = $((start - offset)) ] && lines=$1
fi
length=$((size - start))
[ "$length" -ge 0 ] || length=0
[ "$length" -le "$limit" ] || length=$limit
printf '%s %s %s %s\n' "$size" "$start" "$length" "$lines"
[ "$length" -eq 0 ] || tail -c +$((start + 1)) -- "$path" | head -c "$length"
"""
"""A line ``size start length lines-skipped`` and then the bytes; or a line that begins with ``unread``."""

_CANCEL = r"""
said=$(timeout -k 2 "$queue_s" squeue --local -h -a -t all -j "$ask" -O "$cancel_fields" 2>&1)
status=$?
printf '\n%s begin read\n%s\n%s said read\n\n%s end read %s' "$mark" "$said" "$mark" "$mark" "$status"
[ "$status" = 0 ] || whole
target='' word=''
while IFS="$unit" read -r id submitted state rest; do
  case $id in
    "$job" | "$job"_\[*) [ "$submitted" = "$incarnation" ] && target=$id word=$state ;;
  esac
done <<LISTED
$said
LISTED
case $word in
  '' | COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL | PREEMPTED | BOOT_FAIL | DEADLINE | OUT_OF_MEMORY | REVOKED)
    whole ;;
esac
case $target in *%*) target=${target%%%*}] ;; esac
part cancel "$cancel_s" scancel "$target"
whole
"""
"""KILL-2: the job is read again and must be the same submission, live, before the one ``scancel`` goes out.

Of an array's waiting rest only the waiting tasks are named, since ``scancel ID`` would end the running ones as well."""

_CHECK = r"""
part tools 10 sh -c "$list_missing"
"""

LIST_MISSING = r"""
for tool in squeue sacct scancel timeout stat id date head tail tr wc; do
  command -v "$tool" >/dev/null || echo "$tool"
done
"""

_ACCOUNTING_ANSWERS = r"""
part ended "$accounting_s" sacct --local -X -D -P --delimiter="$gap" -u "$users" -S now-60seconds -o "$accounting_fields"
"""

# -- putting a script together -----------------------------------------------------------------------------------------


def poll_script(
    nonce: Nonce,
    *,
    users: Sequence[str],
    accounts: Sequence[str],
    since_s: float,
    paths: Sequence[str],
    quota_command: str | None,
    site: Site,
) -> str:
    """All of a poll in one command. A queue that can't be read ends it at once: nothing else would be believed."""
    values = {"since_s": str(math.ceil(since_s)), "log_stat": LOG_STAT, "quota_command": quota_command or ""}
    return "".join(
        (
            _assigned(nonce, site, users=users, accounts=accounts, **values),
            _OPENING,
            _WHO,
            _QUEUE,
            '[ "$status" = 0 ] || whole\n',
            _VERSION,
            _ENDED,
            *(_with_arguments(chunk) + _LOGS for chunk in chunks(paths)),
            _QUOTA if quota_command else "",
            _CLOSING,
        )
    )


def follow_script(
    nonce: Nonce,
    *,
    users: Sequence[str],
    accounts: Sequence[str],
    details_of: Sequence[str],
    find: Sequence[str],
    site: Site,
) -> str:
    """What only a first reading can ask for: details of attempts seen for the first time, ends of jobs no longer listed.

    Above ``CHUNK`` jobs the details of all jobs of these users are cheaper than a list of ids.
    """
    ids = "" if len(details_of) > CHUNK else ",".join(details_of)
    parts = [_assigned(nonce, site, users=users, accounts=accounts), _OPENING]
    if details_of:
        parts += [_assign("ids", ids), _DETAILS]
    for chunk in chunks(find):
        parts += [_assign("ids", ",".join(chunk)), _LOOK_UP]
    return "".join((*parts, "whole\n"))


def again_script(nonce: Nonce, *, users: Sequence[str], accounts: Sequence[str], site: Site) -> str:
    """An empty queue asked for once more, and what accounting holds to be running or waiting (POLL-3)."""
    return "".join((_assigned(nonce, site, users=users, accounts=accounts), _OPENING, _STILL, _QUEUE, "whole\n"))


def places_script(nonce: Nonce, *, paths: Sequence[str], places: Sequence[Place], site: Site) -> str:
    """Sizes of logs whose paths were just learnt, and work directories of logs that are not where they should be."""
    parts = [_assigned(nonce, site, log_stat=LOG_STAT, list_places=LIST_PLACES), _OPENING]
    parts += [_with_arguments(chunk) + _LOGS for chunk in chunks(paths)]
    for chunk in chunks(places):
        words = [word for place in chunk for word in (place.path or "", place.folder, place.id, place.other_id)]
        parts.append(_with_arguments(words) + _PLACES)
    return "".join((*parts, "whole\n"))


def read_script(nonce: Nonce, pieces: Iterable[tuple[str, int, int, bool]], site: Site) -> str:
    """Pieces of logs: path, offset, limit, whether the newest bytes are wanted where more are waiting."""
    parts = [_assigned(nonce, site, read_piece=READ_PIECE), _OPENING]
    for path, offset, limit, newest in pieces:
        parts += [
            _assign("path", path),
            _assign("offset", str(int(offset))),
            _assign("limit", str(int(limit))),
            _assign("newest", "1" if newest else "0"),
            _PIECE,
        ]
    return "".join((*parts, "whole\n"))


def cancel_script(nonce: Nonce, job: str, incarnation: str, site: Site) -> str:
    """Raises ValueError for what is no job id or no submit time of Slurm."""
    found = re.fullmatch(r"([0-9]+)(?:[_+][0-9]+)?", job)
    if not found or not re.fullmatch(r"[0-9]+", incarnation):
        raise ValueError(f"{job!r} submitted at {incarnation!r} is no job of Slurm")
    fields = f"JobArrayID:{UNIT},SubmitTime:{UNIT},State:{UNIT}"
    values = {"job": job, "incarnation": incarnation, "ask": found[1], "cancel_fields": fields, "unit": UNIT}
    return _assigned(nonce, site, **values) + _OPENING + _CANCEL


def opening(nonce: Nonce, site: Site, **values: str) -> str:
    """The beginning of every script: assignments, surroundings, and the frame."""
    return _assigned(nonce, site, **values) + _OPENING


def check_script(nonce: Nonce, *, users: Sequence[str], accounts: Sequence[str], site: Site) -> str:
    opening = _assigned(nonce, site, users=users, accounts=accounts, list_missing=LIST_MISSING)
    return "".join((opening, _OPENING, _CHECK, _WHO, _VERSION, _QUEUE, _ACCOUNTING_ANSWERS, _CLOSING))


@dataclass(frozen=True, slots=True)
class Site:
    """How commands are run over there: seconds that each kind may take, and where Slurm's programs are."""

    queue_s: float
    accounting_s: float
    logs_s: float
    quota_s: float
    slurm_bin: str = ""
    """Put before the PATH, if not empty."""

    def of(self, queue: int = 0, accounting: int = 0, logs: int = 0, quota: int = 0) -> float:
        """Longest that so many commands of each kind can take together, with what the frame around them needs."""
        parts = queue + accounting + logs + quota
        wanted = queue * self.queue_s + accounting * self.accounting_s + logs * self.logs_s + quota * self.quota_s
        return wanted + parts * KILL_AFTER_S + 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look one level deep for the log of one job: its work directory, and the ids that a file name may bear."""

    path: str | None
    """The scheduler's own path; nothing is listed if it exists. None where the scheduler gave none."""
    folder: str
    id: str
    other_id: str


def chunks(things: Iterable[T], size: Callable[[T], int] = lambda thing: len(str(thing))) -> list[list[T]]:
    """Lots of at most ``CHUNK`` things and, but for a thing that is longer by itself, ``CHUNK_BYTES``."""
    lots: list[list[T]] = []
    room = 0
    for thing in things:
        length = size(thing)
        if not lots or len(lots[-1]) >= CHUNK or length > room:
            lots.append([])
            room = CHUNK_BYTES
        lots[-1].append(thing)
        room -= length
    return lots


def _assigned(
    nonce: Nonce, site: Site, *, users: Sequence[str] = (), accounts: Sequence[str] = (), **values: str
) -> str:
    told = {
        "mark": nonce.mark,
        "gap": nonce.gap,
        "end": nonce.end,
        "users": ",".join(users),
        "accounts": ",".join(accounts),
        "queue_fields": columns(QUEUE_FIELDS, UNIT, nonce.end),
        "detail_fields": columns(DETAIL_FIELDS, nonce.gap, nonce.end),
        "accounting_fields": ",".join(ACCOUNTING_FIELDS),
        "ended_states": ENDED_STATES,
        "apart": APART,
        "slurm_bin": site.slurm_bin,
        "queue_s": f"{site.queue_s:g}",
        "accounting_s": f"{site.accounting_s:g}",
        "logs_s": f"{site.logs_s:g}",
        "quota_s": f"{site.quota_s:g}",
        "cancel_s": f"{site.queue_s:g}",
    }
    return "".join(_assign(name, value) for name, value in (told | values).items())


def columns(fields: Sequence[str], between: str, last: str) -> str:
    """``squeue -O``: a field without a width is printed whole, and what follows its colon is printed after it."""
    return ",".join(f"{field}:{last if field == fields[-1] else between}" for field in fields)


def _assign(name: str, value: str) -> str:
    return f"{name}={quoted(value)}\n"


def _with_arguments(words: Sequence[str]) -> str:
    return f"set -- {' '.join(quoted(word) for word in words)}\n"
