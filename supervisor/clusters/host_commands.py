"""Every command that is ever sent to a plain host. All read, except ``CANCEL``.

POSIX sh with stat and ps, on Linux, BSD and macOS. Each script is told a nonce that nothing on the far side can know; its own
lines begin with it, so that nothing that a login shell, a record or a log prints can pass for one of them. Numbers,
ids and nonces are checked before they are put in; every other value passes through ``quoted``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from supervisor.clusters.shell import quoted

_ID = re.compile(r"[0-9]{1,18}")

_LINUX_RECORDS = '"${XDG_STATE_HOME:-$HOME/.local/state}/fleet-supervisor/host"'
_MACOS_RECORDS = '"$HOME/Library/Application Support/fleet-supervisor/host"'

PREAMBLE = r"""
LC_ALL=C; TZ=UTC; export LC_ALL TZ
umask 077
set -f
system=$(uname -s) || exit 71
records=@RECORDS@
"""
"""``set -f``: a star in a record or a process's name is a star."""

FACTS = r"""
machine= boot= space=
if [ -r /etc/machine-id ]; then IFS= read -r machine < /etc/machine-id
elif [ "$system" = Darwin ]; then
  machine=$(ioreg -rd1 -c IOPlatformExpertDevice | sed -n 's/.*"IOPlatformUUID" = "\(.*\)"/\1/p')
fi
[ -n "$machine" ] || machine=$(uname -n)
if [ -r /proc/sys/kernel/random/boot_id ]; then IFS= read -r boot < /proc/sys/kernel/random/boot_id
else boot=$(sysctl -n kern.bootsessionuuid); fi
space=$(readlink /proc/self/ns/pid 2>/dev/null) || space=

# look PID: sets there (alive, gone or hidden), state and start.
look() {
  there=gone state=- start=-
  case $1 in ''|0|*[!0-9]*) return 0 ;; esac
  if [ -e /proc/self/stat ]; then
    whole=
    { while IFS= read -r part || [ -n "$part" ]; do whole="$whole $part"; done < "/proc/$1/stat"; } 2>/dev/null
    if [ -n "$whole" ]; then
      set -- ${whole##*)}
      there=alive state=$1
      shift 19
      start=$1
      return 0
    fi
  else
    whole=$(ps -o stat= -o lstart= -p "$1" 2>/dev/null)
    if [ -n "$whole" ]; then
      set -- $whole
      there=alive state=$1
      shift
      start="$*"
      return 0
    fi
  fi
  # Nothing to see is not the same as nothing there: other users' processes may be hidden.
  if said=$(kill -s 0 "$1" 2>&1); then there=hidden
  else case $said in *[Nn]o\ such\ process*) ;; *) there=hidden ;; esac
  fi
  return 0
}

# of KEY FILE: the value of a key that stands on a line of its own, as our records have it.
of() {
  while IFS= read -r line; do
    case $line in
      " \"$1\": "*)
        line=${line#" \"$1\": "}; line=${line%,}; line=${line#\"}
        printf '%s' "${line%\"}"
        return 0 ;;
    esac
  done < "$2"
  return 1
}
"""

POLL = (
    PREAMBLE
    + FACTS
    + r"""
now=$(date +%s) || exit 71
printf '@NONCE@ hello %s\n' "$now"
printf '@NONCE@ system %s\n' "$(uname -sr)"
printf '@NONCE@ node %s\n' "$(uname -n)"
printf '@NONCE@ machine %s\n' "$machine"
printf '@NONCE@ boot %s\n' "$boot"
printf '@NONCE@ space %s\n' "$space"
printf '@NONCE@ folder %s\n' "$records"
if [ ! -e "$records" ]; then printf '@NONCE@ absent\n@NONCE@ end 0 0\n'; exit 0; fi
cd "$records" || { printf '@NONCE@ unreadable\n'; exit 1; }
format=
if [ -e format ]; then IFS= read -r format < format; fi
printf '@NONCE@ format %s\n' "$format"
for part in live ended logs cancels; do
  if [ ! -d "$part" ] || [ ! -r "$part" ] || [ ! -x "$part" ]; then printf '@NONCE@ unreadable %s\n' "$part"; exit 1; fi
done

# A record moves from live to ended: live is read first, so that it is in one of them at least.
lives=0 logs=
set +f
for file in live/*.json; do
  set -f
  [ -e "$file" ] || continue
  id=${file#live/}; id=${id%.json}
  case $id in ''|*[!0-9]*) continue ;; esac
  lives=$((lives + 1))
  printf '@NONCE@ live %s\n' "$id"
  pid= waiter=
  { while IFS= read -r line; do
    printf '%s\n' "$line"
    case $line in
      ' "pid": '[0-9]*) pid=${line#' "pid": '}; pid=${pid%,} ;;
      ' "waiter": '[0-9]*) waiter=${line#' "waiter": '}; waiter=${waiter%,} ;;
    esac
  done < "$file"; } 2>/dev/null
  look "$pid"; printf '@NONCE@ process %s %s %s\n' "$there" "$state" "$start"
  look "$waiter"; printf '@NONCE@ waiter %s %s %s\n' "$there" "$state" "$start"
  if [ -e "cancels/$id" ]; then
    mark=
    IFS= read -r mark < "cancels/$id"
    printf '@NONCE@ cancel %s\n' "$mark"
  fi
  if [ -e "logs/$id.log" ]; then logs="$logs logs/$id.log"; else printf '@NONCE@ nolog\n'; fi
done
set -f
if [ -n "$logs" ]; then
  if [ "$system" = Linux ]; then stat -c '@NONCE@ log %n %s %Y %d %i' $logs
  else stat -f '@NONCE@ log %N %z %m %d %i' $logs; fi
  printf '@NONCE@ logs %s\n' $?
fi

ends=0 since=$((now - @AGE@)) asked=@ASKED@
set +f
for file in ended/*.json; do
  set -f
  name=${file#ended/}; name=${name%.json}
  at=${name%%-*} id=${name#*-}
  case $at$id in ''|*[!0-9]*) continue ;; esac
  if [ "$at" -lt "$since" ]; then case $asked in *" $id "*) ;; *) continue ;; esac; fi
  ends=$((ends + 1))
  printf '@NONCE@ ended %s\n' "$id"
  cat "$file" || exit 74
done
printf '@NONCE@ end %s %s\n' "$lives" "$ends"
"""
)
"""One poll: clock, machine, live records with what the process table says of them, their logs, records of ends."""

CANCEL = (
    PREAMBLE
    + FACTS
    + r"""
no() { printf '@NONCE@ refused %s\n' "$1"; exit 0; }
cd "$records" || no "the records folder cannot be entered"
file=live/@ID@.json
[ -e "$file" ] || no "it is not running any more"
[ "$(of incarnation "$file")" = @INCARNATION@ ] || no "another process has this number now"
[ "$(of machine "$file")" = "$machine" ] && [ "$(of boot "$file")" = "$boot" ] && [ "$(of pid_namespace "$file")" = "$space" ] ||
  no "it was launched on another machine or before the last restart of this one"
pid=$(of pid "$file"); born=$(of start "$file")
case $pid in ''|0|1|*[!0-9]*) no "it has no process yet" ;; esac
look "$pid"
[ "$there" = alive ] && [ "$start" = "$born" ] || no "its process is not there any more"
printf '%s %s %s\n' @INCARNATION@ @APPROVAL@ "$(date +%s)" > "cancels/.@ID@" && mv "cancels/.@ID@" "cancels/@ID@" ||
  no "the cancel could not be written down"
# Some shells want two dashes before a group's number, busybox takes none.
group() {
  refused=$(kill -s "$1" -- "-$pid" 2>&1) && return
  case $refused in
    *"'--'"*) kill -s "$1" "-$pid" ;;
    *) printf '%s\n' "$refused" >&2; return 1 ;;
  esac
}
if ! said=$(group TERM 2>&1); then no "SIGTERM could not be sent: $said"; fi
printf '@NONCE@ sent TERM\n'
waited=0
while group 0 2>/dev/null && [ "$waited" -lt @GRACE@ ]; do sleep 1; waited=$((waited + 1)); done
if group 0 2>/dev/null; then
  # The number still names this group: either its leader lives, or no new process can have got it.
  look "$pid"
  if [ "$there" = gone ] || [ "$start" = "$born" ]; then
    group KILL 2>/dev/null && printf '@NONCE@ sent KILL\n'
  fi
fi
printf '@NONCE@ end\n'
"""
)
"""Ends the process group of exactly one launch record: politely, and after the grace for good."""

RECORD = (
    PREAMBLE
    + FACTS
    + r"""
cd "$records" || { printf '@NONCE@ unreadable\n'; exit 1; }
file=live/@ID@.json
if [ ! -e "$file" ] || [ "$(of incarnation "$file")" != @INCARNATION@ ]; then
  file=
  set +f
  for one in ended/*-@ID@.json; do
    set -f
    if [ -e "$one" ] && [ "$(of incarnation "$one")" = @INCARNATION@ ]; then file=$one; fi
  done
  set -f
fi
if [ -z "$file" ]; then printf '@NONCE@ none\n@NONCE@ end\n'; exit 0; fi
printf '@NONCE@ record %s\n' "$file"
cat "$file" || exit 74
pid=$(of pid "$file"); born=$(of start "$file")
where=other
if [ "$(of machine "$file")" = "$machine" ] && [ "$(of pid_namespace "$file")" = "$space" ]; then
  if [ "$(of boot "$file")" = "$boot" ]; then where=here; else where=before; fi
fi
look "$pid"
if [ "$there" = alive ] && [ "$start" != "$born" ]; then there=another; fi
printf '@NONCE@ where %s\n@NONCE@ leader %s %s %s\n' "$where" "$pid" "$there" "$state"
if [ "$where" = here ] && [ "$there" != another ]; then
  case $pid in
    ''|0|1|*[!0-9]*) ;;
    *)
      marked=
      set +f
      for one in $(grep -lszxF FLEET_SUPERVISOR_LAUNCH=@INCARNATION@ /proc/[0-9]*/environ); do
        one=${one#/proc/}
        marked="$marked ${one%/environ} "
      done
      set -f
      if [ -r /proc/self/stat ]; then
        set +f
        cat /proc/[0-9]*/stat 2>/dev/null
        set -f
      else ps -A -o pid= -o pgid= -o stat= -o comm=
      fi | while IFS= read -r line; do
        if [ -r /proc/self/stat ]; then
          one=${line%% *}; name=${line#*\(}; name=${name%)*}
          set -- ${line##*) }
          state=$1 group=$3 session=$4
        else
          set -- $line
          one=$1 group=$2 session=$2 state=$3 name=$4
        fi
        case $one in ''|*[!0-9]*) continue ;; esac
        case $state in Z*|X*) continue ;; esac
        its=
        if [ "$group" = "$pid" ] || [ "$session" = "$pid" ]; then its=1; fi
        case $marked in *" $one "*) its=1 ;; esac
        if [ "$its" ]; then printf '@NONCE@ left %s %s %s\n' "$one" "$state" "$name"; fi
      done ;;
  esac
fi
printf '@NONCE@ end\n'
"""
)
"""The record of exactly one launch, whether it lives or ended, and what is there of its group, its session and its environment.

A number still names its group and its session while anything of them lives: no new process gets it. Zombies hold nothing."""


def records_folder(folder: str | None) -> str:
    """The records folder as a word of the script; None for where ``launch`` writes without a config."""
    if folder is None:
        return f'{_LINUX_RECORDS}\n[ "$system" != Darwin ] || records={_MACOS_RECORDS}'
    if folder.startswith("~/"):
        return f'"$HOME"/{quoted(folder[2:])}'
    return quoted(folder)


def poll(nonce: str, folder: str | None, *, age_s: int, asked: Iterable[str]) -> str:
    """``age_s``: how far back ends are listed; ``asked``: ids whose end is listed however old it is."""
    ids = " ".join(job_id for job_id in asked if _ID.fullmatch(job_id))
    return _filled(POLL, NONCE=nonce, RECORDS=records_folder(folder), AGE=str(int(age_s)), ASKED=quoted(f" {ids} "))


def record(nonce: str, folder: str | None, *, job_id: str, incarnation: str) -> str:
    """Raises ValueError for an id or incarnation that no launch record can have."""
    _named(job_id, incarnation)
    return _filled(RECORD, NONCE=nonce, RECORDS=records_folder(folder), ID=job_id, INCARNATION=incarnation)


def cancel(nonce: str, folder: str | None, *, job_id: str, incarnation: str, approval: int, grace_s: int) -> str:
    """Raises ValueError for an id or incarnation that no launch record can have."""
    _named(job_id, incarnation)
    return _filled(
        CANCEL,
        NONCE=nonce,
        RECORDS=records_folder(folder),
        ID=job_id,
        INCARNATION=incarnation,
        APPROVAL=str(int(approval)),
        GRACE=str(int(grace_s)),
    )


def _named(job_id: str, incarnation: str) -> None:
    if not _ID.fullmatch(job_id) or not re.fullmatch(r"[0-9a-f]{32}", incarnation):
        raise ValueError(f"{job_id!r} ({incarnation!r}) names no launch record")


def _filled(script: str, **values: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{16,}", values["NONCE"]):
        raise ValueError("a nonce is at least 16 hexadecimal digits")
    return re.sub(r"@([A-Z]+)@", lambda match: values[match[1]], script)
