"""`[probe]` and `[probe.external]`: what is on by default, and what is refused."""

from __future__ import annotations

import pytest

from supervisor.app.settings import load
from supervisor.model.errors import UsageError


@pytest.fixture
def loaded(tmp_path):
    def from_text(text):
        path = tmp_path / "config.toml"
        path.write_text(text)
        return load(str(path))[0].probe

    return from_text


def test_probes_are_bounded_and_nobody_else_judges_unless_asked(loaded):
    """PROBE-14: time, bytes, nodes and how many at once have limits by default; RL-10 is on."""
    made = loaded("")

    assert (made.timeout_s, made.at_once, made.per_cluster, made.nodes_most) == (600, 2, 1, 8)
    assert (made.log_bytes, made.keep_bytes, made.keep_days) == (8 * 2**20, 5 * 2**30, 30)
    assert made.rl_new_settings
    assert made.external.command == ()
    assert not made.external.network


def test_an_external_judge_has_its_own_table(loaded):
    made = loaded('[probe]\nat_once = 4\n[probe.external]\ncommand = ["judge", "--strict"]\ntimeout_s = 5\n')

    assert made.at_once == 4
    assert made.external.command == ("judge", "--strict")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[probe]\ntimeout_s = 0", "probe.timeout_s: must be greater than 0"),
        ("[probe]\nat_once = true", "at_once: must be a number"),
        ("[probe]\ntime_s = 1", "probe.time_s: unknown key; did you mean"),
        ('[probe.external]\ncommand = "judge"', "probe.external.command: must be a list"),
        ('[probe.external]\ncommand = ["", "x"]', "probe.external.command: must begin with a program"),
        ("[probe.external]\ntimeout = 3", "probe.external.timeout: unknown key; did you mean 'timeout_s'?"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_what_is_allowed(loaded, text, said):
    with pytest.raises(UsageError) as refused:
        loaded(text)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
