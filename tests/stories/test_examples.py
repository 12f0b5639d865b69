"""The situations of `examples`: what a person is told of each, and that every flag's quote stands in the log."""

from __future__ import annotations

import pytest

from tests.stories.examples import Played, play


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("examples"))


def table(played: Played, title: str) -> str:
    """The table under a title, up to the next empty line."""
    start = played.text.index(title)
    return played.text[start : played.text.index("\n\n", start)]


def row(played: Played, name: str, of: str | None = None) -> list[str]:
    """The cells of a job's row."""
    lines = [line for line in (of or played.text).split("\n") if line.startswith(f"│ {name} ")]
    assert len(lines) == 1, (name, lines)
    return [cell.strip() for cell in lines[0].strip("│").replace("|log r|", "log r").split("│")]


def test_every_quote_of_every_flag_stands_in_the_log(played: Played) -> None:
    """PROBE-4: no claim without its quote."""
    quoted = 0
    for job in played.jobs.values():
        for flag in job["flags"]:
            for quote in flag["quotes"]:
                if quote["file"] in played.logs:
                    lines = played.logs[quote["file"]].split("\n")
                    assert quote["text"] in lines[quote["line"] - 1], quote
                    quoted += 1
    assert quoted >= 10


def test_no_flag_comes_without_a_quote(played: Played) -> None:
    """PROBE-4: of the log, or of the scheduler."""
    for name, job in played.jobs.items():
        for flag in job["flags"]:
            assert flag["quotes"], (name, flag)
            assert all(quote["text"] for quote in flag["quotes"]), (name, flag)


def test_healthy_runs_bear_no_flag(played: Played) -> None:
    """RL-4, RL-5: log ratios in the millions and gradient norms near nothing are a regime."""
    for name in (
        "rl__gsm8k_base",
        "rl__gsm8k_shaped",
        "sft__delphi_1b",
        "sft__delphi_8b",
        "datagen__swe_rows",
        "eval-qwen8b-swebench",
        "consolidate-swe",
    ):
        flags = [flag for flag in played.jobs[name]["flags"] if flag["rule"] != "LIVE-7"]
        assert (flags, played.jobs[name]["phase"]) == ([], "running"), name


def test_a_healthy_rl_run_shows_its_numbers(played: Played) -> None:
    """RL-1: entropy and the log ratio are always shown too."""
    cells = row(played, "rl__gsm8k_base")

    assert cells[1] == "58/80"
    assert all(float(cell) == pytest.approx(float(cell)) for cell in cells[2:8])
    assert "steady" in cells[8]
    metrics = played.jobs["rl__gsm8k_base"]["metrics"]
    assert {"reward", "policy_loss", "grad_norm", "entropy", "tis_log_ratio"} <= set(metrics)
    assert played.jobs["rl__gsm8k_base"]["cadence_s"] == 420


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        (
            "rl__gsm8k_base",
            "reward pass_at_n policy_loss grad_norm entropy tis_log_ratio tis_ratio tis_capped clip_ratio",
        ),
        ("sft__delphi_8b", "loss grad_norm learning_rate epoch"),
        ("datagen__swe_rows", "mean avg_turns exc_rate trials chunks_done chunks_total"),
        ("eval-qwen8b-swebench", "mean trials"),
        ("consolidate-swe", ""),
    ],
)
def test_the_metrics_of_each_kind_are_those_that_were_printed_under_the_contracts_keys(
    played: Played, name: str, keys: str
) -> None:
    """BUCKET-3: what was not printed is absent, and each kind has its own keys."""
    assert set(played.jobs[name]["metrics"]) == set(keys.split())


def test_the_trend_of_work_that_is_trials_is_that_of_their_mean(played: Played) -> None:
    """DATAGEN-1, EVAL-1"""
    assert "steady" in table(played, "Datagen (2 running)")
    assert "engine✓ 60 running trials✓" in table(played, "Eval (1 suspect, 1 running)")


def test_shaped_and_unshaped_rewards_stand_in_tables_of_their_own(played: Played) -> None:
    """RL-7, BUCKET-2: clusters are unified, reward regimes are not."""
    shaped, base = table(played, "RL (1 running), shaped reward"), table(played, "unshaped reward")

    assert "rl__gsm8k_shaped" in shaped
    assert "rl__gsm8k_shaped" not in base
    assert "rl__gsm8k_base" in base
    assert played.jobs["rl__gsm8k_shaped"]["regime"] == "shaped"


def test_a_collapse_is_told_with_its_signals_and_a_recommendation(played: Played) -> None:
    """RL-2"""
    flag = played.flags("rl__math_a")["RL-2"]

    assert flag["severity"] == "fault"
    assert flag["text"].startswith("collapse since step 40: ")
    assert all(
        word in flag["text"] for word in ("entropy 0.11", "grad norm 3.4", "|log ratio| 0.09", "cancel and salvage")
    )
    assert any('"policy/policy_entropy": 0.11' in quote["text"] for quote in flag["quotes"])


def test_the_same_of_an_ablation_is_an_observation(played: Played) -> None:
    """RL-3"""
    flag = played.flags("rl__math_zclip")["RL-2"]

    assert flag["severity"] == "note"
    assert flag["text"].endswith("ablation observation, not actionable")


def test_a_gradient_that_is_no_number_is_a_fault_and_shown_as_such(played: Played) -> None:
    """RL-14"""
    flag = played.flags("rl__nan")["RL-14"]

    assert (flag["severity"], flag["text"]) == (
        "fault",
        "grad norm is NaN since step 49; the optimiser takes no step while it is",
    )
    assert played.jobs["rl__nan"]["metrics"]["grad_norm"] == "NaN"
    assert row(played, "rl__nan")[4] == "NaN"


def test_a_dead_trainer_behind_live_engines_is_found(played: Played) -> None:
    """LIVE-4"""
    job = played.jobs["rl__deepscaler"]
    flag = played.flags("rl__deepscaler")["LIVE-4"]

    assert job["phase"] == "suspect"
    assert job["log"]["age_s"] < 60, "the log itself is live"
    assert "Engine 000" in flag["quotes"][0]["text"]


def test_a_fresh_launch_fills_and_shows_dashes(played: Played) -> None:
    """LIVE-6, BUCKET-3"""
    filling = table(played, "RL, filling")

    assert row(played, "rl__fresh", filling)[1:3] == ["—", "—"]
    assert played.jobs["rl__fresh"]["metrics"] == {}
    assert played.jobs["rl__fresh"]["progress"]["step"] is None


def test_a_grid_is_rolled_up_with_its_restart_copies_folded_and_its_long_pole_named(played: Played) -> None:
    """SFT-3: pending cells are counted once, and a running cell's own backups are none."""
    assert (
        "grid sft__delphi…: 4 cells: 2 running, 1 pending (4 restart copies folded), 1 done; long pole sft__delphi_8b"
        in played.text
    )
    assert "sft__delphi_70b +3 restart copies" in table(played, "SFT, filling")


def test_training_steps_are_counted_and_their_rate_is_a_trailing_window(played: Played) -> None:
    """SFT-1, SFT-2"""
    progress = played.jobs["sft__delphi_8b"]["progress"]

    assert (progress["step"], progress["total"]) == (105, 916)
    assert progress["rate_per_s"] == pytest.approx(1 / 240)
    assert progress["eta_s"] == pytest.approx(811 * 240)


def test_a_dead_engine_of_trace_generation_is_found(played: Played) -> None:
    """DATAGEN-1, DATAGEN-2"""
    assert row(played, "datagen__swe_rows")[1:6] == ["18/20", "449/500", "5.100", "0.530", "19%"]
    flag = played.flags("datagen__swe_dead")["DATAGEN-2"]
    assert flag["severity"] == "fault"
    assert flag["text"].endswith("never consolidate")


def test_a_finished_evaluation_that_runs_on_is_a_zombie(played: Played) -> None:
    """EVAL-2"""
    flag = played.flags("eval-qwen8b-zombie")["EVAL-2"]

    assert flag["text"].startswith("zombie: all 300 trials are done since 2026-07-01 12:00Z")
    assert len(played.jobs["eval-qwen8b-zombie"]["flags"]) == 1
    assert row(played, "eval-qwen8b-swebench")[1:4] == ["149/300", "—", "0.530"]


def test_a_link_of_a_chain_that_ran_out_of_time_names_its_successor(played: Played) -> None:
    """CHAIN-1, CHAIN-2"""
    first, second = played.jobs["rl__chained (first)"], played.jobs["rl__chained"]

    assert (first["outcome"], first["successor"], second["predecessor"]) == ("handed_on", "502", "501")
    assert [flag["text"] for flag in first["flags"]] == ["time limit; goes on as 502"]


def test_the_days_record_says_what_status_says(played: Played) -> None:
    """SAY-2: tables, then actions and flags."""
    assert "RL (1 running), shaped reward" in played.sweep
    assert "grid sft__delphi…" in played.sweep
    assert "**Flagged**" in played.sweep
