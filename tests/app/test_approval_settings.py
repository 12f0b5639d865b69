"""`[approvals]`: what is on by default, how narrow a standing rule must be, and what is refused."""

from __future__ import annotations

import pytest

from supervisor.app.settings import load
from supervisor.model.errors import UsageError

RULE = '[[approvals.standing]]\nname = "hangs"\nbucket = "rl"\npattern = "debug-*"\ncause = "silent-hang"\n'


@pytest.fixture
def loaded(tmp_path):
    def from_text(text):
        path = tmp_path / "config.toml"
        path.write_text(text)
        return load(str(path))[0].approvals

    return from_text


def test_a_new_install_records_and_sends_nothing(loaded):
    """KILL-1: the first mode goes the whole way but for the cancel; hero runs are no-kill (KILL-5)."""
    made = loaded("")

    assert made.mode == "record"
    assert made.standing == ()
    assert made.no_kill == ("hero-*",)


def test_a_standing_rule_is_narrow(loaded):
    """KILL-1: bucket, name pattern and cause are named; it stands for the surest verdicts only, once a day."""
    (rule,) = loaded(RULE).standing

    assert (rule.bucket, rule.pattern, rule.cause) == ("rl", "debug-*", "silent-hang")
    assert (rule.min_confidence, rule.per_day, rule.cluster) == ("high", 1, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[approvals]\nmode = "auto"', "approvals.mode: must be 'record' or 'ask'"),
        ("[approvals]\nexpires_s = 1", "approvals.expires_s: must be greater than or equal to 10"),
        ('[approvals]\nno_kill = [""]', "approvals.no_kill: must hold no empty pattern"),
        ("[approvals]\nmodes = 1", "approvals.modes: unknown key; did you mean 'mode'?"),
        (RULE.replace("debug-*", "*"), "pattern: must name something: a pattern that fits every name is no narrow rule"),
        (RULE.replace('bucket = "rl"\n', ""), "bucket: is missing"),
        (RULE + RULE, "two standing rules are named 'hangs'; names must be unique"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_what_is_allowed(loaded, text, said):
    with pytest.raises(UsageError) as refused:
        loaded(text)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
