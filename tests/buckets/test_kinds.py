"""What tells a kind of work from another, and that each kind's knowledge holds together."""

from __future__ import annotations

import pytest

from supervisor.app.limits import limits_table
from supervisor.app.settings import Settings, rulebook
from supervisor.buckets import KINDS, bucket_of
from supervisor.dialects.vocabulary import vocabulary


@pytest.mark.parametrize(
    ("name", "bucket"),
    [
        ("rl__gsm8k_a", "rl"), ("RL-math", "rl"), ("sft__delphi_1b", "sft"), ("datagen__swe", "datagen"), ("eval-qwen-swebench", "eval"),
        ("/alice/rl__gsm8k", "rl"), ("alice/eval-x", "eval"), ("exp3-sft__delphi", "sft"), ("DCAgent2/probe-7", "eval"),
        ("consolidate-datagen-swe", "other"), ("hf_upload-rl-model", "other"), ("pretokenize_sft", "other"), ("gpu-ci", "other"),
        ("my-grpo-run", "rl"), ("train-42", "other"), ("world__model", "other"), ("girl__x", "other"),
    ],
)  # fmt: skip
def test_a_name_tells_the_kind(name: str, bucket: str) -> None:
    """BUCKET-1: by prefix or run tag; first match wins, case does not matter."""
    assert bucket_of(name, {}) == bucket


@pytest.mark.parametrize(
    ("command", "speaks", "bucket"),
    [
        ("python -m skyrl_train.entrypoints.main_base", None, "rl"),
        ("/home/alice/eval_harbor.sbatch", None, "eval"),
        ("llamafactory-cli train a.yaml", None, "sft"),
        ("bash run.sh", "sft", "sft"),
        ("bash run.sh", None, "other"),
        (None, "rl", "rl"),
        ("python -m skyrl_train.entrypoints.main_base", "sft", "rl"),
    ],
)
def test_where_the_name_says_nothing_the_command_and_then_the_output_tell(
    command: str | None, speaks: str | None, bucket: str
) -> None:
    """BUCKET-1"""
    assert bucket_of("train-42", {}, command, speaks) == bucket
    assert bucket_of("sft__a", {}, command, speaks) == "sft", "the name goes first"


def test_prefixes_of_the_config_take_the_place_of_the_built_in_ones() -> None:
    assert bucket_of("tune-a", {"sft": ("tune-",)}) == "sft"
    assert bucket_of("sft__a", {"sft": ("tune-",)}) == "other"


def test_each_column_and_trend_is_a_metric_that_the_contract_names_for_its_kind() -> None:
    """RL-1, SFT-1, DATAGEN-1, EVAL-1"""
    for kind in KINDS:
        known = set(vocabulary().buckets[kind.name])
        shown = {key for column in kind.columns for key in (column.key, column.of) if key}
        assert shown <= known, kind.name
        assert not kind.trend or kind.trend in known


def test_the_columns_are_those_of_the_rulebook() -> None:
    titles = {kind.name: [column.title for column in kind.columns] for kind in KINDS}

    assert titles["rl"][:6] == ["Step", "Reward", "Policy Loss", "Grad Norm", "Entropy", "TIS |log r|"]
    assert titles["sft"][:3] == ["Step", "Loss", "Grad Norm"]
    assert titles["datagen"] == ["Chunks", "Trials", "avg_turns", "Mean", "exc%"]
    assert titles["eval"] == ["Trials", "pass-rate", "Mean", "top exc", "Infra"]
    assert titles["other"] == []


def test_every_threshold_comes_from_its_table_and_can_be_set_for_one_bucket() -> None:
    table = limits_table()
    book = rulebook(Settings(limits={"entropy_off": 0.4, "rl": {"grad_norm_high": 2}}))

    assert book.limits_of("rl").health.grad_norm_high == 2
    assert book.limits_of("sft").health.grad_norm_high == table["grad_norm_high"]["default"]
    assert book.limits_of("rl").health.entropy_off == 0.4
    for entry in table.values():
        assert entry["why"].endswith(".")
        assert entry["rule"]


def test_tags_of_ablations_are_the_users_to_name() -> None:
    """RL-3"""
    book = rulebook(Settings(buckets={"rl": {"exempt": ["mytag"]}}))

    assert book.limits_of("rl").exempt == ("mytag",)
    assert book.limits_of("eval").exempt == ("DCAgent2/",)
    assert book.prefixes == {}
