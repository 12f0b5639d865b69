"""``supervisorctl launch``, run as a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.clusters.host.box import ROOT, Box, until

pytestmark = pytest.mark.lab


async def test_it_prints_the_job_s_name_and_its_log_and_does_not_wait_for_it(box: Box) -> None:
    done = box.run("launch", "--state-dir", str(box.state), "--name", "rl__x", "--", "sleep", "600")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"host/1\nlog: {box.records}/logs/1.log\n"
    assert (await box.one("1")).name == "rl__x"


async def test_all_that_the_command_prints_goes_to_its_own_log_and_it_has_nothing_to_read(box: Box) -> None:
    job = box.sh("echo out; echo err >&2; cat; echo end")
    await box.ended(job)

    assert (box.records / "logs" / f"{job}.log").read_text() == "out\nerr\nend\n"


async def test_the_command_runs_in_a_session_of_its_own_in_the_folder_it_was_given(box: Box, tmp_path: Path) -> None:
    words = ("--state-dir", str(box.state), "--name", "x", "--cwd", str(tmp_path))
    done = box.run("launch", *words, "--", "sh", "-c", "pwd; ps -o sid= -p $$; echo $$")
    assert done.returncode == 0
    await box.ended("1")

    folder, session, pid = (box.records / "logs" / "1.log").read_text().split()
    assert folder == str(tmp_path)
    assert session == pid


async def test_the_environment_reaches_the_command(box: Box) -> None:
    words = ("launch", "--state-dir", str(box.state), "--name", "x", "--", "sh", "-c", 'echo "$LEARNING_RATE"')
    assert box.run(*words, LEARNING_RATE="1e-6").returncode == 0
    await box.ended("1")

    assert (box.records / "logs" / "1.log").read_text() == "1e-6\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--name", "x", "--", "no-such-program"), "command not found: no-such-program"),
        (("--name", "x", "--", "./no-such-program"), "there is no program"),
        (("--name", "x", "--", "/etc/passwd"), "/etc/passwd is not executable"),
        (("--name", "x", "--cwd", "/no/such/folder", "--", "true"), "there is no folder /no/such/folder"),
        (("--name", "x"), "no command"),
        (("--name", "x", "--"), "no command"),
        (("--name", " ", "--", "true"), "--name is empty"),
    ],
)
def test_what_cannot_work_is_one_line_and_exit_2_before_anything_is_recorded(
    box: Box, words: tuple[str, ...], said: str
) -> None:
    done = box.run("launch", "--state-dir", str(box.state), *words)

    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not box.records.exists()


async def test_a_program_that_the_kernel_refuses_is_said_and_recorded_as_never_started(
    box: Box, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELFgarbage")
    program.chmod(0o755)

    done = box.run("launch", "--state-dir", str(box.state), "--name", "x", "--", str(program))

    assert done.returncode == 1
    assert f"{program} could not be started: Exec format error" in done.stderr
    ended = await box.ended("1")
    assert (ended.state, ended.exit_code, ended.reason) == ("failed", None, "could not be started: Exec format error")


def test_launches_at_one_moment_get_a_number_each(box: Box) -> None:
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda n: box.launch("sleep", "600", name=f"x{n}"), range(8)))

    assert sorted(jobs, key=int) == [str(n) for n in range(1, 9)]


def test_records_and_logs_are_for_their_owner_alone(box: Box) -> None:
    """A command line may hold a secret."""
    box.launch("sleep", "600")

    assert {oct(path.stat().st_mode & 0o777) for path in box.records.rglob("*") if path.is_file()} == {"0o600"}
    assert oct(box.records.stat().st_mode & 0o777) == "0o700"


def test_a_place_that_cannot_be_written_is_one_clear_line(box: Box) -> None:
    box.state.write_text("a file where the folder should be")

    done = box.run("launch", "--state-dir", str(box.state), "--name", "x", "--", "true")

    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_records_of_a_newer_version_are_left_alone(box: Box) -> None:
    box.launch("true")
    (box.records / "format").write_text("2\n")

    done = box.run("launch", "--state-dir", str(box.state), "--name", "x", "--", "true")

    assert done.returncode == 1
    assert "format '2'" in done.stderr


class TestWithAConfig:
    @pytest.fixture
    def config(self, tmp_path: Path) -> Path:
        return tmp_path / "config.toml"

    def launched(self, box: Box, config: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return box.run("--config", str(config), "launch", "--name", "x", *words, "--", "true", cwd=ROOT, **environment)

    def test_the_cluster_and_the_state_folder_are_the_config_s(self, box: Box, config: Path) -> None:
        config.write_text('state_dir = "state"\n[[cluster]]\nname = "box"\nkind = "host"\n')

        done = self.launched(box, config)

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == ["box/1", f"log: {box.records}/logs/1.log"]

    def test_a_folder_of_records_named_by_the_cluster_counts(self, box: Box, config: Path, tmp_path: Path) -> None:
        config.write_text(f'[[cluster]]\nname = "box"\nkind = "host"\nrecords = "{tmp_path}/elsewhere"\n')

        assert f"log: {tmp_path}/elsewhere/logs/1.log" in self.launched(box, config).stdout

    def test_the_environment_outweighs_the_config(self, box: Box, config: Path, tmp_path: Path) -> None:
        config.write_text('state_dir = "state"\n[[cluster]]\nname = "box"\nkind = "host"\n')

        done = self.launched(box, config, SUPERVISOR__STATE_DIR=str(tmp_path / "other"))

        assert f"log: {tmp_path}/other/host/logs/1.log" in done.stdout

    def test_two_clusters_for_this_machine_need_to_be_told_apart(self, box: Box, config: Path, tmp_path: Path) -> None:
        config.write_text(
            '[[cluster]]\nname = "a"\nkind = "host"\n[[cluster]]\nname = "far"\nkind = "host"\nhost = "elsewhere"\n'
            f'[[cluster]]\nname = "b"\nkind = "host"\nrecords = "{tmp_path}/b"\n'
        )

        unclear = self.launched(box, config)
        assert (unclear.returncode, unclear.stdout) == (2, "")
        assert "--cluster (a, b)" in unclear.stderr
        assert self.launched(box, config, "--cluster", "b").stdout.startswith("b/1\n")
        assert self.launched(box, config, "--cluster", "far").returncode == 2

    def test_a_launch_that_nobody_watches_says_so(self, box: Box, config: Path) -> None:
        config.write_text('state_dir = "state"\n')

        done = self.launched(box, config)

        assert done.returncode == 0
        assert "nothing watches it" in done.stderr

    async def test_ended_ones_are_deleted_only_where_the_config_says_when(self, box: Box, config: Path) -> None:
        config.write_text('state_dir = "state"\n[[cluster]]\nname = "box"\nkind = "host"\nkeep_ended_days = 3\n')
        old, fresh = box.sh("exit 0"), box.sh("exit 0")
        await box.ended(old)
        await box.ended(fresh)
        (record,) = (box.records / "ended").glob(f"*-{old}.json")
        record.rename(record.with_name(f"{int(record.name.partition('-')[0]) - 4 * 86400}-{old}.json"))

        box.launch("true")
        assert (box.records / "logs" / f"{old}.log").exists()
        self.launched(box, config)

        assert not list((box.records / "ended").glob(f"*-{old}.json"))
        assert not (box.records / "logs" / f"{old}.log").exists()
        assert (box.records / "logs" / f"{fresh}.log").exists()


async def test_without_any_config_records_lie_in_the_user_s_state_folder(box: Box, tmp_path: Path) -> None:
    """Where a daemon on another machine looks for them."""
    done = box.run(
        "launch", "--name", "x", "--", "true", cwd=tmp_path, HOME=str(tmp_path), XDG_STATE_HOME=str(tmp_path / "xdg")
    )

    assert done.returncode == 0, done.stderr
    if sys.platform == "linux":
        assert f"log: {tmp_path}/xdg/fleet-supervisor/host/logs/1.log" in done.stdout
    await until(lambda: list(tmp_path.glob("**/ended/*-1.json")))


def test_nothing_heavy_is_loaded_for_it() -> None:
    heavy = ("asyncio", "pydantic", "sqlalchemy", "asyncssh", "kubernetes", "structlog", "apscheduler", "rich")
    code = f"import sys, supervisor.app.launch; print(sorted(set({heavy!r}) & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_json_names_job_pid_and_log(box: Box) -> None:
    done = box.run("launch", "--state-dir", str(box.state), "--name", "x", "--json", "--", "sleep", "600")

    said = json.loads(done.stdout)
    assert said == {
        "schema_version": 1,
        "job": "host/1",
        "name": "x",
        "pid": said["pid"],
        "log": f"{box.records}/logs/1.log",
    }
    os.kill(said["pid"], 0)
