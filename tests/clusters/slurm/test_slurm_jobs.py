"""Rows of Slurm as observations: states, exit codes, attempts, ends, names of nodes, and where a job writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.clusters.slurm_jobs import (
    NOT_LAUNCHED,
    STATES,
    Clock,
    accounting_state,
    all_started,
    clock_offset,
    dependencies,
    details_of,
    ends,
    exit_of,
    listed,
    node_names,
    resolved,
    time_limit,
    used_up,
)
from supervisor.clusters.slurm_text import AccountingRow
from supervisor.model.job import Dependency, JobKey, JobState, Observation
from tests.clusters.slurm.login import accounting_rows, detail_rows, queue_rows

HERE = Clock("alpha", timedelta(0))


def told(rows: list[AccountingRow], *, queue: bool = False, whole: bool = False) -> list[Observation]:
    ids = {row.id for row in rows} if whole else set()
    return ends(rows, queue_rows() if queue else {}, ids, HERE, {})


def by_name(name: str) -> AccountingRow:
    return next(row for row in accounting_rows("poll", "ended") if row.name == name)


# -- one record --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "state", "exit_code", "signal", "reason"),
    [
        ("sft__tulu_a", JobState.COMPLETED, 0, None, None),
        ("rl__gsm8k_a", JobState.FAILED, 3, None, "NonZeroExitCode"),
        ("crash", JobState.FAILED, None, 11, "JobLaunchFailure"),
        ("nodir", JobState.FAILED, None, None, f"JobLaunchFailure: {NOT_LAUNCHED}"),
        ("eval-mmlu", JobState.CANCELLED, None, None, None),
        ("rl__chain_1", JobState.TIMED_OUT, None, None, "TimeLimit"),
        ("nodefail", JobState.NODE_FAILED, None, None, "NodeDown"),
    ],
)
def test_queue_and_accounting_tell_the_same_end(
    name: str, state: JobState, exit_code: int | None, signal: int | None, reason: str | None
) -> None:
    """The queue has a raw wait status, accounting has code:signal; both come out alike."""
    row = next(row for row in queue_rows().values() if row.name == name)

    in_queue, in_accounting = listed(row, HERE), told([by_name(name)])[0]

    for seen in (in_queue, in_accounting):
        assert (seen.state, seen.exit_code, seen.signal) == (state, exit_code, signal)
        assert seen.final
    assert in_queue.key == in_accounting.key
    assert in_queue.ended_at == in_accounting.ended_at
    assert in_queue.reason == reason


def test_a_job_that_was_cancelled_before_it_started_never_started() -> None:
    row = next(row for row in queue_rows().values() if row.name == "datagen__x")

    assert listed(row, HERE).started_at is None
    assert told([by_name("datagen__x")])[0].started_at is None


def test_a_requeued_job_waits_as_its_second_attempt() -> None:
    seen = listed(queue_rows()[requeued_id()], HERE)

    assert (seen.state, seen.attempt, seen.reason) == (JobState.PENDING, 2, "BeginTime")
    assert seen.burn is not None and seen.burn.burned == 1
    assert seen.started_at is None


def requeued_id() -> str:
    return next(row.id for row in queue_rows().values() if row.name == "requeued")


def array_id() -> str:
    return next(row.id for row in queue_rows().values() if row.shown_id.endswith("_[2-5%2]"))


def test_a_held_array_of_5000_tasks_is_one_record_that_says_so() -> None:
    """POLL-11"""
    seen = next(listed(row, HERE) for row in queue_rows().values() if row.name == "held")

    assert (seen.group, seen.group_size, seen.state) == (seen.key.id, 5000, JobState.PENDING)


def test_tasks_and_components_are_jobs_of_their_own_grouped() -> None:
    """POLL-11"""
    array, rows = array_id(), queue_rows()
    het = next(row.id for row in rows.values() if row.id.endswith("+1"))

    assert listed(rows[f"{array}_1"], HERE).group == listed(rows[array], HERE).group == array
    assert listed(rows[het], HERE).group == het.partition("+")[0]


def test_an_unknown_word_moves_nothing() -> None:
    row = queue_rows()[requeued_id()]._replace(state="TELEPORTING")

    assert listed(row, HERE).state is JobState.UNKNOWN
    assert listed(row, HERE).scheduler_state == "TELEPORTING"


def test_a_flag_that_hides_the_state_below_it_is_no_end() -> None:
    """In the queue REQUEUED means that it waits again; in accounting it is the end of an attempt."""
    assert STATES["REQUEUED"] is STATES["SPECIAL_EXIT"] is JobState.PENDING
    assert accounting_state(accounting_rows("follow", "found")[2]) is JobState.REQUEUED


def test_times_are_corrected_by_the_clusters_own_clock() -> None:
    """POLL-10"""
    row = queue_rows()[f"{array_id()}_1"]

    ours = listed(row, Clock("alpha", timedelta(hours=2))).started_at

    assert ours is not None
    assert ours + timedelta(hours=2) == datetime.fromtimestamp(int(row.start), UTC)


@pytest.mark.parametrize(
    ("apart_s", "offset_s"), [(0, 0), (12, 0), (-29, 0), (31, 30), (7200, 7200), (-7213, -7200), (-3600, -3600)]
)
def test_the_clock_offset_does_not_flicker(apart_s: int, offset_s: int) -> None:
    """POLL-10: whole steps of 30 s, and none for less than one."""
    began = datetime(2026, 7, 1, 12, tzinfo=UTC)
    remote = int(began.timestamp()) + apart_s

    assert clock_offset([remote, remote + 2], began, timedelta(seconds=3)) == timedelta(seconds=offset_s)


@pytest.mark.parametrize(
    ("text", "state", "found"),
    [
        ("0:0", JobState.COMPLETED, (0, None)),
        ("1:0", JobState.FAILED, (1, None)),
        ("0:9", JobState.FAILED, (None, 9)),
        ("0:53", JobState.FAILED, (None, 53)),
        ("0:125", JobState.OUT_OF_MEMORY, (None, 125)),
        ("0:0", JobState.TIMED_OUT, (None, None)),
        ("3:0", JobState.TIMED_OUT, (3, None)),
        ("0:0", JobState.CANCELLED, (None, None)),
        ("256", JobState.FAILED, (1, None)),
        ("15", JobState.FAILED, (None, 15)),
        ("253", JobState.OUT_OF_MEMORY, (None, 125)),
        ("", JobState.FAILED, (None, None)),
        ("1:x", JobState.FAILED, (None, None)),
    ],
)
def test_exit_codes(text: str, state: JobState, found: tuple[int | None, int | None]) -> None:
    """Unknown is None, never 0: accounting prints 0:0 for jobs that were ended from outside."""
    assert exit_of(text, state) == found


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("10:00", timedelta(minutes=10)),
        ("1-02:00:00", timedelta(days=1, hours=2)),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_time_limits(text: str, limit: timedelta | None) -> None:
    assert time_limit(text) == limit


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("(null)", ()),
        ("afterany:42(unfulfilled)", (Dependency("afterany", "42"),)),
        (
            "afterany:19(unfulfilled),singleton(unfulfilled)",
            (Dependency("afterany", "19"), Dependency("singleton", "")),
        ),
        (
            "afterok:7_*(failed)?afternotok:8_3(unfulfilled)",
            (Dependency("afterok", "7"), Dependency("afternotok", "8_3")),
        ),
        ("after:12+10(unfulfilled)", (Dependency("after", "12"),)),
    ],
)
def test_dependencies(text: str, edges: tuple[Dependency, ...]) -> None:
    """CHAIN-1"""
    assert dependencies(text) == edges


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("None assigned", ()),
        ("cpu01", ("cpu01",)),
        ("gpu[01-03,07],login1", ("gpu01", "gpu02", "gpu03", "gpu07", "login1")),
        ("r[1-2]n[08-09]", ("r1n08", "r1n09", "r2n08", "r2n09")),
    ],
)
def test_node_names(text: str, names: tuple[str, ...]) -> None:
    assert node_names(text) == names


@given(st.text(alphabet="n0123456789[]-,", max_size=60))
def test_no_list_of_nodes_can_fill_the_memory(text: str) -> None:
    assert len(node_names(text + ",n[1-999999999]")) <= 4096


# -- attempts and ends -------------------------------------------------------------------------------------------------


def test_the_end_of_an_attempt_that_was_requeued_is_not_the_jobs_end() -> None:
    """POLL-4: sacct -D has a row for each attempt."""
    first = told(accounting_rows("follow-requeued", "found"), whole=True)

    assert [(one.state, one.final, one.attempt) for one in first] == [(JobState.REQUEUED, False, 1)]


@pytest.mark.parametrize("word", ["NODE_FAIL", "PREEMPTED", "REQUEUED"])
def test_an_end_after_which_the_queue_lists_the_id_again_is_not_the_jobs_end(word: str) -> None:
    row = next(row for row in accounting_rows("poll", "ended") if row.name == "requeued")._replace(state=word)

    seen = told([row], queue=True)[0]

    assert not seen.final
    assert seen.attempt == 1


def test_a_preempted_job_that_nothing_follows_has_ended() -> None:
    row = by_name("requeued")._replace(state="PREEMPTED")

    assert told([row])[0].final


def test_a_requeued_attempt_alone_is_never_an_end() -> None:
    """Its next attempt may be in neither list for a while."""
    assert not told([by_name("requeued")])[0].final


def test_attempts_are_counted_only_where_the_whole_history_is_known() -> None:
    row = by_name("rl__gsm8k_a")
    second = row._replace(submit=str(int(row.submit) + 100), stop=str(int(row.stop) + 100))

    assert [one.attempt for one in told([row, second], whole=True)] == [1, 2]
    assert [one.final for one in told([row, second], whole=True)] == [False, True]
    assert [one.attempt for one in told([row, second])] == [None, None]


def test_an_id_that_was_used_before_by_another_job_is_no_earlier_attempt() -> None:
    """POLL-11: schedulers reuse ids."""
    row = by_name("rl__gsm8k_a")
    before = row._replace(name="someone_elses", user="bob", submit=str(int(row.submit) - 10**7))

    assert [one.attempt for one in told([before, row], whole=True)] == [1, 1]


def test_a_job_that_runs_has_no_end() -> None:
    rows = [row for row in accounting_rows("follow-requeued", "found") if row.state == "RUNNING"]

    assert rows and told(rows) == []


def test_a_cancelled_job_keeps_the_schedulers_own_words() -> None:
    seen = told([by_name("eval-mmlu")])[0]

    assert seen.scheduler_state.startswith("CANCELLED by ")
    assert seen.details is not None and seen.details.workdir == "/home/alice"


def test_the_rest_of_an_array_of_which_nothing_waits_has_not_vanished() -> None:
    """The last task to start keeps the array's own number: that proves that no task waits any more."""
    row = queue_rows()[f"{array_id()}_1"]
    last = row._replace(shown_id=f"{array_id()}_5", raw_id=array_id())
    key = JobKey("alpha", array_id(), row.submit)

    assert used_up(array_id(), row.submit, [row]) is None
    assert used_up(array_id(), "1", [last]) is None
    assert used_up(array_id(), row.submit, [row, last]) == last
    seen = all_started(key, last, HERE)
    assert (seen.key, seen.state, seen.final) == (key, JobState.COMPLETED, True)
    assert seen.reason is not None and "each is a job of its own" in seen.reason


# -- where a job writes ------------------------------------------------------------------------------------------------


def test_the_path_is_the_schedulers_own_with_patterns_resolved() -> None:
    """FIND-1"""
    row = next(row for row in detail_rows().values() if row.out.endswith("out %x-%5j.txt"))

    found = details_of(row, (22, 5))

    assert found.log_path == f"/home/alice/out chain.sh-{int(row.raw_id):05d}.txt"
    assert found.err_path == f"/home/alice/err-{row.raw_id}.txt"
    assert (found.workdir, found.command, found.restarts) == ("/home/alice", "/home/alice/chain.sh", 0)


def test_a_task_writes_under_its_arrays_number() -> None:
    row = detail_rows()[f"{array_id()}_1"]

    assert details_of(row, (22, 5)).log_path == f"/home/alice/logs-{array_id()}_1.out"
    default = row._replace(out=f"/home/alice/slurm-{row.raw_id}.out")
    assert details_of(default, (22, 5)).log_path == f"/home/alice/slurm-{array_id()}_1.out"
    assert details_of(row._replace(out=""), (24, 5)).log_path == f"/home/alice/slurm-{array_id()}_1.out"


def test_every_component_of_a_heterogeneous_job_writes_into_the_firsts_log() -> None:
    rows = {row.id.partition("+")[2]: row for row in detail_rows().values() if "+" in row.shown_id}

    first, second = (details_of(rows[n], (22, 5)).log_path for n in ("0", "1"))

    assert first == second == f"/home/alice/slurm-{rows['0'].raw_id}.out"


def test_a_job_without_a_batch_script_has_no_log() -> None:
    row = next(iter(detail_rows().values()))

    assert details_of(row._replace(batch="0"), (22, 5)).log_path is None
    assert details_of(row._replace(out="/dev/null"), (22, 5)).log_path is None


@pytest.mark.parametrize(
    ("pattern", "version", "path"),
    [
        ("logs/%x_%j.out", (22, 5), "/home/alice/logs/we rd_1234.out"),
        ("/scratch/%u/%A-%a.log", (22, 5), "/scratch/alice/1234-4294967294.log"),
        ("%N/%8j.out", (22, 5), "/home/alice/n1/00001234.out"),
        ("100%%-%j", (22, 5), "/home/alice/100%-1234"),
        ("%J.%s.%t.%n", (22, 5), "/home/alice/1234.batch.0.0"),
        ("%z%j", (22, 5), "/home/alice/%z1234"),
        ("%b-%r", (22, 5), "/home/alice/%b-%r"),
        ("%b-%r", (25, 11), "/home/alice/4-2"),
        (r"plain\%j.out", (22, 5), "/home/alice/plain%j.out"),
        ("%99999j", (22, 5), "/home/alice/0000001234"),
    ],
)
def test_patterns(pattern: str, version: tuple[int, int], path: str) -> None:
    row = next(iter(detail_rows().values()))._replace(
        shown_id="1234", raw_id="1234", array_id="1234", task_id="N/A", name="we rd", batch_host="n1.site", restarts="2"
    )

    assert resolved(pattern, row, version) == path


def test_a_path_that_bears_a_node_not_known_yet_is_not_known_yet() -> None:
    row = next(iter(detail_rows().values()))._replace(batch_host="n/a")

    assert resolved("%N.out", row, (22, 5)) is None
