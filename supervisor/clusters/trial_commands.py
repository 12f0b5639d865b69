"""Every command that reads trees of trials, on whatever machine a shell reaches: Slurm's login nodes and plain hosts.

POSIX sh with stat, on Linux, BSD and macOS. Reads only: the names of one folder's entries, their times, and bounded pieces of
the one file that is looked for in each. Nothing walks a tree (FIND-1). Each line of ours begins with a nonce that nothing on
the far side can know; every value passes through ``quoted``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from supervisor.clusters.shell import quoted
from supervisor.clusters.slurm_commands import APART
from supervisor.model.trials import NO_TIME, TrialsWanted

KNOWN_BYTES = 90_000
"""Longest list of names in one argument: Linux takes 128 KiB. A name that is left out is read once more and not counted again."""
JOB_TIMES = 8
"""A job's own result file may be so many times larger than a trial's: it lists the trials by outcome."""
JOB_STARTS_S = 120
"""How long before the recorded start of a job its folder may have been made: clocks are read in whole seconds, and differ."""

LOOK = r"""
mark=$1 number=$2 dir=$3 of_jobs=$4 since=$5 began=$6 most=$7 each=$8 room=$9
shift 9
entries=$1 newest=$2 known=$3 times=$4 reading_s=$5
clock=$(date +%s)
no() { printf '\n%s no %s %s\n' "$mark" "$number" "$(printf '%.300s' "$1" | tr '\n' ' ')"; exit 0; }
if stat -c %Y / >/dev/null 2>&1; then
  changed() { xargs -0 stat -c '%Y %n' --; }
  sized() { stat -L -c '%Y %s' -- "$1"; }
else
  changed() { xargs -0 stat -f '%m %N' --; }
  sized() { stat -L -f '%m %z' -- "$1"; }
fi
folders_in() { printf '%s\n' "$listed" | sed -n 's,^\([^.].*\)/$,\1,p'; }
with_times() { folders_in | tr '\n' '\0' | changed 2>/dev/null | sort "$1"; }
# take KIND CHANGED NAME FILE LIMIT: sets size
take() {
  size=0
  set -- "$@" $(sized "$4" 2>/dev/null)
  [ $# -eq 7 ] || { printf '\n%s bad %s %s 0 %s\n' "$mark" "$1" "$2" "$3"; return; }
  [ -r "$4" ] || { printf '\n%s bad %s %s %s %s\n' "$mark" "$1" "$2" "$7" "$3"; return; }
  [ "$7" -le "$5" ] || { printf '\n%s large %s %s %s %s\n' "$mark" "$1" "$2" "$7" "$3"; return; }
  size=$7
  printf '\n%s file %s %s %s %s\n' "$mark" "$1" "$2" "$7" "$3"
  [ "$7" -eq 0 ] || head -c "$7" "$4"
  printf '\n%s done\n' "$mark"
}

case $dir in "~/"*) dir=$HOME/${dir#"~/"} ;; esac
if [ ! -d "$dir" ]; then
  [ -e "$dir" ] && no 'it is no folder'
  above=${dir%/*}
  [ -d "${above:-/}" ] && [ -x "${above:-/}" ] && no 'not there: no such folder'
  while [ -n "$above" ] && [ ! -e "$above" ]; do above=${above%/*}; done
  [ -d "${above:-/}" ] && [ -x "${above:-/}" ] && no 'not there: no such folder, nor the one above it'
  no 'no way to it: a folder above it cannot be entered'
fi
[ -r "$dir" ] && [ -x "$dir" ] || no 'permission denied'
cd "$dir" || no 'it cannot be entered'
listed=$(ls -1Ap 2>&1) || no "it cannot be listed: $listed"
if [ "$of_jobs" = 1 ] && [ ! -f job.log ]; then
  count=$(folders_in | wc -l)
  [ "$count" -le "$entries" ] || no "it holds $((count)) folders, more than the $entries that are looked at"
  [ "$count" -gt 0 ] || no 'not there: no folder of a job in it yet'
  found=$(with_times -rn | while read -r at name; do
    case $at in ''|*[!0-9]*) continue ;; esac
    [ "$at" -ge "$began" ] || break
    case $name in */*) continue ;; esac
    [ -f "$name/job.log" ] && printf '%s\n' "$name"
  done)
  case $found in
    '') no "not there: no folder in it with a job.log that changed since this job began" ;;
    *"
"*) no "several jobs write into it, and nothing tells which is its own: $(printf '%s\n' "$found" | head -n 3)" ;;
  esac
  cd "./$found" || no 'it cannot be entered'
  listed=$(ls -1Ap 2>&1) || no "it cannot be listed: $listed"
fi
folders=$(folders_in | wc -l)
folders=$((folders))
[ "$folders" -gt 0 ] || [ -f result.json ] || no 'not there: no trial in it yet'
printf '\n%s at %s %s\n' "$mark" "$number" "$PWD"
[ ! -f result.json ] || take job 0 . result.json "$((each * times))"
if [ "$folders" -gt "$entries" ]; then
  printf '\n%s whole %s %s many\n' "$mark" "$number" "$folders"
  exit 0
fi
order=-n
[ "$newest" = 0 ] || order=-rn
{ [ "$folders" -eq 0 ] || with_times "$order"; } | {
  taken=0 left=0
  while read -r at name; do
    case $at in ''|*[!0-9]*) continue ;; esac
    [ "$at" -ge "$since" ] || continue
    case $name in ''|*/*) continue ;; esac
    case $known in *"/$name/"*) continue ;; esac
    [ -f "$name/result.json" ] || continue
    if [ "$taken" -ge "$most" ] || [ "$room" -le 0 ]; then
      left=$((left + 1))
      [ "$newest" = 0 ] || break
      continue
    fi
    if [ $((taken % 16)) -eq 15 ] && [ $(($(date +%s) - clock)) -ge "$reading_s" ]; then
      left=$((left + 1))
      break
    fi
    take trial "$at" "$name" "./$name/result.json" "$each"
    taken=$((taken + 1)) room=$((room - size))
  done
  printf '\n%s whole %s %s %s\n' "$mark" "$number" "$folders" "$left"
}
"""
"""One job's trials: where they are, the job's own result, the results not counted before, how many folders there are."""

_FRAME = r"""
LC_ALL=C; export LC_ALL
if command -v timeout >/dev/null 2>&1; then limited() { timeout -k 2 "$@"; }
else limited() { shift; "$@"; }; fi
began=$(date +%s)
look() {
  if [ $(($(date +%s) - began)) -ge "$all_s" ]; then
    printf '\n%s no %s %s\n' "$mark" "$1" "$no_time"
    return
  fi
  limited "$one_s" sh -c "$apart" sh "$body" "$mark" "$@"
}
"""


def script(wanted: Sequence[TrialsWanted], nonce: str, *, one_s: float, all_s: float) -> str:
    """``one_s``: seconds that one job's look may take; ``all_s``: seconds after which no further one is begun.

    ``nonce``: letters and digits that nothing on the far side can know. Raises ValueError for another.
    """
    if not re.fullmatch(r"[a-z0-9]{16,}", nonce):
        raise ValueError("a nonce is at least 16 letters and digits")
    values = {
        "no_time": NO_TIME,
        "mark": nonce,
        "apart": APART,
        "body": LOOK,
        "one_s": f"{one_s:g}",
        "all_s": str(int(all_s)),
    }
    parts = [f"{name}={quoted(value)}" for name, value in values.items()]
    parts.append(_FRAME)
    parts += [_call(number, each, one_s / 2) for number, each in enumerate(wanted) if refused(each) is None]
    return "\n".join([*parts, "printf '\\n%s end\\n' \"$mark\""])


def _call(number: int, each: TrialsWanted, reading_s: float) -> str:
    """``reading_s``: seconds after which no further result is begun, so that on a slow file system a look ends whole."""
    words = (
        str(number), each.place.where, str(int(each.place.of_jobs)), str(int(each.since_s)),
        str(max(0, int(each.started_s) - JOB_STARTS_S)), str(int(each.results)), str(int(each.result_bytes)),
        str(int(each.total_bytes)), str(int(each.entries)), str(int(each.newest)), _known(each.known), str(JOB_TIMES),
        str(math.ceil(reading_s)),
    )  # fmt: skip
    return "look " + " ".join(quoted(word) for word in words)


def _known(names: frozenset[str]) -> str:
    """``/a/b/c/``: a name holds no slash, so none is found inside another."""
    text, room = "/", KNOWN_BYTES
    for name in sorted(names):
        room -= len(name.encode("utf-8", "replace")) + 1
        if room < 0:
            break
        text += name + "/"
    return text


def refused(each: TrialsWanted) -> str | None:
    """Why a place is not looked at at all."""
    where = each.place.where
    if each.place.in_object_store:
        return "an object store is no place on this machine"
    if not where.startswith(("/", "~/")) or "\0" in where:
        return "not an absolute path"
    return None


def bytes_needed(wanted: Sequence[TrialsWanted]) -> int:
    """The most that an answer can hold."""
    one = 2**16
    return one + sum(
        one + each.total_bytes + each.result_bytes * (1 + JOB_TIMES) + each.results * 1024 for each in wanted
    )


def shown(each: TrialsWanted) -> str:
    """What is asked, for people: the listing that the look stands on."""
    return f"ls -1Ap {quoted(each.place.where.replace(chr(0), '?'))}"
