"""The part of the on-node page that reads folders: workers' own logs, and checkpoints. One level, never a tree (FIND-1).

Run by ``node_commands`` in its frame; see there for what the text looks like. Folders come as arguments, already :func:`quoted(…)`.
"""

from __future__ import annotations

SESSIONS = r"""
most=$1 bytes=$2
shift 2
size_of() { stat -L -c %s -- "$1" 2>/dev/null || stat -L -f %z -- "$1"; }
if [ $# -eq 0 ] && [ -r /proc/self/stat ]; then
  members
  IFS=$nl
  for folder in $(
    IFS=' '
    for pid in $pids; do
      ls -l "/proc/$pid/fd" 2>/dev/null
    done | sed -n 's|.* -> \(/.*/session_[^/]*\)/logs/.*|\1|p' | sort -u | head -n 4
  ); do set -- "$@" "$folder"; done
  IFS=$nl' '$tab
fi
# In a container the usual folder can be no other job's.
if [ $# -eq 0 ] && [ "$kind" = all ] && [ -d /tmp/ray/session_latest/ ]; then set -- /tmp/ray/session_latest; fi
[ $# -gt 0 ] || { echo 'no process of the job holds a file of a Ray session open, and its output names no such folder'; exit 1; }
shown=0
for folder; do
  [ ! -d "$folder/logs" ] || folder=$folder/logs
  if [ ! -d "$folder" ] || [ ! -r "$folder" ]; then missing="$missing $folder"; continue; fi
  IFS=$nl
  for name in $(ls -1t -- "$folder" | grep -E '^(worker-.*\.(out|err)|job-driver-.*\.log)$'); do
    IFS=$nl' '$tab
    [ "$shown" -lt "$most" ] || break
    path=$folder/$name
    [ -f "$path" ] && [ -s "$path" ] || continue
    case $path in *[[:cntrl:]]*) continue ;; esac
    size=$(size_of "$path") || continue
    start=0 lines=0
    if [ "$size" -gt "$bytes" ]; then
      start=$((size - bytes)) lines=-
      [ "$start" -gt 67108864 ] || lines=$(head -c "$start" < "$path" | wc -l | tr -d ' ')
    fi
    printf '\n%s file %s %s %s %s %s\n' "$mark" "$size" "$start" "$((size - start))" "$lines" "$path"
    tail -c +$((start + 1)) < "$path" | head -c $((size - start))
    shown=$((shown + 1))
  done
  IFS=$nl' '$tab
done
[ "$shown" -gt 0 ] || { echo "no worker's log that is not empty stands in" "$@"; exit 1; }
[ -z "$missing" ] || printf '\n%s missing %s' "$mark" "$missing"
"""
"""Runs after the script that tells which processes are the job's. Each file is a frame of its own, with its length::

    MARK file SIZE START LENGTH LINES-BEFORE PATH
    MARK missing FOLDER…

LINES-BEFORE is ``-`` where the part before the tail was too long to count."""

CHECKPOINTS = r"""
umask 077
row_of() {
  if stat -c %s / >/dev/null 2>&1; then stat -c '%Y %s %F %n' -- "$@"; else stat -f '%m %z %HT %N' -- "$@"; fi |
    sed 's/^\([0-9]* [0-9]*\) [Dd]irectory /\1 directory /; s/^\([0-9]* [0-9]*\) [Rr]egular [Ff]ile /\1 file /
      s/^\([0-9]* [0-9]*\) regular empty file /\1 file /; s/^\([0-9]* [0-9]*\) [Ss]ymbolic [Ll]ink /\1 link /
      t
      s/^\([0-9]* [0-9]*\) \(socket\|fifo\|[a-z]* special file\|[A-Z][a-z]* Device\) /\1 other /'
}
level() {
  printf '# dir %s\n' "$1"
  set --
  count=0
  for name in *; do
    [ -e "$name" ] || [ -L "$name" ] || continue
    case $name in *[[:cntrl:]]*) continue ;; esac
    count=$((count + 1))
    [ "$count" -gt 500 ] || set -- "$@" "$name"
  done
  [ $# -eq 0 ] || row_of "$@"
  [ "$count" -le 500 ] || printf '# %s more entries are left out\n' "$((count - 500))"
}
for folder; do
  case $folder in *[[:cntrl:]]*) continue ;; esac
  if [ ! -e "$folder" ]; then printf '# absent %s\n' "$folder"; continue; fi
  if ! cd "$folder" 2>/dev/null || [ ! -r . ]; then printf '# unreadable %s\n' "$folder"; continue; fi
  level "$folder"
  for name in latest latest_checkpointed_iteration.txt latest_ckpt_global_step.txt latest_checkpoint latest_checkpoint.txt \
    last_checkpoint latest_train_state.pt.json; do
    [ -f "$name" ] && [ ! -L "$name" ] && [ -r "$name" ] || continue
    printf '# marker %s/%s\n' "$folder" "$name"
    head -c 400 < "$name" | tr '\000-\011\013-\037\177' ' '
    echo
  done
  ls -1td -- */ 2>/dev/null | grep -E '^(global_step|checkpoint|step|iter|epoch)[-_a-z]*[0-9]+/$' | head -n 2 |
    while IFS= read -r name; do
      (cd "./$name" 2>/dev/null && level "$folder/${name%/}") || printf '# unreadable %s\n' "$folder/${name%/}"
    done
done
:
"""
"""One level, and one more of the two newest checkpoints."""
