"""What is no log, or can't be read: a clear word per file, and the rest is diagnosed."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zstandard

from supervisor.app.diagnose import Source, diagnose_files, find_sources, main, read_source
from supervisor.app.packs import Prepared, prepare
from supervisor.diagnosis.catalogue import PackError
from supervisor.model.errors import UsageError

OOM = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB\n"
)
PACK = """
[[signature]]
code = "ours"
role = "cause"
category = "quota"
pattern = "tape is full"
why = "The tape library has no room."
matches = ["tape is full"]
"""


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    status = main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def states(document: dict) -> dict[str, tuple[str, str | None]]:
    return {entry["path"]: (entry["state"], entry["reason"]) for entry in document["read"]["files"]}


def test_each_file_gets_its_word_and_the_rest_is_diagnosed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "empty.log").touch()
    (tmp_path / "model.pt").write_bytes(bytes(range(1, 32)) * 300)
    (tmp_path / "whole.log.gz").write_bytes(gzip.compress(b"step 1/80 loss 1.0\n" * 99))
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(os.urandom(50_000))[:9000])
    (tmp_path / "noise.zst").write_bytes(b"\x28\xb5\x2f\xfd" + b"\xff" * 500)
    packed = zstandard.ZstdCompressor().compress(b"step 1/80 loss 1.0\n" * 9 + os.urandom(50_000))
    (tmp_path / "cut.zst").write_bytes(packed[:20_000])
    (tmp_path / "job.log").write_bytes(b"step 1/80 loss 1.0\n" + OOM)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "dangling.log").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "fifo")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "sock"))
    status, document = answered(capsys, str(tmp_path))
    server.close()

    assert (status, document["category"], document["cause"]["file"]) == (0, "gpu-oom", "job.log")
    assert states(document) == {
        "cut.log.gz": ("partly", "read up to an error: the archive is cut off"),
        "dangling.log": ("unread", "No such file or directory"),
        "empty.log": ("empty", "the file is empty"),
        "fifo": ("unread", "it is a pipe, not a log"),
        "job.log": ("read", None),
        "model.pt": ("binary", "looks like a binary file, not a log"),
        "cut.zst": ("partly", "read up to an error: the archive is cut off"),
        "noise.zst": ("unread", states(document)["noise.zst"][1]),
        "sock": ("unread", "it is a socket, not a log"),
        "whole.log.gz": ("read", None),
    }
    assert "the archive is damaged" in str(states(document)["noise.zst"][1])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads files of any mode")
def test_a_file_without_permission_is_unread_and_the_exit_status_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    log = tmp_path / "job.log"
    log.write_bytes(OOM)
    log.chmod(0)
    status, document = answered(capsys, str(log))

    assert (status, document["category"]) == (2, "unread")
    assert document["missing"] == [f"{log}: Permission denied"]


def test_nothing_readable_is_unread_with_exit_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "model.bin").write_bytes(b"\x7fELF" + bytes(range(256)) * 9)
    status, document = answered(capsys, str(tmp_path))

    assert (status, document["category"], document["cause"]) == (2, "unread", None)


def test_an_empty_log_is_no_fault_but_missing_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """FAIL-3"""
    (tmp_path / "job.log").touch()
    status, document = answered(capsys, str(tmp_path / "job.log"))

    assert (status, document["category"], document["confidence"]) == (0, "none", "low")
    assert "wrote nothing" in document["missing"][0]


def test_a_path_that_is_not_there_is_one_clear_line(capsys: pytest.CaptureFixture[str]):
    assert main(["/nowhere/job.log"]) == 2
    assert capsys.readouterr().err == "supervisorctl: diagnose: /nowhere/job.log: there is no such file or folder\n"


def test_a_glob_without_matches_is_one_clear_line():
    with pytest.raises(UsageError, match="no file matches"):
        find_sources(["/nowhere/*.log"])


@pytest.mark.parametrize("packed", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_archives_give_lines_of_the_plain_text(tmp_path: Path, packed, shipped: Prepared):
    (tmp_path / "job.log").write_bytes(packed(b"one\ntwo\n" + OOM))
    answer = diagnose_files([Source("job.log", path=str(tmp_path / "job.log"))], None, shipped)

    assert answer.cause is not None
    assert (answer.cause.line, answer.cause.text) == (3, OOM.rstrip())


def test_an_archive_of_several_members_is_read_to_its_end(tmp_path: Path, shipped: Prepared):
    (tmp_path / "job.log.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(OOM))
    reading = read_source(Source("job.log.gz", path=str(tmp_path / "job.log.gz")), shipped)

    assert [hit.line for hit in reading.hits] == [2]


def test_a_file_that_shrinks_while_it_is_read_is_read_as_far_as_it_goes(tmp_path: Path, shipped: Prepared):
    log = tmp_path / "job.log"
    log.write_bytes(b"quiet line\n" * 600_000 + OOM)

    def cut(_name: str, _read: int) -> None:
        os.truncate(log, 3_000_000)

    reading = read_source(Source("job.log", path=str(log)), shipped, cut)

    assert reading.state == "read"
    assert reading.bytes < 600_000 * 11


def test_a_huge_single_line_takes_bounded_memory(shipped: Prepared):
    piece = b"x" * (1 << 20)

    class Endless:
        left = 300 << 20

        def readinto(self, view: memoryview) -> int:
            size = min(len(view), self.left, len(piece))
            view[:size] = piece[:size]
            self.left -= size
            return size

    tracemalloc.start()
    reading = shipped.scanner.read("job.log", Endless())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert (reading.lines, reading.bytes) == (1, 300 << 20)
    assert peak < 40 << 20


def test_standard_input_is_read():
    done = subprocess.run(
        [sys.executable, "-m", "supervisor.app.diagnose", "-", "--json"],
        input=b"a\n" + OOM,
        capture_output=True,
        check=True,
    )
    document = json.loads(done.stdout)

    assert (document["cause"]["file"], document["cause"]["line"]) == ("-", 2)


def test_a_pipe_named_on_the_command_line_is_read():
    argv = f"{sys.executable} -m supervisor.app.diagnose <(printf 'a\\nFile x\\n'; cat) --json"
    done = subprocess.run(["bash", "-c", argv], input=OOM, capture_output=True, check=True)

    assert json.loads(done.stdout)["cause"]["line"] == 3


def test_threads_take_turns_at_one_scanner(shipped: Prepared):
    logs = [b"quiet\n" * n + OOM for n in range(1, 13)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda log: diagnose_files([Source("x", data=log)], None, shipped), logs))

    assert [answer.cause.line for answer in answers if answer.cause] == list(range(2, 14))


def test_escape_codes_in_a_log_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Untrusted text is data; in JSON the bytes are exact."""
    line = "\x1b]0;owned\x07torch.OutOfMemoryError: CUDA out of memory. Tried to allocate \x1b[2J\x9b31m\x07"
    (tmp_path / "job.log").write_text(line + "\n", "utf-8")
    assert main([str(tmp_path / "job.log"), "--color", "never"]) == 0
    text = capsys.readouterr().out
    _, document = answered(capsys, str(tmp_path / "job.log"))

    assert "\x1b" not in text
    assert "\x07" not in text
    assert "torch.OutOfMemoryError: CUDA out of memory" in text
    assert document["cause"]["text"] == line


def test_bytes_that_are_no_utf8_can_be_given_back_from_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "job.log").write_bytes(b"caf\xe9: " + OOM)
    _, document = answered(capsys, str(tmp_path / "job.log"))

    assert document["cause"]["text"].encode("utf-8", "surrogateescape") == b"caf\xe9: " + OOM.rstrip()


def test_a_broken_pack_of_the_users_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pack = tmp_path / "mine.toml"
    pack.write_text(PACK.replace("tape is full", "(a+)+bcdef"))
    (tmp_path / "job.log").write_bytes(OOM)

    assert main([str(tmp_path / "job.log"), "--pack", str(pack)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{pack}: ours: pattern" in said
    assert "run for ever" in said


def test_a_users_pack_is_used_and_entries_can_be_switched_off(tmp_path: Path):
    pack = tmp_path / "mine.toml"
    pack.write_text(PACK)
    prepared = prepare([pack], [], cached=False)
    answer = diagnose_files([Source("x", data=b"tape is full\n")], None, prepared)

    assert answer.category == "quota"
    with pytest.raises(UsageError, match="no signature is called"):
        prepare([pack], ["nothing_like_this"], cached=False)
    with pytest.raises(PackError):
        prepare([pack, pack], cached=False)
