"""Every command that ever runs beside a job's processes: on a compute node, on a host, in a pod. All only look (PROBE-14).

POSIX sh, for whatever carries it there: ``srun --overlap``, ssh to the node, a host's shell, an exec into a pod. Each part is
bounded in time and in bytes over there, no file system is walked (FIND-1), nothing is written, and no process's environment is
ever printed. Looked at are the job's own processes alone: those of its control group or with its id in their environment
(Slurm), its session, what descends from it and what bears its mark (a launched process), or all there are (a container).

The answer is framed by marks that hold a random word, so that nothing that a process prints can look like a frame::

    MARK begin NAME EPOCH
    MARK status N          exit status of the part; missing where it was ended from outside
    MARK end NAME N EPOCH  124: its time was up
    MARK whole             the last line

What each part's text looks like; tables are read by their header, and lines that a reader does not know mean nothing:

PROCESSES
    Two samples some seconds apart, each ``# sample N at EPOCH``, a header, then a line for each process::

        PID PPID PGID STAT NLWP CPUTIMES ETIMES RSS WCHAN COMMAND

    STAT begins with the state's letter; CPUTIMES is its own processor time in seconds, with decimals where the system has
    them; ETIMES is its age in seconds; RSS is in KiB; NLWP and WCHAN are ``-`` where they are not told; COMMAND is all of
    the rest, on one line, at most 2048 bytes.
STACK
    For each process, those with most threads first, ``# process PID COMM``, how it was had (``# by py-spy dump``, ``# by gdb``,
    ``# by /proc``), and what that printed. By /proc it is a line for each thread, twice, with ``# again after N s`` between::

        thread TID STATE WCHAN CPU_TICKS VOLUNTARY_SWITCHES NAME

    ``# not by gdb: …`` says why a better way was not had.
GPU, GPU_PROCESSES
    What ``nvidia-smi --format=csv`` prints, with its titles; GPU three times, each after ``# sample N at EPOCH``.
DEVICES
    A path a line, and then ``# N accelerator devices``. Zero is a positive statement.
MEMORY
    ``# path FILE`` and the content of that file, for each file of the job's memory group.
CHECKPOINTS
    ``# dir PATH`` and a line ``EPOCH SIZE TYPE NAME`` for each entry, TYPE being ``directory``, ``file``, ``link`` or ``other``;
    ``# absent PATH``; ``# unreadable PATH``; ``# marker PATH`` and the content of a file that names the newest checkpoint.
SESSION_LOG
    The newest bytes of one worker's log, as they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.clusters.node_file_commands import CHECKPOINTS, SESSIONS
from supervisor.clusters.node_process_commands import LIMITED, MEMBERS, PROCESSES, STACK
from supervisor.clusters.shell import quoted
from supervisor.model.probe import CaptureWanted, Role

# -- the frame ---------------------------------------------------------------------------------------------------------

_FRAMED = r"""
mark=$1 bytes=$2 body=$3
shift 3
exec 3>&1
status=$({ { sh -c "$body" sh "$@" 2>&1 3>&- 4>&-; echo "$?" >&4; } | head -c "$bytes" >&3; } 4>&1)
printf '\n%s status %s' "$mark" "$status"
"""
"""Runs one part, and says last how it ended."""

_OPENING = (
    r"""
LC_ALL=C TZ=UTC0 FLEET_SUPERVISOR_LOOK=1
export LC_ALL TZ FLEET_SUPERVISOR_LOOK
umask 077
{ echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null
"""
    + LIMITED
    + r"""
self=
if [ -r /proc/self/stat ]; then
  IFS= read -r self < "/proc/$$/stat"
  self=${self##*) }
  self=${self#* * * }
  self=${self%% *}
else self=$(ps -o pgid= -p "$$" | tr -d ' ')
fi
ends=$(($(date +%s) + within_s))
part() {
  name=$1 seconds=$2 bytes=$3 now=$(date +%s)
  shift 3
  printf '\n%s begin %s %s\n' "$mark" "$name" "$now"
  [ "$((ends - now))" -ge "$seconds" ] || seconds=$((ends - now))
  if [ "$seconds" -lt 1 ]; then
    printf 'no time was left of %s s\n%s status 75\n%s end %s 0 %s\n' "$within_s" "$mark" "$mark" "$name" "$now"
    return
  fi
  export LOOK_SECONDS="$seconds"
  { limited "$seconds" sh -c "$framed" sh "$mark" "$bytes" "$@" </dev/null 2>/dev/null & } |
    limited "$((seconds + 3))" cat
  ended=$? then=$(date +%s)
  [ "$((then - now))" -lt "$seconds" ] || ended=124
  printf '\n%s end %s %s %s\n' "$mark" "$name" "$ended" "$then"
}
"""
)
"""A file system or a driver that hangs holds a process for good, against any signal: such a one is left behind, holding nothing of
ours, for all that waits here is ``cat``, which can always be ended.

``self``: our own session (our process group where there is no /proc); nothing in it is the job's.

Should the memory that a look shares with a job run out, the look is what the kernel ends."""

# -- devices and memory -------------------------------------------------------------------------------------------------

_GPU = r"""
command -v nvidia-smi >/dev/null || { echo 'nvidia-smi is not in the PATH here'; exit 127; }
for sample in 1 2 3; do
  [ "$sample" = 1 ] || sleep 1
  printf '# sample %s at %s\n' "$sample" "$(date +%s)"
  nvidia-smi --query-gpu="$1" --format=csv || exit
done
"""

_GPU_PROCESSES = r"""
command -v nvidia-smi >/dev/null || { echo 'nvidia-smi is not in the PATH here'; exit 127; }
exec nvidia-smi --query-compute-apps="$1" --format=csv
"""

_DEVICES = r"""
count=0
for path in /dev/nvidia[0-9]* /dev/kfd /dev/accel* /dev/accel/* /dev/vfio/[0-9]*; do
  [ -e "$path" ] && [ ! -d "$path" ] || continue
  printf '%s\n' "$path"
  count=$((count + 1))
done
[ -r /dev ] || { echo 'the folder /dev cannot be read'; exit 1; }
printf '# %s accelerator devices\n' "$count"
"""

_MEMORY = r"""
[ -r /proc/self/cgroup ] || { echo 'this system has no control groups'; exit 1; }
members
set -- $pids
[ $# -gt 0 ] || none
shown=0
for pid in "$@"; do
  [ -r "/proc/$pid/cgroup" ] || continue
  while IFS= read -r line; do
    group=${line#*:*:}
    case $line in
      0::*) root=/sys/fs/cgroup ;;
      *:memory:* | *:*,memory:* | *:memory,*:*) root=/sys/fs/cgroup/memory ;;
      *) continue ;;
    esac
    [ "$kind" != slurm ] || case $group in */job_"$what"/*) group=${group%%/job_"$what"/*}/job_$what ;; esac
    [ -d "$root$group" ] || group=
    for file in memory.events memory.max memory.high memory.current memory.peak memory.swap.current memory.pressure \
      memory.oom_control memory.limit_in_bytes memory.usage_in_bytes memory.max_usage_in_bytes memory.failcnt; do
      path=$root${group%/}/$file
      [ -f "$path" ] && [ -r "$path" ] || continue
      printf '# path %s\n' "$path"
      cat "$path" && shown=$((shown + 1))
    done
  done < "/proc/$pid/cgroup"
  break
done
[ "$shown" -gt 0 ] || { echo 'no file of its memory group is here or can be read'; exit 1; }
"""

# -- putting a script together -----------------------------------------------------------------------------------------

GPU_FIELDS = "index,uuid,name,utilization.gpu,memory.used,memory.total,power.draw,power.limit"
GPU_PROCESS_FIELDS = "gpu_uuid,pid,process_name,used_gpu_memory"
SAMPLES_APART_S = 4
PROCESSES_MOST = 16
"""Processes of one node whose stacks are looked at."""
GDB_MOST = 4
"""Of these, how many a debugger may be attached to."""


@dataclass(frozen=True, slots=True)
class Whose:
    """Which processes count as the job's."""

    kind: str
    """``slurm``, ``session`` or ``all``."""
    what: str = ""
    """Slurm: the job's own number (of an array's task too). A session: its leader's process id."""
    leader: str = ""
    """What their environment bears. Slurm: the number of the first of a heterogeneous job. A session: the launch's own id."""
    node: str = ""
    """Slurm's name of this node; empty where it does not matter."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9]{0,18}", self.what) or not re.fullmatch(r"[0-9a-f]{0,64}", self.leader):
            raise ValueError(f"{self.what!r} of {self.leader!r} names no processes")
        if not re.fullmatch(r"[A-Za-z0-9._-]*", self.node):
            raise ValueError(f"{self.what!r} on {self.node!r} names no processes")

    @property
    def words(self) -> str:
        if not self.what and self.kind != "all":
            return "the job's processes"
        named = {"slurm": f"processes of job {self.what}", "session": f"processes of session {self.what}"}
        return named.get(self.kind, "all processes")


ALL = Whose("all")


@dataclass(frozen=True, slots=True)
class Ask:
    """One part of a look at a node."""

    role: Role
    words: str
    """For people: what is asked over there."""
    body: str
    arguments: tuple[str, ...] = ()
    seconds: float = 20
    bytes: int = 2**20

    @property
    def part(self) -> str:
        return self.role.value


def processes(whose: Whose, bytes_most: int, apart_s: int = SAMPLES_APART_S) -> Ask:
    words = f"{whose.words} from /proc or ps, twice within {apart_s} s"
    return Ask(Role.PROCESSES, words, MEMBERS + PROCESSES, (*_told(whose), str(int(apart_s))), 40, bytes_most)


def stack(whose: Whose, bytes_most: int, seconds: float = 60, apart_s: int = 2, gdb_most: int = GDB_MOST) -> Ask:
    """``gdb_most``: processes that a debugger may hold for a moment; 0 where they may be at work."""
    words = f"{whose.words}: py-spy dump, else {'gdb, else ' if gdb_most else ''}/proc"
    arguments = (str(PROCESSES_MOST), str(bytes_most), str(int(apart_s)), str(int(gdb_most)))
    return Ask(Role.STACK, words, MEMBERS + STACK, (*_told(whose), *arguments), seconds, bytes_most + 2**16)


def devices() -> Ask:
    return Ask(Role.DEVICES, "ls /dev/nvidia[0-9]* /dev/kfd /dev/accel* /dev/vfio/[0-9]*", _DEVICES)


def gpu() -> Ask:
    return Ask(Role.GPU, f"nvidia-smi --query-gpu={GPU_FIELDS} --format=csv", _GPU, (GPU_FIELDS,), 45)


def gpu_processes() -> Ask:
    words = f"nvidia-smi --query-compute-apps={GPU_PROCESS_FIELDS} --format=csv"
    return Ask(Role.GPU_PROCESSES, words, _GPU_PROCESSES, (GPU_PROCESS_FIELDS,), 20)


def memory(whose: Whose) -> Ask:
    return Ask(Role.MEMORY, f"files of the memory group of {whose.words}", MEMBERS + _MEMORY, _told(whose))


def sessions(whose: Whose, folders: Sequence[str], most: int, bytes_each: int) -> Ask:
    """``folders``: as the job's output names them; none means those in which its processes hold files open."""
    named = tuple(each for each in folders if each.startswith("/"))
    words = (
        f"newest {most} of worker-*.out, worker-*.err and job-driver-*.log in {', '.join(named) or 'its Ray session'}"
    )
    arguments = (*_told(whose), str(int(most)), str(int(bytes_each)), *named)
    return Ask(Role.SESSION_LOG, words, MEMBERS + SESSIONS, arguments, 45, most * (bytes_each + 4200) + 4096)


def checkpoints(folders: Sequence[str], bytes_most: int) -> Ask:
    named = tuple(each for each in folders if each.startswith("/"))
    return Ask(Role.CHECKPOINTS, f"ls -l {' '.join(named)}, one level", CHECKPOINTS, named, 30, bytes_most)


def look(whose: Whose, wanted: CaptureWanted, *, with_checkpoints: bool) -> tuple[Ask, ...]:
    """All that is asked of one node, cheap and perishable first. ``with_checkpoints``: where the node alone sees them."""
    asks = [
        devices(),
        processes(whose, wanted.piece_bytes),
        memory(whose),
        gpu(),
        gpu_processes(),
        stack(whose, wanted.piece_bytes, gdb_most=GDB_MOST if wanted.may_hold else 0),
        sessions(whose, wanted.session_dirs, wanted.session_files, wanted.piece_bytes // 4),
    ]
    if with_checkpoints and wanted.checkpoint_dirs:
        asks.append(checkpoints(wanted.checkpoint_dirs, wanted.piece_bytes))
    return tuple(asks)


def script(nonce: str, asks: Sequence[Ask], within_s: float | None = None) -> str:
    """``nonce``: hexadecimal digits that nothing over there can know. ``within_s``: what carries it waits longer than this.

    Parts for which no time is left say so, and nothing is begun that would have to be cut off.
    """
    if not re.fullmatch(r"[0-9a-f]{16,}", nonce):
        raise ValueError("a nonce is at least 16 hexadecimal digits")
    within = seconds_needed(asks) if within_s is None else within_s
    lines = [f"mark={quoted(nonce)}", f"within_s={int(within)}", f"framed={quoted(_FRAMED)}", _OPENING]
    for ask in asks:
        # The two words that only the far side knows stand where the members' script expects them.
        given = " ".join(
            '"$self"' if word == _SELF else '"$mark"' if word == _MARK else quoted(word) for word in ask.arguments
        )
        lines.append(f"part {ask.part} {math.ceil(ask.seconds)} {ask.bytes} {quoted(ask.body)} {given}")
    lines.append("printf '\\n%s whole\\n' \"$mark\"")
    return "\n".join(lines) + "\n"


def seconds_needed(asks: Sequence[Ask]) -> float:
    """Longest that a look can take over there."""
    return sum(ask.seconds + 6 for ask in asks) + 5


def bytes_needed(asks: Sequence[Ask]) -> int:
    return sum(ask.bytes + 512 for ask in asks) + 2**16


_SELF, _MARK = "\0self", "\0mark"
"""Stand for what only the far side knows; no other argument can hold a NUL."""


def _told(whose: Whose) -> tuple[str, ...]:
    return (whose.kind, whose.what, whose.leader or whose.what, whose.node, _SELF, _MARK)
