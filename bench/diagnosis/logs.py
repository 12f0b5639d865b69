"""Logs of the kind that long runs write, made up: mostly healthy, one line in ten thousand a fault."""

from __future__ import annotations

import random
from pathlib import Path

FAULTS = (
    "[rank{r}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {n} MiB. GPU {r} has a total capacity of 79.11 GiB",
    "[rank{r}]:[E704 03:00:00.1 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={n}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
    "OSError: [Errno 28] No space left on device: '/scratch/alice/ckpt/step_{n}/optim.pt'",
    "slurmstepd: error: Detected 1 oom_kill event in StepId={n}.0. Some of the step tasks have been OOM Killed.",
    "(EngineCore_DP0 pid={n}) ERROR 07-04 03:00:00 [core.py:710] EngineCore encountered a fatal error.",
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "kernel: [{n}.114] NVRM: Xid (PCI:0000:1a:00): 79, pid={n}, GPU has fallen off the bus.",
)
WORDS = [
    "rollout",
    "batch",
    "token",
    "cache",
    "prefix",
    "reward",
    "policy",
    "weight",
    "sync",
    "engine",
    "decode",
    "shard",
    "rank",
    "group",
    "tensor",
    "sample",
    "turn",
]


def line(rng: random.Random) -> str:
    """One healthy line."""
    n, r = rng.randrange(10**6), rng.randrange(8)
    kind = rng.randrange(9)
    if kind < 3:
        return (
            f"(EngineCore_DP{r} pid={n}) INFO 07-04 03:{n % 60:02d}:{n % 59:02d} [loggers.py:259] Engine 00{r}: Avg prompt throughput: "
            f"{n % 9000}.1 tokens/s, Avg generation throughput: {n % 4000}.5 tokens/s, Running: {n % 64} reqs, Waiting: 0 reqs, "
            f"GPU KV cache usage: {n % 100}.0%, Prefix cache hit rate: 51.2%"
        )
    if kind == 3:
        return (
            f'(APIServer pid={n}) INFO:     10.0.0.{r}:5{n % 10000:04d} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
        )
    if kind == 4:
        return f"node-{r}:{n}:{n + 9} [{r}] NCCL INFO Channel 0{r}/0 : {r}[{r}] -> 3[3] [send] via NET/IB/{r}/GDRDMA"
    if kind == 5:
        text = " ".join(rng.choice(WORDS) for _ in range(14))
        return f"\x1b[36m(FSDPWorker pid={n}, ip=10.0.0.{r})\x1b[0m {text} exit code 0, timeout 30 s, 0 errors [repeated {r}x across cluster]"
    if kind == 6:
        return f"[rank{r}] loader waited 0.0{n % 99} s, memory {n % 80}.20 GiB, next checkpoint in {n % 300} s"
    if kind == 7:
        bars = "\r".join(
            f" {n % 100}%|███▍      | {n % 900}/916 [2:10:{s:02d}<4:02:11, 24.38s/it]" for s in range(1, 7)
        )
        return (
            bars
            if n % 5 == 0
            else f"2026-07-04 03:00:00.113 | DEBUG    | trainer.core:log:90 - {rng.choice(WORDS)} done"
        )
    return (
        f"[rank0] step {n % 90000} loss 2.{n % 10000:04d} grad_norm 0.41 tok/s 41233"
        if n % 10 == 0
        else f"[rank{r}] {rng.choice(WORDS)} {n}"
    )


def make(path: Path, megabytes: float, faults: float = 1e-4, seed: int = 1) -> Path:
    """Write a log unless it is there already."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    rng, left = random.Random(seed), int(megabytes * 1e6)
    block = [line(rng) for _ in range(60_000)]
    with path.open("w", encoding="utf-8", newline="\n") as out:
        while left > 0:
            at = rng.randrange(len(block) - 2000)
            lines = block[at : at + 2000]
            if rng.random() < faults * 2000:
                lines[rng.randrange(2000)] = rng.choice(FAULTS).format(r=rng.randrange(8), n=rng.randrange(10**6))
            text = "\n".join(lines) + "\n"
            out.write(text)
            left -= len(text.encode())
    return path


def storm(path: Path, megabytes: float) -> Path:
    """A log in which every line is a fault."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = random.Random(2)
        block = "".join(
            rng.choice(FAULTS).format(r=rng.randrange(8), n=rng.randrange(10**6)) + "\n" for _ in range(5000)
        )
        path.write_text(block * (int(megabytes * 1e6) // len(block) + 1), "utf-8")
    return path
