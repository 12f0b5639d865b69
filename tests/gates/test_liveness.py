"""Gate A: does the work go on?"""

from __future__ import annotations

from datetime import timedelta

from supervisor import gates
from supervisor.gates import liveness
from supervisor.model.probe import Score
from tests.gates.cases import Failed, assert_quotes_stand, some_case

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
