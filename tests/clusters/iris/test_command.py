"""A job's command line as it is stored and shown: what people write into it that is secret is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.clusters.iris_command import command_of

SECRET = "Zq7vT2mXw9LpR4sK8bN1cY6d"


@pytest.mark.parametrize(
    "argv",
    [
        ["bash", "-c", f"export WANDB_API_KEY={SECRET}; python train.py"],
        ["bash", "-c", f"HF_TOKEN='{SECRET}' python train.py"],
        ["bash", "-c", f'OPENAI_API_KEY="{SECRET}" python train.py'],
        ["python", "train.py", f"--api-key={SECRET}"],
        ["python", "train.py", "--hub_token", SECRET],
        ["bash", "-c", f"python train.py --hub_token {SECRET} --lr 3"],
        ["curl", "-H", f"Authorization: Bearer {SECRET}", "http://x"],
        ["git", "clone", f"https://alice:{SECRET}@git.example/x"],
        ["env", f"MY_SECRET={SECRET}", "true"],
        ["python", "train.py", f"+trainer.wandb.api_key={SECRET}"],
        ["echo", f"hf_{SECRET}"],
        ["echo", f"sk-{SECRET}"],
        ["mysql", f"--password={SECRET}"],
    ],
)
def test_a_secret_in_a_command_is_not_kept(argv: list[str]) -> None:
    line = command_of(argv)

    assert line is not None
    assert SECRET not in line
    assert "[REDACTED]" in line
    assert argv[0] in line


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "-m", "skyrl_train.main", "trainer.ckpt_path=/ckpt/run", "trainer.epochs=3"],
        ["vllm", "serve", "--max-num-batched-tokens", "8192"],
        ["python", "train.py", "--max_tokens=4096", "--tokenizer", "qwen", "--max_new_tokens", "128"],
        ["harbor", "run", "--jobs-dir", "/data/jobs"],
    ],
)
def test_what_only_looks_like_one_stays(argv: list[str]) -> None:
    assert command_of(argv) == " ".join(argv)


@given(st.lists(st.text(max_size=60), max_size=8))
def test_any_command_is_one_line_of_printable_text(argv: list[str]) -> None:
    line = command_of(argv)

    assert line is None or line.isprintable()
