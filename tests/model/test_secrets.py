"""Secrets come from files or the environment, and reach no log, table, page or record."""

from __future__ import annotations

import time

import pytest

from supervisor.model.secrets import HIDDEN, scrubbed


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("python train.py --api_key=sk0123456789abcdef --lr 1e-6", "sk0123456789abcdef"),
        ("python train.py --hf_token hf_abcdefghijklmnop0123", "hf_abcdefghijklmnop0123"),
        ("WANDB_API_KEY=0123456789abcdef0123 bash run.sh", "0123456789abcdef0123"),
        ("password: correct-horse", "correct-horse"),
        ("postgresql://alice:hunter22@db.example/fleet", "hunter22"),
        ("login with hf_abcdefghijklmnop0123 failed", "hf_abcdefghijklmnop0123"),
        ('{"aws_secret_access_key": "AbCdEf0123456789"}', "AbCdEf0123456789"),
        ("python train.py --wandb.key 0123456789abcdef0123456789abcdef01234567 --lr 1", "0123456789abcdef"),
        ("python train.py --wandb_key=0123456789abcdef0123456789abcdef01234567", "0123456789abcdef"),
        (
            "python -m openrlhf.cli.train_ppo_ray --use_wandb 0123456789abcdef0123456789abcdef01234567",
            "0123456789abcdef",
        ),
        ("wandb login 0123456789abcdef0123456789abcdef01234567", "0123456789abcdef"),
        ("python run.py --password 'my pass phrase'", "pass phrase"),
        ("PASSWORD='my pass phrase'", "pass phrase"),
        ("python run.py --password my pass phrase --lr 1", "pass phrase"),
        ("python run.py --db.password abc", "abc"),
        ("Authorization: Bearer 0123456789abcdefXYZ", "0123456789abcdef"),
        ("remote: https://x-access-token:github_pat_11ABCDEFG0abcdefghij_klmnop@github.example", "github_pat_11ABC"),
        ("gho_0123456789abcdefghij0123 was refused", "gho_0123456789"),
        ("export NGC=nvapi-0123456789abcdefghij0123", "nvapi-0123"),
        ("AWS key ASIAABCDEFGHIJKLMNOP", "ASIAABCDEFGHIJKLMNOP"),
    ],
)
def test_what_is_named_like_a_secret_or_looks_like_one_is_hidden(text, secret):
    assert secret not in scrubbed(text)
    assert HIDDEN in scrubbed(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_new_tokens=4096 total_tokens: 123456789",
        "tokenizer = /models/qwen-7b/tokenizer.json",
        "the token expired yesterday",
        "special_tokens: <|endoftext|>",
        "step 12/600 loss 0.1234",
        "python train.py --lr 1e-6 --name rl__gsm8k",
        "python train.py --use_wandb online",
        "Basic blocks of the model: 24",
        "a bearer authentication-scheme is used",
        "the key 0123456789abcdef0123456789abcdef01234567 is a commit",
        "a password --policy strict",
    ],
)
def test_what_is_no_secret_is_left_as_it_is(text):
    assert scrubbed(text) == text


@pytest.mark.parametrize(
    "word",
    [
        "token",
        "a-",
        "secret.",
        "-token ",
        "http://a:",
        "eyJaaaaaaaaaa-",
        "x",
        "--password ",
        "-password a ",
        "token='a ",
        "bearer ",
    ],
)
def test_a_hostile_line_costs_no_more_than_its_length(word):
    """A log's text is scrubbed before it is written into evidence: no line may hold that up."""
    began = time.process_time()
    scrubbed(word * (60_000 // len(word)))

    assert time.process_time() - began < 5


def test_a_long_word_before_the_name_hides_nothing():
    assert scrubbed("wandb." + "x" * 80 + "_api_key=0123456789abcdef").endswith(f"_api_key={HIDDEN}")
