"""Metric lines of the other trainers, each with its step, total and last metrics."""

from __future__ import annotations

import math

import pytest

from tests.dialects.reads import readings_of, summary_of

RUNNER = "\x1b[36m(TaskRunner pid=38606)\x1b[0m "


def test_verl_names_its_step_and_all_metrics_on_one_line() -> None:
    log = (
        f"{RUNNER}Total training steps: 30\n"
        f"{RUNNER}step:0 - val-core/gsm8k/acc/mean@1:0.21\n"
        f"{RUNNER}step:1 - global_seqlen/min:1298 - actor/entropy:0.441 - "
        f"actor/pg_loss:np.float64(0.0021) - actor/grad_norm:0.187 - "
        "critic/score/mean:0.238 - critic/rewards/mean:0.2 - actor/pg_clipfrac:0.0 - actor/ppo_kl:-0.0001 - timing_s/step:641.3\n"
        "Training Progress:   3%|3         | 1/30 [10:41<5:09:58, 641.31s/it]\n"
    )
    summary = summary_of(log)

    assert (summary.progress.step, summary.progress.total, summary.bucket) == (1, 30, "rl")
    assert summary.metrics == {
        "reward": 0.238, "policy_loss": 0.0021, "grad_norm": 0.187, "entropy": 0.441, "clip_ratio": 0.0, "kl": -0.0001,
    }  # fmt: skip
    assert summary.latest["eval_score"].step == 0


def test_openrlhf_prints_a_status_a_step() -> None:
    log = (
        "(PPOTrainer pid=3) INFO 08-01 12:00:00 ppo_trainer.py:120] ✨ Global step 12: {'policy_loss': 0.01, 'actor_lr': 1e-06, "
        "'reward': 0.4, 'kl': 0.02, 'ppo_kl': 0.001, 'ppo_clip_ratio': 0.002, 'response_length': 512.0}\n"
        "Episode [1/2]:  10%|#         | 12/120 [10:00<1:30:00, 50.0s/it]\n"
    )
    summary = summary_of(log)

    assert (summary.progress.step, summary.progress.total, summary.bucket) == (12, 240, "rl")  # two episodes of 120
    assert (summary.metrics["reward"], summary.metrics["kl"], summary.metrics["clip_ratio"]) == (0.4, 0.02, 0.002)


def test_slime_tells_training_from_rollout() -> None:
    log = (
        "(RolloutManager pid=3) rollout 21: {'rollout/raw_reward': 0.34, 'rollout/response_lengths': 900.0}\n"
        "(RolloutManager pid=3) step 20: {'train/loss': 0.1, 'train/grad_norm': 3.91, "
        "'train/train_rollout_logprob_abs_diff': 0.412}\n"
    )
    summary = summary_of(log)

    assert summary.progress.step == 20
    assert (summary.metrics["grad_norm"], summary.metrics["tis_log_ratio"]) == (3.91, 0.412)
    assert summary.series["reward"][0].step == 21


def test_torchtitan_colours_each_field() -> None:
    line = (
        "[rank0]:[titan] 2025-06-04 08:{minute}:48,074 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: {loss:8.5f}  "
        "\x1b[38;2;180;60;0mgrad_norm:  1.4604  \x1b[33mmemory: 27.34GiB(28.78%)  \x1b[34mtps: 7,034  \x1b[36mtflops: 407.35  "
        "\x1b[35mmfu: 41.19%\x1b[39m\n"
    )
    log = (
        "[rank0]:[titan] 2025-06-04 08:50:00,000 - root - INFO - Training starts at step 1, with "
        "local batch size 8, total steps 100 (warmup 2)\n"
    )
    log += "".join(line.format(step=step, loss=12 - step / 10, minute=51 + step // 10) for step in (1, 10, 20))
    summary = summary_of(log)

    assert (summary.progress.step, summary.progress.total, summary.bucket) == (20, 100, "sft")
    assert (summary.metrics["loss"], summary.metrics["grad_norm"]) == (10.0, 1.4604)
    assert (summary.latest["tokens_per_s"].value, summary.latest["mfu"].value) == (7034.0, 41.19)
    assert summary.progress.rate_per_s == pytest.approx(19 / 120)


def test_torchtitan_that_resumes_says_where() -> None:
    summary = summary_of(
        "[titan] 2025-06-04 08:50:00,000 - root - INFO - Training starts at step 501, total steps 1000 (warmup 2)\n"
    )

    assert (summary.progress.step, summary.progress.total) == (500, 1000)


def test_megatron_counts_iterations() -> None:
    log = (
        " iteration      100/  500000 | consumed samples:       102400 | elapsed time per "
        "iteration (ms): 7950.1 | learning rate: 1.2E-04 | "
        "global batch size:  1024 | lm loss: 6.163599E+00 | loss scale: 1.0 | grad norm: "
        "0.213 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |\n"
        " validation loss at iteration 100 | lm loss value: 1.102900E+01 | lm loss PPL: 6.163599E+04 |\n"
        "  successfully saved checkpoint from iteration     100 to /scratch/alice/ckpt [ t 1/8, p 1/1 ]\n"
    )
    summary = summary_of(log)

    assert (summary.progress.step, summary.progress.total, summary.bucket) == (100, 500000, "sft")
    assert (summary.metrics["loss"], summary.metrics["grad_norm"], summary.metrics["learning_rate"]) == (
        6.163599,
        0.213,
        1.2e-4,
    )
    assert summary.latest["eval_loss"].value == 11.029
    assert summary.latest["nan_iterations"].value == 0.0
    assert summary.checkpoint_step == 100


def test_llama_factory_says_its_steps_in_its_own_file() -> None:
    """SFT-1: it has no gradient norm, and completes what the training log says."""
    log = (
        '{"current_steps": 320, "total_steps": 916, "loss": 1.21, "lr": 9.8e-06, "epoch": 0.35, "percentage": '
        '34.9, "elapsed_time": "2:10:33", "remaining_time": "4:02:11"}\n'
    )
    summary = summary_of(log)

    assert (summary.progress.step, summary.progress.total, summary.bucket) == (320, 916, "sft")
    assert summary.metrics == {"loss": 1.21, "learning_rate": 9.8e-6, "epoch": 0.35}


def test_llama_factory_under_launchers_prefixes() -> None:
    """SFT-1: commas in totals; data bars beside the training bar; the total from the banner."""
    log = (
        "[INFO|trainer.py:2519] 2026-08-01 12:00:00,123 >> ***** Running training *****\n"
        "[INFO|trainer.py:2520] 2026-08-01 12:00:00,123 >>   Num examples = 87,936\n"
        "[INFO|trainer.py:2521] 2026-08-01 12:00:00,123 >>   Num Epochs = 2\n"
        "[INFO|trainer.py:2525] 2026-08-01 12:00:00,123 >>   Total train batch size (w. "
        "parallel, distributed & accumulation) = 96\n"
        "[INFO|trainer.py:2527] 2026-08-01 12:00:00,123 >>   Total optimization steps = 1,832\n"
        "Running tokenizer on dataset (num_proc=16):  45%|####5     | 450000/1000000 [06:04<07:25, 1234.5 examples/s]\r"
        "\r 35%|###4      | 640/1832 [4:21:06<8:04:22, 24.38s/it]\r"
        "\r                                        \r{'loss': 1.2105, 'grad_norm': "
        "0.8412, 'learning_rate': 9.8e-06, 'epoch': 0.7}\n"
        "\r 35%|###4      | 640/1832 [4:21:06<8:04:22, 24.38s/it]\r"
    )
    summary = summary_of(log)

    assert (summary.progress.step, summary.progress.total) == (640, 1832)
    assert summary.metrics == {"loss": 1.2105, "grad_norm": 0.8412, "learning_rate": 9.8e-6, "epoch": 0.7}
    assert summary.series["loss"][0].step == 640


def test_output_that_comes_late_is_not_given_the_bars_present_step() -> None:
    """Buffered dicts arrive in a clump long after their bar: their epoch tells the step where its digits suffice."""
    log = (
        "  Num update steps per epoch = 50\n  Total optimization steps = 100\n"
        + "\r 90%|#########  | 90/100 [01:30<00:10,  1.00s/it]"
        + "\n{'loss': '2.5', 'grad_norm': '1.5', 'learning_rate': '5e-05', 'epoch': '0.2'}\n"
        + "{'loss': '2.4', 'grad_norm': '1.4', 'learning_rate': '5e-05', 'epoch': '0.4'}\n"
    )
    summary = summary_of(log)

    assert [point.step for point in summary.series["loss"]] == [10, 20]
    assert summary.progress.step == 90


def test_output_that_comes_late_without_a_sure_epoch_has_no_step() -> None:
    """A guess would be worse than none."""
    log = "\r 90%|#########  | 90/100 [01:30<00:10,  1.00s/it]\n" + "".join(
        f"{{'loss': {loss}, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.2}}\n" for loss in (2.5, 2.4, 2.3)
    )

    assert [point.step for point in summary_of(log).series["loss"]] == [None, None, None]


def test_an_evaluations_bar_takes_no_one_elses_place() -> None:
    """SFT-1: it has no description either."""
    log = (
        "\r 10%|#         | 100/1000 [01:40<15:00,  1.00s/it]\r"
        "\r  0%|          | 0/32 [00:00<?, ?it/s]\r 50%|#####     | 16/32 [00:02<00:02,  "
        "8.00it/s]\r100%|##########| 32/32 [00:04<00:00,  8.00it/s]\r"
        "\r 10%|#         | 101/1000 [01:46<15:00,  1.00s/it]\r"
    )
    progress = summary_of(log).progress

    assert (progress.step, progress.total) == (101, 1000)


def test_preference_tuning_is_fine_tuning_and_keeps_its_margin() -> None:
    log = (
        "{'loss': 0.6931, 'grad_norm': 3.36, 'learning_rate': 8.9e-06, 'rewards/chosen': 0.1, "
        "'rewards/rejected': 0.0, 'rewards/margins': 0.1, 'epoch': 0.1}\n"
    )
    summary = summary_of(log)

    assert (summary.bucket, summary.flavor) == ("sft", "preference")
    assert summary.metrics["loss"] == 0.6931
    assert summary.latest["margin"].value == 0.1


def test_a_gradient_that_is_nan_is_read_from_both_spellings() -> None:
    """SFT-4."""
    for printed in (
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 9.9e-05, 'epoch': 0.0}",
        "{'loss': '0', 'grad_norm': 'nan', 'learning_rate': '9.9e-05', 'epoch': '0.01'}",
    ):
        summary = summary_of(printed + "\n", "sft")
        assert math.isnan(float(summary.metrics["grad_norm"]))
        assert summary.hidden_nan == 1


def test_ms_swift_says_the_step_in_its_dict() -> None:
    log = (
        "Train:   8%|8         | 5/60 [03:52<43:40, 47.64s/it]"
        "{'loss': '0.2992', 'grad_norm': '0.61', 'learning_rate': '3.3e-05', 'epoch': '0.43', 'global_step/max_steps': '5/60', "
        "'elapsed_time': '3m 53s', 'memory(GiB)': '14.3', 'train_speed(s/it)': '46.51'}\n"
    )
    summary = summary_of(log)

    assert (summary.progress.step, summary.progress.total) == (5, 60)
    assert summary.series["loss"][0].step == 5


def test_nemo_rl_names_the_step_that_begins_and_lists_its_results() -> None:
    """A step that has begun is not yet done."""
    log = (
        "\n========================= Step 3/100 =========================\n▶ Preparing batch...\n\n📊 Training Results:\n"
        "  • Loss: 0.0123\n  • Avg Reward: 0.4531\n  • Mean Generation Length: 812.5000\n"
    )
    summary = summary_of(log)

    assert (summary.progress.step, summary.progress.total, summary.bucket) == (2, 100, "rl")
    assert (summary.metrics["policy_loss"], summary.metrics["reward"]) == (0.0123, 0.4531)
    assert summary.series["reward"][0].step == 3


def test_levanter_and_its_kin() -> None:
    log = (
        "I0801 12:00:00.123456 123456789 trainer.py:501] Training: step 11\n"
        "I0801 12:00:03.123456 123456789 trainer.py:501] Training: step 12\n"
        "I0801 12:00:03.123456 123456789 metrics.py:77] loss=2.1234 step=12 mfu=41.2\n"
    )
    summary = summary_of(log)

    assert summary.progress.step == 12
    assert summary.metrics["loss"] == 2.1234
    assert summary.progress.rate_per_s == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("line", "step", "total", "loss"),
    [
        ("step 50 | loss 2.790 | grad_norm 0.880 | tok/s 18422", 50, None, 2.79),
        ("step 2/8 policy_loss=-0.0050 n=6291456", 2, 8, None),
        ("[rank3] step 1840 loss 2.1034 tok/s 42000 mem 66.1 GiB", 1840, None, 2.1034),
        ("2026-08-01 12:00:00,123 - train - INFO - Step: 7, loss: 1.5, lr: 1e-4", 7, None, 1.5),
        (
            "[2026-08-01 12:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]",
            10,
            None,
            None,
        ),
        ("Step 12 | Time: 30.2s | Loss: 0.0023 | Entropy: 0.52 | LR: 1e-6", 12, None, 0.0023),
        (
            " [default0]:[INFO|DP=0|PP=0|TP=0]: iteration: 100 / 1000 | consumed_tokens: 1.2M | lm_loss: 10.5 | grad_norm: 2.2",
            100,
            1000,
            10.5,
        ),
        ('{"step": 30, "loss": 1.25, "lr": 0.0001}', 30, None, 1.25),
        ("Epoch 12:  41%|####      | 410/1000 [03:10<04:34,  2.15it/s, loss=0.412]", 410, 1000, 0.412),
        ("iter 250: loss 2.1983, time 123.40ms, mfu 30.10%", 250, None, 2.1983),
        ("Epoch [2/10], Step [100/600], Loss: 0.4123", 700, 6000, 0.4123),
        ("[batch=10/500]:", 10, 500, None),
        ("Iter 70: Train loss 2.786, Learning Rate 1.000e-05, It/sec 17.598", 70, None, 2.786),
        ("08/01 12:00:00 - mmengine - INFO - Iter(train) [ 100/5000]  lr: 1.0e-05  loss: 1.2345", 100, 5000, 1.2345),
        ("step 1,200/10,000 | loss 2.31 | lr 1e-4", 1200, 10000, 2.31),
        ("[step 300] 2:31<6:50 train/loss/total=1163 train/perf/step_time_s=0.342", 300, None, 1163.0),
        ("Epoch 1 | iter 10 step 5 | loss train: 2.101, val: n/a | iter time: 12.30 ms (step)", 5, None, 2.101),
        ("steps: 10 loss: 0.9123 iter time (s): 1.234 samples/sec: 3.1", 10, None, 0.9123),
        ("1234it [10:00,  2.05it/s, loss=0.51]", 1234, None, 0.51),
        ("1|Loss: 1.2345:   5%|5         | 25/500 [00:50<16:00,  2.02s/it]", 25, 500, 1.2345),
        ("2026-08-01 12:00:00 INFO [step=10/477000,epoch=0]", 10, 477000, None),
        (
            "2026-08-01 12:00:00 | INFO | train_inner | epoch 001:  10 / 1000 loss=9.101, ppl=549.1, num_updates=10, lr=1e-05, gnorm=3.1",
            10,
            None,
            9.101,
        ),
        ("trainer INFO: Epoch 1/10 Step 2/100 Train step 2/1000 done.", 2, 1000, None),
        ("1|25|Loss: 1.2345:   5%|5         | 25/500 [00:50<16:00,  2.02s/it]", 25, 500, 1.2345),
        ("2|525|Loss: 1.1034:   5%|5         | 25/500 [00:50<16:00,  2.02s/it]", 525, None, 1.1034),
        ("pretrain:  34%|###3      | 1020/3000 [10:00<19:24, 1.70it/s, loss=2.1]", 1020, 3000, 2.1),
        (
            "Train step of epoch 0:  10%|#         | 10/100 [00:10<01:30,  1.0s/it, gpt_loss=1.23, lr=9.1e-06]",
            10,
            100,
            1.23,
        ),
    ],
)
def test_plain_lines_that_name_a_step_and_a_metric(line: str, step: int, total: int | None, loss: float | None) -> None:
    summary = summary_of(line + "\n", "sft")

    assert (summary.progress.step, summary.progress.total) == (step, total)
    assert loss is None or summary.metrics["loss"] == loss


@pytest.mark.parametrize(
    "line",
    [
        '  File "/opt/app/train.py", line 90, in training_step',
        "Setting the number of warmup steps to 100 as loss spikes were seen",
        "srun: Terminating job step 405737.0",
        "next step: download 3 files",
        "{'model': {'hidden_size': 4096, 'num_hidden_layers': 32}, 'learning_rate': 1e-05}",
        "Traceback (most recent call last): step 9",
        "Epoch 3 begins, iter 4 of the outer loop",
        "12:00:00 DEBUG Micro Step 3/8 | Loss: 0.0112 | Entropy: 0.3123 | Mismatch KL: 0.0011",
        "validation step 3/50 loss 2.31",
        "warmup steps: 100, loss scale 1.0",
    ],
)
def test_prose_with_a_step_in_it_is_no_progress(line: str) -> None:
    assert [reading for reading in readings_of(line + "\n") if reading.step is not None] == []


def test_a_total_in_some_other_programs_settings_is_not_the_trainers() -> None:
    """SFT-1: an agent's step limit or a scheduler's print is hearsay beside the training bar."""
    log = (
        "agent config: max_steps: 30, max_tokens: 4096\n(WorkerDict pid=7) Total steps: 560, num_warmup_steps: 0\n"
        "Training Progress:   3%|3         | 1/30000 [10:41<5:09:58, 641.31s/it]\n"
    )

    assert summary_of("max_steps: 30\n").progress.total is None
    assert summary_of(log).progress.total == 30000


def test_a_total_below_the_step_is_not_shown() -> None:
    assert summary_of("Total steps: 30\nstep 31 loss 1.5\n").progress.total is None


def test_elastic_names_the_ranks_it_saw_fail() -> None:
    """FIND-7: it echoes a death."""
    log = (
        "E0801 12:00:00.123456 4100 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: "
        "-9) local_rank: 3 (pid: 4123) of binary: /opt/venv/bin/python\n"
        "  exitcode  : -9 (pid: 4123) (SIGKILL)\n"
    )
    (first, second) = summary_of(log).failures

    assert "local_rank: 3" in first.said.text
    assert "SIGKILL" in second.said.text


def test_pipeline_workers_of_iris_count_shards() -> None:
    log = (
        "[12:34:56] task=/alice/prep/0 attempt=0 | [stage0-Map → Scatter] 347/1964 complete, 1617 "
        "in-flight, 0 queued, 1828/1891 workers alive, 63 dead\n"
    )
    progress = summary_of(log).progress

    assert (progress.step, progress.total) == (347, 1964)


def test_losses_on_held_out_data_are_not_the_training_loss() -> None:
    log = "step 250: train loss 2.1012, val loss 2.3011\n"
    summary = summary_of(log, "sft")

    assert (summary.metrics["loss"], summary.latest["eval_loss"].value) == (2.1012, 2.3011)


def test_losses_of_other_parts_are_not_the_policys() -> None:
    log = "Epoch: 0 | Step: 120 | Actor Loss: 0.0123 | Critic Loss: 0.4 | Unsupervised Loss: 0.1\n"

    assert summary_of(log, "rl").metrics == {"policy_loss": 0.0123}
    assert summary_of("step 3 kl loss 0.5, value loss 0.2, total loss 1.5\n", "sft").metrics == {"loss": 1.5}


def test_fields_between_bars_may_have_names_of_several_words() -> None:
    log = "12:00:00 INFO Step 10 | Time: 12.31s | Loss: 0.0112 | Entropy: 0.3123 | Grad. Norm: 0.0512 | LR: 1.00e-06 | MFU: 12.1%\n"

    assert summary_of(log, "rl").metrics == {"policy_loss": 0.0112, "grad_norm": 0.0512, "entropy": 0.3123}


def test_a_list_below_its_step_belongs_to_it() -> None:
    """Composer and OLMo name the step, then list metrics on lines of their own."""
    composer = "[batch=10/500]:\n\t Train time/batch: 9\n\t Train loss/train/total: 1.2345\n[batch=11/500]:\n\t Train loss/train/total: 1.2301\n"
    olmo = (
        "2026-08-01 12:00:00 INFO [step=10/477000,epoch=0]\n    optim/total_grad_norm=0.5012\n"
        "    train/CrossEntropyLoss=10.91\n    train/Perplexity=5000\n"
    )
    series = summary_of(composer, "sft").series["loss"]

    assert [(point.step, point.value) for point in series] == [(10, 1.2345), (11, 1.2301)]
    summary = summary_of(olmo, "sft")
    assert (summary.progress.step, summary.progress.total, summary.metrics["loss"]) == (10, 477000, 10.91)
    assert summary.metrics["grad_norm"] == 0.5012


def test_an_epochs_line_without_a_step_gives_its_loss_and_is_progress() -> None:
    """LIVE-4: hand-written loops that speak once an epoch are alive."""
    summary = summary_of("Epoch 4/20, Loss: 0.3512\nEpoch 5/20, Loss: 0.3123\n", "sft")

    assert (summary.progress.step, summary.metrics) == (None, {"loss": 0.3123, "epoch": 5.0})
    assert summary.last_progress is not None


def test_a_row_of_fields_with_a_loss_and_no_step_is_progress() -> None:
    """LIVE-4: such a loop prints one line an epoch, of batches that start again each time."""
    summary = summary_of(
        "Epoch 6: 01/08/2026 08:59:56\nflow_b - 1024/1024 (10m 4s)      | loss = 0.412     | ll = -0.121\n", "sft"
    )

    assert (summary.progress.step, summary.metrics["loss"]) == (None, 0.412)
    assert summary.last_progress is not None


def test_the_supervised_trainer_of_verl_is_fine_tuning() -> None:
    """SFT-1: its learning rate is printed in units of its own."""
    summary = summary_of("step:12 - train/loss:0.312 - train/lr(1e-3):0.01 - train/grad_norm:0.8\n")

    assert (summary.progress.step, summary.bucket) == (12, "sft")
    assert summary.metrics == {"loss": 0.312, "grad_norm": 0.8, "learning_rate": pytest.approx(1e-5)}


def test_slime_tells_pass_rates_and_spans_of_its_trainer() -> None:
    """RL-12, LIVE-4: of several numbers of tries the largest counts; a span that begins is progress."""
    log = (
        "(TrainActor pid=10) [2026-03-24 07:36:50] data.py:212 - passrate 9: {'passrate/pass@1': 0.31, 'passrate/pass@8': 0.75}\n"
        "(TrainActor pid=10) [2026-03-24 07:36:51] timer.py:24 - Timer actor_train start\n"
    )
    summary = summary_of(log, "rl")

    assert summary.metrics == {"pass_at_n": 0.75}
    assert [(timer.name, timer.open_since is not None) for timer in summary.timers] == [("actor_train", True)]
    ended = summary_of(log + "(TrainActor pid=10) timer.py:32 - Timer actor_train end (elapsed: 12.5s)\n", "rl")
    assert [(timer.took_s, timer.open_since) for timer in ended.timers] == [(12.5, None)]


def test_what_is_saved_at_a_step_has_reached_it() -> None:
    """RL-8: said by the trainer; a directory's own number is not taken for it."""
    megatron = "saving checkpoint at iteration       2 to ./ckpt\nsaving checkpoint at iteration       4 to ./ckpt\n"
    nemo = (
        "Saving checkpoint for step 2...\n"
        "(MegatronPolicyWorker[rank=0] pid=19) saving checkpoint at iteration       0 to /fsx/run/tmp_step_2/policy in torch_dist format\n"
        "(MegatronPolicyWorker[rank=0] pid=19)   successfully saved checkpoint from iteration       0 to /fsx/run/tmp_step_2/policy\n"
    )
    trainer = "Saving model checkpoint to /out/from-checkpoint-500/checkpoint-20\n"

    assert (summary_of(megatron).progress.step, summary_of(megatron).checkpoint_step) == (4, None)
    assert (summary_of(nemo).progress.step, summary_of(nemo).checkpoint_step) == (2, 2)
    assert (summary_of(trainer).progress.step, summary_of(trainer).checkpoint_step) == (20, 20)
    assert summary_of("Saving model checkpoint to /models/checkpoint-500/merged\n").progress.step is None


def test_the_trainers_last_dict_gives_steps_where_no_bar_did() -> None:
    """SFT-1: from its time and rate, where their digits suffice."""
    last = "{{'train_runtime': {took}, 'train_samples_per_second': 9.1, 'train_steps_per_second': {rate}, 'train_loss': 1.1, 'epoch': 3.0}}\n"
    sure, unsure = last.format(took=400.25, rate=1.22), last.format(took=40000.25, rate=1.22)

    assert (summary_of(sure).progress.step, summary_of(sure).progress.total) == (488, 488)
    assert summary_of(unsure).progress.step is None
    assert summary_of(sure).metrics == {"epoch": 3.0}


def test_a_bar_over_a_pass_of_the_batch_is_no_step_beside_the_bar_of_the_run() -> None:
    """RL-14: OpenRLHF draws one for each pass; its count goes back each time, and the run's does not."""
    log = "".join(
        f"Episode [1/2]:  {step}%|4  | {step}/100 [0{step}:00<1:00:00, 50.0s/it]\r"
        + "".join(f"Train epoch [1/1]:  {at}%|4  | {at}/64 [00:{at:02d}<00:50,  1.0s/it]\r" for at in (0, 20, 64))
        + f"\n(PPOTrainer pid=3) INFO 08-01 12:0{step}:00 x.py:1] Global step {step + 1}: {{'policy_loss': 0.01, 'reward': 0.4}}\n"
        for step in range(5)
    )
    summary = summary_of(log)

    assert (summary.progress.step, summary.progress.total, summary.resumes) == (5, 200, ())
    assert [point.step for point in summary.series["reward"]] == [1, 2, 3, 4, 5]


def test_a_generators_word_of_rewards_gives_way_to_the_trainers() -> None:
    aside = "(gen pid=14984) rollout batch 7 ready mean_reward=0.380\n"
    trained = "step:7 - actor/pg_loss:0.01 - critic/score/mean:0.41\n"

    assert summary_of(f"step 6/8 policy_loss=-0.0090\n{aside}", "rl").metrics["reward"] == 0.38
    assert summary_of(trained + aside, "rl").metrics["reward"] == 0.41
    assert summary_of(aside + trained, "rl").metrics["reward"] == 0.41


def test_a_bar_that_gets_its_name_after_its_first_frame_was_never_the_trainers() -> None:
    """BUCKET-3: a step of 0 that nobody printed is no step."""
    first, named = (
        "  0%|          | 0/58 [00:00<?, ?it/s]\r",
        "Capturing sizes:   0%|          | 0/58 [00:00<?, ?it/s]\r",
    )

    assert summary_of(first, "eval").progress.step == 0
    assert (summary_of(first + named, "eval").progress.step, summary_of(first + named).progress.total) == (None, None)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("(WorkerDict pid=7) [rank-0]: Saved model to /ckpt/global_step_10/actor/model_world_size_8_rank_0.pt", 10),
        ("Saved checkpoint to /ckpt/run-1/step-200 for step 200", 200),
        ("Checkpoint for step 300 saved.", 300),
        ("Saved checkpoint: checkpoints/step_500.pt", 500),
    ],
)
def test_the_word_of_a_saved_checkpoint_is_heard(line: str, step: int) -> None:
    """RL-8"""
    assert summary_of(line + "\n").checkpoint_step == step
