"""Gate B: do the devices work? Policy and engine ranks apart, the engines' subscription, memory."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.gates import resources
from supervisor.model.findings import Quote
from supervisor.model.probe import Case, Cause, GateScore, Score
from tests.gates.cases import Failed, assert_quotes_stand, some_case
from tests.gates.some_trials import ENTRY, rl_log

HOURS = timedelta(hours=3)
HEAD = "index, uuid, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], power.limit [W]"
UUID = "GPU-{:08d}-1a2b"


def gpu(*uses: int | str, memory: int = 70000, watts: int = 600) -> str:
    """The use of each device, the same in three samples; ``watts`` of those at work."""
    rows = "".join(
        f"{n}, {UUID.format(n)}, NVIDIA H100 80GB HBM3, {use if isinstance(use, str) else f'{use} %'}, {memory} MiB, 81559 MiB, "
        f"{120 if use == 0 else watts}.00 W, 700.00 W\n"
        for n, use in enumerate(uses)
    )
    return "".join(f"# sample {n} at {1790000000 + n}\n{HEAD}\n{rows}" for n in (1, 2, 3))


def users(*names: str, pids: int = 5000) -> str:
    """One process a device."""
    rows = "".join(f"{UUID.format(n)}, {pids + n}, {name}, 70000 MiB\n" for n, name in enumerate(names))
    return f"gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n{rows}"


def listed(count: int) -> str:
    return "".join(f"/dev/nvidia{n}\n" for n in range(count)) + f"# {count} accelerator devices\n"


def processes(*rows: tuple[int, str, float]) -> str:
    """Number, command, share of a core between the samples."""
    head = "PID PPID PGID STAT NLWP CPUTIMES ETIMES RSS WCHAN COMMAND"

    def sample(number: int, at: int) -> str:
        lines = "".join(
            f"{pid} 1 1 S 8 {share * 4 * number:.2f} {900 + at} 1000 - {command}\n" for pid, command, share in rows
        )
        return f"# sample {number} at {at}\n{head}\n{lines}"

    return sample(1, 100) + sample(2, 104)


POLICY, ENGINE = "ray::FSDPPolicyWorkerBase.ppo_train", "ray::AsyncVLLMInferenceEngine.generate"
RANKS = users(POLICY, POLICY, ENGINE, ENGINE)
COORDINATORS = [(6000, "ray::RolloutCoordinator.submit_batch", 0.2), (6001, "ray::skyrl_entrypoint", 0.1)]
PROCESSES = processes(
    (5000, POLICY, 1.0), (5001, POLICY, 1.0), (5002, ENGINE, 0.5), (5003, ENGINE, 0.5), *COORDINATORS
)  # fmt: skip
PEGGED = processes(
    (5000, POLICY, 1.0), (5001, POLICY, 1.0), (5002, ENGINE, 0.5), (5003, ENGINE, 0.5), (6000, "ray::RolloutCoordinator.submit_batch", 1.0),
)  # fmt: skip
STEP = {
    "reward/avg_raw_reward": 0.5,
    "timing/step": 120.0,
    "timing/policy_train": 30.0,
    "timing/wait_for_generation_buffer": 80.0,
}
BOUND = {**STEP, "timing/policy_train": 110.0, "timing/wait_for_generation_buffer": 2.0}
STATS = (
    ENTRY + "2026-07-01 11:58:00.000 | INFO     | skyrl_train.callbacks:log:60 - vLLM Stats (step {step}): engines=2, "
    "running(peak/med)={peak}/{running}, waiting(peak/med)={waiting}/{waiting}, prompt_tp(peak/med)=900/400 tok/s, "
    "gen_tp(peak/med)=9000/{tps} tok/s, kv_cache(peak/med)={kv}/{kv}%\n"
)
FED = STATS.format(step=12, peak=200, running=128, waiting=6, kv=62.0, tps=4100)
HUNGRY = STATS.format(step=12, peak=9, running=2, waiting=0, kv=0.8, tps=90)
FLOODED = "".join(STATS.format(step=n, peak=64, running=64, waiting=900, kv=99.0, tps=4000 + n) for n in range(6, 13))
GROWING = "".join(STATS.format(step=n, peak=64, running=64, waiting=900, kv=99.0, tps=700 * n) for n in range(6, 13))
ROLLS = ENTRY + "2026-07-01 11:58:30.000 | INFO     | skyrl_train.utils:__enter__:50 - Started: 'generate'\n"
TRAINS = ENTRY + "2026-07-01 11:58:30.000 | INFO     | skyrl_train.utils:__enter__:50 - Started: 'policy_train'\n"
BUFFER = ENTRY + "Generation Buffer Progress: 40/64 (62%) [721s] | buffer qsize=3\n"


def node(uses: str, ranks: str = RANKS, procs: str = PROCESSES, count: int = 4, **files: str) -> dict[str, str]:
    return {
        "gpu-n1.csv": uses,
        "gpu-processes-n1.csv": ranks,
        "processes-n1.txt": procs,
        "devices-n1.txt": listed(count),
        **files,
    }


def rl(*more: str, step: dict[str, float] = STEP) -> str:
    return rl_log([step] * 12, more="".join(more))


def judged(case: Case) -> GateScore:
    score = resources.judge(case)
    assert_quotes_stand(case, score.quotes)
    return score


# -- a table of situations ---------------------------------------------------------------------------------------------

WORKS, RESTS = gpu(97, 98, 90, 85), gpu(0, 0, 0, 0)
SITUATIONS: dict[str, tuple[str, dict[str, str], dict[str, Any], Score, str]] = {
    # bucket, files, what is said of the job, score, cause
    "fed engines": ("rl", node(WORKS, **{"log.txt": rl(FED)}), {}, Score.PASS, ""),
    "idle engines while it trains": ("rl", node(gpu(97, 98, 0, 0), **{"log.txt": rl(HUNGRY, TRAINS)}), {}, Score.PASS, ""),
    "idle engines while policy ranks are busy": ("rl", node(gpu(97, 98, 0, 0), **{"log.txt": rl(HUNGRY)}), {}, Score.PASS, ""),
    "starved, the dispatcher is at its limit": (
        "rl", node(RESTS, procs=PEGGED, **{"log.txt": rl(HUNGRY, ROLLS)}), {}, Score.FAIL, "dispatch-bound",
    ),
    "starved, training is the slow phase": (
        "rl", node(RESTS, **{"log.txt": rl(HUNGRY, ROLLS, BUFFER, step=BOUND)}), {}, Score.FAIL, "training-bound",
    ),
    "starved, few requests of many rollouts": (
        "rl", node(RESTS, **{"log.txt": rl(HUNGRY, ROLLS, BUFFER)}), {}, Score.FAIL, "under-subscribed",
    ),
    "starved, and its devices draw little power": (
        "rl", node(gpu(0, 0, 96, 97, watts=180), procs=PEGGED, **{"log.txt": rl(HUNGRY, ROLLS)}), {}, Score.FAIL, "dispatch-bound",
    ),
    "few requests that keep the devices at full power": ("rl", node(gpu(0, 0, 96, 97), **{"log.txt": rl(HUNGRY, ROLLS)}), {}, Score.PASS, ""),
    "all its devices rest and it is silent, whatever its engines last said": (
        "rl", node(RESTS, **{"log.txt": rl(FED)}), {"silent_for": timedelta(minutes=40)}, Score.FAIL, "devices-idle",
    ),
    "starved, and nothing measured": (
        "rl",
        {**node(RESTS, **{"log.txt": rl(HUNGRY, ROLLS, step={"reward/avg_raw_reward": 0.5})}), "processes-n1.txt": Failed("srun: timed out")},
        {}, Score.ERROR, "",
    ),
    "starved, some measured and none explains it": (
        "rl", node(RESTS, **{"log.txt": rl(HUNGRY, ROLLS, step={"reward/avg_raw_reward": 0.5})}), {}, Score.ERROR, "",
    ),
    "more wait than run, throughput flat": ("rl", node(WORKS, **{"log.txt": rl(FLOODED)}), {}, Score.FAIL, "over-subscribed"),
    "more wait than run, throughput grows": ("rl", node(WORKS, **{"log.txt": rl(GROWING)}), {}, Score.PASS, ""),
    "it trains and all policy ranks rest without progress": (
        "rl", node(RESTS, **{"log.txt": rl(FED, TRAINS)}), {"silent_for": timedelta(minutes=40)}, Score.FAIL, "devices-idle",
    ),
    "policy ranks rest, and its log goes on": ("rl", node(RESTS, **{"log.txt": rl(FED, TRAINS)}), {}, Score.PASS, ""),
    "no line of an engine": ("rl", node(WORKS, **{"log.txt": rl()}), {}, Score.ERROR, ""),
    "ranks that cannot be told apart": (
        "rl", node(WORKS, ranks=users(*["python"] * 4), procs=processes((1, "python main.py", 1.0)), **{"log.txt": rl(FED)}), {}, Score.ERROR, "",
    ),
    "only policy ranks are named": ("rl", node(WORKS, ranks=users(*[POLICY] * 4), procs=processes((5000, POLICY, 1.0)), **{"log.txt": rl(FED)}), {}, Score.ERROR, ""),
    "a policy that generates by itself": (
        "rl",
        node(WORKS, ranks=users(*["python"] * 4), procs=processes(*((5000 + n, "python train_grpo.py", 1.0) for n in range(4))), **{"log.txt": rl()}),
        {},
        Score.PASS,
        "",
    ),
    "an engine that spoke and is not there any more": (
        "rl",
        node(WORKS, ranks=users(*["python"] * 4), procs=processes(*((5000 + n, "python train_grpo.py", 1.0) for n in range(4))), **{"log.txt": rl(FED)}),
        {},
        Score.ERROR,
        "",
    ),
    "the device view failed": ("rl", {**node(WORKS), "gpu-n1.csv": Failed("NVIDIA-SMI has failed"), "log.txt": rl(FED)}, {}, Score.ERROR, ""),
    "the device view tells no use": ("rl", node(gpu("[N/A]", "[N/A]"), **{"log.txt": rl(FED)}), {}, Score.ERROR, ""),
    "devices that are there and not seen": (
        "sft", {"devices-n1.txt": listed(4), "gpu-n1.csv": "# sample 1 at 1790000001\nNo devices were found\n", "log.txt": "x\n"}, {}, Score.ERROR, "",
    ),
    "devices of which nothing was captured": ("sft", {"devices-n1.txt": listed(4), "log.txt": "x\n"}, {}, Score.ERROR, ""),
    "nothing captured at all": ("other", {"log.txt": "x\n"}, {}, Score.ERROR, ""),
    "no device on its node": (
        "other", {"devices-n1.txt": listed(0), "gpu-n1.csv": Failed("nvidia-smi is not in the PATH here"), "log.txt": "x\n"}, {},
        Score.NOT_APPLICABLE, "",
    ),
    "no device on one node, the other did not answer": (
        "other", {"devices-n1.txt": listed(0), "devices-n2.txt": Failed("timed out"), "gpu-n2.csv": Failed("timed out"), "log.txt": "x\n"}, {},
        Score.ERROR, "",
    ),
    "supervised, busy": ("sft", node(WORKS, **{"log.txt": "x\n"}), {}, Score.PASS, ""),
    "supervised, at rest for a moment": ("sft", node(RESTS, **{"log.txt": "x\n"}), {}, Score.PASS, ""),
    "supervised, at rest and silent": (
        "sft", node(RESTS, **{"log.txt": "x\n"}), {"silent_for": timedelta(minutes=20)}, Score.FAIL, "devices-idle",
    ),
    "processes of it were killed for memory": (
        "sft", node(WORKS, **{"log.txt": "x\n", "memory-n1.txt": "# path /sys/fs/cgroup/a/memory.events\noom 1\noom_kill 1\n"}), {},
        Score.FAIL, "host-oom",
    ),
    "an evaluation's own engine": (
        "eval", node(gpu(80), ranks=users("VLLM::EngineCore"), procs=processes((5000, "VLLM::EngineCore", 1.0)), count=1, **{"log.txt": FED}), {},
        Score.PASS, "",
    ),
    "an evaluation without an engine": (
        "eval", node(gpu(80), ranks=users("python"), procs=processes((5000, "python -m lm_eval --model hf", 1.0)), count=1, **{"log.txt": "x\n"}), {},
        Score.PASS, "",
    ),
    "datagen with an engine that says nothing": (
        "datagen", node(gpu(80), ranks=users("VLLM::EngineCore"), procs=processes((5000, "VLLM::EngineCore", 1.0)), count=1, **{"log.txt": "x\n"}), {},
        Score.ERROR, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SITUATIONS)
def test_situations_and_their_scores(name: str):
    """PROBE-2, PROBE-8, PROBE-9: nothing here is hard, for nothing here is a hang."""
    bucket, texts, about, expected, cause = SITUATIONS[name]

    score = judged(some_case(texts, bucket=bucket, **about))

    assert (score.result, score.cause) == (expected, cause), score.reason
    assert not score.hard
    assert (score.missing is not None) == (expected is Score.ERROR)
    assert score.result is not Score.FAIL or (score.fix and score.watch)


# -- words and quotes --------------------------------------------------------------------------------------------------


def rl_score(uses: str = WORKS, log: str = "", **files: str) -> GateScore:
    return judged(some_case(node(uses, **{"log.txt": log or rl(FED), **files}), bucket="rl"))


def test_policy_and_engine_devices_are_told_apart_and_never_averaged():
    """PROBE-2: with the engines' line and a line of a device of each kind."""
    score = rl_score()

    assert "2 policy devices at 97 to 98 % (600 of 700 W); 2 engine devices at 85 to 90 %" in score.reason
    assert "told apart by the processes on each device" in score.reason
    assert "running 128, waiting 6, cache 62 %, 4100 tokens/s, the serving cap is not told" in score.reason
    assert {quote.file for quote in score.quotes} == {"log.txt", "gpu-processes-n1.csv", "gpu-n1.csv"}
    assert score.facts["policy_least_percent"] == 97.0
    assert score.facts["engine_most_percent"] == 90.0


def test_the_serving_cap_is_told_where_the_settings_in_the_log_tell_it():
    score = rl_score(log="generator.num_inference_engines=2 generator.max_num_seqs=256\n" + rl(FED))

    assert "serving cap 512" in score.reason
    assert score.facts["capacity"] == 512


def test_ranks_are_told_apart_by_the_names_beside_process_numbers_in_the_log():
    """In a container the list of processes may be of another namespace."""
    names = "".join(f"(FSDPPolicyWorkerBase pid={pid}) init\n" for pid in (5000, 5001)) + "".join(
        f"(AsyncVLLMInferenceEngine pid={pid}, ip=10.0.0.1) init\n" for pid in (5002, 5003)
    )
    texts = node(
        WORKS, ranks=users(*["python"] * 4), procs=processes((1, "bash run.sh", 0.0)), **{"log.txt": names + rl(FED)}
    )

    score = judged(some_case(texts, bucket="rl"))

    assert score.result is Score.PASS
    assert "2 policy devices" in score.reason


def test_ranks_are_told_apart_by_nodes_that_hold_one_kind_each():
    texts = {
        "gpu-n1.csv": gpu(97), "gpu-n2.csv": gpu(80), "devices-n1.txt": listed(1), "devices-n2.txt": listed(1),
        "gpu-processes-n1.csv": users(), "gpu-processes-n2.csv": users(),
        "processes-n1.txt": processes((5, POLICY, 1.0)), "processes-n2.txt": processes((5, ENGINE, 1.0)), "log.txt": rl(FED),
    }  # fmt: skip

    score = judged(some_case(texts, bucket="rl"))

    assert "told apart by what runs on each node" in score.reason


def test_devices_of_other_jobs_on_a_shared_node_are_left_out():
    texts = node(gpu(97, 98, 0, 0), ranks=users("python", "python") + f"{UUID.format(2)}, 77, other, 1 MiB\n{UUID.format(3)}, 78, other, 1 MiB\n",
                 procs=processes((5000, "python train.py", 1.0), (5001, "python train.py", 1.0)), **{"log.txt": "x\n"})  # fmt: skip

    assert "2 devices at 97 to 98 %" in judged(some_case(texts, bucket="sft")).reason


def test_a_hybrid_engine_shares_its_devices_with_the_policy():
    ranks = (
        users(*["ray::WorkerDict.actor_rollout_update_actor"] * 2) + users(ENGINE, ENGINE, pids=7000).partition("\n")[2]
    )
    procs = processes(
        (5000, "ray::WorkerDict.actor_rollout_update_actor", 1.0),
        (5001, "ray::WorkerDict.actor_rollout_update_actor", 1.0),
        (7000, ENGINE, 1.0),
        (7001, ENGINE, 1.0),
    )

    score = judged(some_case(node(gpu(97, 98), ranks=ranks, procs=procs, count=2, **{"log.txt": rl(FED)}), bucket="rl"))

    assert "shared by policy and engine" in score.reason


def test_a_starvation_tells_all_that_was_measured_and_never_blames_sandboxes():
    """PROBE-8: concrete counts."""
    score = judged(some_case(node(RESTS, procs=PEGGED, **{"log.txt": rl(HUNGRY, ROLLS, BUFFER)}), bucket="rl"))

    assert "1 coordinator, the busiest at 100 % of a core" in score.reason
    assert "of a step of 120 s training takes 30 s and rollouts are waited for 80 s" in score.reason
    assert "24 rollouts are under way and 2 requests are in the engines" in score.reason
    assert "sandbox" not in (score.reason + score.fix).lower()
    assert "coordinators" in score.fix


def test_an_unmeasured_starvation_says_what_was_not_measured_and_what_failed():
    """PROBE-8: a verdict on it would be worth nothing."""
    _, texts, _, _, _ = SITUATIONS["starved, and nothing measured"]

    score = judged(some_case(texts, bucket="rl"))

    assert "Not measured: processor use of the rollout coordinators" in score.reason
    assert score.missing is not None
    assert score.missing.output == "srun: timed out"
    assert "running 2, waiting 0" in score.reason


def test_one_engine_of_a_folded_log_is_quoted_and_not_averaged():
    """Ray shows one engine of many, chosen by chance."""
    line = "(AsyncVLLMInferenceEngine pid=5002) INFO 07-01 11:58:{:02d} [loggers.py:123] Engine 000: Avg prompt throughput: 12.0 tokens/s, Avg generation throughput: 900.0 tokens/s, Running: 31 reqs, Waiting: 0 reqs, GPU KV cache usage: 43.2%, Prefix cache hit rate: 0.0%\n"

    score = rl_score(log=rl(*(line.format(n) for n in range(5))))

    assert "running 31, waiting 0, cache 43.2 %, 900 tokens/s" in score.reason


def test_a_memory_fault_that_the_run_went_on_after_is_no_failure():
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n" + rl(FED)
    cause = Cause(
        category="gpu-oom",
        confidence="high",
        fingerprint="f",
        quotes=(Quote("log.txt", 1, "CUDA out of memory"),),
        action="",
        transience="deterministic",
    )
    late = Cause(
        category="gpu-oom",
        confidence="high",
        fingerprint="f",
        quotes=(Quote("log.txt", 14, "CUDA out of memory"),),
        action="",
        transience="deterministic",
    )
    after = rl(FED) + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"

    went_on = judged(some_case(node(WORKS, **{"log.txt": log}), bucket="rl", causes={"log.txt": cause}))
    ended = judged(some_case(node(WORKS, **{"log.txt": after}), bucket="rl", causes={"log.txt": late}))

    assert went_on.result is Score.PASS
    assert (ended.result, ended.cause, ended.hard) == (Score.FAIL, "gpu-oom", False)


# -- nothing moves -----------------------------------------------------------------------------------------------------

STACKS = "".join(
    f"# process {pid} python\n# by py-spy dump\nProcess {pid}: {name}\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
    f'Thread {pid} (idle): "MainThread"\n    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    step (train.py:40)\n'
    for pid, name in ((5000, POLICY), (5001, POLICY))
)
STILL = processes((5000, POLICY, 0.0), (5001, POLICY, 0.0), (5002, ENGINE, 0.0), (5003, ENGINE, 0.0))


def hung(**changes: str) -> Case:
    texts = node(RESTS, procs=STILL, **{"log.txt": rl(FED, TRAINS), "stack-n1.txt": STACKS, **changes})
    return some_case(texts, bucket="rl", silent_for=HOURS)


def test_rest_is_a_wedge_only_where_gate_a_finds_one_too():
    """PROBE-5, PROBE-9: all ranks at 0 % without log advance; with stacks, and without any other explanation."""
    score = judged(hung())

    assert (score.result, score.hard, score.wedge) == (Score.FAIL, True, True)
    assert "all policy ranks rest without progress" in score.reason


def test_without_stacks_rest_is_no_wedge():
    """PROBE-5."""
    score = judged(hung(**{"stack-n1.txt": Failed("srun: error: Unable to create step")}))

    assert not score.hard


@pytest.mark.parametrize(
    "file", ["gpu-n1.csv", "gpu-processes-n1.csv", "processes-n1.txt", "stack-n1.txt", "log.txt", "record.txt"]
)
def test_whatever_is_missing_of_a_wedges_evidence_it_is_no_wedge_any_more(file: str):
    """PROBE-2, PROBE-5: what decides is each piece; without it nothing is killed."""
    score = judged(hung(**{file: Failed("timed out")}))

    assert not score.hard
    assert file not in ("gpu-n1.csv", "log.txt") or (score.result is Score.ERROR and score.missing is not None)


@pytest.mark.parametrize(
    "name", [name for name, each in SITUATIONS.items() if each[0] in ("rl", "sft") and "gpu-n1.csv" in each[1]]
)
def test_without_the_view_of_its_devices_every_situation_is_an_error(name: str):
    """PROBE-2."""
    bucket, texts, about, _, _ = SITUATIONS[name]

    score = judged(some_case({**texts, "gpu-n1.csv": Failed("timed out")}, bucket=bucket, **about))

    assert score.result is Score.ERROR


def test_an_ablation_at_rest_is_never_hard():
    texts = node(RESTS, procs=STILL, **{"log.txt": rl(FED, TRAINS), "stack-n1.txt": STACKS})

    assert not judged(some_case(texts, bucket="rl", silent_for=HOURS, exempt=True)).hard


# -- garbage -----------------------------------------------------------------------------------------------------------

PIECES = "".join([*node(WORKS).values(), rl(FED, HUNGRY), STACKS]).splitlines()
NAMES = (
    "gpu-n1.csv",
    "gpu-processes-n1.csv",
    "processes-n1.txt",
    "devices-n1.txt",
    "memory-n1.txt",
    "stack-n1.txt",
    "log.txt",
)
TEXT = st.lists(
    st.one_of(st.sampled_from(PIECES), st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=30)),
    max_size=30,
).map(lambda lines: "".join(f"{line}\n" for line in lines))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), TEXT), st.sampled_from(["rl", "sft", "datagen", "eval", "other"]))
def test_whatever_stands_in_the_folder_the_gate_scores_it_and_its_quotes_stand(texts, bucket):
    judged(some_case(texts, bucket=bucket, silent_for=HOURS))
