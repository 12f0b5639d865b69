"""Rules of the house that the shipped catalogue and the ranking must keep, each by its id."""

from pathlib import Path

import pytest

from supervisor.app.diagnose import Source, diagnose_files
from supervisor.app.packs import Prepared, prepare
from supervisor.diagnosis.engines import HyperscanEngine
from supervisor.model.diagnosis import SchedulerRecord
from tests.diagnosis.conftest import Ask

STEPS = "".join(
    f"(TaskRunner pid=812) step:{n} - actor/loss:0.1{n} - critic/score/mean:0.3 - training/global_step:{n}\n"
    for n in range(1, 9)
)
WAITS = (
    "(EngineCore_DP0 pid=77) INFO 07-04 03:{0:02d}:00 [shm_broadcast.py:466] "
    "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are "
    "hanging or doing some time-consuming work (e.g. compilation).\n"
)
WATCHDOG = (
    "[rank{0}]:[E704 03:20:00.118420611 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 "
    "milliseconds before timing out.\n"
)
TRACEBACK = 'Traceback (most recent call last):\n  File "/home/alice/train.py", line 12, in main\n    step()\n'


def test_shared_memory_waits_alone_are_a_heartbeat(ask_shipped: Ask):
    """NOISE-1"""
    answer = ask_shipped("".join(WAITS.format(n) for n in range(5)) + STEPS)

    assert answer.category == "none"
    assert [noise.count for noise in answer.noise] == [5]


def test_shared_memory_waits_beside_a_collective_hang_are_its_echo(ask_shipped: Ask):
    """NOISE-1: unless they come with a real collective hang."""
    answer = ask_shipped(STEPS + "".join(WAITS.format(n) for n in range(15, 20)) + WATCHDOG.format(0))

    assert answer.category == "nccl-timeout"
    assert any("broadcast block" in echo.text.decode() for echo in answer.echoes)


def test_every_noise_rule_of_the_catalogue_says_why(shipped: Prepared):
    """NOISE-2: in the same catalogue as faults, with a reason."""
    noise = [entry for entry in shipped.catalogue.signatures if entry.role == "noise"]

    assert len(noise) > 20
    assert [entry.code for entry in noise if len(entry.why.split()) < 4] == []


def test_a_users_own_noise_rule_counts_beside_the_shipped_ones(tmp_path: Path):
    """NOISE-2: extended by the user."""
    pack = tmp_path / "ours.toml"
    pack.write_text(
        '[[signature]]\ncode = "our_probe"\nrole = "noise"\nconfidence = "high"\n'
        "pattern = 'OSError: probe of the spare file system'\n"
        'why = "Our health probe fails on purpose."\nmatches = ["OSError: probe of the spare file system"]\n'
    )
    own = prepare([pack], engine="hyperscan", cached=False)
    log = (STEPS + "OSError: probe of the spare file system\n").encode()
    answer = diagnose_files([Source("job.log", data=log)], None, own)

    assert isinstance(own.scanner.engine, HyperscanEngine)
    assert (answer.category, [noise.signature for noise in answer.noise]) == ("none", ["our_probe"])


def test_both_logs_of_a_ray_job_are_read_and_the_workers_names_the_cause(shipped: Prepared):
    """FIND-6: the job log alone tells no more than that an actor is gone."""
    job = (
        "2026-07-04 03:20:09,101\tERROR worker.py:409 -- ray.exceptions.ActorDiedError: The actor died unexpectedly "
        "before finishing this task.\n"
    )
    worker = "2026-07-04 03:20:01,004 ERROR actor step 8\n" + TRACEBACK + "KeyError: 'advantages'\n"
    alone = diagnose_files([Source("job.log", data=job.encode())], None, shipped)
    both = [Source("job.log", data=job.encode()), Source("worker-01.err", data=worker.encode())]
    answer = diagnose_files(both, None, shipped)

    assert alone.category == "actor-died"
    assert (answer.category, answer.exception and answer.exception.type) == ("rank-crash", "KeyError")
    assert answer.cause is not None
    assert answer.cause.file == "worker-01.err"


def test_what_launchers_print_after_the_first_traceback_only_echoes_it(ask_shipped: Ask):
    """FIND-7"""
    answer = ask_shipped(
        STEPS
        + "".join(f"[rank3]: {line}\n" for line in (TRACEBACK + "ZeroDivisionError: division by zero").split("\n"))
        + "W0704 03:20:00.597000 14320 torch/distributed/elastic/multiprocessing/api.py:1028] "
        "Sending process 14400 closing signal SIGTERM\n"
        "E0704 03:20:01.610000 14320 torch/distributed/elastic/multiprocessing/api.py:1002] "
        "failed (exitcode: 1) local_rank: 3 (pid: 14403) of binary: /opt/venv/bin/python\n"
        "srun: error: node-4: task 0: Exited with exit code 1\n"
    )

    assert answer.exception is not None
    assert (answer.category, answer.exception.type) == ("rank-crash", "ZeroDivisionError")
    assert len(answer.echoes) >= 2


def test_without_evidence_nothing_is_guessed(ask_shipped: Ask):
    """FAIL-2"""
    answer = ask_shipped(STEPS, SchedulerRecord(state="FAILED", exit_code=1))

    assert (answer.category, answer.cause, answer.confidence) == ("none", None, "low")
    assert answer.missing


def test_an_unread_log_is_missing_evidence_even_after_a_clean_exit(shipped: Prepared):
    """FAIL-3"""
    sources = [Source("job.log", data=STEPS.encode()), Source("worker.log", refused="Permission denied")]
    answer = diagnose_files(sources, SchedulerRecord(state="COMPLETED", exit_code=0), shipped)

    assert answer.category == "none"
    assert "worker.log: Permission denied" in answer.missing


@pytest.mark.parametrize("value", ["4190241.25", "3.1e9", "1284759301.0"])
def test_a_huge_difference_of_rollout_and_training_probabilities_is_no_signal(ask_shipped: Ask, value: str):
    """RL-5"""
    line = f"(TaskRunner pid=812) step:9 - rollout_train_prob_diff_mean:{value} - critic/score/mean:0.3\n"
    answer = ask_shipped(STEPS + line)

    assert (answer.category, answer.ruled_out) == ("none", ())


@pytest.mark.parametrize(
    "line",
    [
        "harbor.llms.base.ContextLengthExceededError: Model hosted_vllm/m context length exceeded",
        "harbor.trial.errors.AgentTimeoutError: Agent execution timed out after 1800.0 seconds",
        "trial 7: AgentTimeoutError after 900 s, scored 0",
    ],
)
def test_overlong_and_late_rollouts_are_scored_and_kill_nothing(ask_shipped: Ask, line: str):
    """RL-6: neither alone at the end nor before a real cause."""
    assert ask_shipped(STEPS + f"(RolloutCoordinator pid=50) {line}\n").category == "none"

    answer = ask_shipped(STEPS + f"(RolloutCoordinator pid=50) {line}\n" + TRACEBACK + "KeyError: 'advantages'\n")
    assert answer.exception is not None
    assert (answer.category, answer.exception.type) == ("rank-crash", "KeyError")


def test_the_same_failure_at_another_time_and_place_keeps_its_fingerprint(ask_shipped: Ask):
    """CHAIN-5: what repeats is told by it."""
    crash = '[rank{0}]: Traceback (most recent call last):\n[rank{0}]:   File "{1}/train.py", line {2}, in main\n'
    crash += "[rank{0}]: ValueError: bucket {2} of /scratch/{0}/x has 0 rows\n"
    first, again = (ask_shipped(STEPS + crash.format(*how)) for how in ((3, "/home/alice", 12), (61, "/srv/b", 80)))

    assert first.fingerprint == again.fingerprint != ""
    assert first.transience == "deterministic"
