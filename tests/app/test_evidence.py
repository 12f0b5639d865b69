"""Evidence folders: written whole or not there, never believed once they were touched, kept as long as something rests on them."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.app import evidence as module
from supervisor.app.evidence import MANIFEST, Evidence, EvidenceUnwritten, clean, lines_of, open_folder
from supervisor.app.evidence_upkeep import tidy
from supervisor.model.errors import Unproven
from supervisor.model.job import JobKey
from supervisor.model.probe import Captured, Role
from supervisor.model.secrets import HIDDEN, scrubbed
from tests.some import HOUR, NOON, some_key

DAY = timedelta(days=1)


def pieces(log: bytes = b"step 1\nstep 2\n") -> list[Captured]:
    return [
        Captured(role=Role.LOG, command="tail out.log", source="/home/alice/out.log", data=log, cut=90, first_line=7),
        Captured(role=Role.STACK, command="py-spy dump", node="n1", failure="Permission denied", exit_status=1),
        Captured(role=Role.PROCESSES, command="ps", node="n1", data=b"# sample 1 at 5\n"),
        Captured(role=Role.PROCESSES, command="ps", node="../n2", data=b"# sample 1 at 6\n"),
    ]


@pytest.fixture
def evidence(tmp_path):
    return Evidence(tmp_path / "state" / "evidence")


def written(evidence, mark="1-p1", captured=None, key=None, at=NOON, **more):
    key = key or some_key()
    return evidence.write(evidence.name(key, mark), key, 1, at, pieces() if captured is None else captured, **more)


# -- what is in one ----------------------------------------------------------------------------------------------------


def test_a_folder_holds_what_was_captured_and_what_was_not_with_its_command(evidence):
    """PROBE-1, PROBE-3"""
    folder = open_folder(written(evidence).path)

    log, stack, *processes = folder.exhibits
    assert (log.file, log.lines, log.cut, log.first_line, log.source) == ("log.log", 2, 90, 7, "/home/alice/out.log")
    assert (stack.file, stack.failure, stack.exit_status) == (None, "Permission denied", 1)
    assert [each.file for each in processes] == ["processes-n1.txt", "processes-_n2.txt"]
    assert folder.lines("log.log") == ["step 1", "step 2"]
    assert (folder.job, folder.attempt, folder.taken_at) == (some_key(), 1, NOON)


def test_it_is_readable_by_nobody_else(evidence):
    path = written(evidence).path

    assert stat.S_IMODE(evidence.root.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.iterdir()} == {0o600}


@pytest.mark.parametrize(
    "node", ["../../etc", "a/b", "..", ".", "", "\x1b[2J", "n" * 300, "é", "CON", "a\0b", "MANIFEST"]
)
def test_names_are_ours_whatever_a_node_or_a_job_is_called(evidence, node):
    key = JobKey("cluster-a", f"{node}/x", "1")
    captured = [Captured(role=role, command="x", node=node, data=b"1\n") for role in (Role.GPU, Role.GPU, Role.LOG)]
    folder = open_folder(written(evidence, captured=captured, key=key).path)

    inside = {each.name for each in folder.path.iterdir()}
    assert folder.path.parent == evidence.root
    assert inside == {*folder.names, MANIFEST}
    assert len(inside) == 4
    assert all(name.isprintable() and "/" not in name and len(name) < 200 for name in inside)


def test_text_is_scrubbed_line_by_line_so_that_line_numbers_stay(evidence):
    log = (
        b"a\nHF_TOKEN=hf_abcdefghijklmnop123\nb\xff\xfe\r\n"
        + b"x" * 200_000
        + b" --api-key sk-abcdefghijklmnopqrstu1 end\nlast"
    )
    folder = open_folder(written(evidence, captured=pieces(log)).path)
    lines = folder.lines("log.log")

    assert len(lines) == 5
    assert lines[1] == f"HF_TOKEN={HIDDEN}"
    assert lines[2] == "b\udcff\udcfe"
    assert "sk-abc" not in lines[3]
    assert lines[4] == "last"


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_cleaning_keeps_the_number_of_lines_and_says_what_scrubbing_says(parts):
    parts = [part.replace(b"\n", b"") for part in parts]
    data = b"\n".join(parts)
    found = lines_of(clean(data))

    assert len(found) == len(lines_of(data))
    assert clean(clean(data)) == clean(data)


@given(
    st.lists(
        st.sampled_from(["token=abcdefghij", "x", "", "password: hunter22", "http://a:b@c/", "tokens/s 5", " "]),
        min_size=1,
        max_size=12,
    )
)
def test_every_line_is_cleaned_as_by_itself(words):
    data = "\n".join(words).encode()

    assert clean(data).decode().split("\n") == [scrubbed(word) for word in words]


def test_an_equal_piece_of_an_earlier_probe_of_the_same_job_takes_no_room_twice(evidence):
    first, second = written(evidence, "1-p1"), written(evidence, "1-p2")
    other = written(evidence, "1-p3", key=some_key("43"))
    inode = lambda folder: (folder.path / "log.log").stat().st_ino  # noqa: E731

    assert inode(first) == inode(second)
    assert inode(other) != inode(first)


def test_a_changed_earlier_piece_is_not_linked(evidence):
    first = written(evidence, "1-p1")
    (first.path / "log.log").write_bytes(b"all is well\n")
    second = open_folder(written(evidence, "1-p2").path)

    assert second.lines("log.log") == ["step 1", "step 2"]


# -- what is not believed ----------------------------------------------------------------------------------------------


def damage(kind):
    def edit(path: Path) -> None:
        manifest = path / MANIFEST
        told = json.loads(manifest.read_text())
        if kind == "a byte more":
            (path / "log.log").write_bytes(b"step 1\nstep 2\n ")
        elif kind == "another step":
            (path / "log.log").write_bytes(b"step 1\nstep 9\n")
        elif kind == "a file gone":
            (path / "log.log").unlink()
        elif kind == "a link in its place":
            (path / "log.log").unlink()
            (path / "log.log").symlink_to("/etc/hostname")
        elif kind == "no manifest":
            manifest.unlink()
        elif kind == "half a manifest":
            manifest.write_bytes(manifest.read_bytes()[:200])
        elif kind == "a manifest of garbage":
            manifest.write_bytes(b"\xff\x00")
        elif kind == "a manifest that is a list":
            manifest.write_text("[]")
        elif kind == "a manifest of another version":
            manifest.write_text(json.dumps(told | {"schema_version": 2}))
        elif kind == "a path outside":
            told["exhibits"][0]["file"] = "../log.log"
            manifest.write_text(json.dumps(told))
        elif kind == "a file named twice":
            told["exhibits"][2]["file"] = "log.log"
            manifest.write_text(json.dumps(told))
        elif kind == "no time zone":
            manifest.write_text(json.dumps(told | {"taken_at": "2026-07-01T12:00:00"}))
        elif kind == "no such role":
            told["exhibits"][0]["role"] = "opinion"
            manifest.write_text(json.dumps(told))

    return edit


@pytest.mark.parametrize(
    "kind",
    [
        "a byte more", "another step", "a file gone", "a link in its place", "no manifest", "half a manifest",
        "a manifest of garbage", "a manifest that is a list", "a manifest of another version", "a path outside",
        "a file named twice", "no time zone", "no such role",
    ],
)  # fmt: skip
def test_a_folder_that_was_touched_is_refused_in_one_sentence(evidence, kind):
    """PROBE-4"""
    path = written(evidence).path
    damage(kind)(path)

    with pytest.raises(Unproven) as refused:
        open_folder(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


# -- a disk that refuses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_disk_that_fills_up_in_the_midst_leaves_nothing_half_behind(evidence, monkeypatch, nth):
    """Nothing lost: what is there already stays."""
    before = written(evidence, "1-p0", captured=pieces(b"before\n"), key=some_key("41"))
    real, calls = module._durable, [0]

    def durable(path, data):
        calls[0] += 1
        if calls[0] == nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        real(path, data)

    monkeypatch.setattr(module, "_durable", durable)
    if nth > 4:
        written(evidence)
        return
    with pytest.raises(EvidenceUnwritten, match="No space left on device"):
        written(evidence)

    assert [each.name for each in evidence.root.iterdir()] == [before.path.name]
    assert open_folder(before.path).lines("log.log") == ["before"]


def test_a_real_limit_on_file_sizes_is_told_as_the_disk_tells_it(tmp_path):
    """By the system itself: a process that may write no more than 64 KiB into a file."""
    source = f"""
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
from supervisor.app.evidence import Evidence, EvidenceUnwritten
from tests.app.test_evidence import pieces, written
evidence = Evidence(Path({str(tmp_path)!r}) / "evidence")
try:
    written(evidence, captured=pieces(bytes(200_000)))
except EvidenceUnwritten as error:
    print("refused:", error)
print("left:", [each.name for each in evidence.root.iterdir()])
"""
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", source], cwd=root, capture_output=True, text=True, check=True, timeout=60
    )

    assert "File too large" in ran.stdout
    assert "left: []" in ran.stdout


# -- what a crash leaves -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_process_killed_while_it_writes_leaves_no_folder_that_counts(evidence, nth):
    """SIGKILL before each of its files; the next one begins anew."""
    child = os.fork()
    if child == 0:
        real, calls = module._durable, [0]

        def durable(path, data):
            calls[0] += 1
            if calls[0] == nth:
                (path.with_name(path.name + ".part")).write_bytes(data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            real(path, data)

        module._durable = durable
        try:
            written(evidence)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    path = evidence.name(some_key(), "1-p1")
    if nth <= 4:
        with pytest.raises(Unproven):
            open_folder(path)

    folder = open_folder(written(evidence).path)
    assert {each.name for each in folder.path.iterdir()} == {*folder.names, MANIFEST}


# -- as it ages --------------------------------------------------------------------------------------------------------


def test_after_a_day_it_is_packed_and_still_reads_the_same(evidence):
    log = b"step 1 of many, and more words\n" * 4000
    folder = written(evidence, captured=pieces(log))
    done = tidy(evidence.root, {}, NOON + 2 * DAY, 30 * DAY, 10**9)

    packed = open_folder(folder.path)
    assert done.packed == 1
    assert not (folder.path / "log.log").exists()
    assert sum(each.stat().st_size for each in folder.path.iterdir()) < len(log) / 5
    assert packed.data("log.log") == log
    (folder.path / "log.log.zst").write_bytes(b"\x28\xb5\x2f\xfdgarbage")
    with pytest.raises(Unproven, match="damaged"):
        open_folder(folder.path)


def test_nothing_is_packed_or_dropped_that_something_in_force_rests_on(evidence):
    """Never while a verdict needs it."""
    folder = written(evidence, captured=pieces(b"x" * 100_000))
    done = tidy(evidence.root, {str(folder.path): True}, NOON + 900 * DAY, 30 * DAY, 0)

    assert (done.packed, done.dropped) == (0, 0)
    assert open_folder(folder.path).data("log.log") == b"x" * 100_000


def test_what_is_older_than_allowed_goes_and_then_the_oldest_until_the_rest_fits(evidence):
    ages = {"1-p1": 40, "1-p2": 20, "1-p3": 10, "1-p4": 5}
    made = {
        mark: written(evidence, mark, captured=pieces(os.urandom(50_000)), at=NOON - days * DAY).path
        for mark, days in ages.items()
    }
    done = tidy(evidence.root, {str(made["1-p2"]): True}, NOON, 30 * DAY, 115_000)

    assert {path.name for path in evidence.root.iterdir()} == {made["1-p2"].name, made["1-p4"].name}
    assert done.dropped == 2
    assert done.bytes_left <= 115_000


def test_a_folder_that_may_still_be_under_judgement_does_not_go_however_full_it_is(evidence):
    path = written(evidence, captured=pieces(os.urandom(50_000))).path

    assert tidy(evidence.root, {}, NOON + HOUR / 2, 30 * DAY, 1).dropped == 0
    assert path.exists()
    assert tidy(evidence.root, {}, NOON + 2 * HOUR, 30 * DAY, 1).dropped == 1


def test_what_a_crash_left_goes_after_a_day_and_not_before(evidence):
    path = evidence.name(some_key(), "1-p1")
    evidence.begin(path)
    (path / "log.log").write_text("half")
    at = NOON.timestamp()
    os.utime(path, (at, at))

    tidy(evidence.root, {}, NOON + HOUR, 30 * DAY, 10**9)
    assert path.exists()
    tidy(evidence.root, {}, NOON + 2 * DAY, 30 * DAY, 10**9)
    assert not path.exists()


def test_a_root_that_is_not_there_yet_needs_no_tidying(tmp_path):
    assert tidy(tmp_path / "none", {}, NOON, DAY, 1).dropped == 0
