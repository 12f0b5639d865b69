"""A catalogue of a few entries, the shipped one, and ways to ask for a diagnosis of text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from supervisor.app.diagnose import Source, diagnose_files
from supervisor.app.packs import Prepared, prepare
from supervisor.diagnosis.catalogue import Catalogue, load
from supervisor.diagnosis.engines import HyperscanEngine
from supervisor.diagnosis.scan import Scanner
from supervisor.model.diagnosis import Diagnosis, SchedulerRecord

SMALL_PACK = r"""
[[signature]]
code = "gpu_oom"
role = "cause"
category = "gpu-oom"
confidence = "high"
pattern = 'CUDA out of memory'
why = "The device is full."
matches = ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"]

[[signature]]
code = "watchdog"
role = "cause"
category = "nccl-timeout"
depth = "symptom"
confidence = "high"
pattern = 'Watchdog caught collective operation timeout'
why = "A collective waited in vain."
matches = ["Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"]

[[signature]]
code = "node_failure"
role = "cause"
category = "node-fail"
depth = "root"
confidence = "high"
pattern = 'error: Node failure on (?P<node>\S+)'
explains = ["gpu-oom"]
why = "The node died."
matches = ["srun: error: Node failure on node-4"]

[[signature]]
code = "nan_loss"
role = "cause"
category = "nan-loss"
survives = true
pattern = "'grad_norm': '?nan"
why = "The gradient is no number."
matches = ["{'loss': 0.0, 'grad_norm': nan}"]

[[signature]]
code = "elastic_exit"
role = "echo"
category = "rank-crash"
confidence = "low"
pattern = 'failed \(exitcode: (?P<exit_code>-?\d+)\) local_rank: (?P<rank>\d+)'
why = "The launcher reports a death."
matches = ["failed (exitcode: 1) local_rank: 3 (pid: 12) of binary: python"]

[[signature]]
code = "waiting"
role = "noise"
pattern = 'still waiting for block (?P<seconds>\d+) seconds'
unless = ["nccl-timeout"]
why = "An idle engine says so every minute."
matches = ["still waiting for block 60 seconds"]

[[signature]]
code = "step_line"
role = "progress"
pattern = 'step (?P<step>\d+)/(?P<total>\d+) loss'
why = "One line a step."
matches = ["step 3/80 loss 1.2"]

[[signature]]
code = "done"
role = "finish"
pattern = 'Training done!'
why = "The end."
matches = ["Training done!"]

[[signature]]
code = "poll"
role = "heartbeat"
pattern = 'GET /metrics'
why = "Somebody polls."
matches = ["GET /metrics 200"]
"""


@pytest.fixture(scope="session")
def small() -> Catalogue:
    return load([("small.toml", SMALL_PACK)])


@pytest.fixture(scope="session")
def small_prepared(small: Catalogue) -> Prepared:
    return Prepared(small, Scanner(small, lambda _what, patterns, once: HyperscanEngine(patterns, once)))


@pytest.fixture(scope="session")
def shipped() -> Prepared:
    return prepare(cached=False)


Ask = Callable[..., Diagnosis]


@pytest.fixture
def ask(small_prepared: Prepared) -> Ask:
    """Diagnose texts with the small catalogue: `ask("text", worker_log="…", scheduler=…)`."""

    def asked(log: str | bytes, scheduler: SchedulerRecord | None = None, **more: str) -> Diagnosis:
        texts = {"job.log": log, **{name.replace("_", "."): text for name, text in more.items()}}
        sources = [
            Source(name, data=text if isinstance(text, bytes) else text.encode()) for name, text in texts.items()
        ]
        return diagnose_files(sources, scheduler, small_prepared)

    return asked


@pytest.fixture
def ask_shipped(shipped: Prepared) -> Ask:
    """The same with the catalogue that comes with the program."""

    def asked(log: str | bytes, scheduler: SchedulerRecord | None = None) -> Diagnosis:
        data = log if isinstance(log, bytes) else log.encode()
        return diagnose_files([Source("job.log", data=data)], scheduler, shipped)

    return asked
