"""``supervisorctl demo``: a live minute. A real daemon ticks every few seconds over real small processes on this machine."""

from __future__ import annotations

import argparse
from typing import Any

CONFIG = """\
# Written by `supervisorctl demo`. A silence of {silence} s makes suspect here, so that a minute shows it; the default is 15 minutes.
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

HEALTHY = "import time\nfor n in range(1, 600):\n    print(f'step {n}/600', flush=True)\n    time.sleep(1)\n"
STALLS = (
    "import time\nfor n in range(1, 9):\n    print(f'step {n}/600', flush=True)\n    time.sleep(1)\n"
    "print('waiting for rank 3', flush=True)\ntime.sleep(600)\n"
)
CRASHES = (
    "import time\n\ndef load(path):\n    return open(path).read()\n\nfor n in range(1, 15):\n"
    "    print(f'chunk {n} written', flush=True)\n    time.sleep(1)\nload('/data/shards/part-0015.parquet')\n"
)
ENDS_WELL = "import time\nfor n in range(1, 13):\n    print(f'trial {n}/12 done', flush=True)\n    time.sleep(1.5)\nprint('all trials done')\n"
JOBS = (
    ("rl__healthy", HEALTHY, "prints a step every second"),
    ("sft__stalls", STALLS, "stops writing after 8 s, and goes on running"),
    ("datagen__crashes", CRASHES, "dies of an exception after 14 s"),
    ("eval-ends-well", ENDS_WELL, "ends with exit status 0 after 18 s"),
)


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    made = subparsers.add_parser(
        "demo",
        help="a first minute with real processes on this machine",
        description="Start four small processes (one healthy, one that stops writing, one that crashes, one that ends well) and a"
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
    print(f"demo in {folder}\n\nfour processes, started by `supervisorctl launch`:")
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
