"""The on-node page on this machine: what is seen of real processes, by every shell that is called sh somewhere."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from supervisor.clusters import node_commands, node_text
from supervisor.clusters.node_commands import ALL, Ask, Whose
from supervisor.clusters.shell import Ran
from supervisor.model.probe import Captured, Role

LOOK = node_text.Look("node01", "sh")
KNOWN_SHELLS = (("dash",), ("bash", "--posix"), ("bash",), ("busybox", "sh"), ("ksh",))
SHELLS = [list(argv) for argv in KNOWN_SHELLS if shutil.which(argv[0])]
MOST = 2**20
HEADER = "PID PPID PGID STAT NLWP CPUTIMES ETIMES RSS WCHAN COMMAND"
TWO = """
import os, sys, threading, time
threading.Thread(target=lambda: time.sleep(600), daemon=True).start()
os.write(1, b"up\\n")
while len(sys.argv) > 1:
    pass
time.sleep(600)
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc on this system"),
]


def look(*asks: Ask, shell: Sequence[str] = ("sh",), change: str = "", **environment: str) -> list[Captured]:
    nonce = secrets.token_hex(16)
    script = node_commands.script(nonce, asks)
    if change:
        old, _, new = change.partition(" -> ")
        assert old in script
        script = script.replace(old, new)
    done = subprocess.run(
        [*shell, "-s"],
        input=script.encode(),
        capture_output=True,
        env=os.environ | environment,
        start_new_session=True,
        check=False,
        timeout=60,
    )
    return node_text.read(Ran(done.returncode, done.stdout, done.stderr), nonce, asks, LOOK)


class Started:
    """A launcher in a session of its own, with one child that works and one that waits."""

    def __init__(self, **environment: str) -> None:
        self.job = str(900_000_000 + secrets.randbelow(90_000_000))
        """A number that no other test's job bears."""
        script = f'"{sys.executable}" -c "$0" & "{sys.executable}" -c "$0" busy & wait'
        self.process = subprocess.Popen(
            ["sh", "-c", script, TWO],
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | environment | {"SLURM_JOB_ID": self.job},
        )
        try:
            assert self.process.stdout is not None
            assert [self.process.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
        except AssertionError:
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def started() -> Iterator[Started]:
    two = Started(SLURMD_NODENAME="node01", HF_TOKEN="hf_neverShown")
    yield two
    two.end()


def rows(piece: Captured) -> list[dict[str, dict[str, str]]]:
    """Each sample's rows by process id."""
    assert piece.data is not None, piece
    samples = []
    for text in piece.data.decode().split("# sample ")[1:]:
        _, header, *lines = text.splitlines()
        assert header == HEADER
        named = [dict(zip(header.split(), line.split(None, 9), strict=True)) for line in lines]
        samples.append({row["PID"]: row for row in named})
    return samples


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_every_shell_sees_which_process_works_and_which_waits(started: Started, shell: list[str]) -> None:
    """PROBE-2."""
    whose = Whose("session", str(started.pid))

    (piece,) = look(node_commands.processes(whose, MOST, 1), shell=shell)

    first, second = rows(piece)
    assert first.keys() == second.keys()
    assert len(first) == 3
    assert first[str(started.pid)]["COMMAND"].startswith("sh -c ")
    spent = {
        row["COMMAND"].endswith(" busy"): float(second[pid]["CPUTIMES"]) - float(row["CPUTIMES"])
        for pid, row in first.items()
        if row["NLWP"] == "2"
    }
    assert spent[True] > 0.1
    assert spent[False] < 0.05
    assert int(first[str(started.pid)]["ETIMES"]) < 600


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_every_shell_brings_the_threads_by_proc_where_no_debugger_can_be_had(
    started: Started, shell: list[str]
) -> None:
    """PROBE-5."""
    whose = Whose("session", str(started.pid))

    (piece,) = look(node_commands.stack(whose, MOST, apart_s=1), shell=shell, change="command -v gdb -> false")

    assert piece.data is not None, piece
    text = piece.data.decode()
    blocks = text.split("# process ")[1:]
    assert [block.split()[1][:6] for block in blocks] == ["python", "python", "sh"]
    for block in blocks[:2]:
        first, _, second = block.partition("# again after ")
        assert "# not by py-spy: it is neither in our PATH nor in the process's own" in first
        found = re.findall(r"(?m)^thread ([0-9]+) (\w) (\S+) ([0-9]+) ([0-9]+) (.+)$", first)
        assert len(found) == 2
        assert re.findall(r"(?m)^thread ([0-9]+)", second) == [each[0] for each in found]


def test_a_stack_is_had_by_gdb_where_it_is_and_may(started: Started) -> None:
    """PROBE-5."""
    if not shutil.which("gdb"):
        pytest.skip("gdb is not installed")

    (piece,) = look(node_commands.stack(Whose("session", str(started.pid)), MOST, apart_s=1))

    assert piece.data is not None, piece
    if b"# by gdb\n" not in piece.data:
        assert b"# not by gdb: " in piece.data
    else:
        assert re.search(rb"(?m)^#0 ", piece.data)
    assert started.process.poll() is None


def test_no_argument_of_a_function_stands_in_a_stack(tmp_path: Path) -> None:
    """They may be keys and prompts."""
    if not shutil.which("gdb"):
        pytest.skip("gdb is not installed")
    process = subprocess.Popen(["cat", "/dev/stdin", "neverShown"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        time.sleep(0.2)
        (piece,) = look(node_commands.stack(Whose("session", str(process.pid)), MOST, apart_s=1))
    finally:
        process.communicate()

    assert b"neverShown" not in (piece.data or b"")
    for line in re.findall(rb"(?m)^#[0-9]+ .*\((.*)\)", piece.data or b""):
        assert not re.search(rb"=(?!\.\.\.)", line), line


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("echo; echo '#0  0x1 in wait ()'", "not whole within 8 s or "),
        ("echo; echo '#0  0x1 in wait ()'; yes", "not whole within 8 s or "),
        ("echo 'ptrace: Operation not permitted.'; exit 1", "ptrace: Operation not permitted."),
        ("echo 'warning: x'; echo 'Could not attach to process.'", "Could not attach to process."),
    ],
)
def test_half_a_stack_is_none_and_the_next_way_is_taken(
    started: Started, tmp_path: Path, printed: str, reason: str
) -> None:
    """PROBE-2: threads that are missing may be the ones that work."""
    fake = tmp_path / "gdb"
    fake.write_text(f"#!/bin/sh\n{printed}\n")
    fake.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"

    (piece,) = look(node_commands.stack(Whose("session", str(started.pid)), 2**16, apart_s=1), PATH=path)

    assert piece.data is not None, piece
    assert f"# not by gdb: {reason}".encode() in piece.data
    assert b"# by gdb" not in piece.data
    assert piece.data.count(b"# by /proc\n") == 3


def test_a_process_that_a_debugger_left_stopped_goes_on(started: Started, tmp_path: Path) -> None:
    """PROBE-14: a debugger that is cut off while it takes hold leaves its process stopped; that was seen."""
    fake = tmp_path / "gdb"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -p ]; do shift; done\nkill -s STOP "$2"\nexit 1\n')
    fake.chmod(0o755)

    look(
        node_commands.stack(Whose("session", str(started.pid)), MOST, apart_s=1),
        PATH=f"{tmp_path}:{os.environ['PATH']}",
    )

    assert "T" not in {_state(pid) for pid in _family(started)}


def test_no_debugger_holds_a_process_of_which_nothing_is_suspected(started: Started, tmp_path: Path) -> None:
    """PROBE-14: a probe of a healthy run leaves it running."""
    fake, touched = tmp_path / "gdb", tmp_path / "touched"
    fake.write_text(f"#!/bin/sh\necho x > {touched}\nexit 1\n")
    fake.chmod(0o755)

    (piece,) = look(
        node_commands.stack(Whose("session", str(started.pid)), MOST, apart_s=1, gdb_most=0),
        PATH=f"{tmp_path}:{os.environ['PATH']}",
    )

    assert not touched.exists()
    assert b"# by /proc\n" in (piece.data or b"")
    assert b"nothing is suspected of this one" in (piece.data or b"")


def test_a_process_that_was_stopped_before_stays_so(started: Started) -> None:
    """PROBE-14."""
    one = _family(started)[1]
    os.kill(int(one), signal.SIGSTOP)

    (piece,) = look(node_commands.stack(Whose("session", str(started.pid)), MOST, apart_s=1))

    assert _state(one) == "T"
    assert f"thread {one} T ".encode() in (piece.data or b"")
    if shutil.which("gdb"):
        assert b"# not by gdb: it is stopped" in (piece.data or b"")


def _family(started: Started) -> list[str]:
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
    return [str(started.pid), *children]


def _state(pid: str) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_what_no_time_is_left_for_says_so_and_is_not_begun(started: Started) -> None:
    """PROBE-14."""
    whose = Whose("session", str(started.pid))
    asks = (node_commands.devices(), node_commands.processes(whose, MOST, 3), node_commands.stack(whose, MOST))
    nonce = secrets.token_hex(16)
    script = node_commands.script(nonce, asks, within_s=2)
    done = subprocess.run(["sh", "-s"], input=script.encode(), capture_output=True, start_new_session=True, check=True)

    devices, processes, stack = node_text.read(Ran(0, done.stdout, b""), nonce, asks, LOOK)

    assert devices.data is not None
    assert (processes.failure or "").startswith("its time was up after ")
    assert stack.failure == "no time was left of 2 s"


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_job_of_slurm_is_known_by_its_number_in_the_environment_on_its_node_only(
    started: Started, shell: list[str]
) -> None:
    """Several daemons of one machine may each play a node."""
    here = Whose("slurm", started.job, node="node01")
    there = Whose("slurm", started.job, node="node02")
    shorter = Whose("slurm", started.job[:-1], node="node01")

    (piece,) = look(node_commands.processes(here, MOST, 1), shell=shell)
    assert len(rows(piece)[0]) == 3
    for other in (there, shorter):
        (piece,) = look(node_commands.processes(other, MOST, 1), shell=shell)
        assert piece.data is None
        assert piece.failure == (
            f"no process of job {other.what} is seen here: none has it in its control group or in its environment"
        )


def test_nothing_of_an_environment_is_ever_in_an_answer(started: Started) -> None:
    whose = Whose("slurm", started.job, node="node01")
    asks = (
        node_commands.processes(whose, MOST, 1),
        node_commands.stack(whose, MOST, apart_s=1),
        node_commands.memory(whose),
    )

    pieces = look(*asks)

    assert [piece for piece in pieces if piece.data]
    assert b"neverShown" not in b"".join(piece.data or b"" for piece in pieces)


def test_what_left_its_session_is_known_by_the_mark_of_its_launch() -> None:
    """KILL-3."""
    launch = "a" * 32
    stray = subprocess.Popen(
        ["sleep", "600"], start_new_session=True, env=os.environ | {"FLEET_SUPERVISOR_LAUNCH": launch}
    )
    leader = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        (piece,) = look(node_commands.processes(Whose("session", str(leader.pid), launch), MOST, 1))
        assert rows(piece)[0].keys() == {str(stray.pid), str(leader.pid)}
    finally:
        for each in (stray, leader):
            each.kill()
            each.wait()


def test_a_look_does_not_see_itself() -> None:
    (piece,) = look(node_commands.processes(ALL, MOST, 1))

    commands = [row["COMMAND"] for row in rows(piece)[0].values()]
    assert str(os.getpid()) in rows(piece)[0]
    assert not [command for command in commands if command.startswith("sh -c") and "# members" in command]


@pytest.mark.parametrize("name", ["x) S 1 1 1", "1;echo (a", "a\nb", "(", "\x1b[31mred"])
def test_a_name_that_a_process_gives_itself_is_only_a_name(name: str) -> None:
    rename = f"import ctypes, time; ctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0); print(1, flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", rename], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        whose = Whose("session", str(process.pid))
        table, threads = look(
            node_commands.processes(whose, MOST, 1),
            node_commands.stack(whose, MOST, apart_s=1),
            change="command -v gdb -> false",
        )
    finally:
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None

    if "\n" not in name:  # a line of it that is cut in two is passed over
        assert rows(table)[0].keys() == {str(process.pid)}
    for piece in (table, threads):
        assert b"\x1b" not in (piece.data or b"") + (piece.failure or "").encode()


def test_without_proc_a_session_is_listed_by_ps(started: Started) -> None:
    """As on macOS: the same columns, threads and system's waits untold."""
    (piece,) = look(
        node_commands.processes(Whose("session", str(started.pid)), MOST, 1),
        change="[ -r /proc/self/stat ]; then\n  members -> [ -r /nowhere ]; then\n  members",
    )

    first, second = rows(piece)
    assert len(first) == 3
    assert {row["NLWP"] for row in first.values()} == {"-"}
    for pid, row in first.items():
        assert float(second[pid]["CPUTIMES"]) >= float(row["CPUTIMES"])
        assert 0 <= int(row["ETIMES"]) <= int(second[pid]["ETIMES"]) < 600
        assert row["STAT"][0] in "RS"


def test_a_machine_without_accelerators_says_so_positively() -> None:
    (piece,) = look(node_commands.devices())

    assert piece.data is not None
    lines = piece.data.decode().splitlines()
    assert lines[-1] == f"# {len(lines) - 1} accelerator devices"


def test_a_view_of_the_devices_is_had_three_times_with_its_titles(tmp_path: Path) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text('#!/bin/sh\necho "$1"\necho "0, GPU-1, NVIDIA A100, 97 %"\n')
    fake.chmod(0o755)

    view, processes = look(node_commands.gpu(), node_commands.gpu_processes(), PATH=f"{tmp_path}:{os.environ['PATH']}")

    assert view.data is not None
    text = view.data.decode()
    assert re.findall(r"(?m)^# sample ([0-9]) at [0-9]+$", text) == ["1", "2", "3"]
    assert text.count(f"--query-gpu={node_commands.GPU_FIELDS}") == 3
    assert processes.data is not None
    assert f"--query-compute-apps={node_commands.GPU_PROCESS_FIELDS}".encode() in processes.data


def test_a_program_that_fails_is_a_failure_with_its_exact_words(tmp_path: Path) -> None:
    """PROBE-3."""
    fake = tmp_path / "nvidia-smi"
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    fake.write_text(f'#!/bin/sh\necho "{said}"\nexit 9\n')
    fake.chmod(0o755)

    (piece,) = look(node_commands.gpu_processes(), PATH=f"{tmp_path}:{os.environ['PATH']}")

    assert (piece.data, piece.failure, piece.exit_status) == (None, said, 9)
    assert piece.command == f"sh: nvidia-smi --query-compute-apps={node_commands.GPU_PROCESS_FIELDS} --format=csv"


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize("change", ["", "command -v timeout -> false"], ids=["timeout", "as on macOS"])
def test_a_program_that_hangs_costs_its_own_time_and_none_of_the_other_parts(
    tmp_path: Path, shell: list[str], change: str
) -> None:
    """PROBE-14."""
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\nexec sleep 20\n")
    fake.chmod(0o755)
    hangs = Ask(Role.GPU, "nvidia-smi", node_commands.gpu().body, ("index",), seconds=1)

    began = time.monotonic()
    path = f"{tmp_path}:{os.environ['PATH']}"
    hung, devices = look(hangs, node_commands.devices(), shell=shell, change=change, PATH=path)

    assert time.monotonic() - began < 10
    assert hung.data is None
    assert (hung.failure or "").startswith("its time was up after ")
    assert devices.data is not None


def test_a_part_that_says_too_much_is_no_piece(tmp_path: Path) -> None:
    loud = Ask(Role.GPU, "yes", "while :; do echo y; done", bytes=1000, seconds=5)

    loud_piece, devices = look(loud, node_commands.devices())

    assert (loud_piece.data, loud_piece.failure) == (None, "it put out more than 1000 bytes")
    assert devices.data is not None


@pytest.mark.parametrize("value", ["1; touch x", "$(id)", "a b", "'", "1\n2"])
def test_a_number_or_a_name_that_is_none_reaches_no_shell(value: str) -> None:
    for wrong in ({"what": value}, {"leader": value}, {"node": value}):
        with pytest.raises(ValueError, match="names no processes"):
            Whose("slurm", **wrong)


# -- folders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_checkpoint_folder_is_listed_one_level_deep_and_its_newest_two_one_more(
    tmp_path: Path, shell: list[str]
) -> None:
    """FIND-1."""
    for number, name in enumerate(("global_step_10", "global_step_20", "global_step_30", "logs")):
        (tmp_path / name / "actor").mkdir(parents=True)
        (tmp_path / name / "actor" / "deep.pt").write_text("x")
        (tmp_path / name / "data.pt").write_text("12345")
        os.utime(tmp_path / name, (1000 + number, 1000 + number))
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("30\n")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "new\nline").write_text("")
    os.mkfifo(tmp_path / "pipe")

    (piece,) = look(node_commands.checkpoints([str(tmp_path), "/no/where", "relative"], MOST), shell=shell)

    assert piece.data is not None, piece
    text = piece.data.decode()
    assert re.search(r"(?m)^1000 [0-9]+ directory global_step_10$", text)
    assert re.search(r"(?m)^[0-9]+ 3 file latest_checkpointed_iteration.txt$", text)
    assert re.search(r"(?m)^[0-9]+ [0-9]+ link link$", text)
    assert re.search(r"(?m)^[0-9]+ 0 other pipe$", text)
    assert f"# marker {tmp_path}/latest_checkpointed_iteration.txt\n30\n" in text
    assert f"# dir {tmp_path}/global_step_30\n" in text
    assert f"# dir {tmp_path}/global_step_20\n" in text
    assert re.search(r"(?m)^[0-9]+ 5 file data.pt$", text)
    assert f"{tmp_path}/global_step_10\n" not in text
    assert "deep.pt" not in text
    assert "line" not in text.replace("pipeline", "")
    assert text.endswith("# absent /no/where\n")


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_the_newest_logs_of_workers_come_each_with_its_place_and_its_end(tmp_path: Path, shell: list[str]) -> None:
    """FIND-6."""
    logs = tmp_path / "logs"
    logs.mkdir()
    for number, (name, text) in enumerate(
        {
            "worker-1-01000000-11.out": "old\n" * 9,
            "worker-2-01000000-12.err": "line\n" * 1000,
            "worker-3-01000000-13.out": "Traceback\n",
            "worker-4-01000000-14.out": "",
            "python-core-worker-1.log": "no\n",
            "raylet.out": "no\n",
        }.items()
    ):
        (logs / name).write_text(text)
        os.utime(logs / name, (1000 + number, 1000 + number))

    pieces = look(node_commands.sessions(ALL, [str(tmp_path)], 2, 100), shell=shell)

    assert [(piece.source, piece.data, piece.cut, piece.first_line) for piece in pieces] == [
        (f"{logs}/worker-3-01000000-13.out", b"Traceback\n", 0, 1),
        (f"{logs}/worker-2-01000000-12.err", b"line\n" * 20, 4900, 981),
    ]


def test_a_session_is_the_jobs_only_if_one_of_its_processes_holds_a_file_of_it_open(tmp_path: Path) -> None:
    """FIND-6: the usual folder may be another job's on the same machine."""
    logs = tmp_path / "ray" / "session_2026-07-01_12-00-00_000000_1" / "logs"
    logs.mkdir(parents=True)
    (logs / "worker-1-01000000-11.out").write_text("mine\n")
    script = f'exec 7>>"{logs}/python-core-driver-1.log"; echo; sleep 600'
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        (its,) = look(node_commands.sessions(Whose("session", str(process.pid)), [], 4, 100))
        (none,) = look(node_commands.sessions(Whose("session", str(other.pid)), [], 4, 100))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close() if process.stdout else None
        other.kill()
        other.wait()

    assert (its.source, its.data) == (f"{logs}/worker-1-01000000-11.out", b"mine\n")
    assert none.data is None
    assert "no process of the job holds a file of a Ray session open" in (none.failure or "")
