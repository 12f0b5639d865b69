"""Trees of trials behind a shell: one script for all jobs of a cluster, and what its answer says (POLL-6). Every failure is a
value: a look that did not come whole tells nothing of its job."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence

from supervisor.clusters import trial_commands
from supervisor.clusters.shell import Ran, Shell
from supervisor.model.errors import ClusterError
from supervisor.model.trials import TrialFile, TrialRead, TrialsSeen, TrialsUnread, TrialsWanted

RESERVE_S = 5.0
"""Of the time for all jobs, what is left for the answer to come back."""


async def read(shell: Shell, wanted: Sequence[TrialsWanted], *, one_s: float, all_s: float) -> dict[str, TrialRead]:
    """By job id. Raises ClusterError where the shell itself gave no answer, so that another one may be asked."""
    if not wanted:
        return {}
    nonce = "n" + secrets.token_hex(12)
    script = trial_commands.script(wanted, nonce, one_s=one_s, all_s=max(1.0, all_s - one_s - RESERVE_S))
    ran = await shell.run(script, limit_s=all_s, limit_bytes=trial_commands.bytes_needed(wanted))
    return answers(wanted, nonce, ran)


def unread(wanted: Sequence[TrialsWanted], error: ClusterError) -> dict[str, TrialRead]:
    """What a shell that gave no answer means for each job."""
    return {each.job_id: TrialsUnread(error.text, trial_commands.shown(each)) for each in wanted}


def answers(wanted: Sequence[TrialsWanted], nonce: str, ran: Ran) -> dict[str, TrialRead]:
    """What came back, by job id. Only a look that ended with its own last line counts."""
    found = _looks(ran.stdout, nonce)
    late = "it was not answered whole within its time"
    if ran.exit_status is None:
        late = "the answer was cut off"
    elif ran.exit_status != 0:
        said = ran.stderr.decode("utf-8", "replace").strip()[:300]
        late = f"the command exited {ran.exit_status}" + (f": {said}" if said else "")
    read: dict[str, TrialRead] = {}
    for number, each in enumerate(wanted):
        asked = trial_commands.shown(each)
        refused = trial_commands.refused(each)
        got = found.get(number)
        if refused is not None:
            read[each.job_id] = TrialsUnread(refused, asked)
        elif got is None:
            read[each.job_id] = TrialsUnread(late, asked)
        elif isinstance(got, str):
            read[each.job_id] = TrialsUnread(got, asked, f"{each.place.where}: {got}")
        else:
            read[each.job_id] = got
    return read


def _looks(data: bytes, nonce: str) -> Mapping[int, TrialsSeen | str]:
    """Each job's look by its number; a failure is its sentence, a look without its last line is left out."""
    sign = nonce.encode()
    line = re.compile(
        rb"\n%b (?:(?P<at>at) (?P<place>\d+) (?P<where>.*)"
        rb"|(?P<kind>file|large|bad) (?P<what>job|trial) (?P<changed>\d+) (?P<size>\d+) (?P<name>.*)"
        rb"|whole (?P<whole>\d+) (?P<folders>\d+) (?P<left>\d+|many)"
        rb"|no (?P<no>\d+) (?P<why>.*)|end)\n" % sign
    )
    looks: dict[int, TrialsSeen | str] = {}
    where = ""
    job: TrialFile | None = None
    files: list[TrialFile] = []
    at = 0
    while found := line.search(data, at):
        at = found.end() - 1  # the line end may begin the next mark
        if found["at"]:
            where, job, files = _text(found["where"]), None, []
        elif found["kind"]:
            content: bytes | None = None
            if found["kind"] == b"file":
                mark = b"\n%b done\n" % sign
                start, end = found.end(), found.end() + int(found["size"])
                if not data.startswith(mark, end):  # it changed while it was read
                    end = data.find(mark, start)
                    if end < 0:
                        break
                content, at = data[start:end], end + len(mark) - 1
            file = _file(found, where, content)
            if file is None:
                continue
            if found["what"] == b"job":
                job = file
            else:
                files.append(file)
        elif found["whole"]:
            folders, many = int(found["folders"]), found["left"] == b"many"
            looks[int(found["whole"])] = TrialsSeen(
                where=where,
                begun=folders,
                results=tuple(files),
                left=folders if many else int(found["left"]),
                job=job,
                too_many=many,
            )
        elif found["no"]:
            looks[int(found["no"])] = _text(found["why"]).strip()
    return looks


def _file(found: re.Match[bytes], where: str, content: bytes | None) -> TrialFile | None:
    """None for a name that is no text: it could not be told from another one."""
    try:
        name = found["name"].decode("utf-8")
    except UnicodeDecodeError:
        return None
    own = "" if found["what"] == b"job" else f"{name}/"
    why = {b"large": "larger than may be read", b"bad": "it could not be read"}.get(found["kind"], "")
    size = int(found["size"])
    return TrialFile(
        name, f"{where}/{own}result.json", int(found["changed"]), size, content, f"{why} ({size} bytes)" if why else ""
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
