"""Gate A: does the work go on?"""

from __future__ import annotations

from datetime import timedelta

from supervisor import gates
from supervisor.gates import liveness
from supervisor.model.facts import LogFacts
from supervisor.model.findings import Quote
from supervisor.model.job import JobState
from supervisor.model.logs import LogStat, LogState
from supervisor.model.probe import Cause, Score
from tests.gates.cases import LOG_PATH, Failed, assert_quotes_stand, some_case, some_exhibit
from tests.some import NOON

STEPS = """\
2026-07-01 11:10:00 INFO trainer: Started: 'step'
{'loss': 0.5, 'grad_norm': 0.2, 'learning_rate': 1e-05, 'epoch': 0.1}
{'loss': 0.4, 'grad_norm': 0.2, 'learning_rate': 1e-05, 'epoch': 0.2}
"""


def test_a_job_whose_newest_progress_is_recent_passes_with_its_state_line_and_that_progress():
    """PROBE-2: A needs the state line and the newest line of progress."""
    case = some_case({"log.txt": STEPS}, bucket="sft", silent_for=timedelta(minutes=3))

    score = liveness.judge(case)

    assert score.result is Score.PASS
    assert [(quote.file, quote.line) for quote in score.quotes] == [("record.txt", 1), ("log.txt", 3)]
    assert "3 min old" in score.reason
    assert_quotes_stand(case, score.quotes)


def test_without_its_record_or_its_log_it_is_an_error_that_names_the_command_and_its_output():
    """PROBE-3."""
    no_record = some_case({"record.txt": Failed("slurm_load_jobs error: Socket timed out"), "log.txt": STEPS})
    no_log = some_case({"log.txt": Failed("cat: /home/alice/out.log: Permission denied")})

    for case, output in ((no_record, "Socket timed out"), (no_log, "Permission denied")):
        score = liveness.judge(case)
        assert score.result is Score.ERROR
        assert score.missing is not None
        assert output in score.missing.output


def test_silence_beyond_its_allowance_and_below_a_hang_is_a_soft_failure_with_what_to_watch():
    """LIVE-2, PROBE-7: the allowance of supervised training is 15 min, a hang is called from 30 min."""
    case = some_case({"log.txt": STEPS}, bucket="sft", silent_for=timedelta(minutes=20))

    score = liveness.judge(case)

    assert (score.result, score.hard) == (Score.FAIL, False)
    assert "progress" in score.watch
    assert_quotes_stand(case, score.quotes)


def test_gates_are_judged_in_the_order_of_their_letters():
    scores = gates.judge(some_case({"log.txt": STEPS}, bucket="sft"))

    assert [score.gate for score in scores] == sorted(score.gate for score in scores)


# -- what progress is --------------------------------------------------------------------------------------------------

ENTRY = "\x1b[36m(skyrl_entrypoint pid=4100)\x1b[0m "
TRAINED = (
    ENTRY
    + "2026-07-01 {at} | INFO     | skyrl_train.trainer:_log_metrics_stdout:1965 - WANDB_MIRROR kind=train step={step} "
    'metrics={{"policy/policy_loss": -0.004, "reward/avg_raw_reward": 0.6, "trainer/global_step": {step}}}\n'
)
ENGINE = (
    "(AsyncVLLMInferenceEngine pid=5000) INFO 07-01 {at} [loggers.py:123] Engine 000: Avg prompt throughput: 12.0 tokens/s, "
    "Avg generation throughput: {tps} tokens/s, Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 3.2%\n"
)
GENERATING = ENTRY + "2026-07-01 {at} | INFO     | skyrl_train.utils:__enter__:50 - Started: 'generate'\n"


def rl_log(*more: str) -> str:
    return TRAINED.format(at="10:40:00.000", step=11) + TRAINED.format(at="10:47:00.000", step=12) + "".join(more)


def test_a_step_beyond_that_of_the_last_look_is_fresh_progress():
    case = some_case({"log.txt": rl_log()}, silent_for=timedelta(hours=3), step=11)

    score = liveness.judge(case)

    assert score.result is Score.PASS
    assert "progressed since the last look" in score.reason


def test_progress_is_no_younger_than_the_newest_output_however_late_it_was_first_read():
    """LIVE-2: a supervisor that starts beside a dead run sees its steps for the first time."""
    facts = LogFacts(
        stat=LogStat(LOG_PATH, LogState.READ, size=10**9, modified_at=NOON - timedelta(minutes=50)),
        last_output_at=NOON - timedelta(minutes=50),
        progress_at=NOON - timedelta(minutes=2),
        step=12,
        speaks_steps=True,
    )

    score = liveness.judge(some_case({"log.txt": rl_log()}, log=facts))

    assert (score.result, score.facts["silent_s"]) == (Score.FAIL, 3000)


def test_a_counter_that_stands_by_its_own_clock_is_old_however_late_it_was_first_read():
    """LIVE-3: the same N with growing elapsed time."""
    frames = "".join(
        f"Generation Buffer Progress:  19%|█▉        | 12/64 [{minutes:02d}:00<1:00:00, 9.00s/it]\n"
        for minutes in (10, 30, 55)
    )
    case = some_case({"log.txt": rl_log() + frames}, silent_for=timedelta(minutes=2), step=12)

    score = liveness.judge(case)

    assert score.result is Score.FAIL
    assert "its counter stands at 12/64" in score.reason
    assert_quotes_stand(case, score.quotes)


def test_a_later_step_at_the_end_of_a_log_without_its_beginning_leaves_its_age_unsure():
    """What a bar counts may be mistaken there: neither fresh nor a hang."""
    exhibit = some_exhibit("log.txt", rl_log(), cut=1000)
    case = some_case({"log.txt": rl_log()}, exhibits=[exhibit], silent_for=timedelta(hours=3), step=11)

    score = liveness.judge(case)

    assert (score.result, score.hard) == (Score.FAIL, False)
    assert "a later step than was known" in score.reason


def test_progress_written_beyond_the_size_of_the_last_look_is_fresh():
    """Timers and counters bear no step."""
    log = rl_log()
    stale = some_case({"log.txt": log}, silent_for=timedelta(minutes=59), looked_size=len(log))
    fresh = some_case({"log.txt": log}, silent_for=timedelta(minutes=59), looked_size=len(log.splitlines()[0]))

    assert liveness.judge(stale).result is Score.FAIL
    assert liveness.judge(fresh).result is Score.PASS


def test_engines_that_go_on_printing_are_no_progress():
    """LIVE-4: the trainer's progress decides; by the log's own clock it stands, whatever was new since the last look."""
    beats = "".join(ENGINE.format(at=f"11:{minute:02d}:00", tps="0.0", running=0) for minute in range(0, 45, 5))
    case = some_case({"log.txt": rl_log(beats)}, silent_for=timedelta(minutes=59), step=12)

    score = liveness.judge(case)

    assert (score.result, score.hard) == (Score.FAIL, False)
    assert "engines go on printing" in score.reason
    assert_quotes_stand(case, score.quotes)


def test_a_log_without_a_known_program_progresses_by_its_output():
    log = "epoch one\nepoch two\n"
    about = {"speaks": False, "bucket": "other", "silent_for": timedelta(minutes=20)}

    assert liveness.judge(some_case({"log.txt": log}, **about, looked_size=len(log))).result is Score.FAIL
    assert liveness.judge(some_case({"log.txt": log}, **about, looked_size=5)).result is Score.PASS


def test_a_log_that_was_unread_at_the_last_look_says_how_old_progress_is_only_at_most():
    """FIND-4: a failed read is no silence."""
    facts = LogFacts(
        stat=LogStat("/home/alice/out.log", LogState.UNREAD, reason="timed out"),
        progress_at=NOON - timedelta(hours=5),
        step=12,
        speaks_steps=True,
    )
    score = liveness.judge(some_case({"log.txt": rl_log()}, log=facts))

    assert (score.result, score.hard) == (Score.FAIL, False)
    assert "was not read at the last look" in score.reason


# -- bring-up ----------------------------------------------------------------------------------------------------------

LOADING = "Loading checkpoint shards:  40%|████      | 4/10 [01:00<01:30, 15.00s/it]\n"


def test_bring_up_is_patient_within_its_limit_and_not_beyond():
    """LIVE-6."""
    about = {"bucket": "sft", "silent_for": None}
    early = some_case({"log.txt": LOADING}, **about, started=timedelta(minutes=40))
    late = some_case({"log.txt": LOADING}, **about, started=timedelta(minutes=80))

    assert (liveness.judge(early).result, liveness.judge(early).early) == (Score.PASS, True)
    assert "no step yet" in liveness.judge(early).reason
    assert (liveness.judge(late).result, liveness.judge(late).hard) == (Score.FAIL, False)


def test_a_job_without_any_output_yet_is_in_bring_up():
    score = liveness.judge(some_case({"log.txt": ""}, silent_for=None, speaks=False, started=timedelta(minutes=5)))

    assert (score.result, len(score.quotes)) == (Score.PASS, 1)


def test_a_job_whose_start_and_progress_nobody_knows_is_an_error():
    score = liveness.judge(some_case({"log.txt": LOADING}, silent_for=None, seen={"started_at": None}))

    assert score.result is Score.ERROR


def test_a_job_that_waits_is_not_probed():
    waiting = "JobId=42 JobName=x UserId=alice(1000) JobState=PENDING Reason=Resources\n"

    score = liveness.judge(some_case({"record.txt": waiting, "log.txt": ""}))

    assert score.result is Score.ERROR
    assert "does not run" in score.reason
    assert score.fix == "Probe it once it runs."


def test_a_job_that_the_newest_reading_shows_ended_is_an_error_whatever_its_older_record_says():
    score = liveness.judge(some_case({"log.txt": STEPS}, seen={"state": JobState.FAILED, "scheduler_state": "FAILED"}))

    assert score.result is Score.ERROR
    assert "the newest reading says FAILED" in score.reason


def test_a_fault_after_the_newest_progress_is_told_while_its_silence_is_still_allowed():
    """FIND-6."""
    fatal = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    cause = Cause(
        category="gpu-oom",
        confidence="high",
        fingerprint="f",
        quotes=(Quote("log.txt", 4, fatal),),
        action="Shrink the batch.",
        transience="deterministic",
    )
    case = some_case({"log.txt": f"{STEPS}{fatal}\n"}, bucket="sft", causes={"log.txt": cause})

    score = liveness.judge(case)

    assert (score.result, score.confidence) == (Score.PASS, "medium")
    assert "Its log shows gpu-oom after that." in score.reason
    assert score.quotes[-1].text == fatal


def test_a_suspended_job_is_silent_for_that_reason():
    about = {
        "bucket": "sft",
        "silent_for": timedelta(hours=5),
        "seen": {"state": JobState.SUSPENDED, "scheduler_state": "stopped"},
    }

    score = liveness.judge(some_case({"log.txt": STEPS}, **about))

    assert (score.result, score.hard, "It is suspended." in score.reason) == (Score.FAIL, False, True)
