"""``supervisorctl init``: a config that is good the moment it is written, or none."""

from __future__ import annotations

import io
import os
import stat

import pytest

from supervisor.app.beginning import Found, config_text, look, slurm_from
from supervisor.app.settings import load
from supervisor.model.errors import UsageError


def test_with_yes_and_options_a_commented_config_is_written(tmp_path, ask):
    target = tmp_path / "new" / "config.toml"

    answer = ask(
        "init", "--output", target, "--yes", "--no-tick", "--host", "--interval", "60",
        "--slurm", "alpha=alice@login01.example,login02.example:2222", "--slurm", "beta=login.beta", "--kube", "arn:aws:eks:x/y",
        "--iris", "marin=alice@http://127.0.0.1:10000",
    )  # fmt: skip
    settings, _ = load(str(target))

    assert (answer.code, answer.out) == (0, f"wrote {target}\nnext: `supervisorctl check`\n")
    assert settings.interval_s == 60
    assert [(each.name, each.kind) for each in settings.cluster] == [
        ("alpha", "slurm"), ("beta", "slurm"), ("arn-aws-eks-x-y", "kubernetes"), ("marin", "iris"), ("box", "host"),
    ]  # fmt: skip
    assert settings.cluster[0].of_kind.login_nodes == ("login01.example", "login02.example:2222")
    assert settings.cluster[0].of_kind.login_user == "alice"
    assert settings.cluster[2].of_kind.context == "arn:aws:eks:x/y"
    assert settings.cluster[3].of_kind.url == "http://127.0.0.1:10000"
    assert settings.cluster[3].of_kind.users == ("alice",)
    assert target.read_text().count("#") > 5


def test_it_ends_with_a_first_tick(tmp_path, ask):
    target = tmp_path / "config.toml"

    answer = ask("init", "--output", target, "--yes", "--host")

    assert answer.code == 0
    assert "a first tick …" in answer.out
    assert "- box: read " in answer.out
    assert ask("--config", target, "status").out.startswith("monitor ok · tick 1 ")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--slurm", "alpha"], "--slurm 'alpha': allowed is NAME=[USER@]NODE[,NODE], such as alpha=alice@login01.example"),
        (["--iris", "marin=10.0.0.1"], "--iris 'marin=10.0.0.1': allowed is NAME=[USER@]URL, such as marin=alice@http://127.0.0.1:10000"),
        (["--slurm", "al pha=x"], "--slurm 'al pha=x': allowed is NAME=[USER@]NODE[,NODE], such as"),
        (["--slurm", "a=b;c"], "{target}: [[cluster]] 'a': login_nodes.0: 'b;c' does not name a host"),
        (["--slurm", 'a=x"]\nkind="y'], "{target}: [[cluster]] 'a': login_nodes.0: "),
        (["--host", "--interval", "1"], "{target}: interval_s: must be greater than or equal to 5"),
        (["--host", "--interval", "nan"], "{target}: interval_s: must be a finite number"),
        (["--host", "--slurm", "box=h"], "{target}: two clusters are named 'box'"),
        (["--kube", "a/b", "--kube", "a:b"], "{target}: two clusters are named 'a-b'"),
    ],
)  # fmt: skip
def test_what_would_be_refused_afterwards_is_refused_before_it_is_written(tmp_path, ask, words, line):
    target = tmp_path / "config.toml"

    answer = ask("init", "--output", target, "--yes", *words)

    assert answer.code == 2
    assert answer.line.startswith(f"supervisorctl: {line.format(target=target)}")
    assert not target.exists()


def test_a_config_that_is_there_is_not_written_over_without_force(tmp_path, ask):
    target = tmp_path / "config.toml"
    target.write_text("interval_s = 77\n")

    refused = ask("init", "--output", target, "--yes", "--host", "--no-tick")
    kept = target.read_text()
    forced = ask("init", "--output", target, "--yes", "--host", "--no-tick", "--force")

    assert refused.code == 2
    assert "is there already" in refused.line
    assert kept == "interval_s = 77\n"
    assert forced.code == 0
    assert load(str(target))[0].interval_s == 900


def test_without_options_and_without_a_person_it_asks_for_options(tmp_path, ask, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    answer = ask("init", "--output", tmp_path / "config.toml")

    assert (answer.code, answer.line) == (
        2, "supervisorctl: init: nobody is there to ask; use --yes with --slurm, --kube, --iris or --host",
    )  # fmt: skip


class Person(io.StringIO):
    """Someone at a terminal, whose answers are known."""

    def isatty(self) -> bool:
        return True


def at_home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text("Host login.alpha *.example !bad\n  User alice\nhost gpu-box\n")
    (home / ".kube").mkdir()
    (home / ".kube" / "config").write_text("contexts:\n- name: east\n- {}\n- 3\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return home


def test_it_finds_hosts_contexts_and_a_local_slurm(tmp_path, monkeypatch):
    at_home(tmp_path, monkeypatch)
    program = tmp_path / "squeue"
    program.write_text("#!/bin/sh\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    assert look() == Found(ssh_hosts=["login.alpha", "gpu-box"], kube=["east"], local_slurm=True)


def test_a_kubeconfig_that_only_this_shell_names_is_written_down(tmp_path, ask, monkeypatch):
    """A daemon that a service manager starts has no $KUBECONFIG."""
    at_home(tmp_path, monkeypatch)
    named = tmp_path / "west.yaml"
    named.write_text("contexts:\n- name: west\n")
    monkeypatch.setenv("KUBECONFIG", str(named))
    target = tmp_path / "config.toml"

    assert look().kube == ["west"]
    assert ask("init", "--output", target, "--yes", "--no-tick", "--kube", "west").code == 0
    assert load(str(target))[0].cluster[0].of_kind.kubeconfig == named

    monkeypatch.setenv("KUBECONFIG", f"{named}{os.pathsep}{tmp_path / 'other.yaml'}")
    assert "kubeconfig" not in config_text(Found(kube=["west"], kubeconfig=look().kubeconfig), 60)


@pytest.mark.parametrize("kube", ["", "contexts: 3", "[1, 2]", "contexts: [", "\x00", "a: !!python/object:os.system x"])
def test_a_kubeconfig_that_is_none_is_as_if_it_were_not_there(tmp_path, monkeypatch, kube):
    home = at_home(tmp_path, monkeypatch)
    (home / ".kube" / "config").write_text(kube)

    assert look().kube == []


def test_a_person_is_asked_and_enter_takes_what_is_proposed(tmp_path, ask, monkeypatch):
    at_home(tmp_path, monkeypatch)
    target = tmp_path / "config.toml"
    monkeypatch.setattr("sys.stdin", Person("y\n\n\n\nbeta=bob@login.beta\n\nmarin=bob@https://iris.example\n\n"))

    answer = ask("init", "--output", target, "--no-tick")

    assert answer.code == 0
    assert [(each.name, each.kind) for each in load(str(target))[0].cluster] == [
        ("login.alpha", "slurm"), ("beta", "slurm"), ("marin", "iris"), ("box", "host"),
    ]  # fmt: skip


def test_a_person_who_leaves_gets_no_config(tmp_path, ask, monkeypatch):
    at_home(tmp_path, monkeypatch)
    monkeypatch.setattr("sys.stdin", Person("y\n"))

    answer = ask("init", "--output", tmp_path / "config.toml")

    assert answer.code == 1
    assert answer.err.endswith("supervisorctl: init: no answer; nothing was written\n")
    assert not (tmp_path / "config.toml").exists()


def test_a_folder_that_cannot_be_written_is_said(tmp_path, ask):
    (tmp_path / "file").write_text("")

    answer = ask("init", "--output", tmp_path / "file" / "config.toml", "--yes", "--host")

    assert answer.code == 1
    assert answer.line.startswith(f"supervisorctl: init: {tmp_path}/file/config.toml: ")


def test_a_local_slurm_alone_is_a_whole_config(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(config_text(Found(local_slurm=True), 900))

    assert load(str(path))[0].cluster[0].of_kind.transport == "local"


def test_a_login_is_taken_apart():
    assert slurm_from("a=alice@x, y:22").nodes == ["x", "y:22"]
    assert slurm_from("a=alice@x").user == "alice"
    assert slurm_from("a=x").user is None
    for text in ("=x", "a=", "a=,", "a", ""):
        with pytest.raises(UsageError):
            slurm_from(text)


# -- check -------------------------------------------------------------------------------------------------------------


def lines(answer):
    return {
        line[6:].partition(": ")[0]: line for line in answer.out.splitlines() if line[:4] in ("ok  ", "warn", "FAIL")
    }


def test_check_says_one_line_for_each_thing(tmp_path, ask):
    path = tmp_path / "config.toml"
    path.write_text(
        '[[cluster]]\nname = "box"\nkind = "host"\n[[cluster]]\nname = "old"\nkind = "host"\nskip_until = 2999-01-01\n'
        'skip_reason = "moved"\n'
    )

    before = lines(ask("--config", path, "check"))
    ask("--config", path, "tick")
    answer = ask("--config", path, "check")
    after = lines(answer)

    assert before["config"] == f"ok    config: {path}, 2 clusters"
    assert before["database"].startswith("warn  database: ")
    assert after["database"].startswith("ok    database: ")
    assert after["signatures"].endswith(" entries")
    assert after["state folder"].endswith(" GiB free")
    assert after["agent logs"].endswith(" GiB free")
    assert after["cluster old"] == "ok    cluster old: skipped until 2999-01-01: moved"
    box = {line.split(": ", 2)[1]: line for line in answer.out.splitlines() if " box: " in line}
    assert box["login"].startswith("ok    box: login: this machine answered")
    assert box["clock"].startswith("ok    box: clock: ")
    assert answer.code == 0


def test_check_without_a_cluster_warns_and_says_what_to_do(tmp_path, ask):
    path = tmp_path / "config.toml"
    path.write_text("")

    answer = ask("--config", path, "check")

    assert (
        "warn  config: no cluster is configured\n      → add a [[cluster]] table, or run `supervisorctl init`"
        in answer.out
    )


def test_check_fails_where_a_cluster_does_not_answer(tmp_path, ask):
    path = tmp_path / "config.toml"
    path.write_text(
        '[[cluster]]\nname = "alpha"\nkind = "slurm"\nlogin_nodes = ["127.0.0.1:1"]\nlogin_user = "alice"\nssh_config = false\n'
        "agent = false\n"
    )

    answer = ask("--config", path, "check")

    assert answer.code == 1
    assert any(line.startswith("FAIL") for line in answer.out.splitlines())


def test_check_fails_where_the_database_is_broken(tmp_path, ask):
    path = tmp_path / "config.toml"
    path.write_text('database_url = "sqlite:///broken.db"\n')
    (tmp_path / "broken.db").write_bytes(os.urandom(8192))

    answer = ask("--config", path, "check")

    assert answer.code == 1
    assert lines(answer)["database"].startswith("FAIL  database: ")
