"""Gate C: do rollouts give something to learn from, or to measure?"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from supervisor.dialects.trials import read_job
from supervisor.gates import rollouts
from supervisor.model.probe import Case, GateScore, Score
from tests.gates.cases import Failed, assert_quotes_stand, some_case, some_exhibit
from tests.gates.some_trials import ENTRY, many, rl_log, trial, trials

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
REWARD = "reward/avg_raw_reward"
ZERO = [{REWARD: 0.0}] * 12
GOOD = [{REWARD: 0.2 + 0.01 * step, "generate/avg_num_tokens": 900.0, "timing/step": 118.0} for step in range(12)]
ALL_FAILED = (
    ENTRY
    + "2026-07-01 11:{minute}:30.000 | INFO     | skyrl_train.generators:run:90 - Batch generation complete: 0/64 successful, 64 failed instances\n"
)
PROGRESS = "{done}/300 Running trials... ━━━ 0:10:00 -:--:--\n"


def judged(case: Case) -> GateScore:
    score = rollouts.judge(case)
    assert_quotes_stand(case, score.quotes)
    return score


def agentic(texts: dict[str, str], **about: Any) -> GateScore:
    return judged(some_case(texts, bucket=about.pop("bucket", "rl"), flavor=about.pop("flavor", "agentic"), **about))


# -- a table of situations ---------------------------------------------------------------------------------------------

FAILING = trials(many(24, error="AddTestsDirError", reward=None, turns=None, tokens=None))
SITUATIONS: dict[str, tuple[str, dict[str, str], dict[str, Any], tuple[Score, bool]]] = {
    # bucket, files, what is said of the job, (score, hard)
    "rewards above 0": ("rl", trials(many(12)), {}, (Score.PASS, False)),
    "a low pass rate on a hard task": ("rl", trials([*many(23, reward=0.0), trial(90)]), {}, (Score.PASS, False)),
    "most agents run out of time": (
        "eval", trials([*many(22, error="AgentTimeoutError", reward=0.0), trial(90)]), {}, (Score.PASS, False),
    ),
    "all agents run out of time": ("eval", trials(many(24, error="AgentTimeoutError", reward=0.0)), {}, (Score.PASS, False)),
    "no reward yet over enough trials": ("rl", trials(many(24, reward=0.0)), {}, (Score.FAIL, False)),
    "no reward yet over few trials": ("rl", trials(many(6, reward=0.0)), {}, (Score.PASS, False)),
    "the sandbox is never built": ("rl", FAILING, {"started": HOUR}, (Score.FAIL, True)),
    "the sandbox is never built, seen late in a long run": ("rl", FAILING, {"started": 30 * HOUR}, (Score.FAIL, False)),
    "the sandbox is never built, of few trials": (
        "rl", trials(many(8, error="AddTestsDirError", reward=None)), {"started": HOUR}, (Score.FAIL, False),
    ),
    "the sandbox is not built for a moment": (
        "rl", trials(many(24, apart=timedelta(seconds=10), error="AddTestsDirError", reward=None)), {"started": HOUR}, (Score.FAIL, False),
    ),
    "all fail now and some passed before": (
        "datagen", trials([*many(24, error="AddTestsDirError", reward=None), trial(99, ago=HOUR)]), {"started": 2 * HOUR}, (Score.FAIL, False),
    ),
    "the model is out of reach": (
        "eval", trials(many(24, apart=4 * MINUTE, error="APIConnectionError", reward=None, turns=0, tokens=0)), {"started": 2 * HOUR},
        (Score.FAIL, True),
    ),
    "the model is out of reach while its engine may still load": (
        "eval", trials(many(24, error="APIConnectionError", reward=None, turns=0, tokens=0)), {"started": 40 * MINUTE}, (Score.FAIL, False),
    ),
    "credentials are refused in the first half hour": (
        "rl", trials(many(24, error="AuthenticationError", reward=None, turns=0, tokens=0)), {"started": 40 * MINUTE}, (Score.FAIL, False),
    ),
    "half of the trials fail by a fault": (
        "eval", trials([*many(12, error="VerifierTimeoutError", reward=None), *many(12, first=50)]), {}, (Score.FAIL, False),
    ),
    "one turn and no token": (
        "datagen", trials(many(24, apart=4 * MINUTE, reward=0.0, turns=1, tokens=0)), {"started": 2 * HOUR}, (Score.FAIL, True),
    ),
    "one turn and no token in the first half hour": (
        "datagen", trials(many(24, reward=0.0, turns=1, tokens=0)), {"started": 40 * MINUTE}, (Score.FAIL, False),
    ),
    "one turn with answers": ("datagen", trials(many(24, reward=0.0, turns=1, tokens=700)), {"started": HOUR}, (Score.FAIL, False)),
    "one turn by design": ("eval", trials(many(24, reward=1.0, turns=1, tokens=700)), {}, (Score.PASS, False)),
    "nothing finished at 15 min": (
        "datagen", {"log.txt": PROGRESS.format(done=0)}, {"started": timedelta(minutes=15)}, (Score.PASS, False),
    ),
    "nothing finished after two hours": ("eval", {"log.txt": PROGRESS.format(done=0)}, {"started": 2 * HOUR}, (Score.FAIL, False)),
    "the log tells of finished trials": (
        "datagen", {"log.txt": "142/300 Mean: 0.530 ━━━ 0:12:00 0:13:22\n"}, {}, (Score.PASS, False),
    ),
    "no trial and no word of any": ("datagen", {"log.txt": "hello\n"}, {"started": timedelta(minutes=5)}, (Score.ERROR, False)),
    "no reward in an RL log": ("rl", {"log.txt": "hello\n"}, {"started": timedelta(minutes=5)}, (Score.ERROR, False)),
    "no log and no trial": ("rl", {"log.txt": Failed("Permission denied")}, {}, (Score.ERROR, False)),
    "rewards in the log, trials unread": (
        "rl", {"log.txt": rl_log(GOOD), "trial-1.json": Failed("Permission denied")}, {}, (Score.PASS, False),
    ),
    "rewards of 0 in the log, trials unread": (
        "rl", {"log.txt": rl_log(ZERO), "trial-1.json": Failed("Permission denied")}, {}, (Score.ERROR, False),
    ),
    "batches that fail whole, with trials that say the same": (
        "rl",
        {"log.txt": rl_log(ZERO, more="".join(ALL_FAILED.format(minute=minute) for minute in range(50, 58))), **trials(many(6, reward=0.0))},
        {"started": HOUR},
        (Score.FAIL, True),
    ),
    "one batch that failed whole": (
        "rl", {"log.txt": rl_log(GOOD, more=ALL_FAILED.format(minute=55)), **trials(many(6))}, {}, (Score.PASS, False),
    ),
    "an ablation's failures": ("rl", FAILING, {"started": HOUR, "exempt": True}, (Score.FAIL, False)),
    "questions without trials": (
        "eval", {"log.txt": "Running loglikelihood requests:  24%|██▍       | 1200/5000 [02:11<06:55,  9.14it/s]\n"}, {}, (Score.PASS, False),
    ),
    "questions, and nothing tells of trials": (
        "eval",
        {
            "log.txt": "Running loglikelihood requests:  24%|██▍       | 1200/5000 [02:11<06:55,  9.14it/s]\n",
            "trial-1.json": Failed("nothing tells where its trials lie"),
        },
        {},
        (Score.PASS, False),
    ),
    "supervised training": ("sft", {"log.txt": "x\n"}, {}, (Score.NOT_APPLICABLE, False)),
    "anything else": ("other", {"log.txt": "x\n"}, {}, (Score.NOT_APPLICABLE, False)),
}  # fmt: skip


@pytest.mark.parametrize("name", SITUATIONS)
def test_situations_and_their_scores(name: str):
    """PROBE-10, PROBE-11, DATAGEN-2, EVAL-3, RL-6: what is hard and what is not."""
    bucket, texts, about, expected = SITUATIONS[name]

    score = judged(some_case(texts, bucket=bucket, flavor="agentic" if bucket == "rl" else None, **about))

    assert (score.result, score.hard) == expected, score.reason
    assert score.wedge is False
    assert score.result is not Score.FAIL or (score.watch and score.confidence)


@pytest.mark.parametrize("name", ["no reward yet over few trials", "nothing finished at 15 min"])
def test_what_passes_for_being_early_proves_no_setting(name: str):
    """RL-10: a probe that saw nothing earn is repeated."""
    bucket, texts, about, _ = SITUATIONS[name]

    assert judged(some_case(texts, bucket=bucket, flavor="agentic", **about)).early


def test_rewards_above_0_are_not_early():
    assert not agentic(trials(many(12))).early


# -- words and quotes --------------------------------------------------------------------------------------------------


def test_a_pass_quotes_a_reward_where_it_stands_in_a_file_that_was_opened():
    """PROBE-2."""
    score = agentic(trials(many(3)))

    assert score.quotes[0].file == "trial-000.json"
    assert score.quotes[0].text.strip() == '"reward": 1.0'
    assert "3 trials opened: 3 with a reward, 3 above 0; 12.0 turns on average." in score.reason


def test_a_result_on_one_line_is_quoted_from_its_reward_on():
    score = agentic({"trial-1.json": trial().replace("\n", "") + "\n"})

    assert score.quotes[0].text.startswith('"rewards"') or score.quotes[0].text.startswith('"reward"')
    assert len(score.quotes[0].text) <= 400


def test_a_sandbox_that_was_never_built_says_that_it_is_the_image_and_not_the_data():
    """PROBE-11."""
    score = agentic(FAILING, started=HOUR)

    assert score.cause == "sandbox-fail"
    assert "the image, not the data" in score.reason
    assert "pin it back" in score.fix
    assert score.quotes[0].text.strip() == '"exception_type": "AddTestsDirError",'


def test_an_agents_own_ends_are_named_and_called_no_fault():
    """RL-6: never a cause."""
    score = agentic(trials([*many(9, error="AgentTimeoutError", reward=0.0), trial(90)]))

    assert score.result is Score.PASS
    assert "scored and no fault: AgentTimeoutError 9" in score.reason
    assert "exceptions" not in score.facts


def test_a_spell_of_errors_that_is_over_is_told_and_fails_nothing():
    """PROBE-12: a time-clustered spike is transient."""
    spell = many(4, first=200, apart=timedelta(minutes=1), error="DaytonaAuthError", reward=None)
    spell = [trial(200 + n, ago=timedelta(minutes=70 + n), error="DaytonaAuthError", reward=None) for n in range(4)]

    score = agentic(trials([*many(60, apart=timedelta(minutes=2)), *spell]))

    assert score.result is Score.PASS
    assert "In one short spell, and not since: DaytonaAuthError 4." in score.reason


def test_the_duty_cycle_stands_among_the_facts():
    score = agentic(trials(many(5, llm_s=480)))

    assert score.facts["llm_share"] == 0.8
    assert score.facts["release_races"] == 0


def test_an_error_names_the_capture_that_failed():
    """PROBE-3."""
    score = agentic({"log.txt": "hello\n", "trial-1.json": Failed("ls: cannot open directory: Permission denied")})

    assert score.result is Score.ERROR
    assert score.missing is not None
    assert "Permission denied" in score.missing.output


def test_of_a_log_whose_beginning_was_left_out_nothing_is_said_of_the_whole_run():
    """What stood there may have been better: then nothing is hard."""
    name = "batches that fail whole, with trials that say the same"
    bucket, texts, about, _ = SITUATIONS[name]
    cut = some_exhibit("log.txt", texts["log.txt"], cut=8_000_000)

    score = judged(some_case(texts, bucket=bucket, flavor="agentic", exhibits=[cut], **about))

    assert (score.result, score.hard) == (Score.FAIL, False)


def test_results_that_harbor_itself_wrote_are_quoted_at_their_reward_or_their_exception():
    folder = Path(__file__).parent.parent / "dialects" / "samples" / "harbor"
    texts = {f"trial-{name}.json": (folder / f"{name}.json").read_text() for name in ("t1", "t2", "t3", "t4", "tboom")}

    score = agentic(texts)

    assert score.result is Score.PASS
    assert [quote.text.strip() for quote in score.quotes if quote.file == "trial-t1.json"] == ['"reward": 1.0']
    assert "5 trials opened" in score.reason
    for name in ("t1", "tboom"):
        alone = agentic({f"trial-{name}.json": texts[f"trial-{name}.json"]})
        assert any(word in alone.quotes[0].text for word in ('"reward": ', '"exception_type": '))


# -- the harness's own count -------------------------------------------------------------------------------------------

JOB = """{
  "n_total_trials": 300,
  "stats": {
    "n_completed_trials": %d,
    "n_errored_trials": %d
  }
}
"""


def counted(completed: int, errored: int, texts: dict[str, str], **about: Any) -> GateScore:
    """With a harness's ``result.json`` beside the trials."""
    text = JOB % (completed, errored)
    job = some_exhibit("trial-job.json", text)
    case = some_case(texts, bucket="datagen", exhibits=[job], **about)
    lines = {
        **{file: case.lines(file) for file in texts if not isinstance(texts[file], Failed)},
        "trial-job.json": text.splitlines(),
    }
    lines["record.txt"] = case.lines("record.txt")
    return judged(
        replace(case, lines=lambda file: lines[file], trial_jobs=(("trial-job.json", read_job(text.encode())),))
    )


def test_a_harness_that_counts_0_ended_says_so_in_a_quote():
    """PROBE-10: early, it passes, and proves nothing."""
    none = Failed("no trial has ended\n24 trials begun, 0 left out")

    score = counted(0, 0, {"log.txt": "hello\n", "trial-1.json": none}, started=15 * MINUTE)

    assert (score.result, score.early) == (Score.PASS, True)
    assert score.quotes[0].text.strip() == '"n_completed_trials": 0,'


def test_a_place_that_could_not_be_read_is_not_one_where_none_has_ended():
    """Not seen is never the same as not there."""
    log = ENTRY + "2026-07-01 11:58:30.000 | INFO     | skyrl_train.utils:__enter__:50 - Started: 'generate'\n"
    texts = {"log.txt": log, "trial-1.json": Failed("no trial has ended\n24 trials begun, 0 left out")}

    ended = judged(some_case(texts, bucket="datagen", started=15 * MINUTE))
    unread = judged(
        some_case({**texts, "trial-1.json": Failed("Permission denied")}, bucket="datagen", started=15 * MINUTE)
    )

    assert (ended.result, unread.result) == (Score.PASS, Score.ERROR)


def test_the_harness_tells_whether_a_fault_holds_over_the_whole_run():
    """Of 500 that ended the newest 24 are opened: what the others were decides."""
    whole, better = counted(500, 500, FAILING, started=30 * HOUR), counted(500, 24, FAILING, started=30 * HOUR)

    assert (whole.result, whole.hard) == (Score.FAIL, True)
    assert (better.result, better.hard) == (Score.FAIL, False)
    assert "the harness counts 500" not in whole.reason


# -- standard RL -------------------------------------------------------------------------------------------------------


def listing(*steps: int, marker: int | None = None) -> str:
    rows = "".join(f"17900{step:05d} 4096 directory global_step_{step}\n" for step in sorted(steps, key=str))
    mark = f"# marker /ckpt/latest_ckpt_global_step.txt\n{marker}\n" if marker is not None else ""
    return f"# dir /ckpt\n{rows}{mark}"


def standard(texts: dict[str, str], **about: Any) -> GateScore:
    return judged(some_case(texts, bucket="rl", flavor="standard", **about))


def test_standard_rl_is_scored_by_rewards_saves_timings_and_tokens():
    """RL-11: no trial is no error; RL-8: checkpoints count by number, up to the marker."""
    score = standard({"log.txt": rl_log(GOOD), "checkpoints.txt": listing(2, 4, 6, 8, 10, 12, marker=10)})

    assert (score.result, score.confidence) == (Score.PASS, "high")
    assert (
        "A step takes 118 s; answers have 900 tokens on average; banked: step 10 (a save of step 12 is under way or failed)."
        in score.reason
    )
    assert (score.facts["banked_step"], score.facts["response_length"]) == (10, 900.0)
    assert any("global_step_10" in quote.text for quote in score.quotes)


STANDARD: dict[str, tuple[dict[str, str], dict[str, Any], tuple[Score, bool]]] = {
    "rewards, no listing asked": ({"log.txt": rl_log(GOOD)}, {}, (Score.PASS, False)),
    "rewards, the listing failed": ({"log.txt": rl_log(GOOD), "checkpoints.txt": Failed("Permission denied")}, {}, (Score.PASS, False)),
    "no save yet": ({"log.txt": rl_log(GOOD), "checkpoints.txt": "# absent /ckpt\n"}, {}, (Score.PASS, False)),
    "saves that stopped": ({"log.txt": rl_log(GOOD, first=90), "checkpoints.txt": listing(10, 20, 30, 40)}, {}, (Score.FAIL, False)),
    "rewards, and nothing tells of trials": (
        {"log.txt": rl_log(GOOD), "trial-1.json": Failed("nothing tells where its trials lie")}, {}, (Score.PASS, False),
    ),
    "no reward over enough steps, and nothing tells of trials": (
        {"log.txt": rl_log(ZERO), "trial-1.json": Failed("nothing tells where its trials lie")}, {}, (Score.FAIL, False),
    ),
    "no reward over enough steps": ({"log.txt": rl_log(ZERO)}, {}, (Score.FAIL, False)),
    "no reward over few steps": ({"log.txt": rl_log(ZERO[:4])}, {}, (Score.PASS, False)),
    "the engine generates nothing": ({"log.txt": rl_log([{REWARD: 0.0, "generate/avg_num_tokens": 1.0}] * 12)}, {}, (Score.FAIL, True)),
    "short answers that earn": ({"log.txt": rl_log([{REWARD: 0.4, "generate/avg_num_tokens": 1.0}] * 12)}, {}, (Score.PASS, False)),
    "nothing generated in few steps": ({"log.txt": rl_log([{REWARD: 0.0, "generate/avg_num_tokens": 1.0}] * 5)}, {}, (Score.PASS, False)),
    "before the first step": ({"log.txt": ENTRY + "Loading checkpoint shards: 100%|██████████| 4/4\n"}, {"started": timedelta(minutes=5)}, (Score.ERROR, False)),
    "steps without a reward": ({"log.txt": rl_log([{"policy/policy_loss": 0.1}] * 12)}, {}, (Score.ERROR, False)),
    "an ablation without reward": (
        {"log.txt": rl_log([{REWARD: 0.0, "generate/avg_num_tokens": 1.0}] * 12)}, {"exempt": True}, (Score.FAIL, False),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STANDARD)
def test_situations_of_standard_rl(name: str):
    """RL-11, RL-14."""
    texts, about, expected = STANDARD[name]

    score = standard(texts, **about)

    assert (score.result, score.hard) == expected, score.reason


def test_a_reward_that_is_no_number_stands_among_the_facts_in_words():
    """Documents of verdicts are JSON, which knows no NaN."""
    score = standard({"log.txt": rl_log([{REWARD: 0.5}, {REWARD: float("nan")}])})

    assert score.facts["reward"] == "nan"
