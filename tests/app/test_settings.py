"""The config as a careless or hostile hand writes it: one clear line with file, key and what is allowed; never a guess."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.app.kinds import KINDS
from supervisor.app.limits import limits_in_force
from supervisor.app.settings import load, parse, rulebook
from supervisor.model.errors import UsageError

BOX = '[[cluster]]\nname = "box"\nkind = "host"\n'


@pytest.fixture
def refused(tmp_path, ask):
    """The one line that ``supervisorctl rules`` gives for this config, without the file's name; exit status 2."""

    def line(text: str) -> str:
        path = tmp_path / "config.toml"
        path.write_text(text)
        answer = ask("--config", path, "rules")
        assert answer.code == 2
        assert answer.out == ""
        assert answer.line.startswith(f"supervisorctl: {path}: ")
        return answer.line.removeprefix(f"supervisorctl: {path}: ")

    return line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("intervall_s = 5", "intervall_s: unknown key; did you mean 'interval_s'?"),
        ("[daemon]\njiter_s = 3", "daemon.jiter_s: unknown key; did you mean 'jitter_s'?"),
        ("[damon]\njitter_s = 3", "damon: unknown key; did you mean 'daemon'?"),
        (f"{BOX}recordz = 'x'", "[[cluster]] 'box': recordz: unknown key; did you mean 'records'?"),
        (f"{BOX}skip_untill = 2026-01-01", "[[cluster]] 'box': skip_untill: unknown key; did you mean 'skip_until'?"),
        (
            '[[cluster]]\nname = "a"\nkind = "slurm"\nlogin_node = ["a"]',
            "[[cluster]] 'a': login_node: unknown key; did you mean 'login_nodes'?",
        ),
        ("[limits]\nsilence_flor_s = 3", "limits.silence_flor_s: no such limit; did you mean 'silence_floor_s'?"),
        ("[limits.rl]\nsilence_flor_s = 3", "limits.rl.silence_flor_s: no such limit; did you mean 'silence_floor_s'?"),
        ("[limits.rll]\nsilence_floor_s = 3", "limits.rll: no such bucket; did you mean 'rl'?"),
        ('[buckets.evals]\nprefixes = ["x"]', "buckets.evals: no such bucket; did you mean 'eval'?"),
        (
            '[buckets.rl]\nprefixs = ["x"]',
            "buckets.rl.prefixs: unknown key; did you mean 'prefixes'?",
        ),
    ],
)  # fmt: skip
def test_an_unknown_key_is_refused_with_the_nearest_known_one(refused, text, line):
    assert refused(text) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('interval_s = "soon"', "interval_s: must be a number"),
        ("interval_s = true", "interval_s: must be a number"),
        ("interval_s = inf", "interval_s: must be a finite number"),
        ("interval_s = 1", "interval_s: must be greater than or equal to 5"),
        ("interval_s = 1e9", "interval_s: must be less than or equal to 86400"),
        ("database_url = 3", "database_url: must be a string in quotes"),
        ("state_dir = 3", "state_dir: must be a path in quotes"),
        ('database_url = "mysql://x"', "database_url: must begin with sqlite:/// or postgresql+psycopg://"),
        ('database_url = "sqlite:///"', "database_url: names no file; allowed: sqlite:///PATH"),
        ('reports = "x"', "reports: must be a table"),
        ("[reports]\nended_hours = 1e12", "reports.ended_hours: must be less than or equal to 876000"),
        ("[reports]\nended_hours = nan", "reports.ended_hours: must be a finite number"),
        ("[logs]\nbytes_per_job = 1.5", "logs.bytes_per_job: must be a whole number"),
        ('[logging]\nlevel = "loud"', "logging.level: must be 'debug', 'info', 'warning' or 'error'"),
        ("limits = 3", "limits: must be a table"),
        ("[limits]\nrl = 3", "limits.rl: must be a table, [limits.rl]"),
        ("[limits]\nsilence_floor_s = -3", "limits.silence_floor_s: must be a number above 0"),
        ("[limits]\nsilence_floor_s = nan", "limits.silence_floor_s: must be a number above 0"),
        ("[limits]\nsilence_floor_s = true", "limits.silence_floor_s: must be a number above 0"),
        ("[limits]\nabsences_to_call_gone = 0.5", "limits.absences_to_call_gone: must be a whole number, at least 1"),
        ("[limits.rl]\ncadence_points = 2.5", "limits.rl.cadence_points: must be a whole number, at least 1"),
        ('cluster = "x"', "cluster: must be tables, each under its own [[cluster]]"),
        ('[cluster]\nname = "box"\nkind = "host"', "cluster: must be tables, each under its own [[cluster]]"),
        ('[[cluster]]\nkind = "host"', "[[cluster]] 1: name: is missing"),
        ('[[cluster]]\nname = "b"', f"[[cluster]] 'b': kind is missing; allowed: {', '.join(KINDS)}"),
        ('[[cluster]]\nname = "b"\nkind = "slrum"', "[[cluster]] 'b': kind: this version knows no 'slrum'; did you mean 'slurm'?"),
        (f"{BOX}deadline_s = 0", "[[cluster]] 'box': deadline_s: must be greater than 0"),
        (f"{BOX}deadline_s = true", "[[cluster]] 'box': deadline_s: must be a number"),
        (f"{BOX}skip_until = 'soon'", "[[cluster]] 'box': skip_until: must be a day, such as 2026-07-12"),
        (f"{BOX}no_kill = 'maybe'", "[[cluster]] 'box': no_kill: must be true or false"),
        (BOX + BOX, "two clusters are named 'box'; names must be unique"),
        (
            BOX + '[[approvals.standing]]\nname = "hung"\nbucket = "rl"\npattern = "debug-*"\ncause = "silent-hang"\ncluster = "bex"\n',
            "approvals.standing 'hung': there is no cluster 'bex'; did you mean 'box'?",
        ),
        (
            '[[cluster]]\nname = "a/b"\nkind = "host"',
            "[[cluster]] 'a/b': name: must be letters, digits, '_', '.' or '-', at most 63, and begin with a letter or a digit",
        ),
        ("hello world", "not TOML: Expected '=' after a key in a key/value pair (at line 1, column 7)"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_what_is_allowed(refused, text, line):
    assert refused(text) == line


def test_several_faults_are_said_in_one_line(refused):
    assert refused("interval_s = 1\n[daemon]\nlease_s = 1\njiter_s = 1") == (
        "interval_s: must be greater than or equal to 5; daemon.lease_s: must be greater than or equal to 10; "
        "daemon.jiter_s: unknown key; did you mean 'jitter_s'?"
    )


def test_an_empty_file_is_a_config_of_defaults(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("")

    made, where = load(str(path))

    assert where == path
    assert made.cluster == ()
    assert made.state_dir == tmp_path / "state"
    assert made.database_url == f"sqlite:///{tmp_path / 'state' / 'supervisor.db'}"


def test_bytes_that_are_no_utf8_are_refused_with_their_line(tmp_path, ask):
    path = tmp_path / "config.toml"
    path.write_bytes(b'interval_s = 9\nstate_dir = "\xe9"\n')

    answer = ask("--config", path, "status")

    assert (answer.code, answer.line) == (2, f"supervisorctl: {path}: not TOML: line 2 holds a byte that is not UTF-8")


def test_a_path_with_a_nul_is_refused(refused, tmp_path, ask):
    path = tmp_path / "config.toml"
    path.write_text('state_dir = "a\\u0000b"\n')

    assert ask("--config", path, "status").line == "supervisorctl: state_dir: a path can't hold a NUL character"
    assert ask("--config", path, "rules").line == "supervisorctl: state_dir: a path can't hold a NUL character"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("", "--config names no file: it is empty"),
        ("{folder}", "{folder} is a folder, not a config file (given by --config)"),
        ("{folder}/none.toml", "no config file at {folder}/none.toml (given by --config)"),
    ],
)
def test_a_config_that_is_none_is_said(tmp_path, ask, given, line):
    answer = ask("--config", given.format(folder=tmp_path), "status")

    assert (answer.code, answer.line) == (2, f"supervisorctl: {line.format(folder=tmp_path)}")


def test_without_any_config_the_places_are_named_that_were_looked_at(tmp_path, ask, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    answer = ask("status")

    assert answer.code == 2
    assert "looked for config.toml, " in answer.line
    assert "supervisorctl init" in answer.line


def test_the_config_is_found_by_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "other.toml"
    path.write_text("interval_s = 77\n")
    monkeypatch.setenv("SUPERVISOR_CONFIG", str(path))

    assert load(None)[0].interval_s == 77


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave its rights to read a file that is closed to others")
def test_an_unreadable_config_is_said(tmp_path, ask):
    path = tmp_path / "config.toml"
    path.write_text("")
    path.chmod(0)
    os.seteuid(65534)
    try:
        answer = ask("--config", path, "status")
    finally:
        os.seteuid(0)

    assert answer.code == 2
    assert answer.line.startswith(f"supervisorctl: {path}: Permission denied")


# -- environment -------------------------------------------------------------------------------------------------------


def test_the_environment_outweighs_the_file_at_any_depth(tmp_path, monkeypatch):
    monkeypatch.setenv("SUPERVISOR__INTERVAL_S", "60")
    monkeypatch.setenv("SUPERVISOR__DAEMON__JITTER_S", "1.5")
    monkeypatch.setenv("SUPERVISOR__LIMITS__RL__SILENCE_FLOOR_S", "61")
    monkeypatch.setenv("supervisor__reports__ended_hours", "3")
    monkeypatch.setenv("SUPERVISOR__BUCKETS__SFT__PREFIXES", '["tune-"]')
    path = tmp_path / "config.toml"
    path.write_text("interval_s = 900\n[daemon]\njitter_s = 9\nlease_s = 33\n[limits.rl]\nsilence_multiple = 7\n")

    made, _ = load(str(path))

    assert made.interval_s == 60
    assert (made.daemon.jitter_s, made.daemon.lease_s) == (1.5, 33)
    assert limits_in_force(made.limits)["rl"]["silence_floor_s"] == 61
    assert limits_in_force(made.limits)["rl"]["silence_multiple"] == 7
    assert made.reports.ended_hours == 3
    assert rulebook(made).prefixes["sft"] == ("tune-",)


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("SUPERVISOR__DAMON__JITTER_S", "3", "no such setting; did you mean 'daemon'?"),
        ("SUPERVISOR__DAEMON__JITER_S", "3", "daemon.jiter_s: unknown key; did you mean 'jitter_s'?"),
        ("SUPERVISOR__DAEMON__JITTER_S", "x", "daemon.jitter_s: must be a number"),
        ("SUPERVISOR__INTERVAL_S", "", "interval_s: must be a number"),
        ("SUPERVISOR__LIMITS__RL__SILENCE_FLOR_S", "3", "limits.rl.silence_flor_s: no such limit; did you mean 'silence_floor_s'?"),
        ("SUPERVISOR__CLUSTER", "alpha", 'lists and tables are given as JSON, such as ["x", "y"]'),
        ("SUPERVISOR__BUCKETS__RL__PREFIXES", "x", 'lists and tables are given as JSON, such as ["x", "y"]'),
    ],
)  # fmt: skip
def test_a_fault_of_the_environment_names_the_variable_not_the_file(config, ask, monkeypatch, name, value, line):
    monkeypatch.setenv(name, value)

    answer = ask("--config", config, "rules")

    assert (answer.code, answer.line) == (2, f"supervisorctl: environment: {name}: {line}")


@pytest.mark.parametrize("name", ["SUPERVISOR__DATABASE_URL", "supervisor__database_url"])
def test_status_and_the_daemon_read_the_same_environment(config, ask, monkeypatch, tmp_path, name):
    """A status that looks at another database than the daemon writes would be all fine over a dead run."""
    monkeypatch.setenv(name, "sqlite:///elsewhere.db")

    assert load(str(config))[0].database_url == f"sqlite:///{tmp_path}/elsewhere.db"
    assert f"{tmp_path}/elsewhere.db" in ask("--config", config, "status").out


# -- secrets -----------------------------------------------------------------------------------------------------------


def test_secrets_come_from_files(tmp_path):
    (tmp_path / "db.url").write_text("postgresql+psycopg://u:hidden@db.example/fleet\n")
    (tmp_path / "ping.url").write_text("https://ping.example/hidden\nsecond line\n")
    path = tmp_path / "config.toml"
    path.write_text('database_url_file = "db.url"\n[daemon]\nping_url_file = "ping.url"\n')

    made, _ = load(str(path))

    assert made.database_url == "postgresql+psycopg://u:hidden@db.example/fleet"
    assert made.daemon.ping_url == "https://ping.example/hidden"


@pytest.mark.parametrize("command", ["rules", "status"])
def test_a_secret_that_cannot_be_read_is_said_by_key_and_file(tmp_path, ask, command):
    path = tmp_path / "config.toml"
    path.write_text('database_url_file = "db.url"\n')
    missing = ask("--config", path, command)
    (tmp_path / "db.url").write_text(" \n")
    empty = ask("--config", path, command)
    (tmp_path / "db.url").write_bytes(b"\xff\xfe")
    odd = ask("--config", path, command)

    secret = tmp_path / "db.url"
    assert [each.code for each in (missing, empty, odd)] == [2, 2, 2]
    assert missing.line == f"supervisorctl: database_url_file: {secret}: No such file or directory"
    assert empty.line == f"supervisorctl: database_url_file: {secret} is empty"
    assert odd.line == f"supervisorctl: database_url_file: {secret} is not UTF-8 text"


@pytest.mark.parametrize("url", ["postgres://u:hunter2@h/d", "postgresql+psycopg://u:hunter2@127.0.0.1:1/d"])
@pytest.mark.parametrize("command", [("status",), ("status", "--json"), ("rules",), ("db", "check"), ("tick",)])
def test_a_password_in_a_url_is_never_printed(tmp_path, ask, url, command):
    path = tmp_path / "config.toml"
    path.write_text(f'database_url = "{url}"\nstate_dir = "s"\n')

    answer = ask("--config", path, *command)

    assert "hunter2" not in answer.out + answer.err


# -- meaning -----------------------------------------------------------------------------------------------------------


def test_relative_paths_are_relative_to_the_config_file(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir("/")
    path = tmp_path / "deep" / "config.toml"
    path.write_text(
        f'state_dir = "../s"\n[signatures]\npacks = []\n{BOX}identity_file = "keys/id"\nhost = "alice@box.example"\n'
    )

    made, _ = load(str(path))

    assert made.state_dir == tmp_path / "deep" / "../s"
    assert made.cluster[0].of_kind.identity_file == tmp_path / "deep" / "keys" / "id"


def test_a_limit_for_all_outweighs_a_built_in_one_of_a_bucket_but_not_a_set_one():
    force = limits_in_force({"silence_floor_s": 60, "eval": {"silence_floor_s": 90}})

    assert force[""]["silence_floor_s"] == 60
    assert force["rl"]["silence_floor_s"] == 60
    assert force["eval"]["silence_floor_s"] == 90


def test_a_broken_signature_pack_is_found_when_the_config_is_read(tmp_path, ask):
    (tmp_path / "mine.toml").write_text("x =")
    path = tmp_path / "config.toml"
    path.write_text('[signatures]\npacks = ["mine.toml"]\n')

    answer = ask("--config", path, "tick")

    assert answer.code == 2
    assert answer.line.startswith(f"supervisorctl: {path}: signatures: {tmp_path}/mine.toml: is not valid TOML")


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "state_dir",
        "interval_s",
        "database_url",
        "cluster",
        "buckets",
        "limits",
        "daemon",
        "logs",
        "reports",
        "signatures",
        "x",
    ]
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_whatever_a_config_holds_it_is_taken_or_refused_in_one_line(document):
    try:
        parse(document, Path("/somewhere/config.toml"))
    except UsageError as error:
        assert str(error).startswith(("/somewhere/config.toml: ", "state_dir: ", "packs: ", "database_url: "))


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["name", "kind", "host", "users", "login_nodes", "skip_until", "x"]), VALUES, max_size=6
    )
)
def test_whatever_a_cluster_table_holds_it_is_taken_or_refused_in_one_line(table):
    for kind in KINDS:
        try:
            parse({"cluster": [{"kind": kind, **table}]}, Path("/somewhere/config.toml"))
        except UsageError as error:
            assert str(error).startswith("/somewhere/config.toml: ")
