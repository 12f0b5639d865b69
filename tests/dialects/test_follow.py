"""Following a log piece by piece: borders of pieces, garbage, bounds, restarts of the daemon and of the run."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.dialects import begun, follow, next_attempt, summarise
from supervisor.dialects.stream import LONGEST
from supervisor.model.readings import ReadingKind

SAMPLES = Path(__file__).parent / "samples"
LOGS = {path.stem: path.read_bytes() for path in sorted(SAMPLES.glob("*.log"))}
NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)

WORDS = [
    b"step 3/8 policy_loss=-0.0060 n=6291456\n",
    b"{'loss': 1.25, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.35}\n",
    b"\r 35%|\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88\xe2\x96\x8d      | 320/916 [2:10:33<4:02:11, 24.38s/it]",
    b"(skyrl_entrypoint pid=7) {'async/staleness_max': 0,\n",
    b"(skyrl_entrypoint pid=7)  'policy/raw_grad_norm': '0.2100',\n",
    b"(skyrl_entrypoint pid=7)  'trainer/global_step': 4}\n",
    b'WANDB_MIRROR kind=train step=5 metrics={"reward/avg_raw_reward": 0.5, "policy/policy_loss": NaN}\n',
    b"WANDB_MIRROR kind=train step=6 metrics={\"reward/avg\n",
    b"Step 7: \r\n",
    b"\x1b[36m(RolloutCoordinator pid=9)\x1b[0m task-3__ab12c | Trial completed reward=1.0\n",
    b"[12:34:56] task=/alice/rl/0 attempt=0 | Finished: 'policy_train', time cost: 12.50s\n",
    b'10.0.0.9:5000 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n',
    b"\xff\xfe\x00\x00step\x00\n",
    b"Training Step Progress:  34%|###4      | 27/80 [3:12:11<6:17:13, 427.05s/it]\r",
    b"Epoch 3:  41%|####      | 41/100 [03:10<04:34,  2.15it/s, loss=0.412]\r",
    b"Epoch 4:   2%|          | 2/100 [00:10<04:34,  2.15it/s, loss=0.400]\r",
    b"Training: 100%|####| 40/40 [03:10<00:00,  2.15it/s, loss=0.412]\n", b"Training:   0%|    | 0/40 [00:00<?, ?it/s]\r",
    b"\n  0%|          | 0/32 [00:00<?, ?it/s]\x1b[A\r", b"\r 100%|####| 32/32 [00:40<00:00, 1.1s/it]\x1b[A\r",
    b"1|25|Loss: 1.2345:   5%|5         | 25/500 [00:50<16:00,  2.02s/it]\r",
    b"  0%|          | 0/58 [00:00<?, ?it/s]\r", b"Capturing sizes:   0%|          | 0/58 [00:00<?, ?it/s]\r",
    b"{'train_runtime': 400.25, 'train_steps_per_second': 1.22, 'train_loss': 1.1, 'epoch': 3.0}\n",
    b"  142/300 Mean: 0.530 \xe2\x94\x81\xe2\x94\x81 0:12:00 0:13:22\n",
    b"Saved checkpoint to /ckpt/step-200 for step 200\n", b"saving checkpoint at iteration       4 to ./ckpt\n",
    b"[batch=10/500]:\n", b"\t Train loss/train/total: 1.2345\n", b"gen rollout batch 7 ready mean_reward=0.380\n",
    b'"GET /metrics HTTP/1.1" 200 OK\n', b"INF Registered tunnel connection connIndex=0\n", b"Timer actor_train start\n",
    b"\n", b"\r", b"\x1b[", b"'loss': ", b"{", b"}", b"%|", b"step:", b" - ", b"\xe2\x94\x81",
]  # fmt: skip


def in_pieces(log: bytes, cuts: list[int]) -> dict[str, object]:
    state: dict[str, object] = begun()
    edges = sorted({cut % (len(log) + 1) for cut in cuts} | {0, len(log)})
    for start, stop in itertools.pairwise(edges):
        state, _ = follow(json.loads(json.dumps(state, allow_nan=False)), log[start:stop], start, seen_at=NOON)
    return state


@pytest.mark.parametrize("name", sorted(LOGS))
@given(cuts=st.lists(st.integers(0, 1 << 20), max_size=12))
@settings(max_examples=25, deadline=None)
def test_no_border_of_a_piece_changes_what_is_read(name: str, cuts: list[int]) -> None:
    """FIND-3: reads are incremental, and each state goes through JSON, as over a restart of the daemon."""
    assert in_pieces(LOGS[name], cuts) == follow(begun(), LOGS[name], 0, seen_at=NOON)[0]


@given(words=st.lists(st.sampled_from(WORDS), max_size=40), cuts=st.lists(st.integers(0, 1 << 16), max_size=12))
@settings(max_examples=300, deadline=None)
def test_nor_in_a_log_of_broken_and_mixed_lines(words: list[bytes], cuts: list[int]) -> None:
    log = b"".join(words)

    assert in_pieces(log, cuts) == follow(begun(), log, 0, seen_at=NOON)[0]


@given(garbage=st.lists(st.one_of(st.binary(max_size=200), st.sampled_from(WORDS)), max_size=40))
@settings(max_examples=300, deadline=None)
def test_no_bytes_at_all_can_make_it_fail(garbage: list[bytes]) -> None:
    """FIND-4: logs are other people's text; whatever stands in them is data."""
    log = b"".join(garbage)
    state, _ = follow(None, log, 0, seen_at=NOON)

    json.dumps(state, allow_nan=False)
    for bucket in ("rl", "sft", "datagen", "eval", "other", None):
        summarise(state, bucket, ended=True)


def test_the_state_handed_in_stays_as_it_was() -> None:
    """The room is pure: the same state and the same bytes give the same again."""
    state, _ = follow(None, LOGS["hf4"], 0)
    before = json.dumps(state)
    follow(state, b"{'loss': 1.0, 'grad_norm': 2.0, 'learning_rate': 1e-5, 'step': 51}\n", len(LOGS["hf4"]))

    assert json.dumps(state) == before


def test_half_a_number_is_not_read_until_its_line_ends() -> None:
    state, _ = follow(None, b"step 1 loss 2.31\nstep 2 loss 2.", 0)
    assert summarise(state).metrics["loss"] == 2.31
    state, _ = follow(state, b"29\n", 31)
    assert summarise(state).metrics["loss"] == 2.29


def test_a_bars_last_frame_is_read_though_no_line_end_follows() -> None:
    """SFT-1: a job that died in mid-line has shown its last step there."""
    log = b"\r 35%|###5      | 320/916 [2:10:33<4:02:11, 24.38s/it]\r 35%|###5      | 321/916 [2:10:57<4:01:47, 24.38s/it]"
    state, _ = follow(None, log, 0)

    assert summarise(state).progress.step == 321


def test_a_line_of_fifty_megabytes_costs_no_memory_and_is_counted() -> None:
    state: dict[str, object] | None = None
    offset = 0
    for piece in (b"step 1 loss 2.5\n", *[b"'loss': 1.0 step x" * 58254] * 50, b"\nstep 2 loss 2.25\n"):
        state, _ = follow(state, piece, offset)
        offset += len(piece)
        assert len(json.dumps(state)) < 4 * LONGEST
    assert state is not None
    summary = summarise(state)

    assert summary.progress.step == 2
    assert summary.unread.oversized == 1
    assert summary.lines == 3


def test_binary_that_bears_a_mark_is_counted_and_left_out() -> None:
    state, readings = follow(None, b"step 4 loss \x00\x01\x02\xff\xfe\n", 0)

    assert readings == ()
    assert summarise(state).unread.undecodable == 1


def test_a_log_of_two_bytes_a_letter_is_counted_as_not_understood() -> None:
    """FIND-4: and a byte order mark before text is none of it."""
    state, _ = follow(None, "step 4 loss 1.5\nstep 5 loss 1.4\n".encode("utf-16"), 0)
    assert (summarise(state).progress.step, summarise(state).unread.undecodable) == (None, 2)

    state, _ = follow(None, "\ufeffstep 4 loss 1.5\n".encode(), 0)
    assert (summarise(state).progress.step, summarise(state).unread.undecodable) == (4, 0)


def test_other_encodings_do_not_hide_what_can_be_read() -> None:
    state, _ = follow(None, "Größe fünf step 7 loss 1.5\n".encode("latin-1"), 0)

    assert summarise(state).progress.step == 7


def test_a_gap_is_counted_and_the_broken_line_after_it_is_left_out() -> None:
    """FIND-3: what was never handed in is no silence, and line numbers after it are unknown."""
    state, _ = follow(None, b"step 1 loss 2.5\n", 0)
    state, readings = follow(state, b"ep 900 loss 9.9\nstep 12 loss 1.5\n", 5000)

    assert [reading.step for reading in readings] == [12]
    assert readings[0].line is None
    assert readings[0].offset == 5016
    assert summarise(state).unread.gaps == 1


def test_a_gap_whose_lines_were_counted_keeps_line_numbers_true() -> None:
    state, _ = follow(None, b"step 1 loss 2.5\n", 0)
    state, readings = follow(state, b"rest of a line\nstep 12 loss 1.5\n", 5000, lines_skipped=40)

    assert readings[0].line == 43


def test_bytes_already_taken_in_are_passed_over() -> None:
    log = b"step 1 loss 2.5\nstep 2 loss 2.4\n"
    state, _ = follow(None, log, 0)
    state, readings = follow(state, log + b"step 3 loss 2.3\n", 0)

    assert [reading.step for reading in readings] == [3]
    assert readings[0].line == 3


def test_readings_quote_their_line_byte_for_byte() -> None:
    """PROBE-4: colour codes and all, at their offset and line."""
    log = LOGS["ray_wrapped"]
    _, readings = follow(None, log, 0)
    lines = log.split(b"\n")
    for reading in readings:
        for spoken in reading.said:
            raw = spoken.text.encode()
            assert log[spoken.offset : spoken.offset + len(raw)] == raw
            assert spoken.line is not None
            assert raw in lines[spoken.line - 1]
    assert len(readings) > 40


# -- attempts, restarts, ranks -----------------------------------------------------------------------------------------


def steps(*numbers: int) -> bytes:
    return b"".join(b"step %d loss %d.5\n" % (number, number) for number in numbers)


def test_a_new_attempt_goes_on_as_one_run_and_first_seen_steps_win() -> None:
    """CHAIN-2: steps 3 and 4 are trained again after the resume; the trend keeps what was seen first."""
    state, _ = follow(None, steps(1, 2, 3, 4), 0)
    state = next_attempt(state)
    state, _ = follow(state, b"step 3 loss 9.5\nstep 4 loss 9.5\nstep 5 loss 5.5\n", 0)
    summary = summarise(state)

    assert [(point.step, point.value) for point in summary.series["loss"]] == [
        (1, 1.5),
        (2, 2.5),
        (3, 3.5),
        (4, 4.5),
        (5, 5.5),
    ]
    assert [(resume.before, resume.after, resume.announced) for resume in summary.resumes] == [(4, 3, True)]


def test_progress_and_metrics_stand_where_the_resumed_run_stands() -> None:
    """CHAIN-2: as of where the run stands now, not the farthest it ever came."""
    state, _ = follow(None, steps(1, 2, 3, 4, 5, 6), 0)
    state, _ = follow(next_attempt(state), b"step 4 loss 9.5\n", 0)
    summary = summarise(state)

    assert summary.progress.step == 4
    assert summary.metrics["loss"] == 9.5
    assert summary.series["loss"][-1].value == 6.5


def test_two_ranks_that_print_the_same_steps_are_one_series() -> None:
    log = b"".join(
        b"[rank%d] step %d loss %d.%d\n" % (rank, step, step, rank) for step in range(1, 6) for rank in (0, 1)
    )
    state, _ = follow(None, log, 0)
    summary = summarise(state)

    assert [(point.step, point.value) for point in summary.series["loss"]] == [(n, float(n)) for n in range(1, 6)]
    assert summary.resumes == ()


def test_a_late_line_of_another_rank_is_no_restart() -> None:
    state, _ = follow(None, steps(10, 11, 12) + steps(11) + steps(13), 0)
    summary = summarise(state)

    assert summary.progress.step == 13
    assert summary.resumes == ()


def test_a_silent_restart_is_believed_when_its_second_step_follows() -> None:
    """RL-14: nobody announced it, but the count began again from the start."""
    state, _ = follow(None, steps(40, 41, 42) + steps(1), 0)
    assert summarise(state).progress.step == 42
    state, _ = follow(state, steps(2), len(steps(40, 41, 42) + steps(1)))
    summary = summarise(state)

    assert summary.progress.step == 2
    assert [(resume.before, resume.after, resume.announced) for resume in summary.resumes] == [(42, 1, False)]


def test_times_of_reading_give_a_rate_where_lines_bear_no_clock() -> None:
    """SFT-2: Δsteps over Δwall; within one reading the moments are unknown."""
    state: dict[str, object] | None = None
    offset = 0
    for poll in range(4):
        chunk = steps(*range(poll * 30 + 1, poll * 30 + 31))
        state, _ = follow(state, chunk, offset, seen_at=NOON + timedelta(minutes=15 * poll))
        offset += len(chunk)
    assert state is not None
    summary = summarise(state)

    assert summary.progress.rate_per_s == pytest.approx(30 / 900)
    assert summary.step_gaps_s == pytest.approx((30.0, 30.0, 30.0))


def test_lines_with_a_clock_give_the_rate_and_gaps_of_that_clock() -> None:
    """LIVE-2: the job's own cadence."""
    lines = [
        f"2026-08-01 12:{minute:02d}:00,000 - root - INFO - step {minute + 1} loss 1.5" for minute in range(0, 30, 3)
    ]
    state, _ = follow(None, ("\n".join(lines) + "\n").encode(), 0)
    summary = summarise(state)

    assert set(summary.step_gaps_s) == {180.0}
    assert summary.progress.rate_per_s == pytest.approx(3 / 180)
    assert summary.last_step is not None
    assert summary.last_step.clock_s == datetime(2026, 8, 1, 12, 27, tzinfo=UTC).timestamp()


def test_what_was_read_when_is_known_of_the_last_progress() -> None:
    state, _ = follow(None, steps(1), 0, seen_at=NOON)
    state, _ = follow(state, b"node exporter: load 1.2\n", len(steps(1)), seen_at=NOON + timedelta(hours=1))
    last = summarise(state).last_progress

    assert last is not None
    assert last.seen_at == NOON


def test_a_bars_last_frame_keeps_the_time_at_which_it_was_read() -> None:
    """LIVE-2: it waits for its end, hours perhaps, and is not news when other output ends it."""
    frame = b"\r 35%|###5      | 320/916 [2:10:33<4:02:11, 24.38s/it]"
    state, _ = follow(None, frame, 0, seen_at=NOON)
    state, _ = follow(state, b"", len(frame), seen_at=NOON + timedelta(hours=1))
    waiting = summarise(state).last_progress
    state, _ = follow(state, b"\nnode exporter: load 1.2\n", len(frame), seen_at=NOON + timedelta(hours=3))
    ended = summarise(state).last_progress

    assert waiting is not None
    assert ended is not None
    assert waiting.seen_at == ended.seen_at == NOON


def test_metrics_stay_bounded_over_a_long_run() -> None:
    state, _ = follow(None, steps(*range(1, 5000)), 0)
    summary = summarise(state)

    assert len(json.dumps(state)) < 200_000
    assert summary.progress.step == 4999
    assert len(summary.series["loss"]) == 128
    assert all(reading.kind is ReadingKind.STEP for reading in follow(None, steps(1, 2), 0)[1])
