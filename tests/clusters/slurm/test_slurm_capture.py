"""Evidence of one job: what the controller's record lets be asked, and what it takes to say that nothing remains."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.clusters import slurm_capture_commands
from supervisor.clusters.shell import Ran
from supervisor.clusters.slurm import SlurmCluster
from supervisor.clusters.slurm_capture import Known, known_of, other_sharing, read_remains
from supervisor.clusters.slurm_commands import UNIT, Nonce, Site
from supervisor.clusters.slurm_settings import SlurmSettings
from supervisor.clusters.slurm_text import Answer, Part, safe_text
from supervisor.model.errors import ClusterError, LoginFailed, TookTooLong
from supervisor.model.job import NO_DETAILS, JobKey, JobState, Observation
from supervisor.model.probe import Captured, CaptureWanted, Remains, Role
from tests.clusters.slurm.login import NONCE, sample

SUBMITTED = "1796000791"
"""2026-11-30T01:06:31 UTC, as in the samples."""
SITE = Site(queue_s=30, accounting_s=45, logs_s=20, quota_s=10)
NOW = datetime(2026, 11, 30, 1, 7, tzinfo=UTC)


def seen(job: str, submitted: str = SUBMITTED) -> Observation:
    return Observation(
        key=JobKey("alpha", job, submitted),
        name="rl__a",
        user="alice",
        state=JobState.RUNNING,
        scheduler_state="RUNNING",
        nodes=("gpu01", "gpu02"),
    )


def record(name: str) -> str:
    return safe_text(sample(f"record-{name}"))


# -- which job the record speaks of ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "job", "known"),
    [
        ("running", "9", Known("9", "9", "", "RUNNING", ("gpu01", "gpu02"))),
        ("array-task", "10_2", Known("10", "10", "", "RUNNING", ("cpu01",))),
        ("array", "10_1", Known("13", "13", "", "RUNNING", ("cpu01",))),
        ("component", "11+1", Known("12", "11", "1", "RUNNING", ("cpu02",))),
    ],
)
def test_the_record_tells_the_number_and_the_nodes_of_exactly_the_job_that_is_probed(
    name: str, job: str, known: Known
) -> None:
    """POLL-11: tasks and components have numbers of their own."""
    assert known_of(record(name), seen(job)) == known


def test_the_waiting_rest_of_an_array_is_not_its_last_task() -> None:
    """POLL-11: the last task bears the array's own number."""
    waiting = known_of(record("array-waiting"), seen("14", "1796000792"))

    assert isinstance(waiting, Known)
    assert (waiting.state, waiting.nodes) == ("PENDING", ())
    assert known_of(record("array"), seen("10")) == "the controller's answer does not speak of job 10"


def test_a_record_of_another_submission_under_the_same_number_is_none() -> None:
    """KILL-2."""
    told = known_of(record("running"), seen("9", "1796000000"))

    assert told == "job 9 was submitted at 2026-11-30T01:06:31 UTC: another submission than the one that is probed"


@pytest.mark.parametrize(
    "name",
    [
        "x\n   JobState=PENDING Reason=None",
        "x\n   SubmitTime=2026-11-30T01:06:00 ",
        "x\n\n   y",
        "x\n\nJobId=9 JobName=y",
    ],
)
def test_a_name_that_looks_like_a_record_makes_it_unusable_and_never_another_one(name: str) -> None:
    told = known_of(record("running").replace("JobName=rl__a", f"JobName={name}"), seen("9"))

    assert told == "its record names no state or no time of submission, or more than one"


@given(st.text(max_size=60) | st.sampled_from(["JobId=9 JobName=x", "slurm_load_jobs error: Invalid job id specified"]))
def test_what_is_no_record_is_a_sentence(text: str) -> None:
    assert isinstance(known_of(text, seen("9")), str)


# -- how a step shares -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sharing", "said", "other"),
    [
        ("--overlap", "srun: unrecognized option '--overlap'", ""),
        (
            "--overlap",
            "srun: error: Unable to create step for job 9: Requested nodes are busy",
            "--overlap --gres=none",
        ),
        ("", "srun: error: Unable to create step for job 9: Requested nodes are busy", "--gres=none"),
        ("--overlap --gres=none", "srun: error: Unable to create step for job 9: Requested nodes are busy", None),
        ("--overlap", "srun: error: Unable to confirm allocation for job 9: Invalid job id specified", None),
        (
            "--overlap",
            "srun: error: Task launch for StepId=9.7 failed on node gpu02: Communication connection failure",
            None,
        ),
        ("--overlap", "", None),
    ],
)
def test_a_step_is_tried_another_way_only_where_this_one_is_unknown_or_busy(
    sharing: str, said: str, other: str | None
) -> None:
    assert other_sharing(sharing, said) == other


def test_a_step_takes_nothing_from_the_job_and_ends_by_itself() -> None:
    """PROBE-14."""
    script = slurm_capture_commands.step_script(
        NONCE, job="9", het="", node="gpu02", look="exit 0", limit_s=61, sharing="--overlap", site=SITE
    )

    (line,) = re.findall(r"(?m)^part node .*\n.*$", script)
    for word in ("$sharing", "--immediate=10", "--ntasks=1", "--mem=0", '--time="$minutes"', "--input=none"):
        assert word in line
    assert 'part node "$limit_s" srun' in line
    assert re.findall(r"(?m)^(?:limit_s|minutes)=(.*)$", script) == ["61", "3"]
    assert "--exclusive" not in script


@pytest.mark.parametrize("value", ["x'; touch y; '", "$(id)", "-w x", "a\nb"])
def test_a_node_is_one_word_whatever_it_is_called(value: str) -> None:
    script = slurm_capture_commands.ssh_script(NONCE, node=value, look="exit 0", limit_s=60, site=SITE)

    assert f"\nnode={_quoted(value)}\n" in script


def _quoted(value: str) -> str:
    from supervisor.clusters.shell import quoted

    return quoted(value)


# -- what remains ------------------------------------------------------------------------------------------------------

STEPS = "STEPID NODELIST NAME\n"


def remains(
    *rows: tuple[str, str, str, str, str], steps: str = STEPS, said: str = "", status: int = 0, job: str = "9"
) -> Remains:
    titles = UNIT.join(("JOBID", "SUBMIT_TIME", "STATE", "JOBID", "NODELIST")) + NONCE.end + "\n"
    out = "" if status else titles + "".join(UNIT.join(row) + NONCE.end + "\n" for row in rows)
    parts = (Part("queue", status, out.encode(), said), Part("steps", 0, steps.encode(), ""))
    return read_remains(Answer(parts), NONCE, seen(job))


def row(state: str, job: str = "9", submitted: str = SUBMITTED) -> tuple[str, str, str, str, str]:
    return job, submitted, state, "9", "gpu[01-02]"


@pytest.mark.parametrize(
    "state", ["RUNNING", "COMPLETING", "SUSPENDED", "PENDING", "CONFIGURING", "STOPPED", "NEW_WORD"]
)
def test_whatever_is_listed_and_not_over_still_holds_something(state: str) -> None:
    """KILL-3: completing is not gone."""
    assert remains(row(state)) == Remains(there=(f"job 9 is {state} and holds gpu[01-02]",))


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED", "FAILED", "TIMEOUT"])
def test_a_job_that_is_over_holds_nothing_but_for_steps_that_are_still_listed(state: str) -> None:
    """KILL-3."""
    assert remains(row(state)) == Remains()
    assert remains(row(state)).gone
    left = remains(row(state), steps=f"{STEPS}9.0 gpu[01-02] sleep\n9.batch gpu01 batch\n90.0 gpu01 other\n")
    assert left == Remains(there=("step 9.0 is there on gpu[01-02]", "step 9.batch is there on gpu01"))


def test_a_number_that_the_controller_does_not_know_or_that_another_submission_bears_holds_nothing_of_ours() -> None:
    unknown = remains(status=1, said="slurm_load_jobs error: Invalid job id specified")
    assert unknown.gone
    assert remains(row("RUNNING", submitted="1796009999"), steps=f"{STEPS}9.0 gpu01 sleep\n").gone
    assert remains(row("RUNNING", job="9_1")).gone


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({"status": 1, "said": "slurm_load_jobs error: Unable to contact slurm controller"}, "squeue: "),
        ({"status": 124}, "squeue: "),
        ({"steps": ""}, "squeue -s printed "),
        ({"steps": "Unable to contact slurm controller\n"}, "squeue -s printed "),
    ],
)
def test_where_the_controller_does_not_answer_nothing_is_gone(changes: dict[str, object], failure: str) -> None:
    """KILL-3, POLL-1."""
    left = remains(**changes)  # type: ignore[arg-type]

    assert (left.failure or "").startswith(failure)
    assert not left.gone


# -- a login node that gives what it is told ---------------------------------------------------------------------------


class Login:
    """Frames what ``says`` gives for each part of a script: standard output, standard error, status."""

    place = "login1"

    def __init__(self, says: Callable[[str, str], tuple[bytes, str, int]], raises: ClusterError | None = None) -> None:
        self.says, self.raises, self.scripts = says, raises, list[str]()

    async def close(self) -> None: ...

    async def run(self, script: str, *, limit_s: float, limit_bytes: int = 0) -> Ran:
        self.scripts.append(script)
        if self.raises is not None:
            raise self.raises
        found = re.search(r"(?m)^mark=(\S+)$", script)
        assert found is not None
        mark = found[1].strip("'").encode()
        if not mark.endswith(b"#"):
            return Ran(
                0,
                b"\n%b begin checkpoints 1\n# absent /ckpt\n\n%b status 0\n%b end checkpoints 0 1\n"
                % (mark, mark, mark),
                b"",
            )
        out = b""
        for part in re.findall(r"(?m)^part ([a-z]+) ", script):
            body, said, status = self.says(part, script)
            name = part.encode()
            out += b"\n%b begin %b\n%b\n%b said %b\n%b\n%b end %b %d" % (
                *(mark, name, body, mark, name, said.encode(), mark, name, status),
            )
        return Ran(0, out + b"\n%b whole\n" % mark, b"")


def good(part: str, script: str) -> tuple[bytes, str, int]:
    if part == "record":
        return sample("record-running"), "", 0
    if part == "accounting":
        return b"JobID|State\n9|RUNNING\n", "", 0
    if part == "script":
        return b"#!/bin/sh\nsrun sleep 600\n", "", 0
    if part == "node":
        return b"", "srun: error: Unable to create step for job 9: Requested nodes are busy", 1
    return b"", "", 0


async def capture(*logins: Login, settings: dict[str, object] | None = None, **changes: object) -> list[Captured]:
    chosen = SlurmSettings(login_nodes=tuple(login.place for login in logins), **(settings or {}))  # type: ignore[arg-type]
    cluster = SlurmCluster("alpha", chosen, logins)
    wanted = replace(CaptureWanted(seen=seen("9"), details=NO_DETAILS), **changes)  # type: ignore[arg-type]
    return list(await cluster.capture(wanted, NOW))


def of(pieces: list[Captured], role: Role) -> list[Captured]:
    return [piece for piece in pieces if piece.role is role]


async def test_everything_that_was_asked_for_is_there_or_says_why_not() -> None:
    """PROBE-3."""
    login = Login(good)

    pieces = await capture(login, checkpoint_dirs=("/ckpt",))

    assert of(pieces, Role.RECORD)[0].data == sample("record-running")
    assert of(pieces, Role.LOG)[0].failure == "no file for its output is known"
    assert of(pieces, Role.CHECKPOINTS)[0].data == b"# absent /ckpt\n"
    for role in (Role.DEVICES, Role.PROCESSES, Role.STACK, Role.GPU, Role.MEMORY, Role.SESSION_LOG):
        assert [piece.node for piece in of(pieces, role)] == ["gpu01", "gpu02"]
        assert all("Requested nodes are busy" in (piece.failure or "") for piece in of(pieces, role))
    tried = [script for script in login.scripts if "\npart node " in script]
    assert len(tried) == 4, "each node once as it is, and once without devices"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("JobState=RUNNING", "JobState=CANCELLED"), "job 9 is CANCELLED: nothing of it runs on a node"),
        (("JobState=RUNNING", "JobState=PENDING"), "job 9 is PENDING: nothing of it runs on a node"),
        (("SubmitTime=2026-11-30T01:06:31", "SubmitTime=2026-11-30T02:06:31"), "another submission"),
    ],
)
async def test_no_node_is_touched_for_a_job_that_does_not_run_as_it_did(change: tuple[str, str], reason: str) -> None:
    """KILL-2, PROBE-14."""

    def changed(part: str, script: str) -> tuple[bytes, str, int]:
        out, said, status = good(part, script)
        return out.replace(change[0].encode(), change[1].encode()), said, status

    login = Login(changed)
    pieces = await capture(login)

    assert not [script for script in login.scripts if "\npart node " in script]
    assert all(reason in (piece.failure or "") for piece in of(pieces, Role.STACK))
    if reason == "another submission":
        assert of(pieces, Role.RECORD)[0].data is None


async def test_nodes_that_may_not_be_looked_at_are_failures() -> None:
    login = Login(good)

    pieces = await capture(login, settings={"node_access": "none"})

    assert {piece.failure for piece in of(pieces, Role.STACK)} == {
        'node_access = "none": compute nodes of this cluster are not looked at'
    }
    assert not [script for script in login.scripts if "\npart node " in script]


async def test_what_only_lives_is_not_asked_of_a_job_that_has_ended() -> None:
    pieces = await capture(Login(good), live=False)

    assert {piece.role for piece in pieces} == {Role.RECORD, Role.ACCOUNTING, Role.SCRIPT, Role.LOG}


async def test_another_login_node_is_asked_where_the_first_does_not_answer() -> None:
    dead, alive = Login(good, raises=TookTooLong("alpha", "the command on login1", 5)), Login(good)

    pieces = await capture(dead, alive, live=False)

    assert of(pieces, Role.RECORD)[0].data == sample("record-running")
    assert dead.scripts


async def test_a_cluster_that_cannot_be_asked_at_all_is_an_error() -> None:
    with pytest.raises(ClusterError, match="refused"):
        await capture(Login(good, raises=LoginFailed("alpha", "login1 refused the key")))


async def test_time_that_is_up_is_told_for_each_node() -> None:
    """PROBE-14."""
    pieces = await capture(Login(good), time_s=5.0)

    assert {piece.failure for piece in of(pieces, Role.PROCESSES)} == {
        "no time was left of the 5 s that all captures have together"
    }


async def test_accounting_that_is_off_or_knows_nothing_is_a_failure() -> None:
    def off(part: str, script: str) -> tuple[bytes, str, int]:
        if part == "accounting":
            return b"", "Slurm accounting storage is disabled", 1
        return good(part, script)

    def unknown(part: str, script: str) -> tuple[bytes, str, int]:
        return (b"JobID|State\n", "", 0) if part == "accounting" else good(part, script)

    assert (
        of(await capture(Login(off), live=False), Role.ACCOUNTING)[0].failure == "Slurm accounting storage is disabled"
    )
    assert of(await capture(Login(unknown), live=False), Role.ACCOUNTING)[0].failure == "accounting knows no such job"


def test_a_nonce_of_one_question_is_not_that_of_another() -> None:
    assert Nonce.fresh() != Nonce.fresh()
