"""Wrappings, clocks, numbers, vocabulary and the roster: what every dialect stands on."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor.dialects import Malformed, follow, recognise, speaks_for
from supervisor.dialects.line import unwrap
from supervisor.dialects.numbers import number, pairs, seconds_of, whole
from supervisor.dialects.roster import DIALECTS, SIEVE, readers_of
from supervisor.dialects.vocabulary import bar_role, by_key, canonical, vocabulary

SAMPLES = Path(__file__).parent / "samples"


@pytest.mark.parametrize(
    ("raw", "speaker", "rank", "aggregated", "body"),
    [
        ("\x1b[36m(skyrl_entrypoint pid=1234)\x1b[0m \x1b[32m2026-08-01 "
            "12:00:00.123\x1b[0m | INFO     | a.b:f:1 - Started\x1b[0m", "skyrl_entrypoint", None, True, "Started"),
        ("[12:34:56] task=/alice/rl/0 attempt=0 | [rank3] 2026-01-02 03:04:05,678 - root - INFO - step", "", 3, False, "step"),
        ("[12:34:56] worker=w1 task=/alice/rl/0 | step", "", None, False, "step"),
        ("2026-08-01T12:00:00.123456789Z stdout F step", "", None, False, "step"),
        ("(Engine pid=287294, ip=10.128.26.194) INFO 02-08 00:56:50 [loggers.py:248] step", "Engine", None, True, "step"),
        ("(EngineCore_DP0 pid=123) INFO 02-08 00:56:50 [loggers.py:248] step", "EngineCore_DP0", None, False, "step"),
        ("(MegatronPolicyWorker[rank=0] pid=191) saving", "MegatronPolicyWorker[rank=0]", None, True, "saving"),
        ("(raylet) Spilled 2 MiB", "raylet", None, True, "Spilled 2 MiB"),
        ("3: step", "", 3, False, "step"),
        ("[INFO|trainer.py:1627] 2026-01-02 03:04:05,123 >>   Num Epochs = 2", "", None, False, "  Num Epochs = 2"),
        (" 35%|###4      | 320/916 [2:10:33<4:02:11, "
            "24.38s/it]", "", None, False, " 35%|###4      | 320/916 [2:10:33<4:02:11, 24.38s/it]"),
    ],
)  # fmt: skip
def test_wrappings_come_off_in_their_order(
    raw: str, speaker: str, rank: int | None, aggregated: bool, body: str
) -> None:
    """Colour codes first: a trailing one breaks every parser of what stands before it."""
    line = unwrap(raw)

    assert (line.speaker, line.rank, line.aggregated, line.body) == (speaker, rank, aggregated, body)
    assert line.raw == raw


def test_rays_repeat_count_comes_off_and_is_told() -> None:
    line = unwrap(
        "(gen pid=14984) rollout batch 7 ready\x1b[32m [repeated 7x across cluster] (Ray "
        "deduplicates logs by default. Set X=0.)\x1b[0m"
    )

    assert (line.body, line.repeated, line.aggregated) == ("rollout batch 7 ready", 7, True)


def test_a_clock_without_its_year_or_day_takes_it_from_the_one_before() -> None:
    """vLLM prints no year, iris no date; both roll over."""
    december = unwrap("2026-12-31 23:59:58,000 - root - INFO - x").clock_s
    assert december is not None

    assert unwrap("INFO 01-01 00:00:03 [loggers.py:248] x", last_clock=december).clock_s == december + 5
    assert unwrap("[00:00:09] task=/a/b/0 | x", last_clock=december).clock_s == december + 11


def test_a_printed_zone_is_taken_into_account() -> None:
    assert unwrap("2026-08-01T12:00:00Z x").clock_s == unwrap("2026-08-01T14:00:00+02:00 x").clock_s


@pytest.mark.parametrize("text", ["2026-13-45 99:99:99,000 x", "INFO 02-31 00:00:00 [a.py:1] x", "I9999 12:00:00 x"])
def test_a_date_that_does_not_exist_is_no_clock(text: str) -> None:
    assert unwrap(text).clock_s is None


def test_numbers_as_programs_print_them() -> None:
    printed = (
        "{'a': np.float64(0.5), 'b': 'nan', \"c\": -Infinity, 'd': tensor(1e-05, "
        "device='cuda:0'), 'e': '1.2x', 'f': 1_000, 'g': True}"
    )
    got = pairs(printed)

    assert str(got.pop("b")) == "nan"
    assert got == {"a": 0.5, "c": float("-inf"), "d": 1e-05, "f": 1000.0}
    assert (number("'2,048.5'"), number("n/a"), whole("1,832"), whole("1.20k"), whole("9" * 40)) == (
        2048.5,
        None,
        1832,
        1200,
        None,
    )
    assert (seconds_of("2:10:33"), seconds_of("01:05"), seconds_of("1 day, 2:00:00"), seconds_of("?")) == (
        7833.0,
        65.0,
        93600.0,
        None,
    )


def test_each_name_has_one_key_and_each_bucket_only_known_keys() -> None:
    """BUCKET-3: one table of aliases."""
    words = vocabulary()
    keys = {key for key, _ in words.names.values()} | {key for _, key, _ in words.patterns}
    counted = {"mean", "avg_turns", "exc_rate", "trials", "chunks_done", "chunks_total", "pass_rate", "top_exception"}

    for shown in words.buckets.values():
        assert set(shown) <= keys | counted
    for bucket, pairs_of in words.stands_in.items():
        assert set(pairs_of) <= set(words.buckets[bucket])


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("reward/avg_pass_at_16", "pass_at_n"), ("policy/tis/imp_ratio_mean", "tis_ratio"), ("tis/imp_ratio_mean", "tis_ratio"),
        ("train/grad_norm", "grad_norm"), ("actor/entropy_loss", "entropy"), ("lm loss", "loss"), ("hidden_size", None),
        ("generate/avg_num_tokens", "response_length"),
    ],
)  # fmt: skip
def test_names_of_several_versions_mean_one_thing(name: str, key: str | None) -> None:
    """RL-12."""
    found = canonical(name)

    assert (found and found[0]) == key


def test_of_two_names_for_one_key_the_more_telling_counts() -> None:
    assert by_key({"loss/avg_final_rewards": 0.2, "reward/avg_raw_reward": 0.4}) == {"reward": 0.4}
    assert by_key({"policy/log_ratio_abs_mean": 0.3, "policy/tis/log_ratio_abs_mean": 0.1}) == {"tis_log_ratio": 0.1}


@pytest.mark.parametrize(
    ("description", "role"),
    [
        ("", ""), ("Training Step Progress", "train"), ("Training Batches Processed", "train"), ("Training Progress", "train"),
        ("Episode [1/2]", "train"), ("Generation Buffer Progress", "buffer"), ("Epoch 12", "epoch"), ("Train epoch [1/2]", "epoch"),
        ("Running tokenizer on dataset (num_proc=16)", "data"), ("Loading checkpoint shards", "data"), ("Map", "data"),
        ("Capturing CUDA graphs (decode, "
            "FULL)", "data"), ("Writing model shards", "data"), ("Running generate_until requests", "eval"),
        ("Evaluating", "eval"), ("Processed prompts", "eval"), ("something else", "other"),
    ],
)  # fmt: skip
def test_bars_are_told_apart_by_their_description(description: str, role: str) -> None:
    """SFT-1: the training bar, not a packing or tokenising one."""
    assert bar_role(description) == role


# -- the roster --------------------------------------------------------------------------------------------------------


def sample_lines() -> list[bytes]:
    found: list[bytes] = []
    for path in sorted(SAMPLES.rglob("*.log")):
        found += path.read_bytes().replace(b"\r", b"\n").split(b"\n")
    return found


def test_a_line_that_a_dialect_can_read_bears_one_of_its_marks() -> None:
    """Else the line would be passed over unseen."""
    read = 0
    for raw in sample_lines():
        line = unwrap(raw.decode("utf-8", "replace"))
        for dialect in DIALECTS:
            with suppress(Malformed):  # what is no line of theirs may look like a broken one
                if not dialect.read(line):
                    continue
                read += 1
                assert any(mark in raw for mark in dialect.MARKS), (dialect.NAME, raw)
                assert SIEVE.search(raw)
    assert read > 300


def test_dialects_have_names_of_their_own_and_are_found_by_their_marks() -> None:
    names = [dialect.NAME for dialect in DIALECTS]

    assert len(set(names)) == len(names)
    for dialect in DIALECTS:
        for mark in dialect.MARKS:
            assert dialect in list(readers_of(b"x " + mark + b" y"))


@pytest.mark.parametrize("mark", sorted({mark for dialect in DIALECTS for mark in dialect.MARKS}))
def test_no_line_makes_its_reading_slow(mark: bytes) -> None:
    """Untrusted text: a line made to stall a pattern costs well under a second (some milliseconds, measured)."""
    began = time.process_time()
    for pad in (b"_", b"a__", b"1", b"a:", b"'a': 1, ", b"/", b" "):
        follow(None, mark + pad * (60_000 // len(pad)) + b"\n", 0)

    assert time.process_time() - began < 3.0


def test_programs_are_recognised_by_what_they_print() -> None:
    lines = [
        'WANDB_MIRROR kind=train step=7 metrics={"reward/avg_raw_reward": 0.75}',
        "patch-3__ab12c: running agent...",
        "(raylet) Spilled 2 MiB",
        "nothing to see",
    ]

    assert recognise(lines) == {"skyrl", "harbor", "ray"}
    assert speaks_for(recognise(lines)) == ("rl", "agentic")
    assert speaks_for(recognise(["nothing to see"])) == (None, None)
    assert speaks_for({"harbor"}) == (None, None)
