"""Runs in good health, each in its own way: what they print, minute by minute, over one long shift.

Each is what the rulebook calls normal though a careless eye might not: long evaluations, slow saves, flat rewards, spikes of a
warm-up, resumes, bars that begin anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from random import Random

from tests.stories import voices

SHIFT = 8 * 60
"""Minutes."""
Said = Iterator[tuple[float, str]]
"""(minute since the job's start, text), in order."""
BEGAN = datetime(2026, 7, 1, 6, 0)
TRAINER = "\x1b[36m(skyrl_entrypoint pid=4100)\x1b[0m "
RUNNER = "\x1b[36m(TaskRunner pid=386)\x1b[0m "


def at(minute: float) -> datetime:
    return BEGAN + timedelta(minutes=minute)


def every(minutes: float, until: float = SHIFT, since: float = 0) -> Iterator[tuple[int, float]]:
    """(number from 1, minute)."""
    number = 1
    while since + number * minutes < until:
        yield number, since + number * minutes
        number += 1


def merged(*said: Iterable[tuple[float, str]]) -> Said:
    yield from sorted((each for one in said for each in one), key=lambda each: each[0])


# -- reinforcement learning ----------------------------------------------------------------------------------------------


def rl(
    minutes: float = 7,
    *,
    first: int = 1,
    since: float = 0,
    until: float = SHIFT,
    seed: int = 7,
    change: Callable[[int], dict[str, float]] = lambda step: {},
    **kind: object,
) -> Said:
    chance = Random(seed)
    for number, minute in every(minutes, until, since):
        step = first + number - 1
        values = voices.healthy(step, chance, **kind) | change(step)  # type: ignore[arg-type]
        yield minute, voices.rl_step(step, values, at(minute), 400)


def spans(name: str, period: float, took: float) -> Said:
    """A timer's span that comes again and again, silent in between."""
    for _, minute in every(period):
        yield (
            minute,
            f"{TRAINER}{at(minute):%Y-%m-%d %H:%M:%S}.000 | INFO | skyrl_train.utils:enter:1 - Started: '{name}'\n",
        )
        end = minute + took
        yield (
            end,
            (
                f"{TRAINER}{at(end):%Y-%m-%d %H:%M:%S}.000 | INFO | skyrl_train.utils:exit:1 - "
                f"Finished: '{name}', time cost: {60 * took:.2f}s\n"
            ),
        )


def buffer(per_step: float, size: int = 64) -> Said:
    """The buffer's bar between steps that are far apart."""
    for number, minute in every(per_step / 16):
        done = number % 16 * size // 16
        yield (
            minute,
            f"Generation Buffer Progress: {done}/{size} ({100 * done // size}%) [{int(60 * minute)}s] | buffer qsize=3\n",
        )


def rl_with_long_evaluations() -> Said:
    for lap in range(4):
        begins = lap * 120.0
        yield from rl(7, first=9 * lap + 1, since=begins, until=begins + 64)
        for number, minute in every(2, begins + 118, begins + 64):
            yield minute, f"Evaluation:  {2 * number}%|###   | {number}/27 [{2 * number}:00<30:00, 120.00s/it]\n"


def rl_resumed() -> Said:
    yield (
        4,
        f"{TRAINER}{at(4):%Y-%m-%d %H:%M:%S}.000 | INFO | skyrl_train.trainer:fit:1 - Resuming from global_step: 40\n",
    )
    yield from rl(first=41, since=6)


def rl_with_noise() -> Said:
    noise = (
        "(RolloutCoordinator pid=54) ContextLengthExceededError: 42050 input tokens > 38957 max\n"
        "(RolloutCoordinator pid=54) task-7__ab12c | Trial failed (AgentTimeoutError: Agent execution timed out after 900 seconds)\n"
        "(EngineCore_DP0 pid=64) INFO 07-01 12:00:00 [shm_broadcast.py:542] No available shared memory broadcast block found in 60 seconds.\n"
    )
    yield from merged(rl(), ((minute, noise) for _, minute in every(3)))


def rl_with_stale_groups() -> Said:
    stale = (
        f"{TRAINER}2026-07-01 06:10:00.000 | WARNING | t:f:1 - All 8 groups in mini-batch were stale and discarded "
        "(max_staleness_steps=2). Training will wait for fresh generation data.\n"
    )
    yield from merged(rl(), ((minute, stale) for _, minute in every(50)))


def rl_filling_slowly() -> Said:
    """An hour and twenty minutes of loading before the first step."""
    for number, minute in every(4, 78):
        yield (
            minute,
            f"Loading safetensors checkpoint shards: {5 * number}% Completed | {number}/20 [{4 * number}:00<10:00, 240.0s/it]\n",
        )
    yield from rl(since=76)


def evaluates_first() -> Said:
    for number, minute in every(5, 130):
        yield minute, f"Evaluation:  {number}%|###   | {number}/27 [{5 * number}:00<30:00, 300.00s/it]\n"
    yield from rl(since=130)


def verl() -> Said:
    chance = Random(3)
    for step, minute in every(9):
        yield (
            minute,
            (
                f"{RUNNER}step:{step} - actor/entropy:{chance.uniform(0.4, 0.45):.4f} - actor/pg_loss:{chance.uniform(-0.02, 0.02):.5f} - "
                f"actor/grad_norm:{chance.uniform(0.1, 0.3):.4f} - critic/score/mean:{0.2 + step / 300:.4f} - timing_s/step:540.1\n"
                f"{RUNNER}Training Progress: {step}%|3   | {step}/200 [{9 * step}:00<20:00:00, 540.00s/it]\n"
            ),
        )


def slow_verl(minutes: float) -> Said:
    """Nothing that counts is printed between two steps; only the bar tells how long one takes."""
    for step, minute in every(minutes):
        yield (
            minute,
            (
                f"{RUNNER}step:{step} - actor/pg_loss:0.001 - actor/grad_norm:0.2 - critic/score/mean:0.3 - timing_s/step:2700.1\n"
                f"{RUNNER}Training Progress: {step}%|3   | {step}/200 [{minutes * step // 60:.0f}:{minutes * step % 60:02.0f}:00<20:00:00, 2700.00s/it]\n"
            ),
        )


def openrlhf() -> Said:
    for step, minute in every(8):
        bars = "".join(f"Train epoch [1/1]: {n}%|4  | {n}/64 [00:{n % 60:02d}<00:50,  1.0s/it]\r" for n in (0, 20, 64))
        yield (
            minute,
            (
                f"Episode [1/2]:  {step}%|4  | {step - 1}/300 [{8 * step}:00<1:00:00, 480.0s/it]\r{bars}\n"
                f"(PPOTrainer pid=3) INFO 07-01 12:00:00 ppo_trainer.py:120] Global step {step}: "
                f"{{'policy_loss': 0.01, 'reward': {0.3 + step / 500:.4f}, 'kl': 0.02, 'ppo_clip_ratio': 0.002}}\n"
            ),
        )


def trl() -> Said:
    """A loss of 0 is GRPO's way, and no sign."""
    chance = Random(5)
    for step, minute in every(3):
        yield (
            minute,
            (
                f"{{'loss': 0.0, 'grad_norm': {chance.uniform(0.1, 0.4):.4f}, 'learning_rate': 1e-06, 'reward': {0.4 + step / 1000:.4f}, "
                f"'reward_std': 0.2, 'kl': 0.0003, 'entropy': 0.41, 'epoch': {step / 200:.2f}}}\n"
                f"\r {step}%|3   | {step}/400 [{3 * step}:00<20:00:00, 180.00s/it]"
            ),
        )


# -- fine-tuning ---------------------------------------------------------------------------------------------------------


def sft(s_per_step: int = 30, *, first: int = 1, since: float = 0, until: float = SHIFT, **more: object) -> Said:
    """The banner, then bars and dicts of the steps of each quarter of an hour or less."""
    step, minute = first, since + 1.0
    while minute < until:
        text = voices.sft_run(step, step, 2000, s_per_step=s_per_step, **more)  # type: ignore[arg-type]
        yield minute, text if step == first else text[text.index("\r") :]
        step, minute = step + 1, minute + s_per_step / 60


def sft_pausing(period: float, took: float, between: Callable[[float, float, int], Said]) -> Said:
    """Training that stops now and then for something else."""
    step, begins = 1, 0.0
    while begins < SHIFT:
        said = list(sft(first=step, since=begins, until=begins + period - took))
        if step > 1:
            said[0] = (said[0][0], said[0][1][said[0][1].index("\r") :])
        yield from said
        step, begins = step + len(said), begins + period
        yield from between(begins - took, took, step - 1)


def evaluation(begins: float, took: float, step: int) -> Said:
    """A bar without a name below the trainer's; then the trainer's is drawn again, as it stood, with the time that passed."""
    for number, minute in every(1, begins + took, begins):
        yield minute, f"\n {number}%|2   | {number}/{int(took)} [{number}:00<10:00, 60.00s/it]\x1b[A"
    redrawn = f"\r {step // 20}%|2   | {step}/2000 [{int(took)}:30<16:01:00, 30.00s/it]"
    yield begins + took, f"\r{redrawn}\r{{'eval_loss': 1.31, 'eval_runtime': 2400.1, 'epoch': 0.1}}\n{redrawn}"


def save(begins: float, took: float, step: int) -> Said:
    yield begins, "Saving model checkpoint to /scratch/alice/out/checkpoint-100\n"


def packed() -> Said:
    for number, minute in every(2, 50):
        yield (
            minute,
            f"Packing train dataset (num_proc=16): {number}%|2 | {number}0000/400000 [{2 * number}:00<30:00, 812.5 examples/s]\r",
        )
    yield from sft(since=50)


def spiky() -> Said:
    high = "{'loss': 3.9, 'grad_norm': 24.0, 'learning_rate': 1e-05, 'epoch': 0.1}"
    yield from sft(changes=dict.fromkeys(range(50, 2000, 60), high))


def warming_up() -> Said:
    falls = {
        step: f"{{'loss': {9 - step / 10:.3f}, 'grad_norm': {130 / step:.3f}, 'learning_rate': {step}e-07, 'epoch': 0.01}}"
        for step in range(1, 40)
    }
    yield from sft(changes=falls)


def lightning() -> Said:
    for number, minute in every(2):
        epoch, batch = divmod(number, 40)
        yield (
            minute,
            f"Epoch {epoch}: {batch}%|3   | {batch}/40 [{2 * batch}:00<40:00, 120.00s/it, v_num=0, train_loss=0.41]\r",
        )


def bars_by_hand() -> Said:
    """``for epoch in range(…): for batch in tqdm(loader, desc='Training')``."""
    for number, minute in every(2):
        batch = number % 26
        yield (
            minute,
            f"Training: {batch}%|3   | {batch}/25 [{2 * batch}:00<40:00, 120.00s/it, loss=1.2]\r"
            + "\n" * (batch == 25),
        )


def epochs_by_hand() -> Said:
    for number, minute in every(12):
        yield minute, f"Epoch {number}/100, Loss: {2.0 / number:.4f}\n"


def torchtitan() -> Said:
    yield 3, f"[titan] {at(3):%Y-%m-%d %H:%M:%S},000 - root - INFO - Training starts at step 1\n"
    for number, minute in every(5, since=3):
        yield (
            minute,
            (
                f"[titan] {at(minute):%Y-%m-%d %H:%M:%S},000 - root - INFO - \x1b[31mstep: {10 * number:2}  \x1b[32mloss: {9 - number / 20:8.5f}  "
                "\x1b[38;2;180;60;0mgrad_norm:  1.4604  \x1b[34mtps: 7,034  \x1b[35mmfu: 41.19%\x1b[39m\n"
            ),
        )


def megatron() -> Said:
    for number, minute in every(11):
        yield (
            minute,
            (
                f" iteration {100 * number:8d}/  500000 | consumed samples: {1024 * number} | learning rate: 1.2E-04 | lm loss: 2.1E+00 | "
                "grad norm: 0.213 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
            ),
        )


def only_dicts() -> Said:
    for step, minute in every(4):
        yield (
            minute,
            f"{{'loss': '{2 - step / 200:.3f}', 'grad_norm': '0.7', 'learning_rate': '1e-05', 'epoch': '{step / 100:.4g}'}}\n",
        )


def two_stages() -> Said:
    for lap, begins in enumerate((0.0, 240.0)):
        for step, minute in every(2, begins + 221, begins):
            last = (
                f"{{'loss': 1.{9 - lap}, 'grad_norm': 0.8, 'learning_rate': 1e-05, 'epoch': {step / 110:.2f}}}\n"
                if step % 5 == 0
                else ""
            )
            yield minute, f"{last}\r {step}%|3   | {step}/110 [{2 * step}:00<1:00:00, 120.00s/it]"
        yield (
            begins + 222,
            "\n{'train_runtime': 13200.5, 'train_steps_per_second': 0.008, 'train_loss': 1.5, 'epoch': 1.0}\n",
        )
        yield begins + 230, "second stage\n"


# -- traces and evaluations ----------------------------------------------------------------------------------------------


def harbor(minutes: float, planned: int, *, mean: float = 0.53) -> Said:
    for number, minute in every(minutes):
        yield minute, voices.trials([number], planned, mean)


def many_timeouts(share: float, minutes: float = 3) -> Said:
    """EVAL-3, DATAGEN-2: trials that run out of time are scored all the same."""
    chance = Random(11)
    for number, minute in every(minutes):
        late = chance.random() < share
        yield (
            minute,
            (
                voices.trial(
                    f"task-{number}__a", failed="AgentTimeoutError: Agent execution timed out after 3600 seconds"
                )
                if late
                else voices.trial(f"task-{number}__a", reward=1.0 if number % 2 else 0.0)
            ),
        )


def with_engine(said: Said) -> Said:
    yield from merged(said, ((minute, voices.engine(at(minute))) for _, minute in every(2)))


def hard_tail() -> Said:
    """The last trials of a hard set take most of an hour each."""
    yield from ((minute, voices.trials([number], 105, 0.2)) for number, minute in every(2, 202))
    yield from ((200 + 55 * number, voices.trials([100 + number], 105, 0.2)) for number in range(1, 5))


def standard_eval() -> Said:
    for number, minute in every(3):
        yield (
            minute,
            f"Running generate_until requests: {number}%|4  | {number}/170 [{3 * number}:00<1:00:00, 180.0s/it]\r",
        )


def with_health_checks() -> Said:
    look = 'INFO:     10.0.0.1:44565 - "GET /health HTTP/1.1" 503 Service Unavailable\n'
    work = 'INFO:     10.0.0.1:44566 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    yield from merged(
        harbor(4, 300),
        ((minute, look) for _, minute in every(1, 30)),
        ((minute, work) for _, minute in every(2, since=30)),
    )


def tally() -> Said:
    for number, minute in every(10):
        yield minute, voices.tally(number // 3, 20, 100 * number, 5.1, 0.53, 0.22)


def json_steps() -> Said:
    for step, minute in every(6):
        yield minute, json.dumps({"step": step, "loss": 2.0 - step / 100, "lr": 1e-5, "grad_norm": 0.6}) + "\n"


def a_line(minutes: float, text: str) -> Said:
    for number, minute in every(minutes):
        yield minute, f"{text} {number}\n"


def spikes(first: int, last: int, size: float, step_between: int = 1) -> Callable[[int], dict[str, float]]:
    high = set(range(first, last + 1, step_between))
    return lambda step: {"policy/raw_grad_norm": size / (1 + step // 2)} if step in high else {}


def entropy(step: int) -> dict[str, float]:
    return {"policy/policy_entropy": max(0.05, 0.6 - 0.005 * step)}


RUNS: dict[str, Callable[[], Iterable[tuple[float, str]]]] = {
    "rl__plain": rl,
    "rl__shaped": lambda: rl(shaped=True, reward=0.62, scale=0.006),
    "rl__flat": lambda: rl(change=lambda step: {"reward/avg_raw_reward": 0.25}),
    "rl__steps_of_28_min": lambda: rl(28),
    "rl__steps_of_an_hour": lambda: merged(rl(62), buffer(62)),
    "rl__steps_of_45_min_and_no_other_sign": lambda: slow_verl(45),
    "rl__long_evaluations": rl_with_long_evaluations,
    "rl__slow_saves": lambda: merged(rl(12), spans("save_checkpoints", 120, 24)),
    "rl__warm_up_spikes": lambda: rl(change=spikes(1, 6, 9.0)),
    "rl__single_spikes": lambda: rl(change=spikes(14, 400, 60.0, 15)),
    "rl__entropy_falls": lambda: rl(change=entropy),
    "rl__resumed": rl_resumed,
    "rl__seqnorm": lambda: rl(scale=1e-5, change=lambda step: {"policy/tis/log_ratio_abs_mean": 2e-5 * (1 + step % 3)}),
    "rl__norms_above_one": lambda: rl(scale=4.0),
    "rl__noisy_log": rl_with_noise,
    "rl__stale_groups": rl_with_stale_groups,
    "rl__fills_slowly": rl_filling_slowly,
    "rl__zclip_ablation": lambda: rl(change=lambda step: voices.BROKEN if step in range(30, 36) else {}),
    "rl__agentic_engines": lambda: with_engine(rl()),
    "rl__steps_of_an_hour_of_trials": lambda: merged(rl(65), many_timeouts(0.4, 4)),
    "rl__evaluates_first": evaluates_first,
    "rl__verl": verl,
    "rl__openrlhf": openrlhf,
    "rl__trl": trl,
    "sft__plain": sft,
    "sft__long_evaluations": lambda: sft_pausing(80, 40, evaluation),
    "sft__slow_saves": lambda: sft_pausing(60, 13, save),
    "sft__packed": packed,
    "sft__spikes": spiky,
    "sft__warm_up": warming_up,
    "sft__lightning": lightning,
    "sft__bars_by_hand": bars_by_hand,
    "sft__epochs_by_hand": epochs_by_hand,
    "sft__torchtitan": torchtitan,
    "sft__megatron": megatron,
    "sft__only_dicts": only_dicts,
    "sft__json": json_steps,
    "sft__two_stages": two_stages,
    "sft__slow_steps": lambda: sft(600),
    "datagen__trials": lambda: many_timeouts(0.22),
    "datagen__slow": lambda: harbor(25, 500),
    "datagen__engine": lambda: with_engine(harbor(3, 500)),
    "datagen__tally": tally,
    "datagen__health_checks": with_health_checks,
    "eval-hard": lambda: many_timeouts(0.7, 5),
    "eval-hard-tail": hard_tail,
    "eval-standard": standard_eval,
    "eval-harbor": lambda: with_engine(harbor(6, 300, mean=0.21)),
    "eval-all-zero": lambda: harbor(5, 300, mean=0.0),
    "consolidate-rows": lambda: a_line(12, "pushing rows"),
    "upload-model": lambda: a_line(3, "uploaded shard"),
}
