"""``show JOB --plot``: metrics over steps, drawn here or into a file; what cannot be drawn is one clear line."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.app.asked import Ask
from tests.stories.examples import play


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    play(folder)
    config = folder / "config.toml"
    config.write_text('database_url = "sqlite:///supervisor.db"\n[[cluster]]\nname = "alpha"\nkind = "host"\n')
    return config


def test_metrics_are_drawn_over_their_steps(examples: Path, ask: Ask) -> None:
    told = ask("--config", examples, "show", "alpha/101", "--plot", "reward", "policy/policy_entropy")

    assert told.code == 0
    assert "rl__gsm8k_base alpha/101: reward" in told.out
    assert "rl__gsm8k_base alpha/101: policy/policy_entropy" in told.out, "names as printed are known too"
    assert "58.0" in told.out
    assert "\x1b" not in told.out, "no colour where nobody looks"


def test_values_that_are_no_numbers_are_left_out_and_said(examples: Path, ask: Ask) -> None:
    told = ask("--config", examples, "show", "alpha/105", "--plot", "grad_norm")

    assert "(3 values that are no finite numbers left out)" in told.out


def test_a_metric_that_was_not_told_is_answered_with_those_that_were(examples: Path, ask: Ask) -> None:
    told = ask("--config", examples, "show", "alpha/101", "--plot", "los\x1b")

    assert told.code == 2
    assert "'los\\x1b': not told by the log of alpha/101; there are" in told.line.replace("\\\\", "\\")
    assert "reward" in told.line


def test_a_file_is_written_where_the_library_is_there_and_asked_for_where_it_is_not(
    examples: Path, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.png"
    told = ask("--config", examples, "show", "alpha/101", "--plot", "reward", "--png", file)
    if importlib.util.find_spec("matplotlib") is None:
        assert told.code == 1
        assert "needs matplotlib: install fleet-supervisor[plots]" in told.line
    else:
        assert file.read_bytes().startswith(b"\x89PNG")
        nowhere = ask("--config", examples, "show", "alpha/101", "--plot", "reward", "--png", tmp_path / "no" / "a.png")
        assert (nowhere.code, "No such file" in nowhere.line) == (1, True)


@pytest.mark.parametrize("words", [("--png", "x.png"), ("--plot", "reward", "--json")])
def test_options_that_do_not_go_together_are_said(examples: Path, ask: Ask, words: tuple[str, ...]) -> None:
    assert ask("--config", examples, "show", "alpha/101", *words).code == 2


def test_each_look_keeps_the_newest_metrics_so_that_a_plot_reaches_further_back_than_the_log_is_remembered(
    examples: Path, ask: Ask
) -> None:
    """A setting that thins measurements has something to thin."""
    from supervisor.app.commands.plot import _whole
    from supervisor.model.readings import Point
    from supervisor.store.store import Store
    from tests.stories.daemon import LONG_AGO

    url = f"sqlite:///{examples.parent / 'supervisor.db'}"
    with Store.open(url, read_only=True) as store:
        held = next(each for each in store.held("alpha", ended_after=LONG_AGO) if each.key.id == "101")
        kept = store.measurements(held.row or 0, "reward", LONG_AGO)

    assert len(kept) >= 2
    assert kept[-1].step == held.log.step
    assert kept[-1].value == held.run.metrics["reward"]

    def point(step: int) -> Point:
        return Point(step, 0.5, None, (), 0, None)

    whole = _whole([point(2), point(1), point(9)], [point(8), point(9)])
    assert [each.step for each in whole] == [1, 2, 8, 9]
