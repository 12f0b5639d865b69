"""Counting trials over a whole run: each result once, whatever the looks showed and wherever the daemon was restarted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.dialects.trial_counts import OVERLAP_S, Count, count, counts_of
from supervisor.model.trials import TrialFile, TrialsSeen
from supervisor.store.bodies import from_json, to_json
from tests.trial_files import SAMPLES, job_result, result

WHERE = "/scratch/jobs/j1"
STORE = "s3://traces/j1"


def file(name: str, changed: int = 1000, data: bytes | None = None, where: str = WHERE) -> TrialFile:
    content = result(name) if data is None else data
    return TrialFile(name, f"{where}/{name}/result.json", changed, len(content), content)


def seen(*results: TrialFile, begun: int | None = None, where: str = WHERE, **changes: object) -> TrialsSeen:
    begun = len(results) if begun is None else begun
    return TrialsSeen(where=where, begun=begun, results=results, **changes)  # type: ignore[arg-type]


def stored(state: Mapping[str, object]) -> Mapping[str, object]:
    """As it comes back from the store after a restart."""
    back = json.loads(json.dumps(state, allow_nan=False))
    assert isinstance(back, dict)
    return back


def test_a_place_that_was_never_read_has_no_counts() -> None:
    """EVAL-4: not read is not 0."""
    assert counts_of({}) is None


def test_figures_over_a_real_job_are_harbors_own() -> None:
    """EVAL-1, EVAL-4"""
    names = ("t1", "t2", "t3", "t4", "tboom")
    results = [file(name, data=(SAMPLES / f"{name}.json").read_bytes()) for name in names]
    own = TrialFile(".", f"{WHERE}/result.json", 0, 0, (SAMPLES / "job_result.json").read_bytes())

    counted = counts_of(count(None, seen(*results), 0.0))
    told = counts_of(count(None, seen(job=own), 0.0))

    assert counted is not None and told is not None
    for figures in (counted.figures, told.figures):
        assert (figures.done, figures.mean, figures.passed, figures.scored) == (5, 0.75, 3, 4)
        assert figures.exceptions == {"AgentTimeoutError": 1, "RuntimeError": 1}
    assert told.job_ended


def test_each_quote_stands_in_the_named_line_of_the_file() -> None:
    """PROBE-4"""
    files = [
        file("a__1", data=result("a__1", exception="AddTestsDirError", reward=None)),
        file("b__2", data=result("b__2", reward=0.0, tokens=None, took_s=1)),
        file("c__3", data=result("c__3", turns=1)),
    ]
    counts = counts_of(count(None, seen(*files), 0.0))

    assert counts is not None
    assert counts.quotes.keys() == {"AddTestsDirError", "instant", "turns", "ended"}
    for quote in counts.quotes.values():
        source = next(each for each in files if each.path == quote.file)
        assert source.data is not None and quote.line is not None
        assert quote.text in source.data.decode().split("\n")[quote.line - 1]


def test_a_quote_never_shows_a_secret() -> None:
    data = b'{"trial_name": "a__1", "config": {"api_key": "s3cr3t-s3cr3t"}, "exception_info": {"exception_type": "ApiError"}}'
    counts = counts_of(count(None, seen(file("a__1", data=data)), 0.0))

    assert counts is not None
    assert counts.quotes["ApiError"].text == '"exception_type": "ApiError"'
    assert all("s3cr3t" not in quote.text for quote in counts.quotes.values())


def test_a_class_name_holds_no_escape_codes() -> None:
    """House: untrusted text reaches no terminal."""
    counts = counts_of(count(None, seen(file("a", data=result("a", exception="\x1b[31mRed\nError " * 20))), 0.0))

    assert counts is not None
    (name,) = counts.figures.exceptions
    assert name.isprintable() and len(name) <= 80


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("trial_name", "agent_result", "verifier_result", "exception_info", "step_results", "started_at", "agent_info")
JOB_KEYS = ("n_total_trials", "stats", "finished_at")


@given(
    changes=st.dictionaries(st.sampled_from(KEYS), JSON),
    stats=st.dictionaries(st.sampled_from(["n_completed_trials", "evals", "n_running_trials"]), JSON),
    job=st.dictionaries(st.sampled_from(JOB_KEYS), JSON),
    rewards=JSON,
)
def test_no_value_in_a_results_file_breaks_the_counting_or_the_store(
    changes: dict[str, object], stats: dict[str, object], job: dict[str, object], rewards: object
) -> None:
    """Bad input: numbers without end, texts for numbers, lists for objects."""
    document = json.loads(result("a__1")) | changes | {"verifier_result": {"rewards": rewards}}
    own = {
        "n_total_trials": 3,
        "stats": {"evals": {"e": {"reward_stats": rewards, "exception_stats": rewards}}} | stats,
    } | job
    look = seen(
        file("a__1", data=json.dumps(document).encode()),
        job=TrialFile(".", f"{WHERE}/result.json", 0, 0, json.dumps(own).encode()),
    )
    state = from_json(to_json(count(None, look, 0.0)))
    counts = counts_of(state)

    assert counts is not None
    assert counts.figures.mean is None or math.isfinite(counts.figures.mean)
    assert counts.figures.done is None or counts.figures.done >= 0


def test_a_retry_under_the_same_name_replaces_its_failure() -> None:
    state = count(None, seen(file("a__1", 1000, result("a__1", exception="SandboxBuildFailedError", reward=None))), 0.0)
    counts = counts_of(count(stored(state), seen(file("a__1", 1200)), 0.0))

    assert counts is not None
    assert (counts.figures.done, counts.figures.passed, counts.figures.exceptions) == (1, 1, {})


def test_a_result_that_is_still_being_written_is_looked_at_again_and_in_the_end_told_as_unreadable() -> None:
    half = result("a__1")[:100]
    state = count(None, seen(file("a__1", 1000, half), file("b__2", 5000)), 0.0)
    after = Count.load(state)

    assert after.since_s <= 1000, "it must be shown again"
    assert (counts_of(state).figures.done, counts_of(state).figures.exact) == (None, False)  # type: ignore[union-attr]
    whole = count(state, seen(file("a__1", 1000)), 0.0)
    assert counts_of(whole).figures.done == 2  # type: ignore[union-attr]
    for _ in range(2):
        state = count(stored(state), seen(file("a__1", 1000, half)), 0.0)
    broken = counts_of(state)
    assert broken is not None
    assert (broken.figures.done, broken.unread, broken.figures.exact) == (2, 1, False)


def test_results_that_wait_make_the_total_unknown_and_not_small() -> None:
    """EVAL-4, BUCKET-3"""
    counts = counts_of(count(None, seen(file("a__1"), begun=900, left=700), 0.0))

    assert counts is not None
    assert (counts.figures.done, counts.figures.exact, counts.left, counts.begun) == (None, False, 700, 900)


def test_the_jobs_own_count_tells_the_total_while_results_wait() -> None:
    own = TrialFile(".", f"{WHERE}/result.json", 0, 0, job_result(planned=1000, completed=700, passed=70, failed=630))
    counts = counts_of(count(None, seen(file("a__1"), begun=900, left=700, job=own), 0.0))

    assert counts is not None
    assert (counts.figures.done, counts.figures.planned, counts.figures.passed, counts.figures.exact) == (
        700,
        1000,
        70,
        True,
    )


def test_another_folder_is_counted_from_its_beginning() -> None:
    state = count(None, seen(file("a__1")), 0.0)
    other = counts_of(count(state, seen(file("z__9", where="/scratch/jobs/j2"), where="/scratch/jobs/j2"), 0.0))

    assert other is not None
    assert other.figures.done == 1


def test_a_state_of_another_version_is_not_guessed_at() -> None:
    assert counts_of({"version": 1, "ended": 7, "read_at": 1.0}) is None


def test_of_the_newest_trials_shares_and_the_rate_are_told() -> None:
    """EVAL-2, DATAGEN-2"""
    files = [file(f"t{n}__x", 1000 + 60 * n, result(f"t{n}__x", reward=0.0, tokens=None, took_s=1)) for n in range(30)]
    counts = counts_of(count(None, seen(*files), 0.0))

    assert counts is not None
    assert (len(counts.recent), counts.null_tokens, counts.last_end_s) == (30, 30, 1000 + 60 * 29)
    assert all(each.instant for each in counts.recent)
    assert counts.rate_per_s == pytest.approx(1 / 60)


@pytest.mark.parametrize("agent", ["oracle", "nop"])
def test_agents_that_ask_no_model_are_not_said_to_have_a_dead_one(agent: str) -> None:
    """EVAL-2: no false alarm over a baseline."""
    counts = counts_of(
        count(None, seen(file("a", data=result("a", agent=agent, reward=0.0, tokens=None, took_s=1))), 0)
    )

    assert counts is not None
    assert not counts.recent[0].instant


ENDS = st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=60)


@given(ends=ENDS, looks=st.lists(st.integers(1, 12), min_size=1, max_size=12), restart=st.booleans())
def test_however_looks_fall_each_trial_is_counted_once(
    ends: list[tuple[int, bool]], looks: list[int], restart: bool
) -> None:
    """EVAL-4: bounded looks, oldest first, with overlap, over restarts of the daemon."""
    trials, clock = {}, 10_000
    for number, (gap, passed) in enumerate(ends):
        clock += gap
        trials[f"t{number}__x"] = (clock, passed)
    state: Mapping[str, object] | None = None
    for most in [*looks, 100, 100]:
        run = Count.load(state)
        due = sorted((at, name) for name, (at, _) in trials.items() if at >= run.since_s and name not in run.known)
        files = [
            file(name, at, result(name, reward=1.0 if trials[name][1] else 0.0, turns=3)) for at, name in due[:most]
        ]
        left = max(0, len(due) - most)
        state = count(state, seen(*files, begun=len(trials), left=left), 0.0)
        if restart:
            state = stored(state)
    counts = counts_of(state or {})

    assert counts is not None
    assert counts.figures.done == len(trials)
    assert counts.figures.passed == sum(passed for _, passed in trials.values())
    assert (counts.avg_turns, counts.turns_of) == (3.0, len(trials))


def test_what_changed_within_the_overlap_may_show_late() -> None:
    """A file server may show an older change after a newer one."""
    state = count(None, seen(file("new__1", 5000)), 0.0)
    late = file("late__2", 5000 - OVERLAP_S + 1)

    assert late.changed_s >= Count.load(state).since_s
    assert counts_of(count(state, seen(late), 0.0)).figures.done == 2  # type: ignore[union-attr]


def test_a_folder_that_was_copied_is_counted_to_its_end() -> None:
    """All its times are one: what was counted is not handed on for ever, nor what waits put off for ever."""
    names = [f"t{number:04d}__x" for number in range(4000)]
    state: Mapping[str, object] | None = None
    for _ in range(12):
        run = Count.load(state)
        due = [
            (at, name) for at, name in ((5000 + n // 100, name) for n, name in enumerate(names)) if at >= run.since_s
        ]
        new = [each for each in due if each[1] not in run.known]
        assert len(run.known) < 2200
        files = [file(name, at, b"{}") for at, name in new[:500]]
        state = count(state, seen(*[replace(each, data=None) for each in files], left=max(0, len(new) - 500)), 0.0)
    counts = counts_of(state or {})

    assert counts is not None
    assert (counts.unread, counts.left) == (4000, 0)


def test_a_listing_of_a_store_goes_on_over_looks_and_the_next_one_finds_what_came_meanwhile() -> None:
    """EVAL-4: names there do not sort by time."""
    state = count(None, seen(file("m__1", 9000, where=STORE), where=STORE, left=1, after="j1/m__1/result.json"), 10_000)
    first = counts_of(state)
    state = count(stored(state), seen(file("z__1", 9100, where=STORE), where=STORE), 10_900)
    second = counts_of(state)
    run = Count.load(state)
    state = count(stored(state), seen(file("a__1", 10_500, where=STORE), where=STORE, begun=3), 11_800)
    third = counts_of(state)

    assert first is not None and second is not None and third is not None
    assert (first.figures.done, first.begun) == (None, None), "the listing is not through"
    assert (second.figures.done, second.begun) == (2, 2)
    assert run.since_s < 10_000, "what came while the first listing went on is looked for in the second"
    assert (third.figures.done, third.begun) == (3, 3)
