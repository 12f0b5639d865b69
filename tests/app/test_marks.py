"""What the config says of kills: whose jobs are ours, what is never killed, how many, and by which standing rules."""

from __future__ import annotations

import getpass
from datetime import timedelta
from pathlib import Path

import pytest

from supervisor.app.marks import caps_of, marks_of, standing_rules
from supervisor.app.settings import parse
from supervisor.model.proposals import Caps, StandingRule

ME = getpass.getuser()


def settings(cluster=None, **tables):
    clusters = [] if cluster is None else [{"name": "a"} | cluster]
    return parse({"cluster": clusters, **tables}, Path("/etc/supervisor/config.toml"))


SLURM = {"kind": "slurm", "login_nodes": ["login01.example"]}


@pytest.mark.parametrize(
    ("cluster", "own"),
    [
        (SLURM | {"login_user": "alice", "users": ["alice", "bob"]}, {"alice"}),
        (SLURM | {"login_nodes": ["alice@login01.example"], "users": ["bob"]}, {"alice"}),
        (SLURM | {"users": ["bob"]}, {"bob"}),
        (SLURM | {"users": ["bob", "carol"]}, set()),
        (SLURM | {"users": ["bob", ME]}, {ME}),
        (SLURM, None),
        ({"kind": "slurm", "transport": "local", "users": ["bob"]}, {"bob"}),
        ({"kind": "host"}, None),
        ({"kind": "host", "host": "alice@box.example"}, {"alice"}),
        ({"kind": "iris", "url": "http://127.0.0.1:10000", "users": ["alice", "bob"]}, {"alice", "bob"}),
        ({"kind": "kubernetes"}, None),
    ],
)
def test_jobs_are_ours_where_they_belong_to_the_user_that_acts(cluster, own):
    """KILL-5: own jobs only. Others' may be watched; what is not known spares them."""
    found = marks_of(settings(cluster)).own

    assert found == ({} if own is None else {"a": frozenset(own)})


def test_marks_of_names_and_clusters_come_from_the_config():
    """KILL-5: hero runs are no-kill by default."""
    assert marks_of(settings({"kind": "host"})).no_kill == ("hero-*",)
    chosen = settings({"kind": "host", "no_kill": True}, approvals={"no_kill": ["prod-*"]})
    assert (marks_of(chosen).no_kill, marks_of(chosen).no_kill_clusters) == (("prod-*",), frozenset({"a"}))


def test_caps_count_by_the_interval_and_by_the_day():
    chosen = settings(interval_s=600, approvals={"per_tick": 2, "per_day": 7})

    assert caps_of(chosen) == Caps(per_tick=2, tick=timedelta(minutes=10), per_day=7)


def test_standing_rules_are_those_that_the_config_writes_and_none_else():
    assert standing_rules(settings()) == ()
    table = {
        "name": "debug",
        "bucket": "rl",
        "pattern": "debug-*",
        "cause": "silent-hang",
        "cluster": "a",
        "per_day": 2,
    }

    assert standing_rules(settings(SLURM, approvals={"standing": [table]})) == (
        StandingRule(name="debug", bucket="rl", pattern="debug-*", cause="silent-hang", cluster="a", per_day=2),
    )
