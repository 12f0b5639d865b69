"""The five tables: what a row shows, what a narrow terminal loses, and what many jobs add up to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.buckets import BY_NAME, KINDS
from supervisor.reports.cells import number
from supervisor.reports.rollup import cell_of, chunks, copies, grids
from supervisor.reports.status import tables
from supervisor.reports.text import width
from supervisor.reports.trend import direction, sparkline
from tests.reports.rows import a_job
from tests.some import HOUR, MINUTE, NOON

RUN = {
    "metrics": {"reward": 0.619, "policy_loss": -0.004, "grad_norm": 0.006, "entropy": 0.412, "tis_log_ratio": 0.011},
    "eta_s": 28000.0,
}


def shown(*jobs: Any, wide: int | None = None, pipes: bool = False) -> str:
    return "\n".join(tables(jobs, NOON, unknown={}, wide=wide, colour=False, pipes=pipes, kinds=KINDS))


def a_run(**changes: Any) -> Any:
    values = {
        "metrics": json.dumps(RUN),
        "step": 15,
        "total": 80,
        "started_at": NOON - HOUR,
        "last_output_at": NOON,
        "log_state": "read",
    }
    return a_job(**(values | changes))


def pending(row: int, name: str, **changes: Any) -> Any:
    return a_job(row=row, name=name, bucket="sft", phase="bring_up", scheduler_state="PENDING", **changes)


def test_a_row_shows_its_kinds_metrics_in_order() -> None:
    """RL-1"""
    cells = [cell.strip() for cell in shown(a_run()).split("\n")[4].strip("│").split("│")]

    assert cells[:7] == ["rl__gsm8k_a", "15/80", "0.619", "-0.0040", "0.0060", "0.412", "0.0110"]


def test_what_was_not_emitted_is_a_dash_and_never_zero() -> None:
    """BUCKET-3"""
    told = shown(a_run(metrics=json.dumps({"metrics": {"reward": 0}})))
    cells = [cell.strip() for cell in told.split("\n")[4].strip("│").split("│")]

    assert cells[2:7] == ["0", "—", "—", "—", "—"]


@pytest.mark.parametrize("phase", ["suspect", "wedged"])
def test_a_job_that_stands_still_is_promised_no_end(phase: str) -> None:
    """BUCKET-2: its rate is that of before."""
    assert "7 h 46" in shown(a_run(phase="running"))
    assert "7 h 46" not in shown(a_run(phase=phase))


def test_an_evaluation_tells_what_it_stands_on() -> None:
    """EVAL-1: what is bad in words; what its log does not tell is not there."""
    infra = {"tunnel": "ok", "api_base": "bad internal address", "engine": "ok 1240×", "trials": "quiet"}
    run = {"metrics": {"pass_rate": 0.21, "trials": 142}, "infra": infra}
    told = shown(a_run(name="eval-a", bucket="eval", step=142, total=300, metrics=json.dumps(run)))

    assert "tunnel✓ api✗ internal address engine✓ 1240× trials…" in told
    assert "Infra" in told
    assert "tunnel" not in shown(a_run(name="eval-a", bucket="eval", metrics=json.dumps({"metrics": {"trials": 1}})))


def test_values_that_are_no_numbers_are_shown_as_such() -> None:
    assert "NaN" in shown(a_run(metrics=json.dumps({"metrics": {"grad_norm": "NaN", "reward": "-Infinity"}})))


def test_a_job_without_metrics_fills_and_one_that_ended_does_not() -> None:
    """BUCKET-3, LIVE-6"""
    told = shown(
        a_job(row=1, name="rl__new", phase="bring_up"),
        a_job(row=2, name="rl__old", phase="terminal", outcome="failed", closed_at=NOON),
    )

    assert told.index("rl__old") < told.index("RL, filling (1 bring-up): no metrics yet") < told.index("rl__new")


@pytest.mark.parametrize("wide", [80, 100, 120, 160, 240])
def test_no_line_of_a_table_is_wider_than_the_terminal_and_no_number_is_cut(wide: int) -> None:
    """SAY-1"""
    flag = json.dumps(
        [{"rule": "RL-2", "text": "collapse since step 9: " + "x" * 200, "severity": "fault", "since": "x"}]
    )
    told = shown(a_run(name="rl__" + "n" * 70, worst="fault", flags=flag, nodes=json.dumps(["n1"] * 9)), wide=wide)
    lines = [line for line in told.split("\n") if line[:1] in "┌│├└"]

    assert max(map(width, lines)) <= wide
    for value in ("15/80", "0.619", "-0.0040", "0.0060", "0.412", "0.0110"):
        assert f" {value} │" in told
    assert "collapse since step 9" in told, "in the table, or below it where there is no room"


def test_an_age_is_whole_in_a_narrow_terminal() -> None:
    """SAY-1: the title says that it lies behind."""
    job = a_run(last_output_at=NOON - 12 * MINUTE)

    assert "12 min ago" in shown(job, wide=200)
    assert "12 min ago" not in shown(job, wide=80)
    assert "12 min │" in shown(job, wide=80)


@pytest.mark.parametrize("wide", [24, 40, 60, 72])
def test_a_terminal_too_narrow_for_a_row_gets_a_few_lines_a_job(wide: int) -> None:
    """SAY-1: whole numbers by their titles, and what is flagged, in a box that fits."""
    flag = json.dumps(
        [{"rule": "RL-2", "text": "collapse since step 9: " + "words " * 20, "severity": "fault", "since": "x"}]
    )
    told = shown(a_run(worst="fault", flags=flag), a_run(row=2, name="rl__b"), a_job(row=3, bucket="other"), wide=wide)
    lines = [line for line in told.split("\n") if line[:1] in ("┌", "├", "│", "└")]

    assert max(width(line) for line in lines) <= wide
    for said in ("Step 15/80", "Reward 0.619", "Policy Loss -0.0040", "Grad Norm 0.0060"):
        assert said in told
    assert "collapse" in told


def test_a_job_under_a_hold_says_so_beside_its_phase() -> None:
    """KILL-5: held by itself, with its cluster, or with everything."""
    from types import SimpleNamespace

    job = a_run()
    for target in (f"{job.cluster}/{job.id}", job.cluster, None):
        holds = [SimpleNamespace(target=target)]
        told = "\n".join(
            tables([job], NOON, unknown={}, wide=None, colour=False, pipes=False, kinds=KINDS, holds=holds)
        )
        assert "│ running, held │" in told
    assert "held" not in shown(job)


def test_pipes_are_for_pasting() -> None:
    assert shown(a_run(), pipes=True).split("\n")[1].startswith("| Job | Step | Reward |")


def test_a_kind_without_columns_gets_one_plain_line_a_job() -> None:
    assert "│ Scheduler" in shown(a_job(bucket="other", name="upload"))


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([0.1 * n for n in range(12)], "rising, as it should"),
        ([1 - 0.05 * n for n in range(12)], "falling"),
        ([0.5, 0.52, 0.49] * 5, "steady"),
        ([0.1, 0.9, 0.2, 0.8] * 3, "steady"),
        ([0.1 * n for n in range(9)], "9 points so far"),
        ([0.4] * 11 + [None], "no number"),
        ([], ""),
    ],
)
def test_a_trend_is_named_on_enough_points_and_flat_is_not_dying(points: list[float | None], words: str) -> None:
    """RL-13"""
    assert direction(points, "up", 0.02) == words


@given(points=st.lists(st.none() | st.floats(-1e9, 1e9), max_size=60))
def test_a_sparkline_is_at_most_twelve_letters(points: list[float | None]) -> None:
    assert len(sparkline(points)) == min(12, len(points))
    assert set(sparkline(points)) <= set("▁▂▃▄▅▆▇█×")


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_short_and_keeps_its_size(value: float) -> None:
    if abs(value) < 1e12:
        assert len(number(value)) <= 14
    assert float(number(value)) == pytest.approx(value, rel=0.06, abs=1e-300)


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("sft__a_8b", "sft__a_8b"),
        ("sft__a_8b_r2", "sft__a_8b"),
        ("sft__a-restart-3", "sft__a"),
        ("sft__a_chain2_part1", "sft__a"),
        ("r2", "r2"),
    ],
)
def test_what_restarts_add_to_a_name_is_taken_off(name: str, cell: str) -> None:
    """SFT-3"""
    assert cell_of(name) == cell


def test_restart_copies_are_folded_but_never_what_is_flagged() -> None:
    """SFT-3"""
    jobs = [
        pending(1, "sft__a"),
        pending(2, "sft__a", predecessor="1"),
        pending(3, "sft__a", predecessor="2", worst="fault"),
        pending(4, "sft__b"),
    ]
    kept, folded = copies(jobs)

    assert [job.row for job in kept] == [1, 3, 4]
    assert folded == {1: 1}


def test_a_grid_counts_cells_and_not_jobs() -> None:
    """SFT-3"""
    running = a_run(row=1, name="sft__g_a", bucket="sft", step=50, total=100)
    jobs = [
        running,
        pending(2, "sft__g_a", predecessor="1"),
        pending(3, "sft__g_b"),
        pending(4, "sft__g_b_r2", predecessor="3"),
        pending(5, "sft__g_c"),
    ]
    jobs.append(a_job(row=6, name="sft__g_d", bucket="sft", phase="terminal", outcome="completed", closed_at=NOON))

    assert grids(BY_NAME["sft"], jobs, {1: {"eta_s": 7200.0}}) == [
        "grid sft__g…: 4 cells: 1 running, 2 pending (2 restart copies folded), 1 done; long pole sft__g_a (50%, ETA 2 h 00)"
    ]
    assert grids(BY_NAME["sft"], jobs[:3], {}) == [], "two cells are no grid"


def test_chunks_that_are_jobs_of_their_own_are_summed() -> None:
    """DATAGEN-1"""
    done = [
        a_job(row=n, name=f"datagen__x_chunk_{n:02d}", bucket="datagen", outcome="completed", closed_at=NOON, step=100)
        for n in range(3)
    ]
    live = a_job(row=9, name="datagen__x_chunk_09", bucket="datagen", started_at=NOON, step=7)

    assert chunks([*done, live]) == ["chunks of datagen__x: 3/4 done, 1 running, 0 pending; 307 trials"]


def test_what_stands_below_a_table_is_set_off_from_the_next_one() -> None:
    flag = json.dumps([{"rule": "RL-2", "text": "collapse", "severity": "fault", "since": "x"}])
    told = shown(a_run(worst="fault", flags=flag), a_job(row=2, name="rows", bucket="other"), wide=100)
    lines = told.split("\n")

    assert lines[next(n for n, line in enumerate(lines) if line.startswith("Other (")) - 1] == ""
