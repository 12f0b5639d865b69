"""``supervisorctl demo``: a live minute. A real daemon ticks every few seconds over real small processes on this machine."""

from __future__ import annotations

import argparse
from typing import Any

CONFIG = """\
# Written by `supervisorctl demo`. A silence of {silence} s makes suspect here, so that a minute shows it; usual are 15 minutes.
state_dir  = "state"
agent_logs = "agent_logs"
interval_s = 5

[[cluster]]
name = "box"
kind = "host"

[limits]
silence_floor_s  = {silence}
silence_multiple = 3
bring_up_limit_s = 20
suspect_look_s   = 5
"""

HEALTHY = """\
import json, random, time
for step in range(1, 600):
    time.sleep(1)
    passed = round(64 * min(0.8, 0.35 + 0.004 * step + random.uniform(-0.05, 0.05)))
    metrics = {"reward/avg_raw_reward": passed / 64, "reward/avg_pass_at_8": min(1.0, passed / 64 + 0.2),
               "policy/policy_loss": random.uniform(-0.1, 0.02), "policy/raw_grad_norm": random.uniform(0.01, 0.03),
               "policy/policy_entropy": 0.42 - 0.0002 * step, "policy/tis/imp_ratio_mean": random.uniform(0.97, 1.03),
               "policy/tis/log_ratio_abs_mean": random.uniform(0.008, 0.014), "async/effective_batch_samples": 64,
               "trainer/global_step": step}
    stamp = time.strftime("%Y-%m-%d %H:%M:%S.000", time.gmtime())
    print(f"(skyrl_entrypoint pid=7) {stamp} | INFO | trainer:_log_metrics_stdout:1965 - "
          f"WANDB_MIRROR kind=train step={step} metrics={json.dumps(metrics)}")
    bar = f"{100 * step // 600:3d}%|#         | {step}/600 [00:{step % 60:02d}<10:00, 1.00s/it]"
    print(f"Training Step Progress: {bar}", flush=True)
"""
STALLS = """\
import time
print("***** Running training *****\\n  Num examples = 4,800\\n  Num Epochs = 2\\n  Total optimization steps = 600")
for step in range(1, 9):
    bar = f"\\r{step // 6:3d}%|          | {step}/600 [00:0{step}<09:5{step}, 1.00s/it]"
    said = {"loss": round(1.6 - step / 50, 4), "grad_norm": 0.84, "learning_rate": 1e-05, "epoch": round(step / 300, 2)}
    print(f"{bar}\\r{said}\\n{bar}", end="", flush=True)
    time.sleep(1)
print("\\nwaiting for rank 3", flush=True)
time.sleep(600)
"""
CRASHES = """\
import time

def load(path):
    return open(path).read()

for done in range(1, 15):
    print(f"  {done}/60 Mean: {0.5 + done / 200:.3f} \u2501\u2501\u2501\u2501 0:00:{done:02d} 0:00:45")
    print(f"[driver] chunks_done={done // 5} chunks_total=12 avg_turns=5.{done % 10} exc_rate=0.19", flush=True)
    time.sleep(1)
load("/data/shards/part-0015.parquet")
"""
ENDS_WELL = """\
import time
for done in range(1, 13):
    print(f"task-{done}__demo | Trial completed reward={1.0 if done % 3 else 0.0}")
    print(f"  {done}/12 Mean: {(done - done // 3) / done:.3f} \u2501\u2501\u2501\u2501 0:00:{done:02d} 0:00:10", flush=True)
    time.sleep(1.5)
print("all trials done")
"""
PLAIN = """\
import time
for rows in range(0, 400):
    print(f"pushed {rows * 1000} rows", flush=True)
    time.sleep(1)
"""
JOBS = (
    ("rl__healthy", HEALTHY, "prints a step and its metrics every second"),
    ("sft__stalls", STALLS, "stops writing after 8 s, and goes on running"),
    ("datagen__crashes", CRASHES, "dies of an exception after 14 s"),
    ("eval-ends-well", ENDS_WELL, "ends with exit status 0 after 18 s"),
    ("consolidate-rows", PLAIN, "prints a plain line every second"),
)


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "demo",
        help="a first minute with real processes on this machine",
        description="Start five small processes, one of each kind of work (one stops writing, one crashes, one ends well), and a"
        " daemon that ticks every few seconds; watch the table move; read the dated log at the end. Nothing is left running.",
        epilog="example: supervisorctl demo --seconds 60",
    )
    made.add_argument("--seconds", type=float, default=60, metavar="S", help="how long (default 60)")
    made.add_argument("--dir", metavar="D", help="folder for config, state and logs (default: a new one, kept)")


def run(args: argparse.Namespace) -> int:
    import subprocess
    import sys
    import tempfile
    from pathlib import Path

    from supervisor.model.errors import UsageError

    if not 10 <= args.seconds <= 3600:
        raise UsageError("demo: --seconds must be from 10 to 3600")
    folder = (
        Path(args.dir).expanduser().absolute() if args.dir else Path(tempfile.mkdtemp(prefix="fleet-supervisor-demo-"))
    )
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.toml"
    config.write_text(CONFIG.format(silence=12), encoding="utf-8")
    me = [sys.executable, "-m", "supervisor.app.ctl", "--config", str(config)]
    print(f"demo in {folder}\n\nfive processes, started by `supervisorctl launch`:")
    pids = []
    for name, program, what in JOBS:
        script = folder / f"{name}.py"
        script.write_text(program, encoding="utf-8")
        pids.append(
            _launch([*me, "launch", "--json", "--name", name, "--cwd", str(folder), "--", sys.executable, script.name])
        )
        print(f"  {name:<18} {what}")
    log = folder / "supervisord.log"
    print(f"\na daemon, `supervisord --config {config}`, ticking every 5 s (its own log: {log})\n", flush=True)
    with log.open("wb") as file:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "supervisor.app.daemon", "--config", str(config)], stdout=file, stderr=file
        )
    try:
        _show(me, daemon, args.seconds)
    finally:
        _stop(daemon, pids)
    return _harvest(folder, daemon.returncode, log)


def _launch(command: list[str]) -> int:
    """Pid of the process started. Raises SupervisorError with what the command said."""
    import json
    import subprocess

    from supervisor.model.errors import SupervisorError

    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SupervisorError(f"demo: {done.stderr.strip() or 'launch failed'}")
    return int(json.loads(done.stdout)["pid"])


def _show(me: list[str], daemon: Any, seconds: float) -> None:
    """The table again and again: in place on a terminal, a few times where the output is a file."""
    import subprocess
    import sys
    import time

    live = sys.stdout.isatty()
    every = 2.0 if live else max(5.0, seconds / 5)
    began = time.monotonic()
    while (left := seconds - (time.monotonic() - began)) > 0 and daemon.poll() is None:
        time.sleep(min(every, left))
        if live:
            sys.stdout.write("\x1b[H\x1b[2J")
        print(f"── {seconds - max(0.0, seconds - (time.monotonic() - began)):.0f} of {seconds:.0f} s", flush=True)
        subprocess.run([*me, "status"], check=False)
        if live:
            print(
                "\nwatch sft__stalls turn suspect, datagen__crashes terminal with its cause, eval-ends-well terminal (completed)"
            )


def _stop(daemon: Any, pids: list[int]) -> None:
    """End what was started here, by its own id and nothing else."""
    import contextlib
    import os
    import signal
    import subprocess

    if daemon.poll() is None:
        daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(timeout=40)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGTERM)


def _harvest(folder: Any, status: int, log: Any) -> int:
    """Print the dated records; exit 1 if the daemon did not end well or left none."""
    import sys

    from supervisor.reports.text import plain

    records = sorted((folder / "agent_logs").glob("*.md"))
    sweeps = [path for path in records if path.name.endswith("_sweep.md")]
    if status != 0 or not sweeps:
        sys.stderr.write(f"supervisorctl: demo: the daemon ended with status {status}; its log: {log}\n")
        return 1
    print("\nThe dated records it wrote:")
    for path in records:
        print(f"  {path}")
    for path in [*(path for path in records if path not in sweeps), sweeps[-1]]:
        text = path.read_text(encoding="utf-8")
        shown = text if path not in sweeps else "## " + text.rpartition("\n## ")[2].removeprefix("## ")
        print(f"\n── {path.name}{' (its last entry)' if path in sweeps else ''}\n")
        print("\n".join(plain(line) for line in shown.splitlines()))
    print(f"\nKept in {folder}. Next: `supervisorctl init` writes a config for your own clusters.")
    return 0
