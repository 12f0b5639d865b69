"""When gate A fails hard: processes that positively stand still, stacks taken while they lived, and nothing that explains it.

The samples are of two real ranks of one program: `deadlock`, each in a collective that the other never joins, and `late`, one
that waits in a barrier for one that computes.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from supervisor.gates import liveness, stacks
from supervisor.model.findings import Quote
from supervisor.model.job import JobState
from supervisor.model.probe import Case, Cause, EarlierProbe, GateScore, Mark, Ruling, Score
from tests.gates.cases import Failed, assert_quotes_stand, some_case
from tests.gates.test_liveness import ENGINE, GENERATING, rl_log
from tests.some import NOON

SAMPLES = Path(__file__).parent / "samples"
STEPS = """\
{'loss': 0.5, 'grad_norm': 0.2, 'learning_rate': 1e-05, 'epoch': 0.1}
{'loss': 0.4, 'grad_norm': 0.2, 'learning_rate': 1e-05, 'epoch': 0.2}
"""
WATCHDOG = (
    "[rank3]:[E803 11:30:00.123456789 ProcessGroupNCCL.cpp:683] [PG ID 0 PG GUID 0(default_pg) Rank 3] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=191, NumelOut=1528, Timeout(ms)=600000) ran for 600059 "
    "milliseconds before timing out."
)
ABORT = (
    "[rank3]:[E803 11:30:00.123556789 ProcessGroupNCCL.cpp:744] [PG ID 0 PG GUID 0(default_pg) Rank 3] To avoid data inconsistency, "
    "we are taking the entire process down."
)
LONG = timedelta(minutes=70)


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.txt").read_text()


def texts(kind: str = "deadlock", stack: str | None = "stack", **more: str) -> dict[str, str]:
    found = {"log.txt": STEPS, "processes-n1.txt": sample(f"processes-{kind}")}
    if stack is not None:
        found["stack-n1.txt"] = sample(f"{stack}-{kind}")
    return found | more


def judged(files: dict[str, str], **about: Any) -> GateScore:
    case = some_case(files, **({"bucket": "sft", "silent_for": LONG} | about))
    score = liveness.judge(case)
    assert_quotes_stand(case, score.quotes)
    return score


def test_ranks_that_all_wait_in_collectives_are_a_wedge_with_cause_fix_and_their_stacks_quoted():
    """LIVE-5, PROBE-5."""
    score = judged(texts())

    assert (score.result, score.hard, score.wedge, score.cause) == (Score.FAIL, True, True, "silent-hang")
    assert score.confidence == "high"
    stacks = [quote.text.strip() for quote in score.quotes if quote.file == "stack-n1.txt"]
    assert stacks[0].startswith("barrier (torch/distributed/distributed_c10d.py")
    assert stacks[1].startswith("all_reduce (torch/distributed/distributed_c10d.py")
    assert "different collectives, barrier" in score.fix


def test_idle_processes_with_the_kernels_view_alone_are_a_wedge_of_less_confidence():
    score = judged(texts(stack="kernel-stack"))

    assert (score.hard, score.wedge, score.confidence) == (True, True, "medium")


def test_processes_that_only_rest_are_a_wedge_of_less_confidence_however_well_their_stacks_are_named():
    """They may have a reason that no stack shows: a person decides, and no standing rule that asks for high confidence."""
    score = judged(texts() | {"stack-n1.txt": stacked("sleep (time.py:1)")})

    assert (score.hard, score.confidence) == (True, "medium")


def test_one_rank_that_computes_keeps_the_others_waiting_and_nothing_is_proven():
    """PROBE-7: a slow rank is no hang; the flip signal is said."""
    score = judged(texts("late"))

    assert (score.result, score.hard) == (Score.FAIL, False)
    assert "1 busy" in score.reason
    assert "Process 3205 on n1, now busy in <module> (train.py:14), in a wait for others" in score.watch


def test_busy_processes_without_named_functions_prove_nothing():
    """A rank that spins in a collective and one that computes look alike to the kernel."""
    score = judged(texts("late", stack="kernel-stack"))

    assert (score.result, score.hard) == (Score.FAIL, False)


def test_without_a_stack_dump_a_wedge_is_an_error_that_names_the_failed_command():
    """PROBE-5."""
    score = judged(
        texts(stack=None, **{"stack-n1.txt": Failed("py-spy: Permission Denied: Try running again with sudo")})
    )

    assert score.result is Score.ERROR
    assert score.missing is not None
    assert (score.missing.command, "Permission Denied" in score.missing.output) == ("capture stack-n1.txt", True)


def test_without_its_processes_long_silence_is_an_error():
    """PROBE-2."""
    failure = "srun: error: Unable to create step for job 42: Requested nodes are busy"
    score = judged({"log.txt": STEPS, "processes-n1.txt": Failed(failure), "stack-n1.txt": sample("stack-deadlock")})

    assert score.result is Score.ERROR
    assert score.missing is not None
    assert score.missing.output == failure


def test_a_node_that_did_not_answer_may_hold_the_rank_that_works():
    score = judged(texts(**{"processes-n2.txt": Failed("ssh: connect to host n2 port 22: Connection timed out")}))

    assert score.result is Score.ERROR
    assert score.missing is not None
    assert score.missing.command == "capture processes-n2.txt"


def test_a_wedge_seen_on_some_of_its_nodes_is_of_less_confidence():
    score = judged(texts(), seen={"nodes": ("n1", "n2"), "node_count": 2})

    assert (score.hard, score.confidence) == (True, "medium")
    assert "on 1 of 2 nodes" in score.reason


def test_below_twice_its_allowance_nothing_is_called_a_hang_whatever_its_processes_do():
    score = judged(texts(), silent_for=timedelta(minutes=29))

    assert (score.result, score.hard) == (Score.FAIL, False)


def test_processes_that_wait_for_a_disk_are_no_hang():
    waits = sample("processes-deadlock").replace("Ssl ", "Dsl ").replace("futex_do_wait", "cl_sync_io_wait")
    stack = sample("kernel-stack-deadlock").replace(" S futex_do_wait", " D cl_sync_io_wait")

    score = judged({"log.txt": STEPS, "processes-n1.txt": waits, "stack-n1.txt": stack})

    assert (score.result, score.hard) == (Score.FAIL, False)
    assert "disk" in score.reason


def test_processes_that_a_signal_stopped_are_no_hang():
    stopped = sample("processes-deadlock").replace("Ssl ", "Tsl ")

    score = judged(texts() | {"processes-n1.txt": stopped})

    assert (score.hard, "stopped" in score.reason) == (False, True)


def test_dead_ranks_beside_one_that_waits_are_a_hang():
    dead = "\n".join(
        f"{line.replace('Ssl ', 'Z   ').partition('/opt')[0]}[python] <defunct>" if line.startswith("2610 ") else line
        for line in sample("processes-deadlock").splitlines()
    )

    score = judged(texts() | {"processes-n1.txt": dead + "\n"})

    assert (score.hard, "1 dead" in score.reason) == (True, True)
    assert "Process 2610 on n1 is dead" in score.fix


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ("INFO Saving model checkpoint to /data/ckpt/checkpoint-2", "checkpoint"),
        ("***** Running Evaluation *****", "evaluation"),
        ("Downloading shards: 40%", "transferred"),
    ],
)
def test_work_that_takes_long_without_a_word_explains_silence_while_processes_are_active(last: str, words: str):
    """LIVE-5."""
    score = judged(texts("late", **{"log.txt": STEPS + last + "\n"}))

    assert (score.result, score.hard) == (Score.FAIL, False)
    assert words in score.reason


def test_a_save_on_which_nobody_works_is_no_explanation():
    score = judged(texts(**{"log.txt": STEPS + "INFO Saving model checkpoint to /data/ckpt/checkpoint-2\n"}))

    assert score.hard


GPU = """\
# sample 1 at 1795999731
index, uuid, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], power.limit [W]
0, GPU-8f1b2c3d-0000-1111-2222-333344445555, NVIDIA H100 80GB HBM3, {use} %, 71234 MiB, 81559 MiB, 512.30 W, 700.00 W
"""


def test_a_device_at_work_keeps_sleeping_processes_from_being_called_hung():
    """PROBE-7: it computes, or it spins in a collective that no stack names."""
    busy = judged(texts(stack="kernel-stack", **{"gpu-n1.csv": GPU.format(use=97)}))
    quiet = judged(texts(stack="kernel-stack", **{"gpu-n1.csv": GPU.format(use=0)}))

    assert (busy.hard, "a device is at work" in busy.reason) == (False, True)
    assert quiet.hard


def test_a_device_at_work_does_not_excuse_ranks_whose_stacks_wait_for_each_other():
    assert judged(texts(**{"gpu-n1.csv": GPU.format(use=100)})).hard


# -- rest that proves nothing -------------------------------------------------------------------------------------------


def test_a_program_that_counts_no_steps_may_rest_by_nature():
    """A notebook, a server: silent and idle all day."""
    files = texts(stack="kernel-stack", **{"log.txt": "serving on port 8000\n"})
    about = {"bucket": "other", "speaks": False}

    server = judged(files, **about)
    trainer = judged(files, **(about | {"bucket": "sft"}))

    assert (server.hard, "does not prove a hang" in server.reason) == (False, True)
    assert trainer.hard


def test_what_waits_for_trials_rests_by_nature_unless_its_engine_says_that_nobody_asks_it():
    """PROBE-10, EVAL-2: long episodes, or a harness that stopped asking."""
    trial = "2026-07-01 08:00:00 INFO Trial a__1 finished with reward 1.0\n"
    unasked = ENGINE.format(at="11:59:00", tps="0.0", running=0)

    waits = judged(texts(stack="kernel-stack", **{"log.txt": trial}), bucket="eval", silent_for=timedelta(hours=4))
    hangs = judged(
        texts(stack="kernel-stack", **{"log.txt": trial + unasked}), bucket="eval", silent_for=timedelta(hours=4)
    )

    assert (waits.result, waits.hard) == (Score.FAIL, False)
    assert hangs.hard


def stacked(frame: str) -> str:
    """Both ranks stand in one frame."""
    text = sample("stack-deadlock")
    for known in (
        "barrier (torch/distributed/distributed_c10d.py:6371)",
        "all_reduce (torch/distributed/distributed_c10d.py:3913)",
    ):
        text = text.replace(known, frame)
    return text.replace("    _exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)\n", "")


def test_an_answer_that_does_not_come_over_the_network_is_no_hang_until_two_probes_agree():
    """A download of a huge model, a request to a busy server."""
    files = texts() | {"stack-n1.txt": stacked("urlopen (urllib3/connectionpool.py:789)")}
    alone = some_case(files, bucket="sft", silent_for=LONG)
    before = EarlierProbe(
        taken_at=NOON - timedelta(minutes=15),
        ruling=Ruling.NO_KILL,
        mark=Mark(at=NOON - timedelta(minutes=15)),
        stack_digest=stacks.digest(stacks.of(alone)),
    )

    once, twice = liveness.judge(alone), liveness.judge(some_case(files, bucket="sft", silent_for=LONG, before=before))

    assert (once.hard, "over the network" in once.reason) == (False, True)
    assert twice.hard


def test_data_workers_at_work_explain_ranks_that_wait():
    """One rank prepares the data in many processes, the others wait at a barrier."""
    worker = "2700  2608  2608 R 1 {cpu} 200 90000 - /opt/venv/bin/python -u train.py deadlock\n"
    first, _, second = sample("processes-deadlock").partition("# sample 2")
    table = first + worker.format(cpu="100.00") + "# sample 2" + second + worker.format(cpu="104.00")

    score = judged(texts() | {"processes-n1.txt": table})

    assert (score.hard, "data workers are at work" in score.reason) == (False, True)


TREE = """\
# sample {number} at {at}
PID PPID PGID STAT NLWP CPUTIMES ETIMES RSS WCHAN COMMAND
6083 6073 6083 S 1 0.00 {age} 1600 do_wait /bin/sh /var/spool/slurmd/job00007/slurm_script
6085 6083 6083 S 1 0.02 {age} 10464 do_wait python3 parent.py
6125 6085 6083 S 1 0.00 {age} 8088 hrtimer_nanosleep /usr/bin/python3 -u child.py
"""
STACK_OF_A_TREE = """\
# process 6085 python3
# by gdb
Thread 1 (Thread 0x7f5d2705a040 (LWP 6085) "python3"):
#0  0x00007f5d2712ebd3 in __GI___wait4 (pid=6125, options=0, usage=0x0) at ../sysdeps/unix/sysv/linux/wait4.c:30
#1  0x000000000052b9e0 in _PyEval_EvalFrameDefault ()
# process 6125 python3
# by gdb
Thread 1 (Thread 0x7f5bcf153040 (LWP 6125) "python3"):
#0  __GI___clock_nanosleep (clock_id=1, flags=1, rem=0x0) at ../sysdeps/unix/sysv/linux/clock_nanosleep.c:71
#1  0x00000000005d64b4 in ?? ()
"""


def tree(state: str = "S", log: str = STEPS) -> dict[str, str]:
    """A parent that waits for its child."""
    table = TREE.format(number=1, at=1796002867, age=89) + TREE.format(number=2, at=1796002871, age=93)
    return {"log.txt": log, "processes-n1.txt": table.replace(" S ", f" {state} "), "stack-n1.txt": STACK_OF_A_TREE}


def test_where_a_parent_waits_for_its_child_the_fix_begins_with_the_child():
    score = judged(tree())

    assert (score.hard, score.cause) == (True, "silent-hang")
    assert score.fix.startswith("Process 6125 on n1 is idle in __GI___clock_nanosleep")


def test_a_stopped_process_is_no_hang_and_is_told_how_to_go_on():
    """PROBE-7: somebody stopped it; no silence, however long, says more of it, so none is named as what would flip it."""
    score = judged(tree(state="T"))

    assert (score.result, score.hard, "stopped by a signal" in score.reason) == (Score.FAIL, False, True)
    assert "kill -CONT 6085" in score.watch
    assert "another" not in score.watch


def test_rest_that_is_the_works_nature_is_not_flipped_by_more_of_it():
    """PROBE-7: what is named as flipping a verdict must be able to."""
    score = judged(tree(log="listening on port 8000\n"), bucket="other", speaks=False)

    assert (score.result, score.hard) == (Score.FAIL, False)
    assert "a step in its log" in score.watch
    assert "another" not in score.watch


def test_a_program_that_told_of_epochs_and_losses_does_not_rest_by_nature_though_it_counts_no_steps():
    log = "".join(f"Epoch {number}: train loss 0.{number}\n" for number in range(1, 9))

    score = judged(tree(log=log), bucket="other")

    assert (score.hard, score.cause) == (True, "silent-hang")


def test_a_busy_process_is_not_flipped_by_more_silence():
    score = judged(texts("late"))

    assert score.watch.endswith("in a wait for others or idle at the next probe")


@pytest.mark.parametrize(
    ("about", "against"),
    [
        ({"files": texts("late")}, "process 3205 on n1 is busy"),
        ({"files": texts(), "silent_for": timedelta(minutes=29)}, "a hang is called from 30 min on"),
        ({"files": texts(), "seen": {"state": JobState.SUSPENDED}}, "it is suspended"),
        ({"files": tree(state="T")}, "process 6085 on n1 is stopped by a signal"),
        ({"files": texts("late", stack="kernel-stack")}, None),
    ],
)
def test_a_failure_in_doubt_says_what_was_seen_against_it_and_no_opinion_outweighs_that(about, against):
    """PROBE-5, PROBE-7: an external judge may raise only what nothing here speaks against."""
    score = judged(**about)

    assert (score.result, score.hard, score.facts.get("against")) == (Score.FAIL, False, against)


# -- the log's own words -----------------------------------------------------------------------------------------------


def a_cause(*lines: tuple[int, str], category: str = "nccl-timeout", file: str = "log.txt") -> dict[str, Cause]:
    quotes = tuple(Quote(file, line, text) for line, text in lines)
    return {
        file: Cause(
            category=category,
            confidence="high",
            fingerprint="f1",
            quotes=quotes,
            action="Find the late or missing rank before raising time-outs.",
            transience="unknown",
        )
    }


def test_a_watchdog_that_takes_its_process_down_names_the_cause_of_the_wedge():
    """LIVE-5, FIND-6."""
    log = f"{STEPS}{WATCHDOG}\n{ABORT}\n"

    score = judged(texts(**{"log.txt": log}), causes=a_cause((3, WATCHDOG[:400]), (4, ABORT)))

    assert (score.hard, score.cause, score.confidence) == (True, "nccl-timeout", "high")
    assert any("Watchdog caught" in quote.text for quote in score.quotes)


def test_a_lone_watchdog_line_beside_a_rank_that_computes_is_no_wedge():
    """LIVE-5: the real one aborts the process."""
    log = f"{STEPS}{WATCHDOG}\n"

    score = judged(texts("late", **{"log.txt": log}), causes=a_cause((3, WATCHDOG[:400])))

    assert (score.result, score.hard) == (Score.FAIL, False)


def test_a_fault_before_the_newest_progress_is_history():
    log = f"{WATCHDOG}\n{ABORT}\n{STEPS}"

    score = judged(texts(**{"log.txt": log}), causes=a_cause((1, WATCHDOG[:400]), (2, ABORT)))

    assert (score.hard, score.cause) == (True, "silent-hang")


def test_a_fault_far_above_the_end_of_a_log_without_progress_is_of_an_earlier_attempt():
    log = f"{WATCHDOG}\n{ABORT}\n" + "waiting for the others\n" * 500
    causes = a_cause((1, WATCHDOG[:400]), (2, ABORT))

    old = judged(texts(**{"log.txt": log}), causes=causes, speaks=False)
    new = judged(texts(**{"log.txt": f"{WATCHDOG}\n{ABORT}\n"}), causes=causes, speaks=False)

    assert (old.hard, old.cause) == (True, "silent-hang")
    assert (new.hard, new.cause) == (True, "nccl-timeout")


def test_a_timeout_that_is_longer_than_the_silence_is_not_of_this_silence():
    """LIVE-5: the quoted time-out agrees with the run's own clock."""
    log = f"{STEPS}{WATCHDOG.replace('600000', '7200000')}\n{ABORT}\n"
    causes = a_cause((3, log.split("\n")[2][:400]), (4, ABORT))

    score = judged(texts(**{"log.txt": log}), causes=causes)

    assert (score.hard, score.cause) == (True, "silent-hang")


def test_a_fault_in_a_workers_own_log_names_the_cause_where_the_jobs_log_is_silent():
    """FIND-6."""
    fatal = "EngineCore encountered a fatal error."
    files = texts(**{"session-n1-worker-1.out": fatal + "\n"})
    causes = a_cause((1, fatal), category="engine-dead", file="session-n1-worker-1.out")

    score = judged(files, causes=causes)

    assert (score.hard, score.cause) == (True, "engine-dead")
    assert any(quote.file == "session-n1-worker-1.out" for quote in score.quotes)


def test_a_trainer_that_waits_for_an_answer_of_a_dead_engine_hangs():
    fatal = "(EngineCore_DP0 pid=4242) ERROR 07-01 10:50:00 [core.py:710] EngineCore encountered a fatal error."
    files = texts(**{"log.txt": f"{STEPS}{fatal}\n"}) | {
        "stack-n1.txt": stacked("urlopen (urllib3/connectionpool.py:789)")
    }

    score = judged(files, causes=a_cause((3, fatal), category="engine-dead"))

    assert (score.hard, score.cause) == (True, "engine-dead")


# -- two probes --------------------------------------------------------------------------------------------------------


def spinning(before: EarlierProbe | None) -> Case:
    """Both ranks busy, one in a device wait: alone it proves nothing."""
    stack = sample("stack-late").replace(
        "    <module> (train.py:14)", "    synchronize (torch/cuda/__init__.py:1085)\n    <module> (train.py:14)"
    )
    files = texts("late") | {"stack-n1.txt": stack}
    return some_case(files, bucket="sft", silent_for=LONG, before=before)


def test_a_busy_rank_on_the_same_lines_at_two_probes_stands_still():
    alone = spinning(None)
    earlier = EarlierProbe(
        taken_at=NOON - timedelta(minutes=15),
        ruling=Ruling.NO_KILL,
        mark=Mark(at=NOON - timedelta(minutes=15)),
        stack_digest=stacks.digest(stacks.of(alone)),
    )

    assert not liveness.judge(alone).hard
    assert liveness.judge(spinning(earlier)).hard


# -- rollouts ----------------------------------------------------------------------------------------------------------

RL_LONG = timedelta(minutes=150)


def rl(log: str, kind: str = "late", output_ago: timedelta = timedelta(minutes=1), **more: str) -> GateScore:
    files = texts(kind, "kernel-stack", **{"log.txt": log}, **more)
    return judged(files, bucket="rl", silent_for=RL_LONG, output_ago=output_ago, step=12)


def test_engines_that_generate_explain_a_trainer_that_waits_for_rollouts():
    log = rl_log(GENERATING.format(at="10:48:00.000"), ENGINE.format(at="11:59:00", tps="812.0", running=64))

    idle = rl(log, "deadlock")

    assert (idle.result, idle.hard) == (Score.FAIL, False)
    assert "engines are generating for it" in idle.reason


def test_engines_that_generate_do_not_explain_ranks_that_wait_for_each_other():
    """LIVE-4: a hung policy beside live engines."""
    log = rl_log(GENERATING.format(at="10:48:00.000"), ENGINE.format(at="11:59:00", tps="812.0", running=64))

    stuck = judged(texts(**{"log.txt": log}), bucket="rl", silent_for=RL_LONG, step=12)

    assert (stuck.hard, stuck.cause) == (True, "silent-hang")


def test_engines_outside_the_rollout_stage_explain_nothing():
    training = GENERATING.replace("generate", "policy_train").format(at="10:48:00.000")
    log = rl_log(training, ENGINE.format(at="11:59:00", tps="812.0", running=64))

    assert rl(log, "deadlock").hard


def test_engines_whose_log_nobody_writes_any_more_explain_nothing():
    log = rl_log(GENERATING.format(at="10:48:00.000"), ENGINE.format(at="10:49:00", tps="812.0", running=64))

    assert rl(log, "deadlock", output_ago=RL_LONG).hard


def test_engines_that_were_last_heard_far_above_the_end_explain_nothing():
    beat = "INFO [shm_broadcast.py:501] No available shared memory broadcast block found in 60 seconds.\n"
    log = rl_log(
        GENERATING.format(at="10:48:00.000"), ENGINE.format(at="10:49:00", tps="812.0", running=64), beat * 300
    )

    assert rl(log, "deadlock").hard


def test_clocks_of_different_zones_in_one_log_make_nothing_old():
    """A trainer that stamps local time beside engines that stamp UTC."""
    log = rl_log(ENGINE.format(at="23:59:00", tps="812.0", running=64))

    score = liveness.judge(some_case({"log.txt": log}, silent_for=timedelta(minutes=5), step=12))

    assert score.result is Score.PASS


def test_trials_that_still_end_explain_a_trainer_that_waits():
    """PROBE-10: sandboxes work, however slowly."""
    trial = (
        '{"trial_name": "t1", "task_name": "a", "started_at": "2026-07-01T11:20:00Z", "finished_at": "2026-07-01T11:50:00Z", '
        '"verifier_result": {"rewards": {"reward": 1.0}}}'
    )
    old = trial.replace("11:50", "09:50").replace("11:20", "09:20")

    moving = rl(rl_log(), "deadlock", **{"trial-1.json": trial + "\n"})
    still = rl(rl_log(), "deadlock", **{"trial-1.json": old + "\n"})

    assert (moving.hard, "trials still begin and end" in moving.reason) == (False, True)
    assert still.hard


def test_a_checkpoint_of_late_shows_work_that_the_log_does_not():
    """RL-8: what is banked tells more than a line."""
    listing = "# dir /data/ckpt\n{at:.0f} 4096 directory global_step_13\n"
    late, old = NOON - timedelta(minutes=5), NOON - timedelta(hours=3)

    written = rl(rl_log(), "deadlock", **{"checkpoints.txt": listing.format(at=late.timestamp())})
    nothing = rl(rl_log(), "deadlock", **{"checkpoints.txt": listing.format(at=old.timestamp())})

    assert (written.hard, "a checkpoint was written 5 min ago" in written.reason) == (False, True)
    assert nothing.hard


def test_a_program_that_says_it_is_done_does_not_hang():
    log = STEPS + "{'train_runtime': 100.0, 'train_samples_per_second': 3.0, 'train_loss': 0.4, 'epoch': 1.0}\n"

    assert not judged(texts(**{"log.txt": log})).hard


def test_two_probes_close_together_are_one_look():
    """Within what it may be silent for, any slow step looks the same twice."""
    alone = spinning(None)
    moments_ago = EarlierProbe(
        taken_at=NOON - timedelta(seconds=40),
        ruling=Ruling.NO_KILL,
        mark=Mark(at=NOON - timedelta(seconds=40)),
        stack_digest=stacks.digest(stacks.of(alone)),
    )

    assert not liveness.judge(spinning(moments_ago)).hard
