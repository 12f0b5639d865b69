"""What ``supervisorctl`` answers, and how it ends: 0, 1 it failed, 2 usage or config, ``status`` also 3 and 4."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from datetime import timedelta

import pytest
import sqlalchemy as sa

from supervisor.app.clock import utc_now
from supervisor.app.ctl import COMMANDS, build
from supervisor.reports.text import width
from tests.app.asked import HOSTILE, LONG, beat


def in_process(config, *words, stdout=subprocess.PIPE, preexec_fn=None, **environment):
    """A process of its own, for what only its ends can show. Python itself may warn of nothing."""
    return subprocess.run(
        [sys.executable, "-m", "supervisor.app.ctl", "--config", str(config), *words],
        stdout=stdout, stderr=subprocess.PIPE, preexec_fn=preexec_fn, env={**os.environ, **environment}, timeout=60, check=False,
    )  # fmt: skip


def url_of(config):
    return f"sqlite:///{config.parent / 'supervisor.db'}"


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["stauts"], "supervisorctl: no such command: 'stauts'; did you mean 'status'?"),
        (["--confg", "x"], "supervisorctl: no such command: 'x'; there are "),
        (["--confg"], "supervisorctl: unknown option '--confg' (did you mean '--config'?); see `supervisorctl --help`"),
        (["--config"], "supervisorctl: --config needs a FILE; see `supervisorctl --help`"),
        (
            ["status", "--bukcet", "rl"],
            "supervisorctl status: unknown option '--bukcet' (did you mean '--bucket'?); see `supervisorctl status --help`",
        ),
        (["why"], "supervisorctl why: the following arguments are required: JOB; see `supervisorctl why --help`"),
        (["why", "a", "b"], "supervisorctl why: unknown argument 'b'; see `supervisorctl why --help`"),
        (["report", "--tick", "x"], "supervisorctl report: argument --tick: invalid int value: 'x'; see"),
        (["report", "--date", "2026-13-01"], "supervisorctl: report: --date '2026-13-01': must be a day such as 2026-07-01"),
        (["report", "--tick", "9" * 30], "supervisorctl: report: --tick must be the number of a tick, from 1"),
        (["tick", "--wait", "nan"], "supervisorctl: tick: --wait must be from 0 to 86400 seconds"),
        (["completion", "fish"], "supervisorctl completion: argument shell: invalid choice: 'fish'"),
        (["db", "chek"], "supervisorctl db: argument ACTION: invalid choice: 'chek'"),
        (["demo", "--seconds", "3"], "supervisorctl: demo: --seconds must be from 10 to 3600"),
    ],
)  # fmt: skip
def test_wrong_words_are_one_line_and_exit_2(ask, words, line):
    answer = ask(*words)

    assert answer.code == 2
    assert answer.out == ""
    assert answer.line.startswith(line)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--bucket", "evals"], "status: --bucket 'evals': no such bucket; did you mean 'eval'?"),
        (["--phase", "runing"], "status: --phase 'runing': no such phase; did you mean 'running'?"),
        (["--cluster", "cluster-c"], "status: --cluster 'cluster-c': no such cluster; did you mean 'cluster-b'?"),
        (["--watch", "--json"], "status: --watch is for people; for a script ask again with --json"),
        (["--pipe", "--json"], "status: --pipe and --json are two forms of the same: choose one"),
    ],
)
def test_status_refuses_what_it_does_not_know(config, ask, words, line):
    answer = ask("--config", config, "status", *words)

    assert (answer.code, answer.line) == (2, f"supervisorctl: {line}")


def test_without_a_command_all_commands_are_listed(ask):
    answer = ask()

    assert answer.code == 2
    assert all(f"  {command} " in answer.out for command in COMMANDS)
    assert ask("--help").code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_helps_with_an_example(ask, command):
    answer = ask(command, "--help")

    assert answer.code == 0
    assert "example: supervisorctl " in answer.out or f"supervisorctl {command}" in answer.out


def test_all_parsers_can_stand_together():
    """The completion script is made of them."""
    assert set(build(list(COMMANDS)).own) == set(COMMANDS)


def test_the_completion_script_sources_in_bash(ask, tmp_path):
    script = tmp_path / "completion.sh"
    script.write_text(ask("completion", "bash").out)
    asked = 'source "$1"; COMP_WORDS=(supervisorctl sta); COMP_CWORD=1; complete -p supervisorctl; _shtab_supervisorctl; echo "${COMPREPLY[@]}"'

    done = subprocess.run(["bash", "-c", asked, "-", str(script)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "-F _shtab_supervisorctl" in done.stdout
    assert "status" in done.stdout.splitlines()[-1]


# -- which job ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["show", "why", "status"])
@pytest.mark.parametrize(
    "word", ["nothing", "", "cluster-a/9", "/", "%", "_", "\udce9", "x" * 5000, "'; DROP TABLE job; --", "\x1b[99m"]
)
def test_an_unknown_job_is_one_line_and_exit_2(seeded, ask, command, word):
    answer = ask("--config", seeded, command, word)

    assert answer.code == 2
    assert answer.line.startswith("supervisorctl: no job '") or "may mean several" in answer.line
    assert "\x1b" not in answer.line
    assert len(answer.line) < 600


@pytest.mark.parametrize("command", ["show", "why", "status", "hold"])
def test_an_ambiguous_job_lists_the_candidates_and_exits_2(seeded, ask, command):
    answer = ask("--config", seeded, command, "rl__", *(["--reason", "x"] if command == "hold" else []))

    assert answer.code == 2
    assert answer.line == (
        "supervisorctl: 'rl__' may mean several jobs: cluster-a/1 (rl__alpha), cluster-a/2 (rl__beta)"
    )


def test_an_id_on_two_clusters_is_ambiguous_and_its_cluster_decides(seeded, ask):
    assert ask("--config", seeded, "show", "1").code == 2
    assert "rl__alpha  cluster-a/1" in ask("--config", seeded, "show", "cluster-a/1").out


def test_show_and_why_tell_a_job_whole(seeded, ask):
    """No claim without its quote: the end, and what said so."""
    shown, why = ask("--config", seeded, "show", "beta"), ask("--config", seeded, "why", "beta")
    document = json.loads(ask("--config", seeded, "show", "beta", "--json").out)

    assert (shown.code, why.code) == (0, 0)
    assert "phase          terminal (failed)" in shown.out
    assert "code 3" in shown.out
    assert "what would flip it: a new attempt under the same id" in why.out
    assert document["schema_version"] == 1
    assert document["job"]["outcome"] == "failed"
    assert {"restarts", "preemptions", "tasks"} <= document.keys()
    assert [step["after"] for step in document["life"]][-1] == "terminal"


# -- status ------------------------------------------------------------------------------------------------------------


def test_status_before_any_daemon_says_never_and_exits_4(config, ask):
    answer = ask("--config", config, "status")
    document = json.loads(ask("--config", config, "status", "--json").out)

    assert answer.code == 4
    assert answer.out.startswith("monitor never · ")
    assert document["monitor"]["state"] == "never"


def test_status_exits_3_where_something_is_flagged_and_0_where_nothing_is(seeded, ask):
    """The failed job waits for a look; the healthy ones alone do not."""
    beat(url_of(seeded))

    everything = ask("--config", seeded, "status")
    flagged = {job["id"] for job in json.loads(ask("--config", seeded, "status", "--json").out)["jobs"] if job["flags"]}
    healthy = ask("--config", seeded, "status", "cluster-a/1")

    assert everything.out.startswith("monitor ok · tick 2 finished ")
    assert everything.code == (3 if flagged else 0)
    assert healthy.code == 0


def test_a_dead_daemon_is_said_dead_and_status_exits_4(seeded, ask):
    """LIVE-8: whoever gave no sign for a minute is dead, however fresh the last tick."""
    beat(url_of(seeded), beat_at=utc_now() - timedelta(seconds=90))

    answer = ask("--config", seeded, "status")

    assert answer.code == 4
    assert answer.out.startswith("monitor dead · ")
    assert "the daemon on elsewhere (pid 1) gave no sign for a while" in answer.out
    assert "rl__alpha" in answer.out, "what was known is still shown"


def test_a_database_of_a_newer_program_is_refused_with_a_clear_line(seeded, ask):
    engine = sa.create_engine(url_of(seeded))
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()

    for words in (["status"], ["show", "beta"], ["db", "check"], ["hold"], ["tick"], ["report"]):
        answer = ask("--config", seeded, *words)
        assert answer.code in (1, 4), words
        assert "9999" in answer.out + answer.err
        assert "Traceback" not in answer.err


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100])
def test_a_file_that_is_no_database_is_dead_never_no_jobs(seeded, ask, content):
    path = seeded.parent / "supervisor.db"
    for log in seeded.parent.glob("supervisor.db-*"):
        log.unlink()
    path.write_bytes(content)

    answer = ask("--config", seeded, "status")

    assert answer.code == 4
    assert answer.out.startswith(("monitor dead · ", "monitor never · "))
    assert "no jobs" not in answer.out


def test_a_locked_database_is_said_and_not_waited_for_long(seeded, ask):
    """Readers pass a writer in the write-ahead log; a lock on the whole file stops them, and that is said."""
    import sqlite3

    lock = sqlite3.connect(seeded.parent / "supervisor.db", isolation_level=None)
    lock.execute("PRAGMA locking_mode = EXCLUSIVE")
    lock.execute("BEGIN EXCLUSIVE")
    lock.execute("UPDATE hold SET reason = reason")
    answer = ask("--config", seeded, "status")
    lock.rollback()
    lock.close()

    assert answer.code in (0, 3, 4)
    if answer.code == 4:
        assert "locked" in answer.out + answer.err
    else:
        assert "rl__alpha" in answer.out


def test_names_with_escape_codes_and_4000_letters_can_do_nothing(seeded, ask):
    """Untrusted text is data: no escape code, no direction mark reaches the terminal, in any command or form."""
    for words in (["status"], ["status", "--pipe"], ["status", "--json"], ["show", "red"], ["why", "red"], ["report"]):
        out = ask("--config", seeded, *words).out
        assert "\x1b" not in out, words
        assert "\u202e" not in out, words
        assert "\x07" not in out, words
    names = {job["name"] for job in json.loads(ask("--config", seeded, "status", "--all", "--json").out)["jobs"]}
    assert {HOSTILE, LONG} <= names


def test_columns_tell_how_wide_a_table_may_be(seeded, ask, monkeypatch):
    """SAY-1: nothing wraps at 80 columns or more; at fewer the table is as narrow as it can be."""
    for columns in ("80", "100", "200", "100000"):
        monkeypatch.setenv("COLUMNS", columns)
        table = [line for line in ask("--config", seeded, "status").out.splitlines() if line[:1] in "┌│├└"]
        assert len(table) > 4
        assert max(width(line) for line in table) <= int(columns)
    for columns in ("1", "0", "-5", "wide", ""):
        monkeypatch.setenv("COLUMNS", columns)
        assert ask("--config", seeded, "status").code in (0, 3, 4)


def test_pipes_are_for_pasting(seeded, ask):
    lines = ask("--config", seeded, "status", "--pipe", "--bucket", "other").out.splitlines()
    rows = [line for line in lines if line.startswith("|")]

    assert rows[0].startswith("| Job |")
    assert any("a\\\\x1b\\[31mred" in row and "\\|\\`b" in row for row in rows)


# -- ends --------------------------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_is_no_error(seeded):
    for words in (["status", "--all"], []):
        shell = f"{sys.executable} -m supervisor.app.ctl --config {seeded} {' '.join(words)} | head -1"
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60, check=False)
        assert done.stderr == ""
        assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("words", ["status", ""])
def test_closed_ends_are_no_error(seeded, words):
    shell = f"{sys.executable} -m supervisor.app.ctl --config {seeded} {words} "
    codes = [
        subprocess.run(["bash", "-c", shell + ends], capture_output=True, text=True, timeout=60, check=False)
        for ends in (">&- 2>&-", ">&-", "<&-")
    ]

    assert {done.returncode for done in codes} <= {0, 2, 3, 4}
    assert "Traceback" not in "".join(done.stderr for done in codes)


def test_an_output_that_cannot_be_written_is_one_line_and_exit_1(seeded, tmp_path):
    """A full disk behind `>`, here a limit on the file's size: never 0 over half an answer."""

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))

    with (tmp_path / "out").open("wb") as file:
        file.seek(2**20)
        done = in_process(seeded, "status", stdout=file, preexec_fn=limited, PYTHONDONTWRITEBYTECODE="1")

    assert done.returncode == 1
    assert done.stderr.decode() == "supervisorctl: File too large\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_an_encoding_without_box_lines_gets_marks_not_a_traceback(seeded, encoding):
    done = in_process(seeded, "status", "--all", PYTHONIOENCODING=encoding)

    assert done.returncode in (0, 3, 4)
    assert done.stderr == b""
    assert b"rl__alpha" in done.stdout


def test_a_file_gets_no_colour_and_no_limit_of_width(seeded):
    done = in_process(seeded, "status", "--all")

    assert b"\x1b[" not in done.stdout
    assert max(map(len, done.stdout.decode().splitlines())) > 80


def on_a_terminal(config, *words, columns=120, **environment) -> str:
    """What it writes to a pseudo-terminal of so many columns."""
    import pty
    import struct
    import termios
    from fcntl import ioctl

    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    try:
        done = in_process(config, *words, stdout=theirs, **environment)
        assert done.returncode in (0, 3, 4), done.stderr
    finally:
        os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:  # Linux's way of saying that the other end is closed
        pass
    os.close(ours)
    return said.decode()


def test_a_terminal_gets_colour_unless_no_color_is_set_and_its_own_width(seeded):
    coloured = on_a_terminal(seeded, "status", "--all", columns=100)
    plain = on_a_terminal(seeded, "status", "--all", columns=100, NO_COLOR="1")

    assert "\x1b[2m" in coloured or "\x1b[3" in coloured
    assert "\x1b[" not in plain
    assert max(width(line) for line in plain.splitlines() if line[:1] in "┌│├└") <= 100


# -- holds, database, reports ------------------------------------------------------------------------------------------


def test_a_hold_needs_a_target_and_a_reason_and_is_lifted_once(seeded, ask):
    """KILL-5"""
    assert ask("--config", seeded, "hold").out == "no holds\n"
    assert "--reason is missing" in ask("--config", seeded, "hold", "--all").line
    assert "--reason is missing" in ask("--config", seeded, "hold", "--all", "--reason", " ").line
    assert "name JOB, --cluster C, or --all" in ask("--config", seeded, "hold", "--reason", "x").line
    assert "there are cluster-a, cluster-b" in ask("--config", seeded, "hold", "--cluster", "c", "--reason", "x").line
    assert ask("--config", seeded, "hold", "--all", "--reason", "mainte\x1b[31mnance\udce9").code == 0
    listed = ask("--config", seeded, "hold").out
    assert "everything" in listed
    assert "\x1b" not in listed
    assert "hold 1 on everything" in ask("--config", seeded, "status").out
    assert "under hold 1" in ask("--config", seeded, "why", "beta").out
    assert ask("--config", seeded, "resume").code == 2
    assert ask("--config", seeded, "resume", "--all").out == "lifted the hold on everything\n"
    again = ask("--config", seeded, "resume", "--all")
    assert (again.code, again.out) == (1, "there was no hold on everything\n")


def test_the_database_is_checked_backed_up_and_pruned(seeded, ask, tmp_path):
    copy = tmp_path / "copy.db"

    assert "4 jobs" in ask("--config", seeded, "db", "check").out
    assert ask("--config", seeded, "db", "upgrade").out.endswith("already at this schema\n")
    assert ask("--config", seeded, "db", "backup", copy).out.startswith(f"{copy}: ")
    assert ask("--config", seeded, "db", "backup", copy).code == 1
    nowhere = ask("--config", seeded, "db", "backup", tmp_path / "none" / "copy.db")
    assert (nowhere.code, nowhere.line) == (1, f"supervisorctl: db backup: there is no folder {tmp_path}/none")
    assert ask("--config", seeded, "db", "prune").out.startswith("pruned: 0 measurements, ")


def test_reports_of_past_ticks_are_found_by_number_and_day(seeded, ask):
    """SAY-2, SAY-3"""
    last, first = ask("--config", seeded, "report").out, ask("--config", seeded, "report", "--tick", 1).out
    day = ask("--config", seeded, "report", "--date", f"{utc_now():%Y-%m-%d}")
    document = json.loads(ask("--config", seeded, "report", "--json").out)

    assert "tick 2" in last.splitlines()[0]
    assert "tick 1" in first.splitlines()[0]
    assert "cluster-a/2: " in last
    if "tick 1" in day.out:  # near midnight the first tick was yesterday's
        assert day.out.index("tick 1") < day.out.index("tick 2")
    assert document[0]["moves"]
    none = ask("--config", seeded, "report", "--date", "2020-01-01")
    assert (none.code, none.line) == (1, "supervisorctl: no report on 2020-01-01 is kept")


def test_the_same_json_keys_as_in_the_contract(seeded, ask):
    document = json.loads(ask("--config", seeded, "status", "--json").out)
    job = next(each for each in document["jobs"] if each["id"] == "1" and each["cluster"] == "cluster-a")

    assert set(document) >= {"schema_version", "generated_at", "monitor", "clusters", "jobs", "waiting"}
    assert set(document["monitor"]) >= {"state", "last_tick", "next_tick_at", "reason"}
    assert set(document["clusters"][0]) >= {
        "name",
        "kind",
        "state",
        "last_good_at",
        "age_s",
        "reason",
        "jobs_live",
        "headroom",
    }
    assert set(job) >= {
        "cluster", "id", "name", "bucket", "flavor", "user", "attempt", "phase", "since", "scheduler_state", "scheduler_reason",
        "outcome", "exit_code", "signal", "submitted_at", "started_at", "ended_at", "elapsed_s", "time_limit_s", "nodes", "log",
        "cadence_s", "progress", "metrics", "flags", "predecessor", "successor", "diagnosis",
    }  # fmt: skip
    assert job["bucket"] == "rl"
    assert (job["exit_code"], job["scheduler_reason"], job["ended_at"]) == (None, None, None)
