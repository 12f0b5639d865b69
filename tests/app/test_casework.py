"""What gates are shown: earlier attempts as files of the folder, logs by their own clock, the job's own folders."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.app.casework import Ended, case_of, earlier_of, mark_of, papers_of, subject_of
from supervisor.app.evidence import Evidence
from supervisor.app.own_files import checkpoint_dirs, session_dirs
from supervisor.app.packs import prepare
from supervisor.dialects import follow, summarise
from supervisor.model.facts import Followed
from supervisor.model.job import Details, JobState
from supervisor.model.probe import Captured, Mark, Restarts, Role, Ruling, Verdict
from tests.some import BOOK, HOUR, NOON, some_held, some_log, some_observation

LIMITS = BOOK.limits_of("sft")
STEPS = b"".join(b"step %d/80 loss=0.5\n" % n for n in range(1, 16))
DIES = (
    b'Traceback (most recent call last):\n  File "/home/alice/train.py", line 3, in <module>\nValueError: bad batch\n'
)


@pytest.fixture(scope="module")
def prepared():
    return prepare()


@pytest.fixture
def case(tmp_path, prepared):
    def made(*captured, held=None, papers=None, facts=None):
        held = held or some_held(bucket="sft", log=some_log(HOUR, step=12))
        evidence = Evidence(tmp_path / "evidence")
        folder = evidence.write(evidence.name(held.key, "1-p1"), held.key, 1, NOON, captured, papers, facts)
        return case_of(folder, subject_of(held, LIMITS, None), LIMITS, prepared)

    return made


def a_log(data: bytes = STEPS, **more) -> Captured:
    return Captured(role=Role.LOG, command="tail", source="/home/alice/out.log", data=data, **more)


def test_a_log_read_now_says_nothing_of_when_it_was_written(case):
    """LIVE-1: that we took the evidence at noon makes no step one of noon."""
    run = case(a_log()).runs["log.log"]

    assert run.progress.step == 15
    assert run.last_step.seen_at is None
    assert run.last_step.said.line == 15


def test_a_cause_is_quoted_by_the_line_of_the_evidence_file(case):
    found = case(a_log(STEPS + DIES, cut=10**10, first_line=None)).causes["log.log"]

    assert found.category == "rank-crash"
    assert (found.quotes[0].file, found.quotes[0].line, found.quotes[0].text) == (
        "log.log",
        18,
        "ValueError: bad batch",
    )


def test_a_log_without_a_fault_has_no_cause(case):
    assert case(a_log()).causes == {}


@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff" * 3000, b"\n" * 50, b"x" * 300_000, b"{" * 5000, STEPS.replace(b"\n", b"\r")]
)
def test_any_bytes_of_a_log_make_a_case(case, data):
    made = case(a_log(data), Captured(role=Role.TRIALS, command="cat", data=data))

    assert made.trials == ()
    assert list(made.runs) == ["log.log"]


def test_how_far_it_was_is_the_later_of_what_is_held_and_what_its_evidence_shows(case):
    """KILL-2: what comes after that is progress since the verdict."""
    held = some_held(bucket="sft", log=some_log(HOUR, step=12))

    assert mark_of(held, case(a_log(cut=1000))).step == 15
    assert mark_of(held, case(a_log(cut=1000))).log_size in (1000 + len(STEPS), 100)
    further = replace(held, log=replace(held.log, step=20))
    assert mark_of(further, case(a_log(), held=further)).step == 20
    elsewhere = Captured(role=Role.LOG, command="tail", source="/home/alice/other.log", data=STEPS)
    assert mark_of(held, case(elsewhere)).step == 12, "another log's steps are not the job's"


# -- earlier attempts --------------------------------------------------------------------------------------------------


def ended(name: str, text: str = "ValueError: bad batch", **document) -> Ended:
    seen = some_observation(state=JobState.FAILED)
    told = {
        "category": "rank-crash", "confidence": "high", "fingerprint": "9c0f", "progress": {"step": 7},
        "cause": {"file": "/home/alice/out.log", "line": 812, "text": text},
    }  # fmt: skip
    return Ended(name=name, seen=seen, document=told | document)


def test_an_earlier_attempt_is_a_file_whose_own_line_is_quoted(case):
    """PROBE-1, PROBE-6: whatever is quoted stands in the folder."""
    papers, told = papers_of([ended("attempt 1"), Ended(name="attempt 2", seen=None, document=None)])
    past = case(a_log(), papers=papers, facts={"past": told}).past

    assert [(each.name, each.category, each.step) for each in past] == [
        ("attempt 1", "rank-crash", 7),
        ("attempt 2", None, None),
    ]
    assert (past[0].quote.file, past[0].quote.text) == ("earlier-1.txt", "ValueError: bad batch")
    assert past[1].quote is None


@given(st.text(max_size=300), st.text(max_size=40), st.one_of(st.none(), st.integers(), st.text(max_size=5)))
def test_any_diagnosis_makes_one_line_a_fact(text, category, step):
    papers, told = papers_of([ended("attempt 1", text, category=category, progress={"step": step})])

    lines = papers["earlier-1.txt"].split(b"\n")
    assert papers["earlier-1.txt"].endswith(b"\n")
    if text.strip():
        assert told[0]["line"] == len(lines) - 1
    else:
        assert told[0]["line"] is None


def test_only_the_newest_earlier_attempts_are_shown():
    papers, told = papers_of([ended(f"attempt {number}") for number in range(1, 21)])

    assert [each["name"] for each in told] == [f"attempt {number}" for number in range(13, 21)]
    assert len(papers) == 8


def test_an_earlier_probe_without_its_folder_says_nothing_of_its_stacks(tmp_path):
    held = some_held(bucket="sft")
    verdict = Verdict(
        job=held.key, name="x", attempt=1, taken_at=NOON, ruling=Ruling.NO_KILL, confidence="high", gates=(), restarts=Restarts(),
        cause="", reasoning="", next_steps=(), flip_signal="", evidence="gone", mark=Mark(at=NOON),
    )  # fmt: skip
    before = earlier_of(verdict, LIMITS, subject_of(held, LIMITS, None), tmp_path / "gone")

    assert (before.taken_at, before.stack_digest) == (NOON, None)


def test_a_tagged_ablation_is_only_observed():
    """RL-3"""
    limits = replace(LIMITS, exempt=("zclip",))
    seen = replace(some_observation(), name="rl__zclip_a")

    assert subject_of(some_held(observation=seen), limits, None).exempt
    assert not subject_of(some_held(), limits, None).exempt


# -- its own folders ---------------------------------------------------------------------------------------------------


def told_by(command: str, workdir: str = "/scratch/alice"):
    return some_held(details=Details(command=command, workdir=workdir))


@pytest.mark.parametrize(
    ("command", "folders"),
    [
        ("train trainer.ckpt_path=/scratch/a/ckpts", ("/scratch/a/ckpts",)),
        ("train --save-dir ckpts", ("/scratch/alice/ckpts",)),
        ("train --output_dir=/a --output_dir=/b", ("/b", "/a")),
        ("train --save $OUT", ()),
        ("train ckpt_path=s3://bucket/x", ()),
        ("train ckpt_path='/a/$(rm -rf x)'", ()),
        ("train 'unfinished ckpt_path=/a", ("/a",)),
        ("", ()),
    ],
)
def test_checkpoints_lie_where_the_command_says(command, folders):
    assert checkpoint_dirs(told_by(command), None) == folders


def test_checkpoints_lie_where_its_log_says_first():
    log = b"step 5/80 loss=0.5\nSaving model checkpoint to /scratch/alice/out/checkpoint-5\n"
    run = Followed("out.log", summarise(follow(None, log, 0)[0], "sft"))
    named = run.summary.last_checkpoint is not None

    folders = checkpoint_dirs(told_by("train --save-dir /other"), run)
    assert folders == (("/scratch/alice/out", "/other") if named else ("/other",))
    assert named


def test_session_logs_lie_where_its_command_says():
    assert session_dirs(told_by("ray start --temp-dir /scratch/ray")) == ("/scratch/ray/session_latest/logs",)
    assert session_dirs(told_by("train")) == ()
