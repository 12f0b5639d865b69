"""Where a job leaves its trials: what its setting, log, command line and work directory say of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.dialects import follow, summarise
from supervisor.dialects.places import absolute, place_of, told_by

HOME = "/home/alice"


@pytest.mark.parametrize(
    ("command", "where", "of_jobs"),
    [
        ("harbor run -d bench --jobs-dir /scratch/jobs --job-name j1 -m x", "/scratch/jobs/j1", False),
        ("harbor jobs start -o /scratch/jobs --job-name=j1", "/scratch/jobs/j1", False),
        ("python -m eval.local.run_eval --jobs-dir out --job_name j1", "/home/alice/out/j1", False),
        ("/opt/bin/harbor run --jobs-dir /scratch/jobs", "/scratch/jobs", True),
        ("harbor run -d bench", "/home/alice/jobs", True),
        ("python main.py ++terminal_bench_config.trials_dir=s3://traces/run-7/", "s3://traces/run-7", False),
        ("python main.py +a.trials_dir='/scratch/my trials'", "/scratch/my trials", False),
        ("python gen.py --trials-dir ~/t", "~/t", False),
        ("python train.py trainer.ckpt_path=/scratch/run-7/checkpoints", "/scratch/run-7/trace_jobs", False),
    ],
)
def test_the_command_line_names_the_place(command: str, where: str, of_jobs: bool) -> None:
    place = place_of(command, HOME)

    assert place is not None
    assert (place.where, place.of_jobs) == (where, of_jobs)


@pytest.mark.parametrize(
    "command",
    [
        "bash run.sh",
        "python gen.py --trials-dir $OUT/t",
        "python gen.py --trials-dir --resume",
        "harbor run -c config.yaml",
        "python train.py trials_dir=null",
        "gcc -o out main.c",
        "",
    ],
)
def test_what_names_no_place_gives_none(command: str) -> None:
    """A word that only a shell can fill in, or a file that nobody here has read, names nothing."""
    assert place_of(command, HOME) is None


def test_a_relative_place_needs_the_work_directory() -> None:
    assert place_of("harbor run --jobs-dir jobs --job-name j", None) is None


def test_likely_places_are_told_from_stated_ones() -> None:
    """FIND-4: the absence of a place that nobody named means nothing."""
    stated, default = place_of("harbor run --jobs-dir /j", HOME), place_of("harbor run", HOME)
    beside = place_of("python train.py ckpt_path=/scratch/r/ckpt", HOME)

    assert stated is not None and stated.sure
    assert default is not None and not default.sure
    assert beside is not None and not beside.sure


def test_the_setting_goes_before_the_log_and_the_log_before_the_command() -> None:
    command, told = "harbor run --jobs-dir /a --job-name j", {"trials": "/b"}

    assert place_of(command, HOME, told, "s3://c/d/").where == "s3://c/d"  # type: ignore[union-attr]
    assert place_of(command, HOME, told).where == "/b"  # type: ignore[union-attr]
    assert place_of(command, HOME, {"jobs": "$X"}).where == "/a/j"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("Results written to jobs/j1/result.json", ("trials", "jobs/j1")),
        ("+ harbor run -d bench --jobs-dir /scratch/jobs --job-name j1", ("trials", "/scratch/jobs/j1")),
        ('    "trials_dir": "/scratch/jobs/j1",', ("trials", "/scratch/jobs/j1")),
        ("  trials_dir: s3://traces/run-7", ("trials", "s3://traces/run-7")),
        ("{'jobs_dir': '/scratch/jobs', 'job_name': None}", ("jobs", "/scratch/jobs")),
        ("jobs_dir=$OUT", None),
        ("wrote the trials directory", None),
        ("Results written to out.txt", None),
    ],
)
def test_a_log_line_names_the_place(line: str, told: tuple[str, str] | None) -> None:
    assert told_by(line) == told


def test_the_place_is_remembered_with_the_run_and_the_last_one_counts() -> None:
    """Contract: a job's own files are found from the banners in its log."""
    log = b"trials_dir: /scratch/a\n5/300 Mean: 0.500 \xe2\x94\x81 0:10:00 0:20:00\ntrials_dir: /scratch/b\n"
    state, _ = follow(None, log, 0)
    summary = summarise(state, "eval")

    assert summary.places == {"trials": "/scratch/b"}
    assert summary.progress.step == 5


@given(st.text(max_size=200), st.text(max_size=40))
def test_no_words_lead_to_a_place_that_is_no_path(command: str, workdir: str) -> None:
    place = place_of(command, workdir, {"trials": command})

    if place is not None:
        assert place.where.startswith(("/", "~/")) or "://" in place.where
        assert "\0" not in place.where and "\n" not in place.where


def test_a_file_address_is_a_path() -> None:
    assert absolute("file:///scratch/j1", None) == "/scratch/j1"
