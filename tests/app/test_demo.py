"""The first minute that a new user sees, shortened: real processes, a real daemon, and nothing left running."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.lab


def test_the_demo_shows_moving_tables_and_dated_records_and_leaves_nothing_running(tmp_path):
    command = [sys.executable, "-m", "supervisor.app.ctl", "demo", "--seconds", "25", "--dir", str(tmp_path / "demo")]

    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONUTF8": "1"}
    )

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for name in ("rl__healthy", "sft__stalls", "datagen__crashes", "eval-ends-well"):
        assert name in done.stdout
    assert "terminal" in done.stdout
    assert "FileNotFoundError" in done.stdout, "the crash is told with the line that shows it"
    assert "_sweep.md" in done.stdout
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in listed
