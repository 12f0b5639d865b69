"""The part of the on-node page that looks at processes: which are the job's, what they do, what their threads wait for.

Run by ``node_commands`` in its frame; see there for what the text looks like. Values come as arguments, already :func:`quoted(…)`.
An environment is only ever compared with, or asked for its PATH; none of it is printed.
"""

from __future__ import annotations

LIMITED = r"""
if command -v timeout >/dev/null; then limited() { timeout -k 2 "$@"; }
else
  limited() {
    seconds=$1
    shift
    { "$@" <&5 5<&- & child=$!; } 5<&0
    { sleep "$seconds"; kill -s KILL "$child"; } </dev/null >/dev/null 2>&1 &
    watch=$!
    wait "$child"
    ended=$?
    kill "$watch" 2>/dev/null
    return "$ended"
  }
fi
"""
"""``limited SECONDS COMMAND…``: as coreutils' ``timeout``, also where there is none (macOS)."""

MEMBERS = (
    LIMITED
    + r"""
kind=$1 what=$2 leader=$3 node=$4 self=$5 mark=$6
shift 6
set -f
nl='
'
tab=$(printf '\t')
hz=$(getconf CLK_TCK 2>/dev/null) || hz=100
page=$(grep -m 1 '^KernelPageSize:' /proc/self/smaps 2>/dev/null | tr -cd 0-9)
[ -n "$page" ] || page=4

# claimed: ids of processes that bear the job's id, in their control group or in the environment they were started with.
# A control group under another user's name is another cluster's job of the same id: two clusters may share a machine.
claimed() {
  set +f
  me=$(id -u)
  [ "$me" != 0 ] || me='[0-9][0-9]*'
  {
    grep -sE "/job_$what(/|\$)" /proc/[0-9]*/cgroup /dev/null | sed "s|/uid_$me/|/|" | grep -v '/uid_[0-9][0-9]*/job_'
    grep -lszxF "SLURM_JOB_ID=$leader" /proc/[0-9]*/environ
  } | sed 's|^/proc/||; s|/.*||' | sort -un
  set -f
}

# Several daemons of one machine may each play a node: a process of another one's is not this node's.
elsewhere() {
  [ -n "$node" ] && [ -n "$1" ] || return 0
  files=
  for pid in $1; do files="$files /proc/$pid/environ"; done
  here=$(grep -lszxF "SLURMD_NODENAME=$node" $files)
  for file in $(grep -lsz '^SLURMD_NODENAME=' $files); do
    case "$nl$here$nl" in *"$nl$file$nl"*) ;; *) file=${file#/proc/}; printf ' %s' "${file%/environ}" ;; esac
  done
}

# marked: ids of processes that a launch marked in their environment, whatever session they are in now.
marked() {
  set +f
  grep -lszxF "FLEET_SUPERVISOR_LAUNCH=$leader" /proc/[0-9]*/environ | sed 's|^/proc/||; s|/.*||' | tr '\n' ' '
  set -f
}

# ours: what a look left behind that hung; it bears the mark in its environment.
ours() {
  set +f
  grep -lszxF FLEET_SUPERVISOR_LOOK=1 /proc/[0-9]*/environ | sed 's|^/proc/||; s|/.*||' | tr '\n' ' '
  set -f
}

# members: sets rows, a line of /proc/PID/stat for each process of the job, and pids.
members() {
  rows= pids=
  if [ "$kind" = slurm ]; then
    mine=$(claimed)
    away=" $(elsewhere "$mine") $(ours) "
    files=
    for pid in $mine; do case $away in *" $pid "*) ;; *) files="$files /proc/$pid/stat" ;; esac; done
    [ -z "$files" ] || all=$(cat $files 2>/dev/null)
    [ -n "$files" ] || all=
  else
    set +f
    all=$(cat /proc/[0-9]*/stat 2>/dev/null)
    set -f
    away=
    [ "$kind" != all ] || away=" $(ours) "
  fi
  more=1 taken=' ' marked=
  [ "$kind" != session ] || marked=" $(marked) "
  while [ "$more" ]; do
    more=
    IFS=$nl
    for row in $all; do
      IFS=' '
      pid=${row%% *}
      case $pid in ''|*[!0-9]*) continue ;; esac
      case $taken$away in *" $pid "*) continue ;; esac
      set -- ${row##*) }
      [ $# -ge 22 ] && [ "$4" != "$self" ] || continue
      case $row in *" (slurmstepd) "*) continue ;; esac
      [ "$kind$1$2" != slurmZ1 ] || continue
      if [ "$kind" = session ] && [ "$pid" != "$what" ] && [ "$3" != "$what" ] && [ "$4" != "$what" ]; then
        case $taken in *" $2 "*) ;; *) case $marked in *" $pid "*) ;; *) continue ;; esac ;; esac
      fi
      taken="$taken$pid " rows="$rows$row$nl" pids="$pids $pid"
      [ "$kind" != session ] || more=1
    done
    IFS=' '
  done
  IFS=$nl' '$tab
}

none() {
  case $kind in
    slurm) echo "no process of job $what is seen here: none has it in its control group or in its environment" ;;
    session) echo "no process of session $what is there" ;;
    *) echo "no process but this look itself is there" ;;
  esac
  exit 1
}

# name PID: sets name, the process's own, without what a terminal would obey.
named() { name=$(tr -d '\n' < "/proc/$1/comm" 2>/dev/null | tr '\000-\037\177' ' '); }
"""
)

PROCESSES = r"""
header='PID PPID PGID STAT NLWP CPUTIMES ETIMES RSS WCHAN COMMAND'
sample() {
  printf '# sample %s at %s\n%s\n' "$1" "$(date +%s)" "$header"
  IFS=' .' read -r up rest < /proc/uptime
  left=0 shown=0
  IFS=$nl
  for row in $rows; do
    IFS=' '
    pid=${row%% *}
    set -- ${row##*) }
    shown=$((shown + 1))
    if [ "$shown" -gt 1024 ]; then left=$((left + 1)); continue; fi
    wchan=
    { IFS= read -r wchan < "/proc/$pid/wchan"; } 2>/dev/null
    eval "command=\${c_${pid}_${20}-}"
    if [ -z "$command" ]; then
      command=$(head -c 2048 "/proc/$pid/cmdline" 2>/dev/null | tr '\000-\037\177' ' ')
      command=${command% }
      [ -n "$command" ] || { command=${row#*\(}; command="[${command%)*}]"; }
      eval "c_${pid}_${20}=\$command"
    fi
    ticks=$((${12} + ${13}))
    printf '%s %s %s %s %s %d.%02d %s %s %s %s\n' "$pid" "$2" "$3" "$1" "${18}" \
      $((ticks / hz)) $((ticks % hz * 100 / hz)) $((up - ${20} / hz)) $((${22} * page)) "${wchan:--}" "$command"
  done
  IFS=$nl' '$tab
  [ "$left" = 0 ] || printf '# %s more processes are left out\n' "$left"
}
if [ -r /proc/self/stat ]; then
  members
  [ -n "$rows" ] || none
  sample 1
  sleep "$1"
  members
  sample 2
  exit 0
fi
listed() {
  printf '# sample %s at %s\n%s\n' "$1" "$(date +%s)" "$header"
  ps -A -o pid= -o ppid= -o pgid= -o stat= -o time= -o etime= -o rss= -o wchan= -o command= | awk -v what="$what" '
    function seconds(text,  parts, count, days, total, at) {
      days = 0
      if (split(text, parts, "-") == 2) { days = parts[1]; text = parts[2] }
      count = split(text, parts, ":")
      total = 0
      for (at = 1; at <= count; at++) total = total * 60 + parts[at]
      return total + days * 86400
    }
    { rows[NR] = $0; parent[NR] = $2; id[NR] = $1; if ($3 == what || $1 == what) in_it[$1] = 1 }
    END {
      do {
        more = 0
        for (at = 1; at <= NR; at++) if (!(id[at] in in_it) && (parent[at] in in_it)) { in_it[id[at]] = 1; more = 1 }
      } while (more)
      for (at = 1; at <= NR; at++) if (id[at] in in_it) {
        split(rows[at], word, " ")
        command = rows[at]
        for (skip = 1; skip <= 8; skip++) sub(/^ *[^ ]+/, "", command)
        sub(/^ +/, "", command)
        printf "%s %s %s %s - %.2f %d %s %s %s\n", word[1], word[2], word[3], word[4], seconds(word[5]), \
          seconds(word[6]), word[7], word[8], substr(command, 1, 2048)
      }
    }'
}
[ "$kind" = session ] || { echo 'this system has no /proc, and without it the processes cannot be told apart'; exit 1; }
listed 1
sleep "$1"
listed 2
"""

STACK = r"""
most=$1 budget_s=${LOOK_SECONDS:-60} room=$2 apart_s=$3 gdb_most=$4
share=$((room / 4))
[ -r /proc/self/stat ] || { echo 'this system has no /proc: the threads of a process cannot be looked at'; exit 1; }
began=$(date +%s)
members
[ -n "$rows" ] || none
chosen=$(
  IFS=$nl
  for row in $rows; do
    IFS=' '
    pid=${row%% *}
    set -- ${row##*) }
    [ "$1" = Z ] || printf '%s %s %s\n' "${18}" "${22}" "$pid"
  done | sort -k1,1nr -k2,2nr -k3,3n | head -n "$most" | sed 's/.* //'
)
[ -n "$chosen" ] || { echo 'all of its processes are zombies: they have ended, and nothing runs in them'; exit 1; }
# in_time SECONDS: whether so much is left, and as much again for the threads by /proc.
in_time() { [ $(($(date +%s) - began + $1 + $1)) -lt "$budget_s" ]; }

# state PID: sets state, its letter.
state() { state=$(sed -n 's/^State:[^A-Za-z]*\([A-Za-z]\).*/\1/p' "/proc/$1/status" 2>/dev/null); }

# mended PIDS: a debugger that was cut off as it took hold may have left a process stopped; it goes on as it did before.
mended() {
  for one in $1; do
    state "$one"
    [ "$state" != T ] || kill -s CONT "$one"
  done
}

# py_spy PID: sets spy, the program of our PATH or of the process's own.
py_spy() {
  spy=$(command -v py-spy) && return
  path=$(tr '\0' '\n' < "/proc/$1/environ" 2>/dev/null | sed -n 's/^PATH=//p' | head -n 1)
  IFS=:
  for folder in $path; do
    case $folder in /*) [ -x "$folder/py-spy" ] && { spy=$folder/py-spy; break; } ;; esac
  done
  IFS=$nl' '$tab
  [ -n "$spy" ]
}

first_line() { printf '%s\n' "$1" | tr '\000-\011\013-\037\177' ' ' | sed -n '/./{p;q;}' | head -c 200; }

# fits TEXT: whether there is room for it. printed PID TEXT: a process's block.
fits() { [ "${#1}" -le "$share" ] && [ "${#1}" -le "$room" ]; }
printed() {
  named "$1"
  printf '# process %s %s\n%s\n' "$1" "$name" "$2"
  room=$((room - ${#2}))
  had=$((had + 1))
}

threads() {
  set +f
  for line in $(grep -s '^voluntary_ctxt_switches' /proc/"$1"/task/[0-9]*/status /dev/null | tr -d '\t '); do
    tid=${line#*/task/}
    tid=${tid%%/*}
    case $tid in ''|*[!0-9]*) ;; *) eval "v_$tid=\${line##*:}" ;; esac
  done
  all=$(cat /proc/"$1"/task/[0-9]*/stat 2>/dev/null)
  set -f
  pid=$1 shown=0 left=0
  IFS=$nl
  { for row in $all; do
    IFS=' '
    tid=${row%% *}
    case $tid in ''|*[!0-9]*) continue ;; esac
    name=${row#*\(}
    name=${name%)*}
    set -- ${row##*) }
    [ $# -ge 22 ] || continue
    shown=$((shown + 1))
    if [ "$shown" -gt 256 ]; then left=$((left + 1)); continue; fi
    wchan=
    { IFS= read -r wchan < "/proc/$pid/task/$tid/wchan"; } 2>/dev/null
    eval "switches=\${v_$tid:--}"
    printf 'thread %s %s %s %s %s %s\n' "$tid" "$1" "${wchan:--}" "$((${12} + ${13}))" "$switches" "$name"
  done
  [ "$left" = 0 ] || printf '# %s more threads are left out\n' "$left"; } | tr '\000-\011\013-\037\177' ' '
  IFS=$nl' '$tab
}

had=0 plain='' by_gdb=0 held=''
for pid in $chosen; do
  spy='' why=''
  case $(readlink "/proc/$pid/exe" 2>/dev/null) in
    *python*)
      if py_spy "$pid"; then
        for try in 1 2; do
          in_time 10 || { said='no time is left'; break; }
          said=$(limited 8 "$spy" dump --nonblocking --pid "$pid" 2>&1) || continue
          case $said in *"Thread "*) ;; *) continue ;; esac
          fits "$said" || { said="more than $share bytes"; break; }
          printed "$pid" "# by py-spy dump$nl$said"
          continue 2
        done
        why="$why$nl# not by py-spy: $(first_line "$said")"
      else why="$nl# not by py-spy: it is neither in our PATH nor in the process's own"
      fi ;;
  esac
  if command -v gdb >/dev/null; then
    if [ "$gdb_most" = 0 ]; then why="$why$nl# not by gdb: it holds a process for a moment, and nothing is suspected of this one"
    elif [ "$by_gdb" -ge "$gdb_most" ]; then why="$why$nl# not by gdb: it holds a process for a moment, so only $gdb_most are asked"
    elif ! in_time 12; then why="$why$nl# not by gdb: no time is left"
    elif state "$pid"; [ "$state" = T ]; then why="$why$nl# not by gdb: it is stopped"
    else
      by_gdb=$((by_gdb + 1))
      said=$(limited 8 gdb -nx -batch -iex 'set auto-load off' -iex 'set debuginfod enabled off' \
        -iex 'set print frame-arguments none' -iex 'set pagination off' -p "$pid" -ex 'thread apply all bt 48' \
        -ex 'echo look: whole\n' 2>&1 | grep -v '^\[New LWP' | head -c $((share + 1)))
      case $said in *"look: whole"*) ;; *) held="$held $pid"; sleep 1; mended "$pid" ;; esac
      case $said in
        *"$nl#0 "*"look: whole"*)
          if fits "$said"; then
            printed "$pid" "${why#"$nl"}${why:+$nl}# by gdb$nl$said"
            continue
          fi
          said="more than $share bytes" ;;
        *"$nl#0 "*) said="not whole within 8 s or $share bytes" ;;
      esac
      why="$why$nl# not by gdb: $(first_line "$(printf '%s\n' "$said" | grep -i -e 'not permitted' -e 'could not' -e 'no such' \
        -e 'denied' || printf '%s\n' "$said")")"
    fi
  fi
  plain="$plain $pid"
  eval "why_$pid=\$why at_$pid=\$(date +%s)"
  eval "first_$pid=\$(threads \"$pid\")"
done
[ -z "$plain" ] || sleep "$apart_s"
for pid in $plain; do
  eval "first=\$first_$pid why=\$why_$pid at=\$at_$pid"
  [ -n "$first" ] || continue
  again=$(threads "$pid")
  text="${why#"$nl"}${why:+$nl}# by /proc$nl$first$nl# again after $(($(date +%s) - at)) s$nl${again:-# it has ended}"
  [ "${#text}" -le "$room" ] || { text="# not by /proc: no room is left"; room=$((room + ${#text})); }
  printed "$pid" "$text"
done
mended "$held"
[ "$had" -gt 0 ] || { echo 'its processes ended while they were looked at'; exit 1; }
exit 0
"""
"""``py-spy`` without holding the process still; ``gdb`` of a few processes, for it holds one for a moment.

A dump counts only if it is whole. Arguments of functions are not asked for: they may hold what nobody should read."""
