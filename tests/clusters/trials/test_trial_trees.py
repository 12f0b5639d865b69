"""Trees of trials read by the real script over a real shell; its answer cut, late, or with odd names in it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.clusters import trial_commands, trial_trees
from supervisor.clusters.local import LocalShell
from supervisor.clusters.shell import Ran, whole
from supervisor.model.trials import TrialPlace, TrialRead, TrialsSeen, TrialsUnread, TrialsWanted
from tests.trial_files import job_result, result, write

SHELL = LocalShell("box")
NONCE = "n0123456789abcdef01234567"


def wanted(folder: Path | str, job: str = "42", *, of_jobs: bool = False, **changes: object) -> TrialsWanted:
    place = TrialPlace(str(folder), "--jobs-dir in its command", of_jobs=of_jobs)
    return TrialsWanted(job_id=job, place=place, **changes)  # type: ignore[arg-type]


async def look(*asked: TrialsWanted) -> dict[str, TrialRead]:
    return await trial_trees.read(SHELL, asked, one_s=20, all_s=60)


async def seen(asked: TrialsWanted) -> TrialsSeen:
    answer = (await look(asked))[asked.job_id]
    assert isinstance(answer, TrialsSeen), answer
    return answer


async def unread(asked: TrialsWanted) -> TrialsUnread:
    answer = (await look(asked))[asked.job_id]
    assert isinstance(answer, TrialsUnread), answer
    return answer


def aged(folder: Path, seconds_ago: float) -> Path:
    at = time.time() - seconds_ago
    os.utime(folder, (at, at))
    return folder


async def test_trials_begun_and_ended_and_the_jobs_own_result_are_read(tmp_path: Path) -> None:
    """EVAL-4"""
    write(tmp_path, "a__1", result("a__1"))
    write(tmp_path, "b__2", result("b__2", reward=0.0))
    (tmp_path / "c__3" / "agent").mkdir(parents=True)
    (tmp_path / "result.json").write_bytes(job_result(planned=3, completed=2, passed=1, failed=1, running=1))
    (tmp_path / "job.log").write_text("started\n")

    got = await seen(wanted(tmp_path))

    assert (got.begun, got.left, got.where) == (3, 0, str(tmp_path))
    assert {file.name: file.data for file in got.results} == {
        "a__1": result("a__1"),
        "b__2": result("b__2", reward=0.0),
    }
    assert {file.path for file in got.results} == {f"{tmp_path}/a__1/result.json", f"{tmp_path}/b__2/result.json"}
    assert got.job is not None and got.job.path == f"{tmp_path}/result.json"


async def test_only_one_level_is_looked_at(tmp_path: Path) -> None:
    """FIND-1: results of steps and artifacts below a trial are none of their own."""
    write(tmp_path, "a__1", result("a__1"))
    write(tmp_path / "a__1" / "steps", "s1", result("s1"))

    assert [file.name for file in (await seen(wanted(tmp_path))).results] == ["a__1"]


async def test_what_was_counted_is_not_read_again_and_what_is_new_comes_oldest_first(tmp_path: Path) -> None:
    for number in range(6):
        aged(write(tmp_path, f"t{number}__x", result(f"t{number}__x")), 1000 - 100 * number)
    since = int(time.time()) - 650

    got = await seen(wanted(tmp_path, since_s=since, known=frozenset({"t5__x"}), results=1))
    rest = await seen(wanted(tmp_path, since_s=since, known=frozenset({"t5__x", "t4__x"})))

    assert ([file.name for file in got.results], got.left) == (["t4__x"], 0)
    assert rest.results == ()
    first = await seen(wanted(tmp_path, results=2))
    assert ([file.name for file in first.results], first.left, first.begun) == (["t0__x", "t1__x"], 4, 6)


async def test_a_sample_takes_the_newest_first(tmp_path: Path) -> None:
    for number in range(6):
        aged(write(tmp_path, f"t{number}__x", result(f"t{number}__x")), 1000 - 100 * number)

    got = await seen(wanted(tmp_path, newest=True, results=2))

    assert [file.name for file in got.results] == ["t5__x", "t4__x"]


async def test_bytes_and_entries_are_bounded_and_what_was_left_out_is_told(tmp_path: Path) -> None:
    """FIND-3, PROBE-14"""
    for number in range(5):
        aged(write(tmp_path, f"t{number}__x", b"x" * 3000), 500 - number)
    write(tmp_path, "big__x", b"x" * 9000)

    got = await seen(wanted(tmp_path, result_bytes=4000, total_bytes=7000))
    many = await seen(wanted(tmp_path, entries=5))

    assert ([file.name for file in got.results], got.left) == (["t0__x", "t1__x", "t2__x"], 3)
    large = (await seen(wanted(tmp_path, result_bytes=4000, known=frozenset(f"t{n}__x" for n in range(5))))).results
    assert [(file.name, file.data, file.size) for file in large] == [("big__x", None, 9000)]
    assert "larger than may be read" in large[0].reason
    assert (many.too_many, many.results, many.begun, many.left) == (True, (), 6, 6)


async def test_of_a_folder_of_jobs_the_one_that_changed_since_the_start_is_this_jobs_own(tmp_path: Path) -> None:
    for name, ago in (("2026-06-30__10-00-00", 90_000), ("2026-07-01__09-00-00", 10)):
        write(tmp_path / name, f"t-{name}", result("t"))
        (tmp_path / name / "job.log").write_text("")
        aged(tmp_path / name, ago)

    got = await seen(wanted(tmp_path, of_jobs=True, started_s=int(time.time()) - 3600))

    assert got.where == f"{tmp_path}/2026-07-01__09-00-00"
    assert [file.name for file in got.results] == ["t-2026-07-01__09-00-00"]


async def test_two_jobs_in_one_folder_are_not_told_apart_by_guess(tmp_path: Path) -> None:
    """Doubt moves nothing: another job's trials must not be counted for this one."""
    for name in ("one", "two"):
        write(tmp_path / name, "t__x", result("t__x"))
        (tmp_path / name / "job.log").write_text("")

    told = await unread(wanted(tmp_path, of_jobs=True, started_s=int(time.time()) - 3600))

    assert "several jobs write into it" in told.reason
    assert not told.not_there


async def test_a_place_that_is_not_there_yet_is_told_from_one_that_cannot_be_reached(tmp_path: Path) -> None:
    """EVAL-4: neither is 0 trials."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    old = tmp_path / "jobs" / "old"
    write(old, "t__x", result("t__x"))
    (old / "job.log").write_text("")
    aged(old, 9000)

    reasons = {
        "gone": await unread(wanted(tmp_path / "gone")),
        "deep": await unread(wanted(tmp_path / "gone" / "j1")),
        "empty": await unread(wanted(tmp_path / "empty")),
        "older": await unread(wanted(tmp_path / "jobs", of_jobs=True, started_s=int(time.time()) - 60)),
    }

    assert {name: told.not_there for name, told in reasons.items()} == dict.fromkeys(reasons, True)
    below = await unread(wanted(tmp_path / "file" / "x"))
    assert not below.not_there and "no way to it" in below.reason
    assert (await unread(wanted(tmp_path / "file"))).reason == "it is no folder"
    assert f"ls -1Ap {tmp_path / 'file'}" == (await unread(wanted(tmp_path / "file"))).asked


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user here")
def test_a_folder_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    """POLL-1, EVAL-4"""
    tmp_path.chmod(0o755)
    for above in list(tmp_path.parents)[:3]:
        above.chmod(above.stat().st_mode | 0o055)
    write(tmp_path / "closed", "t__x", result("t__x"))
    (tmp_path / "closed").chmod(0o700)
    asked = [wanted(tmp_path / "closed"), wanted(tmp_path / "closed" / "t__x", "43")]
    done = subprocess.run(
        ["sh", "-s"],
        input=whole(trial_commands.script(asked, NONCE, one_s=20, all_s=60)),
        capture_output=True,
        user=65534,
        group=65534,
        check=False,
    )

    told = trial_trees.answers(asked, NONCE, Ran(done.returncode, done.stdout, done.stderr))

    reasons = [told[each.job_id].reason for each in asked]  # type: ignore[union-attr]
    assert reasons[0] == "permission denied"
    assert reasons[1].startswith("no way to it")


ODD = ["$(touch hacked)", "-rf", "a b", "new\nline", "tab\t", "quote'\"", "ünï__1", "*", "[a]", "\\n", "~", ";", "#x"]


async def test_names_of_any_kind_steer_nothing_and_are_read_where_they_can_be(tmp_path: Path) -> None:
    """House: untrusted names are data."""
    folder = tmp_path / "odd $(touch hacked) 'x'"
    for name in ODD:
        write(folder, name, result("t__x"))

    got = await seen(wanted(folder))

    names = {file.name for file in got.results}
    assert names >= {"$(touch hacked)", "-rf", "a b", "ünï__1", "*", "[a]", "\\n", "~", ";", "#x", "quote'\""}
    assert all(file.data == result("t__x") for file in got.results)
    assert not list(tmp_path.rglob("hacked")) and not Path("hacked").exists()


async def test_a_result_that_looks_like_our_own_marks_is_still_one_result(tmp_path: Path) -> None:
    write(tmp_path, "a__1", b"\nn0 done\n\nn0 whole 0 999 0\n" * 5)

    got = await seen(wanted(tmp_path))

    assert [file.data for file in got.results] == [b"\nn0 done\n\nn0 whole 0 999 0\n" * 5]


async def test_many_jobs_take_one_round_trip_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    """POLL-6"""
    runs = 0

    class Counting(LocalShell):
        async def run(self, script: str, *, limit_s: float, limit_bytes: int = 64 * 2**20) -> Ran:
            nonlocal runs
            runs += 1
            return await super().run(script, limit_s=limit_s, limit_bytes=limit_bytes)

    for number in range(12):
        write(tmp_path / f"j{number}", f"t{number}__x", result(f"t{number}__x"))
    asked = [wanted(tmp_path / f"j{number}", str(number)) for number in range(13)]

    answers = await trial_trees.read(Counting("box"), asked, one_s=20, all_s=60)

    assert runs == 1
    assert isinstance(answers["12"], TrialsUnread)
    assert [answers[str(n)].results[0].name for n in range(12)] == [f"t{n}__x" for n in range(12)]  # type: ignore[union-attr]


async def test_an_answer_that_is_cut_off_counts_only_what_is_whole(tmp_path: Path) -> None:
    """POLL-1: at whatever byte the line drops."""
    for number in range(3):
        write(tmp_path / f"j{number}", "t__x", result("t__x"))
    asked = [wanted(tmp_path / f"j{number}", str(number)) for number in range(3)]
    ran = await SHELL.run(trial_commands.script(asked, NONCE, one_s=20, all_s=60), limit_s=60)
    assert ran.exit_status == 0

    for cut in range(0, len(ran.stdout), 97):
        told = trial_trees.answers(asked, NONCE, Ran(None, ran.stdout[:cut], b""))
        for answer in told.values():
            if isinstance(answer, TrialsSeen):
                assert [file.data for file in answer.results] == [result("t__x")]
            else:
                assert answer.reason == "the answer was cut off"


@given(st.binary(max_size=400))
def test_no_bytes_of_an_answer_break_the_reader(noise: bytes) -> None:
    asked = [wanted("/scratch/j")]
    told = trial_trees.answers(asked, NONCE, Ran(0, b"\n" + NONCE.encode() + b" " + noise, b""))

    assert told.keys() == {"42"}


async def test_a_file_system_that_hangs_costs_its_own_time_and_the_others_are_read(tmp_path: Path) -> None:
    """POLL-6, FIND-4"""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ls").write_text('#!/bin/sh\ncase $PWD in */hangs) sleep 60 ;; esac\nexec /bin/ls "$@"\n')
    (programs / "ls").chmod(0o755)
    write(tmp_path / "hangs", "t__x", result("t__x"))
    write(tmp_path / "fine", "t__x", result("t__x"))
    asked = [wanted(tmp_path / "hangs"), wanted(tmp_path / "fine", "43")]
    script = trial_commands.script(asked, NONCE, one_s=1, all_s=60)
    began = time.monotonic()

    told = trial_trees.answers(asked, NONCE, await SHELL.run(f"PATH={programs}:$PATH\n{script}", limit_s=60))

    assert time.monotonic() - began < 20
    hanging = told["42"]
    assert isinstance(hanging, TrialsUnread) and hanging.reason == "it was not answered whole within its time"
    assert isinstance(told["43"], TrialsSeen)


async def test_on_a_slow_file_system_a_look_ends_whole_with_what_it_could_read(tmp_path: Path) -> None:
    """FIND-4: a bound in time is told like any other, and the next look goes on."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "head").write_text('#!/bin/sh\nsleep 0.1\nexec /usr/bin/head "$@"\n')
    (programs / "head").chmod(0o755)
    for number in range(60):
        aged(write(tmp_path / "jobs", f"t{number:02d}__x", result("t__x")), 600 - number)
    script = trial_commands.script([wanted(tmp_path / "jobs")], NONCE, one_s=4, all_s=60)

    told = trial_trees.answers(
        [wanted(tmp_path / "jobs")], NONCE, await SHELL.run(f"PATH={programs}:$PATH\n{script}", limit_s=60)
    )["42"]

    assert isinstance(told, TrialsSeen)
    assert 15 <= len(told.results) < 60 and told.left >= 1
    assert [file.name for file in told.results] == [f"t{number:02d}__x" for number in range(len(told.results))]


def test_the_page_reads_and_walks_nothing() -> None:
    """FIND-1: no search, no recursion, nothing written."""
    words = set(re.findall(r"(?<![\w./-])[a-z]+(?![\w-])", trial_commands.LOOK))

    assert not words & {"find", "du", "rm", "mv", "cp", "touch", "mkdir", "tee", "tar"}
    assert "-R" not in trial_commands.LOOK
    assert not re.search(r"(?<![2&])>(?!/dev/null|&)", trial_commands.LOOK.replace("2>&1", ""))


def test_what_is_no_path_of_this_machine_is_not_asked_for() -> None:
    for where in ("jobs", "s3://bucket/x", "/a\0b"):
        asked = wanted(where)
        told = trial_trees.answers([asked], NONCE, Ran(0, b"", b""))["42"]
        assert isinstance(told, TrialsUnread)
        assert "\nlook " not in trial_commands.script([asked], NONCE, one_s=1, all_s=1)


async def test_ten_thousand_trials_are_listed_in_seconds(tmp_path: Path) -> None:
    """FIND-3: what is counted is not opened again."""
    names = [f"task-{number:05d}__x" for number in range(10_000)]
    for name in names:
        (tmp_path / name).mkdir()
    write(tmp_path, names[0], result(names[0]))
    began = time.monotonic()

    got = await seen(wanted(tmp_path))

    assert (got.begun, len(got.results)) == (10_000, 1)
    assert time.monotonic() - began < 15
