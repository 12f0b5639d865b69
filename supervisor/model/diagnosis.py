"""Nouns of a diagnosis: what a log says about why a job died."""

from __future__ import annotations

from dataclasses import dataclass

CATEGORIES = frozenset(
    {
        "none",
        "unread",
        "gpu-oom",
        "host-oom",
        "shared-memory-too-small",
        "dataloader-crash",
        "dataset-error",
        "tokenizer-mismatch",
        "cuda-device-assert",
        "illegal-memory-access",
        "kernel-unsupported",
        "segfault",
        "ecc-xid",
        "gpu-lost",
        "device-busy",
        "nccl-timeout",
        "nccl-ib-error",
        "nccl-config",
        "store-timeout",
        "silent-hang",
        "rank-crash",
        "file-missing",
        "permission-denied",
        "startup-timeout",
        "engine-init-fail",
        "engine-dead",
        "actor-died",
        "object-lost",
        "ray-node-dead",
        "config-error",
        "missing-dependency",
        "version-mismatch",
        "checkpoint-corrupt",
        "not-resumable",
        "nan-loss",
        "rl-no-learning",
        "disk-full",
        "quota",
        "fs-stale-handle",
        "hub-auth",
        "hub-rate-limit",
        "api-quota",
        "network-blocked",
        "port-in-use",
        "node-fail",
        "preempted",
        "evicted",
        "walltime",
        "cancelled",
        "slurm-held",
        "unschedulable",
        "image-pull",
        "container-start",
        "sandbox-fail",
        "context-overflow",
        "eval-assertion",
    }
)
"""The names that a diagnosis may give; users' packs may add some of their own."""

CONFIDENCES = ("high", "medium", "low")
TRANSIENCES = ("transient", "deterministic", "unknown")


@dataclass(frozen=True, slots=True)
class Stream:
    """Who printed a line, as far as its prefixes tell. All None: the line carries no name."""

    task: str | None = None
    actor: str | None = None
    pid: int | None = None
    rank: int | None = None
    node: str | None = None
