"""Stories of deaths, told by their logs, with the small catalogue."""

import pytest

from supervisor.model.diagnosis import SchedulerRecord
from tests.diagnosis.conftest import Ask

STEPS = "".join(f"step {n}/80 loss 1.{n}\n" for n in range(1, 28))
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
WATCHDOG = (
    "[rank{r}]:[E1130 22:44:10.1 ProcessGroupNCCL.cpp:632] [Rank {r}] "
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)\n"
)
ELASTIC = (
    "E1129 18:44:18.6 143 torch/distributed/elastic/multiprocessing/api.py:1002] "
    "failed (exitcode: 1) local_rank: 3 (pid: 12) of binary: python\n"
)
TRACEBACK = 'Traceback (most recent call last):\n  File "/home/a.py", line 1, in main\n'


def test_the_fault_wins_over_the_summary_that_follows_it(ask: Ask):
    """FIND-7: the launcher's summary only echoes."""
    answer = ask(STEPS + OOM + ELASTIC)

    assert (answer.category, answer.confidence) == ("gpu-oom", "high")
    assert answer.cause is not None
    assert (answer.cause.line, answer.cause.rank) == (28, 3)
    assert [echo.signature for echo in answer.echoes] == ["elastic_exit"]
    assert answer.progress is not None
    assert (answer.progress.step, answer.progress.total) == (27, 80)


def test_the_first_fault_of_several_ranks_wins(ask: Ask):
    answer = ask(STEPS + OOM + "[rank1]: KeyError: 'x'\n" + WATCHDOG.format(r=1))

    assert answer.category == "gpu-oom"


def test_a_fault_before_a_timeout_explains_it(ask: Ask):
    answer = ask(
        STEPS + "[rank5]: RuntimeError: CUDA out of memory\n" + "".join(WATCHDOG.format(r=r) for r in (0, 1, 2))
    )

    assert answer.category == "gpu-oom"


def test_an_unnamed_exception_after_a_timeout_does_not_explain_it(ask: Ask):
    answer = ask(STEPS + WATCHDOG.format(r=1) + TRACEBACK + "ConnectionResetError: peer\n")

    assert answer.category == "nccl-timeout"


def test_a_later_line_of_an_exceptions_message_may_name_it(ask: Ask):
    answer = ask(STEPS + TRACEBACK + "DistBackendError: NCCL error\nLast error:\nthe device said CUDA out of memory\n")

    assert answer.category == "gpu-oom"


def test_ranks_that_did_not_report_a_timeout_are_named(ask: Ask):
    quiet = "".join(f"[rank{r}] step 3/80 loss 1.0\n" for r in range(4))
    answer = ask(quiet + "".join(WATCHDOG.format(r=r) for r in (0, 1, 3)))

    assert answer.absent_ranks == (2,)
    assert "Ranks 2" in answer.summary


def test_a_node_failure_explains_the_error_printed_just_before_it(ask: Ask):
    answer = ask(STEPS + OOM + "srun: error: Node failure on node-49\n")

    assert answer.category == "node-fail"
    assert answer.cause is not None
    assert answer.cause.node == "node-49"


def test_an_error_that_the_run_survives_is_no_fault(ask: Ask):
    answer = ask(STEPS + OOM + "".join(f"step {n}/80 loss 1.{n}\n" for n in range(28, 50)))

    assert answer.category == "none"
    assert [out.category for out in answer.ruled_out] == ["gpu-oom"]
    assert "progress advanced after it" in answer.ruled_out[0].why


def test_a_bar_redrawn_after_the_crash_is_no_progress(ask: Ask):
    answer = ask(STEPS + OOM + "step 27/80 loss 1.27\n")

    assert answer.category == "gpu-oom"


def test_one_step_that_other_ranks_still_finish_clears_nothing_when_echoes_follow(ask: Ask):
    answer = ask(STEPS + OOM + "step 28/80 loss 1.0\n" + ELASTIC)

    assert answer.category == "gpu-oom"


def test_a_fault_that_outlives_progress_stands(ask: Ask):
    answer = ask(
        STEPS + "{'loss': 0.0, 'grad_norm': nan}\n" * 2 + "".join(f"step {n}/80 loss 0.0\n" for n in range(28, 60))
    )

    assert answer.category == "nan-loss"


def test_one_bad_step_in_a_run_of_good_ones_is_no_fault(ask: Ask):
    answer = ask(
        STEPS + "{'loss': 0.0, 'grad_norm': nan}\n" + "".join(f"step {n}/80 loss 1.0\n" for n in range(28, 60))
    )

    assert answer.category == "none"


def test_symptoms_after_the_proper_end_are_teardown(ask: Ask):
    answer = ask(STEPS + "Training done!\n" + WATCHDOG.format(r=1))

    assert answer.category == "none"
    assert "proper end" in answer.ruled_out[0].why


def test_an_echo_alone_gives_its_last_resort_and_says_what_is_missing(ask: Ask):
    """FAIL-2"""
    answer = ask(ELASTIC)

    assert (answer.category, answer.confidence) == ("rank-crash", "low")
    assert answer.missing == ("the output of rank 3: its own error is not in these logs",)


def test_noise_alone_is_no_fault_and_is_counted(ask: Ask):
    """NOISE-1"""
    answer = ask("still waiting for block 60 seconds\n" * 5 + STEPS)

    assert answer.category == "none"
    assert [(noise.signature, noise.count, noise.first_line, noise.last_line) for noise in answer.noise] == [
        ("waiting", 5, 1, 5)
    ]


def test_noise_in_the_company_of_a_hang_is_its_echo(ask: Ask):
    """NOISE-1"""
    answer = ask("still waiting for block 60 seconds\n" * 2 + WATCHDOG.format(r=0))

    assert answer.category == "nccl-timeout"
    assert [echo.signature for echo in answer.echoes] == ["waiting", "waiting"]


def test_nothing_but_heartbeats_is_a_hang(ask: Ask):
    beats = "".join(f"2026-03-24 {7 + n // 2:02d}:{30 * (n % 2):02d}:52 GET /metrics 200\n" for n in range(6))
    answer = ask(STEPS + "2026-03-24 06:59:00 entering backward\n" + beats)

    assert answer.category == "silent-hang"
    assert answer.cause is not None
    assert answer.cause.text == b"2026-03-24 06:59:00 entering backward"
    assert "stacks" in answer.missing[0]


def test_a_log_that_ends_in_work_is_no_hang(ask: Ask):
    assert ask("2026-03-24 07:00:00 GET /metrics 200\n" * 40 + STEPS).category == "none"


def test_the_same_failure_in_another_run_has_the_same_fingerprint(ask: Ask):
    other = STEPS + OOM.replace("rank3", "rank61").replace("2 GiB", "7 GiB")

    assert ask(STEPS + OOM).fingerprint == ask(other).fingerprint
    assert ask(STEPS + OOM).fingerprint != ask(STEPS + "[rank1]: KeyError: 'x'\n").fingerprint


def test_causes_in_several_files_are_put_in_order_by_their_clocks(ask: Ask):
    answer = ask(
        "2026-03-24 10:00:05 RuntimeError: CUDA out of memory\n",
        worker_log="2026-03-24 10:00:01 ValueError: bad rows\n" + TRACEBACK + "KeyError: 3\n",
    )

    assert answer.cause is not None
    assert answer.cause.file == "worker.log"


@pytest.mark.parametrize(
    ("record", "category", "confidence"),
    [
        (SchedulerRecord(state="OUT_OF_MEMORY"), "host-oom", "high"),
        (SchedulerRecord(state="OOMKilled", exit_code=137), "host-oom", "high"),
        (SchedulerRecord(state="TIMEOUT"), "walltime", "high"),
        (SchedulerRecord(state="TIMEOUT", has_successor=True), "none", "high"),
        (SchedulerRecord(state="NODE_FAIL", nodes_lost=("n7",)), "node-fail", "high"),
        (SchedulerRecord(state="PREEMPTED"), "preempted", "high"),
        (SchedulerRecord(state="CANCELLED by 1000"), "cancelled", "medium"),
        (SchedulerRecord(state="FAILED", signal=11), "segfault", "medium"),
        (SchedulerRecord(state="FAILED", exit_code=137), "host-oom", "low"),
        (SchedulerRecord(state="COMPLETED", exit_code=0), "none", "high"),
    ],
)
def test_the_schedulers_record_answers_where_the_logs_are_silent(
    ask: Ask, record: SchedulerRecord, category: str, confidence: str
):
    answer = ask(STEPS, record)

    assert (answer.category, answer.confidence) == (category, confidence)


def test_an_exit_code_without_any_evidence_is_not_guessed_at(ask: Ask):
    """FAIL-2, FAIL-3"""
    answer = ask(STEPS, SchedulerRecord(state="FAILED", exit_code=1))

    assert answer.category == "none"
    assert answer.confidence == "low"
    assert "nothing in these logs says why" in answer.summary
    assert answer.missing


@pytest.mark.parametrize(
    ("record", "category"),
    [
        (SchedulerRecord(state="TIMEOUT"), "gpu-oom"),
        (SchedulerRecord(state="OUT_OF_MEMORY"), "gpu-oom"),
        (SchedulerRecord(state="NODE_FAIL"), "gpu-oom"),
        (SchedulerRecord(state="FAILED", exit_code=1), "gpu-oom"),
    ],
)
def test_a_named_fault_in_the_log_goes_before_the_schedulers_word(ask: Ask, record: SchedulerRecord, category: str):
    assert ask(STEPS + OOM, record).category == category


def test_a_lost_node_explains_a_mere_symptom(ask: Ask):
    answer = ask(STEPS + WATCHDOG.format(r=1), SchedulerRecord(state="NODE_FAIL", nodes_lost=("n7",)))

    assert answer.category == "node-fail"
    assert [echo.signature for echo in answer.echoes] == ["watchdog"]


def test_a_traceback_of_the_interpreters_own_end_is_no_fault_after_the_proper_end(ask_shipped: Ask):
    late = "Error in atexit._run_exitfuncs:\n" + TRACEBACK + "ReferenceGone: weakly-referenced object\n"

    assert ask_shipped(STEPS + "Training finished\n" + late).category == "none"
    assert ask_shipped(STEPS + late).category == "rank-crash"


def test_an_unknown_exception_as_context_of_a_chain_gives_way_to_a_named_cause(ask: Ask):
    """FIND-7: the named one later in the same chain is the cause."""
    joined = "\nDuring handling of the above exception, another exception occurred:\n\n"
    answer = ask(STEPS + TRACEBACK + "CacheMissed: 3\n" + joined + TRACEBACK + "RuntimeError: CUDA out of memory\n")

    assert answer.category == "gpu-oom"


PYTEST = """============================= test session starts ==============================
tests/test_accuracy.py F                                                 [100%]
=================================== FAILURES ===================================
    def test_accuracy():
>       assert score >= 0.62
E       assert 0.581 >= 0.62
tests/test_accuracy.py:12: AssertionError
=========================== short test summary info ============================
FAILED tests/test_accuracy.py::test_accuracy - assert 0.581 >= 0.62
"""


def test_a_tests_bound_speaks_where_the_program_is_the_test(ask_shipped: Ask):
    answer = ask_shipped(PYTEST + "============================== 1 failed in 812.44s ==============================\n")

    assert answer.category == "eval-assertion"
    assert answer.cause is not None
    assert answer.cause.text == b"E       assert 0.581 >= 0.62"


def test_a_tests_output_inside_a_rollout_is_not_the_programs_own(ask_shipped: Ask):
    """RL-6: what a rollout's tests print is scored, not suffered."""
    inside = PYTEST + "============================== 1 failed in 2.44s ==============================\n"

    assert ask_shipped(inside + "rollout 7 of 64 scored 0\n" * 80).category == "none"


def test_a_harmless_redraw_hides_no_fault_on_the_same_physical_line(ask: Ask):
    """NOISE-1"""
    answer = ask(STEPS + "still waiting for block 60 seconds\rRuntimeError: CUDA out of memory\n")

    assert answer.category == "gpu-oom"
    assert answer.cause is not None
    assert answer.cause.text == b"RuntimeError: CUDA out of memory"


CANCELLED = "slurmstepd: error: *** STEP 4711.0 ON node-4 CANCELLED AT 2026-07-04T{0} DUE to SIGNAL Terminated ***\n"


@pytest.mark.parametrize(
    ("last", "ended", "category"),
    [
        ("10:00:00", "13:17:00", "silent-hang"),
        ("10:00:00", "10:05:00", "cancelled"),
        ("10:00:00", "12:01:00", "cancelled"),  # as likely another time zone
    ],
)
def test_work_that_stood_still_until_somebody_ended_it_is_a_hang(
    ask_shipped: Ask, last: str, ended: str, category: str
):
    frozen = f"2026-07-04 {last},101 INFO gathering gradients of step 28\n"
    answer = ask_shipped("2026-07-04 09:59:00,000 INFO start\n" + STEPS + frozen + CANCELLED.format(ended))

    assert answer.category == category
    assert answer.cause is not None
    assert (answer.cause.text == frozen.strip().encode()) == (category == "silent-hang")


def test_a_healthy_log_that_is_merely_cut_off_is_no_hang(ask_shipped: Ask):
    """FAIL-2"""
    log = "".join(f"2026-07-04 10:{n:02d}:00,101 INFO step {n}/80 loss 1.{n}\n" for n in range(50))

    assert ask_shipped(log[: len(log) - 17]).category == "none"
