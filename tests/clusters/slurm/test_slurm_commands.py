"""The page of commands: nothing on it searches a file system, and no value can leave its quotes."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.clusters import slurm_commands
from supervisor.clusters.shell import Ran, whole
from supervisor.clusters.slurm_commands import (
    Nonce,
    Place,
    Site,
    again_script,
    cancel_script,
    check_script,
    chunks,
    follow_script,
    places_script,
    poll_script,
    read_script,
)
from supervisor.clusters.slurm_files import NOT_THERE, read_piece
from supervisor.clusters.slurm_jobs import Clock
from supervisor.clusters.slurm_reading import log_stats, stat_of
from supervisor.clusters.slurm_text import Answer, Part, read_answer, read_files, read_places
from supervisor.model.logs import LogState, LogText, LogUnread, LogWanted
from tests.clusters.slurm.login import NONCE

SITE = Site(queue_s=30, accounting_s=45, logs_s=20, quota_s=10)
PAGE = Path(slurm_commands.__file__).read_text()
SCRIPTS = {
    "poll": poll_script(
        NONCE,
        users=("alice",),
        accounts=("lab",),
        since_s=9,
        paths=("/a b",),
        quota_command="lfs quota /x",
        site=SITE,
    ),
    "follow": follow_script(NONCE, users=("alice",), accounts=(), details_of=("1",), find=("2",), site=SITE),
    "again": again_script(NONCE, users=("alice",), accounts=(), site=SITE),
    "places": places_script(NONCE, paths=("/a",), places=(Place("/a", "/", "1", ""),), site=SITE),
    "read": read_script(NONCE, [("/a", 0, 10, True)], SITE),
    "cancel": cancel_script(NONCE, "6_3", "1795988956", SITE),
    "check": check_script(NONCE, users=(), accounts=(), site=SITE),
}


def run(script: str, **env: str) -> Answer:
    """On this machine, by the same shell that a login node has."""
    done = subprocess.run(
        ["sh", "-s"], input=whole(script), capture_output=True, env={**os.environ, **env}, check=False
    )
    return read_answer("alpha", "here", Ran(done.returncode, done.stdout, done.stderr), NONCE)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_command_searches_a_file_system_or_changes_one(name: str) -> None:
    """FIND-1: no find, no du, no recursive listing, ever; and nothing is written or removed."""
    words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_.-]*", SCRIPTS[name]))

    assert not words & {"find", "du", "rm", "mv", "cp", "mkdir", "touch", "tee", "locate", "ls", "sbatch", "scontrol"}
    assert not re.search(r"(?:^|\s)(?:ls|grep)\s+-\w*[rR]", SCRIPTS[name])
    assert not re.search(r"(?<![0-9&>-])>(?!&|/dev/null)", _shell_text(SCRIPTS[name])), "it writes a file"


def _shell_text(script: str) -> str:
    return script.replace("2>/dev/null", "").replace(">/dev/null", "")


@pytest.mark.parametrize("name", SCRIPTS)
def test_only_one_script_can_end_a_job(name: str) -> None:
    """KILL-1"""
    sends = re.findall(r"^\s*(?:part \S+ \S+ )?scancel\b", SCRIPTS[name], re.MULTILINE)

    assert len(sends) == (1 if name == "cancel" else 0)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_is_one_that_a_plain_shell_takes(name: str) -> None:
    done = subprocess.run(["sh", "-n"], input=whole(SCRIPTS[name]), capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_command_has_a_time_limit_on_the_far_side(name: str) -> None:
    lines = [line.strip() for line in SCRIPTS[name].splitlines()]
    asking = [line for line in lines if re.match(r"(?:part\b.*\b|said=.*)?(?:squeue|sacct|scancel|id|date)\b", line)]

    assert all(re.match(r"part \w+ |said=\$\(timeout -k 2 |\[", line) for line in asking), asking


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1), min_size=1))
@settings(max_examples=40, deadline=None)
def test_no_value_leaves_its_quotes(values: list[str]) -> None:
    """Every value comes out of a real shell as it went in."""
    script = "".join(slurm_commands._assign("v", value) + "printf '%s\\0' \"$v\"\n" for value in values)

    done = subprocess.run(["sh", "-s"], input=whole(script), capture_output=True, check=True)

    assert done.stdout.decode().split("\0")[:-1] == values


@pytest.mark.parametrize("job", ["", "6_[1-3]", "7; rm -rf /", "$(id)", "-u", "alice", "7 8", "7,8", "6_*", "١"])
def test_what_is_no_job_id_is_never_put_into_a_cancel(job: str) -> None:
    with pytest.raises(ValueError, match="no job of Slurm"):
        cancel_script(NONCE, job, "1795988956", SITE)


@pytest.mark.parametrize("word", ["", "9abcdefghij", "short", "nAbcdefghij", "n,bcdefghij", "n bcdefghij"])
def test_a_nonce_that_slurm_would_read_as_a_width_or_column_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="nonce"):
        Nonce(word)


def test_every_run_has_a_nonce_of_its_own() -> None:
    assert len({Nonce.fresh().word for _ in range(1000)}) == 1000


@given(st.lists(st.integers(1, 3 * slurm_commands.CHUNK_BYTES), max_size=60))
def test_no_command_grows_beyond_what_systems_take(lengths: list[int]) -> None:
    lots = chunks(lengths, size=lambda length: length)

    assert [length for lot in lots for length in lot] == lengths
    assert all(len(lot) == 1 or sum(lot) <= slurm_commands.CHUNK_BYTES for lot in lots)
    assert [len(lot) for lot in chunks(range(1000))] == [400, 400, 200]


# -- what touches files, on real files ---------------------------------------------------------------------------------


def test_sizes_of_files_with_any_name(tmp_path: Path) -> None:
    """FIND-4: there, positively absent, or not spoken of."""
    odd = tmp_path / "a b\n'\"$(id)\x1b[31m;`x`"
    odd.write_bytes(b"12345")
    (tmp_path / "link").symlink_to(odd)
    paths = [str(odd), str(tmp_path / "link"), str(tmp_path / "gone"), str(tmp_path / "no folder" / "gone")]

    part = run(places_script(NONCE, paths=paths, places=(), site=SITE)).get("logs")

    assert part is not None and part.failure is None
    rows = {row.path: row for row in read_files(part.text, NONCE)}
    assert [rows[path].size for path in paths[:2]] == [5, 5]
    assert rows[paths[2]].seconds is None
    assert paths[3] not in rows


def test_what_no_log_can_be_read_from_is_told(tmp_path: Path) -> None:
    """FIND-4: a folder, a pipe, a socket or a device has a size and a time, and no text of a job."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "sock"))
        paths = [str(tmp_path), str(tmp_path / "pipe"), str(tmp_path / "sock"), "/dev/zero", "/dev/null"]
        part = run(places_script(NONCE, paths=paths, places=(), site=SITE)).get("logs")

    assert part is not None
    clock = Clock("alpha", timedelta(0))
    stats = [stat_of(row.path, row, clock) for row in read_files(part.text, NONCE)]
    assert [one.path for one in stats] == paths
    assert [one.reason for one in stats[:4]] == [
        f"not a regular file but a {word}" for word in ("folder", "pipe", "socket", "device")
    ]
    assert [one.state for one in stats] == [LogState.UNREAD] * 4 + [LogState.NONE]


def test_a_log_that_we_may_not_read_is_unread(tmp_path: Path) -> None:
    """FIND-4: it may grow as it likes, its silence is not known."""
    path = str(tmp_path / "job.out")
    text = f"5 1795988000 1 2 8180 {path}{NONCE.end}\nunreadable {path}{NONCE.end}\n"
    part = Part("logs", 0, text.encode(), "")

    found = log_stats({"1": path}, [part], NONCE, Clock("alpha", timedelta(0)))

    assert (found["1"].state, found["1"].reason) == (LogState.UNREAD, "permission denied")


def test_a_folder_is_listed_one_level_deep_for_names_that_bear_the_whole_id(tmp_path: Path) -> None:
    """FIND-2"""
    names = ["rl_4711.out", "slurm-4711.out", "4711.log", "rl_14711.out", "rl_47110.out", "4711.txt", "x-4711-n1.log"]
    for name in names:
        (tmp_path / name).write_text("x")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "deep_4711.out").write_text("x")
    (tmp_path / "folder_4711.out").mkdir()

    part = run(places_script(NONCE, paths=(), places=[Place("/gone", str(tmp_path), "4711", "")], site=SITE)).get(
        "places"
    )

    assert part is not None
    found = {Path(row.path).name for row in read_places(part.text, NONCE)["4711"]}
    assert found == {"rl_4711.out", "slurm-4711.out", "4711.log", "x-4711-n1.log"}


def test_nothing_is_listed_where_the_schedulers_own_path_is_there(tmp_path: Path) -> None:
    (tmp_path / "rl_4711.out").write_text("x")
    place = Place(str(tmp_path / "rl_4711.out"), str(tmp_path), "4711", "")

    part = run(places_script(NONCE, paths=(), places=[place], site=SITE)).get("places")

    assert part is not None and read_places(part.text, NONCE) == {}


def read(path: Path, offset: int, limit: int, tail: bool = True) -> LogText | LogUnread:
    wanted = LogWanted("1", str(path), offset, limit, tail)
    part = run(read_script(NONCE, [(wanted.path, offset, limit, tail)], SITE)).get("piece")
    assert part is not None
    return read_piece(part, wanted)


@given(data=st.binary(max_size=400), offset=st.integers(0, 500), limit=st.integers(1, 120), tail=st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_piece_of_a_log_is_exactly_those_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, offset: int, limit: int, tail: bool
) -> None:
    """FIND-3: binary safe, by offset; where more waits than the limit, the newest, and the skipped lines are counted."""
    path = tmp_path_factory.mktemp("log") / "job.out"
    path.write_bytes(data)

    piece = read(path, offset, limit, tail)

    assert isinstance(piece, LogText)
    skips = tail and len(data) - offset > limit
    start = len(data) - limit if skips else offset
    assert (piece.offset, piece.data, piece.size) == (start, data[start : start + limit], len(data))
    assert piece.lines_skipped == (data[offset:start].count(b"\n") if skips else 0)


def test_a_log_that_can_not_be_read_is_unread_with_its_reason(tmp_path: Path) -> None:
    """FIND-4: no error text comes out as log text."""
    gone, folder = read(tmp_path / "gone", 0, 10), read(tmp_path, 0, 10)

    assert gone == LogUnread(str(tmp_path / "gone"), NOT_THERE)
    assert folder == LogUnread(str(tmp_path), "not a regular file")


def test_a_log_that_holds_the_marks_of_another_run_is_read_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("\nn9999999999# end piece 0\nn9999999999# whole\n")

    assert isinstance(read(path, 0, 1000), LogText)


def test_a_file_system_that_hangs_costs_its_own_part_alone(tmp_path: Path) -> None:
    """What touches files runs apart: a process that no signal ends is left behind, and the answer is whole all the same."""
    stat = tmp_path / "stat"
    stat.write_text("#!/bin/sh\ntrap '' TERM\nexec sleep 5\n")
    stat.chmod(0o755)
    site = Site(queue_s=1, accounting_s=1, logs_s=1, quota_s=1)
    script = places_script(NONCE, paths=("/a",), places=(), site=site)

    part = run(script, PATH=f"{tmp_path}:{os.environ['PATH']}").get("logs")

    assert part is not None and part.failure == "logs: no answer in time"
